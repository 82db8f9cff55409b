// One element per item of a session's stream.

import { button, copyButton, h, icon, inParts, isWide, replace, showDialog } from "../core/dom.js";
import { block, setText } from "../core/markdown.js";
import { CUT, diffCounts, duration, firstLine, money, number, plain, terminal, within } from "../core/text.js";
import { diffView } from "./diff-view.js";
import { planOf, questionCard } from "./question-card.js";

const LONGEST_ERROR = 4000;
const LIVE_OUTPUT = 2000;
const SMALL_DIFF = 4000;
const PICTURES = /^image\/(png|jpeg|gif|webp)$/;
const VERBS = { read: "Read", write: "Write", execute: "Run", network: "Fetch", other: "" };
const CHANGES = { created: "Created", modified: "Changed", deleted: "Deleted", moved: "Moved" };
const MARKS = { completed: "☑", in_progress: "◐", pending: "☐" };
const STATUSES = {
  success: "Done",
  error: "Failed",
  interrupted: "Interrupted",
  max_turns: "Turn limit reached",
  max_budget: "Budget reached",
};

/** @type {Record<string, string>} */
const ERRORS = {
  connection_failed: "Connection failed",
  authentication_failed: "Not signed in",
  session_not_found: "Session not found",
  permission_denied: "Permission denied",
  tool_execution_failed: "Tool failed",
  timeout: "Timed out",
  protocol_error: "The agent sent something unexpected",
  rate_limited: "Rate limited",
  quota_exceeded: "Quota used up",
  context_overflow: "Context is full",
  model_not_found: "Unknown model",
};

/** @type {Map<string, boolean>} what somebody has unfolded stays so when its item is made again */
const unfolded = new Map();

/**
 * @param {Page.Item} item
 * @param {Page.ItemContext} context
 * @param {HTMLElement} [before]
 */
export function itemElement(item, context, before) {
  const grows = before && item.kind === "text" && !item.whole;
  if (grows && setText(before.querySelector(".prose.raw"), item.text)) return before;
  return h("div", { class: `item item-${item.kind}` }, content(item, context));
}

/**
 * @param {Page.Item} item
 * @param {Page.ItemContext} context
 * @returns {Page.Child}
 */
function content(item, context) {
  switch (item.kind) {
    case "init":
      return init(item.event, context);
    case "prompt":
      return h("div", { class: "prompt" }, bubble(item.text));
    case "queued":
      return queued(item, context);
    case "text":
      return h(
        "div",
        { class: "reply copyable" },
        block(item.text, { whole: item.whole }),
        item.whole && copyButton(() => item.text),
      );
    case "thinking":
      return thinking(item);
    case "tool":
      return tool(item, context);
    case "change":
      return fileChange(item.change, item.key);
    case "plan":
      return plan(item);
    case "question":
      return question(item, context);
    case "retry":
      return retry(item.event);
    case "notice":
      if (item.event.images?.length) return pictures(item.event.images.map(shown));
      if (!item.event.attachments?.length) return notice(item.event);
      return h("div", { class: "prompt" }, sent(item.event.attachments, context));
    case "error": {
      const kind = ERRORS[item.event.kind] ?? "Error";
      const note = h("div", { class: "note error", role: "alert", dir: "auto" }, icon("warn"), h("b", {}, kind), " ");
      return inParts(note, item.event.message, LONGEST_ERROR, plain, "characters");
    }
    case "unrecognized": {
      const summary = h("span", { class: "quiet" }, `Not recognized: ${plain(item.event.why)}`);
      const raw = () => inParts(h("pre", { class: "output" }), item.event.raw, CUT, plain, "characters");
      return details(item.key, summary, raw);
    }
    case "turn":
      return rule(item.event.status, STATUSES[item.event.status], duration(item.event.durationMs), item.event);
    case "done":
      return rule(
        `final ${item.event.status}`,
        "Session ended",
        STATUSES[item.event.status]?.toLowerCase(),
        item.event,
      );
    case "wait":
    case "gap":
      return null;
  }
}

/**
 * @param {string} key
 * @param {Page.Child} summary
 * @param {() => HTMLElement} makeContent called when it is unfolded for the first time
 * @param {{ open?: boolean, kind?: string }} [options]
 */
function details(key, summary, makeContent, { open = false, kind = "" } = {}) {
  const element = h("details", { class: `fold ${kind}` }, h("summary", {}, summary));
  const fill = () => {
    if (element.open && element.childElementCount === 1) element.append(makeContent());
  };
  element.open = unfolded.get(key) ?? open;
  fill();
  element.addEventListener("toggle", () => {
    unfolded.set(key, element.open);
    fill();
  });
  return element;
}

/** @param {string} text */
const bubble = (text) => h("div", { class: "bubble", dir: "auto" }, plain(text));

/**
 * What was sent with a message.
 * @param {string[]} ids
 * @param {Page.ItemContext} context
 */
