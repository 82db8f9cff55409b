// Sockets that come back. A link waits longer after each failure, and not at all when the browser is online again.

import { socketUrl } from "./api.js";

const FIRST_DELAY = 400;
const LONGEST_DELAY = 8000;
const ASLEEP = 15000;
const REFUSED = [4401, 4403];
const NOT_FOUND = 4404;
const NORMAL = 1000;

class Link {
  /** @param {Page.OnlineListener} onOnline */
  constructor(onOnline) {
    this.onOnline = onOnline;
    this.delay = FIRST_DELAY;
    this.closed = false;
    /** @type {WebSocket | null} */
    this.socket = null;
    this.timer = 0;
    this.hiddenAt = Number.POSITIVE_INFINITY;
    addEventListener("online", this.renew);
    document.addEventListener("visibilitychange", this.visibilityChanged);
  }

  retry = () => {
    clearTimeout(this.timer);
    if (!this.closed && !this.socket) this.open();
  };

  // A phone that slept, or changed its network, may hold a socket that is dead without knowing it.
  renew = () => {
    if (this.closed) return;
    const socket = this.socket;
    if (socket) {
      socket.onclose = null;
      socket.onmessage = null;
      hangUp(socket);
      this.socket = null;
    }
    this.retry();
  };

  visibilityChanged = () => {
    if (document.hidden) this.hiddenAt = Date.now();
    else if (Date.now() - this.hiddenAt > ASLEEP) this.renew();
  };

  open() {
    const socket = new WebSocket(socketUrl(this.path()));
    this.socket = socket;
    socket.onopen = () => {
      this.delay = FIRST_DELAY;
      this.opened(socket);
      this.onOnline(true);
    };
    socket.onmessage = (message) => this.receive(JSON.parse(message.data));
    socket.onclose = (event) => {
      this.socket = null;
      if (this.closed || this.isFinal(event.code)) return;
      this.onOnline(false);
      this.timer = setTimeout(this.retry, this.delay * (0.7 + Math.random() * 0.6));
      this.delay = Math.min(this.delay * 2, LONGEST_DELAY);
    };
  }

  close() {
    this.closed = true;
    clearTimeout(this.timer);
    removeEventListener("online", this.renew);
    document.removeEventListener("visibilitychange", this.visibilityChanged);
    if (this.socket) hangUp(this.socket);
  }

  // -- what each kind of link does in its own way

  /** @returns {string} */
  path() {
    throw new Error("a link has a path");
  }

  /** @param {WebSocket} _socket */
  opened(_socket) {}

  /** @param {any} _message */
  receive(_message) {}

  /**
   * Whether a socket that was closed with this code stays closed.
   * @param {number} code
   */
  isFinal(code) {
    return REFUSED.includes(code);
  }
}

/**
 * One that is not open yet is closed when it is: browsers complain otherwise.
 * @param {WebSocket} socket
 */
function hangUp(socket) {
  if (socket.readyState === WebSocket.CONNECTING) socket.onopen = () => socket.close();
  else socket.close();
}

// One session's events from ``after`` on: each once, in order, whatever the connection does.
export class EventLink extends Link {
  /**
   * @param {string} sessionId
   * @param {number} after
   * @param {{ onEvents: (events: Unified.Event[]) => void, onEnd: () => void, onGap: (gap: Page.Gap) => void,
   *   onOnline: Page.OnlineListener }} listeners
   */
  constructor(sessionId, after, { onEvents, onEnd, onGap, onOnline }) {
    super(onOnline);
    this.sessionId = sessionId;
    this.after = after;
    this.onEvents = onEvents;
    this.onEnd = onEnd;
    this.onGap = onGap;
    /** @type {Unified.Event[]} */
    this.batch = [];
    this.frame = 0;
    this.open();
  }

  path() {
    return `/ws/sessions/${encodeURIComponent(this.sessionId)}?after=${this.after}&dialect=stagedoor`;
  }

  /** @param {any} message */
  receive(message) {
    if (message.type === "verdict") {
      if (message.verdict !== "gap") return;
      this.onGap(message);
      this.after = Math.max(this.after, message.missingTo);
      return;
    }
    if (typeof message.seq !== "number" || message.seq <= this.after) return; // received before
    if (message.seq !== this.after + 1) {
      this.socket?.close(); // a hole: ask again from the last number we have
      return;
    }
    this.after = message.seq;
    this.batch.push(message);
    // What arrives within one frame is shown in one frame.
    this.frame ||= requestAnimationFrame(() => this.flush());
    if (document.hidden) this.flush();
  }

  flush() {
    cancelAnimationFrame(this.frame);
    this.frame = 0;
    const events = this.batch;
    this.batch = [];
    if (events.length) this.onEvents(events);
  }

  /** @param {number} code */
  isFinal(code) {
    this.flush();
    if (code === NORMAL) this.onEnd();
    return code === NORMAL || code === NOT_FOUND || super.isFinal(code);
  }
}

// The JSON-RPC door: it reports which sessions and questions have changed.
export class ChangeLink extends Link {
  /** @param {{ onChange: (notification: Page.Notification) => void, onOnline: Page.OnlineListener }} listeners */
  constructor({ onChange, onOnline }) {
    super(onOnline);
    this.onChange = onChange;
    this.open();
  }

  path() {
    return "/ws?listen=subscribed"; // the events of a session come by its own link
  }

  /** @param {WebSocket} socket */
  opened(socket) {
    socket.send(JSON.stringify({ jsonrpc: "2.0", id: 1, method: "session/subscribe", params: {} }));
  }

  /** @param {any} message */
  receive(message) {
    // The server misses nothing from its answer on: what is read after it is whole.
    for (const part of Array.isArray(message) ? message : [message])
      this.onChange(part.id === 1 ? { method: "connected" } : part);
  }
}
