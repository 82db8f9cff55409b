// Events → what the page shows: a table of cases, recordings of real CLIs, and promises that hold for all of them.

import assert from "node:assert/strict";
import { describe, test } from "node:test";

import { Fold } from "../../../src/stagedoor/web/core/fold.js";
import { recording, recordings } from "./recorded.js";

const folded = (...batches) => {
  const fold = new Fold();
  for (const batch of batches) fold.add(batch);
  return fold;
};

/** Events without a header, numbered from 1. */
const numbered = (events) => events.map((event, at) => ({ seq: at + 1, turn: 1, ...event }));

/** One line per item: what a reader sees of it. */
const outline = (items) =>
  items.flatMap((item) => {
    switch (item.kind) {
      case "text":
      case "thinking":
        return `${item.kind}${item.whole ? "" : " …"}: ${item.text.slice(0, 40)}`;
      case "prompt":
        return `prompt: ${item.text.slice(0, 40)}`;
      case "tool": {
        const line = `${item.use.name}: ${item.result?.status ?? "running"}`;
        return item.children.length ? [line, outline(item.children)] : [line];
      }
      case "plan":
        return `plan: ${item.steps.map((step) => step.status).join(" ")}`;
      case "question":
        return `question: ${item.resolution?.decision ?? "open"}`;
      case "change":
        return `${item.change.change}: ${item.change.path}`;
      case "turn":
      case "done":
        return `${item.kind}: ${item.event.status}`;
      default:
        return item.kind;
    }
  });

const everyItem = (items) => items.flatMap((item) => [item, ...everyItem(item.children ?? [])]);

const use = (id, more = {}) => ({ type: "tool_use", toolUseId: id, name: "shell", operation: "execute", ...more });
const result = (id, more = {}) => ({ type: "tool_result", toolUseId: id, name: "shell", status: "success", ...more });
const plan = (...states) => ({ type: "plan", items: states.map((status) => ({ text: "x", status })) });
const stalled = (message) => ({ type: "notice", level: "info", code: "stalled", message });
const ask = { type: "permission_request", requestId: "r", toolName: "shell" };

const CASES = {
  "deltas grow one text, the whole text completes it": [
    [
      { type: "text_delta", text: "One " },
      { type: "text_delta", text: "two" },
      { type: "text", text: "One two." },
    ],
    ["text: One two."],
  ],
  "a text without its end stays open": [[{ type: "text_delta", text: "One" }], ["text …: One"]],
  "thinking does not continue a text": [
    [
      { type: "text_delta", text: "A" },
      { type: "thinking_delta", text: "B" },
      { type: "text_delta", text: "C" },
    ],
    ["text …: A", "thinking …: B", "text …: C"],
  ],
  "a call between two texts parts them": [
    [{ type: "text_delta", text: "A" }, use("1"), { type: "text_delta", text: "B" }],
    ["text …: A", "shell: running", "text …: B"],
  ],
  "a text that ends after its call is shown once": [
    [
      { type: "text_delta", text: "I will", messageId: "m" },
      use("1"),
      { type: "text", text: "I will run it.", messageId: "m" },
    ],
    ["text: I will run it.", "shell: running"],
  ],
  "a second text of the same message is another one": [
    [
      { type: "text_delta", text: "A", messageId: "m" },
      { type: "text", text: "A", messageId: "m" },
      use("1"),
      { type: "text", text: "AB", messageId: "m" },
    ],
    ["text: A", "shell: running", "text: AB"],
  ],
  "a new turn parts them, too": [
    [
      { type: "text_delta", text: "A" },
      { type: "turn_started", prompt: "Go", turn: 2 },
      { type: "text", text: "B" },
    ],
    ["text …: A", "prompt: Go", "text: B"],
  ],
  "a turn without a prompt shows no prompt": [[{ type: "turn_started", prompt: "" }], []],
  "a call and its result are one item": [[use("1"), result("1", { status: "denied" })], ["shell: denied"]],
  "a result without its call is left out": [[result("1")], []],
  "a sub-agent's items stand inside its call": [
    [
      use("1", { name: "task" }),
      { type: "text", text: "Inside", parentToolUseId: "1" },
      use("2", { parentToolUseId: "1" }),
      result("2", { parentToolUseId: "1" }),
      result("1"),
      { type: "text", text: "Outside" },
    ],
    ["task: success", ["text: Inside", "shell: success"], "text: Outside"],
  ],
  "two agents' texts do not mix": [
    [
      use("1", { name: "task" }),
      { type: "text_delta", text: "out" },
      { type: "text_delta", text: "in", parentToolUseId: "1" },
      { type: "text_delta", text: "side" },
      { type: "text_delta", text: "side", parentToolUseId: "1" },
    ],
    ["task: running", ["text …: inside"], "text …: outside"],
  ],
  "an item of an unknown call is shown all the same": [
    [{ type: "text", text: "Lost", parentToolUseId: "?" }],
    ["text: Lost"],
  ],
  "a plan is replaced within its turn, and new in the next": [
    [
      { type: "turn_started", prompt: "", turn: 1 },
      plan("pending"),
      plan("completed"),
      { type: "turn_started", prompt: "", turn: 2 },
      plan("pending", "pending"),
    ],
    ["plan: completed", "plan: pending pending"],
  ],
  "a question is never inside a call": [
    [use("1", { name: "task" }), { ...ask, parentToolUseId: "1" }],
    ["task: running", "question: open"],
  ],
  "an answer closes its question": [
    [ask, { type: "permission_resolved", requestId: "r", decision: "deny", by: "client" }],
    ["question: deny"],
  ],
  "a change belongs to its call, or stands alone": [
    [
      use("1"),
      { type: "file_change", path: "a.py", change: "modified", toolUseId: "1" },
      { type: "file_change", path: "b.py", change: "created" },
    ],
    ["shell: running", "created: b.py"],
  ],
  "a message in mid-turn is a prompt": [
    [{ type: "notice", level: "info", code: "steered", message: "Mind the tests" }],
    ["prompt: Mind the tests"],
  ],
  "a long silence takes one line": [
    [stalled("1 min"), stalled("2 min"), { type: "notice", code: "mode", message: "plan" }, stalled("3 min")],
    ["notice", "notice", "notice"],
  ],
  "an event of a newer server is shown": [[{ type: "applause" }], ["unrecognized"]],
};

