// A session's events folded into what is shown: pure, so that the same events always give the same page.
// An item has a key, a kind and a version that grows when it changes; sub-agents' items stand inside their call.

export class Fold {
  constructor() {
    this.items = [];
    this.tools = new Map();
    this.questions = new Map();
    this.open = new Map(); // texts still being said, by parent
    this.usage = null;
    this.cost = null;
    this.first = null; // the first seq folded
    this.last = 0;
    this.plan = null;
    this.turn = 0;
    this.version = 0;
  }

  add(events) {
    for (const event of events) {
      this.first ??= event.seq;
      this.last = event.seq;
      this.take(event);
    }
    this.version += 1;
  }

  take(event) {
    switch (event.type) {
      case "init":
        this.put({ kind: "init", event });
        break;
      case "turn_started":
        this.turn = event.turn;
        this.open.clear();
        if (event.prompt) this.put({ kind: "prompt", text: event.prompt, at: event.timestamp });
        break;
      case "text_delta":
      case "thinking_delta":
        this.say(event, event.type === "text_delta" ? "text" : "thinking", false);
        break;
      case "text":
      case "thinking":
        this.say(event, event.type, true);
        break;
      case "tool_use": {
        const item = this.put(
          { kind: "tool", use: event, at: event.timestamp, output: "", inner: [], changes: [] },
          event,
        );
        this.tools.set(event.toolUseId, item);
        break;
      }
      case "tool_progress":
        this.touch(event.toolUseId, (item) => (item.output += event.output ?? ""));
        break;
      case "tool_result":
        this.touch(event.toolUseId, (item) => (item.result = event));
        break;
      case "file_change": {
        const owner = this.tools.get(event.toolUseId);
        if (owner) this.touch(event.toolUseId, (item) => item.changes.push(event));
        else this.put({ kind: "change", change: event }, event);
        break;
      }
      case "plan": {
        const last = this.plan;
        if (last && last.turn === this.turn && !event.parentToolUseId)
          this.bump(last, () => (last.items = event.items));
        else this.plan = this.put({ kind: "plan", items: event.items ?? [], turn: this.turn }, event);
        break;
      }
      case "permission_request": {
        // Never inside a call's card, not even a sub-agent's: it must be seen, and stand still while others change.
        const item = this.put({ kind: "question", request: event });
        this.questions.set(event.requestId, item);
        break;
      }
      case "permission_resolved": {
        const item = this.questions.get(event.requestId);
        if (item) this.bump(item, () => (item.resolved = event));
        break;
      }
      case "usage":
        this.usage = event.session ?? event;
        this.cost = event.session?.costUsd ?? event.costUsd ?? this.cost;
        break;
      case "notice": {
        // An agent that is silent for long says so every minute: one line grows.
        const last = this.items.at(-1);
        if (event.code === "stalled" && last?.event?.code === "stalled") this.bump(last, () => (last.event = event));
        else if (event.code === "steered") this.put({ kind: "prompt", text: event.message });
        else this.put({ kind: "notice", event }, event);
        break;
      }
      case "retry":
      case "error":
      case "unrecognized":
        this.put({ kind: event.type, event }, event);
        break;
      case "turn_completed":
        this.open.clear();
        this.put({ kind: "turn", event });
        break;
      case "done":
        this.usage = event.usage ?? this.usage;
        this.put({ kind: "done", event });
        break;
      default:
        this.put({ kind: "unrecognized", event: { raw: JSON.stringify(event), why: `an event called ${event.type}` } });
    }
  }

  put(item, event) {
    item.key = `${this.last}`;
    item.version = 0;
    const owner = event?.parentToolUseId ? this.tools.get(event.parentToolUseId) : null;
    if (owner && owner !== item) {
      item.owner = owner;
      this.bump(owner, () => owner.inner.push(item));
    } else this.items.push(item);
    if (item.kind !== "text" && item.kind !== "thinking") this.open.delete(event?.parentToolUseId ?? "");
    return item;
  }

  say(event, kind, whole) {
    const place = event.parentToolUseId ?? "";
    let item = this.open.get(place);
    if (item && item.kind !== kind) item = null;
    if (whole) {
      if (item) this.bump(item, () => ((item.text = event.text), (item.whole = true)));
      else this.put({ kind, text: event.text, whole: true }, event);
      this.open.delete(place);
      return;
    }
    if (item) return this.bump(item, () => (item.text += event.text));
    this.open.set(place, this.put({ kind, text: event.text, whole: false }, event));
  }

  touch(toolUseId, change) {
    const item = this.tools.get(toolUseId);
    if (item) this.bump(item, () => change(item));
  }

  bump(item, change) {
    change();
    for (let one = item; one; one = one.owner) one.version += 1;
  }
}
