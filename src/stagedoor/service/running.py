"""The sessions that run in this process: who serves them, whether work is taken at all, and what a crash left to close.

Verbs that change something are carried out to their end, though whoever called has left meanwhile. A client may vanish,
or its device be revoked, between a write and what follows from it: an answer that is stored but never reaches its agent
would leave the agent waiting, and nobody could give another one.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Coroutine, Sequence
from functools import wraps
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar

from stagedoor.errors import StoreBroken, StoreError, TooMany
from stagedoor.session import Session
from stagedoor.transports.tasks import TaskOwner
from stagedoor.unified.events import Event, Notice

from .config.settings import Settings
from .journal import Journal
from .opening import Opening
from .runner import Seats, SessionRunner
from .session_log import SessionLog
from .store import Query, Remember
from .views import SessionView

_log = logging.getLogger("stagedoor.service")
EVERYTHING = 1_000_000
FINISH_WITHIN = 10.0
"""Seconds that verbs have to come to their end when the server stops."""
STOP_WITHIN = 60.0
"""Seconds in which everything that runs is ended when the server stops. What is left is closed at the next start."""

Value = TypeVar("Value")
Arguments = ParamSpec("Arguments")


class RunningSessions:
    def __init__(
        self,
        journal: Journal,
        opening: Opening,
        settings: Settings,
        *,
        now: Callable[[], int],
        new_id: Callable[[], str],
    ) -> None:
        self.runners: dict[str, SessionRunner] = {}
        self.seats = Seats(
            settings.limits.awake, lambda: [runner for runner in self.runners.values() if runner.can_doze]
        )
        self.watchers: set[Callable[[SessionView], None]] = set()
        """Called with every session that is served from now on, before its first event."""
        self.counts: Counter[str] = Counter()
        self.tasks = TaskOwner()
        """Of the verbs under way."""
        self.before_turn: Callable[[SessionView, int], Coroutine[Any, Any, Notice | None]] = _nothing_before
        """Awaited before a prompt is sent; what it returns is told after the turn."""
        self.announce: Callable[[SessionView, list[Event]], None] | None = None
        """Called with what is stored of questions and ends; it must not wait."""
        self.fault: StoreError | None = None
        """Why no more work is taken, if it is not."""
        self._journal = journal
        self._opening = opening
        self._settings = settings
        self._now = now
        self._new_id = new_id
        self._killing: asyncio.Task[None] | None = None
        self._stopping = False
        self._repairing = asyncio.Lock()

    def get(self, session_id: str) -> SessionRunner | None:
        return self.runners.get(session_id)

    def serve(self, session_log: SessionLog) -> SessionRunner:
        runner = self.runners[session_log.view.id] = SessionRunner(
            session_log,
            wake=self._woken,
            seats=self.seats,
            sleep_after=self._settings.sleep_after,
            broken=self.broken,
            on_end=self._ended,
            before_turn=lambda view, turn: self.before_turn(view, turn),
        )
        for watcher in tuple(self.watchers):
            watcher(session_log.view)
        return runner

    def open_log(self, view: SessionView) -> SessionLog:
        return SessionLog(
            view,
            self._journal,
            now=self._now,
            new_id=self._new_id,
            broken=self.broken,
            counts=self.counts,
            audit=self._opening.audit,
            announce=self.announce,
        )

    def working(self) -> list[str]:
        """The folders in which a turn runs now."""
        return [runner.view.cwd for runner in self.runners.values() if runner.in_turn]

    def counters(self) -> dict[str, int]:
        """What has happened since the start, and how it stands: ``created <agent>``, ``ended <agent> <state>``, …"""
        return {
            **self.counts,
            "open": len(self.runners),
            "awake": sum(runner.awake for runner in self.runners.values()),
            "followers": self._journal.followers,
        }

    async def accepting(self) -> None:
        """Raises when no work is taken. A log that broke is tried again."""
        if self._stopping:
            raise TooMany("the server is stopping; try again when it is back")
        async with self._repairing:  # who comes meanwhile waits: what is new must not be taken for left over
            if self.fault is not None:
                await self._try_again(self.fault)

    async def recover(self) -> None:
        """Close or continue the sessions that are open in the log and that nobody serves."""
        for view in await self._journal.store.sessions(Query(ended=False, limit=EVERYTHING)):
            if view.id in self.runners:
                continue
            session_log = self.open_log(view)
            resumable = bool(view.native_id) and self._opening.capabilities(view).resume
            decided = await session_log.mend(resumable=resumable)
            if not session_log.view.ended:
                self.serve(session_log).start(None, decided=decided)

    def broken(self, fault: StoreError) -> None:
        """Nothing can be stored: no new work, and nothing is left running that could not be reported."""
        if self.fault is None:
            self.fault = fault
            _log.error("no new work is accepted: %s", fault)
            self._killing = self.tasks.start(self._kill_all())

    def refuse_work(self) -> None:
        self._stopping = True

    async def stop(self) -> None:
        """What runs is ended truthfully, in bounded time."""
        await self.tasks.finish(FINISH_WITHIN)  # a session that is just being created must be ended too
        stopping = TaskOwner()
        for runner in list(self.runners.values()):
            stopping.start(runner.stop())
        if not await stopping.finish(STOP_WITHIN):
            stopping.cancel_all()
        for runner in list(self.runners.values()):
            await runner.kill()
        if self._killing is not None:
            await asyncio.wait([self._killing])
        await self.tasks.finish(FINISH_WITHIN)

    async def _try_again(self, fault: StoreError) -> None:
        """Whether the log can be written again, as when somebody has made room on the disk."""
        if self._killing is not None:
            await asyncio.wait([self._killing])
        try:
            await self._journal.write(Remember("written again", b"1"), Remember("written again", None))
        except StoreError:
            raise StoreBroken(f"the server accepts no new work: {fault}") from fault
        self.fault = None
        await self.recover()

    async def _kill_all(self) -> None:
        await asyncio.gather(*(runner.kill() for runner in list(self.runners.values())), return_exceptions=True)

    def _idle(self) -> list[SessionRunner]:
        return [runner for runner in self.runners.values() if runner.can_doze]

    def _woken(self, view: SessionView, images: Sequence[str]) -> Session:
        return self._opening.session(view, resume=view.native_id, images=images)

    def _ended(self, session_id: str) -> None:
        self.runners.pop(session_id, None)
        self.seats.leave(session_id)


async def _nothing_before(view: SessionView, turn: int) -> Notice | None:
    return None


class _OwnsTasks(Protocol):
    @property
    def tasks(self) -> TaskOwner: ...


Verbs = TypeVar("Verbs", bound=_OwnsTasks)


def to_the_end(
    verb: Callable[Concatenate[Verbs, Arguments], Coroutine[Any, Any, Value]],
) -> Callable[Concatenate[Verbs, Arguments], Coroutine[Any, Any, Value]]:
    """For a verb that must not be left half done."""

    @wraps(verb)
    async def whole(verbs: Verbs, /, *args: Arguments.args, **named: Arguments.kwargs) -> Value:
        return await asyncio.shield(verbs.tasks.start(verb(verbs, *args, **named)))

    return whole
