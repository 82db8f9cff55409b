// One session: its stream, what can be done with it, and the field to write to the agent.

import { messageOf } from "../core/api.js";
import { announce, bar, button, failed, h, icon, linkButton, replace, showDialog, toast } from "../core/dom.js";
import { store } from "../core/store.js";
import { firstLine, money, number, plain, workplace } from "../core/text.js";
import "../core/virtual.js";
import { itemElement } from "./items.js";
import { showFiles, showReview } from "./review-view.js";

const BUSY = ["working", "waiting", "starting"];
const OPEN_QUESTION = ".question:not(.closed)";
const TALLEST_INPUT = 200;
const JUMP_HEIGHT = 60;

class SessionView extends HTMLElement {
  leave = new AbortController();
  /** @type {Page.OpenSession | null} */
  opened = null;
  sessionId = "";
  headKey = "";
  composerKey = "";
  head = h("header", { class: "bar" });
  // Elements come and go with scrolling, so the list is not live: what matters is announced.
  list = h("virtual-list", { role: "log", "aria-live": "off", "aria-label": "Agent activity" });
  jump = button("Latest", () => this.list.toEnd(), { glyph: "down", kind: "jump", hidden: true });
  status = h("p", { class: "status", role: "status" });
  foot = h("footer", { class: "composer" });
  input = h("textarea", {
    rows: 1,
    placeholder: "Write a message",
    "aria-label": "Message to the agent",
    enterkeyhint: "send",
  });
  sendButton = button("", () => this.submit(), { glyph: "send", kind: "primary", title: "Send" });
  /** @type {Page.ItemContext} */
  context = {
    cards: new Map(),
    cwd: () => this.opened?.view?.cwd,
    workplace: () => (this.opened?.view ? workplace(this.opened.view) : ""),
    questionOf: (request) => this.questionOf(request),
  };

  connectedCallback() {
    replace(this, this.head, h("div", { class: "stream" }, this.list, this.jump), this.status, this.foot);
    this.list.addEventListener("top", () => this.opened?.loadEarlier());
    for (const event of ["scroll", "drawn"])
      this.list.addEventListener(event, () => this.drawJump(), { passive: true });
    this.input.addEventListener("input", () => this.resizeInput());
    this.input.addEventListener("keydown", (event) => {
      if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
      event.preventDefault();
      this.submit();
    });
    store.listen("session sessions link questions", () => this.draw(), { signal: this.leave.signal });
    if (this.sessionId) this.load(this.sessionId);
  }

  disconnectedCallback() {
    this.leave.abort();
    store.close();
  }

  /** @param {string} id */
  set session(id) {
    this.sessionId = id;
    if (this.isConnected) this.load(id);
  }

  /** @param {string} id */
  async load(id) {
    try {
      this.opened = await store.open(id);
      this.draw();
    } catch (fault) {
      replace(this, bar(""), failed("Cannot show this session", messageOf(fault), linkButton("#/", "All sessions")));
    }
  }

  /**
   * @param {Unified.PermissionRequest} request
   * @returns {Page.Question}
   */
  questionOf(request) {
    const sessionId = this.sessionId;
    const id = request.requestId;
    const open = !this.opened?.ended;
    return store.questions.get(id) ?? { id, sessionId, agent: request.agent, request, open };
  }

  draw() {
    const view = this.opened?.view;
    if (!this.opened || !view) return;
    this.drawHead(view);
    this.list.show(this.items(this.opened), (item, before) => this.element(item, before));
    this.drawStatus(this.opened, view);
    this.drawComposer(view);
  }

  /**
   * @param {Page.OpenSession} opened
   * @returns {Page.Item[]}
   */
  items(opened) {
    const { items } = opened.fold;
    if (!items.length && !opened.ended) return [{ key: "wait", version: 0, kind: "wait" }];
    /** @type {Page.Item[]} */
    const gaps = opened.gap ? [{ key: "gap", version: 0, kind: "gap" }] : [];
    return [...gaps, ...items, ...opened.waiting()];
  }

