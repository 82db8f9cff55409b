// The store against a server that the tests play: messages are sent once, events come once, whatever the connection
// does.

import assert from "node:assert/strict";
import { beforeEach, describe, mock, test } from "node:test";

import { restart, settled, stored } from "./browser.js";
import { recording } from "./recorded.js";

const { Store } = await import("../../../src/stagedoor/web/core/store.js");

const MESSAGES = "/api/sessions/s/messages";
const POST = `POST ${MESSAGES}`;
const view = (more = {}) => ({
  id: "s",
  agent: "understudy",
  firstSeq: 1,
  lastSeq: 0,
  createdAt: 1,
  queued: 0,
  ...more,
});
const page = (...sessions) => ({ sessions, total: sessions.length });
const text = (seq) => ({ type: "text", seq, text: `number ${seq}` });
const turn = (seq) => ({ type: "turn_started", seq, prompt: `turn ${seq}` });
const numbers = (opened) => opened.events.map(({ seq }) => seq);
const shown = (opened) => opened.waiting().map(({ text, unsent }) => [text, unsent ? "unsent" : "queued"]);

let server;
beforeEach(() => {
  mock.timers.reset();
  mock.timers.enable({ apis: ["setTimeout"] });
  server = restart();
  server.answers = {
    "GET /api/me": { name: "test", scopes: ["admin"] },
    "GET /api/sessions": page(view()),
    "GET /api/sessions/s": view(),
    "GET /api/permissions": { permissions: [] },
    [`GET ${MESSAGES}`]: { messages: [] },
    [POST]: {},
  };
});

/** A store whose session is on screen, with both links open. */
async function opened(session = view()) {
  server.answers["GET /api/sessions/s"] = session;
  server.answers["GET /api/sessions"] = page(session);
  const store = new Store();
  await store.start();
  server.socket("/ws").accept();
  const open = await store.open("s");
  server.socket("/ws/sessions/s").accept();
  return [store, open];
}

