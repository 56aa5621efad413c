// Completion of searches: fields, values and saved searches, from the API. The input keeps working without it.
const WAIT = 150;
const SHOWN = 12;
const HINTS = { number: [">0", ">10"], moment: ["1h..", "24h..", "7d.."], length: ["<1h", ">1d"] };
const base = document.body.dataset.base;
const cache = new Map();

function load(path) {
  if (!cache.has(path)) {
    const found = fetch(`${base}api/v1/${path}`, { credentials: "same-origin" }).then((response) => (response.ok ? response.json() : Promise.reject(new Error(response.statusText))));
    // A failed request may succeed at the next key.
    found.catch(() => cache.delete(path));
    cache.set(path, found);
  }
  return cache.get(path);
}

export const forget = (list) => cache.delete(`searches/${list}`);

// The term at the cursor: {start, minus, field, value, at}; `at`: where its last value begins.
export function termAt(text, cursor) {
  const before = text.slice(0, cursor);
  if ((before.match(/(?<!\\)"/g) ?? []).length % 2) return null;
  const start = before.search(/\S*$/);
  const term = before.slice(start);
  const minus = term.startsWith("-") ? "-" : "";
  const colon = term.indexOf(":");
  if (colon < 0) return { minus, field: null, value: term.slice(minus.length), at: start };
  const at = start + Math.max(colon, term.lastIndexOf(",")) + 1;
  return { minus, field: term.slice(minus.length, colon), value: before.slice(at), at };
}

const quoted = (value) => (/[\s",*\\]/.test(value) ? `"${value.replaceAll("\\", "\\\\").replaceAll('"', '\\"')}"` : value);

async function values(list, field, begins) {
  if (field.choices.length) return field.choices.filter((each) => each.startsWith(begins));
  if (HINTS[field.kind]) return begins ? [] : HINTS[field.kind];
  if (!field.is_completed) return [];
  return (await load(`searches/${list}/values?${new URLSearchParams({ field: field.name, begins })}`)).values;
}

// What the input could become: {label, note, text, cursor, isWhole}.
async function options(input) {
  const { list, field: only } = input.dataset;
  const text = input.value;
  if (only) {
    const found = await load(`searches/${list}/values?${new URLSearchParams({ field: only, begins: text })}`);
    return found.values.filter((each) => each !== text).map((each) => ({ label: each, text: each, cursor: each.length }));
  }
  const at = termAt(text, input.selectionStart);
  if (!at) return [];
  const fields = (await load(`searches/${list}/fields`)).items;
  const rest = text.slice(input.selectionStart);
  const put = (start, words) => ({ text: text.slice(0, start) + words + rest, cursor: start + words.length });
  if (at.field === null) {
    const saved = text.trim() ? [] : (await load(`searches/${list}`)).items;
    return [
      ...saved.map((each) => ({ label: each.name, note: each.text, text: each.text, cursor: each.text.length, isWhole: true })),
      ...fields.filter((each) => each.name.startsWith(at.value)).map((each) => {
        const words = `${at.minus}${each.name}${each.kind === "inside" ? "." : ":"}`;
        return { label: words, note: each.choices.slice(0, 4).join(" "), more: true, ...put(at.at, words) };
      }),
    ];
  }
  const field = fields.find((each) => each.name === at.field);
  if (!field) return [];
  return (await values(list, field, at.value)).filter((each) => each !== at.value).map((each) => ({ label: each, ...put(at.at, HINTS[field.kind] ? each : quoted(each)) }));
}

const box = document.createElement("ul");
box.id = "completion";
box.setAttribute("role", "listbox");
box.hidden = true;
box.setAttribute("aria-label", document.body.dataset.suggestions ?? "");
document.body.append(box);

let owner = null;
let shown = [];
let active = -1;
let timer = null;
let turn = 0;

function close() {
  clearTimeout(timer);
  turn += 1;
  box.hidden = true;
  box.replaceChildren();
  shown = [];
  active = -1;
  owner?.setAttribute("aria-expanded", "false");
  owner?.removeAttribute("aria-activedescendant");
  owner?.removeAttribute("aria-controls");
}

function mark(place) {
  active = place;
  for (const [index, line] of [...box.children].entries()) line.setAttribute("aria-selected", String(index === place));
  if (place < 0) owner.removeAttribute("aria-activedescendant");
  else owner.setAttribute("aria-activedescendant", `completion-${place}`);
  box.children[place]?.scrollIntoView({ block: "nearest" });
}

function draw(input, found) {
  if (!found.length || document.activeElement !== input) return close();
  owner = input;
  shown = found.slice(0, SHOWN);
  box.replaceChildren(...shown.map((each, index) => {
    const line = document.createElement("li");
    line.id = `completion-${index}`;
    line.setAttribute("role", "option");
    line.append(Object.assign(document.createElement("span"), { textContent: each.label, className: "mono" }));
    if (each.note) line.append(Object.assign(document.createElement("span"), { textContent: each.note, className: "dim" }));
    line.addEventListener("pointerdown", (event) => {
      event.preventDefault();
      take(index);
    });
    return line;
  }));
  // In the form: a dialog is above everything else of the page, and a landmark contains all content.
  input.form.append(box);
  box.hidden = false;
  const place = input.getBoundingClientRect();
  const around = box.offsetParent.getBoundingClientRect();
  box.style.left = `${place.left - around.left + box.offsetParent.scrollLeft - box.offsetParent.clientLeft}px`;
  box.style.top = `${place.bottom + 4 - around.top + box.offsetParent.scrollTop - box.offsetParent.clientTop}px`;
  box.style.width = `${Math.max(place.width, 220)}px`;
  input.setAttribute("aria-expanded", "true");
  input.setAttribute("aria-controls", box.id);
  mark(-1);
}

async function offer(input) {
  const mine = ++turn;
  try {
    const found = await options(input);
    if (mine === turn) draw(input, found);
  } catch {
    // Without an answer there is nothing to offer; the search itself says what is wrong.
    if (mine === turn) close();
  }
}

function take(index) {
  const input = owner;
  const { text, cursor, more, isWhole } = shown[index];
  close();
  input.value = text;
  input.setSelectionRange(cursor, cursor);
  input.dispatchEvent(new Event("change", { bubbles: true }));
  if (isWhole) input.form?.requestSubmit();
  else if (more) offer(input);
}

for (const input of document.querySelectorAll("input[data-list]")) {
  input.setAttribute("role", "combobox");
  input.setAttribute("aria-autocomplete", "list");
  input.setAttribute("aria-expanded", "false");
}

document.addEventListener("input", (event) => {
  if (!event.target.matches("input[data-list]")) return;
  clearTimeout(timer);
  // An answer about the text before must not open the list.
  turn += 1;
  // Suggestions that the new text rules out must not take the next key.
  const at = termAt(event.target.value, event.target.selectionStart);
  const begins = event.target.dataset.field ? event.target.value : at && at.minus.repeat(at.field === null) + at.value;
  if (!box.hidden && !shown.some((each) => each.label.startsWith(begins))) close();
  timer = setTimeout(offer, WAIT, event.target);
});
document.addEventListener("focusin", (event) => event.target.matches("input[data-list]") && !event.target.value && offer(event.target));
document.addEventListener("focusout", (event) => event.target === owner && close());

// Before the shortcuts of the page, which leave the input at Escape.
document.addEventListener("keydown", (event) => {
  if (box.hidden || event.target !== owner) {
    if (event.key === "ArrowDown" && event.target.matches("input[data-list]")) offer(event.target);
    return;
  }
  const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
  if (step) mark((active + step + shown.length + (active < 0 && step < 0 ? 1 : 0)) % shown.length);
  else if (event.key === "Tab" && !event.shiftKey) take(Math.max(0, active));
  else if (event.key === "Enter" && active >= 0) take(active);
  else if (event.key === "Escape") close();
  else return;
  event.preventDefault();
  event.stopImmediatePropagation();
}, true);
