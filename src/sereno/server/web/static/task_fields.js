// Fields of a form from the parameters that a task declares.
import { ask } from "./actions.js";

let known = null;
export const tasks = () => (known ??= ask("GET", "tasks/parameters").then((found) => found.items));

function control(parameter, id, words) {
  const { type, choices, required, nullable } = parameter;
  const standard = parameter.default === null ? null : JSON.parse(parameter.default);
  let made;
  if (choices.length || type === "boolean") {
    made = document.createElement("select");
    const values = choices.length ? choices : ["true", "false"];
    if (!required) made.append(new Option(standard === null ? "–" : `${words.default}: ${standard}`, ""));
    made.append(...values.map((each) => new Option(each, each)));
  } else if (type === "json") {
    made = document.createElement("textarea");
    made.rows = 2;
    made.spellcheck = false;
  } else {
    made = document.createElement("input");
    if (type === "integer" || type === "number") Object.assign(made, { type: "number", step: type === "integer" ? "1" : "any" });
    if (type === "moment") Object.assign(made, { type: "datetime-local", step: "1" });
  }
  made.id = id;
  made.dataset.parameter = parameter.name;
  made.dataset.kind = type;
  // An empty text is a value; an empty number is none.
  made.required = required && !nullable && type !== "text";
  if ("placeholder" in made) made.placeholder = required ? words.required : parameter.default === null ? "" : `${words.default}: ${parameter.default}`;
  return made;
}

export function fields(task, place, words) {
  place.replaceChildren(...(task.parameters ?? []).map((parameter, index) => {
    const made = document.createElement("div");
    const label = document.createElement("label");
    label.htmlFor = `${place.id || "parameter"}-${index}`;
    label.textContent = parameter.name;
    made.append(label, control(parameter, label.htmlFor, words));
    return made;
  }));
}

function value(field) {
  if (field.value === "") return undefined;
  switch (field.dataset.kind) {
    case "integer":
    case "number":
      return Number(field.value);
    case "boolean":
      return field.value === "true";
    case "moment":
      return new Date(field.value).toISOString();
    case "json":
      try {
        return JSON.parse(field.value);
      } catch (error) {
        throw new Error(`${field.dataset.parameter}: ${error.message}`);
      }
    default:
      return field.value;
  }
}

// The arguments of the form; an empty field is left out, unless it is a text that the task needs.
export function args(task, place) {
  const found = {};
  for (const field of place.querySelectorAll("[data-parameter]")) {
    const given = value(field);
    const parameter = task.parameters.find((each) => each.name === field.dataset.parameter);
    if (given !== undefined) found[parameter.name] = given;
    else if (parameter.required) found[parameter.name] = parameter.nullable ? null : "";
  }
  return found;
}

// An object with all parameters that a task needs, for editing as JSON.
export function skeleton(task) {
  const empty = { integer: 0, number: 0, boolean: false, json: null };
  const needed = (task.parameters ?? []).filter((each) => each.required);
  return Object.fromEntries(needed.map((each) => [each.name, each.choices[0] ?? empty[each.type] ?? ""]));
}
