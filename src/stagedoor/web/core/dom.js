// Elements are made, never parsed: whatever an agent prints stays text.

import { messageOf } from "./api.js";
import { number } from "./text.js";

const SVG = "http://www.w3.org/2000/svg";
const PROPERTIES = ["value", "checked", "disabled", "hidden", "open"];

/**
 * An element with its attributes, listeners (``onclick``) and children; those that are false or null are left out.
 * @template {keyof HTMLElementTagNameMap} Tag
 * @param {Tag} tag
 * @param {Page.Attributes} [attributes]
 * @param {Page.Child[]} children
 * @returns {HTMLElementTagNameMap[Tag]}
 */
export function h(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name === "class") element.className = value;
    else if (PROPERTIES.includes(name)) Object.assign(element, { [name]: value });
    else element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...nodes(children));
  return element;
}

/**
 * @param {Page.Child[]} children
 * @returns {(Node | string)[]}
 */
function nodes(children) {
  const isShown = (/** @type {unknown} */ child) =>
    ![null, undefined, false, true, ""].includes(/** @type {any} */ (child));
  return /** @type {any[]} */ (children).flat(9).filter(isShown);
}

// What is drawn anew between a press and its release loses the click: it waits for the release.
/** @type {Node | null} */
let pressed = null;
/** @type {Map<Element, () => unknown>} */
const held = new Map();
const release = () => {
  pressed = null;
  for (const [element, draw] of [...held]) if (held.delete(element)) draw();
};
addEventListener("pointerdown", ({ target }) => (pressed = target instanceof Node ? target : null), true);
addEventListener("click", () => (pressed = null), true); // who is pressed may draw itself anew
for (const end of ["pointerup", "pointercancel"]) addEventListener(end, () => setTimeout(release), true);

/**
 * @param {Element} element
 * @param {() => unknown} draw called when the element is free again, where it is not free now
 */
export function isHeld(element, draw) {
  const holds = pressed !== null && element.contains(pressed);
  if (holds) held.set(element, draw);
  else held.delete(element);
  return holds;
}

/** @param {Element} element */
export const focusable = (element) => [...element.querySelectorAll("summary, button, a, textarea, input, [tabindex]")];

/** @param {Element} element */
const nameOf = (element) => element.getAttribute("aria-label") ?? element.textContent;

/**
 * New children; what has the focus keeps it, where one of the same name comes in its place.
 * @template {Element} Parent
 * @param {Parent} element
 * @param {Page.Child[]} children
 */
export function replace(element, ...children) {
  if (isHeld(element, () => replace(element, ...children))) return element;
  const active = document.activeElement;
  const name = active && active !== element && element.contains(active) ? nameOf(active) : "";
  element.replaceChildren(...nodes(children));
  const heir = name && !active?.isConnected && focusable(element).find((one) => nameOf(one) === name);
  if (heir instanceof HTMLElement) heir.focus({ preventScroll: true });
  return element;
}

/**
 * Something long, part by part: the rest comes on request, and nothing is left out.
 * @template {string | unknown[]} Whole
 * @template {Element} Box
 * @param {Box} box
 * @param {Whole} whole
 * @param {number} size of a part
 * @param {(part: Whole) => Page.Child} make
 * @param {string} unit
 */
export function inParts(box, whole, size, make, unit) {
  let from = 0;
  const more = h("button", { class: "link", type: "button" });
  const next = () => {
    const part = nodes([make(/** @type {Whole} */ (whole.slice(from, from + size)))]);
    from += size;
    const left = whole.length - from;
    if (box.contains(more)) more.before(...part);
    else box.append(...part, more);
    more.textContent = `Show more (${number(left)} ${unit})`;
    if (left <= 0) more.remove();
  };
  more.addEventListener("click", next);
  next();
  return box;
}

/** @type {Record<string, string>} */
const SHAPES = {
  read: "M4 5h11l5 5v9H4zM14 5v6h6",
  write: "M4 20h4L19 9l-4-4L4 16zM13 7l4 4",
  execute: "M4 6l6 6-6 6M12 18h8",
  network: "M12 3a9 9 0 100 18 9 9 0 000-18zM3 12h18M12 3c3 3 3 15 0 18M12 3c-3 3-3 15 0 18",
  other: "M12 4l2.4 5.2 5.6.7-4.1 3.9 1 5.6L12 16.7 7.1 19.4l1-5.6L4 9.9l5.6-.7z",
  task: "M5 5h6v6H5zM13 13h6v6h-6zM8 11v5h5",
  plan: "M5 6l2 2 3-4M5 14l2 2 3-4M13 7h7M13 15h7",
  list: "M4 6h16M4 12h16M4 18h16",
  inbox: "M4 13l2-8h12l2 8v6H4zM4 13h5l1 3h4l1-3h5",
  add: "M12 5v14M5 12h14",
  chart: "M5 20V11M12 20V4M19 20v-6",
  back: "M15 5l-7 7 7 7",
  more: "M5 11a1 1 0 100 2 1 1 0 100-2M12 11a1 1 0 100 2 1 1 0 100-2M19 11a1 1 0 100 2 1 1 0 100-2",
  stop: "M7 7h10v10H7z",
  send: "M4 12l16-7-6 15-3-6z",
  check: "M5 12l5 5L20 7",
  cross: "M6 6l12 12M18 6L6 18",
  edit: "M4 20h4L19 9l-4-4L4 16z",
  folder: "M3 6h6l2 2h10v11H3z",
  device: "M8 3h8v18H8zM11 18h2",
  moon: "M20 14A8 8 0 0110 4a8 8 0 1010 10z",
  down: "M6 9l6 6 6-6",
  fork: "M7 4v6a4 4 0 004 4h2a4 4 0 014 4v2M7 14v6M4 7l3-3 3 3",
  search: "M11 4a7 7 0 100 14 7 7 0 000-14zM16 16l5 5",
  warn: "M12 4l9 16H3zM12 10v4M12 17h.01",
  file: "M6 3h8l4 4v14H6zM14 3v4h4",
  clip: "M20 11l-8 8a5 5 0 01-7-7l8-8a3.5 3.5 0 015 5l-8 8a2 2 0 01-3-3l7-7",
  up: "M6 15l6-6 6 6",
  copy: "M9 9h11v11H9zM5 15V4h11",
};

