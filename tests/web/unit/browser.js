// The parts of a browser that the store needs, and a server that tests can play: sockets, requests, storage, frames.

/** Everything the page has asked for, and what it gets. */
export class Server {
  constructor() {
    this.requests = [];
    this.sockets = [];
    this.online = true;
    /** "METHOD path" → its answer: a value, a function of the request, or a promise. */
    this.answers = {};
  }

  /** Requests of one kind, like "POST /api/sessions/s/messages". */
  of(line) {
    return this.requests.filter((request) => request.line === line);
  }

  async fetch(path, { method, headers, body }) {
    if (!this.online) throw new TypeError("Failed to fetch");
    const line = `${method} ${path.split("?")[0]}`;
    const request = { line, path, key: headers["idempotency-key"], body: body && JSON.parse(body) };
    this.requests.push(request);
    const answer = this.answers[line];
    const value = await (typeof answer === "function" ? answer(request) : answer);
    if (value instanceof Response) return value;
    return new Response(JSON.stringify(value ?? {}), { status: value === undefined ? 404 : 200 });
  }

  /** The last socket that was opened at this path. */
  socket(path) {
    return this.sockets.findLast((socket) => socket.path.split("?")[0] === path);
  }
}

class Socket {
  static CONNECTING = 0;
  readyState = 0;

  constructor(url) {
    this.path = url.replace("ws://page.test", "");
    this.sent = [];
    server.sockets.push(this);
  }

  accept() {
    this.readyState = 1;
    this.onopen?.();
  }

  deliver(...messages) {
    for (const message of messages) this.onmessage?.({ data: JSON.stringify(message) });
    drawFrame();
  }

  send(text) {
    this.sent.push(JSON.parse(text));
  }

  drop(code = 1006) {
    this.readyState = 3;
    this.onclose?.({ code });
  }

  close() {
    this.drop(1005);
  }
}

let server = new Server();
let frames = [];
const storage = new Map();
let events = new EventTarget();

export function drawFrame() {
  const due = frames;
  frames = [];
  for (const frame of due) frame?.();
}

/** A new server, and a browser that has stored nothing. */
export function restart({ stored = {} } = {}) {
  server = new Server();
  frames = [];
  events = new EventTarget();
  storage.clear();
  for (const [name, value] of Object.entries(stored)) storage.set(name, JSON.stringify(value));
  return server;
}

export const stored = (name) => JSON.parse(storage.get(name) ?? "null");

/** Let what was started by now come to its end. */
export async function settled() {
  for (let turn = 0; turn < 20; turn++) await new Promise((resolve) => setImmediate(resolve));
}

const globals = {
  location: { protocol: "http:", host: "page.test" },
  document: Object.assign(new EventTarget(), { hidden: false }),
  localStorage: { getItem: (name) => storage.get(name) ?? null, setItem: (name, value) => storage.set(name, value) },
  WebSocket: Socket,
  fetch: (path, options) => server.fetch(path, options),
  requestAnimationFrame: (frame) => frames.push(frame),
  cancelAnimationFrame: (number) => delete frames[number - 1],
  addEventListener: (...words) => events.addEventListener(...words),
  removeEventListener: (...words) => events.removeEventListener(...words),
  dispatchEvent: (event) => events.dispatchEvent(event),
};
for (const [name, value] of Object.entries(globals))
  Object.defineProperty(globalThis, name, { value, configurable: true, writable: true });
