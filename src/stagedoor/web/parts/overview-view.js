// What was used, which agents are well, who may come in, what was decided.

import { bar, button, h, icon, replace, toast } from "../core/dom.js";
import { call, get, post, query } from "../core/api.js";
import { store } from "../core/store.js";
import { ago, firstLine, money, number, plain, tail } from "../core/text.js";

const DAYS = 14;
const EAST = -new Date().getTimezoneOffset(); // a day is one of whoever looks

class OverviewView extends HTMLElement {
  connectedCallback() {
    this.page = h("div", { class: "page overview" });
    replace(
      this,
      bar("Overview", button("", switchTheme, { glyph: "moon", kind: "plain", title: "Dark or light" })),
      this.page,
    );
    for (const [title, fill] of [
      ["Use", usage],
      ["Agents", agents],
      ["Devices", devices],
      ["Policy", policy],
      ["Decisions", audit],
    ]) {
      const body = h("div", { class: "card-body" }, h("div", { class: "skeleton" }));
      this.page.append(h("section", { class: "card", "aria-label": title }, h("h2", {}, title), body));
      this.fill(body, fill);
    }
  }

  async fill(body, fill) {
    try {
      await fill(body, () => this.fill(body, fill));
    } catch (fault) {
      replace(body, h("p", { class: "quiet unloaded" }, fault.message));
    }
  }
}

async function usage(body) {
  const since = Date.now() - DAYS * 86400000;
  const [days, agents, projects] = await Promise.all(
    ["day", "agent", "project"].map((by) => get(`/api/usage${query({ by, since, offsetMinutes: EAST })}`)),
  );
  if (!days.rows.length) return replace(body, h("p", { class: "quiet" }, "Nothing has been used yet."));
  const total = days.total;
  return replace(
    body,
    h(
      "p",
      { class: "figure" },
      h("b", {}, number(total.usage.totalTokens)),
      " tokens",
      total.usage.costUsd ? [" · ", h("b", {}, money(total.usage.costUsd))] : null,
      h("span", { class: "quiet" }, ` in ${DAYS} days`),
    ),
    chart(days.rows, "tokens", (used) => used.totalTokens, number),
    total.usage.costUsd > 0 &&
      chart(
        days.rows,
        "cost",
        (used) => used.costUsd ?? 0,
        (cost) => money(cost) || "$0",
      ),
    h(
      "div",
      { class: "bars-pair" },
      bars("By agent", agents.rows, (name) => name),
      bars("By project", projects.rows, tail),
    ),
  );
}

function chart(rows, what, read, tell) {
  const by = new Map(rows.map((row) => [row.key, read(row.usage)]));
  const days = [...Array(DAYS)].map((_, at) =>
    new Date(Date.now() + EAST * 60000 - (DAYS - 1 - at) * 86400000).toISOString().slice(0, 10),
  );
  const most = Math.max(...by.values()) || 1;
  const told = (day) => `${day}: ${tell(by.get(day) ?? 0)}`;
  const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
  svg.setAttribute("viewBox", `0 0 ${DAYS * 20} 80`);
  svg.setAttribute("class", "chart");
  svg.setAttribute("preserveAspectRatio", "none");
  svg.setAttribute("role", "img");
  svg.setAttribute("aria-label", `${what} per day: ${days.map(told).join(", ")}`);
  days.forEach((day, at) => {
    const height = Math.round(((by.get(day) ?? 0) / most) * 74);
    const bar = document.createElementNS("http://www.w3.org/2000/svg", "rect");
    for (const [name, value] of Object.entries({
      x: at * 20 + 3,
      y: 78 - Math.max(height, 2),
      width: 14,
      height: Math.max(height, 2),
      rx: 1,
    }))
      bar.setAttribute(name, value);
    if (!height) bar.setAttribute("class", "none");
    const title = document.createElementNS("http://www.w3.org/2000/svg", "title");
    title.textContent = `${told(day)} ${what}`;
    bar.append(title);
    svg.append(bar);
  });
  return h(
    "figure",
    { class: "chart-box" },
    svg,
    h(
      "figcaption",
      { class: "quiet" },
      h("span", {}, days[0].slice(5)),
      h("span", {}, `${what} per day`),
      h("span", {}, "today"),
    ),
  );
}

function bars(title, rows, name) {
  const sorted = [...rows].sort((a, b) => b.usage.totalTokens - a.usage.totalTokens).slice(0, 6);
  const most = Math.max(...sorted.map((row) => row.usage.totalTokens), 1);
  return h(
    "div",
    { class: "bars" },
    h("h3", {}, title),
    sorted.map((row) =>
      h(
        "div",
        { class: "bar-row" },
        h("span", {}, plain(name(row.key))),
        h("meter", { min: 0, max: most, value: row.usage.totalTokens, "aria-label": plain(row.key) }),
        h(
          "span",
          { class: "quiet" },
          [number(row.usage.totalTokens), money(row.usage.costUsd)].filter(Boolean).join(" · "),
        ),
      ),
    ),
  );
}

