"""A page with a bad connection, a long session, and an agent that means harm."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from playwright.sync_api import expect

from stagedoor.agents.opencode.client import free_port
from stagedoor.service.store import Append
from stagedoor.service.views import Record, SessionView

PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
OPEN = ".question:not(.closed)"
BOTH = pytest.mark.parametrize("size", ["phone", "desk"])
TOP_ITEM = """(() => {
  const list = document.querySelector('virtual-list'), edge = list.getBoundingClientRect().top;
  const one = [...list.querySelectorAll('[data-key]')].find(item => item.getBoundingClientRect().bottom > edge);
  return { key: Number(one.dataset.key) };
})()"""
LAST_HELD = "document.querySelector('session-view').opened.events.at(-1)?.seq"
TWO_FRAMES = "new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))"
SHOWN_SEQS = "[...document.querySelectorAll('virtual-list [data-key]')].map(one => Number(one.dataset.key))"


# ------------------------------------------------------------------------------------------------- killed and offline


class Outside:
    """A server in a process of its own, that can be killed."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.root = folder / "work"
        self.root.mkdir()
        self.cookies: Any = None
        self.port = free_port()  # one that nobody else is given while the server is away
        self.url = ""

    def start(self) -> None:
        words = ["serve", "--root", str(self.root), "--port", str(self.port), "--log-level", "error"]
        env = {
            **os.environ,
            "HOME": str(self.folder),
            "STAGEDOOR_HOME": str(self.folder / "stagedoor"),
        }
        self.process = subprocess.Popen(
            [sys.executable, "-m", "stagedoor.cli", *words], env=env, stdout=subprocess.PIPE, text=True
        )
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if match := re.search(r"listens on (http://127\.0\.0\.1:(\d+))", line):
                self.url, self.port = match[1], int(match[2])
            if "Ctrl-C" in line:
                break
        token = (self.folder / "stagedoor" / "token").read_text().strip()
        self.http = httpx.Client(base_url=self.url, headers={"Authorization": f"Bearer {token}"}, timeout=240)

    def end(self, number: int = signal.SIGKILL) -> None:
        self.http.close()
        if self.process.poll() is None:
            self.process.send_signal(number)
        self.process.wait(240)
        assert self.process.stdout is not None
        self.process.stdout.close()

    def pairing_code(self) -> str:
        return str(self.http.post("/api/pairing", json={"scope": "admin"}).json()["code"])


@pytest.fixture
def outside(tmp_path: Path) -> Iterator[Outside]:
    server = Outside(tmp_path)
    server.start()
    yield server
    server.end(signal.SIGTERM)


def test_the_page_goes_on_after_the_server_was_killed(browser: Any, stage: Any, outside: Outside, visits: Any) -> None:
    """No event twice, none missing; the question that waited still waits, and its answer counts."""
    visit = visits(browser, outside)
    visit.forgiven = ("WebSocket", "ERR_CONNECTION", "Failed to load resource")
    replies = (
        [{"say": f"Line {number}.\n"} for number in range(30)] + [{"shell": "echo asked"}],
        [{"say": "After all."}],
    )
    body = {"agent": "understudy", "prompt": stage.script(*replies), "keepOpen": True, "cwd": str(outside.root)}
    session = outside.http.post("/api/sessions", json=body).json()["id"]
    page = visit(f"#/s/{session}")
    expect(page.locator(OPEN)).to_be_visible()
    outside.end()
    expect(page.locator("#banner")).to_contain_text("Offline")
    expect(page.locator(".status")).to_contain_text("offline")
    outside.start()
    page.evaluate("dispatchEvent(new Event('online'))")  # instead of waiting for the next attempt
    expect(page.locator("#banner")).to_be_hidden()
    expect(page.locator(".rule.interrupted")).to_be_visible()
    visit.answer(page, "Allow once")
    expect(page.locator(".rule.success")).to_be_visible()
    log = [event["seq"] for event in outside.http.get(f"/api/sessions/{session}/events?limit=1000").json()["events"]]
    received = page.evaluate("document.querySelector('session-view').opened.events.map(one => one.seq)")
    assert received == log == list(range(1, len(log) + 1))
    drawn = page.evaluate(SHOWN_SEQS)
    assert drawn == sorted(set(drawn))
    outside.http.post(f"/api/sessions/{session}/cancel")
    visit.close()


