// One schedule: a preview of the next runs while typing, and of a backfill before it runs.
import { ask, gather } from "./actions.js";
import { refresh } from "./live.js";
import { request } from "./request.js";
import { skeleton, tasks } from "./task_fields.js";
import { toast } from "./toast.js";

const SHOWN = 10;
const SOON = 250;
const here = () => document.querySelector('[data-cookie="sereno_zone"]')?.value || "UTC";

function line(name, words, kind) {
  const made = document.createElement(name);
  made.textContent = words;
  if (kind) made.className = kind;
  return made;
}

// A time in two lines: in the time zone of the rule, and in that of the viewer.
function moment(each) {
  const there = line("li", `${each.local.slice(0, 10)} ${each.local.slice(11, 19)} ${each.zone ?? ""}`, "mono");
  const mine = new Intl.DateTimeFormat(document.documentElement.lang, { timeZone: here(), weekday: "short", hour: "2-digit", minute: "2-digit", hourCycle: "h23" });
  there.append(line("span", ` ${mine.format(new Date(each.at))} ${here()}`, "dim"));
  if (each.note) there.append(line("span", each.note, "row note"));
  return there;
}

// Read-only: without an Idempotency-Key, so the server stores no response.
function post(path, body) {
  return request(path, { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body) });
}

const edit = document.getElementById("edit");
const shown = document.getElementById("edit-preview");
let timer = null;
let turn = 0;

// `gather` reads the whole form; arguments that are not valid JSON yet do not matter here.
function rule() {
  const found = {};
  for (const field of edit.querySelectorAll('[name^="when."]:not(:disabled)')) {
    if (field.value !== "") found[field.name.slice(5)] = field.value;
  }
  return found;
}

async function preview() {
  const mine = ++turn;
  const says = shown.querySelector(".says");
  try {
    const starts = Date.parse(edit.elements.starts_at.value);
    const after = starts > Date.now() ? { after: new Date(starts - 1).toISOString() } : {};
    const found = await post("schedules/preview", { when: rule(), n: SHOWN, ...(edit.dataset.key ? { key: edit.dataset.key } : {}), ...after });
    if (mine !== turn) return;
    says.className = "says";
    says.textContent = found.upcoming.length ? found.when : shown.dataset.none;
    shown.querySelector("ol").replaceChildren(...found.upcoming.map(moment));
  } catch (error) {
    if (mine !== turn) return;
    says.className = "says bad";
    says.textContent = error.message;
    shown.querySelector("ol").replaceChildren();
  }
}

function choose() {
  const kind = edit.elements["when.kind"].value;
  for (const part of edit.querySelectorAll("[data-kind]")) {
    const on = part.dataset.kind.split(" ").includes(kind);
    part.hidden = !on;
    for (const field of part.querySelectorAll("input, select")) field.disabled = !on;
  }
}

if (edit) {
  edit.querySelector("#zones").replaceChildren(...(Intl.supportedValuesOf?.("timeZone") ?? []).map((name) => new Option(name, name)));
  edit.addEventListener("input", (event) => {
    if (event.target.name === "when.kind") choose();
    if (!/^(when[.]|starts_at)/.test(event.target.name)) return;
    clearTimeout(timer);
    timer = setTimeout(preview, SOON);
  });
  document.addEventListener("click", (event) => {
    if (!event.target.closest('[data-dialog="edit-dialog"]')) return;
    preview();
    tasks().then((found) => edit.querySelector("#known-tasks").replaceChildren(...found.map((each) => new Option(each.name, each.name)))).catch((error) => toast(error.message, true));
  });
}

// A new schedule: its key is part of the request, and must be free.
async function create() {
  const key = edit.querySelector("#f-key").value;
  const body = gather(edit);
  const list = await ask("GET", `schedules?${new URLSearchParams({ q: `key:"${key.replaceAll("\\", "\\\\").replaceAll('"', '\\"')}"`, limit: 1 })}`);
  if (list.items.length) throw new Error(edit.dataset.taken);
  const isElsewhere = edit.dataset.own && !JSON.parse(edit.dataset.own).includes(body.task);
  await ask("PUT", `schedules/-?${new URLSearchParams({ key, ...(isElsewhere ? { unchecked: true } : {}) })}`, body);
  location.assign(edit.dataset.then.replace("{key}", encodeURIComponent(key)));
}

if (edit?.hasAttribute("data-new")) {
  const key = edit.querySelector("#f-key");
  key.addEventListener("change", () => {
    edit.dataset.key = key.value;
    preview();
  });
  edit.elements.task.addEventListener("change", async () => {
    const task = (await tasks()).find((each) => each.name === edit.elements.task.value);
    if (!task) return;
    edit.elements.queue.value = task.queue ?? "default";
    edit.elements.args.value = JSON.stringify(skeleton(task));
  });
  edit.addEventListener("submit", (event) => {
    event.preventDefault();
    event.stopImmediatePropagation();
    create().catch((error) => toast(error.message, true));
  });
}

// The local time of a zone at a moment, as if it were UTC; used to convert local times to moments.
function shownAt(at, zone) {
  const parts = new Intl.DateTimeFormat("en-US", { timeZone: zone, hourCycle: "h23", year: "numeric", month: "2-digit", day: "2-digit", hour: "2-digit", minute: "2-digit", second: "2-digit" }).formatToParts(at);
  const of = Object.fromEntries(parts.map((part) => [part.type, Number(part.value)]));
  return Date.UTC(of.year, of.month - 1, of.day, of.hour, of.minute, of.second);
}

function instant(wall, zone) {
  const wanted = Date.parse(`${wall}Z`);
  let at = wanted;
  for (let again = 0; again < 2; again++) at -= shownAt(at, zone) - wanted;
  return new Date(at).toISOString();
}

const backfill = document.getElementById("backfill");

function range() {
  const { start, end, rate } = gather(backfill);
  const zone = backfill.dataset.zone;
  return { start: instant(start, zone), end: instant(end, zone), ...(rate ? { rate: Number(rate) } : {}) };
}

if (backfill) {
  const go = document.getElementById("backfill-go");
  const list = backfill.querySelector(".preview");
  backfill.addEventListener("input", () => (go.disabled = true));
  backfill.addEventListener("submit", async (event) => {
    event.preventDefault();
    try {
      const plan = await post(backfill.dataset.path, { ...range(), dry_run: true });
      const words = backfill.dataset.plan.replace("%a", plan.total).replace("%b", plan.to_make);
      const instants = plan.instants.slice(0, 200).map((each) => line("li", each.local.replace("T", " ") + (each.done ? ` · ${backfill.dataset.before}` : ""), each.done ? "mono dim" : "mono"));
      const ordered = document.createElement("ol");
      ordered.append(...instants, ...(plan.total > instants.length ? [line("li", "…")] : []));
      list.replaceChildren(line("p", words), ordered);
      go.disabled = plan.to_make === 0;
    } catch (error) {
      list.replaceChildren(line("p", error.message, "bad"));
    }
  });
  go.addEventListener("click", async () => {
    go.disabled = true;
    try {
      const done = await ask("POST", backfill.dataset.path, range());
      toast(`✓ ${backfill.dataset.done.replace("%a", done.jobs.length)}`);
      backfill.closest("dialog").close();
      await refresh(true);
    } catch (error) {
      toast(error.message, true);
    }
  });
}
