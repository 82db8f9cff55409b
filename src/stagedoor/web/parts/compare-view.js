// One prompt on several agents, side by side: the result of each, what it changed, what it cost. Keep one.

import { get, messageOf, query, sessionPath } from "../core/api.js";
import { bar, button, confirmed, empty, failed, h, isWide, linkButton, replace, skeleton, toast } from "../core/dom.js";
import { store } from "../core/store.js";
import { diffCounts, duration, firstLine, money, number, plain } from "../core/text.js";
import { diffView } from "./diff-view.js";

class CompareView extends HTMLElement {
  leave = new AbortController();
  /** @type {Map<string, { key: string, diff: string, ready?: boolean, unknown?: boolean }>} */
  diffs = new Map();
  /** @type {Map<string, { key: string, element: HTMLElement }>} */
  drawn = new Map();
  /** @type {Map<string, boolean>} */
  unfolded = new Map();
  name = "";
  loaded = false;
  allEnded = false;
  page = h("div", { class: "page compare" }, skeleton(), skeleton());
  columns = h("div", { class: "columns" });

  connectedCallback() {
    replace(this, bar("Compare"), this.page);
    store.listen("sessions questions", () => this.draw(), { signal: this.leave.signal });
  }

  disconnectedCallback() {
    this.leave.abort();
  }

  /** @param {string} name */
  set group(name) {
    this.name = name;
    this.load();
  }

  async load() {
    try {
      /** @type {Page.SessionPage} */
      const page = await get(`/api/sessions${query({ group: this.name, limit: 50 })}`);
      for (const session of page.sessions) store.sessions.set(session.id, session);
      this.loaded = true;
      this.draw();
    } catch (fault) {
      replace(
        this.page,
        failed(
          "Cannot show the results",
          messageOf(fault),
          button("Try again", () => this.load()),
        ),
      );
    }
  }

  sessions() {
    return [...store.sessions.values()].filter(({ group }) => group === this.name);
  }

  draw() {
    const sessions = this.sessions().sort((a, b) => a.agent.localeCompare(b.agent));
    const [first] = sessions;
    if (!first) {
      const text = "Start one prompt on several agents first.";
      if (this.loaded) replace(this.page, empty("Nothing to compare", text, linkButton("#/new", "New session")));
      return;
    }
    for (const session of sessions) this.loadDiff(session);
    this.allEnded = sessions.every(({ id, activity }) => activity === "ended" && this.diffs.get(id)?.ready);
    if (!this.columns.isConnected) {
      const prompt = firstLine(first.title || first.prompt, 300);
      replace(this.page, h("p", { class: "quiet", dir: "auto" }, prompt), this.columns);
    }
    const columns = sessions.map((session) => this.column(session));
    if (columns.some((column, at) => this.columns.children[at] !== column)) replace(this.columns, columns);
  }

  /** @param {Page.Session} session */
  async loadDiff({ id, activity, lastSeq }) {
    if (activity === "starting") return; // its worktree is being created
    const key = `${lastSeq > 0 && activity}`;
    const before = this.diffs.get(id);
    if (before?.key === key) return;
    this.diffs.set(id, { key, diff: before?.diff ?? "" });
    const answer = await get(`${sessionPath(id)}/diff`).catch(() => null);
    if (this.diffs.get(id)?.key !== key) return; // a later one has been requested
    this.diffs.set(id, { key, diff: answer?.diff ?? "", ready: true, unknown: !answer });
    this.draw();
  }

  /**
   * A column is made again only when it shows something else.
   * @param {Page.Session} session
   */
  column(session) {
    const { id, state, activity, openQuestions, usage, branch, worktree, result } = session;
    const { diff } = this.diffs.get(id) ?? {};
    const key = JSON.stringify([state, activity, openQuestions, usage, branch, worktree, result, diff, this.allEnded]);
    const before = this.drawn.get(id);
    if (before?.key === key) return before.element;
    const element = this.makeColumn(session);
    this.drawn.set(id, { key, element });
    return element;
  }

  /** @param {Page.Session} session */
  makeColumn(session) {
    const { id, agent, state, activity, openQuestions, worktree, branch, result } = session;
    const { diff = "" } = this.diffs.get(id) ?? {};
    const status = activity === "ended" ? state : activity;
    return h(
      "section",
      { class: `column ${state}`, "aria-label": agent },
      h(
        "h2",
        {},
        h("span", { class: `dot ${openQuestions ? "waiting" : status}` }),
        agent,
        worktree === "kept" && h("span", { class: "chip low" }, "kept"),
        worktree === "removed" && h("span", { class: "chip" }, "removed"),
      ),
      h(
        "dl",
        {},
        this.facts(session, status).map(([name, value]) => [h("dt", {}, name), h("dd", {}, value)]),
      ),
      result && h("p", { dir: "auto" }, firstLine(result, 240)),
      worktree === "kept" && h("p", { class: "quiet" }, "To use it: ", h("code", {}, `git merge ${plain(branch)}`)),
      diff && this.changes(id, diff),
      this.actions(session),
    );
  }

  /**
   * @param {Page.Session} session
   * @param {string} status
   */
  facts(session, status) {
    const { diff = "", ready, unknown } = this.diffs.get(session.id) ?? {};
    const { added, removed } = diffCounts(diff);
    let changes = "…";
    if (diff) changes = `+${added} −${removed}`;
    else if (unknown) changes = "unknown";
    else if (ready && session.activity === "ended") changes = "none";
    return [
      ["Status", session.openQuestions ? "waiting for you" : status],
      ["Changes", changes],
      ["Tokens", session.usage?.totalTokens ? number(session.usage.totalTokens) : "–"],
      ["Cost", money(session.costUsd) || "–"],
      ["Time", duration(session.updatedAt - session.createdAt)],
      ["Branch", plain(session.branch) || "–"],
    ];
  }

  /**
   * @param {string} id
   * @param {string} diff
   */
  changes(id, diff) {
    const details = h(
      "details",
      { open: this.unfolded.get(id) ?? isWide() },
      h("summary", {}, "Changes"),
      diffView(diff),
    );
    details.addEventListener("toggle", () => this.unfolded.set(id, details.open));
    return details;
  }

  /** @param {Page.Session} session */
  actions(session) {
    const { id, openQuestions, activity } = session;
    const hasWorktree = session.worktree === "open";
    const keep = { glyph: "check", kind: "primary" };
    return h(
      "div",
      { class: "row-actions" },
      h(
        "a",
        { class: `button ${openQuestions ? "primary" : ""}`, href: `#/s/${id}` },
        openQuestions ? "Answer" : "Open",
      ),
      hasWorktree &&
        activity === "ended" &&
        !this.allEnded &&
        h("span", { class: "quiet" }, "can be kept when the others have ended"),
      hasWorktree && this.allEnded && button("Keep this one", () => this.keep(session), keep),
    );
  }

  /** @param {Page.Session} session */
  async keep({ id, branch }) {
    const others = this.sessions().filter((other) => other.id !== id && other.worktree === "open");
    let rest = "";
    if (others.length === 1) rest = ", and remove the worktree and branch of the other";
    if (others.length > 1) rest = `, and remove the worktrees and branches of the ${others.length} others`;
    if (!(await confirmed(`Keep branch ${plain(branch)}${rest}?`, "Keep this one"))) return;
    try {
      await store.act(id, "worktree", { keep: true });
      await Promise.all(others.map((other) => store.act(other.id, "worktree", { keep: false })));
      toast(`Kept branch ${branch}`);
      store.refresh();
    } catch (fault) {
      toast(messageOf(fault), "error");
    }
  }
}

customElements.define("compare-view", CompareView);