@BOTH
def test_what_is_typed_offline_is_sent_once(visit: Any, stage: Any, size: str) -> None:
    visit.forgiven = ("ERR_INTERNET_DISCONNECTED",)
    session = stage.start([{"say": "Ready."}])
    page = visit(f"#/s/{session}", size)
    expect(page.locator(".reply")).to_contain_text("Ready.")
    stage.idle(session)
    page.context.set_offline(True)
    expect(page.locator("#banner")).to_contain_text("Offline")
    field = page.get_by_label("Message to the agent")
    for words in ("First", "Second"):
        field.fill(stage.script([{"say": f"{words} heard."}]))
        page.get_by_role("button", name="Send").click()
    expect(page.locator(".queued")).to_have_count(2)
    expect(page.locator("#banner")).to_contain_text("2 messages will be sent when you are online")
    page.context.set_offline(False)
    expect(page.locator(".reply")).to_have_text(["Ready.", "First heard.", "Second heard."])
    expect(page.locator("#banner")).to_be_hidden()
    expect(page.locator(".queued")).to_have_count(0)
    assert page.evaluate("localStorage.getItem('stagedoor-outbox')") == "[]"
    stage.idle(session)
    prompts = [event["prompt"] for event in stage.events(session) if event["type"] == "turn_started"]
    assert len(prompts) == 3


def test_what_could_not_be_loaded_comes_with_the_connection(visit: Any, stage: Any) -> None:
    visit.forgiven = ("ERR_INTERNET_DISCONNECTED",)
    session = stage.start([{"say": "Ready."}])
    page = visit("", "phone")
    expect(page.locator(".session").first).to_be_visible()
    for where, sign in {
        "#/new": page.get_by_label("Prompt"),
        "#/overview": page.get_by_role("button", name="Pair a device"),
        f"#/s/{session}": page.locator(".reply", has_text="Ready."),
    }.items():
        page.context.set_offline(True)
        expect(page.locator("#banner")).to_contain_text("Offline")
        page.evaluate("where => { location.hash = where }", where)
        expect(page.locator(".unloaded").first).to_contain_text("the server cannot be reached")
        page.context.set_offline(False)
        expect(sign).to_be_visible()
        expect(page.locator(".unloaded")).to_have_count(0)


def test_the_page_opens_without_a_connection(visit: Any, stage: Any) -> None:
    visit.forgiven = ("ERR_INTERNET_DISCONNECTED", "Failed to fetch")
    page = visit("", service_workers="allow")
    page.evaluate("navigator.serviceWorker.ready.then(() => true)")
    files = page.evaluate(
        """[...document.querySelectorAll("script[src], link[rel=stylesheet]")].map(one => one.src || one.href)"""
    )
    assert len(files) >= 2
    stored = "files => Promise.all(files.map(name => caches.match(name))).then(all => all.every(Boolean))"
    stage.until(lambda: page.evaluate(stored, ["/", *files]), "keeping the page's files")
    page.reload()
    page.context.set_offline(True)
    page.reload()
    expect(page.get_by_role("heading", name="The server cannot be reached")).to_be_visible()
    page.context.set_offline(False)
    page.get_by_role("button", name="Try again").click()
    expect(page.locator("session-list .empty, session-list .session").first).to_be_visible()


# ------------------------------------------------------------------------------------------------- written by hand


def stored(stage: Any, events: list[dict[str, Any]], **more: Any) -> str:
    """A session in the log with exactly these events."""
    session_id = f"by-hand-{time.monotonic_ns()}"
    appended(stage, session_id, 0, events, **more)
    return session_id


