// All sessions: those that wait for you first, then what runs, then the rest by age.

import { call, messageOf, sessionPath } from "../core/api.js";
import { button, confirmed, empty, h, icon, replace, showDialog, toast } from "../core/dom.js";
import { store } from "../core/store.js";
import { ago, firstLine, lastPart, money, plain } from "../core/text.js";

const MINUTE = 60000;
const TYPING = 250;
const STATES = { running: "Running", done: "Done", failed: "Failed", cancelled: "Cancelled" };
/** @type {Record<string, string>} what a turn that did not succeed leaves behind */
const OUTCOMES = { error: "Failed", max_turns: "Turn limit", max_budget: "Budget reached" };
const ACTIVITIES = {
  starting: "Starting",
  working: "Working",
  waiting: "Needs approval",
  idle: "Idle",
  asleep: "Asleep",
};

/**
 * @param {string} value
 * @param {string} label
 */
const option = (value, label) => h("option", { value }, label);

class SessionList extends HTMLElement {
  leave = new AbortController();
  /** @type {Map<string, HTMLElement>} */
  rows = new Map();
  currentId = "";
  clock = 0;
  nextFrame = 0;
  searchTimer = 0;
  search = h("input", { type: "search", placeholder: "Search", "aria-label": "Search sessions", id: "search" });
  agent = h("select", { "aria-label": "Agent" });
  project = h("select", { "aria-label": "Project" });
  state = h(
    "select",
    { "aria-label": "State" },
    option("", "State"),
    option("waiting", "Needs approval"),
    option("unread", "Unread"),
    Object.entries(STATES).map(([value, label]) => option(value, label)),
    option("archived", "Archived"),
  );
  list = h("ul", { class: "sessions", "aria-label": "Sessions" });
  more = button("Show older sessions", () => this.loadMore(), { kind: "plain wide", hidden: true });

  connectedCallback() {
    this.search.addEventListener("input", () => this.searchOlder());
    this.search.addEventListener("keydown", (event) => {
      if (event.key === "Enter") this.list.querySelector("a")?.click();
    });
    for (const field of [this.search, this.agent, this.project, this.state])
      field.addEventListener("input", () => this.draw());
    replace(
      this,
      h(
        "div",
        { class: "filters" },
        h("label", { class: "field-search" }, icon("search"), this.search),
        h("div", { class: "choices" }, this.agent, this.project, this.state),
      ),
      this.list,
      this.more,
      h("a", { class: "button plain wide", href: "#/history" }, icon("device"), "On this computer"),
    );
    store.listen("sessions questions", () => this.drawSoon(), { signal: this.leave.signal });
    this.clock = setInterval(() => this.drawSoon(), MINUTE);
    this.draw();
  }

  disconnectedCallback() {
    this.leave.abort();
    clearInterval(this.clock);
  }

  async loadMore() {
    try {
      await store.more();
    } catch (fault) {
      toast(messageOf(fault), "error");
    }
  }

  searchOlder() {
    clearTimeout(this.searchTimer);
    const words = this.search.value.trim();
    if (!words || !store.hasMore) return;
    this.searchTimer = setTimeout(() => store.more(words).catch(() => {}), TYPING);
  }

  drawSoon() {
    this.nextFrame ||= requestAnimationFrame(() => {
      this.nextFrame = 0;
      this.draw();
    });
  }

  /** @param {string} id */
  set current(id) {
    this.currentId = id;
    this.draw();
  }

  draw() {
    if (!store.loaded) {
      replace(
        this.list,
        [1, 2, 3].map(() => h("li", { class: "skeleton", "aria-hidden": "true" })),
      );
      return;
    }
    const all = [...store.sessions.values()];
    this.more.hidden = !store.hasMore;
    fillOptions(
      this.agent,
      "Agent",
      all.map(({ agent }) => agent),
      (agent) => agent,
    );
    fillOptions(
      this.project,
      "Project",
      all.filter(({ group }) => !group).map(({ cwd }) => cwd),
      lastPart,
    );
    const matches = all.filter((session) => this.passes(session));
    if (matches.length) this.place(grouped(matches.sort((a, b) => rank(a) - rank(b) || timeOf(b) - timeOf(a))));
    else replace(this.list, h("li", {}, all.length ? noMatch() : noSessions()));
  }

  /** @param {Page.Session} session */
  passes(session) {
    const { agent, cwd, state, archived, openQuestions, title, prompt, result, id } = session;
    const filter = this.state.value;
    const words = this.search.value.trim().toLowerCase();
    if ((filter === "archived") !== Boolean(archived)) return false;
    if (filter === "waiting" && !openQuestions) return false;
    if (filter === "unread" && !isUnread(session)) return false;
    if (filter === "failed" ? !hasFailed(session) : filter in STATES && state !== filter) return false;
    if (this.agent.value && agent !== this.agent.value) return false;
    if (this.project.value && cwd !== this.project.value) return false;
    return `${title} ${prompt} ${result} ${cwd} ${id}`.toLowerCase().includes(words);
  }