const sent = (ids, context) => pictures(ids.map((id) => [plain(id.split("/").pop()), context.picture(id)]));

/**
 * @param {Unified.ShownImage} image
 * @returns {[string, Promise<string>]}
 */
function shown({ mediaType, content }) {
  const isKnown = PICTURES.test(mediaType);
  return [mediaType, isKnown ? Promise.resolve(`data:${mediaType};base64,${content}`) : Promise.reject(mediaType)];
}

/**
 * A tap shows one whole.
 * @param {[string, Promise<string>][]} named each with its address, when that is known
 */
function pictures(named) {
  const frames = named.map(([alt, address]) => {
    const image = h("img", { alt });
    const show = () => {
      const close = button("Close", () => dialog.close(), { kind: "plain" });
      const whole = h("img", { src: image.src, alt });
      const dialog = h("dialog", { class: "sheet picture", "aria-label": alt }, whole, close);
      showDialog(dialog);
    };
    const frame = h("button", { class: "thumbnail", type: "button", title: alt, onclick: show }, image);
    address.then(
      (found) => image.setAttribute("src", found),
      () => frame.replaceWith(h("span", { class: "chip" }, icon("file"), alt)),
    );
    return frame;
  });
  return h("div", { class: "pictures" }, frames);
}

/**
 * @param {Page.QueuedItem} item
 * @param {Page.ItemContext} context
 */
function queued(item, context) {
  const { changeQueue } = context;
  const { unsent, paused, place, text, images } = item;
  let state = unsent ? "will be sent when you are online" : "waiting for its turn";
  if (paused) state = "paused";
  const action = (
    /** @type {"edit" | "up" | "remove"} */ name,
    /** @type {string} */ glyph,
    /** @type {string} */ title,
  ) => button("", () => changeQueue(name, item), { glyph, kind: "plain small", title });
  const resume = () => changeQueue("resume", item);
  return h(
    "div",
    { class: "prompt queued" },
    images && sent(images, context),
    bubble(text),
    h(
      "p",
      { class: "quiet queue-actions" },
      paused && !place ? button("Send now", resume, { glyph: "send", kind: "small" }) : state,
      !unsent && [
        action("edit", "edit", "Edit this message"),
        place > 0 && action("up", "up", "Send this message earlier"),
        action("remove", "cross", "Remove this message"),
      ],
    ),
  );
}

/**
 * @param {Unified.Init} event
 * @param {Page.ItemContext} context
 */
function init(event, context) {
  const version = event.agentVersion && `${event.agent} ${event.agentVersion}`;
  const words = [event.resumed ? "Resumed" : "Started", event.model, version, context.workplace()].filter(Boolean);
  return h("p", { class: "quiet line", title: plain(event.cwd) }, words.map(plain).join(" · "));
}

/** @param {Page.TextItem} item */
function thinking({ key, text, whole }) {
  const summary = h("span", {}, whole ? "Thought" : "Thinking…", h("em", {}, firstLine(text, 90)));
  return details(key, summary, () => h("pre", { class: "thought", dir: "auto" }, plain(text)), { kind: "thinking" });
}

/**
 * @param {Page.ToolItem} item
 * @param {Page.ItemContext} context
 */
function tool(item, context) {
  const { use, result } = item;
  const target = within(use.target, context.cwd()) || use.description || use.nativeName;
  const glyph = use.name === "task" || use.name === "plan" ? use.name : (use.operation ?? "other");
  const summary = h(
    "span",
    { class: "tool-line" },
    icon(glyph),
    h("b", {}, VERBS[use.operation] || use.nativeName || use.name),
    h("code", { class: "target", dir: "auto" }, firstLine(target, 160)),
    h("span", { class: "spacer" }),
    toolState(item),
  );
  const card = h(
    "div",
    { class: `tool ${result?.status ?? "running"}` },
    details(item.key, summary, () => toolBody(item), { kind: "tool-fold" }),
  );
  if (!result && item.output)
    card.append(h("pre", { class: "output live" }, h("div", {}, terminal(item.output.slice(-LIVE_OUTPUT)))));
  if (result?.images?.length) card.append(pictures(result.images.map(shown)));
  for (const change of item.changes) card.append(fileChange(change, `${item.key}c${change.seq}`));
  const children = item.children.map((child) => itemElement(child, context));
  if (children.length) card.append(h("div", { class: "inner" }, children));
  return card;
}

/**
 * @param {Page.ToolItem} item
 * @returns {Page.Child}
 */
function toolState({ result }) {
  if (!result) return h("span", { class: "spinner", role: "img", "aria-label": "running" });
  let problem = "";
  if (result.exitCode) problem = `exit ${result.exitCode}`;
  else if (result.status === "error") problem = "failed";
  return [
    problem && h("span", { class: "chip bad" }, problem),
    result.status === "denied" && h("span", { class: "chip bad" }, "denied"),
    h("span", { class: "quiet" }, duration(result.durationMs)),
  ];
}

