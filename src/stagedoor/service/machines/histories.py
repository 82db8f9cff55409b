"""``service.stored`` where several machines share a log: what the programs keep on the disks of all of them."""

from __future__ import annotations

import asyncio
import logging
import posixpath
from collections.abc import Callable, Sequence
from typing import Any

from stagedoor import catalog
from stagedoor.errors import BadRequest, NotAllowed, SessionNotFound, StagedoorError

from ..journal import Journal
from ..store import Query
from ..stored import EVERYTHING, LAST, BesideLog, Past, PastSession, canonical_agent, past_of
from ..views import SessionView, WorkerRow
from .commands import CommandOutbox

_log = logging.getLogger("stagedoor.service")
ANSWER_WITHIN = 20.0
"""Seconds after which a machine that has not answered is left out."""


class Histories:
    """Stands where ``Past`` stands. ``me``: the worker of this process, empty where it runs nothing."""

    def __init__(
        self, past: Past, journal: Journal, outbox: CommandOutbox, me: Callable[[], str], now: Callable[[], int]
    ) -> None:
        self._past = past
        self._journal = journal
        self._outbox = outbox
        self._me = me
        self._now = now

    async def sessions(self, *, cwd: str = "", agent: str = "") -> list[PastSession]:
        """Of the log, and of every machine that answers; newest first, each once, the log's word first."""
        name = agent and canonical_agent(agent)
        answers: list[BesideLog] = [answer for _, answer in await self._everywhere("beside_log", cwd=cwd, agent=name)]
        folders = dict.fromkeys(answer.folder for answer in answers)
        if not folders:  # nobody is there who could follow its links
            folders = {posixpath.normpath(cwd) if cwd else "": None}
        logged: list[SessionView] = []
        for folder in folders:
            logged += await self._journal.store.sessions(Query(agent=name, cwd=folder, limit=EVERYTHING))
        known = {(view.agent, view.native_id) for view in logged}
        beside = [past for answer in answers for past in answer.sessions if (past.agent, past.native_id) not in known]
        return _newest_first([*map(past_of, logged), *beside])

    async def only_on_disk(self, agent: str = "") -> list[PastSession]:
        answers = await self._everywhere("beside_log", agent=agent and canonical_agent(agent))
        return _newest_first([past for _, answer in answers for past in answer.sessions])

    async def named(self, session_id: str, *, take_in: bool) -> SessionView:
        view = await self._journal.store.session(session_id) or await self.find(session_id, take_in=take_in)
        if view is None:
            raise SessionNotFound(f"session {session_id!r} not found")
        return view

    async def find(self, native_id: str, *, take_in: bool) -> SessionView | None:
        for name in catalog.names():
            if (view := await self._journal.store.session_of(name, native_id)) is not None:
                return view
        if not take_in:
            return None
        for machine, past in await self._everywhere("keeps", native_id):
            if past is not None:
                return await self._take_in(machine, past)
        return None

    async def to_continue(
        self, session_id: str, *, agent: str = "", cwd: str = "", project_id: str = ""
    ) -> SessionView:
        if session_id != LAST:
            return await self._past.continued_by_id(
                await self.named(session_id, take_in=True), agent=agent, cwd=cwd, project_id=project_id
            )
        answers = await self._everywhere("newest", canonical_agent(agent), cwd=cwd, project_id=project_id)
        found = [(machine, past) for machine, past in answers if past is not None]
        if not found:
            where = f"in {cwd or project_id}" if cwd or project_id else "where it would start"
            raise SessionNotFound(
                f"{agent} has no session {where} to continue; start a new one, or name another folder"
            )
        machine, past = max(found, key=lambda pair: pair[1].updated_at)
        if past.session_id:
            return await self.named(past.session_id, take_in=False)
        return await self._take_in(machine, past)

    async def import_session(self, agent: str, native_id: str, cwd: str, *, place: str = "") -> SessionView:
        """From the machine that ``place`` names, else from the one that has it."""
        name = canonical_agent(agent)
        if (view := await self._journal.store.session_of(name, native_id)) is not None:
            return view
        rows = [row for row in await self._machines() if not place or place in row.labels]
        if place and not rows:
            raise SessionNotFound(f"no machine is {place}, or it is away; stagedoor workers lists them")
        for machine, past in await self._everywhere("keeps", native_id, cwd=cwd, rows=rows):
            if past is not None and past.agent == name:
                return await self._take_in(machine, past)
        raise SessionNotFound(f"{name} has no session {native_id!r} in {cwd}; GET /api/history lists them")

    async def _take_in(self, machine: WorkerRow, past: PastSession) -> SessionView:
        view: SessionView = await self._call(machine, "import_session", past.agent, past.native_id, past.cwd)
        return view

    async def _call(self, machine: WorkerRow, name: str, *args: Any, **named: Any) -> Any:
        if machine.id == self._me():
            return await getattr(self._past, name)(*args, **named)
        return await self._outbox.to_machine(f"stored.{name}", machine.id, *args, **named)

    async def _machines(self) -> list[WorkerRow]:
        rows = await self._journal.store.workers()
        return [row for row in rows if not row.revoked and row.until > self._now()]

    async def _everywhere(
        self, name: str, *args: Any, rows: Sequence[WorkerRow] | None = None, **named: Any
    ) -> list[tuple[WorkerRow, Any]]:
        """What each machine that is there answers. One that may not say it, or does not answer, is left out; when
        nobody may, that is said."""
        machines = await self._machines() if rows is None else rows
        refusals: list[StagedoorError] = []

        async def ask(machine: WorkerRow) -> tuple[WorkerRow, Any] | None:
            try:
                async with asyncio.timeout(ANSWER_WITHIN):
                    return machine, await self._call(machine, name, *args, **named)
            except (BadRequest, NotAllowed) as fault:
                refusals.append(fault)
            except (StagedoorError, TimeoutError) as fault:
                _log.warning("what a machine has stored is not known: %s", fault, extra={"worker": machine.name})
            return None

        answers = [answer for answer in await asyncio.gather(*map(ask, machines)) if answer is not None]
        if not answers and refusals:
            raise refusals[0]
        return answers


def _newest_first(sessions: Sequence[PastSession]) -> list[PastSession]:
    """Each once: a home that two machines share is read by both."""
    known: dict[tuple[str, str], PastSession] = {}
    for past in sessions:
        known.setdefault((past.agent, past.session_id or past.native_id), past)
    return sorted(known.values(), key=lambda past: past.updated_at, reverse=True)
