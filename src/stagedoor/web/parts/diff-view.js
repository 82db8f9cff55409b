// A unified diff as lines: added, removed, and within a changed line the words that differ. Side by side on a wide
// page. Light colours for code where the file's name says what it is, line by line: what is not sure stays plain.

import { h, inParts } from "../core/dom.js";
import { visible } from "../core/text.js";

const MOST_ROWS = 400;
const LONGEST_ROW = 2000;
const SIGNS = { added: "+", removed: "−", same: " ", hunk: "⋯" };
const HEADS = ["---", "+++", "diff ", "index "];
const WORDS =
  "and as async await break case catch class const continue def do elif else enum except export false finally fn for " +
  "from func function if impl import in interface is let match new not null None or pass pub public raise return " +
  "self static struct switch this throw true True False try type var void while with yield";
/** @type {[RegExp, string][]} what a comment looks like, by the name of the file */
const COMMENTS = [
  [/\.(pyi?|rb|(ba|z)?sh|ya?ml|toml|exs?|tf)$|(^|\/)(Makefile|Dockerfile)$/, "#.*"],
  [/\.([mc]?[jt]sx?|java|[ch](c|pp)?|cs|go|rs|swift|kts?|php|dart|s?css|jsonc?)$/, "\\/[/*].*"],
  [/\.(sql|lua|hs)$/, "--.*"],
];
const TOKENS = `("(?:\\\\.|[^"\\\\])*"|'(?:\\\\.|[^'\\\\])*')|\\b(\\d[\\w.]*)|\\b(${WORDS.replaceAll(" ", "|")})\\b`;

/**
 * @param {string} diff
 * @param {Page.DiffOptions & { wide?: boolean }} [options]
 */
export function diffView(diff, { wide = false, ...options } = {}) {
  const draw = (/** @type {Page.DiffRow[]} */ part) =>
    wide ? sideBySide(part, options) : part.map((row) => line(row, options));
  const table = h("div", { class: `diff ${wide ? "wide" : ""}`, role: "group", "aria-label": "Changes" });
  return inParts(table, parse(diff), MOST_ROWS, draw, "lines");
}

/**
 * What an edit will do, before it is done: one text in place of another, and the lines around it that both share.
 * @param {string} before
 * @param {string} after
 */
export function editView(before, after) {
  const a = linesOf(before);
  const b = linesOf(after);
  const [start, end] = shared(a, b);
  const row = (/** @type {Page.DiffRow["kind"]} */ kind) => (/** @type {string} */ text) => ({ kind, text });
  const rows = [
    ...a.slice(Math.max(0, start - 3), start).map(row("same")),
    ...a.slice(start, a.length - end).map(row("removed")),
    ...b.slice(start, b.length - end).map(row("added")),
    ...a
      .slice(a.length - end)
      .slice(0, 3)
      .map(row("same")),
  ];
  markChanges(rows);
  const table = h("div", { class: "diff", role: "group", "aria-label": "Changes" });
  return inParts(table, rows, MOST_ROWS, (part) => part.map((row) => line(row)), "lines");
}

/** @param {string} text */
const linesOf = (text) => (text ? text.replace(/\n$/, "").split("\n") : []);

/**
 * How many entries two lists share at the start and at the end.
 * @param {string[]} a
 * @param {string[]} b
 */
function shared(a, b) {
  const most = Math.min(a.length, b.length);
  let start = 0;
  while (start < most && a[start] === b[start]) start++;
  let end = 0;
  while (end < most - start && a[a.length - 1 - end] === b[b.length - 1 - end]) end++;
  return [start, end];
}

/** @param {string} diff */
function parse(diff) {
  /** @type {Page.DiffRow[]} */
  const rows = [];
  let old = 0;
  let now = 0;
  for (const text of diff.split("\n")) {
    if (HEADS.some((head) => text.startsWith(head))) continue;
    const hunk = text.match(/^@@ -(\d+)(?:,\d+)? \+(\d+)(?:,\d+)? @@(.*)/);
    if (hunk) {
      [old, now] = [Number(hunk[1]), Number(hunk[2])];
      if (rows.length) rows.push({ kind: "hunk", text: hunk[3].trim() });
    } else if (text.startsWith("+")) rows.push({ kind: "added", text: text.slice(1), now: now++ });
    else if (text.startsWith("-")) rows.push({ kind: "removed", text: text.slice(1), old: old++ });
    else if (text.startsWith(" ")) rows.push({ kind: "same", text: text.slice(1), old: old++, now: now++ });
  }
  markChanges(rows);
  return rows;
}

/**
 * Pairs a run of removed lines with the run of added ones that follows, and marks the part that differs.
 * @param {Page.DiffRow[]} rows
 */
