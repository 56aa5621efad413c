// Bulk actions on selected rows, or on all that match the search.
import { act } from "./actions.js";

function rows(bulk) {
  return [...document.querySelectorAll(`${bulk.dataset.rows} tbody tr[data-id]`)];
}

function selected(bulk) {
  return rows(bulk).filter((row) => row.getAttribute("aria-selected") === "true");
}

function count(bulk) {
  const chosen = selected(bulk).length;
  const all = bulk.querySelector("[name=all]")?.checked;
  bulk.querySelector("output").textContent = all ? bulk.dataset.allWords : chosen ? bulk.dataset.someWords.replace("%s", chosen) : "";
  for (const button of bulk.querySelectorAll("button[data-bulk]")) button.disabled = !all && !chosen;
}

export function select(row, on = row.getAttribute("aria-selected") !== "true") {
  row.setAttribute("aria-selected", String(on));
  const box = row.querySelector("input[type=checkbox]");
  if (box) box.checked = on;
  document.querySelectorAll(".bulk").forEach(count);
}

document.addEventListener("change", (event) => {
  const box = event.target;
  if (box.matches("tbody tr[data-id] input[type=checkbox]")) select(box.closest("tr"), box.checked);
  if (box.matches("thead input[type=checkbox]")) {
    for (const row of box.closest("table").querySelectorAll("tbody tr[data-id]")) select(row, box.checked);
  }
  const bulk = box.closest(".bulk");
  if (bulk) count(bulk);
});

document.addEventListener("click", (event) => {
  const button = event.target.closest(".bulk button[data-bulk]");
  if (!button) return;
  const bulk = button.closest(".bulk");
  const isAll = bulk.querySelector("[name=all]")?.checked;
  const ids = selected(bulk).map((row) => (bulk.dataset.ids === "text" ? row.dataset.id : Number(row.dataset.id)));
  const rate = bulk.querySelector("[name=rate]")?.value;
  const wanted = isAll ? { ...JSON.parse(bulk.dataset.wanted), ...JSON.parse(button.dataset.allBody || "{}") } : { [bulk.dataset.field || "ids"]: ids };
  act(button, { ...wanted, ...(rate ? { rate: Number(rate) } : {}) });
});

document.querySelectorAll(".bulk").forEach(count);
document.addEventListener("sereno:refreshed", () => document.querySelectorAll(".bulk").forEach(count));
document.addEventListener("sereno:done", () => document.querySelectorAll("tbody tr[aria-selected=true]").forEach((row) => select(row, false)));
