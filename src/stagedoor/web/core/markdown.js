// Markdown is rendered by the server (sanitised, cached there); here only asked for once per text, and in time.

import { call } from "./api.js";
import { CUT, cut, number, plain, unescaped } from "./text.js";

const KEEP = 400;
const known = new Map();
const asked = new Map();
let batch = [];
let timer = null;

export function rendered(text) {
  const found = known.get(text);
  if (found !== undefined) return Promise.resolve(found);
  if (asked.has(text)) return asked.get(text);
  const promise = new Promise((resolve) => batch.push({ text, resolve })).then((html) => {
    asked.delete(text);
    known.set(text, html);
    if (known.size > KEEP) known.delete(known.keys().next().value);
    return html;
  });
  asked.set(text, promise);
  timer ??= setTimeout(ask, 30);
  return promise;
}

async function ask() {
  timer = null;
  const now = batch.splice(0, 50);
  if (batch.length) timer = setTimeout(ask, 0);
  let answers = [];
  try {
    answers = (await call("POST", "/api/render", { texts: now.map((one) => unescaped(one.text)) })).html;
  } catch {
    answers = [];
  }
  now.forEach((one, at) => one.resolve(answers[at] ?? null));
}

// A block that shows the text at once and its Markdown when it is there.
export function block(text, { whole = true } = {}) {
  const element = document.createElement("div");
  element.className = "prose raw";
  element.dir = "auto";
  growText(element, text);
  if (whole && text.length <= CUT) {
    const html = known.get(text);
    if (html) dress(element, html);
    else if (html === undefined) rendered(text).then((ready) => ready && dress(element, ready));
  }
  return element;
}

// The text as it stands; of one that never ends only the beginning is shown.
export function growText(element, text) {
  if (!element) return false;
  const [shown, rest] = cut(text);
  const words =
    plain(shown) + (rest ? `… ${number(rest)} more characters are not shown; export the session to see them` : "");
  if (element.firstChild) element.firstChild.data = words;
  else element.append(words);
  return true;
}

function dress(element, html) {
  element.classList.remove("raw");
  element.innerHTML = html; // the server's own sanitised output; scripts are shut out by the policy as well
  element.dispatchEvent(new Event("stagedoor:resized", { bubbles: true }));
}