function markChanges(rows) {
  for (let at = 0; at < rows.length; at++) {
    if (rows[at].kind !== "removed") continue;
    let middle = at;
    while (rows[middle]?.kind === "removed") middle++;
    let end = middle;
    while (rows[end]?.kind === "added") end++;
    const pairs = Math.min(middle - at, end - middle);
    for (let pair = 0; pair < pairs; pair++) markWords(rows[at + pair], rows[middle + pair]);
    at = Math.max(at, end - 1);
  }
}

/**
 * @param {Page.DiffRow} before
 * @param {Page.DiffRow} after
 */
function markWords(before, after) {
  if (before.text.length > LONGEST_ROW || after.text.length > LONGEST_ROW) return;
  const a = before.text.match(/\w+|\s+|[^\w\s]/g) ?? [];
  const b = after.text.match(/\w+|\s+|[^\w\s]/g) ?? [];
  const [start, end] = shared(a, b);
  if (start + end === 0) return; // nothing in common: the whole line is new
  const parts = (/** @type {string[]} */ words) => [
    words.slice(0, start).join(""),
    words.slice(start, words.length - end).join(""),
    words.slice(words.length - end).join(""),
  ];
  before.parts = parts(a);
  after.parts = parts(b);
}

/**
 * @param {Page.DiffRow} row
 * @param {Page.DiffOptions} [options]
 */
export function line(row, options = {}) {
  const element = h("div", { class: `row ${row.kind}` });
  element.append(
    lineNumber(row, options, () => element),
    h("span", { class: "sign" }, SIGNS[row.kind]),
    code(row, options),
  );
  return element;
}

/**
 * Where comments can be made, the number of a line is the button for it.
 * @param {Page.DiffRow} row
 * @param {Page.DiffOptions} options
 * @param {() => Element} place after which the comment stands
 */
function lineNumber(row, { comment }, place) {
  const number = row.now ?? row.old;
  if (!comment || !number) return h("span", { class: "at", "aria-hidden": "true" }, number);
  const label = `Comment on line ${number}${row.now ? "" : ", removed"}`;
  return h(
    "button",
    { class: "at", type: "button", "aria-label": label, onclick: () => comment(row, place()) },
    number,
  );
}

/**
 * @param {Page.DiffRow} row
 * @param {Page.DiffOptions} options
 */
function code({ text, parts = [text] }, { path = "" }) {
  if (text.length > LONGEST_ROW) return inParts(h("span", { class: "code" }), text, LONGEST_ROW, visible, "characters");
  const [start, middle, end] = parts;
  const shown = (/** @type {string | undefined} */ part) => paint(visible(part), path);
  return h("span", { class: "code" }, shown(start), middle && h("mark", {}, shown(middle)), shown(end));
}

/**
 * @param {Page.DiffRow[]} rows
 * @param {Page.DiffOptions} options
 */
function sideBySide(rows, options) {
  /** @type {HTMLElement[]} */
  const pairs = [];
  const pair = (/** @type {Page.DiffRow | undefined} */ left, /** @type {Page.DiffRow | undefined} */ right) => {
    const element = h("div", { class: `pair ${left === right ? left?.kind : ""}` });
    element.append(half(left, options, element), half(right, options, element));
    pairs.push(element);
  };
  for (let at = 0; at < rows.length; ) {
    const row = rows[at];
    if (row.kind === "same" || row.kind === "hunk") {
      pair(row, row);
      at++;
      continue;
    }
    const removed = [];
    const added = [];
    while (rows[at]?.kind === "removed") removed.push(rows[at++]);
    while (rows[at]?.kind === "added") added.push(rows[at++]);
    for (let at = 0; at < Math.max(removed.length, added.length); at++) pair(removed[at], added[at]);
  }
  return pairs;
}

/**
 * @param {Page.DiffRow | undefined} row
 * @param {Page.DiffOptions} options
 * @param {Element} pair
 */
function half(row, options, pair) {
  if (!row) return h("div", { class: "half none" });
  return h(
    "div",
    { class: `half ${row.kind}` },
    lineNumber(row, options, () => pair),
    code(row, options),
  );
}

/**
 * @param {string} text
 * @param {string} path
 * @returns {Page.Child[]}
 */
function paint(text, path) {
  const comment = COMMENTS.find(([name]) => name.test(path))?.[1];
  if (!comment) return [text];
  /** @type {Page.Child[]} */
  const out = [];
  let from = 0;
  for (const match of text.matchAll(new RegExp(`(${comment})|${TOKENS}`, "g"))) {
    const kind = match[1] ? "c" : match[2] ? "s" : match[3] ? "n" : "k";
    out.push(text.slice(from, match.index), h("span", { class: kind }, match[0]));
    from = match.index + match[0].length;
  }
  return [...out, text.slice(from)];
}
