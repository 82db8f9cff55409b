// Usage, the agents' health, the paired devices, the policy, and what was decided.

import { call, get, messageOf, post, query } from "../core/api.js";
import { bar, button, confirmed, h, icon, replace, skeleton, svg } from "../core/dom.js";
import { store } from "../core/store.js";
import { ago, firstLine, lastPart, money, number, plain, shownName } from "../core/text.js";
import { fillNotifications } from "./notify.js";

const DAYS = 14;
const DAY = 86400000;
const MINUTE = 60000;
const EAST = -new Date().getTimezoneOffset(); // a day is one of the user's time zone, not the server's
const BAR = { step: 20, width: 14, height: 74, smallest: 2 };
const SCOPES = [
  ["run", "run and answer"],
  ["answer", "watch and answer"],
  ["watch", "only watch"],
  ["admin", "everything"],
];

/** @type {[string, Page.FillCard][]} */
const CARDS = [
  ["Usage", fillUsage],
  ["Agents", fillAgents],
  ["Machines", fillMachines],
  ["Devices", fillDevices],
  ["Notifications", fillNotifications],
  ["Policy", fillPolicy],
  ["Decisions", fillAudit],
];

class OverviewView extends HTMLElement {
  connectedCallback() {
    const page = h("div", { class: "page overview" });
    const theme = button("", switchTheme, { glyph: "moon", kind: "plain", title: "Dark or light" });
    replace(this, bar("Overview", theme), page);
    for (const [title, fill] of CARDS) {
      const body = h("div", { class: "card-body" }, skeleton());
      page.append(h("section", { class: "card", "aria-label": title }, h("h2", {}, title), body));
      this.fill(body, fill);
    }
  }

  /**
   * @param {HTMLElement} body
   * @param {Page.FillCard} fill
   */
  async fill(body, fill) {
    try {
      await fill(body, () => this.fill(body, fill));
    } catch (fault) {
      replace(body, h("p", { class: "quiet unloaded" }, messageOf(fault)));
    }
  }
}

/** @param {string} words */
const quiet = (words) => h("p", { class: "quiet" }, words);

/** @param {HTMLElement} body */
async function fillUsage(body) {
  const since = Date.now() - DAYS * DAY;
  const read = (/** @type {string} */ by) => get(`/api/usage${query({ by, since, offsetMinutes: EAST })}`);
  const [days, agents, projects] = await Promise.all(["day", "agent", "project"].map(read));
  if (!days.rows.length) return replace(body, quiet("No usage yet."));
  /** @type {Unified.Usage} */
  const { totalTokens, costUsd } = days.total.usage;
  const showCost = (/** @type {number} */ cost) => money(cost) || "$0";
  return replace(
    body,
    h(
      "p",
      { class: "figure" },
      h("b", {}, number(totalTokens)),
      " tokens",
      costUsd ? [" · ", h("b", {}, money(costUsd))] : null,
      h("span", { class: "quiet" }, ` in ${DAYS} days`),
    ),
    chart(days.rows, "tokens", (usage) => usage.totalTokens, number),
    Boolean(costUsd) && chart(days.rows, "cost", (usage) => usage.costUsd ?? 0, showCost),
    h(
      "div",
      { class: "bars-pair" },
      bars("By agent", agents.rows, String),
      bars("By project", projects.rows, lastPart),
    ),
  );
}

/**
 * @param {Page.UsageRow[]} rows
 * @param {string} unit
 * @param {(usage: Unified.Usage) => number} read
 * @param {(value: number) => string} show
 */
function chart(rows, unit, read, show) {
  const values = new Map(rows.map(({ key, usage }) => [key, read(usage)]));
  const today = Date.now() + EAST * MINUTE;
  const days = Array.from({ length: DAYS }, (_, at) =>
    new Date(today - (DAYS - 1 - at) * DAY).toISOString().slice(0, 10),
  );
  const most = Math.max(...values.values()) || 1;
  const label = (/** @type {string} */ day) => `${day}: ${show(values.get(day) ?? 0)}`;
  const drawing = svg("svg", {
    viewBox: `0 0 ${DAYS * BAR.step} 80`,
    class: "chart",
    preserveAspectRatio: "none",
    role: "img",
    "aria-label": `${unit} per day: ${days.map(label).join(", ")}`,
  });
  for (const [at, day] of days.entries()) {
    const value = Math.round(((values.get(day) ?? 0) / most) * BAR.height);
    const height = Math.max(value, BAR.smallest);
    const x = at * BAR.step + 3;
    const rect = svg("rect", { x, y: 78 - height, width: BAR.width, height, rx: 1, class: value ? "" : "none" });
    const title = svg("title");
    title.textContent = `${label(day)} ${unit}`;
    rect.append(title);
    drawing.append(rect);
  }
  const caption = [days[0].slice(5), `${unit} per day`, "today"].map((words) => h("span", {}, words));
  return h("figure", { class: "chart-box" }, drawing, h("figcaption", { class: "quiet" }, caption));
}

