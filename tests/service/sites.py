"""Several machines on one log, in one process: what each does happens when a test says so."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import replace

from stagedoor.engine import milliseconds
from stagedoor.errors import StoreBroken
from stagedoor.service.journal import LocalHub
from stagedoor.service.running import Role
from stagedoor.service.service import Service
from stagedoor.service.sqlite import SqliteStore
from stagedoor.service.worker import FILE_NAME, WorkerIdentity

LONG_LEASE = 3600
"""Seconds."""


class SharedLog(SqliteStore):
    """As one that several processes use: the services of a test, which open and close it each for itself."""

    shared = True

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.users = 0
        self.unreachable = False

    async def open(self) -> None:
        self.users += 1
        if self.users == 1:
            await super().open()

    async def close(self) -> None:
        self.users -= 1
        if self.users == 0:
            await super().close()

    async def renew(self, worker_id: str, incarnation: str, until: int) -> bool:
        if self.unreachable:
            raise StoreBroken("the log is away; wait until it is back")
        return await super().renew(worker_id, incarnation, until)


class Site:
    """A log, and machines that use it."""

    def __init__(self, kit: Any, folder: Path) -> None:
        self.kit = kit
        self.folder = folder
        self.store = SharedLog(folder / "log.db")
        self.hub = LocalHub()

    @asynccontextmanager
    async def machine(self, name: str, role: Role = "both", **changes: Any) -> AsyncGenerator[Service]:
        home = self.folder / name
        home.mkdir(exist_ok=True)
        (home / FILE_NAME).write_bytes(msgspec.json.encode(WorkerIdentity(id=f"id of {name}", name=name)))
        settings = replace(self.kit.house.settings(), home=str(home), lease=LONG_LEASE, **changes)
        async with Service(settings, store=self.store, hub=self.hub, role=role) as service:
            if role != "door":  # what each does itself; how requests find it is shown in tests/machines
                service.sessions, service.questions = service._own_verbs
            yield service

    async def silence(self, name: str) -> None:
        """Its lease ends; it does not know yet."""
        row = next(row for row in await self.store.workers() if row.name == name)
        assert await self.store.renew(row.id, row.incarnation, milliseconds())
