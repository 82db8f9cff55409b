// A question: what is asked, how risky and why, with the whole command or diff. Nothing is pre-chosen, and one tap can
// answer only the question it was aimed at: the buttons of a fresh card wait a moment, and a card answers once.

import { announce, button, h, icon, reachable, replace, toast } from "../core/dom.js";
import { get } from "../core/api.js";
import { firstLine, plain, within } from "../core/text.js";
import { diffView, editView } from "./diff-view.js";
import { wishes, wishForm } from "./wish-form.js";

const LONG = 20000;
const SETTLE = 600; // a tap meant for what stood here before must not hit a button that has just come
const RISKS = { low: "Low risk", medium: "Medium risk", high: "High risk" };
const ASKS = {
  execute: "wants to run a command",
  write: "wants to change a file",
  read: "wants to read",
  network: "wants to use the network",
  other: "asks to go on",
};
const BY = {
  client: "by you or another device",
  callback: "by the program",
  policy: "by a rule",
  timeout: "because nobody answered in time",
  interrupt: "because the turn ended",
};

// For a moment a card takes no tap: when it has just come, and when another was answered, because then all move up.
function settle(card, wait = SETTLE) {
  card.classList.add("settling");
  clearTimeout(timers.get(card));
  timers.set(
    card,
    setTimeout(() => card.classList.remove("settling"), wait),
  );
}

const timers = new WeakMap();
const settleAll = (wait) => document.querySelectorAll(".question:not(.over)").forEach((card) => settle(card, wait));

export function questionCard(question, { resolved = null, store, link = "" } = {}) {
  const { request } = question;
  if (resolved) return settled(question, resolved);
  const asks = wishes(request).length ? "wants to know" : (ASKS[request.operation] ?? ASKS.other);
  const title = `${question.agent ?? request.agent ?? "The agent"} ${asks}`;
  const card = h(
    "article",
    {
      class: `question ${request.risk ?? "medium"} ${question.open === false ? "over" : ""}`,
      "data-question": question.id,
      "aria-label": title,
    },
    h(
      "header",
      {},
      icon(request.operation ?? "other"),
      h("h3", {}, title),
      !wishes(request).length && h("span", { class: `chip ${request.risk}` }, RISKS[request.risk] ?? "Medium risk"),
    ),
    link && h("a", { class: "from", href: `#/s/${question.sessionId}` }, plain(link)),
    request.riskReasons?.length > 0 &&
      h("p", { class: "why quiet", dir: "auto" }, plain(request.riskReasons.slice(0, 3).join("; "))),
    request.description &&
      !same(request) &&
      h("p", { class: "quiet", dir: "auto" }, firstLine(request.description, 300)),
    wishes(request).length ? null : subject(request, store?.sessions.get(question.sessionId)?.cwd),
  );
  if (question.open === false) card.append(h("p", { class: "quiet" }, "Answered."));
  else card.append(actions(card, question, store));
  settle(card);
  requestAnimationFrame(() => reachable(card));
  return card;
}

function same(request) {
  const { description, target, input } = request;
  return [target, input?.command].includes(description) || (target && /^\w+ $/.test(description.replace(target, ""))); // "Edit a.py"
}

// What has been answered takes one line; the call itself stands beside it.
function settled(question, resolved) {
  const words =
    wishes(question.request).length && resolved.decision === "allow"
      ? "Answered"
      : resolved.decision === "allow"
        ? `Allowed${resolved.remember && resolved.remember !== "once" ? ` (${resolved.remember})` : ""}`
        : "Denied";
  return h(
    "p",
    { class: `verdict ${resolved.decision}`, "data-question": question.id },
    icon(resolved.decision === "allow" ? "check" : "cross"),
    h("span", { class: "words" }, `${words} ${BY[resolved.by] ?? ""}`),
    resolved.message
      ? h("span", { class: "target", dir: "auto", title: plain(resolved.message) }, firstLine(resolved.message, 300))
      : h(
          "code",
          { class: "target", dir: "auto" },
          firstLine(question.request.target || question.request.nativeName, 100),
        ),
  );
}

function subject(request, cwd) {
  const input = request.input ?? {};
  const command =
    typeof input.command === "string" ? input.command : Array.isArray(input.command) ? input.command.join(" ") : null;
  if (command) return h("pre", { class: "command", dir: "auto" }, plain(command));
  const path = request.target && h("p", { class: "path" }, plain(within(request.target, cwd)));
  const patch = PATCHES.map((name) => input[name]).find((one) => typeof one === "string");
  if (patch) return h("div", {}, path, diffView(patch));
  const fresh = FRESH.map((name) => input[name]).find((one) => typeof one === "string");
  const old = OLD.map((name) => input[name]).find((one) => typeof one === "string");
  if (fresh !== undefined) return h("div", {}, path, editView(old ?? "", fresh));
  // Everything it was asked with: nothing that matters may be hidden behind a short name.
  const rest = Object.keys(input).length > 1 || !request.target ? JSON.stringify(input, null, 2) : "";
  return h(
    "pre",
    { class: "command", dir: "auto" },
    plain([request.target, rest].filter(Boolean).join("\n")).slice(0, 8000),
  );
}

