// Elements are made here, and only here. Data becomes text: nothing parses it as HTML.

const SVG = "http://www.w3.org/2000/svg";

/** Make an element: h("button.primary", {type: "button", onclick: f}, "Create"). */
export function h(spec, ...rest) {
  const [tag, ...classes] = spec.split(".");
  return fill(document.createElement(tag || "div"), classes, rest);
}

/** The same for SVG. */
export function s(spec, ...rest) {
  const [tag, ...classes] = spec.split(".");
  return fill(document.createElementNS(SVG, tag), classes, rest);
}

function fill(element, classes, rest) {
  if (classes.length) element.classList.add(...classes);
  const [first] = rest;
  if (first && typeof first === "object" && !Array.isArray(first) && !(first instanceof Node)) {
    set(element, first);
    rest = rest.slice(1);
  }
  append(element, rest);
  return element;
}

/** Set attributes, listeners (on…), classes, styles and data of an element. */
export function set(element, properties) {
  for (const [name, value] of Object.entries(properties)) {
    if (value === undefined || value === null || value === false) {
      if (name in { disabled: 1, hidden: 1, "aria-current": 1 }) element.removeAttribute(name);
    } else if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name === "class") element.classList.add(...String(value).split(" ").filter(Boolean));
    else if (name === "style") for (const [key, each] of Object.entries(value)) element.style.setProperty(key, each);
    else if (name === "data") Object.assign(element.dataset, value);
    else if (name === "value") element.value = value;
    else if (name === "checked") element.checked = value;
    else element.setAttribute(name, value === true ? "" : String(value));
  }
  return element;
}

/** Append nodes and texts; arrays are flattened, nothing is left out but null, undefined and false. */
export function append(element, children) {
  for (const child of children.flat(Infinity)) {
    if (child === null || child === undefined || child === false) continue;
    element.append(child instanceof Node ? child : document.createTextNode(String(child)));
  }
  return element;
}

export function replace(element, ...children) {
  element.replaceChildren();
  return append(element, children);
}

/** Draw only what changed: a button that is pressed or focused stays. */
export function redraw(box, facts, make) {
  const text = JSON.stringify(facts ?? null);
  if (box.facts !== text) replace(box, make());
  box.facts = text;
}

let counter = 0;
/** An id that no other element of this page has. */
export function freshId(prefix) {
  counter += 1;
  return `${prefix}-${counter}`;
}
