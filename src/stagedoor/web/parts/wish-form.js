// An agent that wants to know something: its choices, and a place for another answer.

import { button, h, toast } from "../core/dom.js";
import { plain } from "../core/text.js";

const tables = (value) => (Array.isArray(value) ? value.filter((one) => one && typeof one === "object") : []);

export function wishes(request) {
  if (request.toolName !== "question") return [];
  return tables(request.input?.questions)
    .filter((one) => typeof one.question === "string" && one.question)
    .map((one) => ({
      text: one.question,
      several: Boolean(one.multiSelect || one.multiple),
      secret: one.isSecret === true,
      choices: tables(one.options)
        .map((option) => [String(option.label ?? option.value ?? ""), String(option.description ?? "")])
        .filter(([label]) => label),
    }));
}

export function wishForm(request, answer) {
  const fields = wishes(request).map((wish, at) => field(wish, `${request.requestId}-${at}`));
  const send = (event) => {
    const answers = {};
    for (const { wish, read } of fields) {
      const chosen = read();
      if (!chosen.length) return toast("Choose or write an answer first", "error");
      answers[wish.text] = wish.several ? chosen : chosen[0];
    }
    return answer({ decision: "allow", updatedInput: { ...request.input, answers } }, event);
  };
  const refuse = (event) => answer({ decision: "deny", message: "the user does not want to answer" }, event);
  return [
    fields.map((one) => one.element),
    button("Answer", send, { glyph: "send" }),
    button("No answer", refuse, { glyph: "cross", kind: "deny", "data-key": "n" }),
  ];
}

function field(wish, name) {
  const inputs = wish.choices.map(([label]) =>
    h("input", { type: wish.several ? "checkbox" : "radio", name, value: label }),
  );
  const other = h("input", {
    type: wish.secret ? "password" : "text",
    autocomplete: "off",
    placeholder: inputs.length ? "or something else" : "Your answer",
    "aria-label": plain(wish.text),
  });
  const rows = wish.choices.map(([label, help], at) =>
    h(
      "label",
      { class: "choice" },
      inputs[at],
      h("b", { dir: "auto" }, plain(label)),
      help && help !== label && h("span", { class: "quiet", dir: "auto" }, plain(help)),
    ),
  );
  const element = h("fieldset", { class: "wish" }, h("legend", { dir: "auto" }, plain(wish.text)), rows, other);
  const read = () =>
    other.value.trim() ? [other.value.trim()] : inputs.filter((one) => one.checked).map((one) => one.value);
  return { wish, element, read };
}
