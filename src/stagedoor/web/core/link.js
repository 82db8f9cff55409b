// Sockets that come back. A link waits longer after each failure, at once when the browser says it is online again.

import { socketUrl } from "./api.js";

const FIRST = 400;
const LONGEST = 8000;
const ASLEEP = 15000;

class Link {
  constructor(states) {
    this.states = states;
    this.delay = FIRST;
    this.closed = false;
    this.retry = () => {
      clearTimeout(this.timer);
      if (!this.closed && !this.socket) this.open();
    };
    // A phone that slept, or changed its network, may hold a socket that is dead without knowing it.
    this.renew = () => {
      if (this.closed) return;
      const socket = this.socket;
      if (socket) {
        socket.onclose = socket.onmessage = null;
        hangUp(socket);
        this.socket = null;
      }
      this.retry();
    };
    this.woke = () => {
      if (document.hidden) this.slept = Date.now();
      else if (Date.now() - (this.slept ?? Infinity) > ASLEEP) this.renew();
    };
    addEventListener("online", this.renew);
    document.addEventListener("visibilitychange", this.woke);
  }

  open() {
    const socket = new WebSocket(socketUrl(this.path()));
    this.socket = socket;
    socket.onopen = () => {
      this.delay = FIRST;
      this.opened?.();
      this.states?.(true);
    };
    socket.onmessage = (message) => this.received(JSON.parse(message.data));
    socket.onclose = (event) => {
      this.socket = null;
      if (this.closed || this.over?.(event)) return;
      this.states?.(false);
      this.timer = setTimeout(this.retry, this.delay * (0.7 + Math.random() * 0.6));
      this.delay = Math.min(this.delay * 2, LONGEST);
    };
  }

  close() {
    this.closed = true;
    clearTimeout(this.timer);
    removeEventListener("online", this.renew);
    document.removeEventListener("visibilitychange", this.woke);
    if (this.socket) hangUp(this.socket);
  }
}

// One that is not open yet is closed when it is: browsers complain of it otherwise.
function hangUp(socket) {
  if (socket.readyState === WebSocket.CONNECTING) socket.onopen = () => socket.close();
  else socket.close();
}

// One session's events from ``after`` on: each once, in order, whatever the connection does.
export class Follow extends Link {
  constructor(sessionId, after, { events, ended, gap, states }) {
    super(states);
    this.sessionId = sessionId;
    this.after = after;
    this.told = events;
    this.ended = ended;
    this.gap = gap;
    this.waiting = [];
    this.open();
  }

  path() {
    return `/ws/sessions/${encodeURIComponent(this.sessionId)}?after=${this.after}`;
  }

  received(event) {
    if (event.type === "verdict") {
      if (event.verdict === "gap") {
        this.gap?.(event);
        this.after = Math.max(this.after, event.missingTo);
      }
      return;
    }
    if (typeof event.seq !== "number" || event.seq <= this.after) return; // heard before
    if (event.seq !== this.after + 1) return this.socket?.close(); // a hole: ask again from where we stand
    this.after = event.seq;
    this.waiting.push(event);
    // What arrives within one frame is shown in one frame.
    this.flush ??= requestAnimationFrame(() => this.hand());
    if (document.hidden) this.hand();
  }

  hand() {
    cancelAnimationFrame(this.flush);
    this.flush = null;
    const events = this.waiting;
    this.waiting = [];
    if (events.length) this.told(events);
  }

  over(event) {
    this.hand();
    if (event.code === 1000 && !this.closed) {
      this.ended?.();
      return true;
    }
    return event.code === 4404 || event.code === 4401 || event.code === 4403;
  }
}

// The JSON-RPC door: tells which sessions and questions have changed.
export class Feed extends Link {
  constructor({ changed, states }) {
    super(states);
    this.changed = changed;
    this.open();
  }

  path() {
    return "/ws";
  }

  opened() {
    this.socket.send(JSON.stringify({ jsonrpc: "2.0", id: 1, method: "session/subscribe", params: {} }));
  }

  received(message) {
    // The server misses nothing from its answer on: what is read after it is whole.
    for (const one of Array.isArray(message) ? message : [message])
      this.changed(one.id === 1 ? { method: "connected" } : one);
  }

  over(event) {
    return event.code === 4401 || event.code === 4403;
  }
}
