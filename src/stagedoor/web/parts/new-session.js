// Start a session, or the same prompt on several agents at once, each in its own git worktree.

import { get, messageOf, newKey, post, query } from "../core/api.js";
import { bar, button, failed, h, icon, replace, showDialog, skeleton, toast } from "../core/dom.js";
import { store } from "../core/store.js";
import { lastPart, MODES, plain, rightsOf, shownName } from "../core/text.js";

const LAST_CHOICES = "stagedoor-last";
const FIRST_PROMPT = "Show me what you can do";
const PLACES = "stagedoor-places";
const RECENT = 6;
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
  model = h("input", {
    type: "text",
    list: "models",
    placeholder: "the agent's default",
    "aria-label": "Model",
    ...CODE,
  });
  models = h("datalist", { id: "models" });
  machine = h("select", { "aria-label": "Machine" });
  folders = h("datalist", { id: "folders" });
  folderField = h("label", { class: "field" });
  repository = h("input", {
    type: "text",
    list: "repositories",
    placeholder: "in place of a folder: address, or address@branch",
    "aria-label": "Git repository",
    ...CODE,
  });
  repositories = h("datalist", { id: "repositories" });
  recent = h("div", { class: "recent" });
  branch = h("select", {});
  branchField = h("label", { class: "field", hidden: true }, "Git branch", this.branch);
  /** @type {{ name: string, path: string }[]} those that are not checked out in the folder */
  branches = [];
  worktree = h("input", { type: "checkbox" });
  own = h("label", { class: "check", hidden: true }, this.worktree, "Work in a git worktree of its own");
  several = h("input", { type: "checkbox" });
  trust = h("input", { type: "checkbox" });
  trustFiles = h("span", {});
  trustLine = h("label", { class: "check", hidden: true }, this.trust, this.trustFiles);
  startButton = h("button", { class: "button primary wide", type: "submit" }, icon("send"), "Start");

  // At once, from what is remembered; what has changed since comes behind.
  async connectedCallback() {
    const content = h("div", { class: "page" }, skeleton(), skeleton());
    replace(this, bar("New session"), content);
    /** @type {{ projects: Page.Project[], roots: string[] } | null} */
    const before = JSON.parse(localStorage.getItem(PLACES) ?? "null");
    const known = store.agents ?? store.rememberedAgents();
    if (known && before) this.show(content, known, before);
    try {
      const [agents, places] = await Promise.all([store.loadAgents({ fresh: true }), get("/api/projects")]);
      localStorage.setItem(PLACES, JSON.stringify(places));
      if (!known || !before) this.show(content, agents, places);
      else this.refresh(agents);
    } catch (fault) {
      if (!known || !before) replace(content, failed("Cannot start a session now", messageOf(fault)));
    }
  }

  /**
   * @param {Element} content
   * @param {Page.Agent[]} agents
   * @param {{ projects: Page.Project[], roots: string[] }} places
   */
  show(content, agents, places) {
    const roots = places.roots.map((path) => ({ id: lastPart(path), path }));
    content.replaceWith(this.form(agents, [...places.projects, ...roots]));
    this.machine.addEventListener("change", () => this.changeMachine());
    this.prompt.focus();
  }

  // What the form asks of folders, it asks of the machine that was chosen.
  get place() {
    const { value } = this.machine;
    return value.startsWith("host:") ? value : undefined;
  }

  async changeMachine() {
    try {
      const { roots } = await get(`/api/projects${query({ place: this.place })}`);
      replace(
        this.folders,
        roots.map((/** @type {string} */ value) => h("option", { value })),
      );
      this.chooseFolder(roots[0] ?? "");
    } catch (fault) {
      toast(messageOf(fault), "error");
    }
  }

  // Any with room, those with a label, or one of them; only where there are several.
  machineField() {
    const { machines } = store;
    const own = machines.flatMap(({ labels }) => labels).filter((label) => !/^(host|agent|clone):/.test(label));
    const closed = (/** @type {Page.Machine} */ { away, draining, revoked }) =>
      (away && "away") || ((draining || revoked) && "takes nothing new");
    replace(
      this.machine,
      h("option", { value: "" }, "Any with room"),
      [...new Set(own)].map((value) => h("option", { value }, `Any with ${plain(value)}`)),
      machines.map((machine) => {
        const why = closed(machine);
        const { name, labels, sessions, seats } = machine;
        const value = labels.find((label) => label.startsWith("host:")) ?? "";
        const words = why || `${sessions.length}/${seats}`;
        return h("option", { value, disabled: Boolean(why) }, `${plain(name)} (${words})`);
      }),
    );
    return machines.length > 1 && h("label", { class: "field" }, "Machine", this.machine);
  }

  // Addresses that some machine may clone from; one that ends with / or : stands for all that begin so.
  repositoryField() {
    const ready = store.machines.filter(({ away, draining, revoked }) => !away && !draining && !revoked);
    const labels = ready.flatMap((machine) => machine.labels).filter((label) => label.startsWith("clone:"));
    const allowed = labels.map((label) => label.replace("clone:", ""));
    if (!allowed.length) return null;
    const line = h("span", { class: "quiet" }, `Machines may clone from ${plain([...new Set(allowed)].join(", "))}`);
    replace(
      this.repositories,
      [...new Set(allowed)].map((value) => h("option", { value })),
    );
    this.repository.addEventListener("input", () => this.lookAtRepository());
    return h("label", { class: "field" }, "Git repository", this.repository, this.repositories, line);
  }

  // A session in a repository has a clone of its own: no folder, no branch of one, no worktree.
  lookAtRepository() {
    const chosen = Boolean(this.repository.value.trim());
    this.folderField.hidden = this.recent.hidden = chosen;
    if (!chosen) {
      this.lookAtFolder();
      return;
    }
    this.branch.value = "";
    this.worktree.checked = this.trust.checked = this.several.checked = false;
    this.allowSeveral();
    this.branchField.hidden = this.own.hidden = this.trustLine.hidden = true;
  }

  /**
   * The choice that was made stays.
   * @param {Page.Agent[]} agents
   */
  refresh(agents) {
    const chosen = this.chosenAgents();
    const list = this.querySelector(".agents");
    if (!list) return;
    const shown = agentChoices(agents, chosen);
    if (list.innerHTML === h("div", {}, shown).innerHTML) return;
    replace(list, shown);
    if (!chosen.length) this.check(`input[name=agent][value="${firstChoice(agents, undefined)}"]`);
    this.allowSeveral();
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
    const tiers = MODES.map(([value, label, help]) =>
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
        h("div", { class: "agents" }, agentChoices(agents, [first])),
        h("label", { class: "check" }, this.several, "Compare several agents, each in its own git worktree"),
      ),
      this.machineField(),
      this.repositoryField(),
      replace(
        this.folderField,
        "Project folder",
        h(
          "span",
          { class: "with-button" },
          this.folder,
          button("Browse", () => this.browse(this.folder.value), { glyph: "folder" }),
        ),
        replace(
          this.folders,
          projects.map(({ path, id }) => h("option", { value: path }, id)),
        ),
      ),
      this.recent,
      this.branchField,
      this.own,
      this.trustLine,
      h("fieldset", {}, h("legend", {}, "Permissions"), h("div", { class: "agents" }, tiers)),
      h("label", { class: "field" }, "Model", this.model, this.models),
      h("div", { class: "start" }, this.startButton),
    );
    this.drawRecent();
    this.branch.addEventListener("change", () => this.chooseBranch());
    this.model.addEventListener("focus", () => this.fillModels());
    form.addEventListener("keydown", (event) => {
      if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) this.start();
    });
    form.addEventListener("change", ({ target }) => {
      if (target instanceof HTMLInputElement && (target === this.folder || target.name === "agent"))
        this.lookAtFolder();
    });
    queueMicrotask(() => this.lookAtFolder());
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

  // Where sessions ran lately.
  drawRecent() {
    const sessions = [...store.sessions.values()].sort((a, b) => b.updatedAt - a.updatedAt);
    const folders = new Set(sessions.map(({ wanted, cwd }) => wanted?.cwd || cwd));
    replace(
      this.recent,
      [...folders]
        .slice(0, RECENT)
        .map((path) => button(lastPart(path), () => this.chooseFolder(path), { kind: "small", title: plain(path) })),
    );
  }

  /** @param {string} path */
  chooseFolder(path) {
    this.folder.value = path;
    this.lookAtFolder();
  }

  /**
   * Through the folders that sessions may run in.
   * @param {string} path
   */
  async browse(path) {
    const list = h("ul", { class: "folders" });
    const place = h("p", { class: "path", tabindex: "-1" });
    const use = button("Use this folder", () => choose(), { kind: "primary" });
    const close = button("Cancel", () => dialog.close(), { kind: "plain" });
    const dialog = h("dialog", { class: "sheet tall", "aria-label": "Choose a folder" }, place, list, use, close);
    let current = "";
    const choose = () => {
      this.chooseFolder(current);
      dialog.close();
    };
    const row = (/** @type {string} */ name, /** @type {string} */ to, /** @type {string} */ glyph) =>
      h(
        "li",
        {},
        button(plain(name), () => open(to), { glyph, kind: "plain wide" }),
      );
    const open = async (/** @type {string} */ to) => {
      try {
        const found = await get(`/api/folders${query({ path: to, place: this.place })}`);
        current = found.path;
        place.textContent =
          plain(found.path || "Folders of this server") + (found.branch ? ` · ${plain(found.branch)}` : "");
        use.disabled = !current;
        replace(
          list,
          found.parent !== null && row("Up", found.parent, "back"),
          found.folders.map((/** @type {{ name: string, path: string, repository: boolean }} */ folder) =>
            row(folder.name, folder.path, folder.repository ? "fork" : "folder"),
          ),
          !found.folders.length && h("li", { class: "quiet" }, "no folders here"),
        );
        place.focus();
      } catch (fault) {
        if (to) await open("");
        else toast(messageOf(fault), "error");
      }
    };
    showDialog(dialog);
    await open(path);
  }

  // Its branches, and whether a session can have a worktree of its own there.
  async lookAtFolder() {
    const path = this.folder.value;
    if (this.repository.value.trim()) return;
    this.lookAtTrust();
    const where = query({ path, place: this.place });
    const { branch = "", branches = [] } = await get(`/api/folders${where}`).catch(() => ({}));
    if (path !== this.folder.value || this.repository.value.trim()) return;
    const isRepository = Boolean(branch || branches.length);
    this.branches = branches;
    replace(
      this.branch,
      h("option", { value: "" }, plain(branch) || "none is checked out"),
      this.branches.map(({ name, path }) =>
        h("option", { value: name }, plain(path ? `${name} (in ${lastPart(path)})` : name)),
      ),
    );
    this.branchField.hidden = !isRepository;
    this.own.hidden = !isRepository;
    this.worktree.disabled = false;
    if (!isRepository) this.worktree.checked = false;
  }

  // What is checked out in the folder stays so: another branch is in a folder of its own, or gets one.
  chooseBranch() {
    const chosen = this.branches.find(({ name }) => name === this.branch.value);
    if (chosen?.path) return this.chooseFolder(chosen.path);
    this.worktree.checked = Boolean(chosen);
    this.worktree.disabled = Boolean(chosen);
  }

  // What the agent offers, and what it was asked for before.
  async fillModels() {
    const [agent] = this.chosenAgents();
    if (!agent || this.models.dataset.agent === agent) return;
    this.models.dataset.agent = agent;
    const used = [...store.sessions.values()].filter((session) => session.agent === agent).map(({ model }) => model);
    const { settings = [] } = await get(`/api/agents/settings${query({ agent })}`).catch(() => ({}));
    const offered = settings.find((/** @type {Page.Setting} */ { kind }) => kind === "model")?.choices ?? [];
    const values = [...offered.map((/** @type {{ value: string }} */ { value }) => value), ...used].filter(Boolean);
    replace(
      this.models,
      [...new Set(values)].map((value) => h("option", { value })),
    );
  }

  /** Where the project has what the agents would run by themselves, and nobody trusts it: offer to. */
  async lookAtTrust() {
    const cwd = this.folder.value;
    const agents = this.chosenAgents();
    this.trust.checked = false;
    this.trustLine.hidden = true;
    const looks = agents.map((agent) => get(`/api/trust${query({ cwd, agent, place: this.place })}`).catch(() => null));
    const views = (await Promise.all(looks)).filter((view) => view && !view.trusted && view.files.length);
    if (cwd !== this.folder.value || agents.join() !== this.chosenAgents().join() || !views.length) return;
    if (this.repository.value.trim()) return;
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
    const permissions = rightsOf(tier ?? "supervised");
    const model = this.model.value || undefined;
    localStorage.setItem(LAST_CHOICES, JSON.stringify({ agent: agents[0], tier, cwd }));
    this.startButton.disabled = true;
    try {
      const worktree = this.worktree.checked || undefined;
      const fromBranch = this.branch.value || undefined;
      const trust = this.trust.checked || undefined;
      const repository = this.repository.value.trim();
      const place = repository ? `git:${repository}` : this.place;
      const needs = place !== this.machine.value && this.machine.value ? [this.machine.value] : undefined;
      const where = repository ? { place, needs } : { cwd, place, needs, worktree, fromBranch };
      const body = { prompt, keepOpen: true, model, trust, ...where, ...permissions };
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
 * Those that can be chosen first. What an agent lacks is said with its cure.
 * @param {Page.Agent[]} agents
 * @param {(string | undefined)[]} chosen
 */
function agentChoices(agents, chosen) {
  const usable = agents.filter(({ installed, enabled }) => installed && enabled);
  const ordered = [...usable, ...agents.filter((agent) => !usable.includes(agent))];
  return ordered.flatMap((one) => {
    const { agent, version, installed, enabled, signedIn, fix, problem } = one;
    const lack = (!enabled && "disabled") || (!installed && "not installed") || (signedIn === false && "not signed in");
    const cure = lack && plain(fix || problem);
    const checked = chosen.includes(agent);
    const choice = h(
      "label",
      { class: "choice" },
      h("input", { type: "radio", name: "agent", value: agent, checked, disabled: !installed || !enabled }),
      h("b", {}, shownName(one, agents)),
      h("span", { class: lack ? "quiet bad" : "quiet" }, lack || plain(version || "ready")),
    );
    return [choice, cure && h("p", { class: "quiet cure" }, cure)];
  });
}

customElements.define("new-session", NewSession);