/** @param {string} name */
export function icon(name) {
  const path = svg("path", { d: SHAPES[name] ?? SHAPES.other });
  const drawing = svg("svg", { viewBox: "0 0 24 24", class: "icon", "aria-hidden": "true" });
  drawing.append(path);
  return drawing;
}

/**
 * @param {string} tag
 * @param {Record<string, string | number>} [attributes]
 */
export function svg(tag, attributes = {}) {
  const element = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, String(value));
  return element;
}

/**
 * What goes wrong when it is pressed is told.
 * @param {string} label
 * @param {(event: Event) => unknown} press
 * @param {Page.ButtonOptions} [options]
 */
export function button(label, press, { kind = "", glyph = "", title = "", ...rest } = {}) {
  const onclick = (/** @type {Event} */ event) => tried(() => press(event));
  /** @type {Page.Attributes} */
  const attributes = { class: `button ${kind}`, type: "button", onclick, ...rest };
  if (!label) attributes["aria-label"] = title;
  if (title) attributes.title = title;
  return h("button", attributes, glyph ? icon(glyph) : null, label ? h("span", {}, label) : null);
}

/** @param {() => unknown} work */
export async function tried(work) {
  try {
    await work();
  } catch (fault) {
    toast(messageOf(fault), "error");
  }
}

/** @param {() => string} text what is copied */
export function copyButton(text) {
  const copy = async () => {
    try {
      await navigator.clipboard.writeText(text());
      toast("Copied");
    } catch {
      toast("This browser allows copying only over HTTPS, or from this machine", "error");
    }
  };
  return button("", copy, { glyph: "copy", kind: "plain small copy", title: "Copy" });
}

/**
 * @param {string} href
 * @param {Page.Child[]} children
 */
export const linkButton = (href, ...children) => h("a", { class: "button", href }, children);

/**
 * The bar at the top of a view.
 * @param {string} title
 * @param {Page.Child[]} rest
 */
export function bar(title, ...rest) {
  const back = h("a", { class: "button plain back", href: "#/", "aria-label": "All sessions" }, icon("back"));
  return h("header", { class: "bar" }, back, title ? h("h1", {}, title) : null, rest);
}

/**
 * @param {string} title
 * @param {string} text
 * @param {Page.Child[]} actions
 */
export function empty(title, text, ...actions) {
  return h("div", { class: "empty" }, h("h2", {}, title), h("p", {}, text), actions);
}

/**
 * What could not be loaded; it is tried again when the connection comes back.
 * @param {string} title
 * @param {string} reason
 * @param {Page.Child[]} actions
 */
export function failed(title, reason, ...actions) {
  return h("div", { class: "empty unloaded" }, h("h2", {}, title), h("p", {}, reason), actions);
}

export const skeleton = () => h("div", { class: "skeleton" });

/**
 * Tell screen readers something without moving the focus.
 * @param {string} words
 */
export function announce(words) {
  const place = document.getElementById("announcer");
  if (place) place.textContent = words;
}

/** @param {string} words */
export function toast(words, kind = "") {
  const note = h("div", { class: `toast ${kind}`, role: "status" }, words);
  document.getElementById("toasts")?.append(note);
  setTimeout(() => note.remove(), 6000);
}

/**
 * A dialog that is removed when it closes; a click beside it closes it.
 * @param {HTMLDialogElement} dialog
 */
export function showDialog(dialog) {
  dialog.addEventListener("click", (event) => {
    const { left, right, top, bottom } = dialog.getBoundingClientRect();
    const { clientX: x, clientY: y } = event;
    const isBeside = event.target === dialog && (x < left || x > right || y < top || y > bottom);
    if (isBeside) dialog.close();
  });
  dialog.addEventListener("close", () => dialog.remove());
  document.body.append(dialog);
  dialog.showModal();
}

/**
 * Ask the user; resolves to true only when the action is chosen.
 * @param {string} question
 * @param {string} action
 * @returns {Promise<boolean>}
 */
export function confirmed(question, action) {
  return new Promise((resolve) => {
    const dialog = h("dialog", { class: "sheet", "aria-label": question }, h("p", {}, question));
    const choose = (/** @type {boolean} */ choice) => () => {
      resolve(choice);
      dialog.close();
    };
    dialog.append(button("Cancel", choose(false)), button(action, choose(true), { kind: "primary" }));
    dialog.addEventListener("close", () => resolve(false));
    showDialog(dialog);
  });
}

/**
 * What can be scrolled must be reachable with the keyboard, and nothing else should stop the Tab key.
 * @param {Element} element
 */
export function makeReachable(element) {
  for (const box of element.querySelectorAll("pre, .diff, .bubble, .prose table")) {
    const scrolls = box.scrollHeight > box.clientHeight + 1 || box.scrollWidth > box.clientWidth + 1;
    if (scrolls) box.setAttribute("tabindex", "0");
    else box.removeAttribute("tabindex");
  }
}

// Whether there is room for two columns of code.
export const isWide = () => matchMedia("(min-width: 1100px)").matches;
