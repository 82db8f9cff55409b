// A unified diff as lines: added, removed, and within a changed line the words that differ. Side by side on a wide page.

import { h } from "../core/dom.js";
import { cut, visible } from "../core/text.js";

const LINES = 400;
const WIDE = 2000;

export function diffView(diff, { wide = false } = {}) {
  const [text, rest] = cut(diff, 200000);
  const rows = parse(text);
  const shown = rows.slice(0, LINES);
  const table = h(
    "div",
    { class: `diff ${wide ? "wide" : ""}`, role: "group", "aria-label": "Changes" },
    wide ? sideBySide(shown) : shown.map(line),
  );
  const left = rows.length - shown.length;
  if (left > 0 || rest) {
    const more = h("button", { class: "link", type: "button" }, `show ${left} more lines`);
    more.addEventListener("click", () => {
      more.remove();
      table.append(...(wide ? sideBySide(rows.slice(LINES)) : rows.slice(LINES).map(line)));
    });
    return h(
      "div",
      {},
      table,
      left > 0 && more,
      rest > 0 && h("p", { class: "quiet" }, `${rest} more characters are not shown`),
    );
  }
  return table;
}

// What an edit will do, before it is done: one text in place of another, the lines they share around it.
export function editView(old, fresh) {
  const [a, b] = [old, fresh].map((text) => (text ? cut(text, 100000)[0].replace(/\n$/, "").split("\n") : []));
  let from = 0;
  while (from < a.length && from < b.length && a[from] === b[from]) from++;
  let to = 0;
  while (to < a.length - from && to < b.length - from && a[a.length - 1 - to] === b[b.length - 1 - to]) to++;
  const row = (kind) => (text) => ({ kind, text });
  const rows = [
    ...a.slice(Math.max(0, from - 3), from).map(row("same")),
    ...a.slice(from, a.length - to).map(row("removed")),
    ...b.slice(from, b.length - to).map(row("added")),
    ...a
      .slice(a.length - to)
      .slice(0, 3)
      .map(row("same")),
  ];
  mark(rows);
  const shown = rows.slice(0, LINES);
  const left = rows.length - shown.length;
  return h(
    "div",
    { class: "diff", role: "group", "aria-label": "Changes" },
    shown.map(line),
    left > 0 && h("p", { class: "quiet" }, `${left} more lines`),
  );
}

function parse(diff) {
  const rows = [];
  let old = 0;
  let now = 0;
  for (const text of diff.split("\n")) {
    if (text.startsWith("---") || text.startsWith("+++") || text.startsWith("diff ") || text.startsWith("index "))
      continue;
    const hunk = text.match(/^@@ -(\d+)(?:,\d+)? \+(\d+)(?:,\d+)? @@(.*)/);
    if (hunk) {
      [old, now] = [Number(hunk[1]), Number(hunk[2])];
      if (rows.length) rows.push({ kind: "hunk", text: hunk[3].trim() });
    } else if (text.startsWith("+")) rows.push({ kind: "added", text: text.slice(1), now: now++ });
    else if (text.startsWith("-")) rows.push({ kind: "removed", text: text.slice(1), old: old++ });
    else if (text.startsWith(" ")) rows.push({ kind: "same", text: text.slice(1), old: old++, now: now++ });
  }
  mark(rows);
  return rows;
}

// Pairs a run of removed lines with the run of added ones that follows, and marks the part that differs.
function mark(rows) {
  for (let at = 0; at < rows.length; at++) {
    if (rows[at].kind !== "removed") continue;
    let end = at;
    while (rows[end]?.kind === "removed") end++;
    let stop = end;
    while (rows[stop]?.kind === "added") stop++;
    for (let k = 0; k < Math.min(end - at, stop - end); k++) differ(rows[at + k], rows[end + k]);
    at = Math.max(at, stop - 1);
  }
}

function differ(one, other) {
  if (one.text.length > WIDE || other.text.length > WIDE) return;
  const a = one.text.match(/\w+|\s+|[^\w\s]/g) ?? [];
  const b = other.text.match(/\w+|\s+|[^\w\s]/g) ?? [];
  let from = 0;
  while (from < a.length && from < b.length && a[from] === b[from]) from++;
  let to = 0;
  while (to < a.length - from && to < b.length - from && a[a.length - 1 - to] === b[b.length - 1 - to]) to++;
  if (from + to === 0) return; // nothing in common: the whole line is new
  one.parts = [a.slice(0, from), a.slice(from, a.length - to), a.slice(a.length - to)].map((part) => part.join(""));
  other.parts = [b.slice(0, from), b.slice(from, b.length - to), b.slice(b.length - to)].map((part) => part.join(""));
}

const SIGNS = { added: "+", removed: "−", same: " ", hunk: "⋯" };

function line(row) {
  return h(
    "div",
    { class: `row ${row.kind}` },
    h("span", { class: "at", "aria-hidden": "true" }, row.now ?? row.old ?? ""),
    h("span", { class: "sign" }, SIGNS[row.kind]),
    code(row),
  );
}

function code(row) {
  const [head, middle, end] =
    row.text.length > WIDE
      ? [`${row.text.slice(0, WIDE)}… ${row.text.length - WIDE} more characters`]
      : (row.parts ?? [row.text]);
  return h("span", { class: "code" }, visible(head), middle && h("mark", {}, visible(middle)), end && visible(end));
}

function sideBySide(rows) {
  const out = [];
  for (let at = 0; at < rows.length; ) {
    if (rows[at].kind !== "removed" && rows[at].kind !== "added") {
      out.push(h("div", { class: `pair ${rows[at].kind}` }, half(rows[at]), half(rows[at])));
      at++;
      continue;
    }
    const gone = [];
    const came = [];
    while (rows[at]?.kind === "removed") gone.push(rows[at++]);
    while (rows[at]?.kind === "added") came.push(rows[at++]);
    for (let k = 0; k < Math.max(gone.length, came.length); k++)
      out.push(h("div", { class: "pair" }, half(gone[k]), half(came[k])));
  }
  return out;
}

function half(row) {
  return row ? h("div", { class: `half ${row.kind}` }, code(row)) : h("div", { class: "half none" });
}
