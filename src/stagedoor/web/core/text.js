// What agents print is hostile until proven otherwise: control characters are made visible, colours become classes,
// and a line of megabytes is cut where it is shown (never where it is stored).

const BIDI = /[\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]/g;
const CONTROL = /[\u0000-\u0008\u000b\u000c\u000e-\u001a\u001c-\u001f\u007f-\u009f\u2028\u2029\ufeff]/g;
const ESCAPES = new RegExp(
  [
    "\u001b(?:\\[([0-9;:?<=>!]*)([@-~])", // a command with numbers: colours are of this kind
    "\\][^\u0007\u001b]*(?:\u0007|\u001b\\\\)?", // a title, a link
    "[PX^_][^\u001b]*(?:\u001b\\\\)?", // a string for a device
    "[ -/]*[0-~])?",
  ].join("|"),
  "g",
);
export const CUT = 20000;

/** @param {unknown} text */
export function visible(text) {
  return String(text ?? "")
    .replace(BIDI, (letter) => `⟦U+${codeOf(letter).toString(16).toUpperCase().padStart(4, "0")}⟧`)
    .replace(CONTROL, (letter) => (codeOf(letter) < 32 ? String.fromCodePoint(0x2400 + codeOf(letter)) : "�"));
}

/** @param {string} letter */
const codeOf = (letter) => letter.codePointAt(0) ?? 0;

/** @param {unknown} text */
export function plain(text) {
  return visible(unescaped(text));
}

/**
 * Without what moves a terminal's cursor, and without the one character that no request may hold.
 * @param {unknown} text
 */
export function unescaped(text) {
  return String(text ?? "")
    .replace(ESCAPES, "")
    .replaceAll("\0", "\ufffd");
}

/**
 * Terminal output as nodes: colours as classes; everything else an escape could do is left out.
 * @param {string} text
 */
export function terminal(text) {
  const fragment = document.createDocumentFragment();
  let style = "";
  let from = 0;
  const put = (/** @type {string} */ piece) => {
    if (!piece) return;
    const words = visible(withoutOverwritten(piece));
    if (!style) {
      fragment.append(words);
      return;
    }
    const span = document.createElement("span");
    span.className = style;
    span.textContent = words;
    fragment.append(span);
  };
  for (const match of text.matchAll(ESCAPES)) {
    put(text.slice(from, match.index));
    from = match.index + match[0].length;
    if (match[2] === "m") style = nextStyle(style, match[1]);
  }
  put(text.slice(from));
  return fragment;
}

/**
 * A carriage return starts the line again: progress bars would otherwise fill the page.
 * @param {string} text
 */
function withoutOverwritten(text) {
  if (!text.includes("\r")) return text;
  const lines = text.replace(/\r\n/g, "\n").split("\n");
  return lines.map((line) => line.slice(line.lastIndexOf("\r") + 1)).join("\n");
}

/**
 * @param {string} style
 * @param {string} codes
 */
function nextStyle(style, codes) {
  let classes = style.split(" ").filter(Boolean);
  for (const code of (codes || "0").split(/[;:]/).map(Number)) {
    const isColour = (code >= 30 && code <= 37) || (code >= 90 && code <= 97);
    if (code === 0) classes = [];
    else if (code === 1) classes.push("a-bold");
    else if (code === 2) classes.push("a-dim");
    else if (isColour || code === 39) {
      classes = classes.filter((name) => !name.startsWith("a-f"));
      if (isColour) classes.push(`a-f${code % 10}`);
    }
  }
  return [...new Set(classes)].join(" ");
}

/** @param {unknown} text */
export function firstLine(text, most = 200) {
  const beginning = String(text ?? "").slice(0, most * 8);
  const [line] = plain(beginning).trim().split("\n", 1);
  return line.length > most ? `${line.slice(0, most - 1)}…` : line;
}

const NUMBER = new Intl.NumberFormat("en");

/** @param {number | null | undefined} value */
export const number = (value) => NUMBER.format(value ?? 0);

/** @param {number | null | undefined} dollars */
export const money = (dollars) => (dollars ? `$${dollars.toFixed(dollars < 0.01 ? 4 : 2)}` : "");

/** @param {number | null | undefined} ms */
export function duration(ms) {
  if (ms === null || ms === undefined) return "";
  if (ms < 1000) return `${Math.round(ms)} ms`;
  const seconds = ms / 1000;
  if (seconds < 60) return `${seconds.toFixed(seconds < 10 ? 1 : 0)} s`;
  const minutes = Math.floor(seconds / 60);
  if (minutes < 60) return `${minutes} min ${Math.floor(seconds % 60)} s`;
  return `${Math.floor(minutes / 60)} h ${minutes % 60} min`;
}

/** @param {number} at */
export function ago(at, now = Date.now()) {
  const seconds = Math.max(0, (now - at) / 1000);
  if (seconds < 60) return "now";
  if (seconds < 3600) return `${Math.floor(seconds / 60)} min`;
  if (seconds < 86400) return `${Math.floor(seconds / 3600)} h`;
  return `${Math.floor(seconds / 86400)} d`;
}

/**
 * A path as it is written inside its folder.
 * @param {string | undefined} path
 * @param {string | undefined} folder
 */
export const within = (path, folder) =>
  folder && path?.startsWith(`${folder}/`) ? path.slice(folder.length + 1) : path;

/**
 * Where a session works, in words: a worktree's folder has a name for machines, its branch says more.
 * @param {Page.Session} session
 */
export const workplace = ({ worktree, branch, wanted, projectId, cwd }) =>
  worktree ? plain(branch) || lastPart(wanted?.cwd || projectId) : lastPart(cwd);

/** @param {string | undefined} path */
export const lastPart = (path) => path?.split("/").filter(Boolean).pop() ?? "/";

/** What people call the permissions of a session: value, name, what it means. */
export const MODES = [
  ["dry-run", "Read-only", "Reads files. Changes nothing."],
  ["ask", "Ask", "Asks before each change and each command."],
  ["supervised", "Accept edits", "Edits files without asking. Asks before each command."],
  ["autonomous", "Full auto", "Does everything without asking. For work you can throw away."],
];

/**
 * @param {{ tier: string, approval?: string | null }} session
 * @returns {string} a value of MODES
 */
export function modeOf({ tier, approval }) {
  if (tier === "dry-run" || !approval) return tier;
  return { ask: "ask", autoAll: "autonomous" }[approval] ?? "supervised";
}

/** @param {string} mode of MODES, as the server reads it */
export const rightsOf = (mode) => (mode === "ask" ? { tier: "supervised", approval: "ask" } : { tier: mode });

/** @type {Record<string, string>} */
const TITLES = { claude: "Claude", codex: "Codex", gemini: "Gemini", opencode: "OpenCode", copilot: "Copilot" };

/** @param {string} agent */
export const titleOf = (agent) => TITLES[agent] ?? agent.charAt(0).toUpperCase() + agent.slice(1);

/**
 * By its title, and by its own name where others have the same title.
 * @param {Page.Agent} agent
 * @param {Page.Agent[]} agents
 */
export function shownName({ agent, title }, agents) {
  const isShared = agents.filter((other) => other.title === title).length > 1;
  return plain(title ? title.split(" (")[0] + (isShared ? ` (${agent})` : "") : agent);
}

/** @param {string} diff */
export function diffCounts(diff) {
  const lines = diff.split("\n");
  return {
    added: lines.filter((line) => line.startsWith("+") && !line.startsWith("+++")).length,
    removed: lines.filter((line) => line.startsWith("-") && !line.startsWith("---")).length,
  };
}
