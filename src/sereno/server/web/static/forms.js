// One dialog for many rows: the button that opens it has the row and the values of the form.
document.addEventListener("click", (event) => {
  const button = event.target.closest("button[data-form]");
  if (!button) return;
  const form = document.getElementById(button.dataset.form);
  form.reset();
  form.dataset.do = button.dataset.act;
  form.querySelector("[data-about]").textContent = button.dataset.about;
  for (const [name, value] of Object.entries(JSON.parse(button.dataset.fill || "{}"))) {
    const field = form.elements.namedItem(name);
    if (field && value !== null) field.value = value;
  }
  // An hour from now, in the time zone of this browser.
  if (button.dataset.soon) {
    const soon = new Date(Date.now() + 3600000 - new Date().getTimezoneOffset() * 60000);
    form.elements.namedItem(button.dataset.soon).value = soon.toISOString().slice(0, 16);
  }
  form.closest("dialog").showModal();
});
