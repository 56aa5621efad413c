// Each part of the page's behaviour is a module of its own; none of them knows the others.
import "./times.js";
import "./view.js";
import "./live.js";
import "./actions.js";
import "./lists.js";
import "./copy.js";
import "./keys.js";

// From here on buttons do what they say.
document.documentElement.dataset.ready = "";