describe("messages", () => {
  test("one is shown at once, sent once, and leaves the outbox", async () => {
    const [store, open] = await opened();
    let answer;
    server.answers[POST] = () => new Promise((resolve) => (answer = resolve));
    const sending = store.send("s", "Hello");
    assert.deepEqual(shown(open), [["Hello", "unsent"]]);
    await settled();
    server.answers[`GET ${MESSAGES}`] = { messages: [{ id: 1, prompt: "Hello" }] };
    answer({});
    await sending;
    assert.deepEqual(shown(open), [["Hello", "queued"]]);
    server.answers[`GET ${MESSAGES}`] = { messages: [] };
    server.socket("/ws/sessions/s").deliver(turn(1));
    await settled();
    assert.deepEqual(shown(open), []);
    assert.deepEqual(
      server.of(POST).map(({ body }) => body),
      [{ prompt: "Hello", steer: true }],
    );
    assert.deepEqual(stored("stagedoor-outbox"), []);
  });

  test("what is typed offline is stored, and sent in order with the keys it had", async () => {
    const [store, open] = await opened();
    server.online = false;
    await store.send("s", "One");
    await store.send("s", "Two");
    assert.deepEqual(shown(open), [
      ["One", "unsent"],
      ["Two", "unsent"],
    ]);
    const keys = stored("stagedoor-outbox").map(({ key }) => key);
    server.online = true;
    store.setOnline(true);
    await settled();
    assert.deepEqual(
      server.of(POST).map(({ body, key }) => [body.prompt, key]),
      [
        ["One", keys[0]],
        ["Two", keys[1]],
      ],
    );
    assert.deepEqual(stored("stagedoor-outbox"), []);
  });

  test("without a word from the browser, it is tried again after three seconds", async () => {
    const [store] = await opened();
    server.online = false;
    await store.send("s", "One");
    server.online = true;
    mock.timers.tick(2999);
    await settled();
    assert.equal(server.of(POST).length, 0);
    mock.timers.tick(1);
    await settled();
    assert.equal(server.of(POST).length, 1);
  });

  test("a second send while the first is under way sends nothing twice", async () => {
    const [store] = await opened();
    await Promise.all([store.send("s", "One"), store.send("s", "Two"), store.sendOutbox()]);
    await settled();
    assert.deepEqual(
      server.of(POST).map(({ body }) => body.prompt),
      ["One", "Two"],
    );
  });

  test("what the server refuses is reported and does not hold up the rest", async () => {
    const [store] = await opened();
    const reports = [];
    store.listen("refused", () => reports.push(store.sendFailure));
    server.answers[POST] = ({ body }) =>
      body.prompt === "One" ? new Response('{"detail":"the session has ended"}', { status: 409 }) : {};
    await Promise.all([store.send("s", "One"), store.send("s", "Two")]);
    await settled();
    assert.deepEqual(reports, ["the session has ended"]);
    assert.deepEqual(
      server.of(POST).map(({ body }) => body.prompt),
      ["One", "Two"],
    );
    assert.deepEqual(stored("stagedoor-outbox"), []);
  });

  test("what was not sent before the page was closed is sent by the next one", async () => {
    const answers = server.answers;
    server = restart({ stored: { "stagedoor-outbox": [{ id: "s", prompt: "Late", key: "k" }] } });
    server.answers = answers;
    await opened();
    await settled();
    assert.deepEqual(
      server.of(POST).map(({ body, key }) => [body.prompt, key]),
      [["Late", "k"]],
    );
  });

  test("what waits knows its place, and is made anew when its words or its state change", async () => {
    const [store, open] = await opened(view({ queued: 2 }));
    const messages = [
      { id: "a", prompt: "One" },
      { id: "b", prompt: "Two" },
    ];
    server.answers[`GET ${MESSAGES}`] = { messages };
    await open.readQueue();
    const [one, two] = open.waiting();
    assert.deepEqual([one.id, one.place, two.id, two.place, one.paused], ["a", 0, "b", 1, false]);
    assert.equal(open.waiting()[0].version, one.version);
    store.sessions.set("s", view({ queued: 2, queuePaused: true }));
    assert.equal(open.waiting()[0].paused, true);
    assert.notEqual(open.waiting()[0].version, one.version);
    server.answers[`GET ${MESSAGES}`] = { messages: [{ id: "a", prompt: "Edited" }, messages[1]] };
    await open.readQueue();
    assert.deepEqual(shown(open), [
      ["Edited", "queued"],
      ["Two", "queued"],
    ]);
  });

  test("files are sent at once and never stored in the browser", async () => {
    const [store] = await opened();
    await store.send("s", "Look", [{ name: "a.png", content: "AAAA", size: 3, picture: "data:" }]);
    assert.deepEqual(
      server.of(POST).map(({ body }) => body),
      [{ prompt: "Look", attachments: [{ name: "a.png", content: "AAAA" }] }],
    );
    server.online = false;
    await assert.rejects(store.send("s", "Again", [{ name: "a.png", content: "AAAA", size: 3, picture: "" }]));
    assert.deepEqual(stored("stagedoor-outbox") ?? [], []);
  });

  test("a turn that starts while the queue is read leaves nothing behind", async () => {
    const [store, open] = await opened();
    const reads = [];
    server.answers[`GET ${MESSAGES}`] = () => new Promise((resolve) => reads.push(resolve));
    const sending = store.send("s", "Quick");
    await settled();
    server.socket("/ws/sessions/s").deliver(turn(1));
    await settled();
    reads[1]({ messages: [] });
    await settled();
    reads[0]({ messages: [{ id: 1, prompt: "Quick" }] }); // what was true before the turn began
    await sending;
    assert.deepEqual(shown(open), []);
  });
});

