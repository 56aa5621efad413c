// Buttons and forms that call the API. Dangerous actions ask for a confirmation, with a dry run where possible.
import { refresh } from "./live.js";
import { figure } from "./numbers.js";
import { request } from "./request.js";
import { toast } from "./toast.js";

export function ask(method, path, body) {
  return request(path, {
    method,
    headers: { "Content-Type": "application/json", ...(method === "POST" ? { "Idempotency-Key": crypto.randomUUID?.() ?? String(Math.random()) } : {}) },
    body: method === "GET" || body === undefined ? undefined : JSON.stringify(body),
  });
}

function line(words) {
  const made = document.createElement("p");
  made.textContent = words;
  return made;
}

// The result of a dry run: how many, by task, queue and so on.
function summary(would) {
  const words = document.getElementById("ask-what").dataset;
  const total = `${figure(would.total ?? would.count ?? 0)}${would.exact === false ? "+" : ""}`;
  const parts = [line(words.touches.replace("%s", total))];
  for (const [name, counts] of Object.entries(would)) {
    if (name.startsWith("by_") && counts && Object.keys(counts).length) {
      const top = Object.entries(counts).slice(0, 5).map(([what, count]) => `${what} ${figure(count)}`);
      // The parts add up to the total.
      const others = Object.values(counts).slice(5).reduce((sum, count) => sum + count, 0);
      if (others) top.push(words.others.replace("%s", figure(others)));
      parts.push(line(`${words[name.slice(3)] ?? name.slice(3)}: ${top.join(", ")}`));
    }
  }
  return parts;
}

// The button says what it does, and to how many: "Retry 67 jobs".
function naming(label, path, would) {
  const count = would?.total ?? would?.count;
  const words = document.getElementById("ask-what").dataset;
  const noun = path.split("/")[0].replace(/^./, (letter) => letter.toUpperCase());
  const form = count === undefined ? null : words[`${count === 1 ? "one" : "many"}${noun}`];
  return form ? form.replace("%a", label).replace("%s", `${figure(count)}${would.exact === false ? "+" : ""}`) : label;
}

// `label`: of the button that does it; the other one says "Cancel", unless that is what is asked.
export function confirm(title, what = [], label = title, isCancel = false) {
  const dialog = document.getElementById("ask");
  const [no, yes] = ["no", "yes"].map((value) => dialog.querySelector(`button[value=${value}]`));
  yes.textContent = label;
  no.textContent = isCancel ? no.dataset.back : no.dataset.cancel;
  dialog.querySelector("h2").textContent = title;
  dialog.querySelector("#ask-what").replaceChildren(...what);
  dialog.returnValue = "no";
  dialog.showModal();
  return new Promise((done) => dialog.addEventListener("close", () => done(dialog.returnValue === "yes"), { once: true }));
}

// {name: value} of a form as the API takes it: data-type says number, json, list, bool or text; empty is left out.
export function gather(form) {
  const found = {};
  for (const field of form.elements) {
    if (!field.name || field.disabled) continue;
    if (field.type === "radio" && !field.checked) continue;
    const type = field.dataset.type ?? (field.type === "checkbox" ? "bool" : "text");
    let value = field.value;
    if (type === "bool") value = field.checked;
    else if (value === "") continue;
    else if (type === "number") value = Number(value);
    else if (type === "json") value = JSON.parse(value);
    else if (type === "list") value = value.split(",").map((part) => part.trim()).filter(Boolean);
    else if (type === "moment") value = new Date(value).toISOString();
    let place = found;
    const names = field.name.split(".");
    for (const name of names.slice(0, -1)) place = place[name] ??= {};
    place[names.at(-1)] = value;
  }
  return found;
}

export async function act(element, more = {}) {
  const [method, path] = element.dataset.do.split(" ");
  const body = { ...JSON.parse(element.dataset.body || "{}"), ...more };
  const button = element.tagName === "FORM" ? element.querySelector("button[type=submit], button:not([type])") : element;
  if (button) button.disabled = true;
  try {
    if (element.dataset.ask) {
      const would = element.hasAttribute("data-dry") ? await ask(method, path, { ...body, dry_run: true }) : null;
      const label = naming(button?.textContent.trim() || element.dataset.ask, path, would);
      if (!(await confirm(element.dataset.ask, would ? summary(would) : [], label, /\/cancel$/.test(path)))) return;
    }
    const response = await ask(method, path, body);
    element.closest("dialog")?.close();
    document.dispatchEvent(new CustomEvent("sereno:done", { detail: { element, response } }));
    if (element.dataset.show) {
      const place = document.getElementById(element.dataset.show);
      place.textContent = typeof response === "string" ? response : JSON.stringify(response, null, 2);
      place.hidden = false;
    } else if (element.dataset.then) {
      location.assign(element.dataset.then.replace("{id}", encodeURIComponent(response?.id ?? "")));
      return;
    }
    const total = response && typeof response === "object" && typeof response.total === "number" ? `: ${figure(response.total)}` : "";
    toast(`✓ ${element.dataset.done || button?.textContent.trim() || ""}${total}`);
    await refresh(true);
  } catch (error) {
    toast(error.message, true);
  } finally {
    if (button) button.disabled = false;
  }
}

document.addEventListener("click", (event) => {
  const button = event.target.closest("button[data-do]:not([data-bulk])");
  if (button) {
    event.preventDefault();
    act(button);
  }
  const opener = event.target.closest("[data-dialog]");
  if (opener) document.getElementById(opener.dataset.dialog).showModal();
  if (event.target.closest("[data-close]")) event.target.closest("dialog").close();
});

document.addEventListener("submit", (event) => {
  const form = event.target.closest("form[data-do]");
  if (!form) return;
  event.preventDefault();
  try {
    act(form, gather(form));
  } catch (error) {
    toast(error.message, true);
  }
});
