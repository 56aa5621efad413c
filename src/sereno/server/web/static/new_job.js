// The dialog that enqueues a job.
import { ask, gather } from "./actions.js";
import { args, fields, skeleton, tasks } from "./task_fields.js";
import { toast } from "./toast.js";

const dialog = document.getElementById("new-job");
const form = dialog?.querySelector("form");
const place = form?.querySelector("[data-parameters]");
const note = form?.querySelector(".note");
const asJson = document.getElementById("new-job-as-json");
const raw = document.getElementById("new-job-json");
let found = [];

const chosen = () => found.find((each) => each.name === form.elements.task.value);

function mode() {
  form.querySelector("[data-as-json]").hidden = !asJson.checked;
  place.hidden = asJson.checked;
  for (const field of place.querySelectorAll("[data-parameter]")) field.disabled = asJson.checked;
}

function choose() {
  const task = chosen();
  const isSecret = task?.parameters?.some((each) => each.encrypted) ?? false;
  note.hidden = Boolean(task) && !isSecret;
  note.textContent = task ? form.dataset.secret : form.dataset.none;
  form.querySelector("button.go").disabled = !task || isSecret;
  if (!task) return;
  fields(task, place, form.dataset);
  raw.value = JSON.stringify(skeleton(task), null, 2);
  asJson.checked = task.parameters === null;
  form.elements.queue.placeholder = task.queue ?? "default";
  mode();
}

async function open() {
  found = await tasks();
  const select = form.elements.task;
  const before = select.value;
  select.replaceChildren(...found.map((each) => new Option(each.name, each.name)));
  if (before) select.value = before;
  else choose();
}

async function enqueue() {
  const given = asJson.checked ? JSON.parse(raw.value) : args(chosen(), place);
  const made = await ask("POST", "jobs", { ...gather(form), arguments: given });
  location.assign(form.dataset.then.replace("{id}", made.id));
}

if (form) {
  document.addEventListener("click", (event) => event.target.closest('[data-dialog="new-job"]') && open().catch((error) => toast(error.message, true)));
  form.elements.task.addEventListener("change", choose);
  asJson.addEventListener("change", () => {
    if (asJson.checked) {
      try {
        raw.value = JSON.stringify(args(chosen(), place), null, 2);
      } catch {
        // A field that is no JSON yet: the skeleton stays.
      }
    }
    mode();
  });
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    enqueue().catch((error) => toast(error.message, true));
  });
}
