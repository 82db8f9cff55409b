// Start a session, or the same prompt on several agents at once, each in a git worktree of its own.

import { bar, failed, h, icon, replace, toast } from "../core/dom.js";
import { get, newKey, post } from "../core/api.js";
import { store } from "../core/store.js";
import { plain, tail } from "../core/text.js";

const TIERS = [
  ["supervised", "Ask for commands", "It edits files by itself and asks before each command."],
  ["ask", "Ask for everything", "It asks before each change and each command."],
  ["dry-run", "Look only", "It may read; nothing is changed."],
  ["autonomous", "On its own", "It asks nothing. For work you can throw away."],
];
const LAST = "stagedoor-last";
const TRY = "Show me what you can do";

class NewSession extends HTMLElement {
  async connectedCallback() {
    const before = JSON.parse(localStorage.getItem(LAST) ?? "{}");
    replace(
      this,
      bar("New session"),
      h("div", { class: "page" }, h("div", { class: "skeleton" }), h("div", { class: "skeleton" })),
    );
    let agents;
    let places;
    try {
      [agents, places] = await Promise.all([store.loadAgents(), get("/api/projects")]);
    } catch (fault) {
      return replace(this.lastElementChild, failed("Nothing can be started now", fault));
    }
    const projects = [...places.projects, ...places.roots.map((path) => ({ id: tail(path), path }))];
    this.prompt = h("textarea", {
      rows: 5,
      required: true,
      placeholder: "What should be done?",
      "aria-label": "Prompt",
      id: "prompt",
    });
    this.folder = h("input", {
      type: "text",
      list: "folders",
      value: before.cwd ?? projects[0]?.path ?? "",
      "aria-label": "Project folder",
      autocapitalize: "off",
      spellcheck: "false",
    });
    this.model = h("input", {
      type: "text",
      placeholder: "the agent's own",
      "aria-label": "Model",
      autocapitalize: "off",
      spellcheck: "false",
    });
    this.several = h("input", { type: "checkbox" });
    const usable = agents.filter((one) => one.installed && one.enabled);
    const ready = usable.filter((one) => one.signedIn !== false);
    const first = usable.some((one) => one.agent === before.agent)
      ? before.agent
      : (usable.find((one) => one.default) ?? ready[0] ?? usable[0])?.agent;
    this.choices = agents.map((one) => this.agentChoice(one, one.agent === first));
    this.tiers = TIERS.map(([value, label, help]) =>
      h(
        "label",
        { class: "choice" },
        h("input", { type: "radio", name: "tier", value, checked: value === (before.tier ?? "supervised") }),
        h("b", {}, label),
        h("span", { class: "quiet" }, help),
      ),
    );
    this.several.addEventListener("change", () => this.allowSeveral());
    const start = h("button", { class: "button primary wide", type: "submit" }, icon("send"), "Start");
    const form = h(
      "form",
      { class: "page form" },
      this.prompt,
      this.suggestion(agents),
      h(
        "fieldset",
        {},
        h("legend", {}, "Agent"),
        h("div", { class: "agents" }, this.choices),
        h("label", { class: "check" }, this.several, "Several at once, each in its own git worktree, to compare"),
      ),
      h(
        "label",
        { class: "field" },
        "Project folder",
        this.folder,
        h(
          "datalist",
          { id: "folders" },
          projects.map((one) => h("option", { value: one.path }, one.id)),
        ),
      ),
      h("fieldset", {}, h("legend", {}, "How much it may do"), this.tiers),
      h("label", { class: "field" }, "Model", this.model),
      start,
    );
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      this.start(start);
    });
    this.lastElementChild.replaceWith(form);
    this.prompt.focus();
    return undefined;
  }

  // Something to try for whoever has only just come, with the agent that needs no account.
  suggestion(agents) {
    const own = agents.find((one) => one.agent === "understudy");
    if (!own || store.sessions.size > 2) return null;
    return h(
      "p",
      { class: "quiet" },
      "New here? ",
      h("button", { class: "link", type: "button", onclick: () => this.suggest(own.agent) }, TRY),
      " with the embedded agent: it needs no account.",
    );
  }

  suggest(agent) {
    this.prompt.value = `${TRY}.`;
    this.querySelector(`input[name=agent][value="${agent}"]`).checked = true;
    this.querySelector("input[name=tier][value=ask]").checked = true;
    this.querySelector("button[type=submit]").focus();
  }

  agentChoice(one, checked) {
    const state = !one.enabled
      ? "switched off"
      : !one.installed
        ? "not installed"
        : one.signedIn === false
          ? "not signed in"
          : plain(one.version || "ready");
    return h(
      "label",
      { class: "choice", title: plain(one.fix || one.problem || "") },
      h("input", { type: "radio", name: "agent", value: one.agent, checked, disabled: !one.installed || !one.enabled }),
      h("b", {}, plain(one.title || one.agent).split(" (")[0]),
      h("span", { class: `quiet ${one.installed && one.signedIn !== false ? "" : "bad"}` }, state),
    );
  }

  allowSeveral() {
    for (const input of this.querySelectorAll("input[name=agent]"))
      input.type = this.several.checked ? "checkbox" : "radio";
  }

  async start(pressed) {
    const prompt = this.prompt.value.trim();
    const agents = [...this.querySelectorAll("input[name=agent]:checked")].map((one) => one.value);
    if (!prompt) return this.prompt.focus();
    if (!agents.length) return toast("Choose an agent", "error");
    const tier = this.querySelector("input[name=tier]:checked").value;
    const wanted = {
      prompt,
      cwd: this.folder.value,
      keepOpen: true,
      ...(tier === "ask" ? { tier: "supervised", approval: "ask" } : { tier }),
    };
    if (this.model.value) wanted.model = this.model.value;
    localStorage.setItem(LAST, JSON.stringify({ agent: agents[0], tier, cwd: wanted.cwd }));
    pressed.disabled = true;
    try {
      if (this.several.checked && agents.length > 1) {
        const group = newKey();
        const made = await Promise.allSettled(
          agents.map((agent) => post("/api/sessions", { ...wanted, agent, group, worktree: true, keepOpen: false })),
        );
        const failed = made.find((one) => one.status === "rejected");
        if (failed) toast(failed.reason.message, "error");
        if (made.some((one) => one.status === "fulfilled")) location.hash = `#/compare/${group}`;
        else pressed.disabled = false;
      } else {
        const session = await post("/api/sessions", { ...wanted, agent: agents[0] });
        store.sessions.set(session.id, session);
        location.hash = `#/s/${session.id}`;
      }
    } catch (fault) {
      pressed.disabled = false;
      toast(fault.message, "error");
    }
    return undefined;
  }
}

customElements.define("new-session", NewSession);
