// Reveal addresses, edit quiet hours, and preview templates while typing.
import { ask } from "./actions.js";
import { refresh } from "./live.js";
import { request } from "./request.js";
import { toast } from "./toast.js";

// Without an Idempotency-Key: the response holds addresses and must not be stored.
async function whole(button) {
  const content = await request(button.dataset.whole, { method: "POST" });
  const found = content.addresses ?? [{ id: content.delivery.address_id, address: content.delivery.address }];
  for (const { id, address } of found) {
    const place = document.querySelector(`[data-address="${CSS.escape(String(id))}"]`);
    if (place) place.textContent = address;
  }
  button.remove();
}

async function save(button) {
  const [method, path] = button.dataset.save.split(" ");
  await ask(method, path, { source: document.getElementById("source").value });
  toast(`✓ ${button.textContent.trim()}`);
  location.reload();
}

document.addEventListener("click", (event) => {
  for (const [name, does] of [["whole", whole], ["save", save]]) {
    const button = event.target.closest(`button[data-${name}]`);
    if (button) does(button).catch((error) => toast(error.message, true));
  }
});

// Before the general handler of forms, which cannot submit lists of spans.
document.addEventListener("submit", (event) => {
  const form = event.target.closest("form[data-quiet]");
  if (!form) return;
  event.preventDefault();
  event.stopImmediatePropagation();
  const [method, path] = form.dataset.do.split(" ");
  const span = { start: form.elements.start.value, end: form.elements.end.value };
  ask(method, path, { quiet: [span] }).then(() => {
    toast(`✓ ${form.dataset.done}`);
    return refresh();
  }).catch((error) => toast(error.message, true));
}, true);

// Update the preview while typing.
const draft = document.getElementById("draft");
let timer = null;
if (document.getElementById("try")) {
  draft.addEventListener("input", () => {
    clearTimeout(timer);
    timer = setTimeout(() => draft.submit(), 600);
  });
}

// A test notification: the payload starts as that of the last event of its type.
const test = document.getElementById("test-form");

async function fill() {
  const tenant = test.dataset.tenant ? { tenant: test.dataset.tenant } : {};
  const { items } = await ask("GET", `events?${new URLSearchParams({ type: test.elements.type.value, limit: 1, ...tenant })}`);
  const payload = items.length ? (await ask("GET", `events/${items[0].id}`)).event.payload : {};
  test.elements.payload.value = JSON.stringify(payload, null, 2);
}

async function send() {
  const { type, payload } = test.elements;
  const tenant = test.dataset.tenant ? { tenant: test.dataset.tenant } : {};
  const made = await ask("POST", "events", { type: type.value, payload: JSON.parse(payload.value), to: JSON.parse(test.dataset.to), ...tenant });
  location.assign(test.dataset.then.replace("%7Bid%7D", made.id));
}

if (test) {
  const report = (error) => toast(error.message, true);
  document.addEventListener("click", (event) => event.target.closest('[data-dialog="test-notification"]') && fill().catch(report));
  test.elements.type.addEventListener("change", () => fill().catch(report));
  test.addEventListener("submit", (event) => {
    event.preventDefault();
    send().catch(report);
  });
}
