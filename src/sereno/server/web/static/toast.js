// A message in the corner, for a while; errors stay longer. Inserted as text: it may come from anywhere.
export function toast(words, isBad = false) {
  const line = document.createElement("p");
  line.textContent = words;
  line.classList.toggle("bad", isBad);
  document.getElementById("toast").append(line);
  setTimeout(() => line.remove(), isBad ? 12000 : 5000);
}
