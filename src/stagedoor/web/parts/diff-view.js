// A unified diff as lines: added, removed, and within a changed line the words that differ. Side by side on a wide
// page.

import { button, h, isWide } from "../core/dom.js";
import { cut, diffCounts, plain, visible } from "../core/text.js";

const MOST_ROWS = 400;
const LONGEST_ROW = 2000;
const SIGNS = { added: "+", removed: "−", same: " ", hunk: "⋯" };
const HEADS = ["---", "+++", "diff ", "index "];

/** @param {string} diff */
export function diffView(diff, { wide = false } = {}) {
  const [text, rest] = cut(diff, 200000);
  const rows = parse(text);
  const draw = (/** @type {Page.DiffRow[]} */ part) => (wide ? sideBySide(part) : part.map(line));
  const table = h(
    "div",
    { class: `diff ${wide ? "wide" : ""}`, role: "group", "aria-label": "Changes" },
    draw(rows.slice(0, MOST_ROWS)),
  );
  const hidden = rows.slice(MOST_ROWS);
  if (!hidden.length && !rest) return table;
  const more = h("button", { class: "link", type: "button" }, `Show ${hidden.length} more lines`);
  more.addEventListener("click", () => {
    more.remove();
    table.append(...draw(hidden));
  });
  return h(
    "div",
    {},
    table,
    hidden.length > 0 && more,
    rest > 0 && h("p", { class: "quiet" }, `${rest} more characters are not shown`),
  );
}

const FOLDED_FROM = 300; // lines of one file

/**
 * Every file of a diff, folded where it is long, under a head that stays: totals, the files to jump to, and close.
 * @param {string} diff
 */
export function changesDialog(diff) {
  const parts = diff.split(/^(?=diff --git )/m).filter(Boolean);
  const files = parts.map((part) => {
    const name = part.match(/^\+\+\+ (?:b\/)?(.+)$/m)?.[1];
    const before = part.match(/^--- (?:a\/)?(.+)$/m)?.[1];
    const other = part.match(/^diff --git a\/(.+) b\//m)?.[1]; // without a line of text: a mode, a binary
    return fileSection(plain((name === "/dev/null" ? before : name) ?? other), part);
  });
  const total = diffCounts(diff);
  const dialog = h("dialog", { class: "sheet tall changes", "aria-label": "Changes" });
  const jumps = files.map(({ name, section }) =>
    button(
      name,
      () => {
        section.open = true;
        section.scrollIntoView({ block: "start" });
      },
      { kind: "plain" },
    ),
  );
  dialog.append(
    h(
      "header",
      {},
      h("h2", {}, "Changes since the start"),
      h("span", { class: "quiet" }, `${files.length} ${files.length === 1 ? "file" : "files"}`),
      h("span", { class: "plus" }, `+${total.added}`),
      h("span", { class: "minus" }, `−${total.removed}`),
      h("span", { class: "spacer" }),
      button("", () => dialog.close(), { kind: "plain", glyph: "cross", title: "Close", autofocus: true }),
    ),
    files.length > 1 ? h("nav", { class: "files", "aria-label": "Changed files" }, jumps) : "",
    ...(files.length ? files.map(({ section }) => section) : [h("p", { class: "quiet" }, "Nothing has changed.")]),
  );
  return dialog;
}

/**
 * @param {string} name
 * @param {string} part
 */
function fileSection(name, part) {
  const { added, removed } = diffCounts(part);
  const section = h(
    "details",
    { class: "file" },
    h(
      "summary",
      {},
      h("code", {}, name),
      h("span", { class: "plus" }, `+${added}`),
      h("span", { class: "minus" }, `−${removed}`),
    ),
  );
  const fill = () => {
    if (section.open && section.childElementCount === 1) section.append(diffView(part, { wide: isWide() }));
  };
  section.addEventListener("toggle", fill);
  section.open = part.split("\n", FOLDED_FROM).length < FOLDED_FROM;
  fill();
  return { name, section };
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
  const hidden = rows.length - MOST_ROWS;
  return h(
    "div",
    { class: "diff", role: "group", "aria-label": "Changes" },
    rows.slice(0, MOST_ROWS).map(line),
    hidden > 0 && h("p", { class: "quiet" }, `${hidden} more lines`),
  );
}

/** @param {string} text */
const linesOf = (text) => (text ? cut(text, 100000)[0].replace(/\n$/, "").split("\n") : []);

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

/** @param {Page.DiffRow} row */
function line(row) {
  return h(
    "div",
    { class: `row ${row.kind}` },
    h("span", { class: "at", "aria-hidden": "true" }, row.now ?? row.old),
    h("span", { class: "sign" }, SIGNS[row.kind]),
    code(row),
  );
}

/** @param {Page.DiffRow} row */
function code({ text, parts = [text] }) {
  const extra = text.length - LONGEST_ROW;
  const [start, middle, end] = extra > 0 ? [`${text.slice(0, LONGEST_ROW)}… ${extra} more characters`] : parts;
  return h("span", { class: "code" }, visible(start), middle && h("mark", {}, visible(middle)), visible(end));
}

/** @param {Page.DiffRow[]} rows */
function sideBySide(rows) {
  const pairs = [];
  for (let at = 0; at < rows.length; ) {
    const row = rows[at];
    if (row.kind === "same" || row.kind === "hunk") {
      pairs.push(h("div", { class: `pair ${row.kind}` }, half(row), half(row)));
      at++;
      continue;
    }
    const removed = [];
    const added = [];
    while (rows[at]?.kind === "removed") removed.push(rows[at++]);
    while (rows[at]?.kind === "added") added.push(rows[at++]);
    for (let pair = 0; pair < Math.max(removed.length, added.length); pair++)
      pairs.push(h("div", { class: "pair" }, half(removed[pair]), half(added[pair])));
  }
  return pairs;
}

/** @param {Page.DiffRow | undefined} row */
function half(row) {
  return row ? h("div", { class: `half ${row.kind}` }, code(row)) : h("div", { class: "half none" });
}
