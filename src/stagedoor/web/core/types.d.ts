// What the page's modules share. Only the type checker reads this file: it is not served.

declare namespace Page {
  // -- items: what a session's events are folded into

  interface ItemHead {
    /** The number of the event that began the item. */
    key: string;
    /** Grows when the item changes. */
    version: number;
    /** The call of the sub-agent whose item this is. */
    parent?: ToolItem;
  }
  interface TextItem extends ItemHead {
    kind: "text" | "thinking";
    text: string;
    whole: boolean;
  }
  /** A text, or a part of it. */
  interface TextPiece {
    text: string;
    messageId?: string;
    parentToolUseId?: string | null;
  }
  interface ToolItem extends ItemHead {
    kind: "tool";
    use: Unified.ToolUse;
    output: string;
    result?: Unified.ToolResult;
    children: Item[];
    changes: Unified.FileChange[];
  }
  interface PlanItem extends ItemHead {
    kind: "plan";
    steps: Unified.PlanItem[];
    turn: number;
  }
  interface QuestionItem extends ItemHead {
    kind: "question";
    request: Unified.PermissionRequest;
    resolution?: Unified.PermissionResolved;
  }
  interface QueuedItem extends ItemHead {
    kind: "queued";
    text: string;
    unsent: boolean;
    /** Of the message on the server. */
    id: string;
    place: number;
    paused: boolean;
    /** Pictures that go with it. */
    images?: string[];
  }
  interface NoticeItem extends ItemHead {
    kind: "notice";
    event: Unified.Notice;
  }
  type Item =
    | TextItem
    | ToolItem
    | PlanItem
    | QuestionItem
    | NoticeItem
    | (ItemHead & { kind: "init"; event: Unified.Init })
    | (ItemHead & { kind: "prompt"; text: string })
    | QueuedItem
    | (ItemHead & { kind: "change"; change: Unified.FileChange })
    | (ItemHead & { kind: "retry"; event: Unified.Retry })
    | (ItemHead & { kind: "error"; event: Unified.Error })
    | (ItemHead & { kind: "unrecognized"; event: { raw: string; why: string } })
    | (ItemHead & { kind: "turn"; event: Unified.TurnCompleted })
    | (ItemHead & { kind: "done"; event: Unified.Done })
    | (ItemHead & { kind: "wait" | "gap" });
  /** An item before it has its place. */
  type NewItem = Item extends infer One ? (One extends Item ? Omit<One, "key" | "version"> : never) : never;

  // -- what the REST door answers