  /**
   * A row stays the same element as long as it shows the same: a tap must not fall between two of them.
   * @param {(Page.Session | string)[]} entries sessions, and the headings between them
   */
  place(entries) {
    const ids = new Set(entries.map((entry) => (typeof entry === "string" ? `# ${entry}` : entry.id)));
    for (const row of this.list.querySelectorAll("li")) if (!ids.has(row.dataset.id ?? "")) row.remove();
    /** @type {Element | null} */
    let behind = null;
    for (const entry of entries) {
      const row = typeof entry === "string" ? this.heading(entry) : this.row(entry, isNested(entry, ids));
      /** @type {Node | null} */
      const next = behind ? behind.nextSibling : this.list.firstChild;
      if (next !== row) this.list.insertBefore(row, next);
      behind = row;
    }
  }

  /** @param {string} words */
  heading(words) {
    const id = `# ${words}`;
    const row = this.rows.get(id) ?? h("li", { class: "group", "data-id": id }, h("h2", {}, words));
    this.rows.set(id, row);
    return row;
  }

  /**
   * @param {Page.Session} session
   * @param {boolean} nested
   */
  row(session, nested) {
    const { id, title, state, activity, status, openQuestions, costUsd, updatedAt, result, archived } = session;
    const isCurrent = this.currentId === id;
    if (isCurrent) markRead(session);
    const shown = [title, state, activity, status, openQuestions, costUsd, ago(updatedAt), isCurrent, archived, nested];
    const where = [store.placeOf(session), store.machineOf(session)?.away];
    const key = JSON.stringify([...shown, firstLine(result, 90), isUnread(session), where]);
    const row = this.rows.get(id) ?? h("li", { "data-id": id });
    this.rows.set(id, row);
    if (row.dataset.shows === key) return row;
    row.dataset.shows = key;
    const before = row.firstElementChild;
    const link = this.link(session, isCurrent, nested);
    const open = () => showActions(store.sessions.get(id) ?? session);
    const menu = { glyph: "more", kind: "plain row-menu", title: `Actions for ${firstLine(title || id, 60)}` };
    row.querySelector(".row-menu")?.setAttribute("aria-label", menu.title);
    if (!before) row.append(link, button("", open, menu));
    else {
      before.className = link.className;
      if (isCurrent) before.setAttribute("aria-current", "page");
      else before.removeAttribute("aria-current");
      replace(before, ...link.childNodes);
    }
    return row;
  }

  /**
   * @param {Page.Session} session
   * @param {boolean} isCurrent
   * @param {boolean} nested
   */
  link(session, isCurrent, nested) {
    const { id, state, activity, status, openQuestions, title, prompt } = session;
    let label = activity === "ended" ? STATES[state] : ACTIVITIES[activity];
    let dot = activity === "ended" ? state : activity;
    if (activity !== "ended" && store.machineOf(session)?.away) [label, dot] = ["Away", "asleep"];
    if (hasFailed(session)) [label, dot] = [OUTCOMES[status ?? ""] ?? STATES.failed, "failed"];
    if (openQuestions) [label, dot] = [ACTIVITIES.waiting, "waiting"];
    return h(
      "a",
      {
        class: `session ${state} ${openQuestions ? "waiting" : ""} ${nested ? "child" : ""}`,
        href: `#/s/${id}`,
        "aria-current": isCurrent ? "page" : null,
      },
      h("span", { class: "title", dir: "auto" }, firstLine(title || prompt || id, 120)),
      session.result && h("span", { class: "last quiet", dir: "auto" }, lastLine(session.result)),
      h(
        "span",
        { class: "meta" },
        isUnread(session) && h("span", { class: "unread", role: "img", "aria-label": "unread" }),
        h("span", { class: `dot ${dot}` }),
        h("span", {}, label),
        h("span", {}, session.agent),
        h("span", { class: "place" }, store.placeOf(session)),
        h("span", { class: "spacer" }),
        session.linesAdded > 0 && h("span", { class: "plus" }, `+${session.linesAdded}`),
        session.linesRemoved > 0 && h("span", { class: "minus" }, `−${session.linesRemoved}`),
        h("span", {}, money(session.costUsd)),
        h("time", {}, ago(session.updatedAt)),
      ),
    );
  }
}

const SEEN = "stagedoor-seen";
/** @type {Record<string, number>} session → the number of the last event that was on screen here */
const seen = JSON.parse(localStorage.getItem(SEEN) ?? "{}");

/** @param {Page.Session} session */
function markRead({ id, lastSeq }) {
  if (document.hidden || seen[id] === lastSeq) return;
  seen[id] = lastSeq;
  for (const old of Object.keys(seen).slice(0, -500)) delete seen[old];
  localStorage.setItem(SEEN, JSON.stringify(seen));
}

/**
 * Something came to its end since somebody looked at it here.
 * @param {Page.Session} session
 */
const isUnread = ({ id, lastSeq, activity }) =>
  id in seen && seen[id] < lastSeq && ["idle", "asleep", "ended"].includes(activity);

