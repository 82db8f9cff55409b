"""One session of the service: its conversation with the CLI, its queue of prompts, its sleep and its end.

A task of its own takes one prompt after the other. Whoever wants something of it (a follow-up, an interrupt, an answer)
only leaves word; the log says what came of it.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Sequence
from pathlib import Path
from typing import Any, Literal

from msgspec.structs import force_setattr, replace

from stagedoor.errors import (
    AgentRefused,
    AlreadyAnswered,
    LocalProtocolError,
    NotSupported,
    SessionEnded,
    StagedoorError,
    StoreError,
)
from stagedoor.session import Session
from stagedoor.transports.relay import Reader
from stagedoor.transports.tasks import TaskOwner
from stagedoor.unified.decisions import Decision, Deny
from stagedoor.unified.events import (
    Done,
    Event,
    Init,
    Notice,
    Status,
    TextDelta,
    ThinkingDelta,
    TurnCompleted,
    UsageReport,
    stamp,
)
from stagedoor.unified.settings import AgentReport, AgentSetting, allowed_change

from .projection import MID_TURN, asleep, woken
from .question_rows import answered
from .seats import Seats
from .session_log import CLOSED, STOPPED, UNANSWERED, SessionLog
from .views import Question, QueuedPrompt, SessionSpec, SessionView
from .workspaces.attachments import attachment_id


class SessionRunner:
    def __init__(
        self,
        log: SessionLog,
        *,
        wake: Callable[[SessionView, Sequence[str]], Session],
        seats: Seats,
        sleep_after: float | None,
        broken: Callable[[StoreError], None],
        on_end: Callable[[str], None],
        before_turn: Callable[[SessionView, int], Coroutine[Any, Any, Notice | None]],
        arrive: Callable[[SessionLog], Coroutine[Any, Any, list[Notice]]],
        keep: Callable[[SessionLog], Awaitable[None]],
    ) -> None:
        self.log = log
        self.task: asyncio.Task[None] | None = None
        self._tasks = TaskOwner()
        self._open = wake
        self._seats = seats
        self._sleep_after = sleep_after
        self._broken = broken
        self._on_end = on_end
        self._before_turn = before_turn
        self._arrive = arrive
        self._keep = keep
        self._life: Life | None = None
        self._decided: list[Question] = []
        self._arriving = 0
        self._news = asyncio.Event()
        self._ending: Literal["cancelled", "stopped"] | None = None
        self._leaving = False
        self._finishing = False
        self._turning = False
        self._preparing = False  # the workspace is looked at for a turn that the agent has not heard of
        self._cut = asyncio.Event()  # that turn is not to run
        self._sleeping = False
        self._tired = False
        self._reopening = ""
        self._late_notices: list[Notice] = []  # before ``init`` nothing is said
        self._rested = asyncio.Event()
        self._settings: tuple[AgentSetting, ...] = ()
        self._report = AgentReport()

    # -- what others want of it

    @property
    def view(self) -> SessionView:
        return self.log.view

    @property
    def awake(self) -> bool:
        return self._life is not None

    @property
    def in_turn(self) -> bool:
        """A turn runs, or is about to."""
        return self._in_turn

    @property
    def can_doze(self) -> bool:
        """It is between turns and could be woken again."""
        resting = self.view.activity not in MID_TURN and not self._ready and not self._arriving
        return resting and self._ending is None and self.view.keep_open and self._resumable

    @property
    def ending(self) -> bool:
        """It takes no more prompts, though it may not have said its last word."""
        return self._finishing or self._ending is not None or self.view.ended

    def start(
        self, session: Session | None, messages: Iterable[QueuedPrompt] = (), decided: Iterable[Question] = ()
    ) -> None:
        if session is not None:
            self._begin(session)
        self.log.queue.extend(messages)
        self._decided.extend(decided)
        self.task = self._tasks.start(self._perform(), name=f"stagedoor {self.view.id}")

    async def post(self, message: QueuedPrompt, *, steer: bool = False) -> QueuedPrompt:
        """Take a follow-up: stored first, sent when the turns before it are over.

        ``steer``: said into the running turn instead, if the agent can take it there. The log tells it as an event.
        """
        if self.ending:
            raise SessionEnded(f"session {self.view.id} is ending; resume it to continue")
        if steer and self._life is not None and await self._life.steer(message.prompt):
            return replace(message, state="sent")
        self._arriving += 1
        try:
            return await self.log.enqueue(message)
        finally:
            self._arriving -= 1
            self._news.set()

    @property
    def report(self) -> AgentReport:
        """What its agent says of itself; while its CLI is put away, as it stood last."""
        if self._life is not None:
            latest, before = self._life.session.report, self._report
            self._report = latest if latest != AgentReport() else before
        return self._report

    @property
    def settings(self) -> tuple[AgentSetting, ...]:
        """What can be chosen; while its CLI is put away, as it stood last."""
        if self._life is not None:
            self._settings = self._life.session.settings or self._settings
        return self._settings

    async def change_setting(self, name: str, value: str) -> AgentSetting:
        """Choose a value now; while its CLI is put away, one that holds when it is started again."""
        settings = self.settings
        if self._life is not None:
            changed = await self._life.session.change_setting(name, value)
        else:
            changed = replace(allowed_change(settings, name, value), value=value)
            await self.log.say(Notice(level="info", code="setting", message=f"{changed.id}: {changed.value}"))
        view = self.view
        spec = view.spec or SessionSpec(prompt="")
        kept = {} if changed.kind == "other" else {changed.kind: value}
        model = {"model": value} if changed.kind == "model" else {}
        await self.log.change(spec=replace(spec, **kept), **model)
        self._settings = tuple(changed if one.id == changed.id else one for one in self.settings)
        return changed

    async def interrupt(self, *, pause: bool = False) -> None:
        """``pause``: what is queued behind the turn waits until somebody sends a message, or says ``go_on``."""
        if pause:
            await self.log.pause()
        if self._turning and self.log.sending is None:
            self._cut.set()
        if self._life is not None:
            await self._life.session.interrupt()

    def go_on(self) -> None:
        """The queue has changed."""
        self._news.set()

    def reopen(self, why: str) -> None:
        """The next turn runs in a program that was started anew, with what the session is now to run with."""
        self._reopening = why

    async def cancel(self) -> None:
        """End it: what runs is cut short. Returns when ``done`` is stored."""
        self._ending = self._ending or "cancelled"
        self._news.set()
        if self._life is not None and self._in_turn and not self._preparing:
            await self._life.session.close()
        await self.ended()

    async def stop(self) -> None:
        """The server stops: it sleeps where it can go on later; what runs is cut short and said to be."""
        if self._ending is None:
            self._ending = "stopped"
            self._news.set()
            if self._life is not None and self._in_turn:
                await self._life.kill()
        await self.ended()

    async def kill(self) -> None:
        """Nothing can be stored any more: leave nothing running."""
        if self.task is not None and not self._leaving:
            self.task.cancel()
        await self.ended()

    async def doze(self) -> None:
        """Make room for another one."""
        self._rested.clear()
        self._tired = True
        self._news.set()
        await self._rested.wait()

    async def decide(self, question: Question) -> bool:
        """Put the answered ``question`` and tell the agent. False: somebody was faster, or it timed out."""
        if not await self.log.answer(question):
            return False
        request_id = question.request.request_id
        if request_id in self.log.questions.rearmed:
            self._decided.append(question)
            self._news.set()
            return True
        try:
            if self._life is not None and question.decision is not None:
                self._life.answer(request_id, question.decision, question.who)
                return True
        except AlreadyAnswered:
            pass  # it timed out, or its turn ended, at the same moment: the stream is about to say so
        if self._leaving or (self._life is not None and self._life.killed):
            return True  # it is let go of: whoever continues it finds the answer, and it counts there
        if self._ending != "stopped":
            return False
        await self.ended()  # the server stops: the answer counts later if the question stays
        kept = self.log.questions.rearmed.get(request_id)
        return kept is not None and kept.decision == question.decision

    # -- its own task

    async def _perform(self) -> None:
        log = self.log
        try:
            while not self.view.ended and self._ending is None:
                rearmed = log.questions.rearmed
                if self._life is not None and self._life.ended:
                    await self._lost(self._life)
                elif self._decided:
                    await log.settle(self._decided.pop(0))
                elif self._ready and not rearmed:
                    await self._turn(log.queue[0])
                elif self.view.keep_open or rearmed or self._arriving or log.queue:
                    await self._wait()
                else:
                    break
            await self._finish()
        except StoreError as fault:
            self._broken(fault)
        except Exception as fault:  # a fault of our own ends as an event, not as a session that hangs
            await self._fail(fault)
        finally:
            await self._put_away()

    async def _turn(self, message: QueuedPrompt) -> None:
        self._turning, self._tired = True, False
        self._cut.clear()
        self.log.taken = message
        self._rested.set()
        try:
            images = await asyncio.to_thread(_existing, message.images) if message.images else ()
            afresh = self._reopening or ("with pictures" if images else "")
            if self._life is not None and self._life.used and afresh and self._resumable:
                await self._sleep(f"the agent starts again {afresh}")
            if images and self._life is not None and self._life.used:
                images = ()
            life = self._life or await self._wake(images)
            if life is None or self._ending is not None:
                return
            life.used, self._reopening = True, ""
            self.log.turn_over.clear()
            notice: Notice | None = None
            if not life.session.in_turn:  # else the agent has started one by itself, and ours comes after it
                self._preparing = True
                notice = await self._prepare()
                if self._ending is not None:
                    return
                await self._announce(message, images)
                await self.log.hand_to_agent(message)
                if self._ending is not None:
                    return
                self._preparing = False
                self.log.sending = self.log.taken
                await life.post(message.prompt, cut=self._cut.is_set())
            else:
                self.log.taken = None
            await first_of(self.log.turn_over.wait(), life.pump)
            late, self._late_notices = [*self._late_notices, *([notice] if notice is not None else [])], []
            for notice in late:  # not before: ``init`` comes first
                await self.log.say(notice)
            await self._keep(self.log)
        finally:
            self._turning = False
            self.log.taken = None

    async def _prepare(self) -> Notice | None:
        """Look at the workspace; nobody waits for that when the turn is not to run."""
        owner = TaskOwner()
        looking = owner.start(self._before_turn(self.view, self.view.turn + 1))
        try:
            await first_of(looking, self._cut.wait())
        finally:
            await owner.close()
        return None if looking.cancelled() else looking.result()

    async def _announce(self, message: QueuedPrompt, images: Sequence[str]) -> None:
        """The prompt of a turn does not show what else was sent with it. ``images``: those that are."""
        if not message.images:
            return
        here = await asyncio.to_thread(_existing, message.images)
        reasons = {
            "not sent, because this agent cannot continue its session with pictures": set(here) - set(images),
            "not sent, because they are not on this machine (the session came from another one, or somebody removed "
            "them); send them again": set(message.images) - set(here),
        }
        for why, left_out in reasons.items():
            if left_out:
                words = f"{why}: {_names(path for path in message.images if path in left_out)}"
                await self.log.say(Notice(level="error", code="images_not_sent", message=words))
        if images:
            ids = [attachment_id(path) for path in images]
            words = f"attached: {_names(images)}"
            await self.log.say(Notice(level="info", code="attached", message=words, attachments=ids))

    async def _wait(self) -> None:
        self._news.clear()
        log = self.log
        if self._decided or self._ending is not None or (self._ready and not log.questions.rearmed):
            return
        if self._tired or (self._seats.awaited and self.can_doze) or (self._life is not None and self._life.ended):
            await self._rest()
            return
        due = min(
            (question.expires_at for question in log.questions.rearmed.values() if question.expires_at), default=None
        )
        bound = self._sleep_after if self._life is not None else None
        if due is not None:
            bound = max(due - log.now(), 0) / 1000
        try:
            async with asyncio.timeout(bound):
                await self._news.wait()
        except TimeoutError:
            await (self._rest() if due is None else self._expire())

    async def _rest(self) -> None:
        self._tired = False
        if self._resumable and self._life is not None and not self._life.ended:
            await self._sleep("the agent sleeps until the next message")
        self._rested.set()

    async def _sleep(self, why: str) -> None:
        """Put the CLI away; the session goes on when somebody speaks to it."""
        assert self._life is not None
        self._settings = self.settings
        self._sleeping = True
        await self._life.close()
        self._sleeping = False
        await self._keep(self.log)
        await self._lost(self._life, why)

    async def _lost(
        self, life: Life, why: str = "the agent's program has ended; it is started again when needed"
    ) -> None:
        self._life = None
        self._seats.leave(self.view.id)
        life.pump.result()
        if not self.view.ended and not life.killed:
            await self.log.say(asleep(why))

    async def _wake(self, images: Sequence[str] = ()) -> Life | None:
        await first_of(self._seats.wait(self.view.id), self._end_requested())
        if self._ending is not None:
            return None
        if not await self._arrived():
            return None
        outlived = await self.log.outlived()
        self.log.questions.arranged = [question for question in outlived if question.by == "client"]
        await self.log.change(activity="starting")
        return self._begin(self._open(self.view, images))

    async def _arrived(self) -> bool:
        """Its files are here; that may take long, and nobody waits for it when the session is to end. False: it is."""
        owner = TaskOwner()
        arriving = owner.start(self._arrive(self.log))
        try:
            await first_of(arriving, self._end_requested())
        finally:
            await owner.close()
        if arriving.cancelled():
            return False
        for notice in arriving.result():
            if self.view.last_seq:
                await self.log.say(notice)
            else:
                self._late_notices.append(notice)
        return True

    def _begin(self, session: Session) -> Life:
        self._life = Life(session, self.view, store=self._store_events, counts=self._counts, on_end=self._news.set)
        return self._life

    async def _store_events(self, events: list[Event]) -> None:
        questions = self.log.questions
        await self.log.store(events)
        due, questions.due = questions.due, []
        for request_id, decision in due:
            with contextlib.suppress(AlreadyAnswered):  # by the policy: the same batch says so
                if self._life is not None:
                    question = questions.open.get(request_id)
                    self._life.answer(request_id, decision, "" if question is None else question.who)

    async def _expire(self) -> None:
        now = self.log.now()
        for question in list(self.log.questions.rearmed.values()):
            if question.open and question.expires_at is not None and question.expires_at <= now:
                await self.decide(answered(question, Deny(UNANSWERED), by="timeout", who="", now=now))

    async def _finish(self) -> None:
        self._finishing = True
        log, life, stopped = self.log, self._life, self._ending == "stopped"
        resumable = self._resumable
        sleeps = stopped and not self._in_turn and self.view.keep_open and resumable
        if life is not None:
            self._sleeping = sleeps
            # An agent that has not heard of its turn would say that all went well.
            await (life.kill() if self._preparing else life.close())
            if life.used:
                await self._keep(self.log)
            await self._lost(life, STOPPED)
        if self.view.ended:
            return
        if stopped and self._in_turn:
            goes_on = resumable and (log.questions.open or self.view.keep_open)
            await (log.rearm() if goes_on else log.end(STOPPED))
        elif sleeps and self.view.activity != "asleep":
            await log.say(asleep(STOPPED))
        elif not stopped or self.view.activity != "asleep":
            await log.end(CLOSED, intended=self._ending == "cancelled")

    async def _fail(self, fault: Exception) -> None:
        await self._put_away()
        try:
            why = str(fault) if isinstance(fault, StagedoorError) else repr(fault)
            await self.log.end(why, status="error")
        except StoreError as broken:
            self._broken(broken)

    async def _put_away(self) -> None:
        life, self._life, self._leaving = self._life, None, True
        self._rested.set()
        self._on_end(self.view.id)
        if life is not None:
            await life.kill()
        await self.log.quiet()

    # -- how it stands

    @property
    def _ready(self) -> bool:
        """Something waits for its turn, and may have it."""
        return bool(self.log.queue) and not self.view.queue_paused

    @property
    def _in_turn(self) -> bool:
        return self._turning or self.view.activity in MID_TURN

    @property
    def _resumable(self) -> bool:
        return self._life is not None and bool(self.view.native_id) and self._life.session.capabilities.resume

    def _counts(self, cut: Status | None) -> bool:
        """Whether a life's ``done`` is the session's: not when the session can go on in another one."""
        if self._sleeping:
            return False
        if self._ending is not None or not self.view.keep_open or not self._resumable:
            return True
        return cut == "error"

    async def _end_requested(self) -> None:
        while self._ending is None:
            self._news.clear()
            await self._news.wait()

    async def ended(self) -> None:
        """Wait until its last event is stored and nothing of it runs."""
        if self.task is not None:
            await asyncio.wait([self.task])


class Life:
    def __init__(
        self,
        session: Session,
        view: SessionView,
        *,
        store: Callable[[list[Event]], Awaitable[None]],
        counts: Counts,
        on_end: Callable[[], None],
    ) -> None:
        self.session = session
        self._reader: Reader[Event] = session.events
        self._joined = Continuation(view)
        self._store = store
        self._counts = counts
        self.killed = False
        self.used = False
        """A turn has begun in it."""
        self._unconfirmed: list[tuple[int, asyncio.Future[None]]] = []
        self._tasks = TaskOwner()
        self.pump = self._tasks.start(self._hand_on(), name=f"stagedoor events {view.id}")
        self.pump.add_done_callback(lambda _: on_end())

    @property
    def ended(self) -> bool:
        return self.pump.done()

    def answer(self, request_id: str, decision: Decision, who: str) -> None:
        """The agent waits for this. ``AlreadyAnswered`` when it does no more."""
        self.session.answer(request_id, decision, who=who)

    async def post(self, prompt: str, *, cut: bool) -> None:
        """Send a prompt. ``cut``: its turn was interrupted before it began, which the stream tells as of any other."""
        if not cut:
            with contextlib.suppress(Exception):  # the stream has said what went wrong
                await self.session.post(prompt)
            return
        posting = self._tasks.start(self.session.post(prompt))
        await asyncio.sleep(0)  # now the turn has started, and the agent has not heard of it
        await self.session.interrupt()
        await asyncio.wait([posting])
        if not posting.cancelled():
            posting.exception()

    async def steer(self, text: str) -> bool:
        """Say ``text`` into the running turn, and wait until that is stored. False: it cannot be said there."""
        try:
            seq = await self.session.steer(text)
        except (NotSupported, LocalProtocolError, AgentRefused):
            return False
        stored: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._unconfirmed.append((seq, stored))
        await asyncio.wait([stored, self.pump], return_when=asyncio.FIRST_COMPLETED)
        if not stored.done():
            raise SessionEnded("the agent ended before this message was stored; resume the session to continue")
        return True

    async def close(self) -> None:
        """End it in order; everything it says is stored."""
        await self.session.close()
        await asyncio.wait([self.pump])

    async def kill(self) -> None:
        """End it now; what it says of it is not stored, and its questions are not answered."""
        self.killed = True
        await self.session.close(at_once=True)
        await asyncio.wait([self.pump])
        if not self.pump.cancelled():
            self.pump.exception()  # whoever kills it knows, or does not want to

    async def _hand_on(self) -> None:
        """As much at once as there is; a slow disk slows the agent."""
        reader = self._reader
        while await reader.news():
            received = list(reader.ready())
            last = received[-1].seq if received else 0
            events = self._joined.join(received, self._counts)
            if events and not self.killed:
                try:
                    await self._store(events)
                except BaseException:
                    reader.close()  # nobody reads on: the agent must not wait for us while it is ended
                    raise
            if self._unconfirmed:
                self._confirm_stored(last)

    def _confirm_stored(self, last: int) -> None:
        for number, stored in self._unconfirmed:
            if number <= last and not stored.done():
                stored.set_result(None)
        self._unconfirmed = [(seq, stored) for seq, stored in self._unconfirmed if not stored.done()]


def _existing(images: Sequence[str]) -> tuple[str, ...]:
    """Those whose files this machine has: a session in a repository may have come from another one."""
    return tuple(path for path in images if Path(path).is_file())


def _names(images: Iterable[str]) -> str:
    return ", ".join(Path(path).name for path in images)


async def first_of(*waits: Coroutine[Any, Any, Any] | asyncio.Task[Any]) -> None:
    """Return when one of them has ended; those that were started for this are cancelled."""
    owner = TaskOwner()
    tasks = [wait if isinstance(wait, asyncio.Task) else owner.start(wait) for wait in waits]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        await owner.close()


Counts = Callable[[Status | None], bool]
"""Whether this life's ``done`` is the session's. It is told how the turn went that it cut off, if it did."""


class Continuation:
    """One life. ``view`` is how the session stood when it began."""

    def __init__(self, view: SessionView) -> None:
        self._view = view
        self._first = view.last_seq == 0

    def join(self, events: Iterable[Event], counts: Counts) -> list[Event]:
        """``events`` of this life as the session's."""
        out: list[Event] = []
        session_id, turns, later = self._view.id, self._view.turn, not self._first
        cut: Status | None = None
        for event in events:
            kind = type(event)
            if kind is Done and not counts(cut):
                continue
            if later and kind is not TextDelta and kind is not ThinkingDelta:
                event = self._later(event)
            force_setattr(event, "session_id", session_id)
            if turns:
                force_setattr(event, "turn", event.turn + turns)
            out.append(event)
            cut = event.status if isinstance(event, TurnCompleted) else None
        return out

    def _later(self, event: Event) -> Event:
        before = self._view
        match event:
            case Init():
                notice = replace(woken(event.native_session_id or before.native_id), native=event.native)
                return stamp(notice, event.agent, event.session_id, event.seq, event.timestamp, event.turn)
            case UsageReport():
                return replace(event, session=before.usage + event.session)
            case Done():
                usage = before.usage + event.usage
                return replace(
                    event,
                    usage=usage,
                    cost_usd=usage.cost_usd,
                    tool_uses=before.tool_uses + event.tool_uses,
                    duration_ms=float(event.timestamp - before.created_at),
                )
            case _:
                return event
