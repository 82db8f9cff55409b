"""Several doors and workers on one database, clients that use them, and what goes wrong there."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import random
import re
import signal
import sys
import tempfile
import uuid
from collections.abc import AsyncGenerator, Sequence
from pathlib import Path
from typing import Any

import asyncpg
import httpx
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosedError, InvalidHandshake, InvalidMessage

from tests.machines.history import History, Request, Row
from tests.machines.proxy import Wire
from tests.processes import is_running, with_environment
from tools.postgres import USER, Cluster

BOUND = 240.0
MARK = "STAGEDOORS_CHAOS"  # not one of ours: those are not handed on to agents
LOST = (httpx.TransportError, ConnectionClosedError, InvalidHandshake, InvalidMessage, OSError, EOFError, TimeoutError)
LATER = (429, 502, 503, 504)
DEEDS = ("kill worker", "freeze worker", "silence worker", "kill door", "cut", "crash")
_TOKEN = re.compile(r"token-[0-9a-f]{32}")


class Machine:
    """One process after another under one name, with a wire of its own to the database."""

    def __init__(self, world: World, name: str, argv: list[str]) -> None:
        self.world = world
        self.name = name
        self.url = ""
        self.pid = 0
        self.home = world.folder / name
        self.root = world.folder / f"{name}-root"
        self._argv = argv
        for folder in (self.home, self.root):
            folder.mkdir()
        env = {"STAGEDOOR_UNDERSTUDY_HOME": str(world.folder / f"{name}-understudy"), MARK: world.mark}
        agents = {"default": "understudy", "understudy": {"env": env, **world.understudy}}
        config = {"agents": agents, "machine": {"lease": world.lease}, **world.settings}
        (self.home / "config.yaml").write_text(json.dumps(config))

    @contextlib.asynccontextmanager
    async def wired(self) -> AsyncGenerator[Machine]:
        async with Wire(self.world.cluster.folder / ".s.PGSQL.5432").listening() as self.wire:
            yield self

    async def start(self) -> None:
        lives = len(self._said())
        env = {name: os.environ[name] for name in ("PATH", "LANG", "PYTHONPATH") if name in os.environ}
        env |= {"STAGEDOOR_HOME": str(self.home), "HOME": str(self.home), MARK: self.world.mark,
                "TMPDIR": str(self.world.folder / "temporary")}  # fmt: skip
        database = f"postgresql://{USER}@127.0.0.1:{self.wire.port}/postgres"
        self.pid = await self.world.fork(
            argv=[*self._argv, "--database", database, "--log-level", "error"], env=env, cwd=str(self.root),
            out=str(self.home / "out"), err=str(self.home / "err"),
        )  # fmt: skip
        async with asyncio.timeout(BOUND):
            while len(lines := self._said()) == lives:
                assert is_running(self.pid), f"{self.name} ended: {(self.home / 'err').read_text()[-2000:]}"
                await asyncio.sleep(0.02)
        self.url = lines[-1]

    def kill(self) -> None:
        self.url = ""
        self._signal(signal.SIGKILL)

    def _signal(self, number: int) -> None:
        if self.pid:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)

    async def ended(self) -> None:
        async with asyncio.timeout(BOUND):
            while is_running(self.pid):
                await asyncio.sleep(0.02)

    async def restart(self) -> None:
        self.kill()
        await self.ended()
        await self.start()

    async def freeze(self, seconds: float) -> None:
        self._signal(signal.SIGSTOP)
        try:
            await asyncio.sleep(seconds)
        finally:
            self._signal(signal.SIGCONT)

    async def cut_off(self, seconds: float) -> None:
        self.wire.silence()
        try:
            await asyncio.sleep(seconds)
        finally:
            self.wire.restore()

    @property
    def headers(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {(self.home / 'token').read_text().strip()}"}

    def _said(self) -> list[str]:
        """What each life said first, in whole lines."""
        try:
            text = (self.home / "out").read_text()
        except FileNotFoundError:
            return []
        return re.findall(r"^Stagedoor (?:listens on|works as) (\S+).*\n", text, re.MULTILINE)


class World:
    def __init__(self, folder: Path, chance: random.Random, *, workers: int, doors: int, lease: int) -> None:
        self.folder = folder
        self.chance = chance
        self.lease = lease
        self.settings: dict[str, Any] = {}
        """More of what the configuration of each machine says; ``understudy``: of what it says of that agent."""
        self.understudy: dict[str, Any] = {}
        self.mark = uuid.uuid4().hex
        self.history = History()
        self.stopping = False
        self.doing: dict[str, str] = {}
        """What clients are at, by what they began it with."""
        self.cluster: Cluster
        self._sizes = (workers, doors)
        self._forking = asyncio.Lock()

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncGenerator[World]:
        (self.folder / "temporary").mkdir()
        async with contextlib.AsyncExitStack() as stack:
            place = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="sd-chaos-", dir="/tmp")))
            self.cluster = Cluster(place)
            stack.callback(self.cluster.stop)
            await asyncio.to_thread(self.cluster.start)
            await self._start_forks(stack)
            workers, doors = self._sizes
            self.workers = [Machine(self, f"w{n}", ["worker", "--name", f"w{n}"]) for n in range(workers)]
            self.doors = [Machine(self, f"d{n}", ["serve", "--door", "--port", "0"]) for n in range(doors)]
            for machine in (*self.doors, *self.workers):
                await stack.enter_async_context(machine.wired())
                stack.callback(machine.kill)
            for machine in (*self.doors, *self.workers):
                await machine.start()
            self.http = await stack.enter_async_context(httpx.AsyncClient(timeout=BOUND, trust_env=False))
            yield self

    async def _start_forks(self, stack: contextlib.AsyncExitStack) -> None:
        self._forks = await asyncio.create_subprocess_exec(
            sys.executable, str(Path(__file__).with_name("forks.py")),
            stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
        )  # fmt: skip

        async def end() -> None:
            assert self._forks.stdin is not None
            self._forks.stdin.close()
            await self._forks.wait()

        stack.push_async_callback(end)

    async def fork(self, **order: Any) -> int:
        assert self._forks.stdin is not None
        assert self._forks.stdout is not None
        async with self._forking:
            self._forks.stdin.write(json.dumps(order).encode() + b"\n")
            return int(await self._forks.stdout.readline())

    # -- clients

    async def door(self) -> Machine:
        async with asyncio.timeout(BOUND):
            while not (there := [door for door in self.doors if door.url]):
                await asyncio.sleep(0.02)
        return self.chance.choice(there)

    async def post(self, path: str, body: dict[str, Any], *, tries: int = sys.maxsize) -> tuple[int, Any]:
        """To any door, until one says something final. The key makes it count once. Status 0: nobody said anything."""
        key = {"Idempotency-Key": uuid.uuid4().hex}
        status, reply = 0, None
        for _ in range(tries):
            door = await self.door()
            try:
                answer = await self.http.post(door.url + path, json=body, headers=key | door.headers)
            except LOST:
                continue
            if answer.status_code not in LATER:
                self.doing.pop(key["Idempotency-Key"], None)
                return answer.status_code, answer.json()
            status, reply = 0, answer.text
            self.doing[key["Idempotency-Key"]] = f"{path}: {reply}"
            await asyncio.sleep(0.2)
        return status, reply

    async def work(self) -> None:
        """One session after the other, until it is time to stop."""
        while not self.stopping:
            await self._session(asks=self.chance.random() < 0.5)

    async def _session(self, *, asks: bool) -> None:
        token = f"token-{uuid.uuid4().hex}"
        body = {"agentId": "understudy", "prompt": self._prompt(token, asks=asks),
                "tier": "supervised" if asks else "autonomous"}  # fmt: skip
        status, reply = await self.post("/api/sessions", body)
        session = reply["id"] if status == 201 else ""
        self.history.requests.append(Request("create", session, token, status, leaves_mark=not asks))
        if not session:
            return
        async with asyncio.TaskGroup() as group:
            for number in range(2):
                group.create_task(self._follow(session, f"follower {number}"))
            if self.chance.random() < 0.4:
                group.create_task(self._send(session, asks=asks))

    async def _send(self, session: str, *, asks: bool) -> None:
        token = f"token-{uuid.uuid4().hex}"
        status, _ = await self.post(f"/api/sessions/{session}/messages", {"prompt": self._prompt(token, asks=asks)})
        self.history.requests.append(Request("send", session, token, status, leaves_mark=not asks))

    def _prompt(self, token: str, *, asks: bool) -> str:
        deed = {"shell": f"true {token}"} if asks else {"shell": f"echo {token} >> {self.folder}/effects"}
        return json.dumps({"script": [[{"say": "word " * 20}, deed], [{"say": "that was it"}]]})

    async def _follow(self, session: str, name: str) -> None:
        """From wherever it stopped, at whichever door, until the end."""
        events: list[dict[str, Any]] = []
        self.history.heard.append((name, session, events))
        answering: set[asyncio.Task[None]] = set()
        ended = False
        while not ended:
            door = await self.door()
            self.doing[f"{name} {session}"] = f"after {len(events)}"
            where = f"{door.url.replace('http', 'ws', 1)}/ws/sessions/{session}?after={len(events)}"
            try:
                async with connect(where, additional_headers=door.headers, proxy=None, open_timeout=BOUND) as socket:
                    await socket.recv()
                    async for message in socket:
                        event = json.loads(message)
                        assert event["seq"] == len(events) + 1, (name, event["seq"], len(events))
                        events.append(_plain(event))
                        self.doing[f"{name} {session}"] = f"heard {len(events)} of {door.name}"
                        if event["type"] == "permission_request":
                            answering.add(asyncio.create_task(self._answer(session, event["requestId"])))
                    ended = socket.close_code == 1000 and bool(events) and events[-1]["type"] == "done"
            except LOST as fault:
                self.doing[f"{name} {session}"] = f"after {len(events)}: {fault!r}"
                await asyncio.sleep(0.05)
        self.doing[f"{name} {session}"] = "waits for its answers"
        await asyncio.gather(*answering)
        del self.doing[f"{name} {session}"]

    async def _answer(self, session: str, question: str) -> None:
        """Both followers do, at whichever doors, without waiting for each other."""
        decision = self.chance.choice(("allow", "deny"))
        status, reply = await self.post(f"/api/permissions/{question}", {"decision": decision})
        if status == 200:
            assert reply["decision"]["type"] == decision
        self.history.requests.append(Request("answer", session, question, status, decision))

    async def rest(self) -> None:
        """What no client was told of is looked at as a person would: followed to its end, its questions answered."""
        async with asyncio.TaskGroup() as group:
            while found := await self._open_sessions():
                followed = {session for _, session, _ in self.history.heard}
                for session in found - followed:
                    group.create_task(self._follow(session, "operator"))
                    await asyncio.sleep(0)
                await asyncio.sleep(0.2)

    async def _open_sessions(self) -> set[str]:
        db = await asyncpg.connect(self.cluster.url())
        try:
            return {row["id"] for row in await db.fetch("SELECT id FROM stagedoor.sessions WHERE NOT ended")}
        finally:
            await db.close()

    # -- what goes wrong

    async def trouble(self, seconds: float, deeds: Sequence[str] = DEEDS) -> list[str]:
        """Something of ``deeds`` every now and then; returns what."""
        happened: list[str] = []
        until = asyncio.get_running_loop().time() + seconds
        beyond = self.lease * 1.5
        while asyncio.get_running_loop().time() < until:
            worker, door = self.chance.choice(self.workers), self.chance.choice(self.doors)
            deed = self.chance.choice(deeds)
            happened.append(f"{deed} {worker.name} {door.name}")
            match deed:
                case "kill worker":
                    await worker.restart()
                case "freeze worker":
                    await worker.freeze(beyond)
                case "silence worker":
                    await worker.cut_off(beyond)
                case "kill door":
                    await door.restart()
                case "cut":
                    door.wire.cut()
                    worker.wire.cut()
                case _:
                    await asyncio.to_thread(self.cluster.crash)
                    await asyncio.to_thread(self.cluster.start)
            await asyncio.sleep(self.chance.uniform(0.2, 1.0))
        return happened

    async def unrest(self) -> list[str]:
        """What has not ended, what clients are at, and what machines say of themselves."""
        db = await asyncpg.connect(self.cluster.url())
        told: list[str] = []
        try:
            sql = """
                SELECT id, ended, body, heads.worker, heads.incarnation, heads.epoch FROM stagedoor.sessions
                LEFT JOIN stagedoor.heads ON heads.session=id WHERE NOT ended OR id=ANY($1::text[])
            """
            followed = sorted({name.split()[-1] for name in self.doing if name.startswith(("follower", "operator"))})
            for row in await db.fetch(sql, followed):
                view, records = (
                    json.loads(row["body"]),
                    "SELECT body FROM stagedoor.records WHERE session=$1 ORDER BY seq",
                )
                events = [json.loads(body) for (body,) in await db.fetch(records, row["id"])]
                last = [
                    f"{one['seq']} {one['type']} {one.get('code', '')} {one.get('message', '')}" for one in events[-6:]
                ]
                told.append(f"{dict(row) | {'body': view['activity']}} {last}")
            told += [f"worker {row['body']}" for row in await db.fetch("SELECT body FROM stagedoor.workers")]
            open_ones = "SELECT id, kind, session, worker, taken FROM stagedoor.commands WHERE NOT done"
            told += [f"command {dict(row)}" for row in await db.fetch(open_ones)]
        finally:
            await db.close()
        errors = [f"{one.name}: {(one.home / 'err').read_text()[-800:]}" for one in (*self.workers, *self.doors)]
        return [*told, *errors, str(self.doing)]

    # -- and in the end

    async def account(self) -> History:
        """Everything as it stands when nobody works any more."""
        history = self.history
        db = await asyncpg.connect(self.cluster.url())
        try:
            rows = await db.fetch("SELECT session, seq, epoch, body FROM stagedoor.records ORDER BY session, seq")
        finally:
            await db.close()
        for row in rows:
            event = _plain(json.loads(row["body"]))
            history.rows.setdefault(row["session"], []).append(Row(row["seq"], row["epoch"], event))
        with contextlib.suppress(FileNotFoundError):
            history.effects += (self.folder / "effects").read_text().split()
        for machine in (*self.workers, *self.doors):
            machine.kill()
            await machine.ended()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(60):
                while with_environment(f"{MARK}={self.mark}"):
                    await asyncio.sleep(0.05)
        history.left_running += [str(pid) for pid in with_environment(f"{MARK}={self.mark}")]
        return history


def _plain(event: dict[str, Any]) -> dict[str, Any]:
    """A prompt is known by its token."""
    prompt = event.get("prompt")
    if isinstance(prompt, str) and prompt.startswith("{") and (token := _TOKEN.search(prompt)):
        return {**event, "prompt": token[0]}
    return event
