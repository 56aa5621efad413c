// Details of a job: reveal its arguments, retry with other arguments, and keyboard shortcuts.
import { refresh } from "./live.js";
import { request } from "./request.js";
import { toast } from "./toast.js";

// Without an Idempotency-Key: the response holds secrets and must not be stored.
async function revealed(id) {
  const content = await request(`jobs/${id}/reveal`, { method: "POST" });
  return JSON.stringify(content.arguments, null, 2);
}

async function show(button) {
  document.getElementById("job-arguments").textContent = await revealed(button.dataset.reveal);
  document.getElementById("job-masked").remove();
}

async function edit(button) {
  const field = document.getElementById("edited");
  if (field.hasAttribute("data-masked")) {
    field.value = await revealed(button.dataset.edit);
    field.removeAttribute("data-masked");
  }
  document.getElementById("edit-arguments").showModal();
}

document.addEventListener("click", (event) => {
  for (const [name, does] of [["reveal", show], ["edit", edit]]) {
    const button = event.target.closest(`button[data-${name}]`);
    if (button) does(button).catch((error) => toast(error.message, true));
  }
});

// The page may be cached for a second; after that it shows the effect of the change.
document.addEventListener("sereno:done", () => setTimeout(refresh, 1200));

// An operation in the background has a page of its own.
document.addEventListener("sereno:done", (event) => {
  const { response, element } = event.detail;
  if (element.hasAttribute("data-bulk") && response?.action && response.id) location.assign(`${document.body.dataset.base}operation?id=${response.id}`);
});

// r and c act on the open job; after g they select pages.
let goes = 0;
document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || event.repeat) return;
  if (event.target.matches("input, textarea, select, [contenteditable]") || document.querySelector("dialog[open]")) return;
  const isPlace = Date.now() - goes < 1500;
  goes = event.key === "g" ? Date.now() : 0;
  if (isPlace || !/^[rc]$/.test(event.key)) return;
  document.querySelector(`[data-press="${event.key}"] button`)?.click();
});
