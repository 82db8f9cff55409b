"""The real server under load, killed with ``kill -9`` at random points a hundred times, with clients at every stream.

Whatever was acknowledged is there afterwards, once; every client goes on from its place with no gap, no repeat and no
wrong order; no process and no file is left; every session ends truthfully, once.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import random
import re
import signal
import sys
import uuid
from collections import Counter
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import httpx
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosedError, InvalidHandshake, InvalidMessage

from tests.processes import with_environment

KILLS = int(os.environ.get("STAGEDOOR_KILLS", "30"))
"""``make portable`` kills it a hundred times."""
SESSIONS = 3
"""That run at the same time."""
MOST_EVENTS = 80
"""After so many at most a server is killed."""
PATIENCE = 3.0
"""Seconds after which it is killed though there are not so many: everything may wait for an answer that comes later."""
UNHEARD = 0.15
"""Share of the servers that are killed while they start."""
BOUND = 3600.0
MARK = "KILLED_SERVERS_CHILD"
LOST = (httpx.TransportError, ConnectionClosedError, InvalidHandshake, InvalidMessage, OSError, EOFError)
CHANCE = random.Random(20261115)


class Server:
    """One server after another, on the same home."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.mark = uuid.uuid4().hex
        self.url: str | None = None
        self.lives = 0
        self.changed = asyncio.Condition()
        self._pid = 0
        self._log = folder / "server.log"
        for name in ("workspace", "home", "temporary"):
            (folder / name).mkdir()
        (folder / "script.json").write_text(json.dumps([{"say": "as you say"}]))
        agent = {
            "args": ["--script", str(folder / "script.json")],
            "env": {"STAGEDOOR_UNDERSTUDY_HOME": str(folder / "understudy")},
        }
        (folder / "home" / "config.yaml").write_text(
            json.dumps({"agents": {"default": "understudy", "understudy": agent}})
        )

    @contextlib.asynccontextmanager
    async def foreman(self) -> AsyncGenerator[None]:
        env = {name: value for name, value in os.environ.items() if not name.startswith("STAGEDOOR")}
        env.pop("PYTHONUNBUFFERED", None)  # with it the server's lines come in pieces between the foreman's
        env |= {"STAGEDOOR_HOME": str(self.folder / "home"), "TMPDIR": str(self.folder / "temporary"), MARK: self.mark}
        with self._log.open("wb") as log:
            self._foreman = await asyncio.create_subprocess_exec(
                sys.executable, str(Path(__file__).with_name("killable.py")),
                "--port", "0", "--root", str(self.folder / "workspace"), "--log-level", "error",
                env=env, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=log,
            )  # fmt: skip
        try:
            yield
        finally:
            if self._pid:
                with contextlib.suppress(ProcessLookupError):  # it has ended, and we were stopped before we knew
                    os.kill(self._pid, signal.SIGKILL)
            self._foreman.kill()
            await self._foreman.wait()

    async def start(self) -> None:
        assert self._foreman.stdin is not None
        self._foreman.stdin.write(b"\n")
        self._pid = int((await self._read_until(r"pid (\d+)"))[1])

    async def listens(self) -> None:
        url = (await self._read_until(r"Stagedoor listens on (\S+)"))[1]
        async with self.changed:
            self.url = url
            self.lives += 1
            self.changed.notify_all()

    async def end(self, number: int) -> None:
        self.url = None  # before the signal: whoever loses a server that should be up has found a fault
        os.kill(self._pid, number)
        status = int((await self._read_until(r"over (-?\d+)"))[1])
        assert status == (-signal.SIGKILL if number == signal.SIGKILL else 0)
        self._pid = 0
        async with asyncio.timeout(240):
            while self._survivors():
                await asyncio.sleep(0.01)

    async def up(self) -> str:
        async with self.changed:
            await self.changed.wait_for(lambda: self.url is not None)
        assert self.url is not None
        return self.url

    async def next_life(self) -> None:
        now = self.lives
        async with self.changed:
            await self.changed.wait_for(lambda: self.lives > now)

    @property
    def headers(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {(self.folder / 'home' / 'token').read_text().strip()}"}

    async def _read_until(self, pattern: str) -> re.Match[str]:
        assert self._foreman.stdout is not None
        output_lines: list[str] = []
        while line := (await self._foreman.stdout.readline()).decode():
            if found := re.match(pattern, line):
                return found
            output_lines.append(line)
            if line.startswith("over "):
                break
        output = "".join(output_lines) + self._log.read_text()
        raise AssertionError(f"the server ended before it said {pattern!r}; it said:\n{output}")

    def _survivors(self) -> list[int]:
        """The processes that a server of ours left."""
        return [pid for pid in with_environment(f"{MARK}={self.mark}") if pid != self._foreman.pid]


class Watcher:
    """Follows one session in one way over all lives of the server, each time from where it stopped."""

    def __init__(self, load: Load, session_id: str, way: str) -> None:
        self.load = load
        self.id = session_id
        self.way = way
        self.events: list[dict[str, Any]] = []
        self.finished = False

    async def run(self) -> None:
        ways = {"websocket": self._websocket, "sse": self._sse, "poll": self._poll}
        while not self.finished:
            url = await self.load.server.up()
            try:
                await ways[self.way](url)
            except LOST as lost:
                if self.load.server.url == url:
                    raise AssertionError(f"{self.way} lost a server that is up") from lost

    def _receive(self, event: dict[str, Any]) -> None:
        assert event["seq"] == len(self.events) + 1, (self.way, event["seq"], len(self.events))
        assert event["sessionId"] == self.id
        self.events.append(event)
        self.load.receive(self, event)

    def _end(self) -> None:
        assert self.events[-1]["type"] == "done"
        self.finished = True

    async def _websocket(self, url: str) -> None:
        where = f"{url.replace('http', 'ws', 1)}/ws/sessions/{self.id}?after={len(self.events)}"
        patience = {"open_timeout": BOUND, "ping_timeout": BOUND}  # a busy machine does not make a server lost
        async with connect(where, additional_headers=self.load.server.headers, proxy=None, **patience) as socket:
            self._verdict(json.loads(await socket.recv()))
            async for message in socket:
                self._receive(json.loads(message))
            if socket.close_code == 1000:
                self._end()

    async def _sse(self, url: str) -> None:
        place = {"Last-Event-ID": str(len(self.events))} if self.events else {}
        async with self.load.http.stream("GET", f"{url}/api/sessions/{self.id}/stream", headers=place) as answer:
            if answer.status_code == 204:
                self._end()
                return
            assert answer.status_code == 200
            fields: dict[str, str] = {}
            async for line in answer.aiter_lines():
                if line:
                    name, _, value = line.partition(": ")
                    fields[name] = value
                    continue
                match fields.get("event"):
                    case "verdict":
                        self._verdict(json.loads(fields["data"]))
                    case "end":
                        self._end()
                    case _ if "data" in fields:
                        assert fields["id"] == str(len(self.events) + 1)
                        self._receive(json.loads(fields["data"]))
                    case _:
                        pass  # a heartbeat
                fields = {}

    async def _poll(self, url: str) -> None:
        answer = await self.load.http.get(
            f"{url}/api/sessions/{self.id}/poll", params={"after": len(self.events), "wait": 20}
        )
        assert answer.status_code == 200, answer.text
        polled = answer.json()
        self._verdict(polled["verdict"])
        for event in polled["events"]:
            self._receive(event)
        assert polled["lastSeq"] == len(self.events)
        if polled["ended"]:
            self._end()

    def _verdict(self, verdict: dict[str, Any]) -> None:
        assert (verdict["verdict"], verdict["sessionId"]) == ("ok", self.id)


class Load:
    """Clients that begin sessions, talk to them, answer and watch, and remember what was acknowledged."""

    def __init__(self, server: Server, http: httpx.AsyncClient, tasks: asyncio.TaskGroup) -> None:
        self.server = server
        self.http = http
        self.tasks = tasks
        self.created: list[str] = []
        self.prompts: dict[str, list[str]] = {}
        """Session → everything it was asked to do, each with a word of its own."""
        self.answers: dict[str, str] = {}
        self.watchers: dict[str, list[Watcher]] = {}
        self.stopping = False
        self.since_start = 0
        self._more = asyncio.Event()

    async def until(self, events: int) -> None:
        """That many have been heard since the server's start."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(PATIENCE):
                while self.since_start < events:
                    self._more.clear()
                    await self._more.wait()

    def receive(self, watcher: Watcher, event: dict[str, Any]) -> None:
        if watcher.way != "websocket":
            return
        self.since_start += 1
        self._more.set()
        if event["type"] == "permission_request":
            self.tasks.create_task(self._answer(event["requestId"]))

    async def work(self, number: int) -> None:
        """One session after another."""
        for turn in range(number, sys.maxsize):
            if self.stopping:
                return
            await (self._talk() if turn % 3 == 2 else self._ask_once(asks=turn % 3 == 1))

    async def _ask_once(self, *, asks: bool) -> None:
        prompt = _asking() if asks else _telling()
        made = await self._post("/api/sessions", {"agentId": "understudy", "prompt": prompt})
        await self._watch(made["id"], prompt)

    async def _talk(self) -> None:
        prompt = _telling()
        session_id = (await self._post("/api/sessions", {"prompt": prompt, "keepOpen": True}))["id"]
        talking = self.tasks.create_task(self._say_more(session_id))
        await self._watch(session_id, prompt)
        await talking

    async def _say_more(self, session_id: str) -> None:
        for _ in range(CHANCE.randint(1, 4)):
            prompt = CHANCE.choice((_telling, _asking))()
            sent = await self._post(f"/api/sessions/{session_id}/messages", {"prompt": prompt}, refusals=(409,))
            if sent is None:
                return  # the server died before the session had reached its agent: it could not be taken up again
            self.prompts[session_id].append(prompt)
            if CHANCE.random() < 0.5:
                await self.server.next_life() if not self.stopping else None
        await self._post(f"/api/sessions/{session_id}/cancel", {})

    async def _watch(self, session_id: str, prompt: str) -> None:
        self.created.append(session_id)
        self.prompts[session_id] = [prompt]
        watchers = self.watchers[session_id] = [Watcher(self, session_id, way) for way in ("websocket", "sse", "poll")]
        async with asyncio.TaskGroup() as tasks:
            for watcher in watchers:
                tasks.create_task(watcher.run())

    async def _answer(self, question_id: str) -> None:
        if CHANCE.random() < 0.5 and not self.stopping:
            await self.server.next_life()
        decision = CHANCE.choice(("allow", "deny"))
        path = f"/api/permissions/{question_id}"
        answered = await self._post(path, {"decision": decision}, refusals=(409,))
        if answered is not None:
            assert answered["decision"]["type"] == decision
            self.answers[question_id] = decision

    async def _post(self, path: str, body: dict[str, Any], *, refusals: tuple[int, ...] = ()) -> Any:
        """Until it is acknowledged. The key makes it count once, however often it has to be said."""
        key = {"Idempotency-Key": uuid.uuid4().hex}
        while True:
            url = await self.server.up()
            try:
                answer = await self.http.post(url + path, json=body, headers=key)
            except LOST as lost:
                if self.server.url == url:
                    raise AssertionError(f"POST {path} lost a server that is up") from lost
                continue
            if answer.status_code in refusals:
                return None
            assert answer.status_code in (200, 201, 202), answer.text
            return answer.json()


def _telling() -> str:
    return json.dumps({"script": [[{"say": f"{uuid.uuid4().hex} " + "word " * 30}]]})


def _asking() -> str:
    return json.dumps({"script": [[{"shell": f"echo {uuid.uuid4().hex}"}], [{"say": "it is done " * 5}]]})


def test_nothing_is_lost_when_the_server_is_killed_again_and_again(tmp_path: Path) -> None:
    asyncio.run(_main(tmp_path))


def _is_trial_of_python(path: Path) -> bool:
    """Whoever first asks Python for the temporary folder makes it write and remove a file there, and may be killed in
    between."""
    return path.is_file() and path.read_bytes() in (b"", b"blat")


async def _main(folder: Path) -> None:
    server = Server(folder)
    async with asyncio.timeout(BOUND), server.foreman():
        await server.start()
        await server.listens()
        async with (
            httpx.AsyncClient(headers=server.headers, timeout=BOUND, trust_env=False) as http,
            asyncio.TaskGroup() as tasks,
        ):
            load = Load(server, http, tasks)
            for number in range(SESSIONS):
                tasks.create_task(load.work(number))
            await _kill_again_and_again(server, load)
            load.stopping = True
            await server.listens()
        async with httpx.AsyncClient(
            base_url=await server.up(), headers=server.headers, timeout=BOUND, trust_env=False
        ) as http:
            await _check(load, http)
        await server.end(signal.SIGTERM)
    assert [path for path in (folder / "temporary").iterdir() if not _is_trial_of_python(path)] == []


async def _kill_again_and_again(server: Server, load: Load) -> None:
    """The first server listens; the last one only starts."""
    for kill in range(1, KILLS + 1):
        if server.url is not None or kill == 1 or CHANCE.random() > UNHEARD:
            if server.url is None:
                await server.listens()
            load.since_start = 0
            await load.until(CHANCE.randint(0, MOST_EVENTS))
        else:
            await asyncio.sleep(CHANCE.random() * 0.2)
        await server.end(signal.SIGKILL)
        await server.start()


async def _check(load: Load, http: httpx.AsyncClient) -> None:
    page = (await http.get("/api/sessions", params={"limit": 500})).json()
    views = {view["id"]: view for view in page["sessions"]}
    assert sorted(views) == sorted(load.created)
    questions: list[dict[str, Any]] = []
    query: dict[str, Any] = {"open": False}
    while page := (await http.get("/api/permissions", params=query)).json()["permissions"]:
        questions += page
        query["offset"] = len(questions)
    by_id = {one["id"]: one for one in questions}
    assert [one["id"] for one in questions if one["open"]] == []
    assert {name: by_id[name]["decision"]["type"] for name in load.answers} == load.answers
    for session_id, watchers in load.watchers.items():
        kept = (await http.get(f"/api/sessions/{session_id}/events", params={"limit": 10_000})).json()["events"]
        for watcher in watchers:
            assert watcher.events == kept
        _is_truthful(views[session_id], kept, load.prompts[session_id])


def _is_truthful(view: dict[str, Any], events: list[dict[str, Any]], prompts: list[str]) -> None:
    kinds = Counter(event["type"] for event in events)
    assert (kinds["done"], events[-1]["type"], view["activity"]) == (1, "done", "ended")
    assert view["lastSeq"] == len(events)
    assert kinds["turn_started"] == kinds["turn_completed"]
    for start_kind, end_kind, name in (
        ("tool_use", "tool_result", "toolUseId"),
        ("permission_request", "permission_resolved", "requestId"),
    ):
        ids = {kind: sorted(one[name] for one in events if one["type"] == kind) for kind in (start_kind, end_kind)}
        assert ids[start_kind] == ids[end_kind], (view["id"], start_kind)
    failed = any(event["type"] == "error" and event["fatal"] for event in events)
    ends = {"success": ("done",), "interrupted": ("failed",) if failed else ("cancelled",), "error": ("failed",)}
    assert (view["status"], view["state"]) in [(events[-1]["status"], state) for state in ends[events[-1]["status"]]]
    sent = Counter(event["prompt"] for event in events if event["type"] == "turn_started")
    assert all(sent[prompt] <= 1 for prompt in prompts)
    dropped = sum(_dropped(event["message"]) for event in events if event.get("code") == "messages_dropped")
    dropped += sum(event.get("code") == "message_cut_off" for event in events)  # on its way: it may have arrived
    assert sum(sent[prompt] for prompt in prompts) + dropped >= len(prompts), (view["id"], dropped)


def _dropped(message: str) -> int:
    return 1 if message.startswith("a message") else int(message.split()[0])
