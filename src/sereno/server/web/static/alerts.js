// The form of an alert rule: filled from the list, and submitted as the API takes it.
import { ask } from "./actions.js";
import { refresh } from "./live.js";
import { toast } from "./toast.js";

const form = document.getElementById("rule-form");
const targets = document.getElementById("targets");
const NEW = { name: "", to: [{}], kinds: null, log: null, level: "warn", for_seconds: 0, again_seconds: 14400, enabled: true };
const ONLY = ["tenant", "queue", "task", "note"];
let known = null;

const field = (name) => form.elements.namedItem(name);

function addTarget({ channel, address } = {}) {
  const made = document.getElementById("target").content.cloneNode(true);
  const [select, input] = [made.querySelector("select"), made.querySelector("[name=address]")];
  // A channel that this server does not know stays unchanged.
  if (channel && ![...select.options].some((option) => option.value === channel)) select.add(new Option(channel));
  if (channel) select.value = channel;
  input.value = address ?? "";
  targets.append(made);
}

function shown() {
  const of = form.querySelector("[name=of]:checked").value;
  document.getElementById("rule-kinds").hidden = of !== "kinds";
  document.getElementById("rule-log").hidden = of !== "log";
}

function open(rule) {
  known = rule.name || null;
  form.reset();
  targets.replaceChildren();
  rule.to.forEach(addTarget);
  for (const name of ["name", "level", "for_seconds", "again_seconds", ...ONLY]) field(name).value = rule[name] ?? "";
  field("name").readOnly = known !== null;
  field("enabled").checked = rule.enabled;
  const of = rule.log ? "log" : rule.kinds ? "kinds" : "all";
  form.querySelector(`[name=of][value=${of}]`).checked = true;
  for (const box of form.querySelectorAll("[name=kind]")) box.checked = (rule.kinds ?? []).includes(box.value);
  if (rule.log) {
    for (const [name, from] of [["log_level", "level"], ["event", "event"], ["count", "count"], ["within", "within"]]) field(name).value = rule.log[from] ?? "";
  }
  shown();
  form.closest("dialog").showModal();
}

function target(row) {
  const keys = row.querySelector("[name=keys]").value.trim();
  const to = { channel: row.querySelector("select").value, address: row.querySelector("[name=address]").value.trim() };
  return keys ? { ...to, keys: JSON.parse(keys) } : to;
}

function written() {
  const of = form.querySelector("[name=of]:checked").value;
  const body = {
    to: [...targets.children].map(target),
    level: field("level").value,
    for_seconds: Number(field("for_seconds").value),
    again_seconds: Number(field("again_seconds").value),
    enabled: field("enabled").checked,
  };
  for (const name of ONLY) if (field(name).value.trim()) body[name] = field(name).value.trim();
  if (of === "kinds") body.kinds = [...form.querySelectorAll("[name=kind]:checked")].map((box) => box.value);
  if (of === "log") {
    body.log = { level: field("log_level").value, count: Number(field("count").value), within: Number(field("within").value) };
    if (field("event").value.trim()) body.log.event = field("event").value.trim();
  }
  return body;
}

document.addEventListener("click", (event) => {
  const edited = event.target.closest("button[data-rule]");
  if (edited) open(JSON.parse(edited.dataset.rule));
  if (event.target.closest("#new-rule")) open(NEW);
  if (event.target.closest("#more-targets")) addTarget();
  if (event.target.closest("[data-less]")) event.target.closest(".target").remove();
});

form?.addEventListener("change", shown);
form?.addEventListener("submit", async (event) => {
  event.preventDefault();
  try {
    await ask("PUT", `alerts/rules/${encodeURIComponent(known ?? field("name").value.trim())}`, written());
    form.closest("dialog").close();
    toast(`✓ ${form.dataset.done}`);
    await refresh(true);
  } catch (error) {
    toast(error.message, true);
  }
});
