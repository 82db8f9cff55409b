// All sessions: those that wait for you first, then what runs, then the rest by age.

import { messageOf } from "../core/api.js";
import { button, empty, h, icon, replace, toast } from "../core/dom.js";
import { store } from "../core/store.js";
import { ago, firstLine, lastPart, money, workplace } from "../core/text.js";

const MINUTE = 60000;
const TYPING = 250;
const STATES = { running: "Running", done: "Done", failed: "Failed", cancelled: "Cancelled" };
/** @type {Record<string, string>} what a turn that did not succeed leaves behind */
const OUTCOMES = { error: "Failed", max_turns: "Turn limit", max_budget: "Budget reached" };
const ACTIVITIES = {
  starting: "Starting",
  working: "Working",
  waiting: "Waiting for you",
  idle: "Ready",
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
    option("waiting", "Waiting"),
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
    if (matches.length) this.place(matches.sort((a, b) => rank(a) - rank(b) || timeOf(b) - timeOf(a)));
    else replace(this.list, h("li", {}, all.length ? noMatch() : noSessions()));
  }

  /** @param {Page.Session} session */
  passes(session) {
    const { agent, cwd, state, archived, openQuestions, title, prompt, result, id } = session;
    const filter = this.state.value;
    const words = this.search.value.trim().toLowerCase();
    if ((filter === "archived") !== Boolean(archived)) return false;
    if (filter === "waiting" && !openQuestions) return false;
    if (filter === "failed" ? !hasFailed(session) : filter in STATES && state !== filter) return false;
    if (this.agent.value && agent !== this.agent.value) return false;
    if (this.project.value && cwd !== this.project.value) return false;
    return `${title} ${prompt} ${result} ${cwd} ${id}`.toLowerCase().includes(words);
  }

  /**
   * A row stays the same element as long as it shows the same: a tap must not fall between two of them.
   * @param {Page.Session[]} sessions
   */
  place(sessions) {
    const ids = new Set(sessions.map(({ id }) => id));
    for (const row of this.list.querySelectorAll("li")) if (!ids.has(row.dataset.id ?? "")) row.remove();
    /** @type {Element | null} */
    let behind = null;
    for (const session of sessions) {
      const row = this.row(session);
      /** @type {Node | null} */
      const next = behind ? behind.nextSibling : this.list.firstChild;
      if (next !== row) this.list.insertBefore(row, next);
      behind = row;
    }
  }

  /** @param {Page.Session} session */
  row(session) {
    const { id, title, state, activity, status, openQuestions, costUsd, updatedAt } = session;
    const isCurrent = this.currentId === id;
    const key = JSON.stringify([title, state, activity, status, openQuestions, costUsd, ago(updatedAt), isCurrent]);
    const row = this.rows.get(id) ?? h("li", { "data-id": id });
    this.rows.set(id, row);
    if (row.dataset.shows === key) return row;
    row.dataset.shows = key;
    const before = row.firstElementChild;
    const link = this.link(session, isCurrent);
    if (!before) row.append(link);
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
   */
  link(session, isCurrent) {
    const { id, state, activity, status, openQuestions, title, prompt } = session;
    let label = activity === "ended" ? STATES[state] : ACTIVITIES[activity];
    let dot = activity === "ended" ? state : activity;
    if (hasFailed(session)) [label, dot] = [OUTCOMES[status ?? ""] ?? STATES.failed, "failed"];
    if (openQuestions) [label, dot] = [ACTIVITIES.waiting, "waiting"];
    return h(
      "a",
      {
        class: `session ${state} ${openQuestions ? "waiting" : ""}`,
        href: `#/s/${id}`,
        "aria-current": isCurrent ? "page" : null,
      },
      h("span", { class: "title", dir: "auto" }, firstLine(title || prompt || id, 120)),
      h(
        "span",
        { class: "meta" },
        h("span", { class: `dot ${dot}` }),
        h("span", {}, label),
        h("span", {}, session.agent),
        h("span", { class: "place" }, workplace(session)),
        h("span", { class: "spacer" }),
        h("span", {}, money(session.costUsd)),
        h("time", {}, ago(session.updatedAt)),
      ),
    );
  }
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