def appended(stage: Any, session_id: str, after: int, events: list[dict[str, Any]], **more: Any) -> None:
    now = int(time.time() * 1000)
    records = []
    for number, event in enumerate(events, after + 1):
        head = {"sessionId": session_id, "agent": "understudy", "timestamp": now, "turn": 1}
        body = json.dumps({**head, **event, "seq": number}).encode()
        records.append(Record(seq=number, at=now, type=event["type"], body=body))
    row = {"state": "done", "activity": "ended", "title": "By hand", "created_at": now, "updated_at": now, **more}
    view = SessionView(id=session_id, agent="understudy", cwd=str(stage.root), last_seq=after + len(records), **row)
    stage.run(stage.service._journal.write(Append(session_id, records), view))


def test_pictures_that_an_agent_shows_are_seen_and_nothing_else_is_loaded(visit: Any, stage: Any) -> None:
    picture = {"mediaType": "image/png", "content": PNG}
    drawing = {"mediaType": "image/svg+xml", "content": "PHN2Zy8+"}
    call = {"toolUseId": "call", "name": "mcp"}
    session = stored(
        stage,
        [
            {"type": "turn_started", "prompt": "Show me"},
            {"type": "tool_use", "nativeName": "draw", "input": {}, **call},
            {"type": "tool_result", "status": "success", "output": "[an image]", "images": [picture, drawing], **call},
            {"type": "notice", "level": "info", "code": "attachment", "message": "an image", "images": [picture]},
        ],
    )
    page = visit(f"#/s/{session}", "phone")
    for place in (".tool .thumbnail img", ".item-notice .thumbnail img"):
        expect(page.locator(place)).to_have_js_property("naturalWidth", 1)
    expect(page.locator(".tool .chip")).to_have_text("image/svg+xml")
    page.locator(".item-notice .thumbnail").click()
    expect(page.get_by_role("dialog", name="image/png").get_by_role("img")).to_be_visible()


def test_ten_thousand_events_scroll(visit: Any, stage: Any) -> None:
    events: list[dict[str, Any]] = [{"type": "turn_started", "prompt": "Count"}]
    for number in range(3333):
        call = {"toolUseId": f"call-{number}"}
        use = {"type": "tool_use", "name": "shell", "operation": "execute", "target": f"echo {number}"}
        events.append(
            {"type": "text", "text": f"Number {number}\n\n{'word ' * (number % 40)}", "messageId": f"m{number}"}
        )
        events.append({**use, **call, "input": {"command": f"echo {number}"}})
        events.append({"type": "tool_result", **call, "status": "success", "output": f"{number}\n", "durationMs": 3})
    session = stored(stage, events)
    page = visit(f"#/s/{session}", "phone")
    expect(page.locator(".reply", has_text="Number 3332")).to_be_visible()  # the end, at once
    requests = page.evaluate(
        "performance.getEntriesByType('resource').filter(one => one.name.includes('/events')).length"
    )
    assert requests == 0
    assert page.evaluate("document.querySelectorAll('virtual-list *').length") < 1500
    loaded = "document.querySelector('session-view').opened.events.length"
    assert page.evaluate(loaded) < 1000
    while (many := page.evaluate(loaded)) < len(events):
        page.evaluate("document.querySelector('virtual-list').scrollTop = 0")
        page.evaluate(TWO_FRAMES)
        top = page.evaluate(TOP_ITEM)
        stage.until(lambda many=many: page.evaluate(loaded) > many, "loading back")
        page.evaluate(TWO_FRAMES)
        moved = abs(page.evaluate(TOP_ITEM)["key"] - top["key"])
        assert moved <= 6  # what is being read stays, to an item or two: texts above it are still drawn
    seqs = page.evaluate("document.querySelector('session-view').opened.events.map(one => one.seq)")
    assert seqs == list(range(1, len(events) + 1))
    page.evaluate("document.querySelector('virtual-list').scrollTop = 0")
    expect(page.locator(".reply", has_text=re.compile(r"^Number 0\b"))).to_be_visible()
    assert page.evaluate("document.querySelectorAll('virtual-list *').length") < 1500
    page.get_by_role("button", name="Latest").click()
    expect(page.locator(".reply", has_text="Number 3332")).to_be_visible()


