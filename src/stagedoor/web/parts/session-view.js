// One session: its stream, what can be done with it, and the field to write to the agent.

import { call, get, messageOf, query, sessionPath } from "../core/api.js";
import { announce, bar, button, failed, h, icon, linkButton, replace, showDialog, toast } from "../core/dom.js";
import { store } from "../core/store.js";
import { firstLine, MODES, modeOf, money, number, plain, rightsOf, titleOf } from "../core/text.js";
import "../core/virtual.js";
import "./composer.js";
import { itemElement, planList } from "./items.js";
import { showFiles, showReview } from "./review-view.js";

const BUSY = ["working", "waiting", "starting"];
const OPEN_QUESTION = ".question:not(.closed)";
const JUMP_HEIGHT = 60;

/** @param {Page.Session} view */
const awayWords = ({ place }) =>
  place.startsWith("git:") ? "another machine continues" : "it goes on when it is back";

/**
 * The machine of a session that is open, when nobody hears of it.
 * @param {Page.Session} view
 */
const awayMachine = (view) => {
  const machine = view.activity === "ended" ? undefined : store.machineOf(view);
  return machine?.away ? machine : undefined;
};

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
  pinned = h("details", { class: "pinned", hidden: true });
  choices = h("span", { class: "session-choices" });
  composer = h("message-composer");
  sendButton = button("", () => this.submit(), { glyph: "send", kind: "primary", title: "Send" });
  settingsKey = "";
  gauges = h("span", { class: "gauges" });
  gaugesKey = "";
  /** @type {Map<string, Promise<string>>} pictures that were sent, each loaded once */
  loaded = new Map();
  /** @type {Page.Report} */
  report = {};
  planKey = "";
  /** @type {Page.ItemContext} */
  context = {
    cards: new Map(),
    cwd: () => this.opened?.view?.cwd,
    workplace: () => (this.opened?.view ? store.placeOf(this.opened.view) : ""),
    whoAnswered: (requestId) => this.opened?.answeredBy.get(requestId) ?? "",
    questionOf: (request) => this.questionOf(request),
    picture: (id) => this.picture(id),
    changeQueue: (action, item) => this.changeQueue(action, item).catch(complain),
  };

  connectedCallback() {
    const line = h("div", { class: "status-line" }, this.status, this.gauges, this.choices);
    replace(this, this.head, this.pinned, h("div", { class: "stream" }, this.list, this.jump), line, this.foot);
    this.list.addEventListener("top", () => this.opened?.loadEarlier());
    for (const event of ["scroll", "drawn"])
      this.list.addEventListener(event, () => this.drawJump(), { passive: true });
    this.composer.submit = () => this.submit();
    this.composer.complete = (mark, text) => this.complete(mark, text);
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
    this.drawPlan(this.opened, view);
    this.drawStatus(this.opened, view);
    this.drawChoices(view);
    this.drawComposer(view);
  }

  /**
   * The plan stays in sight while it is carried out, folded to the step that is under way.
   * @param {Page.OpenSession} opened
   * @param {Page.Session} view
   */
  drawPlan({ fold }, view) {
    const steps = fold.plan?.steps ?? [];
    const done = steps.filter(({ status }) => status === "completed").length;
    const current = steps.find(({ status }) => status === "in_progress") ?? steps[done];
    this.pinned.hidden = !BUSY.includes(view.activity) || !current;
    const key = JSON.stringify(steps);
    if (this.pinned.hidden || this.planKey === key) return;
    this.planKey = key;
    const summary = h("summary", {}, icon("plan"), h("b", {}, `${done}/${steps.length}`), firstLine(current?.text, 90));
    replace(this.pinned, summary, planList(steps));
  }

  /**
   * Permissions and what else the agent lets one choose, where the session goes on.
   * @param {Page.Session} view
   */
  async drawChoices(view) {
    const { activity, nativeId, model, turn } = view;
    const key = JSON.stringify([activity, nativeId, model, modeOf(view), turn]);
    if (this.settingsKey === key) return;
    this.settingsKey = key;
    if (view.activity === "ended" || !view.nativeId) {
      replace(this.choices);
      return;
    }
    const read = (/** @type {string} */ what) => get(`${sessionPath(view.id)}/${what}`).catch(() => ({}));
    const [report, answer] = await Promise.all([read("agent"), read("settings")]);
    if (this.settingsKey !== key) return;
    this.report = report;
    if (this.opened) this.drawStatus(this.opened, view);
    /** @type {Page.Setting[]} */
    const settings = answer.settings ?? [];
    const mode = choice(
      "Permissions",
      MODES.map(([value, name]) => ({ value, name })),
      modeOf(view),
      (value) => store.change(view.id, rightsOf(value)),
    );
    const offered = settings.filter(({ kind, choices, locked }) => kind !== "mode" && choices.length > 1 && !locked);
    replace(
      this.choices,
      mode,
      offered.map(({ id, name, kind, choices, value }) =>
        choice(
          plain(name || id),
          choices,
          value,
          (chosen) => call("PATCH", `${sessionPath(view.id)}/settings`, { id, value: chosen }),
          kind !== "model", // whose names say what they are
        ),
      ),
    );
  }

  /** @param {string} id */
  picture(id) {
    const load = async () => {
      const { mediaType, content } = await get(`${sessionPath(this.sessionId)}/attachment${query({ name: id })}`);
      return `data:${mediaType};base64,${content}`;
    };
    const address = this.loaded.get(id) ?? load();
    this.loaded.set(id, address);
    address.catch(() => this.loaded.delete(id)); // tried again when it is shown again
    return address;
  }

  /** @type {Page.Complete} */
  async complete(mark, text) {
    if (mark === "/") {
      const { commands } = await get(`${sessionPath(this.sessionId)}/agent`);
      const matches = commands.filter((/** @type {{ name: string }} */ { name }) => name.startsWith(text));
      return matches.map((/** @type {any} */ { name, description }) => [name, description]);
    }
    const { paths } = await get(`${sessionPath(this.sessionId)}/find${query({ text })}`);
    return paths.map((/** @type {string} */ path) => [path, ""]);
  }

  /**
   * @param {"edit" | "up" | "remove" | "resume"} action
   * @param {Page.QueuedItem} item
   */
  async changeQueue(action, { id, text, place }) {
    const path = `${sessionPath(this.sessionId)}/messages/${encodeURIComponent(id)}`;
    if (action === "resume") await store.change(this.sessionId, { queuePaused: false });
    else if (action === "remove") await call("DELETE", path);
    else if (action === "up") await call("PATCH", path, { place: place - 1 });
    else {
      const prompt = await edited(text);
      if (prompt && prompt !== text) await call("PATCH", path, { prompt });
    }
    await this.opened?.readQueue();
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
    const where = store.placeOf(view);
    const key = JSON.stringify([title, activity, state, cwd, archived, branch, openQuestions, elsewhere, where]);
    if (this.headKey === key) return;
    this.headKey = key;
    const place = [view.agent, where, view.worktree ? "" : plain(branch)].filter(Boolean).join(" · ");
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
      BUSY.includes(activity) && button("Stop", () => this.act("interrupt", { pause: true }), stop),
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
    const away = awayMachine(view);
    if (!online && !ended) activity = "offline, reconnecting…";
    else if (away) activity = `${plain(away.name)} is away: ${awayWords(view)}`;
    else if (view.openQuestions) activity = "needs your approval";
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
    this.drawGauges();
  }

  // How full the context is, and what of each quota is used: where the agent tells it.
  drawGauges() {
    const { contextUsed, contextSize, quotas = [] } = this.report;
    const key = JSON.stringify([contextUsed, contextSize, quotas]);
    if (this.gaugesKey === key) return;
    this.gaugesKey = key;
    const context = `${number(contextUsed)} of ${number(contextSize)} tokens`;
    const until = (/** @type {number | null} */ at) => (at ? `, until ${new Date(at).toLocaleString()}` : "");
    replace(
      this.gauges,
      contextUsed && contextSize ? gauge("Context", (100 * contextUsed) / contextSize, context) : null,
      quotas.map(({ name, usedPercent, resetsAt }) =>
        gauge(plain(name), usedPercent, `${Math.round(usedPercent)}% of the quota used${until(resetsAt)}`),
      ),
    );
  }

  /** @param {Page.Session} view */
  drawComposer(view) {
    const { agent, activity, keepOpen, nativeId, worktree, branch } = view;
    const ended = activity === "ended";
    const away = awayMachine(view);
    const key = `${ended} ${keepOpen} ${nativeId} ${worktree} ${away?.name}`;
    if (this.composerKey === key) return;
    this.composerKey = key;
    const { input, actions, attach } = this.composer;
    input.placeholder = ended ? "Continue from here" : `Message ${titleOf(agent)}…`;
    if (away) input.placeholder = `${plain(away.name)} is away: write when it is back`;
    input.disabled = this.sendButton.disabled = Boolean(away);
    attach.hidden = ended;
    if (!ended) {
      replace(actions, this.sendButton);
      replace(this.foot, this.composer);
      return;
    }
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
      const fork = button("Fork", () => this.submit("fork"), { glyph: "fork" });
      replace(actions, resume, fork);
      replace(this.foot, this.composer);
    }
  }

  async submit(verb = "resume") {
    const { prompt, attachments, input } = this.composer;
    const view = this.opened?.view;
    if (!prompt || !view) return input.focus();
    try {
      if (view.activity === "ended") return await this.continueAs(view, verb, prompt);
      this.composer.clear();
      await store.send(view.id, prompt, attachments);
      announce("Sent");
    } catch (fault) {
      input.value ||= prompt;
      this.composer.attachments = attachments;
      this.composer.drawChips();
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
    this.composer.clear();
    location.hash = `#/s/${session.id}`;
  }

  /**
   * @param {string} verb
   * @param {unknown} [body]
   */
  async act(verb, body) {
    await store.act(this.sessionId, verb, body).catch(complain);
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
        "View diff",
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
      button(view.archived ? "Unarchive" : "Archive", archive, { glyph: "folder" }),
      exported("markdown", "md", "Export as Markdown"),
      exported("json", "jsonl", "Export as JSON"),
      button("Close", close, { kind: "plain", autofocus: true }), // not the title: a phone would bring its keyboard
    );
    showDialog(dialog);
  }

  /** @param {Page.Session} view */
  async fork(view) {
    const { prompt } = this.composer;
    if (prompt) await this.continueAs(view, "fork", prompt);
    else toast("First write what the fork should do, then fork");
  }
}

