// All sessions: those that wait for you first, then what runs, then the rest by age.

import { button, empty, h, icon, replace, toast } from "../core/dom.js";
import { store } from "../core/store.js";
import { ago, firstLine, money, place, tail } from "../core/text.js";

const STATES = { running: "Running", done: "Done", failed: "Failed", cancelled: "Cancelled" };
const ACTIVITIES = {
  starting: "Starting",
  working: "Working",
  waiting: "Waits for you",
  idle: "Ready",
  asleep: "Asleep",
  ended: "",
};

class SessionList extends HTMLElement {
  connectedCallback() {
    this.leave = new AbortController();
    const search = h("input", { type: "search", placeholder: "Search", "aria-label": "Search sessions", id: "search" });
    this.agent = h("select", { "aria-label": "Agent" });
    this.project = h("select", { "aria-label": "Project" });
    this.state = h(
      "select",
      { "aria-label": "State" },
      h("option", { value: "" }, "State"),
      h("option", { value: "waiting" }, "Waiting"),
      Object.entries(STATES).map(([value, label]) => h("option", { value }, label)),
      h("option", { value: "archived" }, "Archived"),
    );
    this.search = search;
    this.list = h("ul", { class: "sessions", "aria-label": "Sessions" });
    this.further = button("Show older ones", () => store.more().catch((fault) => toast(fault.message, "error")), {
      kind: "plain wide",
      hidden: true,
    });
    search.addEventListener("input", () => {
      clearTimeout(this.looking);
      const words = search.value.trim();
      if (words && store.hasMore) this.looking = setTimeout(() => store.more(words).catch(() => {}), 250);
    });
    search.addEventListener("keydown", (event) => event.key === "Enter" && this.list.querySelector("a")?.click());
    for (const field of [search, this.agent, this.project, this.state])
      field.addEventListener("input", () => this.draw());
    replace(
      this,
      h(
        "div",
        { class: "filters" },
        h("label", { class: "field-search" }, icon("search"), search),
        h("div", { class: "choices" }, this.agent, this.project, this.state),
      ),
      this.list,
      this.further,
    );
    this.rows = new Map();
    store.listen("sessions questions", () => this.later(), { signal: this.leave.signal });
    this.clock = setInterval(() => this.later(), 60000);
    this.draw();
  }

  disconnectedCallback() {
    this.leave.abort();
    clearInterval(this.clock);
  }

  later() {
    this.asked ??= requestAnimationFrame(() => ((this.asked = null), this.draw()));
  }

  set current(id) {
    this.chosen = id;
    this.draw();
  }

  draw() {
    if (!store.loaded)
      return replace(
        this.list,
        [1, 2, 3].map(() => h("li", { class: "skeleton", "aria-hidden": "true" })),
      );
    const all = [...store.sessions.values()];
    this.further.hidden = !store.hasMore;
    this.options(this.agent, "Agent", new Set(all.map((one) => one.agent)), (value) => value);
    this.options(this.project, "Project", new Set(all.filter((one) => !one.group).map((one) => one.cwd)), tail);
    const words = this.search.value.trim().toLowerCase();
    const wanted = this.state.value;
    const shown = all
      .filter((one) => (wanted === "archived") === Boolean(one.archived))
      .filter(
        (one) =>
          !wanted || wanted === "archived" || (wanted === "waiting" ? one.openQuestions > 0 : one.state === wanted),
      )
      .filter(
        (one) =>
          (!this.agent.value || one.agent === this.agent.value) &&
          (!this.project.value || one.cwd === this.project.value),
      )
      .filter(
        (one) =>
          !words || `${one.title} ${one.prompt} ${one.result} ${one.cwd} ${one.id}`.toLowerCase().includes(words),
      )
      .sort((a, b) => rank(a) - rank(b) || at(b) - at(a));
    if (!shown.length) {
      const nothing = all.length
        ? empty("Nothing found", "No session matches; change the filter.")
        : empty(
            "No sessions yet",
            "Start one: choose an agent, say what it should do, and follow it here.",
            h("a", { class: "button primary", href: "#/new" }, icon("add"), "Start a session"),
          );
      return replace(this.list, h("li", {}, nothing));
    }
    return this.place(shown);
  }

  // A row stays the same element as long as it says the same: a tap must not fall between two of them.
  place(shown) {
    const wanted = new Set(shown.map((one) => one.id));
    for (const row of [...this.list.children]) if (!wanted.has(row.dataset.id)) row.remove();
    let behind = null;
    for (const one of shown) {
      const says = JSON.stringify([
        one.title,
        one.state,
        one.activity,
        one.openQuestions,
        one.costUsd,
        ago(one.updatedAt),
        this.chosen === one.id,
      ]);
      let row = this.rows.get(one.id);
      if (!row) this.rows.set(one.id, (row = h("li", { "data-id": one.id })));
      if (row.dataset.says !== says) {
        row.dataset.says = says;
        this.fill(row, one);
      }
      const next = behind ? behind.nextSibling : this.list.firstChild;
      if (next !== row) this.list.insertBefore(row, next);
      behind = row;
    }
  }

  fill(row, one) {
    const made = this.link(one);
    const kept = row.firstElementChild;
    if (!kept) return row.append(made);
    for (const name of ["class", "aria-current"])
      made.hasAttribute(name) ? kept.setAttribute(name, made.getAttribute(name)) : kept.removeAttribute(name);
    return replace(kept, ...made.childNodes);
  }

  options(select, label, values, name) {
    const before = select.value;
    const key = [...values].sort().join("\n");
    if (select.dataset.key === key) return;
    select.dataset.key = key;
    replace(
      select,
      h("option", { value: "" }, label),
      [...values].sort().map((value) => h("option", { value }, name(value))),
    );
    select.value = before;
  }

  link(one) {
    const waiting = one.openQuestions > 0;
    const label = waiting ? "Waits for you" : one.activity === "ended" ? STATES[one.state] : ACTIVITIES[one.activity];
    return h(
      "a",
      {
        class: `session ${one.state} ${waiting ? "waiting" : ""}`,
        href: `#/s/${one.id}`,
        "aria-current": this.chosen === one.id ? "page" : null,
      },
      h("span", { class: "title", dir: "auto" }, firstLine(one.title || one.prompt || one.id, 120)),
      h(
        "span",
        { class: "meta" },
        h("span", { class: `dot ${waiting ? "waiting" : one.activity === "ended" ? one.state : one.activity}` }),
        h("span", {}, label),
        h("span", {}, one.agent),
        h("span", { class: "place" }, place(one)),
        h("span", { class: "spacer" }),
        h("span", {}, money(one.costUsd)),
        h("time", {}, ago(one.updatedAt)),
      ),
    );
  }
}

// What runs keeps its place while it does; what is over stands by when that was.
const at = (one) => (one.activity === "ended" ? one.updatedAt : one.createdAt);

function rank(one) {
  if (one.openQuestions > 0) return 0;
  return one.activity === "ended" ? 2 : 1;
}

customElements.define("session-list", SessionList);