// What the agents call the parts of an edit.
const PATCHES = ["diff", "unified_diff", "patch", "patchText"];
const FRESH = ["content", "new_string", "newString", "new_str", "newText", "new"];
const OLD = ["old_string", "oldString", "old_str", "oldText", "old"];

function actions(card, question, store) {
  const bar = h("div", { class: "answers" });
  let answered = false;

  const answer = async (body, event) => {
    if (answered || (event?.isTrusted && card.classList.contains("settling"))) return;
    answered = true;
    settleAll(LONG);
    for (const one of bar.querySelectorAll("button,textarea,input")) one.disabled = true;
    try {
      await store.answer(question, body);
      announce(body.decision === "allow" ? "Allowed" : "Denied");
      replace(bar, h("p", { class: "quiet" }, body.decision === "allow" ? "Allowed" : "Denied"));
      card.classList.add("over");
    } catch (fault) {
      if (fault.status === 409) replace(bar, h("p", { class: "quiet" }, fault.message));
      else {
        answered = false;
        for (const one of bar.querySelectorAll("button,textarea,input")) one.disabled = false;
        toast(fault.message, "error");
      }
    }
    await store.refreshQuestions();
    settleAll();
  };

  const choose = () =>
    replace(
      bar,
      button("Allow once", (event) => answer({ decision: "allow" }, event), {
        glyph: "check",
        kind: "allow",
        "data-key": "y",
      }),
      button("Deny", (event) => answer({ decision: "deny" }, event), { glyph: "cross", kind: "deny", "data-key": "n" }),
      button("More", more, { kind: "plain", "data-key": "a", "aria-haspopup": "true" }),
    );

  let rights = null;

  async function more() {
    rights ??= await get(`/api/rules/${encodeURIComponent(question.id)}`).catch(() => ({ rules: [], editable: false }));
    replace(
      bar,
      button("Allow in this session", (event) => answer({ decision: "allow", remember: "session" }, event), {
        glyph: "check",
      }),
      button("Always allow…", always, { glyph: "check" }),
      rights.editable && button("Edit, then allow…", change, { glyph: "edit" }),
      button("Deny with a message…", refuse, { glyph: "cross" }),
      button("Back", choose, { kind: "plain" }),
    );
    bar.lastElementChild.focus(); // never on what allows
  }

  function always() {
    const { rules } = rights;
    replace(
      bar,
      h(
        "p",
        { tabindex: "-1" },
        rules.length
          ? "This will be added to the policy of this server:"
          : "No rule can be made of this; it would hold for this session only.",
      ),
      rules.length > 0 && h("pre", { class: "command" }, plain(rules.map(ruleText).join("\n"))),
      rules.length > 0 &&
        button("Add the rule and allow", (event) => answer({ decision: "allow", remember: "always" }, event), {
          glyph: "check",
        }),
      button("Back", choose, { kind: "plain" }),
    );
    bar.firstElementChild.focus(); // never on what allows
  }

  function change() {
    const input = question.request.input ?? {};
    const single = typeof input.command === "string";
    const area = h("textarea", {
      rows: 5,
      "aria-label": "The input to use instead",
      spellcheck: "false",
      autocapitalize: "off",
    });
    area.value = single ? input.command : JSON.stringify(input, null, 2);
    const submit = (event) => {
      let updatedInput;
      try {
        updatedInput = single ? { ...input, command: area.value } : JSON.parse(area.value);
      } catch (fault) {
        return toast(`not JSON: ${fault.message}`, "error");
      }
      return answer({ decision: "allow", updatedInput }, event);
    };
    replace(
      bar,
      area,
      button("Allow as edited", submit, { glyph: "check" }),
      button("Back", choose, { kind: "plain" }),
    );
    area.focus();
  }

  function refuse() {
    const area = h("textarea", {
      rows: 3,
      "aria-label": "What the agent is told",
      placeholder: "What should it do instead?",
    });
    const stop = h("input", { type: "checkbox", id: `stop-${question.id}` });
    replace(
      bar,
      area,
      h("label", { class: "check" }, stop, "and end its turn"),
      button("Deny", (event) => answer({ decision: "deny", message: area.value, interrupt: stop.checked }, event), {
        glyph: "cross",
        kind: "deny",
      }),
      button("Back", choose, { kind: "plain" }),
    );
    area.focus();
  }

  if (wishes(question.request).length) return replace(bar, wishForm(question.request, answer));
  choose();
  return bar;
}

function ruleText(rule) {
  return Object.entries(rule)
    .map(([name, value]) => `${name}: ${typeof value === "string" ? value : JSON.stringify(value)}`)
    .join("\n");
}
