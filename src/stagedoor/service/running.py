"""The sessions that this process owns: who serves them, whether work is taken at all, and what a crash left to close.

Verbs that change something are carried out to their end, though whoever called has left meanwhile. A client may vanish,
or its device be revoked, between a write and what follows from it: an answer that is stored but never reaches its agent
would leave the agent waiting, and nobody could give another one.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import Counter
from collections.abc import Callable, Coroutine, Iterable, Sequence
from functools import partial, wraps
from pathlib import Path
from typing import Any, Concatenate, Literal, ParamSpec, Protocol, TypeAlias, TypeVar

from stagedoor import __version__
from stagedoor.errors import Fenced, SequenceConflict, StoreBroken, StoreError, TooMany, WorkerAway
from stagedoor.session import Session
from stagedoor.shadow_git.cloning import CloneLimit
from stagedoor.transports.tasks import TaskOwner
from stagedoor.unified.events import Event, Notice

from .config.settings import Settings
from .journal import Journal
from .machines.carrying import Carrying
from .machines.places import git_place, lacking
from .opening import Opening
from .runner import SessionRunner
from .seats import Seats
from .session_log import CLOSED, SessionLog
from .store import Change, Fence, Forget, Remember
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
            take=self._look_after,
            name=settings.machine_name,
            lease=settings.lease,
            labels=settings.labels,
            seats=settings.limits.awake,
            version=__version__,
        )
        limit = CloneLimit(size=settings.clone_megabytes * 1_000_000, files=settings.clone_files)
        self.carrying = Carrying(journal, opening, home, settings.clone, lambda: self.worker.identity.name, limit=limit)
        self.worker.add_labels(self.carrying.labels)
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
        self.notices_of: Callable[[SessionView, list[Event]], Sequence[Change]] = lambda view, events: ()
        """What is to be written beside questions and ends, for those who want to hear of them."""
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

    async def serving(self, session_id: str) -> SessionRunner | None:
        """Who serves a session; nobody when it has ended, or is not there. One that is open and that nobody serves
        changes hands at this moment, or the log is broken: raises what is so."""
        if (runner := self.runners.get(session_id)) is not None:
            return runner
        view = await self._journal.store.session(session_id)
        if view is None or view.ended:
            return None
        await self.accepting()
        if (runner := self.runners.get(session_id)) is None:
            me, labels = self.worker.identity, self.worker.labels
            if view.worker in ("", me.id) and not set(view.needs) <= set(labels):
                raise WorkerAway(lacking(session_id, view.needs, me.name, labels))
            raise WorkerAway(f"session {session_id} is just being continued; try again in a moment")
        return runner

    async def stranded(self, session_id: str) -> SessionView | None:
        """The session if it is open, nobody has it and this machine lacks a label for it: it cannot go on here, and can
        be ended and put away."""
        view = await self._journal.store.session(session_id)
        if view is None or view.ended or view.worker or set(view.needs) <= set(self.worker.labels):
            return None
        return view

    async def end_stranded(self, session_id: str) -> bool:
        """False: it is not stranded, or another takes it at this moment."""
        view = await self.stranded(session_id)
        if view is None:
            return False
        await self.accepting()
        owned = await self.worker.claim_only(view)
        if owned is None:
            return False
        session_log = self.open_log(owned)
        await session_log.mend(resumable=True)  # reads what waits, so that it is closed too
        if not session_log.view.ended:
            await session_log.end(CLOSED, intended=True)
        return True

    def serve(self, session_log: SessionLog) -> SessionRunner:
        runner = self.runners[session_log.view.id] = SessionRunner(
            session_log,
            wake=self._woken,
            seats=self.seats,
            sleep_after=self._settings.sleep_after,
            broken=partial(self.broken, session_id=session_log.view.id, epoch=session_log.view.epoch),
            on_end=self._ended,
            before_turn=lambda view, turn: self.before_turn(view, turn),
            arrive=self.carrying.arrive,
            keep=self.carrying.keep,
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
            broken=partial(self.broken, session_id=view.id, epoch=view.epoch),
            counts=self.counts,
            audit=self._opening.audit,
            notices_of=self.notices_of,
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

    async def _look_after(self) -> None:
        """Every now and then, where others use the log too: nobody has to ask for something until a log that broke is
        tried again, and what nobody owns any more is taken."""
        if self.fault is not None and not self._stopping:
            await self.accepting()
        else:
            await self.recover()

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
            except StoreError as fault:  # it is ours, and nobody serves it: all is taken anew when the log is back
                self.broken(fault)
                raise
            except Exception:  # a fault of our own with one of them: the others go on, and this one does not hang
                _log.exception("session %s cannot be continued, and is ended", view.id)
                await self.open_log(view).mend(resumable=False)

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
        except StoreError as fault:
            self.broken(fault)
            raise
        if not session_log.view.ended:
            await self._give_back(owned)

    async def _give_back(self, view: SessionView) -> bool:
        try:
            return await self._journal.release(view.id, view.epoch)
        except StoreError as fault:
            self.broken(fault)  # else it stays ours, and nobody serves it
            raise

    def _resumable(self, view: SessionView) -> bool:
        if git_place(view.place) is not None:  # where its agent cannot, it begins a new conversation, and says so
            return True
        return bool(view.native_id) and self._opening.capabilities(view).resume

    async def _continue(self, view: SessionView) -> None:
        if (runner := self.runners.get(view.id)) is not None:
            await runner.kill()  # of an earlier epoch: it could store nothing any more
        session_log = self.open_log(view)
        if git_place(view.place) is not None and await session_log.is_untouched():
            self.serve(session_log).start(None)
            return
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
                    with contextlib.suppress(Fenced):  # it is somebody's by now
                        await self._journal.write(Fence(view.id, view.epoch), Forget(view.id))
        except StoreError as fault:
            self.broken(fault)
            raise
        if owned is None:
            raise TooMany("this server is being emptied and takes no new sessions; use another one, or try again later")
        return owned

    def broken(self, fault: StoreError, *, session_id: str = "", epoch: int = 0) -> None:
        """Nothing can be stored: no new work, and nothing is left running that could not be reported.

        One session that belongs to somebody else by now is let go of, and nothing but that one; of ``epoch`` alone: it
        may have come back to us since.
        """
        if isinstance(fault, Fenced | SequenceConflict):
            runner = self.runners.get(session_id)
            if runner is not None and runner.view.epoch == epoch and runner not in self._lost:
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
        with contextlib.suppress(StoreError):  # then it is tried again with everything else
            if isinstance(fault, SequenceConflict) and await self._give_back(view):
                found = await self._journal.store.session(view.id)
                owned = None if found is None else await self.worker.claim_only(found)
                await self._continue_all([] if owned is None else [owned])

    def _woken(self, view: SessionView, images: Sequence[str]) -> Session:
        fork = view.forked and not view.last_seq
        return self._opening.session(view, resume=view.native_id or None, fork=fork, images=images)

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
