// A new token is shown once, and forgotten when its dialog closes.
const made = document.getElementById("made-dialog");
const secret = document.getElementById("made-secret");
const copy = document.getElementById("made-copy");

document.addEventListener("sereno:done", (event) => {
  if (event.detail.element.id !== "new-token") return;
  event.detail.element.reset();
  secret.textContent = event.detail.answer.secret;
  copy.dataset.copy = event.detail.answer.secret;
  made.showModal();
});

made?.addEventListener("close", () => {
  secret.textContent = "";
  copy.dataset.copy = "";
});
