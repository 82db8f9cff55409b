// One element per item of a session's stream.

import { h, icon } from "../core/dom.js";
import { block, growText } from "../core/markdown.js";
import { cut, duration, firstLine, money, number, plain, terminal, within } from "../core/text.js";
import { diffView } from "./diff-view.js";
import { questionCard } from "./question-card.js";

const MAKERS = {
  init,
  prompt,
  queued,
  text,
  thinking,
  tool,
  change,
  plan,
  question,
  retry,
  notice,
  error,
  unrecognized,
  turn,
  done,
};

// What somebody has unfolded stays so when its item is made again.
const unfolded = new Map();

export function itemElement(item, context, before) {
  if (before && item.kind === "text" && !item.whole && growText(before.querySelector(".prose.raw"), item.text))
    return before;
  return h("div", { class: `item item-${item.kind}` }, MAKERS[item.kind](item, context));
}

export const isWide = () => matchMedia("(min-width: 1100px)").matches;

function fold(key, summary, content, { open = false, kind = "" } = {}) {
  const details = h("details", { class: `fold ${kind}` }, h("summary", {}, summary));
  const fill = () => details.open && details.childElementCount === 1 && details.append(content());
  details.open = unfolded.get(key) ?? open;
  fill();
  details.addEventListener("toggle", () => {
    unfolded.set(key, details.open);
    fill();
  });
  return details;
}

function init({ event }, context) {
  const words = [event.model, event.agentVersion && `${event.agent} ${event.agentVersion}`, context.place()]
    .filter(Boolean)
    .map(plain);
  return h(
    "p",
    { class: "quiet line", title: plain(event.cwd) },
    event.resumed ? "Resumed · " : "Started · ",
    words.join(" · "),
  );
}

function prompt(item) {
  return h("div", { class: "prompt" }, h("div", { class: "bubble", dir: "auto" }, plain(item.text)));
}

function queued(item) {
  return h(
    "div",
    { class: "prompt queued" },
    h("div", { class: "bubble", dir: "auto" }, plain(item.text)),
    h("p", { class: "quiet" }, item.unsent ? "will be sent when there is a connection" : "waits for its turn"),
  );
}

function text(item) {
  return h("div", { class: "said" }, block(item.text, { whole: item.whole }));
}

function thinking(item) {
  return fold(
    item.key,
    h("span", {}, item.whole ? "Thought" : "Thinking…", h("em", {}, firstLine(item.text, 90))),
    () => h("pre", { class: "thought", dir: "auto" }, plain(item.text)),
    { kind: "thinking" },
  );
}

const VERBS = { read: "Read", write: "Write", execute: "Run", network: "Fetch", other: "" };

function tool(item, context) {
  const { use, result } = item;
  const state = result ? result.status : "running";
  const title = VERBS[use.operation] || use.nativeName || use.name;
  const summary = h(
    "span",
    { class: "tool-line" },
    icon(use.name === "task" ? "task" : use.name === "plan" ? "plan" : (use.operation ?? "other")),
    h("b", {}, title),
    h(
      "code",
      { class: "target", dir: "auto" },
      firstLine(within(use.target, context.cwd()) || use.description || use.nativeName || "", 160),
    ),
    h("span", { class: "spacer" }),
    result?.exitCode ? h("span", { class: "chip bad" }, `exit ${result.exitCode}`) : null,
    state === "denied" && h("span", { class: "chip bad" }, "denied"),
    state === "error" && !result.exitCode && h("span", { class: "chip bad" }, "failed"),
    state === "running"
      ? h("span", { class: "spinner", role: "img", "aria-label": "running" })
      : h("span", { class: "quiet" }, duration(result.durationMs)),
  );
  const live = state === "running" && item.output;
  const card = h(
    "div",
    { class: `tool ${state}` },
    fold(item.key, summary, () => toolBody(item), { kind: "tool-fold" }),
  );
  if (live) card.append(h("pre", { class: "output live" }, terminal(item.output.slice(-2000))));
  for (const one of item.changes) card.append(changeView(one, `${item.key}c${one.seq}`));
  if (item.inner.length)
    card.append(
      h(
        "div",
        { class: "inner" },
        item.inner.map((one) => itemElement(one, context)),
      ),
    );
  return card;
}

function toolBody(item) {
  const { use, result } = item;
  const output = result?.output || item.output || "";
  const [shown, rest] = cut(output);
  const command = use.operation === "execute" && use.input?.command;
  return h(
    "div",
    { class: "tool-body" },
    command
      ? h("pre", { class: "command", dir: "auto" }, plain(String(use.input.command)))
      : h("pre", { class: "input" }, plain(JSON.stringify(use.input ?? {}, null, 2)).slice(0, 20000)),
    output
      ? h("pre", { class: "output", dir: "auto" }, terminal(shown))
      : result && h("p", { class: "quiet" }, "no output"),
    rest > 0 &&
      h("p", { class: "quiet" }, `${number(rest)} more characters are not shown; export the session to see them`),
  );
}

