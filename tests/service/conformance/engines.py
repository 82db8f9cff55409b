"""The engines that fill the seams of the service (``Store`` and ``Hub``), and what their common tests are made of.

Every test in this folder runs on each of ``ENGINES``. Add one here, and it has to keep the same promises.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncGenerator, Awaitable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple, Protocol, TypeVar

import pytest

from stagedoor.service.journal import Hub, Journal, LocalHub
from stagedoor.service.postgres import log_in
from stagedoor.service.sqlite import SqliteStore
from stagedoor.service.store import ConfigChange, Store
from stagedoor.service.views import (
    Device,
    IdempotentReply,
    Question,
    QueuedPrompt,
    Record,
    SessionView,
    TurnUsage,
    WorkerRow,
)
from stagedoor.unified.events import PermissionRequest, Usage
from tools.postgres import NoPostgres, empty_database

BOUND = 240.0
Value = TypeVar("Value")


class Party(NamedTuple):
    """Somebody who uses the log: a process of its own, as far as the engine can tell."""

    store: Store
    hub: Hub

    @property
    def journal(self) -> Journal:
        return Journal(self.store, self.hub)


class Engine(Protocol):
    """``place``: where its log is, as a word that another process can be given (``engine_at``)."""

    place: str

    def parties(self, count: int) -> Any:
        """``async with engine.parties(2) as (first, second):`` opens that many on one log, and closes them."""


class SqliteEngine:
    """One process only: the parties share its store and its hub. What they remember (a ``Journal``) is their own."""

    def __init__(self, folder: Path | str) -> None:
        self.place = f"sqlite:{folder}"
        self._path = Path(folder) / "log.db"

    @asynccontextmanager
    async def parties(self, count: int) -> AsyncGenerator[list[Party]]:
        store, hub = SqliteStore(self._path), LocalHub()
        await store.open()
        try:
            yield [Party(store, hub)] * count
        finally:
            await store.close()


class PostgresEngine:
    """A database of its own for this process, emptied for each test."""

    def __init__(self, url: str) -> None:
        self.place = url

    @asynccontextmanager
    async def parties(self, count: int) -> AsyncGenerator[list[Party]]:
        async with AsyncExitStack() as stack:
            parties: list[Party] = []
            for _ in range(count):
                party = Party(*log_in(self.place))
                await party.store.open()
                stack.push_async_callback(party.store.close)
                await party.hub.open()
                stack.push_async_callback(party.hub.close)
                parties.append(party)
            yield parties


ENGINES = ("sqlite", "postgres")


def engine_of(name: str, folder: Path) -> Engine:
    """A new, empty one."""
    if name == "sqlite":
        return SqliteEngine(folder)
    try:
        return PostgresEngine(empty_database())
    except NoPostgres as fault:
        if sys.platform == "linux" or os.environ.get("CI") == "true":
            raise  # where it can be had, it is
        pytest.skip(str(fault))


def engine_at(place: str) -> Engine:
    """One that another process uses or has used."""
    name, _, where = place.partition(":")
    return SqliteEngine(where) if name == "sqlite" else PostgresEngine(place)


def run(work: Awaitable[Value]) -> Value:
    async def main() -> Value:
        async with asyncio.timeout(BOUND):
            return await work

    return asyncio.run(main())


def records(first: int, last: int, body: bytes = b'{"a":1}') -> list[Record]:
    return [Record(seq, 1000 + seq, "text", body) for seq in range(first, last + 1)]


def view(name: str = "s1", **more: Any) -> SessionView:
    return SessionView(id=name, agent="understudy", cwd="/work", **more)


def question(number: int = 1, **more: Any) -> Question:
    request = PermissionRequest(request_id=f"r{number}", tool_name="shell", target="ls")
    return Question(
        id=f"s1:r{number}", session_id="s1", agent="understudy", request=request, asked_at=number, **more
    )  # fmt: skip


def worker(worker_id: str, incarnation: str = "i1", *, until: int = 1000, **more: Any) -> WorkerRow:
    return WorkerRow(id=worker_id, incarnation=incarnation, until=until, **more)


SPENT = TurnUsage(session_id="s1", turn=1, at=50, agent="understudy", project="p", usage=Usage(input_tokens=3))
MESSAGES = [QueuedPrompt(id=f"m{n}", session_id="s1", prompt="go", at=n) for n in (1, 2)]
DEVICE = Device(id="d1", name="phone", scopes=("watch",), token_hash="h", created_at=1)
ANSWERED = IdempotentReply(key="k", fingerprint="f", status=201, body=b"{}", at=5)
CHANGED = ConfigChange(at=8, who="phone", name="policy", before="a", after="b")
