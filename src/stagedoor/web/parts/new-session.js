// Start a session, or the same prompt on several agents at once, each in its own git worktree.

import { get, messageOf, newKey, post } from "../core/api.js";
import { bar, failed, h, icon, replace, skeleton, toast } from "../core/dom.js";
import { store } from "../core/store.js";
import { lastPart, plain } from "../core/text.js";

const TIERS = [
  ["supervised", "Ask before commands", "It edits files without asking, and asks before each command."],
  ["ask", "Ask before everything", "It asks before each change and each command."],
  ["dry-run", "Read only", "It can read files; nothing is changed."],
  ["autonomous", "Never ask", "It does everything without asking. For work you can throw away."],
];
const LAST_CHOICES = "stagedoor-last";
const FIRST_PROMPT = "Show me what you can do";
const CODE = { autocapitalize: "off", spellcheck: "false" };

class NewSession extends HTMLElement {
  prompt = h("textarea", {
    rows: 5,
    required: true,
    placeholder: "What should the agent do?",
    "aria-label": "Prompt",
    id: "prompt",
  });
  folder = h("input", { type: "text", list: "folders", "aria-label": "Project folder", ...CODE });
  model = h("input", { type: "text", placeholder: "the agent's default", "aria-label": "Model", ...CODE });
  several = h("input", { type: "checkbox" });
  trust = h("input", { type: "checkbox" });
  trustFiles = h("span", {});
  trustLine = h("label", { class: "check", hidden: true }, this.trust, this.trustFiles);
  startButton = h("button", { class: "button primary wide", type: "submit" }, icon("send"), "Start");

  async connectedCallback() {
    const content = h("div", { class: "page" }, skeleton(), skeleton());
    replace(this, bar("New session"), content);
    try {
      const [agents, places] = await Promise.all([store.loadAgents(), get("/api/projects")]);
      /** @type {Page.Project[]} */
      const roots = places.roots.map((/** @type {string} */ path) => ({ id: lastPart(path), path }));
      content.replaceWith(this.form(agents, [...places.projects, ...roots]));
      this.prompt.focus();
    } catch (fault) {
      replace(content, failed("Cannot start a session now", messageOf(fault)));
    }
  }