function changeView(change, key) {
  const counts = diffCounts(change.diff ?? "");
  const summary = h(
    "span",
    { class: "tool-line" },
    icon("file"),
    h(
      "b",
      {},
      { created: "Created", modified: "Changed", deleted: "Deleted", moved: "Moved" }[change.change] ?? change.change,
    ),
    h("code", { class: "target" }, plain(change.path)),
    h("span", { class: "spacer" }),
    h("span", { class: "plus" }, counts.added ? `+${counts.added}` : ""),
    h("span", { class: "minus" }, counts.removed ? `−${counts.removed}` : ""),
  );
  if (!change.diff) return h("div", { class: "change" }, summary);
  return h(
    "div",
    { class: "change" },
    fold(key, summary, () => diffView(change.diff, { wide: isWide() && counts.removed > 0 }), {
      open: change.diff.length < 4000,
      kind: "diff-fold",
    }),
  );
}

export function diffCounts(diff) {
  let added = 0;
  let removed = 0;
  for (const line of diff.split("\n")) {
    if (line.startsWith("+") && !line.startsWith("+++")) added++;
    else if (line.startsWith("-") && !line.startsWith("---")) removed++;
  }
  return { added, removed };
}

function change(item) {
  return changeView(item.change, item.key);
}

const MARKS = { completed: "☑", in_progress: "◐", pending: "☐", cancelled: "☒" };

function plan(item) {
  return h(
    "div",
    { class: "plan" },
    h("h3", {}, icon("plan"), "Plan"),
    h(
      "ul",
      {},
      item.items.map((one) =>
        h(
          "li",
          { class: one.status },
          h("span", { "aria-label": one.status, role: "img" }, MARKS[one.status] ?? "☐"),
          h("span", { dir: "auto" }, plain(one.text)),
        ),
      ),
    ),
  );
}

function question(item, context) {
  const asked = context.questionOf(item.request);
  if (item.resolved || asked.open === false)
    return questionCard(asked, { resolved: item.resolved, store: context.store });
  // One card as long as the question is open: what was typed into it, and where it stands, must not change under a hand.
  if (!context.cards.has(asked.id)) context.cards.set(asked.id, questionCard(asked, { store: context.store }));
  return context.cards.get(asked.id);
}

function retry({ event }) {
  const times = event.maxAttempts ? `${event.attempt} of ${event.maxAttempts}` : `${event.attempt}`;
  return h(
    "p",
    { class: "note warning" },
    icon("warn"),
    `Trying again (${times})${event.delayMs ? ` in ${duration(event.delayMs)}` : ""}: ${plain(event.reason ?? "")}`,
  );
}

function notice({ event }) {
  if (event.code === "mode") return h("p", { class: "quiet line" }, `Mode: ${firstLine(event.message, 60)}`);
  return h("p", { class: `note ${event.level ?? "info"}`, dir: "auto" }, firstLine(event.message, 400));
}

function error({ event }) {
  return h(
    "div",
    { class: "note error", role: "alert", dir: "auto" },
    icon("warn"),
    h("b", {}, (event.kind ?? "error").replaceAll("_", " ")),
    " ",
    plain(event.message).slice(0, 4000),
  );
}

function unrecognized(item) {
  return fold(item.key, h("span", { class: "quiet" }, `Not understood: ${plain(item.event.why ?? "")}`), () =>
    h("pre", { class: "output" }, plain(item.event.raw ?? "").slice(0, 20000)),
  );
}

const STATUSES = {
  success: "Done",
  error: "Failed",
  interrupted: "Interrupted",
  max_turns: "Turn limit reached",
  max_budget: "Budget reached",
};

function turn({ event }) {
  const parts = [
    STATUSES[event.status] ?? event.status,
    duration(event.durationMs),
    event.usage?.totalTokens && `${number(event.usage.totalTokens)} tokens`,
    money(event.costUsd),
  ];
  return h("p", { class: `rule ${event.status}` }, h("span", {}, parts.filter(Boolean).join(" · ")));
}

function done({ event }) {
  const parts = [
    "Session over",
    STATUSES[event.status]?.toLowerCase(),
    event.usage?.totalTokens && `${number(event.usage.totalTokens)} tokens`,
    money(event.costUsd),
  ];
  return h("p", { class: `rule final ${event.status}` }, h("span", {}, parts.filter(Boolean).join(" · ")));
}