/**
 * @param {string} title
 * @param {Page.UsageRow[]} rows
 * @param {(key: string) => string} name
 */
function bars(title, rows, name) {
  const sorted = [...rows].sort((a, b) => b.usage.totalTokens - a.usage.totalTokens).slice(0, 6);
  const max = Math.max(...sorted.map(({ usage }) => usage.totalTokens), 1);
  const lines = sorted.map(({ key, usage }) =>
    h(
      "div",
      { class: "bar-row" },
      h("span", {}, plain(name(key))),
      h("meter", { min: 0, max, value: usage.totalTokens, "aria-label": plain(key) }),
      h("span", { class: "quiet" }, [number(usage.totalTokens), money(usage.costUsd)].filter(Boolean).join(" · ")),
    ),
  );
  return h("div", { class: "bars" }, h("h3", {}, title), lines);
}

/** @param {HTMLElement} body */
async function fillAgents(body) {
  const agents = await store.loadAgents();
  replace(
    body,
    h(
      "ul",
      { class: "rows" },
      agents.map((agent) => agentRow(agent, agents)),
    ),
  );
}

/**
 * @param {Page.Agent} agent
 * @param {Page.Agent[]} agents
 */
function agentRow(agent, agents) {
  const { version, installed, signedIn, problem, fix } = agent;
  let state = "done";
  if (!installed) state = "failed";
  else if (signedIn === false) state = "waiting";
  return h(
    "li",
    {},
    h("span", { class: `dot ${state}` }),
    h("b", {}, shownName(agent, agents)),
    h("span", { class: "quiet" }, installed ? plain(version) : "not installed"),
    signedIn === false && h("span", { class: "chip bad" }, "not signed in"),
    (problem || fix) && h("p", { class: "quiet hint" }, firstLine(fix || problem, 240)),
  );
}

/**
 * @param {HTMLElement} body
 * @param {() => void} again
 */
async function fillMachines(body, again) {
  await store.loadMachines();
  const { machines } = store;
  if (!machines.length) return replace(body, quiet("There is one machine, or none yet: stagedoor workers lists them."));
  return replace(
    body,
    h(
      "ul",
      { class: "rows" },
      machines.map((machine) => machineRow(machine, again)),
    ),
    store.me?.scopes.includes("admin") && button("Enrol a machine", () => enrol(body), { glyph: "add" }),
  );
}

/** @param {HTMLElement} body */
async function enrol(body) {
  const { code } = await post("/api/workers");
  const line = h("code", {}, `stagedoor worker --enrol ${code}`);
  body.append(h("p", {}, "On the new machine, once, within an hour: ", line));
}

/**
 * @param {Page.Machine} machine
 * @param {() => void} again
 */
function machineRow({ id, name, seats, version, draining, revoked, away, seenAt, sessions }, again) {
  const path = `/api/workers/${id}`;
  const drain = () => call("PATCH", path, { draining: !draining }).then(again);
  const revoke = async () => {
    if (!(await confirmed(`Revoke ${plain(name)}? What runs there is interrupted, and it cannot come back.`, "Revoke")))
      return;
    await call("DELETE", path);
    again();
  };
  const since = new Date(seenAt).toLocaleString();
  const state = (revoked && "revoked") || (away && `away since ${since}`) || (draining && "takes nothing new");
  const isAdmin = store.me?.scopes.includes("admin") && !revoked;
  return h(
    "li",
    {},
    h("span", { class: `dot ${state ? "asleep" : "done"}` }),
    h("b", {}, plain(name)),
    h("span", { class: "quiet" }, [state, `${sessions.length}/${seats} sessions`, version].filter(Boolean).join(" · ")),
    isAdmin && button(draining ? "Undrain" : "Drain", drain, { kind: "plain" }),
    isAdmin && button("Revoke", revoke, { kind: "plain" }),
    h(
      "p",
      { class: "quiet hint" },
      sessions.slice(0, 8).map((one) => h("a", { href: `#/s/${one.id}` }, `${firstLine(one.title || one.id, 40)} `)),
    ),
  );
}

