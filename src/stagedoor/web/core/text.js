// What agents print is hostile until shown otherwise: control characters are made visible, colours become classes,
// and a line of megabytes is cut where it is shown (never where it is kept).

const BIDI = /[\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]/g;
const CONTROL = /[\u0000-\u0008\u000b\u000c\u000e-\u001a\u001c-\u001f\u007f-\u009f\u2028\u2029\ufeff]/g;
const ESCAPES =
  /\u001b(?:\[([0-9;:?<=>!]*)([@-~])|\][^\u0007\u001b]*(?:\u0007|\u001b\\)?|[PX^_][^\u001b]*(?:\u001b\\)?|[ -/]*[0-~])?/g;
export const CUT = 20000;

export function visible(text) {
  return String(text ?? "")
    .replace(BIDI, (c) => `⟦U+${c.codePointAt(0).toString(16).toUpperCase().padStart(4, "0")}⟧`)
    .replace(CONTROL, (c) => (c.codePointAt(0) < 32 ? String.fromCodePoint(0x2400 + c.codePointAt(0)) : "�"));
}

export function plain(text) {
  return visible(unescaped(text));
}

// Without what moves a terminal's cursor, and without the one character that no request may hold.
export function unescaped(text) {
  return String(text ?? "")
    .replace(ESCAPES, "")
    .replaceAll("\0", "\ufffd");
}

// Terminal output as nodes: colours as classes, everything else an escape could do is left out.
export function terminal(text) {
  const out = document.createDocumentFragment();
  let style = "";
  let from = 0;
  const put = (piece) => {
    if (!piece) return;
    const words = visible(overwritten(piece));
    if (!style) return out.append(words);
    const span = document.createElement("span");
    span.className = style;
    span.textContent = words;
    out.append(span);
  };
  for (const found of text.matchAll(ESCAPES)) {
    put(text.slice(from, found.index));
    from = found.index + found[0].length;
    if (found[2] === "m") style = styled(style, found[1]);
  }
  put(text.slice(from));
  return out;
}

// A carriage return starts the line again: progress bars would otherwise fill the page.
function overwritten(text) {
  if (!text.includes("\r")) return text;
  return text
    .replace(/\r\n/g, "\n")
    .split("\n")
    .map((line) => line.slice(line.lastIndexOf("\r") + 1))
    .join("\n");
}

function styled(style, codes) {
  let classes = new Set(style.split(" ").filter(Boolean));
  for (const code of (codes || "0").split(/[;:]/).map(Number)) {
    if (code === 0) classes = new Set();
    else if (code === 1) classes.add("a-bold");
    else if (code === 2) classes.add("a-dim");
    else if ((code >= 30 && code <= 37) || (code >= 90 && code <= 97) || code === 39) {
      for (const one of [...classes]) if (one.startsWith("a-f")) classes.delete(one);
      if (code !== 39) classes.add(`a-f${code % 10}`);
    }
  }
  return [...classes].join(" ");
}

export function cut(text, most = CUT) {
  return text.length <= most ? [text, 0] : [text.slice(0, most), text.length - most];
}

export function firstLine(text, most = 200) {
  const line = plain(String(text ?? "").slice(0, most * 8))
    .trim()
    .split("\n", 1)[0];
  return line.length > most ? `${line.slice(0, most - 1)}…` : line;
}

const NUMBER = new Intl.NumberFormat("en");

export const number = (value) => NUMBER.format(value ?? 0);
export const money = (value) => (!value ? "" : value < 0.01 ? `$${value.toFixed(4)}` : `$${value.toFixed(2)}`);

export function duration(ms) {
  if (ms === null || ms === undefined) return "";
  if (ms < 1000) return `${Math.round(ms)} ms`;
  const seconds = ms / 1000;
  if (seconds < 60) return `${seconds.toFixed(seconds < 10 ? 1 : 0)} s`;
  const minutes = Math.floor(seconds / 60);
  return minutes < 60
    ? `${minutes} min ${Math.floor(seconds % 60)} s`
    : `${Math.floor(minutes / 60)} h ${minutes % 60} min`;
}

export function ago(at, now = Date.now()) {
  const seconds = Math.max(0, (now - at) / 1000);
  if (seconds < 60) return "now";
  if (seconds < 3600) return `${Math.floor(seconds / 60)} min`;
  if (seconds < 86400) return `${Math.floor(seconds / 3600)} h`;
  return `${Math.floor(seconds / 86400)} d`;
}

// A path as people say it in its folder.
export const within = (path, folder) =>
  folder && String(path).startsWith(`${folder}/`) ? path.slice(folder.length + 1) : path;

// Where a session works, as people know it: a worktree's folder has a name for machines, its branch says more.
export const place = (one) =>
  one.worktree ? plain(one.branch) || tail(one.wanted?.cwd || one.projectId) : tail(one.cwd);

export const tail = (path) =>
  String(path ?? "")
    .split("/")
    .filter(Boolean)
    .pop() ?? "/";
