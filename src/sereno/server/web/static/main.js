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

// From here on all buttons work; tests wait for this.
document.documentElement.dataset.ready = "";
