// Keyboard shortcuts: `?` shows them.
import { select } from "./lists.js";

let goes = 0;

function rows() {
  return [...document.querySelectorAll("main table tbody tr[data-id], main table tbody tr[data-open]")];
}

function move(by) {
  const all = rows();
  if (!all.length) return;
  const now = all.findIndex((row) => row.classList.contains("at"));
  const next = all[Math.min(all.length - 1, Math.max(0, now < 0 ? (by > 0 ? 0 : all.length - 1) : now + by))];
  all.forEach((row) => row.classList.toggle("at", row === next));
  next.scrollIntoView({ block: "nearest" });
}

const current = () => document.querySelector("main tr.at");

const DOES = {
  // The filter of the page, or else the search for jobs.
  "/": () => (document.querySelector("main form[role=search] input:not([type=hidden])") ?? document.querySelector(".search input"))?.focus(),
  j: () => move(1),
  k: () => move(-1),
  o: () => current()?.querySelector("a[href]")?.click(),
  Enter: () => current()?.querySelector("a[href]")?.click(),
  x: () => current() && select(current()),
  y: () => document.querySelector("details.copy summary")?.click(),
  l: () => document.getElementById("live")?.click(),
  t: () => document.getElementById("theme")?.click(),
  "?": () => document.getElementById("keys")?.showModal(),
  Escape: () => document.querySelector("[data-escape]")?.click(),
};

export const KEYS = Object.keys(DOES);

document.addEventListener("keydown", (event) => {
  const at = event.target;
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  if (at.matches("input, textarea, select, [contenteditable]")) {
    if (event.key === "Escape") at.blur();
    return;
  }
  if (document.querySelector("dialog[open]")) return;
  if (event.key === "Enter" && at.matches("a, button, summary")) return;
  if (goes && Date.now() - goes < 1500) {
    goes = 0;
    const link = document.querySelector(`aside a[data-key="${CSS.escape(event.key)}"]`);
    if (link) {
      event.preventDefault();
      link.click();
    }
    return;
  }
  if (event.key === "g") {
    goes = Date.now();
    return;
  }
  if (DOES[event.key]) {
    event.preventDefault();
    DOES[event.key]();
  }
});