/** @param {Page.ToolItem} item */
function toolBody({ use, result, output }) {
  const text = result?.output || output;
  const command = use.operation === "execute" && use.input?.command;
  const proposal = planOf(use);
  if (proposal) return h("div", { class: "tool-body proposal" }, block(proposal, { whole: true }));
  return h(
    "div",
    { class: "tool-body" },
    command
      ? h(
          "div",
          { class: "copyable" },
          h("pre", { class: "command", dir: "auto" }, plain(command)),
          copyButton(() => command),
        )
      : inParts(h("pre", { class: "input" }), JSON.stringify(use.input ?? {}, null, 2), CUT, plain, "characters"),
    text && outputView(text),
    result && !text && h("p", { class: "quiet" }, "no output"),
  );
}

/**
 * The end of an output, where errors stand; what came before it on request, page by page.
 * @param {string} text
 * @returns {Page.Child[]}
 */
function outputView(text) {
  let from = Math.max(0, text.length - CUT);
  const body = h("div", {});
  const more = h("button", { class: "link", type: "button" });
  const draw = () => {
    replace(body, terminal(text.slice(from)));
    more.textContent = `Show earlier output (${number(from)} characters)`;
    more.hidden = from === 0;
  };
  more.addEventListener("click", () => {
    from = Math.max(0, from - 5 * CUT);
    draw();
  });
  draw();
  const output = h("pre", { class: "output", dir: "auto" }, body);
  return [
    more,
    h(
      "div",
      { class: "copyable" },
      output,
      copyButton(() => plain(text)),
    ),
  ];
}

/**
 * @param {Unified.FileChange} event
 * @param {string} key
 */
function fileChange({ change, path, diff }, key) {
  const counts = diffCounts(diff ?? "");
  const summary = h(
    "span",
    { class: "tool-line" },
    icon("file"),
    h("b", {}, CHANGES[change] ?? change),
    h("code", { class: "target" }, plain(path)),
    h("span", { class: "spacer" }),
    h("span", { class: "plus" }, counts.added > 0 && `+${counts.added}`),
    h("span", { class: "minus" }, counts.removed > 0 && `−${counts.removed}`),
  );
  if (!diff) return h("div", { class: "change" }, summary);
  const body = () => diffView(diff, { wide: isWide() && counts.removed > 0 });
  const open = diff.length < SMALL_DIFF;
  return h("div", { class: "change" }, details(key, summary, body, { open, kind: "diff-fold" }));
}

/** @param {Unified.PlanItem[]} steps */
export function planList(steps) {
  const rows = steps.map(({ text, status }) =>
    h(
      "li",
      { class: status },
      h("span", { "aria-label": status, role: "img" }, MARKS[status] ?? MARKS.pending),
      h("span", { dir: "auto" }, plain(text)),
    ),
  );
  return h("ul", { class: "steps" }, rows);
}

/** @param {Page.PlanItem} item */
const plan = ({ steps }) => h("div", { class: "plan" }, h("h3", {}, icon("plan"), "Plan"), planList(steps));

/**
 * One card as long as the question is open: what was typed into it, and where it is, must not change under a hand.
 * @param {Page.QuestionItem} item
 * @param {Page.ItemContext} context
 */
function question({ request, resolution }, { cards, questionOf, whoAnswered }) {
  const entry = questionOf(request);
  const who = whoAnswered(request.requestId);
  if (resolution || entry.open === false) return questionCard(entry, { resolution, who });
  const card = cards.get(entry.id) ?? questionCard(entry);
  cards.set(entry.id, card);
  return card;
}

/** @param {Unified.Retry} event */
function retry({ attempt, maxAttempts, delayMs, reason }) {
  const times = maxAttempts ? `${attempt} of ${maxAttempts}` : attempt;
  const delay = delayMs ? ` in ${duration(delayMs)}` : "";
  return h("p", { class: "note warning" }, icon("warn"), `Trying again (${times})${delay}: ${plain(reason)}`);
}

/** @param {Unified.Notice} event */
function notice({ code, level, message }) {
  if (code === "mode") return h("p", { class: "quiet line" }, `Mode: ${firstLine(message, 60)}`);
  return h("p", { class: `note ${level ?? "info"}`, dir: "auto" }, firstLine(message, 400));
}

/**
 * A line across the stream.
 * @param {string} look
 * @param {string} title
 * @param {string} detail
 * @param {Unified.TurnCompleted | Unified.Done} event
 */
function rule(look, title, detail, { status, usage, costUsd }) {
  const tokens = usage?.totalTokens ? `${number(usage.totalTokens)} tokens` : "";
  const words = [title ?? status, detail, tokens, money(costUsd)].filter(Boolean).join(" · ");
  return h("p", { class: `rule ${look}` }, h("span", {}, words));
}
