"""The doorbell between processes: ``LISTEN`` and ``NOTIFY`` on a connection of its own, never inside a write.

What is rung while a ring is on its way goes with the next one. Nothing depends on a ring: it says where to look. After
a broken connection some may have been missed, so then everything is rung.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterable
from uuid import uuid4

from stagedoor.errors import StoreBroken, StoreError
from stagedoor.transports.tasks import TaskOwner

from ..journal import LocalBell, LocalHub
from .connections import CONNECT_SECONDS, FAULTS, LONGEST_PAUSE, Engine, EngineConnection, close

CHANNEL = "stagedoor"
MOST_BYTES = 7900
"""PostgreSQL takes less than 8000 in one notification."""
EVERYTHING = "*"
CHECK_EVERY = 10.0
"""Seconds between two looks whether the line is still there, when nothing is rung."""
HEARD_WITHIN = 10.0
PAUSE = 0.002
"""Seconds after a ring in which others gather: a flood of writes is not a flood of rings."""
_NOTIFY = "SELECT pg_notify($1, payload) FROM unnest($2::text[]) AS payload"


class PostgresHub:
    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._local = LocalHub()
        self._id = uuid4().hex[:16]
        self._pending: set[str] = set()
        self._wake = asyncio.Event()
        self._arrived = asyncio.Event()
        self._tasks = TaskOwner()
        self._task: asyncio.Task[None] | None = None
        self._closing = False

    async def open(self) -> None:
        """Raises where rings would not arrive: behind a pooler that gives each transaction another connection."""
        db = await self._listening(once=True)
        try:
            await db.execute(_NOTIFY, CHANNEL, [self._id])
            async with asyncio.timeout(HEARD_WITHIN):
                await self._arrived.wait()
        except TimeoutError as fault:
            await close(db)
            raise StoreBroken(
                f"the log {self._engine.title} does not pass notifications on: it is behind a pooler in transaction "
                "mode, which cannot carry LISTEN; give the address of PostgreSQL itself, or of a pooler in session mode"
            ) from fault
        except FAULTS as fault:
            db.terminate()
            raise self._engine.unusable("opened", fault) from fault
        self._closing = False
        self._task = self._tasks.start(self._run(db), name="stagedoor doorbell")

    async def close(self) -> None:
        """What was rung before is passed on, if the engine is there."""
        task, self._task = self._task, None
        if task is not None:
            self._closing = True
            self._wake.set()
            await asyncio.wait([task], timeout=CONNECT_SECONDS)
        await self._tasks.close()

    def ring(self, topic: str, by: object = None) -> None:
        self._local.ring(topic, by)
        self._pending.add(topic)
        self._wake.set()

    def ring_all(self) -> None:
        self._local.ring_all()

    def bell(self, topic: str) -> LocalBell:
        return self._local.bell(topic)

    def watch(self, watcher: Callable[[str | None], None], me: object) -> None:
        self._local.watch(watcher, me)

    async def _run(self, db: EngineConnection) -> None:
        while True:
            await self._pass_on(db)
            if self._closing:
                await close(db)
                return
            pause = 0.0
            while not self._closing:
                try:
                    db = await self._listening(once=True)
                    break
                except StoreError:
                    pause = min(pause + 0.1, LONGEST_PAUSE)
                    await asyncio.sleep(pause)
            else:
                return
            self._local.ring_all()

    async def _pass_on(self, db: EngineConnection) -> None:
        """Until the connection breaks, or all is said and we are closing."""
        while self._pending or not self._closing:
            self._wake.clear()
            topics, self._pending = self._pending, set()
            try:
                async with asyncio.timeout(CHECK_EVERY):
                    if topics:
                        await db.execute(_NOTIFY, CHANNEL, list(_payloads(self._id, topics)))
                    elif db.is_closed():
                        raise ConnectionResetError("closed")
            except FAULTS:
                self._pending |= topics
                db.terminate()
                return
            if topics and not self._closing:
                await asyncio.sleep(PAUSE)
            if self._pending or self._closing:
                continue
            try:
                async with asyncio.timeout(CHECK_EVERY):
                    await self._wake.wait()
            except TimeoutError:
                try:
                    async with asyncio.timeout(CHECK_EVERY):
                        await db.execute("SELECT 1")
                except FAULTS:
                    db.terminate()
                    return

    async def _listening(self, *, once: bool) -> EngineConnection:
        db = await self._engine.connect(once=once)
        try:
            async with asyncio.timeout(CONNECT_SECONDS):
                await db.add_listener(CHANNEL, self._receive)
                db.add_termination_listener(self._ended)
        except FAULTS as fault:
            db.terminate()
            raise self._engine.unusable("opened", fault) from fault
        return db

    def _receive(self, _db: object, _pid: int, _channel: str, payload: str) -> None:
        sender, *topics = payload.split("\n")
        if sender == self._id:
            self._arrived.set()
            return
        for topic in topics:
            if topic == EVERYTHING:
                self._local.ring_all()
            else:
                self._local.ring(topic, self)

    def _ended(self, _db: object) -> None:
        if not self._closing:
            self._engine.went_away()
        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody is left to be woken
            self._wake.set()


def _payloads(sender: str, topics: Iterable[str]) -> Iterable[str]:
    """As few as possible."""
    payload, size = sender, len(sender)
    for topic in sorted(topics):
        name = topic if _can_be_named(topic) else EVERYTHING
        length = len(name.encode()) + 1
        if size + length > MOST_BYTES:
            yield payload
            payload, size = sender, len(sender)
        payload += "\n" + name
        size += length
    yield payload


def _can_be_named(topic: str) -> bool:
    """Else everything is rung, and so is this."""
    encoded = topic.encode(errors="replace")
    return not ({"\n", "\0"} & set(topic)) and len(encoded) < MOST_BYTES // 2 and encoded.decode() == topic
