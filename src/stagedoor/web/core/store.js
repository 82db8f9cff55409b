// The one store. Sessions and questions come from the change link; the session on screen has its events here too.
// Parts listen to topics ("sessions", "questions", "link", "session", "refused") and read what they need.

import { call, get, messageOf, newKey, Offline, post, query, sessionPath } from "./api.js";
import { Fold } from "./fold.js";
import { ChangeLink, EventLink } from "./link.js";
import { plain, workplace } from "./text.js";

const PAGE = 500;
const SEND_AGAIN = 3000;
const BURST = 60;
const OUTBOX = "stagedoor-outbox";
const AGENTS = "stagedoor-agents";

export class Store extends EventTarget {
  constructor() {
    super();
    /** @type {Map<string, Page.Session>} */
    this.sessions = new Map();
    /** @type {Map<string, Page.Question>} */
    this.questions = new Map();
    /** @type {Page.Question[]} questions that nobody has been notified of */
    this.newQuestions = [];
    /** @type {Page.Agent[] | null} */
    this.agents = null;
    /** @type {Page.Machine[]} empty where there is but one */
    this.machines = [];
    /** @type {{ name: string, scopes: string[] } | null} */
    this.me = null;
    this.pushed = false; // whether the push service tells this device
    this.online = false;
    this.loaded = false;
    this.total = 0;
    this.reached = 0; // how many of all, newest first
    /** @type {Page.OpenSession | null} the session on screen */
    this.opened = null;
    /** @type {Page.OutboxMessage[]} */
    this.outbox = JSON.parse(localStorage.getItem(OUTBOX) ?? "[]");
    this.sending = false;
    this.sendTimer = 0;
    this.sendFailure = "";
    /** @type {Set<string>} */
    this.changedIds = new Set();
    /** @type {Set<string>} */
    this.deleted = new Set();
  }

  /** @param {string} topic */
  notify(topic) {
    this.dispatchEvent(new Event(topic));
  }

  /**
   * @param {string} topics
   * @param {() => void} listener
   * @param {{ signal?: AbortSignal }} [options]
   */
  listen(topics, listener, options = {}) {
    for (const topic of topics.split(" ")) this.addEventListener(topic, listener, options);
  }

  async start() {
    this.me = await get("/api/me");
    this.changes = new ChangeLink({
      onChange: (notification) => this.changed(notification),
      onOnline: (online) => this.setOnline(online),
    });
    addEventListener("offline", () => this.setOnline(false));
    await Promise.all([this.refresh(), this.loadMachines()]);
  }

  // Nobody rings when a machine comes or falls silent: the page looks now and then.
  async loadMachines() {
    const { workers } = await get("/api/workers").catch(() => ({ workers: this.machines }));
    if (workers.length < 2 && !this.machines.length) return;
    this.machines = workers;
    this.notify("sessions");
  }

  /** @param {Page.Session} session */
  machineOf({ worker, place }) {
    const host = (/** @type {Page.Machine} */ { labels }) => labels.includes(place);
    return this.machines.find(({ id }) => id === worker) ?? this.machines.find(host);
  }

  /**
   * Where a session works: its machine, where there are several, and its folder.
   * @param {Page.Session} session
   */
  placeOf(session) {
    return [plain(this.machineOf(session)?.name), workplace(session)].filter(Boolean).join(": ");
  }

  /** @param {boolean} online */
  setOnline(online) {
    this.online = online;
    if (online) this.sendOutbox();
    this.notify("link");
  }

  /** @param {Page.Notification} notification */
  changed({ method, params }) {
    if (method === "connected") this.refresh();
    else if (method === "permission_changed") this.refreshQuestions();
    else if (method === "session_changed") {
      if (params.deleted) this.forget(params.session_id);
      else this.refreshSession(params.session_id);
      this.notify("sessions");
    }
  }

  /** @param {string} id */
  forget(id) {
    this.deleted.add(id);
    this.sessions.delete(id);
  }

  /**
   * What was deleted while it was on its way does not come back.
   * @param {Page.Session[]} sessions
   */
  add(sessions) {
    for (const session of sessions) if (!this.deleted.has(session.id)) this.sessions.set(session.id, session);
  }

  /**
   * Changes come in bursts: each session is read again once per burst.
   * @param {string} id
   */
  refreshSession(id) {
    if (!this.changedIds.size) setTimeout(() => this.readChanged(), BURST);
    this.changedIds.add(id);
  }

  async readChanged() {
    const ids = [...this.changedIds];
    this.changedIds.clear();
    const read = (/** @type {string} */ id) => get(sessionPath(id)).catch(() => null);
    this.add((await Promise.all(ids.map(read))).filter(Boolean));
    const { opened } = this;
    if (opened && ids.includes(opened.id) && (opened.view?.queued || opened.queue.length)) opened.readQueue();
    this.notify("sessions");
  }