  /**
   * @param {Page.Item} item
   * @param {HTMLElement} [before]
   */
  element(item, before) {
    if (item.kind === "wait")
      return h("div", { class: "waiting-first" }, h("span", { class: "spinner" }), "Waiting for the agent");
    if (item.kind !== "gap") return itemElement(item, this.context, before);
    const { missingFrom = 0, missingTo = 0 } = this.opened?.gap ?? {};
    return h("p", { class: "item note warning" }, `Events ${missingFrom}–${missingTo} were removed from the log`);
  }

  /** @param {Page.Session} view */
  drawHead(view) {
    const { title, activity, state, cwd, archived, branch, openQuestions } = view;
    const elsewhere = [...store.questions.values()].filter(({ sessionId }) => sessionId !== view.id).length;
    const key = JSON.stringify([title, activity, state, cwd, archived, branch, openQuestions, elsewhere]);
    if (this.headKey === key) return;
    this.headKey = key;
    const place = [view.agent, workplace(view), view.worktree ? "" : plain(branch)].filter(Boolean).join(" · ");
    const dot = openQuestions ? "waiting" : activity === "ended" ? state : activity;
    const stop = { glyph: "stop", kind: "plain", title: "Stop the turn" };
    const more = { glyph: "more", kind: "plain", title: "More", "aria-haspopup": "dialog" };
    replace(
      this.head,
      h(
        "a",
        {
          class: "button plain back",
          href: "#/",
          "aria-label": elsewhere ? `All sessions, ${elsewhere} waiting` : "All sessions",
        },
        icon("back"),
        elsewhere > 0 && h("span", { class: "badge" }, elsewhere),
      ),
      h(
        "div",
        { class: "heading" },
        h("h1", { dir: "auto" }, firstLine(title || view.id, 120)),
        h("p", { class: "quiet" }, h("span", { class: `dot ${dot}` }), ` ${place}`),
      ),
      BUSY.includes(activity) && button("Stop", () => this.act("interrupt"), stop),
      button("", () => this.showMenu(view), more),
    );
  }

  // Never over the answers of a question: then it stands at the top.
  drawJump() {
    const edge = this.list.getBoundingClientRect().bottom;
    const isUnder = (/** @type {Element} */ card) => {
      const { top, bottom } = card.getBoundingClientRect();
      return top < edge && bottom > edge - JUMP_HEIGHT;
    };
    this.jump.hidden = this.list.atEnd;
    this.jump.classList.toggle("aside", [...this.list.querySelectorAll(OPEN_QUESTION)].some(isUnder));
  }

  /**
   * @param {Page.OpenSession} opened
   * @param {Page.Session} view
   */
  drawStatus({ fold, online, ended }, view) {
    const unsent = store.outbox.filter(({ id }) => id === view.id).length;
    const tokens = fold.usage?.totalTokens ?? view.usage?.totalTokens;
    let activity = "";
    if (!online && !ended) activity = "offline, reconnecting…";
    else if (view.openQuestions) activity = "waiting for your answer";
    else if (view.activity === "working" || view.activity === "starting") activity = "working…";
    const words = [
      activity,
      view.queued && `${view.queued} queued`,
      unsent && `${unsent} not sent`,
      tokens && `${number(tokens)} tokens`,
      money(fold.cost ?? view.costUsd),
    ];
    const text = words.filter(Boolean).join(" · ");
    if (this.status.textContent !== text) this.status.textContent = text;
  }

  resizeInput() {
    this.input.style.height = "auto";
    if (this.input.value) this.input.style.height = `${Math.min(this.input.scrollHeight, TALLEST_INPUT)}px`;
  }

