"""The sessions that an agent keeps itself, as it lists them: it is started for that, so what it said counts a while."""

from __future__ import annotations

import asyncio
import os
import tempfile
import threading
import time
from collections.abc import Iterable, Mapping
from datetime import datetime

from ...agents.acp import AcpClient
from ...agents.acp.responses import SessionListing
from ...errors import NotInstalled
from ...transports.executables import find_executable
from ..agent import StoredSession
from .definition import AcpAgent

PATIENCE = 30.0
FRESH = 15.0
"""Seconds. A server asks for one folder after the other."""


class ListedSessions:
    """Those of one agent. Called from any thread; each start of the program answers all who ask at that time."""

    def __init__(self, definition: AcpAgent) -> None:
        self._definition = definition
        self._lock = threading.Lock()
        self._listings: tuple[SessionListing, ...] = ()
        self._env: Mapping[str, str] | None = None
        self._until = float("-inf")

    def of_folder(self, cwd: str, env: Mapping[str, str] | None) -> Iterable[StoredSession]:
        """Raises what keeps the program from answering; one that is missing, or lists nothing, has none."""
        place = os.path.realpath(cwd)
        return [
            StoredSession(
                agent=self._definition.name,
                session_id=listing.session_id,
                cwd=listing.cwd,
                title=listing.title or "",
                updated_ms=milliseconds_of(listing.updated_at),
            )
            for listing in self._fresh(env)
            if os.path.realpath(listing.cwd) == place
        ]

    def _fresh(self, env: Mapping[str, str] | None) -> tuple[SessionListing, ...]:
        environ = {**(os.environ if env is None else env), **self._definition.env}
        with self._lock:
            if time.monotonic() >= self._until or environ != self._env:
                self._listings = tuple(_in_thread(self._definition, environ))
                self._env, self._until = environ, time.monotonic() + FRESH
            return self._listings


def _in_thread(definition: AcpAgent, environ: Mapping[str, str]) -> list[SessionListing]:
    """The caller may be inside a running loop: this has one of its own."""
    answer: list[list[SessionListing]] = []
    faults: list[Exception] = []

    def work() -> None:
        try:
            answer.append(asyncio.run(_listed(definition, environ)))
        except Exception as fault:  # it is raised where it was asked for
            faults.append(fault)

    thread = threading.Thread(target=work, name=f"stagedoor sessions of {definition.name}", daemon=True)
    thread.start()
    thread.join()
    if faults:
        raise faults[0]
    return answer[0]


async def _listed(definition: AcpAgent, environ: Mapping[str, str]) -> list[SessionListing]:
    program = definition.command[0]
    try:
        find_executable(program, executable=program if "/" in program else None, env=environ)
    except NotInstalled:
        return []
    with tempfile.TemporaryDirectory(prefix="stagedoor-sessions-") as folder:
        client = AcpClient(definition.command, folder, environ, start_timeout=PATIENCE, share_process=True)
        async with asyncio.timeout(2 * PATIENCE), client.connected() as connection:
            if connection.agent.capabilities.session.list is None:
                return []
            return await client.list_sessions(everywhere=True)


def milliseconds_of(stamp: str | None) -> int:
    try:
        return int(datetime.fromisoformat(stamp or "").timestamp() * 1000)
    except ValueError:
        return 0
