// Ctrl+K: everything by some letters of its name. "?": the keys.

import { button, h, replace, showDialog } from "../core/dom.js";
import { store } from "../core/store.js";
import { firstLine, workplace } from "../core/text.js";

const KEYS = [
  ["Ctrl+K", "Commands and sessions"],
  ["j k", "Next session, previous session"],
  ["y n", "Allow, deny: press twice"],
  ["a", "Other answers"],
  ["m", "Write to the agent"],
  ["@ /", "Files and commands, in a message"],
  ["/", "Search"],
  ["c", "New session (Ctrl+Enter starts it)"],
  ["i", "Inbox"],
  ["?", "This list"],
];

/** @type {[string, () => unknown][]} */
const COMMANDS = [
  ["New session", go("#/new")],
  ["Inbox", go("#/inbox")],
  ["Overview", go("#/overview")],
  ["Sessions on this computer", go("#/history")],
  ["Stop the turn", press("Stop the turn")],
  ["Session menu", press("More")],
  ["Keyboard shortcuts", () => showKeys()],
];

/** @param {string} hash */
function go(hash) {
  return () => {
    location.hash = hash;
  };
}

/** @param {string} title of a button on screen */
function press(title) {
  return () => /** @type {HTMLElement | null} */ (document.querySelector(`#main .bar [title="${title}"]`))?.click();
}

export function showKeys() {
  const rows = KEYS.flatMap(([key, meaning]) => [h("dt", {}, h("kbd", {}, key)), h("dd", {}, meaning)]);
  const dialog = h("dialog", { class: "sheet", "aria-label": "Keyboard shortcuts" });
  replace(
    dialog,
    h("h2", {}, "Keyboard shortcuts"),
    h("dl", { class: "keys" }, rows),
    button("Close", () => dialog.close()),
  );
  showDialog(dialog);
}

export function showPalette() {
  const field = h("input", { type: "search", "aria-label": "Command or session", placeholder: "Command or session" });
  const list = h("ul", { class: "palette" });
  const dialog = h("dialog", { class: "sheet", "aria-label": "Commands" }, field, list);
  const draw = () => {
    const words = field.value.toLowerCase();
    const sessions = [...store.sessions.values()].sort((a, b) => b.updatedAt - a.updatedAt);
    /** @type {[string, string, () => unknown][]} */
    const all = [
      ...COMMANDS.map(([name, act]) => /** @type {[string, string, () => unknown]} */ ([name, "", act])),
      ...sessions.map(
        (session) =>
          /** @type {[string, string, () => unknown]} */ ([
            firstLine(session.title || session.prompt, 80),
            `${session.agent} · ${workplace(session)}`,
            go(`#/s/${session.id}`),
          ]),
      ),
    ];
    const matches = all.filter(([name, place]) => `${name} ${place}`.toLowerCase().includes(words)).slice(0, 9);
    const run = (/** @type {() => unknown} */ act) => () => {
      dialog.close();
      act();
    };
    replace(
      list,
      matches.map(([name, place, act]) =>
        h("li", {}, h("button", { type: "button", onclick: run(act) }, name, h("span", { class: "quiet" }, place))),
      ),
    );
  };
  field.addEventListener("input", draw);
  dialog.addEventListener("keydown", (event) => {
    const rows = [...list.querySelectorAll("button")];
    const at = rows.indexOf(/** @type {HTMLButtonElement} */ (document.activeElement));
    if (event.key === "ArrowDown") rows[Math.min(at + 1, rows.length - 1)]?.focus();
    else if (event.key === "ArrowUp") (rows[at - 1] ?? field).focus();
    else if (event.key === "Enter" && document.activeElement === field) rows[0]?.click();
    else return;
    event.preventDefault();
  });
  draw();
  showDialog(dialog);
  field.focus();
}
