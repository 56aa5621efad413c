// A cursor over the charts: all with the same times show the same step, by pointer or with the arrow keys.
let at = null;

const columns = (chart) => [...chart.querySelectorAll("g > .hit")];

function draw() {
  for (const chart of document.querySelectorAll(".chart")) {
    const hit = at && chart.dataset.times === at.times ? columns(chart)[at.step] : null;
    chart.classList.toggle("at", Boolean(hit));
    const output = chart.querySelector("output");
    const words = hit ? hit.parentNode.querySelector("title").textContent : "";
    if (output.textContent !== words) output.textContent = words;
    if (!hit) continue;
    const cursor = chart.querySelector(".cursor");
    const x = hit.x.baseVal.value + hit.width.baseVal.value / 2;
    for (const end of ["x1", "x2"]) cursor.setAttribute(end, x);
  }
}

function show(chart, step) {
  const most = columns(chart).length - 1;
  at = most < 0 ? null : { times: chart.dataset.times, step: Math.min(most, Math.max(0, step)) };
  draw();
}

function clear() {
  if (at === null) return;
  at = null;
  draw();
}

document.addEventListener("pointermove", (event) => {
  const chart = event.target.closest?.(".chart");
  if (!chart) return document.activeElement?.matches(".chart") ? null : clear();
  const box = chart.querySelector("svg").getBoundingClientRect();
  const left = Number(chart.dataset.left);
  const share = ((event.clientX - box.left) / box.width - left) / (1 - left);
  show(chart, Math.floor(share * columns(chart).length));
});

document.addEventListener("keydown", (event) => {
  const chart = event.target;
  if (!chart.matches?.(".chart")) return;
  const by = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
  if (by) {
    event.preventDefault();
    show(chart, at && at.times === chart.dataset.times ? at.step + by : by > 0 ? 0 : columns(chart).length - 1);
  }
  if (event.key === "Escape") clear();
});

document.addEventListener("focusout", (event) => event.target.matches?.(".chart") && clear());
document.addEventListener("sereno:refreshed", draw);
