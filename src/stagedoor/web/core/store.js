// The one store. Sessions and questions come from the feed; the session on screen has its events here too.
// Parts listen to a topic ("sessions", "questions", "link", "session") and read what they need.

import { call, get, newKey, Offline, post, query } from "./api.js";
import { Fold } from "./fold.js";
import { Feed, Follow } from "./link.js";

const PAGE = 500;
const AGAIN = 3000;
const OUTBOX = "stagedoor-outbox";

class Store extends EventTarget {
  constructor() {
    super();
    this.sessions = new Map();
    this.questions = new Map();
    this.agents = null;
    this.me = null;
    this.online = false;
    this.loaded = false;
    this.reached = 0; // how many of all, newest first
    this.opened = null; // the session on screen
    this.outbox = JSON.parse(localStorage.getItem(OUTBOX) ?? "[]");
  }

  tell(topic) {
    this.dispatchEvent(new Event(topic));
  }

  listen(topics, heard, { signal } = {}) {
    for (const topic of topics.split(" ")) this.addEventListener(topic, heard, { signal });
  }

  async start() {
    this.me = await get("/api/me");
    this.feed = new Feed({
      changed: (notification) => this.changed(notification),
      states: (online) => this.linked(online),
    });
    addEventListener("offline", () => this.linked(false));
    await this.refresh();
  }

  linked(online) {
    this.online = online;
    if (online) this.sendOutbox();
    this.tell("link");
  }

  changed({ method, params }) {
    if (method === "connected") this.refresh();
    else if (method === "session_changed") {
      if (params.deleted) this.sessions.delete(params.session_id);
      else this.reread(params.session_id);
      this.tell("sessions");
    } else if (method === "permission_changed") this.refreshQuestions();
  }

  // Changes come in bursts: each session is read again once per burst.
  reread(id) {
    this.changedIds ??= new Set();
    this.changedIds.add(id);
    this.soon ??= setTimeout(async () => {
      const ids = [...this.changedIds];
      this.soon = this.changedIds = null;
      const found = await Promise.all(
        ids.map((one) => get(`/api/sessions/${encodeURIComponent(one)}`).catch(() => null)),
      );
      for (const view of found) if (view) this.sessions.set(view.id, view);
      this.tell("sessions");
    }, 60);
  }

  async refresh() {
    try {
      const page = await get(`/api/sessions${query({ limit: 200 })}`);
      this.sessions = new Map([...this.kept(page), ...page.sessions.map((one) => [one.id, one])]);
      this.total = page.total;
      this.reached = Math.max(this.reached, page.sessions.length);
      this.loaded = true;
      this.tell("sessions");
      await this.refreshQuestions();
    } catch (fault) {
      if (!(fault instanceof Offline)) console.warn(fault.message);
    }
  }

  // What was loaded beyond the first page stays; what should be on it and is not, is gone.
  kept(page) {
    const oldest = page.sessions.at(-1)?.createdAt ?? Infinity;
    return [...this.sessions].filter(([, one]) => page.total > page.sessions.length && one.createdAt < oldest);
  }

  // The page holds the newest sessions; older ones come when somebody looks for them.
  get hasMore() {
    return this.reached < (this.total ?? 0);
  }

  async more(search = "") {
    const page = await get(`/api/sessions${query({ limit: 200, search, offset: search ? undefined : this.reached })}`);
    if (!search) this.reached += page.sessions.length || this.total;
    for (const one of page.sessions) this.sessions.set(one.id, one);
    this.tell("sessions");
  }

  async refreshQuestions() {
    const found = await get("/api/permissions?open=true").catch(() => null);
    if (!found) return;
    const before = this.questions;
    this.questions = new Map(found.permissions.map((one) => [one.id, one]));
    this.fresh = [...this.questions.values()].filter((one) => !before.has(one.id));
    this.tell("questions");
  }

  async loadAgents() {
    this.agents ??= (await get("/api/agents")).agents;
    return this.agents;
  }

  // -- the session on screen

  async open(id) {
    if (this.opened?.id === id) return this.opened;
    this.close();
    const view = await get(`/api/sessions/${encodeURIComponent(id)}`);
    this.sessions.set(id, view);
    this.opened = new Opened(this, view);
    this.tell("sessions");
    return this.opened;
  }