  async refresh() {
    try {
      /** @type {Page.SessionPage} */
      const page = await get(`/api/sessions${query({ limit: 200 })}`);
      this.sessions = new Map(this.olderThan(page));
      this.add(page.sessions);
      this.total = page.total;
      this.reached = Math.max(this.reached, page.sessions.length);
      this.loaded = true;
      this.notify("sessions");
      await this.refreshQuestions();
    } catch (fault) {
      if (!(fault instanceof Offline)) console.warn(messageOf(fault));
    }
  }

  /**
   * What was loaded beyond the first page stays; what should be on the page and is not, was deleted.
   * @param {Page.SessionPage} page
   */
  olderThan(page) {
    const oldest = page.sessions.at(-1)?.createdAt ?? Number.POSITIVE_INFINITY;
    return [...this.sessions].filter(([, { createdAt }]) => page.total > page.sessions.length && createdAt < oldest);
  }

  // The page holds the newest sessions; older ones come when somebody looks for them.
  get hasMore() {
    return this.reached < this.total;
  }

  async more(search = "") {
    const offset = search ? undefined : this.reached;
    /** @type {Page.SessionPage} */
    const page = await get(`/api/sessions${query({ limit: 200, search, offset })}`);
    if (!search) this.reached += page.sessions.length || this.total;
    this.add(page.sessions);
    this.notify("sessions");
  }

  async refreshQuestions() {
    const page = await get("/api/permissions?open=true").catch(() => null);
    if (!page) return;
    const before = this.questions;
    /** @type {Page.Question[]} */
    const questions = page.permissions;
    this.questions = new Map(questions.map((question) => [question.id, question]));
    this.newQuestions = questions.filter(({ id }) => !before.has(id));
    this.notify("questions");
  }

  /** @returns {Promise<Page.Agent[]>} */
  async loadAgents({ fresh = false } = {}) {
    if (this.agents && !fresh) return this.agents;
    /** @type {Page.Agent[]} */
    const agents = (await get("/api/agents")).agents;
    const remembered = agents.map(({ agent, title, version, installed, enabled, signedIn, default: first }) => ({
      ...{ agent, title, version, installed, enabled, signedIn, default: first, problem: "", fix: "" },
    }));
    localStorage.setItem(AGENTS, JSON.stringify(remembered));
    this.agents = agents;
    return agents;
  }

  /** @returns {Page.Agent[] | null} as they were when they were last looked at */
  rememberedAgents() {
    return JSON.parse(localStorage.getItem(AGENTS) ?? "null");
  }

  // -- the session on screen

  /** @param {string} id */
  async open(id) {
    if (this.opened?.id === id) return this.opened;
    this.close();
    /** @type {Page.Session} */
    const session = await get(sessionPath(id));
    this.sessions.set(id, session);
    this.opened = new OpenSession(this, session);
    this.notify("sessions");
    return this.opened;
  }

  close() {
    this.opened?.close();
    this.opened = null;
  }

  // -- what users do

  /**
   * With attachments it is sent now or not at all: they are too large to be stored here.
   * @param {string} id
   * @param {string} prompt
   * @param {Page.Attachment[]} [attachments]
   */
  async send(id, prompt, attachments = []) {
    if (attachments.length) {
      const files = attachments.map(({ name, content }) => ({ name, content }));
      await post(`${sessionPath(id)}/messages`, { prompt, attachments: files });
      if (this.opened?.id === id) await this.opened.readQueue();
      return;
    }
    this.outbox.push({ id, prompt, key: newKey() });
    this.saveOutbox();
    await this.sendOutbox();
  }

  // What was typed without a connection is sent, once each, when the connection is back.
  async sendOutbox() {
    if (this.sending) return;
    this.sending = true;
    try {
      for (let message = this.outbox[0]; message; message = this.outbox[0]) {
        const { id, prompt, key } = message;
        try {
          await post(`${sessionPath(id)}/messages`, { prompt, steer: true }, { key });
        } catch (fault) {
          if (fault instanceof Offline) {
            clearTimeout(this.sendTimer);
            this.sendTimer = setTimeout(() => this.sendOutbox(), SEND_AGAIN);
            return;
          }
          this.sendFailure = messageOf(fault);
          this.notify("refused");
        }
        this.outbox.shift();
        this.saveOutbox();
        if (this.opened?.id === id) await this.opened.readQueue();
      }
    } finally {
      this.sending = false;
    }
  }

  saveOutbox() {
    localStorage.setItem(OUTBOX, JSON.stringify(this.outbox));
    this.notify("link");
  }

  /**
   * @param {Page.Question} question
   * @param {Page.Answer} answer
   */
  answer(question, answer) {
    return post(`/api/permissions/${encodeURIComponent(question.id)}`, answer);
  }

  /**
   * @param {string} id
   * @param {Page.Change} change
   */
  change(id, change) {
    return call("PATCH", sessionPath(id), change);
  }

  /**
   * @param {string} id
   * @param {string} verb
   * @param {unknown} [body]
   */
  act(id, verb, body) {
    return post(`${sessionPath(id)}/${verb}`, body);
  }
}

