// A question: what is asked, how risky and why, with the whole command or diff. Nothing is pre-chosen, and one tap can
// answer only the question it was aimed at: the buttons of a new card wait a moment, and a card answers once.

import { get, messageOf, Problem } from "../core/api.js";
import { announce, button, h, icon, inParts, makeReachable, replace, toast } from "../core/dom.js";
import { block } from "../core/markdown.js";
import { store } from "../core/store.js";
import { CUT, firstLine, plain, within } from "../core/text.js";
import { diffView, editView } from "./diff-view.js";

const LONG_WAIT = 20000;
const SHORT_WAIT = 600; // a tap meant for what was here before must not hit a button that has just come
const RISKS = { low: "Low risk", medium: "Medium risk", high: "High risk" };
const REQUESTS = {
  execute: "wants to run a command",
  write: "wants to change a file",
  read: "wants to read",
  network: "wants to use the network",
  other: "asks for permission",
};
const ANSWERED_BY = {
  client: "",
  callback: "by the program",
  policy: "by a rule",
  timeout: "because nobody answered in time",
  interrupt: "because the turn ended",
};

/** @type {WeakMap<Element, number>} */
const timers = new WeakMap();

/**
 * For a moment a card takes no tap: when it has just come, and when another was answered, because then all move up.
 * @param {Element} card
 */
function settle(card, wait = SHORT_WAIT) {
  card.classList.add("settling");
  clearTimeout(timers.get(card));
  timers.set(
    card,
    setTimeout(() => card.classList.remove("settling"), wait),
  );
}

/** @param {number} [wait] */
function settleAll(wait) {
  for (const card of document.querySelectorAll(".question:not(.closed)")) settle(card, wait);
}

/**
 * @param {Page.Question} question
 * @param {{ resolution?: Unified.PermissionResolved, link?: string, who?: string }} [options]
 * @returns {HTMLElement}
 */
export function questionCard(question, { resolution, link = "", who = "" } = {}) {
  const { request } = question;
  if (resolution) return verdict(question, resolution, who);
  const plan = planOf(request);
  const isPermission = !userQuestions(request).length && !plan && !schemaOf(request);
  let matter = REQUESTS[request.operation] ?? REQUESTS.other;
  if (!isPermission) matter = plan ? "has a plan" : "has a question";
  const title = `${question.agent ?? request.agent ?? "The agent"} ${matter}`;
  const card = h(
    "article",
    {
      class: `question ${plan ? "low" : (request.risk ?? "medium")} ${question.open === false ? "closed" : ""}`,
      "data-question": question.id,
      "aria-label": title,
    },
    h(
      "header",
      {},
      icon(request.operation ?? "other"),
      h("h3", {}, title),
      isPermission && h("span", { class: `chip ${request.risk}` }, RISKS[request.risk] ?? RISKS.medium),
    ),
    link && h("a", { class: "from", href: `#/s/${question.sessionId}` }, plain(link)),
    !plan &&
      request.riskReasons?.length &&
      h("p", { class: "why quiet", dir: "auto" }, plain(request.riskReasons.slice(0, 3).join("; "))),
    request.description &&
      !repeatsTarget(request) &&
      h("p", { class: "quiet", dir: "auto" }, firstLine(request.description, 300)),
    plan && h("div", { class: "proposal" }, block(plan, { whole: true })),
    isPermission && subject(request, store.sessions.get(question.sessionId)?.cwd),
  );
  card.append(question.open === false ? h("p", { class: "quiet" }, "Answered.") : answers(card, question));
  settle(card);
  requestAnimationFrame(() => makeReachable(card));
  return card;
}

/**
 * What an agent wants to carry out, after it was only to plan.
 * @param {{ input?: Record<string, any>, toolName?: string, nativeName?: string }} request
 * @returns {string}
 */
export const planOf = ({ input, nativeName }) =>
  /exit_?plan_?mode/i.test(nativeName ?? "") && typeof input?.plan === "string" ? input.plan : "";