  /** @param {Page.Session} view */
  drawComposer({ activity, keepOpen, nativeId, worktree, branch }) {
    const ended = activity === "ended";
    const key = `${ended} ${keepOpen} ${nativeId} ${worktree}`;
    if (this.composerKey === key) return;
    this.composerKey = key;
    if (!ended) {
      replace(this.foot, this.input, this.sendButton);
      return;
    }
    this.input.placeholder = "Continue from here";
    const outcomes = {
      "": "",
      open: "",
      kept: `Its work is on branch ${plain(branch)}.`,
      removed: "Its worktree was removed.",
    };
    const outcome = outcomes[worktree];
    if (!nativeId || outcome) replace(this.foot, h("p", { class: "quiet" }, "This session has ended. ", outcome));
    else {
      const resume = button("Resume", () => this.submit("resume"), { glyph: "send", kind: "primary" });
      replace(
        this.foot,
        this.input,
        resume,
        button("Fork", () => this.submit("fork"), { glyph: "fork" }),
      );
    }
  }

  async submit(verb = "resume") {
    const prompt = this.input.value.trim();
    const view = this.opened?.view;
    if (!prompt || !view) return this.input.focus();
    try {
      if (view.activity === "ended") return await this.continueAs(view, verb, prompt);
      this.input.value = "";
      this.resizeInput();
      await store.send(view.id, prompt);
      announce("Sent");
    } catch (fault) {
      this.input.value ||= prompt;
      toast(messageOf(fault), "error");
    }
  }

  /**
   * @param {Page.Session} view
   * @param {string} verb
   * @param {string} prompt
   */
  async continueAs(view, verb, prompt) {
    const session = await store.act(view.id, verb, { prompt });
    this.input.value = "";
    location.hash = `#/s/${session.id}`;
  }

  /** @param {string} verb */
  async act(verb) {
    try {
      await store.act(this.sessionId, verb);
    } catch (fault) {
      toast(messageOf(fault), "error");
    }
  }

  /** @param {Page.Session} view */
  showMenu(view) {
    const dialog = h("dialog", { class: "sheet", "aria-label": "Session" });
    const close = () => dialog.close();
    const closing = (/** @type {() => unknown} */ action) => async () => {
      close();
      try {
        await action();
      } catch (fault) {
        toast(messageOf(fault), "error");
      }
    };
    const title = h("input", { type: "text", value: view.title, "aria-label": "Title", maxlength: 200 });
    const rename = closing(() => store.change(view.id, { title: title.value }));
    const archive = closing(() => store.change(view.id, { archived: !view.archived }));
    const ended = view.activity === "ended";
    const form = h("form", { class: "rename" }, title, button("Rename", rename, { kind: "plain" }));
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      rename();
    });
    const exported = (/** @type {string} */ format, /** @type {string} */ ending, /** @type {string} */ label) =>
      h(
        "a",
        {
          class: "button",
          href: `/api/sessions/${view.id}/export?format=${format}`,
          download: `${view.id}.${ending}`,
        },
        icon("down"),
        label,
      );
    const compare = { class: "button", href: `#/compare/${encodeURIComponent(view.group)}`, onclick: close };
    replace(
      dialog,
      form,
      button(
        "Changes since the start",
        closing(() => showReview(view)),
        { glyph: "file" },
      ),
      button(
        "Files",
        closing(() => showFiles(view)),
        { glyph: "folder" },
      ),
      view.group && h("a", compare, icon("fork"), "Compare with the others"),
      !ended &&
        button(
          "End the session",
          closing(() => this.act("cancel")),
          { glyph: "stop", kind: "deny" },
        ),
      !ended &&
        view.nativeId &&
        button(
          "Fork…",
          closing(() => this.fork(view)),
          { glyph: "fork" },
        ),
      button(view.archived ? "Restore from the archive" : "Archive", archive, { glyph: "folder" }),
      exported("markdown", "md", "Export as Markdown"),
      exported("json", "jsonl", "Export as JSON"),
      button("Close", close, { kind: "plain", autofocus: true }), // not the title: a phone would bring its keyboard
    );
    showDialog(dialog);
  }

  /** @param {Page.Session} view */
  async fork(view) {
    const prompt = this.input.value.trim();
    if (prompt) await this.continueAs(view, "fork", prompt);
    else toast("First write what the fork should do, then fork");
  }
}

customElements.define("session-view", SessionView);