def test_a_question_does_not_move_while_others_go_on(visit: Any, stage: Any) -> None:
    """An agent may go on beside its question; what it says comes below, and the end is gone to after the answer."""
    request = {"toolName": "shell", "operation": "execute", "target": "make", "input": {"command": "make"}}
    events: list[dict[str, Any]] = [{"type": "turn_started", "prompt": "Go"}]
    events += [{"type": "text", "text": f"Before {number}", "messageId": f"b{number}"} for number in range(60)]
    events.append({"type": "permission_request", "requestId": "1", **request})
    row = {"state": "running", "activity": "waiting", "open_questions": 1}
    session = stored(stage, events, **row)
    page = visit(f"#/s/{session}")
    card = page.locator(OPEN)
    page.locator(f"{OPEN}:not(.settling)").wait_for()  # until then it takes no tap
    expect(page.locator(".prose.raw")).to_have_count(0)
    page.evaluate(TWO_FRAMES)
    place = card.bounding_box()
    more = [{"type": "text", "text": f"After {number}", "messageId": f"a{number}"} for number in range(40)]
    for at in range(0, len(more), 8):
        appended(stage, session, len(events) + at, more[at : at + 8], **row)
        last = len(events) + at + 8
        stage.until(lambda last=last: page.evaluate(LAST_HELD) == last, "hearing of it")
        page.evaluate(TWO_FRAMES)
        assert card.bounding_box() == place
    expect(page.get_by_role("button", name="Latest")).to_be_visible()
    resolution = {"type": "permission_resolved", "requestId": "1", "decision": "allow", "by": "client"}
    appended(stage, session, len(events) + len(more), [resolution], state="running", activity="working")
    expect(page.locator(".reply", has_text="After 39")).to_be_in_viewport()
    expect(page.get_by_role("button", name="Latest")).to_be_hidden()
    page.close()  # it would ask for the session that is removed now
    stage.run(stage.service._journal.forget(session))


HARM = (
    "<script>window.harmed = 1</script><img src=x onerror='window.harmed = 2'><svg onload='window.harmed = 3'>"
    "</script><iframe src='https://evil.example/'></iframe>[click](javascript:window.harmed=4) "
    '![see](https://evil.example/pixel.png) <a href="javascript:window.harmed=5">x</a> '
    "<style>@import 'https://evil.example/x.css'; body { display: none }</style> \u202egnp.exe\u2066 "
    "\x1b]0;title\x07\x1b[31mred\x1b[0m\x1b[2J\x00\x08 <form action=https://evil.example><input></form>"
)


def test_an_agent_that_means_harm_does_none(visit: Any, stage: Any) -> None:
    call = {"toolUseId": "call-1", "parentToolUseId": ""}
    use = {"name": "shell", "operation": "execute"}
    diff = f"--- a/x\n+++ b/x\n@@ -1 +1 @@\n-{HARM}\n+{HARM}{'y' * 300_000}\n"
    request = {"toolName": "shell", "operation": "execute", "target": HARM, "input": {"command": HARM}, "risk": "high"}
    session = stored(
        stage,
        [
            {"type": "init", "model": HARM, "cwd": HARM, "agentVersion": HARM},
            {"type": "turn_started", "prompt": HARM},
            {"type": "thinking", "text": HARM},
            {"type": "text", "text": HARM, "messageId": "1"},
            {"type": "text", "text": f"```html\n{HARM}\n```\n\n```{HARM}\nx\n```", "messageId": "2"},
            {"type": "text", "text": "z" * 5_000_000, "messageId": "3"},
            {"type": "tool_use", **call, **use, "nativeName": HARM, "target": HARM, "input": {HARM: HARM}},
            {"type": "tool_progress", **call, "output": HARM},
            {"type": "tool_result", **call, "status": "error", "exitCode": 1, "output": HARM + "w" * 5_000_000},
            {"type": "file_change", "toolUseId": "call-1", "path": HARM, "change": "modified", "diff": diff},
            {"type": "plan", "items": [{"text": HARM, "status": "pending"}, {"text": HARM, "status": HARM}]},
            {"type": "permission_request", "requestId": "1", **request, "description": HARM},
            {"type": "permission_request", "requestId": "2", **request},
            {"type": "permission_resolved", "requestId": "2", "decision": "deny", "by": "client", "message": HARM},
            {"type": "retry", "attempt": 1, "reason": HARM},
            {"type": "notice", "level": "warning", "code": HARM, "message": HARM},
            {"type": "error", "kind": "other", "message": HARM},
            {"type": "unrecognized", "raw": HARM, "why": HARM},
            {"type": "turn_completed", "status": "error"},
            {"type": "done", "status": "error"},
        ],
        title=HARM, prompt=HARM, result=HARM, branch=HARM, model=HARM,
    )  # fmt: skip
    page = visit(f"#/s/{session}")
    expect(page.locator(".rule.final")).to_be_visible()
    page.evaluate("document.querySelector('virtual-list').scrollTop = 0")
    expect(page.locator(".prompt .bubble")).to_be_visible()
    for at in range(0, 20000, 700):
        page.evaluate(f"document.querySelector('virtual-list').scrollTop = {at}")
        page.evaluate("document.querySelectorAll('virtual-list details').forEach(one => (one.open = true))")
        page.evaluate(TWO_FRAMES)
    page.evaluate("document.querySelector('virtual-list').scrollTop = 0")
    expect(page.locator(".prose:not(.raw)").first).to_be_visible()
    assert page.evaluate("window.harmed") is None
    elements = "script, iframe, form, img, style, object, embed, link, [onerror], [onload], a[href^='javascript']"
    assert page.locator(f"virtual-list :is({elements})").count() == 0
    text = page.evaluate(
        "document.querySelector('virtual-list').innerText + document.querySelector('header').innerText"
    )
    assert not re.search("[\u202a-\u202e\u2066-\u2069\x00-\x08\x1b]", text)
    assert "⟦U+202E⟧" in text
    assert page.evaluate("document.body.scrollWidth <= innerWidth")
    assert page.evaluate("document.title") == "Stagedoor"
    page.goto(f"{stage.url}/#/overview")
    expect(page.get_by_role("heading", name="Devices")).to_be_visible()