/**
 * Whether the description says only what is shown anyway, like "Edit a.py".
 * @param {Unified.PermissionRequest} request
 */
function repeatsTarget({ description = "", target, input }) {
  if ([target, input?.command].includes(description)) return true;
  return Boolean(target) && /^\w+ $/.test(description.replace(target ?? "", ""));
}

/**
 * What has been answered takes one line; the call itself stands beside it.
 * @param {Page.Question} question
 * @param {Unified.PermissionResolved} resolution
 * @param {string} who the device that answered
 */
function verdict(question, { decision, remember, by, message }, who) {
  const { request } = question;
  const allowed = decision === "allow";
  let words = allowed ? "Allowed" : "Denied";
  if (allowed && request.toolName === "question") words = "Answered";
  else if (allowed && remember === "session") words = "Allowed in this session";
  else if (allowed && remember === "always") words = "Always allowed";
  const mine = who && who === store.me?.name ? "you" : plain(who);
  const target = message
    ? h("span", { class: "target", dir: "auto", title: plain(message) }, firstLine(message, 300))
    : h("code", { class: "target", dir: "auto" }, firstLine(request.target || request.nativeName, 100));
  return h(
    "p",
    { class: `verdict ${decision}`, "data-question": question.id },
    icon(allowed ? "check" : "cross"),
    h("span", { class: "words" }, `${words} ${ANSWERED_BY[by] || (mine && `by ${mine}`)}`),
    target,
  );
}

// What the agents call the parts of an edit.
const PATCHES = ["diff", "unified_diff", "patch", "patchText"];
const NEW_TEXTS = ["content", "new_string", "newString", "new_str", "newText", "new"];
const OLD_TEXTS = ["old_string", "oldString", "old_str", "oldText", "old"];

/**
 * @param {Unified.PermissionRequest} request
 * @param {string} [cwd]
 */
function subject(request, cwd) {
  const input = request.input ?? {};
  const command = Array.isArray(input.command) ? input.command.join(" ") : input.command;
  if (command && typeof command === "string") return h("pre", { class: "command", dir: "auto" }, plain(command));
  const path = request.target && h("p", { class: "path" }, plain(within(request.target, cwd)));
  const text = (/** @type {string[]} */ names) =>
    names.map((name) => input[name]).find((value) => typeof value === "string");
  const patch = text(PATCHES);
  if (patch) return h("div", {}, path, diffView(patch));
  const newText = text(NEW_TEXTS);
  if (newText !== undefined) return h("div", {}, path, editView(text(OLD_TEXTS) ?? "", newText));
  // The whole input: nothing that matters may be hidden behind a short name.
  const rest = Object.keys(input).length > 1 || !request.target ? JSON.stringify(input, null, 2) : "";
  const words = plain([request.target, rest].filter(Boolean).join("\n"));
  return inParts(h("pre", { class: "command", dir: "auto" }), words, CUT, String, "characters");
}

/**
 * @param {HTMLElement} card
 * @param {Page.Question} question
 */