  close() {
    this.opened?.close();
    this.opened = null;
  }

  // -- what people do

  async send(id, prompt) {
    const message = { id, prompt, key: newKey() };
    this.outbox.push(message);
    this.keepOutbox();
    await this.sendOutbox();
  }

  // What was typed without a connection is sent, once each, when there is one.
  async sendOutbox() {
    if (this.sending) return;
    this.sending = true;
    try {
      while (this.outbox.length) {
        const { id, prompt, key } = this.outbox[0];
        try {
          await post(`/api/sessions/${encodeURIComponent(id)}/messages`, { prompt, steer: true }, { key });
        } catch (fault) {
          if (fault instanceof Offline) {
            clearTimeout(this.again);
            this.again = setTimeout(() => this.sendOutbox(), AGAIN);
            return;
          }
          this.failed = fault;
          this.tell("refused");
        }
        this.outbox.shift();
        this.keepOutbox();
        if (this.opened?.id === id) await this.opened.readQueue();
      }
    } finally {
      this.sending = false;
    }
  }

  keepOutbox() {
    localStorage.setItem(OUTBOX, JSON.stringify(this.outbox));
    this.tell("link");
  }

  answer(question, body) {
    return post(`/api/permissions/${encodeURIComponent(question.id)}`, body);
  }

  change(id, change) {
    return call("PATCH", `/api/sessions/${encodeURIComponent(id)}`, change);
  }

  act(id, verb, body) {
    return post(`/api/sessions/${encodeURIComponent(id)}/${verb}`, body);
  }
}

class Opened {
  constructor(store, view) {
    this.store = store;
    this.id = view.id;
    this.fold = new Fold();
    this.events = [];
    this.queue = [];
    if (view.queued) this.readQueue();
    this.over = false;
    this.missing = null;
    // The end first: what came before is loaded when somebody scrolls there.
    this.from = Math.max((view.firstSeq ?? 1) - 1, view.lastSeq - PAGE, 0);
    this.follow = new Follow(this.id, this.from, {
      events: (events) => this.take(events),
      ended: () => ((this.over = true), store.tell("session")),
      gap: (verdict) => ((this.missing = verdict), store.tell("session")),
      states: (online) => ((this.linked = online), store.tell("link")),
    });
    this.linked = false;
  }

  get view() {
    return this.store.sessions.get(this.id);
  }

  get hasEarlier() {
    return this.from > (this.view?.firstSeq ?? 1) - 1;
  }

  take(events) {
    this.events.push(...events);
    if (this.queue.length && events.some((event) => event.type === "turn_started" || event.type === "done"))
      this.readQueue();
    this.fold.add(events);
    this.store.tell("session");
  }

  // What was typed and has not begun: first what the server holds, then what it has not got yet.
  waiting() {
    const unsent = this.store.outbox.filter((one) => one.id === this.id);
    return [
      ...this.queue.map((one) => ({ key: `q${one.id}`, version: 0, kind: "queued", text: one.prompt })),
      ...unsent.map((one) => ({ key: `u${one.key}`, version: 0, kind: "queued", text: one.prompt, unsent: true })),
    ];
  }

  async readQueue() {
    const found = await get(`/api/sessions/${encodeURIComponent(this.id)}/messages`).catch(() => null);
    if (!found) return;
    this.queue = found.messages;
    this.store.tell("session");
  }

  async earlier() {
    if (this.loading || !this.hasEarlier) return;
    this.loading = true;
    try {
      const from = Math.max((this.view?.firstSeq ?? 1) - 1, this.from - PAGE * 2, 0);
      const page = await get(
        `/api/sessions/${encodeURIComponent(this.id)}/events${query({ after: from, limit: this.from - from })}`,
      );
      const more = page.events.filter((event) => event.seq <= this.from);
      this.events = [...more, ...this.events];
      const fold = new Fold();
      fold.add(this.events);
      // Items on screen are told apart by their first event's number, so what stands there stays there.
      this.fold = fold;
      this.from = from;
      this.store.tell("session");
    } finally {
      this.loading = false;
    }
  }

  close() {
    this.follow.close();
  }
}

export const store = new Store();