export class OpenSession {
  /**
   * @param {Store} store
   * @param {Page.Session} session
   */
  constructor(store, session) {
    this.store = store;
    this.id = session.id;
    this.fold = new Fold();
    /** @type {Unified.Event[]} */
    this.events = [];
    /** @type {Page.QueuedMessage[]} */
    this.queue = [];
    /** @type {Map<string, string>} question → the device that answered it */
    this.answeredBy = new Map();
    this.lastRead = 0;
    this.reading = false;
    this.ended = false;
    this.online = false;
    this.loading = false;
    /** @type {Page.Gap | null} */
    this.gap = null;
    // The end first: what came before is loaded when somebody scrolls there.
    this.from = Math.max((session.firstSeq ?? 1) - 1, session.lastSeq - PAGE, 0);
    this.tail = session.lastSeq;
    this.link = new EventLink(this.id, this.from, {
      onEvents: (events) => this.addEvents(events),
      onEnd: () => {
        this.ended = true;
        store.notify("session");
      },
      onGap: (gap) => {
        this.gap = gap;
        store.notify("session");
      },
      onOnline: (online) => {
        this.online = online;
        store.notify("link");
      },
    });
    if (session.queued) this.readQueue();
  }

  get view() {
    return this.store.sessions.get(this.id);
  }

  get start() {
    return (this.view?.firstSeq ?? 1) - 1;
  }

  get hasEarlier() {
    return this.from > this.start;
  }

  /** @param {Unified.Event[]} events */
  addEvents(events) {
    this.events.push(...events);
    const begins = events.some(({ type }) => type === "turn_started" || type === "done");
    if (begins && (this.queue.length || this.reading)) this.readQueue();
    this.fold.add(events);
    this.store.notify("session");
    if (events.some((event) => event.type === "permission_resolved" && event.by === "client")) this.readAnswers();
  }

  // Who answered stands in the questions, not in the events.
  async readAnswers() {
    const page = await get(`${sessionPath(this.id)}/permissions?open=false&limit=1000`).catch(() => null);
    for (const { id, who, request } of /** @type {Page.Question[]} */ (page?.permissions ?? [])) {
      const item = this.fold.questions.get(request.requestId ?? id);
      if (!who || !item || this.answeredBy.get(request.requestId) === who) continue;
      this.answeredBy.set(request.requestId, who);
      this.fold.touch(item);
    }
    this.store.notify("session");
  }

  /**
   * What was typed and has not started: first what the server holds, then what it has not received yet.
   * @returns {Page.Item[]}
   */
  waiting() {
    const unsent = this.store.outbox.filter(({ id }) => id === this.id);
    const paused = Boolean(this.view?.queuePaused);
    const item = (
      /** @type {string} */ key,
      /** @type {string} */ text,
      /** @type {Partial<Page.QueuedItem>} */ more,
    ) =>
      /** @type {Page.QueuedItem} */ ({
        key,
        version: hash(text, more),
        kind: "queued",
        text,
        unsent: false,
        id: "",
        ...more,
      });
    return [
      ...this.queue.map(({ id, prompt, images = [] }, place) => {
        const ids = images.map((path) => path.split("/").slice(-2).join("/"));
        return item(`q${id}`, prompt, { id, place, paused, images: ids });
      }),
      ...unsent.map(({ key, prompt }) => item(`u${key}`, prompt, { unsent: true })),
    ];
  }

  // A turn may start while the queue is being read: then it is read again, and only the last answer counts.
  async readQueue() {
    this.lastRead += 1;
    const read = this.lastRead;
    this.reading = true;
    const page = await get(`${sessionPath(this.id)}/messages`).catch(() => null);
    if (read !== this.lastRead) return;
    this.reading = false;
    if (!page) return;
    this.queue = page.messages;
    this.store.notify("session");
  }

  async loadEarlier() {
    if (this.loading || !this.hasEarlier || this.fold.lastSeq < this.tail) return;
    this.loading = true;
    try {
      const from = Math.max(this.start, this.from - PAGE * 2, 0);
      const where = query({ after: from, limit: this.from - from, dialect: "stagedoor" });
      /** @type {{ events: Unified.Event[] }} */
      const page = await get(`${sessionPath(this.id)}/events${where}`);
      this.events = [...page.events.filter(({ seq }) => seq <= this.from), ...this.events];
      // Items are known by their first event's number, so what is on screen stays where it is.
      const fold = new Fold();
      fold.add(this.events);
      this.fold = fold;
      this.from = from;
      this.store.notify("session");
    } finally {
      this.loading = false;
    }
  }

  close() {
    this.link.close();
  }
}

/**
 * A number that is another one when any of it changes.
 * @param {unknown[]} values
 */
function hash(...values) {
  let number = 0;
  for (const letter of JSON.stringify(values)) number = (number * 31 + letter.charCodeAt(0)) | 0;
  return number;
}

export const store = new Store();