  interface Session {
    id: string;
    agent: string;
    cwd: string;
    state: "running" | "done" | "failed" | "cancelled";
    status?: Unified.TurnCompleted["status"] | null;
    activity: "starting" | "working" | "waiting" | "idle" | "asleep" | "ended";
    title: string;
    prompt: string;
    projectId: string;
    nativeId: string;
    keepOpen: boolean;
    archived: boolean;
    group: string;
    branch: string;
    worktree: "" | "open" | "kept" | "removed";
    createdAt: number;
    updatedAt: number;
    firstSeq: number;
    lastSeq: number;
    result: string;
    usage: Unified.Usage | null;
    costUsd: number | null;
    linesAdded: number;
    linesRemoved: number;
    openQuestions: number;
    queued: number;
    queuePaused: boolean;
    model: string;
    tier: string;
    approval: string | null;
    /** The session that has started this one. */
    parent?: string;
    turn: number;
    wanted: { cwd?: string } | null;
    /** The machine that has it, or had it last, by its id. */
    worker: string;
    /** Where its files are: `host:NAME`, or `git:ADDRESS@REF` of a repository that any machine may bring. */
    place: string;
  }
  interface Machine {
    id: string;
    name: string;
    labels: string[];
    seats: number;
    version: string;
    draining: boolean;
    revoked: boolean;
    away: boolean;
    seenAt: number;
    sessions: { id: string; title: string; agent: string }[];
  }
  interface Change {
    title?: string;
    archived?: boolean;
    queuePaused?: boolean;
    model?: string;
    tier?: string;
    approval?: string;
  }
  interface SessionPage {
    sessions: Session[];
    total: number;
  }
  interface Question {
    id: string;
    sessionId: string;
    agent: string;
    request: Unified.PermissionRequest;
    open: boolean;
    askedAt?: number;
    who?: string;
  }
  interface Answer {
    decision: "allow" | "deny";
    remember?: "session" | "always";
    updatedInput?: Record<string, any>;
    message?: string;
    interrupt?: boolean;
    /** What the agent itself asks for. */
    answer?: string;
  }
  interface Agent {
    agent: string;
    title: string;
    version: string;
    installed: boolean;
    enabled: boolean;
    signedIn: boolean | null;
    default: boolean;
    problem: string;
    fix: string;
  }
  /** A session that an agent's own program has stored. */
  interface PastSession {
    agent: string;
    nativeId: string;
    sessionId: string;
    cwd: string;
    place: string;
    title: string;
    firstPrompt: string;
    updatedAt: number;
  }
  interface Device {
    id: string;
    name: string;
    scopes: string[];
    seenAt: number | null;
    current: boolean;
  }
  interface Delivery {
    at: number;
    problem: string;
  }
  interface Push {
    publicKey: string;
    subscribed: boolean;
    events: string[];
    content: boolean;
    last: Delivery | null;
  }
  interface Receiver {
    id: string;
    kind: "webhook" | "ntfy" | "push";
    origin: "config" | "page" | "device";
    name: string;
    last: Delivery | null;
  }
  interface UsageRow {
    key: string;
    usage: Unified.Usage;
  }
  interface AuditEntry {
    at: number;
    who: string;
    entry: { decision: string; target: string; tool: string; agent: string; by: string; rule: string };
  }
  interface QueuedMessage {
    id: string;
    prompt: string;
    images: string[];
  }
  interface Attachment {
    name: string;
    /** base64 */
    content: string;
    size: number;
    /** A data: address, or empty where it is no picture. */
    picture: string;
  }
  /** What can stand after ``@`` or ``/``: the word, and what it means. */
  type Complete = (mark: string, text: string) => Promise<[string, string][]>;
  /** What an agent says of itself. */
  interface Report {
    commands?: { name: string; description: string }[];
    contextUsed?: number | null;
    contextSize?: number | null;
    quotas?: { name: string; usedPercent: number; resetsAt: number | null }[];
  }
  interface Setting {
    id: string;
    kind: "mode" | "model" | "effort" | "other";
    name: string;
    value: string;
    choices: { value: string; name: string; about: string }[];
    locked: string;
  }
  /** A message that has been written and may not have reached the server. */
  interface OutboxMessage {
    id: string;
    prompt: string;
    key: string;
  }
  interface Gap {
    missingFrom: number;
    missingTo: number;
  }
  interface Notification {
    method: string;
    params?: any;
  }

  type OpenSession = import("./store.js").OpenSession;
  type OnlineListener = (online: boolean) => void;

  // -- elements

  type Child = Node | string | number | boolean | null | undefined | Child[];
  type Attributes = Record<string, any>;
  interface ButtonOptions extends Attributes {
    kind?: string;
    glyph?: string;
    title?: string;
  }
  type MakeElement = (item: Item, before?: HTMLElement) => HTMLElement;
  /** Items on screen, and how far each is below the screen's top. */
  type Anchor = { key: string; below: number }[];
  /** What items need to know of their session. */
  interface ItemContext {
    cards: Map<string, HTMLElement>;
    cwd: () => string | undefined;
    workplace: () => string;
    /** The device that answered a question; empty where it is not known. */
    whoAnswered: (requestId: string) => string;
    questionOf: (request: Unified.PermissionRequest) => Question;
    /** The address of a picture that was sent. */
    picture: (id: string) => Promise<string>;
    changeQueue: (action: "edit" | "up" | "remove" | "resume", item: QueuedItem) => unknown;
  }
  interface DiffOptions {
    /** The file's name, which says how to colour it. */
    path?: string;
    /** Called with a line that somebody wants to comment on, and the element after which the comment stands. */
    comment?: (row: DiffRow, element: Element) => void;
  }
  interface GitStatus {
    repository: boolean;
    branch: string;
    ahead: number;
    files: { path: string; change: string; staged: boolean }[];
    remote: string;
    pushProblem: string;
    pullRequest: string;
  }
  interface Checkpoint {
    id: string;
    turn: number;
    kind: "turn" | "undo";
    at: number;
  }
  interface FileEntry {
    name: string;
    path: string;
    kind: "file" | "folder" | "link" | "other";
  }
  interface DiffRow {
    kind: "added" | "removed" | "same" | "hunk";
    text: string;
    old?: number;
    now?: number;
    /** What comes before the change within the line, the change, and what comes after it. */
    parts?: string[];
  }
  /** A question of the agent to its user, with choices. */
  interface UserQuestion {
    text: string;
    several: boolean;
    secret: boolean;
    choices: [string, string][];
  }
  interface Project {
    id: string;
    path: string;
  }
  type FillCard = (body: HTMLElement, again: () => void) => unknown;
}

interface HTMLElementTagNameMap {
  "virtual-list": import("./virtual.js").VirtualList;
  "message-composer": import("../parts/composer.js").MessageComposer;
}