def test_older_sessions_come_when_somebody_looks_for_them(visit: Any, stage: Any) -> None:
    old = int(time.time() * 1000) - 86_400_000
    many = [
        SessionView(
            id=f"many-{number}", agent="understudy", cwd=str(stage.root), title=f"Number {number:03}", state="done",
            activity="ended", created_at=old - number, updated_at=old - number,
        )
        for number in range(260)
    ]  # fmt: skip
    stage.run(stage.service._journal.write(*many))
    page = visit()
    expect(page.locator(".session").first).to_be_visible()
    expect(page.locator(".session", has_text="Number 259")).to_have_count(0)
    page.get_by_label("Search sessions").fill("number 259")
    expect(page.locator(".session .title")).to_have_text(["Number 259"])
    page.get_by_label("Search sessions").fill("")
    page.get_by_role("button", name="Show older sessions").click()
    expect(page.locator(".session", has_text="Number 258")).to_have_count(1)
    expect(page.get_by_role("button", name="Show older sessions")).to_be_hidden()
    page.context.close()
    for session in many:
        stage.run(stage.service._journal.forget(session.id))


def test_colours_of_a_terminal_become_classes(visit: Any, stage: Any) -> None:
    session = stage.start(
        [{"shell": r"printf '\033[31mred\033[0m plain\n50%%\r100%%\n'"}], [{"say": "ok"}], autoApprove=["shell"]
    )
    page = visit(f"#/s/{session}")
    page.locator(".tool summary").click()
    expect(page.locator("pre.output .a-f1")).to_have_text("red")
    expect(page.locator("pre.output")).to_have_text("red plain\n100%\n")


def test_an_agent_that_is_silent_for_long_takes_one_line(visit: Any) -> None:
    notices = [
        {"seq": number, "type": "notice", "code": code, "message": f"{code} {number}"}
        for number, code in enumerate(("stalled", "stalled", "mode", "stalled"), 1)
    ]
    fold = """notices => import('/static/core/fold.js').then(({Fold}) => {
      const fold = new Fold();
      fold.add(notices);
      return fold.items.map(one => [one.key, one.version, one.event.message]);
    })"""
    assert visit().evaluate(fold, notices) == [["1", 1, "stalled 2"], ["3", 0, "mode 3"], ["4", 0, "stalled 4"]]