function answers(card, question) {
  const bar = h("div", { class: "answers" });
  let answered = false;
  /** @type {{ rules: Record<string, unknown>[], editable: boolean } | null} */
  let options = null;

  const disable = (/** @type {boolean} */ disabled) => {
    for (const field of bar.querySelectorAll("button,textarea,input")) Object.assign(field, { disabled });
  };

  const answer = async (/** @type {Page.Answer} */ body, /** @type {Event} */ event) => {
    if (answered || (event.isTrusted && card.classList.contains("settling"))) return;
    answered = true;
    settleAll(LONG_WAIT);
    disable(true);
    try {
      await store.answer(question, body);
      const words = body.decision === "allow" ? "Allowed" : "Denied";
      announce(words);
      replace(bar, h("p", { class: "quiet" }, words));
      card.classList.add("closed");
    } catch (fault) {
      if (fault instanceof Problem && fault.status === 409) replace(bar, h("p", { class: "quiet" }, fault.message));
      else {
        answered = false;
        disable(false);
        toast(messageOf(fault), "error");
      }
    }
    await store.refreshQuestions();
    settleAll();
  };

  /**
   * @param {string} label
   * @param {Page.Answer} body
   * @param {Record<string, string>} look
   */
  const answerButton = (label, body, look) => button(label, (event) => answer(body, event), look);
  const back = () => button("Back", choose, { kind: "plain" });

  const hasPlan = Boolean(planOf(question.request));
  const choose = () =>
    replace(
      bar,
      answerButton(
        hasPlan ? "Carry it out" : "Allow once",
        { decision: "allow" },
        { glyph: "check", kind: "allow", "data-key": "y" },
      ),
      hasPlan
        ? button("Change it…", deny, { glyph: "cross", kind: "deny", "data-key": "n" })
        : answerButton("Deny", { decision: "deny" }, { glyph: "cross", kind: "deny", "data-key": "n" }),
      button("More", more, { kind: "plain", "data-key": "a", "aria-haspopup": "true" }),
    );

  async function more() {
    const path = `/api/rules/${encodeURIComponent(question.id)}`;
    options ??= await get(path).catch(() => ({ rules: [], editable: false }));
    const last = back();
    const remembered = (question.request.rememberedAs ?? []).map(ruleLine);
    replace(
      bar,
      answerButton("Allow in this session", { decision: "allow", remember: "session" }, { glyph: "check" }),
      remembered.length > 0 &&
        h(
          "p",
          { class: "quiet remembered" },
          "In this session: ",
          h("code", { dir: "auto" }, plain(remembered.join("; "))),
        ),
      button("Always allow…", always, { glyph: "check" }),
      options?.editable && button("Edit, then allow…", edit, { glyph: "edit" }),
      button("Deny with a message…", deny, { glyph: "cross" }),
      last,
    );
    last.focus(); // never on what allows
  }

  function always() {
    const rules = options?.rules ?? [];
    const intro = h(
      "p",
      { tabindex: "-1" },
      rules.length
        ? "This will be added to the policy of this server:"
        : "No rule can be made from this request; it can be allowed for this session only.",
    );
    replace(
      bar,
      intro,
      rules.length > 0 && [
        h("pre", { class: "command" }, plain(rules.map(ruleText).join("\n"))),
        answerButton("Add the rule and allow", { decision: "allow", remember: "always" }, { glyph: "check" }),
      ],
      back(),
    );
    intro.focus(); // never on what allows
  }

  function edit() {
    const input = question.request.input ?? {};
    const name = ["command", ...NEW_TEXTS].find((key) => typeof input[key] === "string") ?? "";
    const area = h("textarea", {
      class: "code",
      rows: name && name !== "command" ? 12 : 5,
      "aria-label": "Edited input",
      spellcheck: "false",
      autocapitalize: "off",
      value: name ? input[name] : JSON.stringify(input, null, 2),
    });
    const submit = (/** @type {Event} */ event) => {
      try {
        const updatedInput = name ? { ...input, [name]: area.value } : JSON.parse(area.value);
        return answer({ decision: "allow", updatedInput }, event);
      } catch (fault) {
        return toast(`not valid JSON: ${messageOf(fault)}`, "error");
      }
    };
    replace(bar, area, button("Allow as edited", submit, { glyph: "check" }), back());
    area.focus();
  }

  function deny() {
    const area = h("textarea", {
      rows: 3,
      "aria-label": "Reason for the agent",
      placeholder: "What should it do instead?",
    });
    const stop = h("input", { type: "checkbox", id: `stop-${question.id}` });
    const submit = (/** @type {Event} */ event) =>
      answer({ decision: "deny", message: area.value, interrupt: stop.checked }, event);
    replace(
      bar,
      area,
      h("label", { class: "check" }, stop, "Also stop the turn"),
      button("Deny", submit, { glyph: "cross", kind: "deny" }),
      back(),
    );
    area.focus();
  }

  if (schemaOf(question.request)) return replace(bar, schemaForm(question.request, answer));
  if (userQuestions(question.request).length) return replace(bar, userQuestionForm(question.request, answer));
  return choose();
}

