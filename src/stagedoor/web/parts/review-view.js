// The work of a session under review: its changes with comments on lines, undo, stage and commit, push; and its files.

import { get, messageOf, post, query, sessionPath } from "../core/api.js";
import { announce, button, confirmed, h, inParts, isWide, replace, showDialog } from "../core/dom.js";
import { store } from "../core/store.js";
import { ago, diffCounts, firstLine, number, plain } from "../core/text.js";
import { diffView, line } from "./diff-view.js";

const MOST_LINES = 2000;
const FOLDED_FROM = 300; // lines of one file
let sideBySide = true;

/**
 * Every file that has changed since the start, under a head that stays.
 * @param {Page.Session} session
 */
export async function showReview(session) {
  const dialog = h("dialog", { class: "sheet tall changes", "aria-label": "Changes" });
  const review = new Review(session, dialog);
  await review.load();
  showDialog(dialog);
}

// Comments on lines, which go to the agent as one message.
class Comments {
  /**
   * @param {Page.Session} session
   * @param {HTMLDialogElement} dialog
   */
  constructor(session, dialog) {
    this.session = session;
    this.dialog = dialog;
    /** @type {{ place: string, quote: string, text: string }[]} */
    this.entries = [];
    this.foot = h("footer", { class: "comments", hidden: true });
  }

  /**
   * @param {string} name
   * @param {Page.DiffRow} row
   * @param {Element} element after which the comment stands
   */
  add(name, row, element) {
    const text = h("textarea", { rows: 2, "aria-label": "Comment", placeholder: "Comment for the agent" });
    const form = h("form", { class: "comment" }, text);
    const keep = () => {
      if (!text.value.trim()) return text.focus();
      const sign = { added: "+", removed: "-" }[/** @type {string} */ (row.kind)] ?? " ";
      const entry = { place: `${name}:${row.now ?? row.old}`, quote: `${sign}${row.text}`, text: text.value.trim() };
      this.entries.push(entry);
      const remove = () => {
        this.entries.splice(this.entries.indexOf(entry), 1);
        form.remove();
        this.draw();
      };
      replace(form, h("p", {}, entry.text), button("Remove", remove, { kind: "plain" }));
      this.draw();
    };
    form.append(
      button("Add comment", keep, { kind: "primary" }),
      button("Cancel", () => form.remove(), { kind: "plain" }),
    );
    element.after(form);
    text.focus();
  }

  draw() {
    const many = this.entries.length;
    this.foot.hidden = !many;
    const words = `Send ${many === 1 ? "1 comment" : `${many} comments`} to the agent`;
    replace(
      this.foot,
      button(words, () => this.send(), { kind: "primary", glyph: "send" }),
    );
  }

  async send() {
    const words = this.entries.map(({ place, quote, text }) => `${place}\n> ${quote}\n${text}`);
    const prompt = `Review comments:\n\n${words.join("\n\n")}`;
    await attempt(this.dialog, async () => {
      if (this.session.activity === "ended") {
        const next = await store.act(this.session.id, "resume", { prompt });
        location.hash = `#/s/${next.id}`;
      } else await store.send(this.session.id, prompt);
      this.dialog.close();
      announce("Sent");
    });
  }
}

class Review {
  /**
   * @param {Page.Session} session
   * @param {HTMLDialogElement} dialog
   */
  constructor(session, dialog) {
    this.session = session;
    this.dialog = dialog;
    this.path = sessionPath(session.id);
    this.comments = new Comments(session, dialog);
    this.diff = "";
    this.problem = "";
    /** @type {Page.GitStatus | null} */
    this.git = null;
    /** @type {Page.Checkpoint[]} */
    this.checkpoints = [];
    this.message = h("textarea", { rows: 2, "aria-label": "Commit message" });
  }

  async load() {
    const isGone = ["kept", "removed"].includes(this.session.worktree); // what has changed is still known
    const look = (/** @type {string} */ part) => (isGone ? null : get(`${this.path}/${part}`).catch(() => null));
    const [git, kept] = await Promise.all([look("git"), look("checkpoints")]);
    const problem = (/** @type {unknown} */ fault) => ({ problem: messageOf(fault) });
    const without = { problem: "Without a git repository, changes are not compared here; a turn can be undone." };
    const diff = git?.repository === false ? without : await get(`${this.path}/diff`).catch(problem);
    this.diff = diff.diff ?? "";
    this.problem = diff.problem ?? (diff.cut ? "Some of it is too long, or too large, to be shown here." : "");
    this.git = git?.repository ? git : null;
    this.checkpoints = kept?.checkpoints ?? [];
    this.draw();
  }