describe("cases", () => {
  for (const [name, [events, expected]] of Object.entries(CASES))
    test(name, () => assert.deepEqual(outline(folded(numbered(events)).items), expected));
});

test("items keep the number of their first event, and count their changes", () => {
  const { items } = folded(numbered([stalled("1"), stalled("2"), { type: "notice", code: "mode" }, stalled("4")]));
  assert.deepEqual(
    items.map(({ key, version, event }) => [key, version, event.message]),
    [
      ["1", 1, "2"],
      ["3", 0, undefined],
      ["4", 0, "4"],
    ],
  );
});

test("a change inside a call changes the calls around it", () => {
  const inner = [use("1", { name: "task" }), use("2", { name: "task", parentToolUseId: "1" })];
  const { items } = folded(numbered([...inner, { type: "text", text: "deep", parentToolUseId: "2" }]));
  assert.deepEqual([items[0].version, items[0].children[0].version], [2, 1]);
});

test("usage: the session's own figure, and what it cost", () => {
  const session = { totalTokens: 30, costUsd: 0.5 };
  const fold = folded(numbered([{ type: "usage", totalTokens: 10, session }]));
  assert.deepEqual([fold.usage, fold.cost], [session, 0.5]);
});

describe("recordings", () => {
  const SHAPES = {
    "claude-2.1.197/10-subagent": [
      "init",
      "text: Delegating.",
      "task: success",
      ["shell: success"],
      "text: The sub-agent reported back.",
      "turn: success",
      "done: success",
    ],
    "opencode-1.18.33/42-serve-password": [
      "init",
      'prompt: [[call:bash {"command":"pwd","descriptio',
      "shell: success",
      "text: All calls are done.",
      "turn: success",
      'prompt: [[call:question {"questions":[{"question',
      "question: success",
      "question: allow",
      "text: All calls are done.",
      "turn: success",
      "shell: success",
      "turn: success",
      "text: I will run a command.",
      "shell: denied",
      "question: deny",
      "turn: interrupted",
      "error",
      "turn: error",
      "done: error",
    ],
  };
  for (const [name, expected] of Object.entries(SHAPES))
    test(name, () => assert.deepEqual(outline(folded(recording(name)).items), expected));

  for (const [name, events] of recordings()) {
    test(`promises: ${name}`, () => {
      const whole = folded(events);
      const items = everyItem(whole.items);
      const of = (...kinds) => items.filter(({ kind }) => kinds.includes(kind));
      const typed = (...types) => events.filter(({ type }) => types.includes(type));

      // However the events arrive, the page is the same.
      assert.deepEqual(versionless(folded(...events.map((event) => [event])).items), versionless(whole.items));
      const half = events.length >> 1;
      assert.deepEqual(folded(events.slice(0, half), events.slice(half)).items, whole.items);

      // Nothing is lost, nothing is shown twice.
      assert.deepEqual(
        of("text", "thinking")
          .map(({ text }) => text)
          .sort(),
        typed("text", "thinking")
          .map(({ text }) => text)
          .sort(),
      );
      assert.equal(of("tool").length, typed("tool_use").length);
      assert.equal(of("tool").filter((item) => item.result).length, typed("tool_result").length);
      assert.equal(of("question").filter((item) => item.resolution).length, typed("permission_resolved").length);
      assert.equal(of("error", "retry", "unrecognized").length, typed("error", "retry", "unrecognized").length);
      const changes = of("change").length + of("tool").reduce((sum, item) => sum + item.changes.length, 0);
      assert.equal(changes, typed("file_change").length);
      assert.deepEqual([of("turn").length, of("done").length], [typed("turn_completed").length, typed("done").length]);

      // Every item has a key of its own, and they stand in order.
      const keys = whole.items.map(({ key }) => Number(key));
      assert.equal(new Set(items.map(({ key }) => key)).size, items.length);
      assert.deepEqual(
        keys,
        keys.toSorted((a, b) => a - b),
      );
    });
  }
});

function versionless(items) {
  return JSON.parse(JSON.stringify(items, (name, value) => (name === "parent" ? undefined : value)));
}
