// "Copy as": also without https, where the clipboard API of the browser is not available.
import { toast } from "./toast.js";

export async function copy(text) {
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    const area = document.createElement("textarea");
    area.value = text;
    document.body.append(area);
    area.select();
    document.execCommand("copy");
    area.remove();
  }
}

document.addEventListener("click", async (event) => {
  const button = event.target.closest("[data-copy]");
  if (button) {
    await copy(button.dataset.copy);
    button.closest("details")?.removeAttribute("open");
    toast(`✓ ${button.textContent.trim()}`);
    return;
  }
  for (const open of document.querySelectorAll("details.copy[open]")) if (!open.contains(event.target)) open.removeAttribute("open");
});
