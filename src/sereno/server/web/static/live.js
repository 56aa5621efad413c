// Live updates: the server sends an event at each change; the page then reloads its live parts.
// A hidden page sends no requests.
import { label } from "./tables.js";
import { tell } from "./times.js";

const body = document.body;
const button = document.getElementById("live");
const every = Number(body.dataset.every) * 1000;
let source = null;
let wanted = 0;
let timer = null;
let asking = false;
let owed = false;
// Milliseconds: when the server last sent something, after which age the page shows that its data is old, and after
// which the connection is opened anew.
let heard = Date.now();
const OLD = 10000;
const REOPEN = 15000;

function isOn() {
  return button.getAttribute("aria-pressed") === "true";
}

// Elements in use are not replaced: a text being typed, an open menu, selected rows.
function isBusy(part) {
  const active = document.activeElement;
  const writes = active && part.contains(active) && /^(INPUT|TEXTAREA|SELECT)$/.test(active.tagName);
  return writes || part.querySelector("details[open].copy, dialog[open], tr[aria-selected=true]") !== null;
}

// `isChanged`: this page has just changed something, so the server must bypass its cache.
export async function refresh(isChanged = false) {
  if (asking) {
    owed ||= isChanged;
    return;
  }
  asking = true;
  wanted = 0;
  try {
    const response = await fetch(location.href, { headers: { "X-Sereno-Live": isChanged ? "changed" : "1" }, credentials: "same-origin", signal: AbortSignal.timeout(OLD) });
    if (response.redirected) return location.reload();
    // The server or its database is unavailable: the page stays as it is, and retries.
    if (response.status >= 500 && document.querySelector("main [data-live]:not(#problem)")) return lost();
    const text = await response.text();
    // Live updates may have been paused meanwhile.
    if (!isChanged && !isOn()) return;
    const fresh = new DOMParser().parseFromString(text, "text/html");
    label(fresh);
    const parts = [...document.querySelectorAll("main [data-live]")];
    // The page was an error before and is none now, or the reverse.
    if (!parts.some((part) => part.id && fresh.getElementById(part.id))) {
      if (fresh.querySelector("main")) document.querySelector("main").replaceChildren(...fresh.querySelector("main").childNodes);
    }
    for (const part of parts) {
      const other = fresh.getElementById(part.id);
      if (other && other.innerHTML !== part.innerHTML && !isBusy(part)) {
        const focused = part.contains(document.activeElement) ? document.activeElement.getAttribute("data-focus") : null;
        const opened = [...part.querySelectorAll("details[open][id]")].map((each) => each.id);
        part.replaceChildren(...other.childNodes);
        opened.forEach((id) => document.getElementById(id)?.setAttribute("open", ""));
        if (focused) part.querySelector(`[data-focus="${CSS.escape(focused)}"]`)?.focus();
      }
    }
    found();
    tell();
    document.dispatchEvent(new Event("sereno:refreshed"));
  } catch {
    lost();
  } finally {
    asking = false;
    if (owed) {
      owed = false;
      refresh(true);
    }
  }
}

// The server may be up and its database not: the page then shows the last known values.
let isDatabaseUp = true;
function found() {
  heard = Date.now();
  if (!isDatabaseUp) return;
  button.classList.remove("lost");
  body.classList.remove("old");
  if (isOn()) button.textContent = button.dataset.on;
  connect();
}

let again = null;
function lost() {
  button.classList.add("lost");
  if (isOn()) button.textContent = button.dataset.lost;
  again ??= setTimeout(() => {
    again = null;
    if (!document.hidden && isOn()) refresh();
  }, 3000);
}

// A server that is stopped, or a cut network, closes no connection: without a word from it, the data counts as old.
function watch() {
  const age = Date.now() - heard;
  if (document.hidden || !isOn() || age < OLD || !document.querySelector("main [data-live]")) return;
  body.classList.add("old");
  button.classList.add("lost");
  button.textContent = button.dataset.old.replace("0", Math.round(age / 1000));
  if (age > REOPEN && !asking) {
    disconnect();
    refresh();
  }
}

// At most once per interval in seconds, however often something changes.
let last = Date.now();
function soon() {
  wanted += 1;
  if (timer !== null || document.hidden || !isOn()) return;
  timer = setTimeout(() => {
    timer = null;
    last = Date.now();
    if (!document.hidden && isOn() && wanted) refresh();
  }, Math.max(0, last + every - Date.now()));
}

// A page above several databases has no stream: it reloads its live parts at every interval.
let polling = null;
function connect() {
  if (source || polling || document.hidden || !isOn() || !document.querySelector("main [data-live]")) return;
  if ("polls" in body.dataset) {
    polling = setInterval(() => refresh(), every);
    return;
  }
  source = new EventSource(`${body.dataset.base}api/v1/stream`);
  source.addEventListener("alive", () => {
    heard = Date.now();
    if (isDatabaseUp) found();
  });
  source.addEventListener("now", (event) => {
    heard = Date.now();
    isDatabaseUp = JSON.parse(event.data).is_available;
    isDatabaseUp ? found() : lost();
    soon();
  });
  source.onerror = (event) => {
    // The browser reconnects by itself, unless the request was refused.
    if (event.target.readyState === EventSource.CLOSED) disconnect();
    lost();
  };
}

function disconnect() {
  isDatabaseUp = true;
  clearInterval(polling);
  polling = null;
  source?.close();
  source = null;
}

if (button) {
  button.addEventListener("click", () => {
    button.setAttribute("aria-pressed", String(!isOn()));
    button.textContent = isOn() ? button.dataset.on : button.dataset.off;
    if (isOn()) refresh();
    isOn() ? connect() : disconnect();
  });
  document.addEventListener("visibilitychange", () => {
    if (document.hidden) return disconnect();
    if (isOn()) refresh();
    connect();
  });
  addEventListener("pagehide", disconnect);
  connect();
  setInterval(watch, 1000);
  // A query is still running: reload in a moment.
  const missing = () => document.querySelector("main .missing") && setTimeout(() => !document.hidden && isOn() && refresh(), 2000);
  document.addEventListener("sereno:refreshed", missing);
  missing();
}
