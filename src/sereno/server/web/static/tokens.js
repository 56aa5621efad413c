// A new token is shown once, and cleared when its dialog closes.
const made = document.getElementById("made-dialog");
const secret = document.getElementById("made-secret");
const copy = document.getElementById("made-copy");

document.addEventListener("sereno:done", (event) => {
  if (event.detail.element.id !== "new-token") return;
  event.detail.element.reset();
  secret.textContent = event.detail.response.secret;
  copy.dataset.copy = event.detail.response.secret;
  made.showModal();
});

function forget() {
  secret.textContent = "";
  copy.dataset.copy = "";
}

// The close event of a dialog comes a moment later; the token has to be cleared at once.
made?.addEventListener("close", forget);
made?.addEventListener("click", (event) => event.target.closest("[data-close]") && forget());