/** @param {Record<string, unknown>} rule */
const ruleLine = ({ tools, ...rest }) =>
  [tools, ...Object.values(rest)]
    .flat()
    .filter((value) => typeof value === "string" && value !== "allow")
    .join(" ");

/** @param {Record<string, unknown>} rule */
function ruleText(rule) {
  const text = (/** @type {unknown} */ value) => (typeof value === "string" ? value : JSON.stringify(value));
  return Object.entries(rule)
    .map(([name, value]) => `${name}: ${text(value)}`)
    .join("\n");
}

// -- an agent that asks its user something: its choices, and a field for another answer

/**
 * @param {unknown} value
 * @returns {Record<string, any>[]}
 */
const objectsIn = (value) => (Array.isArray(value) ? value.filter((item) => item && typeof item === "object") : []);

/**
 * @param {Unified.PermissionRequest} request
 * @returns {Page.UserQuestion[]}
 */
function userQuestions(request) {
  if (request.toolName !== "question") return [];
  return objectsIn(request.input?.questions)
    .filter(({ question }) => typeof question === "string" && question)
    .map(({ question, multiSelect, multiple, isSecret, options }) => ({
      text: question,
      several: Boolean(multiSelect || multiple),
      secret: isSecret === true,
      choices: objectsIn(options).map(choice).filter(hasLabel),
    }));
}

/**
 * @param {Record<string, any>} option
 * @returns {[string, string]}
 */
const choice = ({ label, value, description }) => [String(label ?? value ?? ""), String(description ?? "")];

/** @param {[string, string]} choice */
const hasLabel = ([label]) => Boolean(label);

/**
 * @param {Unified.PermissionRequest} request
 * @param {(answer: Page.Answer, event: Event) => unknown} answer
 */
function userQuestionForm(request, answer) {
  const fields = userQuestions(request).map((question, at) => field(question, `${request.requestId}-${at}`));
  const send = (/** @type {Event} */ event) => {
    /** @type {Record<string, string | string[]>} */
    const answers = {};
    for (const { question, read } of fields) {
      const values = read();
      if (!values.length) return toast("Choose or write an answer first", "error");
      answers[question.text] = question.several ? values : values[0];
    }
    return answer({ decision: "allow", updatedInput: { ...request.input, answers } }, event);
  };
  const decline = (/** @type {Event} */ event) =>
    answer({ decision: "deny", message: "the user does not want to answer" }, event);
  return [
    fields.map(({ element }) => element),
    button("Answer", send, { glyph: "send" }),
    button("Do not answer", decline, { glyph: "cross", kind: "deny", "data-key": "n" }),
  ];
}

/**
 * What a tool server asks for, as a JSON schema of plain fields.
 * @param {Unified.PermissionRequest} request
 * @returns {{ properties: Record<string, any>, required?: string[] } | null}
 */
function schemaOf({ toolName, input }) {
  const schema = input?.schema;
  return toolName === "question" && schema?.properties && Object.keys(schema.properties).length ? schema : null;
}

/**
 * @param {Unified.PermissionRequest} request
 * @param {(answer: Page.Answer, event: Event) => unknown} answer
 */