/**
 * @param {HTMLElement} body
 * @param {() => void} again
 */
async function fillDevices(body, again) {
  const { name = "", scopes = [] } = store.me ?? {};
  if (!scopes.includes("admin")) return replace(body, quiet(`This device: ${plain(name)} (${scopes.join(", ")})`));
  /** @type {{ devices: Page.Device[] }} */
  const { devices } = await get("/api/devices");
  const place = h("div", {});
  const options = SCOPES.map(([value, label]) => h("option", { value }, label));
  const scope = h("select", { "aria-label": "What the new device may do" }, options);
  return replace(
    body,
    h(
      "ul",
      { class: "rows" },
      devices.map((device) => deviceRow(device, again)),
    ),
    h(
      "div",
      { class: "row-actions" },
      scope,
      button("Pair a device", () => pair(place, scope.value), { glyph: "add" }),
    ),
    place,
  );
}

/**
 * @param {Page.Device} device
 * @param {() => void} again
 */
function deviceRow({ id, name, scopes, seenAt, current }, again) {
  let seen = "never used";
  if (seenAt) seen = Date.now() - seenAt < MINUTE ? "used now" : `used ${ago(seenAt)} ago`;
  const revoke = async () => {
    await call("DELETE", `/api/devices/${id}`);
    again();
  };
  return h(
    "li",
    {},
    icon("device"),
    h("b", {}, plain(name)),
    h("span", { class: "quiet" }, `${scopes.join(", ")} · ${seen}`),
    current ? h("span", { class: "chip" }, "this device") : button("Revoke", revoke, { kind: "plain" }),
  );
}

/**
 * @param {HTMLElement} place
 * @param {string} scope
 */
async function pair(place, scope) {
  /** @type {{ code: string, qr: string, fingerprint: string }} */
  const { code, qr, fingerprint } = await post("/api/pairing", { scope });
  const src = `data:image/svg+xml;base64,${btoa(qr)}`;
  const picture = qr && h("img", { alt: "QR code to pair a device", class: "qr", src });
  const local = "Phones cannot reach this server. Start it with: stagedoor serve --lan";
  const intro = h("p", {}, qr ? "Scan it with the phone, or enter the code " : local);
  const hint = quiet("It can be used once, within five minutes.");
  const digest = fingerprint && quiet(`Certificate: SHA-256 ${fingerprint.replace(/..(?=.)/g, "$&:").toUpperCase()}`);
  replace(place, h("div", { class: "pairing" }, picture, intro, h("p", { class: "code-big" }, code), hint, digest));
  place.scrollIntoView({ block: "nearest" });
}

/** @param {HTMLElement} body */
async function fillPolicy(body) {
  /** @type {{ file: string, text: string, problem: string }} */
  const { file, text, problem } = await get("/api/policy");
  replace(
    body,
    quiet(file ? plain(file) : "No policy file: the tier of each session decides."),
    text && h("pre", { class: "command" }, plain(text).slice(0, 20000)),
    problem && h("p", { class: "note error" }, plain(problem)),
  );
}

/** @param {HTMLElement} body */
async function fillAudit(body) {
  /** @type {{ entries: Page.AuditEntry[] }} */
  const { entries } = await get("/api/audit?limit=30");
  const rows = h("ul", { class: "rows audit" }, entries.map(auditRow));
  replace(body, entries.length ? rows : quiet("No decisions yet."));
}

/** @param {Page.AuditEntry} row */
function auditRow({ entry, at, who }) {
  const words = [entry.agent, `by ${who || entry.by}`, entry.rule].filter(Boolean);
  return h(
    "li",
    {},
    icon(entry.decision === "allow" ? "check" : "cross"),
    h("code", { class: "target" }, firstLine(entry.target || entry.tool, 100)),
    h("span", { class: "quiet" }, words.map(plain).join(" · ")),
    h("time", { class: "quiet" }, ago(at)),
  );
}

function switchTheme() {
  const { dataset } = document.documentElement;
  const before = dataset.theme ?? (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light");
  dataset.theme = before === "dark" ? "light" : "dark";
  localStorage.setItem("stagedoor-theme", dataset.theme);
}

customElements.define("overview-view", OverviewView);
