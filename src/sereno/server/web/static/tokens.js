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

function forget() {
  secret.textContent = "";
  copy.dataset.copy = "";
}

// A dialog says that it has closed a moment later: whoever has it wants it gone now.
made?.addEventListener("close", forget);
made?.addEventListener("click", (event) => event.target.closest("[data-close]") && forget());
