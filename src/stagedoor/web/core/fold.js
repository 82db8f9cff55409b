// A session's events folded into what is shown: pure, so that the same events always give the same page.
// An item has a key, a kind and a version that grows when it changes; sub-agents' items stand inside their call.

export class Fold {
  constructor() {
    /** @type {Page.Item[]} */
    this.items = [];
    /** @type {Map<string, Page.ToolItem>} */
    this.tools = new Map();
    /** @type {Map<string, Page.QuestionItem>} */
    this.questions = new Map();
    /** @type {Map<string, Page.TextItem>} texts that still grow, by parent call */
    this.growing = new Map();
    /** @type {Map<string, Page.TextItem>} texts that a call has parted from their end, by message */
    this.unfinished = new Map();
    /** @type {Unified.Usage | null} */
    this.usage = null;
    /** @type {number | null} */
    this.cost = null;
    /** @type {Page.PlanItem | null} */
    this.plan = null;
    this.lastSeq = 0;
    this.turn = 0;
  }

  /** @param {Unified.Event[]} events */
  add(events) {
    for (const event of events) {
      this.lastSeq = event.seq;
      this.addEvent(event);
    }
  }

  /** @param {Unified.Event} event */
  addEvent(event) {
    switch (event.type) {
      case "init":
        this.put({ kind: "init", event });
        break;
      case "turn_started":
        this.turn = event.turn ?? 0;
        this.growing.clear();
        if (event.prompt) this.put({ kind: "prompt", text: event.prompt });
        break;
      case "text_delta":
        this.growText(event, "text");
        break;
      case "thinking_delta":
        this.growText(event, "thinking");
        break;
      case "text":
      case "thinking":
        this.completeText(event);
        break;
      case "tool_use": {
        const item = this.put({ kind: "tool", use: event, output: "", children: [], changes: [] }, event);
        this.tools.set(event.toolUseId, /** @type {Page.ToolItem} */ (item));
        break;
      }
      case "tool_progress":
        this.changeTool(event.toolUseId, (item) => {
          item.output += event.output ?? "";
        });
        break;
      case "tool_result":
        this.changeTool(event.toolUseId, (item) => {
          item.result = event;
        });
        break;
      case "file_change":
        if (!this.changeTool(event.toolUseId, (item) => item.changes.push(event)))
          this.put({ kind: "change", change: event }, event);
        break;
      case "plan":
        if (this.plan?.turn === this.turn && !event.parentToolUseId) {
          this.plan.steps = event.items;
          this.touch(this.plan);
        } else {
          const item = this.put({ kind: "plan", steps: event.items ?? [], turn: this.turn }, event);
          this.plan = /** @type {Page.PlanItem} */ (item);
        }
        break;
      case "permission_request": {
        // Never inside a call's card, not even a sub-agent's: it must be visible, and not move while others change.
        const item = this.put({ kind: "question", request: event });
        this.questions.set(event.requestId, /** @type {Page.QuestionItem} */ (item));
        break;
      }
      case "permission_resolved": {
        const item = this.questions.get(event.requestId);
        if (!item) break;
        item.resolution = event;
        this.touch(item);
        break;
      }
      case "usage":
        this.usage = event.session ?? event;
        this.cost = event.session?.costUsd ?? event.costUsd ?? this.cost;
        break;
      case "notice": {
        // An agent that is silent for long reports it every minute: one line grows.
        const last = this.items.at(-1);
        if (event.code === "stalled" && last?.kind === "notice" && last.event.code === "stalled") {
          last.event = event;
          this.touch(last);
        } else if (event.code === "steered") this.put({ kind: "prompt", text: event.message });
        else this.put({ kind: "notice", event }, event);
        break;
      }
      case "files_restored": {
        const left = event.notRestored?.length ? `; ${event.notRestored.length} could not be restored` : "";
        const many = event.files === 1 ? "1 file" : `${event.files} files`;
        const message = `${many} restored to before turn ${event.beforeTurn}${left}`;
        this.put({ kind: "notice", event: { ...event, type: "notice", level: "info", code: event.type, message } });
        break;
      }
      case "retry":
        this.put({ kind: "retry", event }, event);
        break;
      case "error":
        this.put({ kind: "error", event }, event);
        break;
      case "unrecognized":
        this.put({ kind: "unrecognized", event }, event);
        break;
      case "turn_completed":
        this.growing.clear();
        this.put({ kind: "turn", event });
        break;
      case "done":
        this.usage = event.usage ?? this.usage;
        this.put({ kind: "done", event });
        break;
      default: {
        const { type } = /** @type {{ type: string }} */ (event); // of a server newer than this page
        this.put({ kind: "unrecognized", event: { raw: JSON.stringify(event), why: `unknown event type ${type}` } });
      }
    }
  }

  /**
   * @param {Page.NewItem} fields
   * @param {{ parentToolUseId?: string | null }} [event] whose parent call the item stands in; without it: in none
   * @returns {Page.Item}
   */
  put(fields, event) {
    const item = /** @type {Page.Item} */ ({ ...fields, key: `${this.lastSeq}`, version: 0 });
    const place = event?.parentToolUseId ?? "";
    const parent = this.tools.get(place);
    if (parent) {
      item.parent = parent;
      parent.children.push(item);
      this.touch(parent);
    } else this.items.push(item);
    if (item.kind !== "text" && item.kind !== "thinking") this.growing.delete(place);
    return item;
  }

  /**
   * @param {Page.TextPiece} event
   * @param {"text" | "thinking"} kind
   */
  growText(event, kind) {
    const place = event.parentToolUseId ?? "";
    const item = this.growing.get(place);
    if (item?.kind === kind) {
      item.text += event.text;
      this.touch(item);
      return;
    }
    const fresh = /** @type {Page.TextItem} */ (this.put({ kind, text: event.text, whole: false }, event));
    this.growing.set(place, fresh);
    if (event.messageId) this.unfinished.set(event.messageId, fresh);
  }

  /** @param {Page.TextPiece & { type: "text" | "thinking" }} event */
  completeText(event) {
    const place = event.parentToolUseId ?? "";
    const growing = this.growing.get(place);
    const unfinished = this.unfinished.get(event.messageId ?? "");
    let item = growing?.kind === event.type ? growing : null;
    // Some agents report a call before the end of the text that came before it.
    if (unfinished && event.text.startsWith(unfinished.text)) item = unfinished;
    if (item) {
      item.text = event.text;
      item.whole = true;
      this.touch(item);
    } else this.put({ kind: event.type, text: event.text, whole: true }, event);
    if (!item || item === growing) this.growing.delete(place);
    this.unfinished.delete(event.messageId ?? "");
  }

  /**
   * @param {string | undefined} toolUseId
   * @param {(item: Page.ToolItem) => void} change
   */
  changeTool(toolUseId, change) {
    const item = this.tools.get(toolUseId ?? "");
    if (!item) return false;
    change(item);
    this.touch(item);
    return true;
  }

  /** @param {Page.Item} item it has changed, and so have the calls it stands in */
  touch(item) {
    item.version += 1;
    if (item.parent) this.touch(item.parent);
  }
}