/** @param {unknown} fault */
const complain = (fault) => toast(messageOf(fault), "error");

/**
 * @param {string} name
 * @param {number} percent
 * @param {string} title
 */
const gauge = (name, percent, title) =>
  h(
    "span",
    { class: "gauge", title: `${name}: ${title}` },
    name,
    h("meter", { min: 0, max: 100, high: 80, optimum: 0, value: percent, "aria-label": `${name}: ${title}` }),
    `${Math.round(percent)}%`,
  );

/**
 * @param {string} label
 * @param {{ value: string, name: string }[]} choices
 * @param {string} value
 * @param {(value: string) => Promise<unknown>} change
 * @param {boolean} [named] the label is to be seen
 */
function choice(label, choices, value, change, named) {
  const known = choices.some((one) => one.value === value) ? choices : [{ value, name: value }, ...choices];
  const options = known.map((one) => h("option", { value: one.value }, plain(one.name || one.value)));
  const select = h("select", { "aria-label": label }, options);
  select.value = value;
  select.addEventListener("change", async () => {
    try {
      await change(select.value);
      toast(`${label}: ${select.selectedOptions[0]?.textContent} from the next message on`);
    } catch (fault) {
      select.value = value;
      complain(fault);
    }
  });
  return named ? h("label", {}, `${label} `, select) : select;
}

/**
 * @param {string} text
 * @returns {Promise<string>} empty when nothing is to change
 */
function edited(text) {
  return new Promise((resolve) => {
    const area = h("textarea", { rows: 6, "aria-label": "Queued message", value: text });
    const dialog = h("dialog", { class: "sheet", "aria-label": "Edit a queued message" }, area);
    const save = () => {
      resolve(area.value.trim());
      dialog.close();
    };
    dialog.append(
      button("Save", save, { kind: "primary" }),
      button("Cancel", () => dialog.close(), { kind: "plain" }),
    );
    dialog.addEventListener("close", () => resolve(""));
    showDialog(dialog);
  });
}

customElements.define("session-view", SessionView);
