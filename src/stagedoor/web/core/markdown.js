// Markdown is rendered by the server (sanitised, cached there); the page requests each text once, many at a time.

import { call } from "./api.js";
import { copyButton, h, inParts } from "./dom.js";
import { CUT, plain, unescaped } from "./text.js";

const MOST_CACHED = 400;
const BATCH = 50;
const COLLECT = 30; // milliseconds
/** @type {Map<string, string | null>} */
const cache = new Map();
/** @type {Map<string, Promise<string | null>>} */
const requested = new Map();
/** @type {{ text: string, resolve: (html: string | null) => void }[]} */
const waiting = [];
let timer = 0;

/** @param {string} text */
function render(text) {
  const pending = requested.get(text);
  if (pending) return pending;
  const promise = new Promise((/** @type {(html: string | null) => void} */ resolve) => {
    waiting.push({ text, resolve });
  }).then((html) => {
    requested.delete(text);
    cache.set(text, html);
    const [oldest] = cache.keys();
    if (cache.size > MOST_CACHED) cache.delete(oldest);
    return html;
  });
  requested.set(text, promise);
  if (!timer) timer = setTimeout(request, COLLECT);
  return promise;
}

async function request() {
  const batch = waiting.splice(0, BATCH);
  timer = waiting.length ? setTimeout(request, 0) : 0;
  /** @type {string[]} */
  let pages = [];
  try {
    pages = (await call("POST", "/api/render", { texts: batch.map(({ text }) => unescaped(text)) })).html;
  } catch {
    // The text stays as it is shown: unformatted.
  }
  for (const [at, { resolve }] of batch.entries()) resolve(pages[at] ?? null);
}

/**
 * A block that shows the text at once, and formatted when the server has rendered it.
 * @param {string} text
 */
export function block(text, { whole = true } = {}) {
  const element = document.createElement("div");
  element.className = "prose raw";
  element.dir = "auto";
  if (!whole) setText(element, text);
  else if (text.length > CUT) inParts(element, text, CUT, plain, "characters");
  else {
    setText(element, text);
    const html = cache.get(text);
    if (html) setHtml(element, html);
    else if (html === undefined) render(text).then((rendered) => rendered && setHtml(element, rendered));
  }
  return element;
}

/**
 * The text so far: its end, where it is long.
 * @param {Element | null} element
 * @param {string} text
 */
export function setText(element, text) {
  if (!element) return false;
  const words = plain(text.length > CUT ? `…${text.slice(-CUT)}` : text);
  if (element.firstChild instanceof Text) element.firstChild.data = words;
  else element.append(words);
  return true;
}

/**
 * @param {HTMLElement} element
 * @param {string} html
 */
function setHtml(element, html) {
  element.classList.remove("raw");
  element.innerHTML = html; // the server's own sanitised output; scripts are blocked by the policy as well
  for (const code of element.querySelectorAll("pre")) {
    const frame = h("div", { class: "copyable" });
    code.replaceWith(frame);
    frame.append(
      code,
      copyButton(() => code.textContent ?? ""),
    );
  }
}
