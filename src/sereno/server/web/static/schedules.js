// Inputs beside a button are part of its request: until when to pause, how long to spread over.
document.addEventListener("input", (event) => {
  const field = event.target.closest("[data-into]");
  if (!field) return;
  const button = document.getElementById(field.dataset.into);
  const body = JSON.parse(button.dataset.body || "{}");
  const value = field.type === "datetime-local" && field.value ? new Date(field.value).toISOString() : field.value;
  if (value) body[field.dataset.as] = value;
  else delete body[field.dataset.as];
  button.dataset.body = JSON.stringify(body);
});
