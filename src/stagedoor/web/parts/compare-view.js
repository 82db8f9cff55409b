// One prompt on several agents, side by side: what became of it, what it changed, what it cost. Keep one.

import { bar, button, empty, failed, h, replace, sure, toast } from "../core/dom.js";
import { get, query } from "../core/api.js";
import { store } from "../core/store.js";
import { duration, firstLine, money, number, plain } from "../core/text.js";
import { diffCounts, isWide } from "./items.js";
import { diffView } from "./diff-view.js";

const FATES = { kept: ["low", "kept"], removed: ["", "removed"] };

class CompareView extends HTMLElement {
  connectedCallback() {
    this.leave = new AbortController();
    this.diffs = new Map();
    this.made = new Map();
    this.unfolded = new Map();
    this.page = h("div", { class: "page compare" }, h("div", { class: "skeleton" }), h("div", { class: "skeleton" }));
    replace(this, bar("Compare"), this.page);
    store.listen("sessions questions", () => this.draw(), { signal: this.leave.signal });
  }

  disconnectedCallback() {
    this.leave.abort();
  }

  set group(name) {
    this.name = name;
    get(`/api/sessions${query({ group: name, limit: 50 })}`).then(
      (page) => {
        for (const one of page.sessions) store.sessions.set(one.id, one);
        this.loaded = true;
        this.draw();
      },
      (fault) =>
        replace(
          this.page,
          failed(
            "The results cannot be shown",
            fault,
            button("Try again", () => (this.group = name)),
          ),
        ),
    );
  }

  draw() {
    const sessions = [...store.sessions.values()]
      .filter((one) => one.group === this.name)
      .sort((a, b) => a.agent.localeCompare(b.agent));
    if (!sessions.length && !this.loaded) return undefined;
    if (!sessions.length)
      return replace(
        this.page,
        empty(
          "Nothing to compare",
          "Start one prompt on several agents first.",
          h("a", { class: "button", href: "#/new" }, "New session"),
        ),
      );
    for (const one of sessions) this.loadDiff(one);
    this.allOver = sessions.every((one) => one.activity === "ended" && this.diffs.get(one.id)?.ready);
    if (!this.columns) {
      this.columns = h("div", { class: "columns" });
      replace(
        this.page,
        h("p", { class: "quiet", dir: "auto" }, firstLine(sessions[0].title || sessions[0].prompt, 300)),
        this.columns,
      );
    }
    const shown = sessions.map((one) => this.kept(one));
    if (shown.some((column, at) => this.columns.children[at] !== column)) replace(this.columns, shown);
    return undefined;
  }

  async loadDiff(one) {
    if (one.activity === "starting") return; // its worktree is being made
    const key = `${one.lastSeq > 0 && one.activity}`;
    if (this.diffs.get(one.id)?.key === key) return;
    this.diffs.set(one.id, { key, diff: this.diffs.get(one.id)?.diff ?? "" });
    const found = await get(`/api/sessions/${one.id}/diff`).catch(() => null);
    if (this.diffs.get(one.id).key !== key) return; // a later one has been asked for
    this.diffs.set(one.id, { key, diff: found?.diff ?? "", ready: true, unknown: !found });
    this.draw();
  }

  // A column is made again only when it says something else.
  kept(one) {
    const says = JSON.stringify([
      one.state,
      one.activity,
      one.openQuestions,
      one.usage,
      one.branch,
      one.worktree,
      one.result,
      this.diffs.get(one.id)?.diff,
      this.allOver,
    ]);
    const before = this.made.get(one.id);
    if (before?.says === says) return before.column;
    const column = this.column(one);
    this.made.set(one.id, { says, column });
    return column;
  }

  column(one) {
    const { diff = "", ready, unknown } = this.diffs.get(one.id) ?? {};
    const counts = diffCounts(diff);
    const over = one.activity === "ended";
    const stands = one.worktree === "open";
    const fate = FATES[one.worktree];
    const rows = [
      ["Status", over ? one.state : one.openQuestions ? "waits for you" : one.activity],
      ["Changes", diff ? `+${counts.added} −${counts.removed}` : unknown ? "not known" : over && ready ? "none" : "…"],
      ["Tokens", one.usage?.totalTokens ? number(one.usage.totalTokens) : "–"],
      ["Cost", money(one.costUsd) || "–"],
      ["Time", duration(one.updatedAt - one.createdAt)],
      ["Branch", plain(one.branch) || "–"],
    ];
    return h(
      "section",
      { class: `column ${one.state}`, "aria-label": one.agent },
      h(
        "h2",
        {},
        h("span", { class: `dot ${one.openQuestions ? "waiting" : over ? one.state : one.activity}` }),
        one.agent,
        fate && h("span", { class: `chip ${fate[0]}` }, fate[1]),
      ),
      h(
        "dl",
        {},
        rows.map(([name, value]) => [h("dt", {}, name), h("dd", {}, value)]),
      ),
      one.result && h("p", { dir: "auto" }, firstLine(one.result, 240)),
      one.worktree === "kept" &&
        h("p", { class: "quiet" }, "Take it over with ", h("code", {}, `git merge ${plain(one.branch)}`)),
      diff &&
        h(
          "details",
          {
            open: this.unfolded.get(one.id) ?? isWide(),
            ontoggle: (event) => this.unfolded.set(one.id, event.target.open),
          },
          h("summary", {}, "Changes"),
          diffView(diff),
        ),
      h(
        "div",
        { class: "row-actions" },
        h(
          "a",
          { class: `button ${one.openQuestions ? "primary" : ""}`, href: `#/s/${one.id}` },
          one.openQuestions ? "Answer" : "Open",
        ),
        over && stands && !this.allOver && h("span", { class: "quiet" }, "can be kept when the others are over"),
        this.allOver && stands && button("Keep this one", () => this.keep(one), { glyph: "check", kind: "primary" }),
      ),
    );
  }

  async keep(chosen) {
    const others = [...store.sessions.values()].filter(
      (one) => one.group === this.name && one.id !== chosen.id && one.worktree === "open",
    );
    const rest =
      { 0: "", 1: ", and remove the worktree and branch of the other" }[others.length] ??
      `, and remove the worktrees and branches of the ${others.length} others`;
    if (!(await sure(`Keep branch ${plain(chosen.branch)}${rest}?`, "Keep this one"))) return;
    try {
      await store.act(chosen.id, "worktree", { keep: true });
      await Promise.all(others.map((one) => store.act(one.id, "worktree", { keep: false })));
      toast(`Kept: branch ${chosen.branch}`);
      store.refresh();
    } catch (fault) {
      toast(fault.message, "error");
    }
  }
}

customElements.define("compare-view", CompareView);
