// Language, time zone and theme are cookies, which the server renders with.
const YEAR = 31536000;

function remember(name, value) {
  document.cookie = `${name}=${encodeURIComponent(value)}; path=/; max-age=${YEAR}; samesite=lax`;
}

const mine = Intl.DateTimeFormat().resolvedOptions().timeZone;
const zones = document.querySelector('[data-cookie="sereno_zone"]');
if (zones && mine && ![...zones.options].some((option) => option.value === mine)) zones.append(new Option(mine, mine));

for (const select of document.querySelectorAll("select[data-cookie]")) {
  select.addEventListener("change", () => {
    remember(select.dataset.cookie, select.value);
    location.reload();
  });
}

document.getElementById("theme")?.addEventListener("click", () => {
  const root = document.documentElement;
  const isDark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  root.dataset.theme = isDark ? "light" : "dark";
  remember("sereno_theme", root.dataset.theme);
});