  draw() {
    const parts = this.diff.split(/^(?=diff --git )/m).filter(Boolean);
    const files = parts.map((part) => {
      const name = part.match(/^\+\+\+ (?:b\/)?(.+)$/m)?.[1];
      const before = part.match(/^--- (?:a\/)?(.+)$/m)?.[1];
      const other = part.match(/^diff --git a\/(.+) b\//m)?.[1]; // without a line of text: a mode, a binary
      return this.file(((name === "/dev/null" ? before : name) ?? other ?? "").replace(/\t$/, ""), part);
    });
    const total = diffCounts(this.diff);
    const jumps = files.map(({ name, section }) => {
      const jump = () => {
        section.open = true;
        section.scrollIntoView({ block: "start" });
      };
      return button(plain(name), jump, { kind: "plain" });
    });
    const view = { kind: "plain", title: "Side by side or one below the other" };
    const turn = () => {
      sideBySide = !sideBySide;
      this.draw();
    };
    replace(
      this.dialog,
      heading(
        this.dialog,
        "Changes",
        h("span", { class: "quiet" }, `${files.length} ${files.length === 1 ? "file" : "files"}`),
        h("span", { class: "plus" }, `+${total.added}`),
        h("span", { class: "minus" }, `−${total.removed}`),
        isWide() && files.length > 0 && button(sideBySide ? "Unified" : "Side by side", turn, view),
        this.checkpoints.length > 0 && button("Undo…", () => this.chooseUndo(), { kind: "plain" }),
      ),
      files.length > 1 && h("nav", { class: "files", "aria-label": "Changed files" }, jumps),
      files.map(({ section }) => section),
      !files.length && !this.problem && h("p", { class: "quiet" }, "Nothing has changed."),
      this.problem && h("p", { class: "quiet" }, this.problem),
      this.git && this.commitForm(this.git),
      this.comments.foot,
    );
  }

  /**
   * @param {string} name
   * @param {string} part
   */
  file(name, part) {
    const { added, removed } = diffCounts(part);
    const state = this.git?.files.find(({ path }) => path === name);
    const verb = (/** @type {string} */ word) => () =>
      this.act(() => post(`${this.path}/git/${word}`, { paths: [name] }));
    const discard = async () => {
      if (await confirmed(`Discard the changes of ${plain(name)} that are not staged?`, "Discard"))
        await verb("discard")();
    };
    const section = h(
      "details",
      { class: "file" },
      h(
        "summary",
        {},
        h("code", {}, plain(name)),
        h("span", { class: "plus" }, `+${added}`),
        h("span", { class: "minus" }, `−${removed}`),
        state?.staged && h("span", { class: "quiet" }, "staged"),
      ),
    );
    const actions = h(
      "p",
      { class: "actions" },
      state && !state.staged && button("Stage", verb("stage"), { kind: "plain" }),
      state?.staged && button("Unstage", verb("unstage"), { kind: "plain" }),
      state && state.change !== "untracked" && !state.staged && button("Discard…", discard, { kind: "plain" }),
      this.checkpoints.length > 0 && button("Undo…", () => this.chooseUndo(name), { kind: "plain" }),
      button("Open", () => attempt(this.dialog, () => showFile(this.session, name)), { kind: "plain" }),
    );
    const fill = () => {
      if (!section.open || section.childElementCount > 1) return;
      const comment = this.comments.add.bind(this.comments, name);
      section.append(actions, diffView(part, { wide: isWide() && sideBySide, path: name, comment }));
    };
    section.addEventListener("toggle", fill);
    section.open = part.split("\n", FOLDED_FROM).length < FOLDED_FROM;
    fill();
    return { name, section };
  }

  /** @param {string} [name] a file; without it everything */
  chooseUndo(name) {
    const box = h("dialog", { class: "sheet", "aria-label": "Undo" });
    const body = name ? { paths: [name] } : {};
    const choices = this.checkpoints.toReversed().map(({ id, turn, kind, at }) => {
      const label = kind === "turn" ? `As before turn ${turn}` : `As before the undo of turn ${turn}`;
      const restore = () => {
        box.close();
        this.act(async () => {
          const { paths, notRestored } = await post(`${this.path}/undo`, { ...body, checkpoint: id });
          const many = `${paths.length} ${paths.length === 1 ? "file" : "files"} restored`;
          return notRestored.length ? `${many}. Not restored: ${notRestored.slice(0, 3).join("; ")}` : many;
        });
      };
      return button(`${label} · ${ago(at)}`, restore);
    });
    box.append(
      h("h2", {}, name ? `Restore ${plain(name)}` : "Restore all files"),
      h("p", { class: "quiet" }, "Ignored files and commits stay as they are. This can be undone, too."),
      ...choices,
      button("Cancel", () => box.close(), { kind: "plain", autofocus: true }),
    );
    showDialog(box);
  }

  /** @param {Page.GitStatus} git */
  commitForm(git) {
    const staged = git.files.filter((file) => file.staged).length;
    const names = git.files.map(({ path }) => path);
    const title = firstLine(this.session.title, 72);
    const others = names.length > 1 ? ` and ${names.length - 1} more` : "";
    this.message.value ||= /^[[{]/.test(title) || !title ? `Update ${names[0] ?? ""}${others}` : title;
    const commit = () =>
      this.act(async () => {
        const { commit: made } = await post(`${this.path}/git/commit`, { message: this.message.value, all: !staged });
        return made ? `Committed ${made.slice(0, 8)}` : "There was nothing to commit";
      });
    const push = () =>
      this.act(async () => `Pushed ${(await post(`${this.path}/git/push`, { branch: git.branch })).branch}`);
    const ahead = git.ahead ? `, ${git.ahead} ahead` : "";
    return h(
      "form",
      { class: "commit" },
      h("p", { class: "quiet" }, `On ${plain(git.branch) || "no branch"}${ahead}`),
      names.length > 0 && this.message,
      h(
        "p",
        { class: "actions" },
        names.length > 0 && button(staged ? `Commit ${staged} staged` : "Commit all", commit, { kind: "primary" }),
        git.remote && button("Push", push, { disabled: Boolean(git.pushProblem) }),
        git.pullRequest &&
          h(
            "a",
            { class: "button", href: git.pullRequest, target: "_blank", rel: "noreferrer" },
            "Open a pull request",
          ),
      ),
      git.remote && git.pushProblem && h("p", { class: "quiet" }, `Not pushed from here: ${plain(git.pushProblem)}`),
    );
  }

  /** @param {() => Promise<unknown>} deed */
  async act(deed) {
    await attempt(this.dialog, async () => {
      const words = await deed();
      await this.load();
      if (typeof words === "string") report(this.dialog, words);
    });
  }
}

/**
 * The files of the workspace, folder by folder.
 * @param {Page.Session} session
 */
export async function showFiles(session) {
  const path = sessionPath(session.id);
  const dialog = h("dialog", { class: "sheet tall changes", "aria-label": "Files" });
  const open = async (/** @type {string} */ folder) => {
    const { entries, cut } = await get(`${path}/files${query({ path: folder })}`);
    const up = folder.split("/").slice(0, -1).join("/");
    const choose = (/** @type {Page.FileEntry} */ { kind, path: place }) =>
      attempt(dialog, () => (kind === "folder" ? open(place) : showFile(session, place)));
    replace(
      dialog,
      heading(dialog, folder || "Files"),
      folder && button("..", () => attempt(dialog, () => open(up)), { kind: "plain entry", glyph: "back" }),
      entries.map((/** @type {Page.FileEntry} */ entry) =>
        button(plain(entry.name), () => choose(entry), {
          kind: "plain entry",
          glyph: entry.kind === "folder" ? "folder" : "file",
          disabled: entry.kind === "link" || entry.kind === "other",
        }),
      ),
      !entries.length && h("p", { class: "quiet" }, "This folder is empty."),
      cut && h("p", { class: "quiet" }, "There are more."),
    );
    dialog.scrollTop = 0;
  };
  await open("");
  showDialog(dialog);
}

/**
 * @param {HTMLDialogElement} dialog
 * @param {() => Promise<unknown>} deed
 */
const attempt = (dialog, deed) => deed().catch((fault) => report(dialog, messageOf(fault), "error"));

/**
 * In the dialog itself: what lies below it is not seen.
 * @param {HTMLDialogElement} dialog
 * @param {string} words
 */
function report(dialog, words, kind = "") {
  dialog.querySelector(":scope > .report")?.remove();
  dialog.append(h("p", { class: `report note ${kind}`, role: "status" }, plain(words)));
}

/**
 * @param {HTMLDialogElement} dialog
 * @param {string} title
 * @param {Page.Child[]} more
 */
function heading(dialog, title, ...more) {
  const close = { kind: "plain", glyph: "cross", title: "Close", autofocus: true };
  return h(
    "header",
    {},
    h("h2", {}, plain(title)),
    more,
    h("span", { class: "spacer" }),
    button("", () => dialog.close(), close),
  );
}

/**
 * One file, to be read and commented on.
 * @param {Page.Session} session
 * @param {string} name
 */
async function showFile(session, name) {
  const file = await get(`${sessionPath(session.id)}/file${query({ path: name })}`);
  const dialog = h("dialog", { class: "sheet tall changes", "aria-label": plain(name) });
  const comments = new Comments(session, dialog);
  /** @type {string[]} */
  const lines = file.binary ? [] : file.content.replace(/\n$/, "").split("\n");
  const options = { path: name, comment: comments.add.bind(comments, name) };
  /** @type {Page.DiffRow[]} */
  const rows = lines.map((text, at) => ({ kind: "same", text, now: at + 1 }));
  const content = h("div", { class: "diff", role: "group", "aria-label": "Content", tabindex: 0 });
  dialog.append(
    heading(dialog, name, h("span", { class: "quiet" }, `${number(file.size)} bytes`)),
    file.binary
      ? h("p", { class: "quiet" }, "This file is not text.")
      : inParts(content, rows, MOST_LINES, (part) => part.map((row) => line(row, options)), "lines"),
  );
  if (file.cut) dialog.append(h("p", { class: "quiet" }, "There is more of it."));
  dialog.append(comments.foot);
  showDialog(dialog);
}
