// The dialog of saved searches: those of the list of this page, and a form that saves the current one.
import { ask, confirm } from "./actions.js";
import { forget } from "./completion.js";
import { toast } from "./toast.js";

const dialog = document.getElementById("saved");
const form = dialog?.querySelector("form");
const list = () => dialog.dataset.of;
const path = (name) => `searches/${list()}/${encodeURIComponent(name)}`;

function link(saved) {
  const to = new URL(location.href);
  to.search = "";
  if (dialog.dataset.show) to.searchParams.set("show", dialog.dataset.show);
  to.searchParams.set("q", saved.text);
  const made = document.createElement("a");
  made.href = to.href;
  made.textContent = saved.name;
  return made;
}

function line(saved) {
  const made = document.createElement("li");
  const text = document.createElement("span");
  text.className = "mono dim";
  text.textContent = saved.text;
  made.append(link(saved), text);
  if (form) {
    const button = document.createElement("button");
    button.type = "button";
    button.className = "small";
    button.textContent = dialog.dataset.delete;
    button.setAttribute("aria-label", `${dialog.dataset.delete} ${saved.name}`);
    button.addEventListener("click", () => remove(saved).catch((error) => toast(error.message, true)));
    made.append(button);
  }
  return made;
}

async function remove(saved) {
  if (!(await confirm(dialog.dataset.ask.replace("%s", saved.name)))) return;
  await ask("DELETE", path(saved.name));
  await draw();
}

async function draw() {
  forget(list());
  const { items } = await ask("GET", `searches/${list()}`);
  dialog.querySelector("ul").replaceChildren(...items.map(line));
  dialog.querySelector("[data-empty]").hidden = items.length > 0;
}

document.addEventListener("click", (event) => {
  const button = event.target.closest("button[data-saved]");
  if (!button) return;
  dialog.dataset.of = button.dataset.saved;
  if (button.dataset.show) dialog.dataset.show = button.dataset.show;
  if (form) form.elements.text.value = button.form?.elements.q.value ?? "";
  dialog.showModal();
  draw().catch((error) => toast(error.message, true));
});

form?.addEventListener("submit", async (event) => {
  event.preventDefault();
  try {
    await ask("PUT", path(form.elements.name.value), { text: form.elements.text.value });
    form.elements.name.value = "";
    toast(`✓ ${dialog.dataset.kept}`);
    await draw();
  } catch (error) {
    toast(error.message, true);
  }
});