describe("events", () => {
  const EVENTS = recording("claude-2.1.197/10-subagent");

  test("each comes once and in order, however often the connection breaks", async () => {
    const [, open] = await opened();
    const whole = [...EVENTS];
    for (let from = 0; from < whole.length; from += 2) {
      const socket = server.socket("/ws/sessions/s");
      assert.equal(socket.path, `/ws/sessions/s?after=${from}&dialect=stagedoor`);
      if (from) socket.accept();
      socket.deliver(...whole.slice(Math.max(0, from - 1), from + 2)); // one of them again
      socket.drop();
      mock.timers.tick(20000);
    }
    assert.deepEqual(open.events, whole);
    assert.equal(open.fold.items.at(-1).kind, "done");
  });

  test("a hole closes the socket, and the next one asks from the last number", async () => {
    const [, open] = await opened();
    server.socket("/ws/sessions/s").deliver(text(1), text(3));
    mock.timers.tick(20000);
    const next = server.socket("/ws/sessions/s");
    assert.equal(next.path, "/ws/sessions/s?after=1&dialect=stagedoor");
    next.accept();
    next.deliver(text(2), text(3));
    assert.deepEqual(numbers(open), [1, 2, 3]);
  });

  test("what was removed from the log is named, and the rest follows", async () => {
    const [, open] = await opened();
    const gap = { type: "verdict", verdict: "gap", missingFrom: 1, missingTo: 4 };
    server.socket("/ws/sessions/s").deliver(gap, text(5));
    assert.deepEqual([open.gap.missingFrom, open.gap.missingTo, numbers(open)], [1, 4, [5]]);
  });

  const CLOSINGS = { 1000: [true, 1], 4404: [false, 1], 4401: [false, 1], 4403: [false, 1], 1006: [false, 2] };
  for (const [code, [ended, sockets]] of Object.entries(CLOSINGS))
    test(`a socket closed with ${code}`, async () => {
      const [, open] = await opened();
      server.socket("/ws/sessions/s").drop(Number(code));
      mock.timers.tick(20000);
      const many = server.sockets.filter(({ path }) => path.startsWith("/ws/sessions/s")).length;
      assert.deepEqual([open.ended, many], [ended, sockets]);
    });

  test("attempts wait longer and longer, but not when the browser is online again", async () => {
    await opened();
    const many = () => server.sockets.filter(({ path }) => path.startsWith("/ws/sessions/s")).length;
    server.socket("/ws/sessions/s").drop();
    mock.timers.tick(600);
    assert.equal(many(), 2);
    server.socket("/ws/sessions/s").drop();
    mock.timers.tick(500);
    assert.equal(many(), 2);
    dispatchEvent(new Event("online"));
    assert.equal(many(), 3);
  });

  test("the end comes first; what came before is loaded on request, and items keep their keys", async () => {
    const [, open] = await opened(view({ lastSeq: 1200 }));
    const socket = server.socket("/ws/sessions/s");
    assert.equal(socket.path, "/ws/sessions/s?after=700&dialect=stagedoor");
    await open.loadEarlier();
    assert.equal(server.of("GET /api/sessions/s/events").length, 0); // the end is not there yet
    socket.deliver(...Array.from({ length: 500 }, (_, at) => text(701 + at)));
    const keys = open.fold.items.map(({ key }) => key);
    server.answers["GET /api/sessions/s/events"] = { events: Array.from({ length: 700 }, (_, at) => text(1 + at)) };
    await Promise.all([open.loadEarlier(), open.loadEarlier()]);
    const [request, ...others] = server.of("GET /api/sessions/s/events");
    assert.deepEqual([request.path, others], ["/api/sessions/s/events?after=0&limit=700&dialect=stagedoor", []]);
    assert.deepEqual(
      numbers(open),
      Array.from({ length: 1200 }, (_, at) => at + 1),
    );
    assert.deepEqual(
      open.fold.items.slice(-500).map(({ key }) => key),
      keys,
    );
    assert.equal(open.hasEarlier, false);
  });
});

