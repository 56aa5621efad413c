// Each behaviour of the page is a module of its own, independent of the others.
import "./tables.js";
import "./times.js";
import "./view.js";
import "./live.js";
import "./actions.js";
import "./lists.js";
import "./copy.js";
import "./charts.js";
import "./keys.js";
import "./completion.js";
import "./saved.js";

// On a phone the pages are a line that scrolls: the current one is in its middle.
const bar = document.querySelector("aside");
const current = bar?.querySelector("[aria-current]");
if (current) bar.scrollLeft = current.offsetLeft - (bar.clientWidth - current.offsetWidth) / 2;

// From here on all buttons work; tests wait for this.
document.documentElement.dataset.ready = "";