  /**
   * @param {Page.Agent[]} agents
   * @param {Page.Project[]} projects
   */
  form(agents, projects) {
    const last = JSON.parse(localStorage.getItem(LAST_CHOICES) ?? "{}");
    const first = firstChoice(agents, last.agent);
    this.folder.value = last.cwd ?? projects[0]?.path ?? "";
    this.several.addEventListener("change", () => this.allowSeveral());
    const tiers = TIERS.map(([value, label, help]) =>
      h(
        "label",
        { class: "choice" },
        h("input", { type: "radio", name: "tier", value, checked: value === (last.tier ?? "supervised") }),
        h("b", {}, label),
        h("span", { class: "quiet" }, help),
      ),
    );
    const form = h(
      "form",
      { class: "page form" },
      this.prompt,
      this.suggestion(agents),
      h(
        "fieldset",
        {},
        h("legend", {}, "Agent"),
        h(
          "div",
          { class: "agents" },
          agents.map((agent) => agentChoice(agent, agent.agent === first)),
        ),
        h("label", { class: "check" }, this.several, "Compare several agents, each in its own git worktree"),
      ),
      h(
        "label",
        { class: "field" },
        "Project folder",
        this.folder,
        h(
          "datalist",
          { id: "folders" },
          projects.map(({ path, id }) => h("option", { value: path }, id)),
        ),
      ),
      this.trustLine,
      h("fieldset", {}, h("legend", {}, "Permissions"), tiers),
      h("label", { class: "field" }, "Model", this.model),
      this.startButton,
    );
    form.addEventListener("change", ({ target }) => {
      if (target instanceof HTMLInputElement && (target === this.folder || target.name === "agent")) this.lookAtTrust();
    });
    queueMicrotask(() => this.lookAtTrust());
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      this.start();
    });
    return form;
  }

  /**
   * Something to try for a new user, with the agent that needs no account.
   * @param {Page.Agent[]} agents
   */
  suggestion(agents) {
    const embedded = agents.find(({ agent }) => agent === "understudy");
    if (!embedded || store.sessions.size > 2) return null;
    const suggest = () => {
      this.prompt.value = `${FIRST_PROMPT}.`;
      this.check(`input[name=agent][value="${embedded.agent}"]`);
      this.check("input[name=tier][value=ask]");
      this.startButton.focus();
    };
    const link = h("button", { class: "link", type: "button", onclick: suggest }, FIRST_PROMPT);
    return h("p", { class: "quiet" }, "New here? ", link, " with the embedded agent: it needs no account.");
  }

  /** @param {string} selector */
  check(selector) {
    const [input] = this.inputs(selector);
    if (input) input.checked = true;
  }

  /**
   * @param {string} selector
   * @returns {HTMLInputElement[]}
   */
  inputs(selector) {
    return [...this.querySelectorAll(selector)].filter((element) => element instanceof HTMLInputElement);
  }

  allowSeveral() {
    for (const input of this.inputs("input[name=agent]")) input.type = this.several.checked ? "checkbox" : "radio";
  }

  chosenAgents() {
    return this.inputs("input[name=agent]:checked").map(({ value }) => value);
  }

  /** Where the project has what the agents would run by themselves, and nobody trusts it: offer to. */
  async lookAtTrust() {
    const cwd = this.folder.value;
    const agents = this.chosenAgents();
    this.trust.checked = false;
    this.trustLine.hidden = true;
    const looks = agents.map((agent) => get(`/api/trust?${new URLSearchParams({ cwd, agent })}`).catch(() => null));
    const views = (await Promise.all(looks)).filter((view) => view && !view.trusted && view.files.length);
    if (cwd !== this.folder.value || agents.join() !== this.chosenAgents().join() || !views.length) return;
    const paths = views.flatMap(({ folder, files }) =>
      files.map((/** @type {{ path: string }} */ { path }) => path.replace(`${folder}/`, "")),
    );
    this.trustFiles.textContent = plain(`Trust this project: let ${[...new Set(paths)].join(", ")} take part`);
    this.trustLine.hidden = false;
  }

  async start() {
    const prompt = this.prompt.value.trim();
    const agents = this.chosenAgents();
    if (!prompt) return this.prompt.focus();
    if (!agents.length) return toast("Choose an agent", "error");
    const tier = this.inputs("input[name=tier]:checked")[0]?.value;
    const cwd = this.folder.value;
    const permissions = tier === "ask" ? { tier: "supervised", approval: "ask" } : { tier };
    const model = this.model.value || undefined;
    localStorage.setItem(LAST_CHOICES, JSON.stringify({ agent: agents[0], tier, cwd }));
    this.startButton.disabled = true;
    try {
      const body = { prompt, cwd, keepOpen: true, model, trust: this.trust.checked || undefined, ...permissions };
      if (this.several.checked && agents.length > 1) await this.startSeveral(agents, body);
      else {
        const session = await post("/api/sessions", { ...body, agent: agents[0] });
        store.sessions.set(session.id, session);
        location.hash = `#/s/${session.id}`;
      }
    } catch (fault) {
      this.startButton.disabled = false;
      toast(messageOf(fault), "error");
    }
  }

  /**
   * @param {string[]} agents
   * @param {object} body
   */
  async startSeveral(agents, body) {
    const group = newKey();
    const shared = { ...body, group, worktree: true, keepOpen: false };
    const attempts = await Promise.allSettled(agents.map((agent) => post("/api/sessions", { ...shared, agent })));
    const failure = attempts.find(({ status }) => status === "rejected");
    if (failure?.status === "rejected") toast(messageOf(failure.reason), "error");
    if (attempts.some(({ status }) => status === "fulfilled")) location.hash = `#/compare/${group}`;
    else this.startButton.disabled = false;
  }
}

/**
 * @param {Page.Agent[]} agents
 * @param {string | undefined} last
 */
function firstChoice(agents, last) {
  const usable = agents.filter(({ installed, enabled }) => installed && enabled);
  if (usable.some(({ agent }) => agent === last)) return last;
  const signedIn = usable.filter((agent) => agent.signedIn !== false);
  return (usable.find((agent) => agent.default) ?? signedIn[0] ?? usable[0])?.agent;
}

/**
 * @param {Page.Agent} agent
 * @param {boolean} checked
 */
function agentChoice({ agent, title, version, installed, enabled, signedIn, fix, problem }, checked) {
  let state = plain(version || "ready");
  if (!enabled) state = "disabled";
  else if (!installed) state = "not installed";
  else if (signedIn === false) state = "not signed in";
  const isReady = installed && signedIn !== false;
  return h(
    "label",
    { class: "choice", title: plain(fix || problem) },
    h("input", { type: "radio", name: "agent", value: agent, checked, disabled: !installed || !enabled }),
    h("b", {}, plain(title || agent).split(" (")[0]),
    h("span", { class: `quiet ${isReady ? "" : "bad"}` }, state),
  );
}

customElements.define("new-session", NewSession);