describe("sessions and questions", () => {
  test("a burst of changes reads each session once", async () => {
    const [store] = await opened();
    const before = server.of("GET /api/sessions/s").length;
    server.answers["GET /api/sessions/s"] = view({ title: "Renamed" });
    const changes = Array.from({ length: 5 }, () => ({ method: "session_changed", params: { session_id: "s" } }));
    server.socket("/ws").deliver(changes);
    mock.timers.tick(60);
    await settled();
    assert.equal(server.of("GET /api/sessions/s").length, before + 1);
    assert.equal(store.sessions.get("s").title, "Renamed");
  });

  test("a deleted session leaves the list", async () => {
    const [store] = await opened();
    server.answers["GET /api/sessions/s"] = view({ title: "Read before" });
    server.socket("/ws").deliver({ method: "session_changed", params: { session_id: "s" } });
    mock.timers.tick(60);
    server.socket("/ws").deliver({ method: "session_changed", params: { session_id: "s", deleted: true } });
    assert.equal(store.sessions.has("s"), false);
    await settled(); // what was on its way then
    assert.equal(store.sessions.has("s"), false);
  });

  test("only new questions are new", async () => {
    const [store] = await opened();
    const [one, two] = ["1", "2"].map((id) => ({ id, sessionId: "s", request: {} }));
    const seen = [];
    store.listen("questions", () => seen.push(store.newQuestions.map(({ id }) => id)));
    for (const permissions of [[one], [one, two], [two]]) {
      server.answers["GET /api/permissions"] = { permissions };
      await store.refreshQuestions();
    }
    assert.deepEqual(seen, [["1"], ["2"], []]);
    assert.deepEqual([...store.questions.keys()], ["2"]);
  });

  test("after each connection everything is read again; what was loaded beyond the first page stays", async () => {
    const [store] = await opened(view({ createdAt: 50 }));
    store.sessions.set("old", view({ id: "old", createdAt: 10 }));
    store.sessions.set("deleted", view({ id: "deleted", createdAt: 60 }));
    server.answers["GET /api/sessions"] = { sessions: [view({ createdAt: 50 })], total: 2 };
    server.socket("/ws").deliver({ id: 1, result: {} });
    await settled();
    assert.deepEqual([...store.sessions.keys()], ["old", "s"]);
    assert.equal(store.hasMore, true);
  });

  test("who answered is read from the questions and shown on their cards", async () => {
    const [, open] = await opened();
    const request = { type: "permission_request", seq: 1, requestId: "q", input: {} };
    const resolved = { type: "permission_resolved", seq: 2, requestId: "q", decision: "allow", by: "client" };
    server.answers["GET /api/sessions/s/permissions"] = { permissions: [{ id: "q", who: "phone", request }] };
    server.socket("/ws/sessions/s").deliver(request, resolved);
    const { version } = open.fold.questions.get("q");
    await settled();
    assert.equal(open.answeredBy.get("q"), "phone");
    assert.ok(open.fold.questions.get("q").version > version);
  });

  test("agents are remembered for the next visit", async () => {
    const [store] = await opened();
    assert.equal(store.rememberedAgents(), null);
    server.answers["GET /api/agents"] = { agents: [{ agent: "understudy", title: "Understudy", installed: true }] };
    await store.loadAgents();
    assert.deepEqual(
      store.rememberedAgents().map(({ agent }) => agent),
      ["understudy"],
    );
  });

  test("offline, what was read stays", async () => {
    const [store] = await opened();
    server.online = false;
    await store.refresh();
    await store.refreshQuestions();
    assert.deepEqual([...store.sessions.keys()], ["s"]);
  });

  test("a browser that is not paired is sent to the pairing view", async () => {
    server.answers["GET /api/me"] = () => new Response('{"title":"pair this device first"}', { status: 401 });
    let unpaired = 0;
    addEventListener("stagedoor:unpaired", () => unpaired++, { once: true });
    await assert.rejects(new Store().start(), { status: 401, message: "pair this device first" });
    assert.equal(unpaired, 1);
  });
});
