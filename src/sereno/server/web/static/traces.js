// v: switch between chart and table.
document.addEventListener("keydown", (event) => {
  if (event.key !== "v" || event.ctrlKey || event.metaKey || event.altKey || event.repeat) return;
  if (event.target.matches("input, textarea, select, [contenteditable]") || document.querySelector("dialog[open]")) return;
  document.querySelector("#trace-lines > summary")?.click();
  document.getElementById("trace-lines")?.scrollIntoView({ block: "nearest" });
});