/** @param {string} text */
const lastLine = (text) =>
  firstLine(
    text
      .trim()
      .split("\n")
      .at(-1)
      ?.replace(/[\x60*]+/g, ""),
    90,
  );

/**
 * Under the name of its project; those that wait stay on top of all. What another session has started comes right
 * behind it, wherever it works.
 * @param {Page.Session[]} sessions
 * @returns {(Page.Session | string)[]}
 */
function grouped(sessions) {
  const ids = new Set(sessions.map(({ id }) => id));
  const roots = sessions.filter((session) => !isNested(session, ids));
  const started = groupBy(sessions, ({ parent }) => parent ?? "");
  /** @type {(session: Page.Session) => Page.Session[]} */
  const family = (session) => [
    session,
    ...(started.get(session.id) ?? []).filter((child) => isNested(child, ids)).flatMap(family),
  ];
  const quiet = roots.filter(({ openQuestions }) => !openQuestions);
  const projects = groupBy(quiet, ({ wanted, cwd }) => wanted?.cwd || cwd);
  if (projects.size < 2) return roots.flatMap(family);
  const waiting = roots.filter(({ openQuestions }) => openQuestions);
  const names = [...projects.keys()].map(lastPart);
  const name = (/** @type {string} */ path) =>
    names.filter((other) => other === lastPart(path)).length > 1 ? path : lastPart(path);
  return [
    ...waiting.flatMap(family),
    ...[...projects].flatMap(([path, own]) => [plain(name(path)), ...own.flatMap(family)]),
  ];
}

/**
 * @param {Page.Session} session
 * @param {Set<string>} ids those that are listed
 */
const isNested = ({ parent, openQuestions }, ids) => Boolean(parent && ids.has(parent) && !openQuestions);

/**
 * @param {Page.Session[]} sessions
 * @param {(session: Page.Session) => string} key
 */
function groupBy(sessions, key) {
  /** @type {Map<string, Page.Session[]>} */
  const groups = new Map();
  for (const session of sessions) {
    const group = groups.get(key(session));
    if (group) group.push(session);
    else groups.set(key(session), [session]);
  }
  return groups;
}

/** @param {Page.Session} session */
function showActions(session) {
  const dialog = h("dialog", { class: "sheet", "aria-label": "Session" });
  const closing = (/** @type {() => Promise<unknown>} */ action) => async () => {
    dialog.close();
    await action().catch((fault) => toast(messageOf(fault), "error"));
  };
  const title = h("input", { type: "text", value: session.title, "aria-label": "New title", maxlength: 200 });
  const { id, archived, activity } = session;
  const remove = async () => {
    if (!(await confirmed(`Delete “${firstLine(session.title, 60)}” and everything it said?`, "Delete"))) return;
    if (activity !== "ended") await store.act(id, "cancel");
    await call("DELETE", sessionPath(id));
    if (location.hash === `#/s/${id}`) location.hash = "#/";
  };
  replace(
    dialog,
    title,
    button(
      "Rename",
      closing(() => store.change(id, { title: title.value })),
      { glyph: "edit" },
    ),
    button(
      archived ? "Unarchive" : "Archive",
      closing(() => store.change(id, { archived: !archived })),
      {
        glyph: "folder",
      },
    ),
    button("Delete…", closing(remove), { glyph: "cross", kind: "deny" }),
    button("Close", () => dialog.close(), { kind: "plain", autofocus: true }),
  );
  showDialog(dialog);
}

const noMatch = () => empty("No session matches", "Change the search or the filters.");

function noSessions() {
  const start = h("a", { class: "button primary", href: "#/new" }, icon("add"), "Start a session");
  return empty("No sessions yet", "Choose an agent, write what it should do, and follow it here.", start);
}

/**
 * @param {HTMLSelectElement} select
 * @param {string} label
 * @param {string[]} values
 * @param {(value: string) => string} name
 */
function fillOptions(select, label, values, name) {
  const sorted = [...new Set(values)].sort();
  const key = sorted.join("\n");
  if (select.dataset.key === key) return;
  const before = select.value;
  select.dataset.key = key;
  replace(
    select,
    option("", label),
    sorted.map((value) => option(value, name(value))),
  );
  select.value = before;
}

/**
 * The session, or its last turn: an agent that gave up waits for the next message like one that is done.
 * @param {Page.Session} session
 */
const hasFailed = ({ state, activity, status }) =>
  state === "failed" || (["idle", "asleep"].includes(activity) && (status ?? "") in OUTCOMES);

/**
 * A running session keeps its place; an ended one is placed by when it ended.
 * @param {Page.Session} session
 */
const timeOf = ({ activity, updatedAt, createdAt }) => (activity === "ended" ? updatedAt : createdAt);

/** @param {Page.Session} session */
function rank({ openQuestions, activity }) {
  if (openQuestions) return 0;
  return activity === "ended" ? 2 : 1;
}

customElements.define("session-list", SessionList);
