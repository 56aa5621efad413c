// In a narrow place a row of a table becomes a card: each cell is then labelled with the name of its column.
export function label(root) {
  for (const table of root.querySelectorAll("main table")) {
    const names = [...table.querySelectorAll("thead th")].map((each) => each.textContent.replace("↓", "").trim());
    for (const row of table.querySelectorAll("tbody tr")) {
      [...row.cells].forEach((cell, place) => names[place] && cell.colSpan === 1 && (cell.dataset.label = names[place]));
    }
  }
}

label(document);
