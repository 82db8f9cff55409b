"""The sessions that this process owns: who serves them, whether work is taken at all, and what a crash left to close.

Verbs that change something are carried out to their end, though whoever called has left meanwhile. A client may vanish,
or its device be revoked, between a write and what follows from it: an answer that is stored but never reaches its agent
would leave the agent waiting, and nobody could give another one.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Coroutine, Iterable, Sequence
from functools import partial, wraps
from pathlib import Path
from typing import Any, Concatenate, Literal, ParamSpec, Protocol, TypeAlias, TypeVar

from stagedoor import __version__
from stagedoor.errors import Fenced, SequenceConflict, StoreBroken, StoreError, TooMany
from stagedoor.session import Session
from stagedoor.transports.tasks import TaskOwner
from stagedoor.unified.events import Event, Notice

from .config.settings import Settings
from .journal import Journal
from .opening import Opening
from .runner import Seats, SessionRunner
from .session_log import SessionLog
from .store import Change, Forget, Remember
from .views import SessionView
from .worker import Worker

_log = logging.getLogger("stagedoor.service")
FINISH_WITHIN = 10.0
"""Seconds that verbs have to come to their end when the server stops."""
STOP_WITHIN = 60.0
"""Seconds in which everything that runs is ended when the server stops. What is left is closed at the next start."""

Role: TypeAlias = Literal["both", "door", "worker"]
"""What a process does with the log: takes requests, runs sessions, or both."""
Value = TypeVar("Value")
Arguments = ParamSpec("Arguments")


class RunningSessions:
    def __init__(
        self,
        journal: Journal,
        opening: Opening,
        settings: Settings,
        home: Path,
        *,
        role: Role = "both",
        now: Callable[[], int],
        new_id: Callable[[], str],
    ) -> None:
        self.runners: dict[str, SessionRunner] = {}
        self.worker = Worker(
            journal,
            home,
            now=now,
            let_go=self._kill_all,
            take=self.recover,
            name=settings.machine_name,
            lease=settings.lease,
            labels=settings.labels,
            seats=settings.limits.awake,
            version=__version__,
        )
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
        self._role = role
        self._lost: set[SessionRunner] = set()
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
            broken=partial(self.broken, session_id=session_log.view.id),
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
            broken=partial(self.broken, session_id=view.id),
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

    async def start(self) -> None:
        """Take over what the process before this one, or a worker that is gone, has left. A door runs nothing."""
        if self._role == "door":
            return
        await self.worker.register()
        await self.recover()
        self.worker.start()

    async def recover(self) -> None:
        """Close or continue the sessions that are open in the log and that nobody owns: where others could take them
        too, no more than there are seats for. What nobody can take is closed once it was waited for long enough."""
        if self._stopping or self._role == "door":
            return
        shared = self._journal.store.shared
        async with self.worker.claiming:
            claimed = await self.worker.claim(self.seats.free if shared else None)
        await self._continue_all(claimed)
        for view in await self.worker.orphans() if shared else ():
            await self._close_orphan(view)

    async def _continue_all(self, claimed: Iterable[SessionView]) -> None:
        for view in claimed:
            try:
                await self._continue(view)
            except (Fenced, SequenceConflict) as fault:
                _log.warning("session %s was not continued: %s", view.id, fault)

    async def _close_orphan(self, view: SessionView) -> None:
        """Say what became of it, and leave it to its own worker should that come back: its questions stay open."""
        owned = await self.worker.claim_only(view)
        if owned is None:
            return
        session_log = self.open_log(owned)
        try:
            await session_log.mend(resumable=bool(owned.native_id) and self._opening.may_resume(owned))
        except (Fenced, SequenceConflict) as fault:
            _log.warning("session %s was not closed: %s", view.id, fault)
        if not session_log.view.ended:
            await self._journal.release(owned.id, owned.epoch)

    def _resumable(self, view: SessionView) -> bool:
        return bool(view.native_id) and self._opening.capabilities(view).resume

    async def _continue(self, view: SessionView) -> None:
        if (runner := self.runners.get(view.id)) is not None:
            await runner.kill()  # of an earlier epoch: it could store nothing any more
        session_log = self.open_log(view)
        decided = await session_log.mend(resumable=self._resumable(view))
        if not session_log.view.ended:
            self.serve(session_log).start(None, decided=decided)

    async def own(self, view: SessionView, *rows: Change) -> SessionView:
        """Put a new session, as this worker's own."""
        if self._role == "door":
            raise TooMany("this server runs no sessions itself, and no worker takes this one; start a worker")
        view = self.worker.as_own(view)
        try:
            async with self.worker.claiming:
                await self._journal.write(view, *rows)
                owned = await self.worker.claim_only(view)
                if owned is None:
                    await self._journal.write(Forget(view.id))
        except StoreError as fault:
            self.broken(fault)
            raise
        if owned is None:
            raise TooMany("this server is being emptied and takes no new sessions; use another one, or try again later")
        return owned

    def broken(self, fault: StoreError, *, session_id: str = "") -> None:
        """Nothing can be stored: no new work, and nothing is left running that could not be reported.

        One session that belongs to somebody else by now is let go of, and nothing but that one.
        """
        if isinstance(fault, Fenced | SequenceConflict):
            runner = self.runners.get(session_id)
            if runner is not None and runner not in self._lost:
                self._lost.add(runner)
                self.tasks.start(self._let_go(runner, fault))
            return
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
        await self.worker.stop()
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
        await self.worker.register()  # what was killed is nobody's then, and taken anew
        await self.recover()

    async def _kill_all(self) -> None:
        await asyncio.gather(*(runner.kill() for runner in list(self.runners.values())), return_exceptions=True)

    async def _let_go(self, runner: SessionRunner, fault: StoreError) -> None:
        """Its program is ended, and nobody is told anything more by us."""
        view = runner.view
        _log.warning("session %s is let go of: %s", view.id, fault)
        await runner.kill()
        self._lost.discard(runner)
        # With numbers that do not follow it is ours still, and only what we believe of it is wrong: it is read anew.
        if isinstance(fault, SequenceConflict) and await self._journal.release(view.id, view.epoch):
            found = await self._journal.store.session(view.id)
            owned = None if found is None else await self.worker.claim_only(found)
            await self._continue_all([] if owned is None else [owned])

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
