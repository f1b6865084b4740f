// HTML from templates, escaped by default, and a morph that changes only the differences: focus, scroll and hover stay.

import { isolated, visible, visibleLines } from "./visible.js";

class Safe {
  constructor(text) { this.text = text; }
  toString() { return this.text; }
}
const MARKS = { "&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;", "'": "&#39;" };

/** Template tag: values are escaped; lists are joined; null, undefined, false and true are left out. Invisible
 * characters are shown in texts, and in attributes that people read; all other attributes keep the exact value. */
export function html(parts, ...values) {
  let places = known.get(parts);
  if (!places) known.set(parts, places = placesOf(parts));
  let out = parts[0];
  for (let i = 0; i < values.length; i++) out += text(values[i], places[i]) + parts[i + 1];
  return new Safe(out);
}

const known = new WeakMap(); // the places of the values of each template
const READ = new Set(["title", "aria-label", "placeholder"]); // attributes that people read
const marked = (value) => value.replace(/[&<>"']/g, (mark) => MARKS[mark]);
const between = (value) => isolated(marked(visibleLines(value))); // between two tags
const readable = (value) => marked(visible(value));

/** For each value of a template the function that makes HTML of it: by the attribute that it is in, or none. */
function placesOf(parts) {
  let attribute = null, tag = "";
  return parts.slice(0, -1).map((part) => {
    for (const [found, last, name] of part.matchAll(/<\/?(\w+)|([\w-]+)="|"/g)) {
      if (last) tag = last;
      else attribute = attribute === null && found !== '"' ? name : null;
    }
    if (attribute !== null) return READ.has(attribute) ? readable : marked;
    return tag === "text" ? readable : between; // SVG has no <bdi>, and each of its texts is isolated
  });
}

/** Mark text as HTML that needs no escaping. Only for text that this program has made. */
export const raw = (value) => new Safe(String(value));

function text(value, place = between) {
  if (value instanceof Safe) return value.text;
  if (Array.isArray(value)) return value.map((each) => text(each, place)).join("");
  if (value == null || value === false || value === true) return "";
  return place(String(value));
}

const written = new WeakMap(); // the last HTML of each element

/** Make the children of an element equal to the HTML, with as few changes as possible; none if it is the last HTML. */
export function put(element, safe) {
  const out = text(safe);
  if (written.get(element) === out) return;
  written.set(element, out);
  const next = element.cloneNode(false);
  next.innerHTML = out;
  morph(element, next);
}

/** Children with the same `data-key` stay the same nodes; others are compared by place. Nodes of class `keep` stay, and
 * so do the children of a node with `data-same` for which the HTML has none: many of them need not be written again. */
export function morph(from, to) {
  const keyed = new Map();
  for (const node of from.children) if (node.dataset.key) keyed.set(node.dataset.key, node);
  let place = from.firstChild;
  for (const node of [...to.childNodes]) {
    while (isKept(place)) place = place.nextSibling;
    const key = node.dataset?.key, known = key && keyed.get(key);
    keyed.delete(key);
    if (known && known !== place) {
      from.insertBefore(known, place);
      update(known, node);
    } else if (!place || keyed.has(place.dataset?.key)) {
      from.insertBefore(node, place); // the node at this place is needed later
    } else {
      const old = place;
      place = place.nextSibling;
      if (isAlike(old, node)) update(old, node); else old.replaceWith(node);
    }
  }
  while (place) {
    const next = place.nextSibling;
    if (!isKept(place)) place.remove();
    place = next;
  }
}
const isKept = (node) => node?.nodeType === 1 && node.classList.contains("keep");
const isAlike = (was, node) => was.nodeName === node.nodeName && was.dataset?.key === node.dataset?.key;

function update(was, node) {
  if (node.nodeType !== 1) { if (was.data !== node.data) was.data = node.data; return; }
  if (was.isEqualNode(node)) return;
  const gone = [...was.attributes].filter(({ name }) => !node.hasAttribute(name) && name !== "open");
  for (const { name } of gone) was.removeAttribute(name);
  for (const { name, value } of node.attributes) if (was.getAttribute(name) !== value) was.setAttribute(name, value);
  if (!node.dataset?.same || node.hasChildNodes()) morph(was, node);
  // Attributes do not change the value of a field that was used.
  const isField = was.matches("input, select") && was !== document.activeElement;
  if (isField && was.value !== node.value) was.value = node.value;
}