async function agents(body) {
  const found = await store.loadAgents();
  replace(
    body,
    h(
      "ul",
      { class: "rows" },
      found.map((one) =>
        h(
          "li",
          {},
          h("span", { class: `dot ${one.installed ? (one.signedIn === false ? "waiting" : "done") : "failed"}` }),
          h("b", {}, one.title || one.agent),
          h("span", { class: "quiet" }, one.installed ? plain(one.version) : "not installed"),
          one.signedIn === false && h("span", { class: "chip bad" }, "not signed in"),
          (one.problem || one.fix) && h("p", { class: "quiet hint" }, firstLine(one.fix || one.problem, 240)),
        ),
      ),
    ),
  );
}

async function devices(body, again) {
  const isAdmin = store.me?.scopes?.includes("admin");
  if (!isAdmin)
    return replace(
      body,
      h("p", { class: "quiet" }, `This device: ${plain(store.me?.name)} (${(store.me?.scopes ?? []).join(", ")})`),
    );
  const found = (await get("/api/devices")).devices;
  const place = h("div", {});
  const scope = h(
    "select",
    { "aria-label": "What the new device may do" },
    [
      ["run", "run and answer"],
      ["answer", "watch and answer"],
      ["watch", "only watch"],
      ["admin", "everything"],
    ].map(([value, label]) => h("option", { value }, label)),
  );
  const pair = async () => {
    try {
      const made = await post("/api/pairing", { scope: scope.value });
      const image = h("img", {
        alt: "QR code to pair a device",
        class: "qr",
        src: `data:image/svg+xml;base64,${btoa(made.qr)}`,
      });
      replace(
        place,
        h(
          "div",
          { class: "pairing" },
          image,
          h("p", {}, "Scan it with the phone, or enter the code "),
          h("p", { class: "code-big" }, made.code),
          h("p", { class: "quiet" }, "It can be used once, within five minutes."),
        ),
      );
      place.scrollIntoView({ block: "nearest" });
    } catch (fault) {
      toast(fault.message, "error");
    }
  };
  return replace(
    body,
    h(
      "ul",
      { class: "rows" },
      found.map((one) =>
        h(
          "li",
          {},
          icon("device"),
          h("b", {}, plain(one.name)),
          h(
            "span",
            { class: "quiet" },
            `${one.scopes.join(", ")} · ${one.seenAt ? `seen ${ago(one.seenAt)}${Date.now() - one.seenAt < 60000 ? "" : " ago"}` : "never seen"}`,
          ),
          one.current
            ? h("span", { class: "chip" }, "this one")
            : button("Revoke", async () => (await call("DELETE", `/api/devices/${one.id}`), again()), {
                kind: "plain",
              }),
        ),
      ),
    ),
    h("div", { class: "row-actions" }, scope, button("Pair a device", pair, { glyph: "add" })),
    place,
  );
}

async function policy(body) {
  const found = await get("/api/policy");
  replace(
    body,
    h("p", { class: "quiet" }, found.file ? plain(found.file) : "No policy file: the tier of each session decides."),
    found.text && h("pre", { class: "command" }, plain(found.text).slice(0, 20000)),
    found.problem && h("p", { class: "note error" }, plain(found.problem)),
  );
}

async function audit(body) {
  const { entries } = await get("/api/audit?limit=30");
  if (!entries.length) return replace(body, h("p", { class: "quiet" }, "Nothing has been decided yet."));
  return replace(
    body,
    h(
      "ul",
      { class: "rows audit" },
      entries.map(({ entry: one, at, who }) =>
        h(
          "li",
          {},
          icon(one.decision === "allow" ? "check" : "cross"),
          h("code", { class: "target" }, firstLine(one.target || one.tool, 100)),
          h(
            "span",
            { class: "quiet" },
            [one.agent, `by ${who || one.by}`, one.rule].filter(Boolean).map(plain).join(" · "),
          ),
          h("time", { class: "quiet" }, ago(at)),
        ),
      ),
    ),
  );
}

export function switchTheme() {
  const dark = document.documentElement.dataset.theme
    ? document.documentElement.dataset.theme === "dark"
    : matchMedia("(prefers-color-scheme: dark)").matches;
  document.documentElement.dataset.theme = dark ? "light" : "dark";
  localStorage.setItem("stagedoor-theme", document.documentElement.dataset.theme);
}

customElements.define("overview-view", OverviewView);
