"""One session of the service: its conversation with the CLI, its queue of prompts, its sleep and its end.

A task of its own takes one prompt after the other. Whoever wants something of it (a follow-up, an interrupt, an answer)
only leaves word; the log says what came of it.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterable
from typing import Literal

from msgspec.structs import replace

from stagedoor.errors import AlreadyAnswered, SessionEnded, StagedoorError, StoreError
from stagedoor.session import Session
from stagedoor.unified.decisions import Deny
from stagedoor.unified.events import Event, Status

from .chronicle import STOPPED, UNANSWERED, Chronicle
from .life import Life, first_of
from .projection import asleep
from .question_rows import answered
from .recovery import MID_TURN
from .seats import Seats
from .views import Message, Question, SessionView


class Served:
    def __init__(
        self,
        chronicle: Chronicle,
        *,
        wake: Callable[[SessionView], Session],
        seats: Seats,
        sleep_after: float | None,
        broken: Callable[[StoreError], None],
        left: Callable[[str], None],
    ) -> None:
        self.chronicle = chronicle
        self.task: asyncio.Task[None] | None = None
        self._open = wake
        self._seats = seats
        self._sleep_after = sleep_after
        self._broken = broken
        self._left = left
        self._life: Life | None = None
        self._decided: list[Question] = []
        self._arriving = 0
        self._news = asyncio.Event()
        self._ending: Literal["cancelled", "stopped"] | None = None
        self._leaving = False
        self._finishing = False
        self._turning = False
        self._sleeping = False
        self._tired = False
        self._rested = asyncio.Event()

    # -- what others want of it

    @property
    def view(self) -> SessionView:
        return self.chronicle.view

    @property
    def awake(self) -> bool:
        return self._life is not None

    @property
    def can_doze(self) -> bool:
        """It is between turns and could be woken again."""
        resting = self.view.activity not in MID_TURN and not self.chronicle.queue and not self._arriving
        return resting and self._ending is None and self.view.keep_open and self._resumable

    @property
    def ending(self) -> bool:
        """It takes no more prompts, though it may not have said its last word."""
        return self._finishing or self._ending is not None or self.view.ended

    def start(
        self, session: Session | None, messages: Iterable[Message] = (), decided: Iterable[Question] = ()
    ) -> None:
        if session is not None:
            self._begin(session)
        self.chronicle.queue.extend(messages)
        self._decided.extend(decided)
        self.task = asyncio.get_running_loop().create_task(self._perform(), name=f"stagedoor {self.view.id}")

    async def post(self, message: Message, *, steer: bool = False) -> Message:
        """Take a follow-up: stored first, sent when the turns before it are over.

        ``steer``: said into the running turn instead, if the agent can take it there. The log tells it as an event.
        """
        if self.ending:
            raise SessionEnded(f"session {self.view.id} is ending; resume it to continue")
        if steer and self._life is not None and await self._life.steered(message.prompt):
            return replace(message, state="sent")
        self._arriving += 1
        try:
            return await self.chronicle.enqueue(message)
        finally:
            self._arriving -= 1
            self._news.set()

    async def interrupt(self) -> None:
        if self._life is not None:
            await self._life.session.interrupt()

    async def cancel(self) -> None:
        """End it: what runs is cut short. Returns when ``done`` is stored."""
        self._ending = self._ending or "cancelled"
        self._news.set()
        if self._life is not None and self._in_turn:
            await self._life.session.close()
        await self.over()

    async def stop(self) -> None:
        """The server stops: it sleeps where it can go on later; what runs is cut short and said to be."""
        if self._ending is None:
            self._ending = "stopped"
            self._news.set()
            if self._life is not None and self._in_turn:
                await self._life.kill()
        await self.over()

    async def kill(self) -> None:
        """Nothing can be stored any more: leave nothing running."""
        if self.task is not None and not self._leaving:
            self.task.cancel()
        await self.over()

    async def doze(self) -> None:
        """Make room for another one."""
        self._rested.clear()
        self._tired = True
        self._news.set()
        await self._rested.wait()

    async def decide(self, question: Question) -> bool:
        """Put the answered ``question`` and tell the agent. False: somebody was faster, or its time was up."""
        if not await self.chronicle.answer(question):
            return False
        request_id = question.request.request_id
        if request_id in self.chronicle.asking.rearmed:
            self._decided.append(question)
            self._news.set()
            return True
        try:
            if self._life is not None and question.decision is not None:
                self._life.answer(request_id, question.decision)
                return True
        except AlreadyAnswered:
            pass  # its time was up, or its turn ended, at the same moment: the stream is about to say so
        if self._ending != "stopped":
            return False
        await self.over()  # the server stops: the answer counts later if the question stays
        kept = self.chronicle.asking.rearmed.get(request_id)
        return kept is not None and kept.decision == question.decision

    # -- its own task

    async def _perform(self) -> None:
        chronicle = self.chronicle
        try:
            while not self.view.ended and self._ending is None:
                rearmed = chronicle.asking.rearmed
                if self._life is not None and self._life.over:
                    await self._lost(self._life)
                elif self._decided:
                    await chronicle.settle(self._decided.pop(0))
                elif chronicle.queue and not rearmed:
                    await self._turn(chronicle.queue[0])
                elif self.view.keep_open or rearmed or self._arriving:
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

    async def _turn(self, message: Message) -> None:
        self._turning, self._tired = True, False
        self._rested.set()
        try:
            life = self._life or await self._wake()
            if life is None or self._ending is not None:
                return
            self.chronicle.turn_over.clear()
            if not life.session.in_turn:  # else the agent has begun one by itself, and ours comes after it
                self.chronicle.sending = message
                with contextlib.suppress(Exception):  # the stream has said what went wrong
                    await life.session.post(message.prompt)
            await first_of(self.chronicle.turn_over.wait(), life.pump)
        finally:
            self._turning = False

    async def _wait(self) -> None:
        self._news.clear()
        chronicle = self.chronicle
        if self._decided or self._ending is not None or (chronicle.queue and not chronicle.asking.rearmed):
            return
        if self._tired or (self._seats.wanted and self.can_doze) or (self._life is not None and self._life.over):
            await self._rest()
            return
        due = min((one.expires_at for one in chronicle.asking.rearmed.values() if one.expires_at), default=None)
        bound = self._sleep_after if self._life is not None else None
        if due is not None:
            bound = max(due - chronicle.now(), 0) / 1000
        try:
            async with asyncio.timeout(bound):
                await self._news.wait()
        except TimeoutError:
            await (self._rest() if due is None else self._expire())

    async def _rest(self) -> None:
        self._tired = False
        if self._resumable and self._life is not None and not self._life.over:
            await self._sleep("the agent sleeps until somebody speaks to it")
        self._rested.set()

    async def _sleep(self, why: str) -> None:
        """Put the CLI away; the session goes on when somebody speaks to it."""
        assert self._life is not None
        self._sleeping = True
        await self._life.close()
        self._sleeping = False
        await self._lost(self._life, why)

    async def _lost(
        self, life: Life, why: str = "the agent's program has ended; it is started again when needed"
    ) -> None:
        self._life = None
        self._seats.leave(self.view.id)
        life.pump.result()
        if not self.view.ended and not life.killed:
            await self.chronicle.say(asleep(why))

    async def _wake(self) -> Life | None:
        await first_of(self._seats.wait(self.view.id), self._told_to_end())
        if self._ending is not None:
            return None
        outlived = await self.chronicle.outlived()
        self.chronicle.asking.arranged = [one for one in outlived if one.by == "client"]
        await self.chronicle.change(activity="starting")
        return self._begin(self._open(self.view))

    def _begin(self, session: Session) -> Life:
        self._life = Life(session, self.view, store=self._heard, counts=self._counts, over=self._news.set)
        return self._life

    async def _heard(self, events: list[Event]) -> None:
        asking = self.chronicle.asking
        await self.chronicle.store(events)
        due, asking.due = asking.due, []
        for request_id, decision in due:
            with contextlib.suppress(AlreadyAnswered):  # by the policy: the same batch says so
                if self._life is not None:
                    self._life.answer(request_id, decision)

    async def _expire(self) -> None:
        now = self.chronicle.now()
        for question in list(self.chronicle.asking.rearmed.values()):
            if question.open and question.expires_at is not None and question.expires_at <= now:
                await self.decide(answered(question, Deny(UNANSWERED), by="timeout", who="", now=now))

    async def _finish(self) -> None:
        self._finishing = True
        chronicle, life, stopped = self.chronicle, self._life, self._ending == "stopped"
        resumable = self._resumable
        sleeps = stopped and not self._in_turn and self.view.keep_open and resumable
        if life is not None:
            self._sleeping = sleeps
            await life.close()
            await self._lost(life, STOPPED)
        if self.view.ended:
            return
        if stopped and self._in_turn:
            await (chronicle.rearm() if chronicle.asking.open and resumable else chronicle.end(STOPPED))
        elif sleeps and self.view.activity != "asleep":
            await chronicle.say(asleep(STOPPED))
        elif not stopped or self.view.activity != "asleep":
            await chronicle.end("the session was closed")

    async def _fail(self, fault: Exception) -> None:
        await self._put_away()
        try:
            why = str(fault) if isinstance(fault, StagedoorError) else repr(fault)
            await self.chronicle.end(why, status="error")
        except StoreError as broken:
            self._broken(broken)

    async def _put_away(self) -> None:
        life, self._life, self._leaving = self._life, None, True
        self._rested.set()
        self._left(self.view.id)
        if life is not None:
            await life.kill()
        await self.chronicle.quiet()

    # -- how it stands

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

    async def _told_to_end(self) -> None:
        while self._ending is None:
            self._news.clear()
            await self._news.wait()

    async def over(self) -> None:
        """Wait until its last word is stored and nothing of it runs."""
        if self.task is not None:
            await asyncio.wait([self.task])