function schemaForm(request, answer) {
  const { properties = {}, required = [] } = schemaOf(request) ?? {};
  const fields = Object.entries(properties).map(([name, shape]) => schemaField(name, shape, required.includes(name)));
  const send = (/** @type {Event} */ event) => {
    /** @type {Record<string, unknown>} */
    const content = {};
    for (const { name, input, read, isRequired } of fields) {
      const value = read();
      if (value === undefined && isRequired) return input.focus();
      if (!input.reportValidity()) return undefined;
      if (value !== undefined) content[name] = value;
    }
    return answer({ decision: "allow", answer: JSON.stringify(content) }, event);
  };
  const decline = (/** @type {Event} */ event) =>
    answer({ decision: "deny", message: "the user does not want to answer" }, event);
  return [
    h("p", { dir: "auto" }, plain(request.input?.message ?? "")),
    fields.map(({ element }) => element),
    button("Answer", send, { glyph: "send" }),
    button("Do not answer", decline, { glyph: "cross", kind: "deny", "data-key": "n" }),
  ];
}

/** @type {Record<string, string>} */
const INPUT_TYPES = { email: "email", uri: "url", date: "date", "date-time": "datetime-local" };

/**
 * @param {string} name
 * @param {Record<string, any>} shape
 * @param {boolean} isRequired
 */
function schemaField(name, shape, isRequired) {
  const { type, title, description, format, minimum: min, maximum: max } = shape;
  const items = type === "array" ? (shape.items ?? {}) : shape;
  const choices = objectsIn(items.oneOf ?? items.anyOf).map((one) => [
    String(one.const ?? ""),
    String(one.title ?? one.const),
  ]);
  /** @type {string[][]} */
  const values = choices.length
    ? choices
    : (items.enum ?? []).map((/** @type {unknown} */ one) => [String(one), String(one)]);
  const isNumber = type === "number" || type === "integer";
  /** @type {HTMLInputElement | HTMLSelectElement} */
  let input = h("input", {
    type: isNumber ? "number" : (INPUT_TYPES[format] ?? "text"),
    value: shape.default ?? "",
    ...(isNumber && { min, max, step: type === "integer" ? 1 : "any" }),
  });
  if (type === "boolean") input = h("input", { type: "checkbox", checked: shape.default === true });
  else if (values.length) {
    const options = values.map(([value, label]) => h("option", { value }, plain(label)));
    input = h(
      "select",
      { multiple: type === "array" },
      type !== "array" && h("option", { value: "" }, "Choose…"),
      options,
    );
    if (typeof shape.default === "string") input.value = shape.default;
  }
  const read = () => {
    if (input instanceof HTMLSelectElement && input.multiple)
      return [...input.selectedOptions].map(({ value }) => value);
    if (input instanceof HTMLInputElement && type === "boolean") return input.checked;
    if (input.value === "") return undefined;
    return isNumber ? Number(input.value) : input.value;
  };
  const label = plain(title ?? name) + (isRequired ? " *" : "");
  const element = h(
    "label",
    { class: type === "boolean" ? "check" : "field" },
    type === "boolean" ? [input, label] : [label, input],
    description && h("span", { class: "quiet", dir: "auto" }, plain(description)),
  );
  return { name, element, input, read, isRequired };
}

/**
 * @param {Page.UserQuestion} question
 * @param {string} name
 */
function field(question, name) {
  const type = question.several ? "checkbox" : "radio";
  const inputs = question.choices.map(([label]) => h("input", { type, name, value: label }));
  const other = h("input", {
    type: question.secret ? "password" : "text",
    autocomplete: "off",
    placeholder: inputs.length ? "Another answer" : "Your answer",
    "aria-label": plain(question.text),
  });
  const rows = question.choices.map(([label, help], at) =>
    h(
      "label",
      { class: "choice" },
      inputs[at],
      h("b", { dir: "auto" }, plain(label)),
      help && help !== label && h("span", { class: "quiet", dir: "auto" }, plain(help)),
    ),
  );
  const element = h(
    "fieldset",
    { class: "user-question" },
    h("legend", { dir: "auto" }, plain(question.text)),
    rows,
    other,
  );
  const read = () => {
    const text = other.value.trim();
    return text ? [text] : inputs.filter(({ checked }) => checked).map(({ value }) => value);
  };
  return { question, element, read };
}
