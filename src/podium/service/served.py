"""One session of the service: its conversation with the CLI, its queue of prompts, and every event into the log.

A task of its own takes one prompt after the other. Whoever wants something of it (a follow-up, an interrupt, an answer)
only leaves word; the log says what came of it.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Callable, Iterable

from msgspec.structs import replace

from podium.errors import AlreadyAnswered, PodiumError, StoreError
from podium.session import Session
from podium.transports.relay import Reader
from podium.unified.decisions import Allow, Decision, Deny
from podium.unified.events import (
    Done,
    Event,
    Notice,
    PermissionRequest,
    PermissionResolved,
    TurnCompleted,
    encode,
    stamp,
)

from .continuation import Continuation
from .journal import Journal
from .projection import project
from .store import Append, Change
from .views import Message, Question, Record, SessionView, Spent

Wake = Callable[[SessionView], Session]
"""Opens the conversation again, by resume."""


class _Life:
    """One run of the CLI."""

    def __init__(self, session: Session, view: SessionView) -> None:
        self.session = session
        self.reader: Reader[Event] = session.events
        self.joined = Continuation(view)
        self.pump: asyncio.Task[None] | None = None


class Served:
    def __init__(
        self,
        view: SessionView,
        journal: Journal,
        *,
        wake: Wake,
        now: Callable[[], int],
        sleep_after: float | None,
        broken: Callable[[StoreError], None],
        ended: Callable[[str], None],
    ) -> None:
        self.view = view
        self._journal = journal
        self._open = wake
        self._now = now
        self._sleep_after = sleep_after
        self._broken = broken
        self._ended = ended
        self._life: _Life | None = None
        self._queue: deque[Message] = deque()
        self._news = asyncio.Event()
        self._turn_over = asyncio.Event()
        self._ending = False
        self._sleeping = False
        self._questions: dict[str, Question] = {}
        self._arranged: list[tuple[str, str, Decision]] = []
        self._writing = asyncio.Lock()
        self.task: asyncio.Task[None] | None = None

    @property
    def awake(self) -> bool:
        return self._life is not None

    def start(self, session: Session | None, messages: Iterable[Message] = ()) -> None:
        if session is not None:
            self._life = _Life(session, self.view)
        self._queue.extend(messages)
        self._news.set()
        self.task = asyncio.get_running_loop().create_task(self._perform(), name=f"podium {self.view.id}")

    async def post(self, message: Message) -> None:
        """Take a follow-up: stored first, sent when the turns before it are over."""
        async with self._writing:
            view = replace(self.view, queued=self.view.queued + 1, updated_at=self._now())
            await self._journal.write(message, view)
            self.view = view
        self._queue.append(message)
        self._news.set()

    async def interrupt(self) -> None:
        if self._life is not None:
            await self._life.session.interrupt()

    async def end(self) -> None:
        """End it: what runs is cut short. Returns when ``done`` is stored."""
        self._ending = True
        self._news.set()
        if self._life is not None and not self._turn_over.is_set():
            await self._life.session.close()
        if self.task is not None:
            await asyncio.wait([self.task])

    def tell(self, request_id: str, decision: Decision) -> None:
        """The agent waits for this. ``AlreadyAnswered`` when it does no more."""
        if self._life is None:
            raise AlreadyAnswered("the session sleeps; the question is no longer open there")
        self._life.session.answer(self._life.joined.own_ids.get(request_id, request_id), decision)

    async def _perform(self) -> None:
        try:
            while not self._ending and not self.view.ended:
                if self._queue:
                    await self._turn(self._queue.popleft())
                elif not self.view.keep_open:
                    break
                else:
                    await self._wait()
            await self._finish()
        except StoreError as fault:
            self._broken(fault)
            if self._life is not None:
                await self._life.session.close()
        finally:
            self._ended(self.view.id)

    async def _wait(self) -> None:
        self._news.clear()
        if self._queue or self._ending:
            return
        try:
            async with asyncio.timeout(self._sleep_after if self._life is not None else None):
                await self._news.wait()
        except TimeoutError:
            await self._sleep()

    async def _turn(self, message: Message) -> None:
        life = self._life
        if life is None:
            life = self._life = _Life(self._open(self.view), self.view)
        if life.pump is None:
            life.pump = asyncio.get_running_loop().create_task(self._store_all(life))
        async with self._writing:
            view = replace(self.view, queued=max(self.view.queued - 1, 0), activity="working")
            await self._journal.write(replace(message, state="sent"), view)
            self.view = view
        self._turn_over.clear()
        with contextlib.suppress(PodiumError):  # the stream says what went wrong
            await life.session.post(message.prompt)
        over = asyncio.ensure_future(self._turn_over.wait())
        await asyncio.wait([over, life.pump], return_when=asyncio.FIRST_COMPLETED)
        over.cancel()
        if life.pump.done():
            self._life = None
            life.pump.result()

    async def _store_all(self, life: _Life) -> None:
        """Everything this life says, as much at once as there is; a slow disk slows the agent."""
        while await life.reader.news():
            await self.store(life.joined.join(life.reader.ready(), last=not self._sleeping))

    async def store(self, events: list[Event]) -> None:
        async with self._writing:
            view = self.view
            records: list[Record] = []
            changes: list[Change] = []
            for event in events:
                records.append(Record(event.seq, event.timestamp, type(event).__struct_config__.tag, encode(event)))  # type: ignore[arg-type]
                view = project(view, event)
                changes += self._rows(view, event)
            await self._journal.write(Append(view.id, records), *changes, view)
            self.view = view
        for event in events:
            if isinstance(event, TurnCompleted | Done):
                self._turn_over.set()

    def _rows(self, view: SessionView, event: Event) -> list[Change]:
        match event:
            case PermissionRequest():
                question = Question(
                    id=f"{view.id}:{event.request_id}",
                    session_id=view.id,
                    agent=view.agent,
                    request=event,
                    asked_at=event.timestamp,
                    expires_at=event.expires_at,
                )
                self._questions[event.request_id] = question
                return [question]
            case PermissionResolved():
                asked = self._questions.pop(event.request_id, None)
                if asked is None:
                    return []
                decision: Decision = (
                    Allow(remember=event.remember) if event.decision == "allow" else Deny(event.message)
                )
                return [
                    replace(
                        asked,
                        open=False,
                        decision=decision,
                        by=event.by,
                        message=event.message,
                        resolved_at=event.timestamp,
                        applied=True,
                    )
                ]
            case TurnCompleted():
                return [
                    Spent(
                        session_id=view.id,
                        turn=event.turn,
                        at=event.timestamp,
                        agent=view.agent,
                        project=view.project_id or view.cwd,
                        model=view.model,
                        usage=event.usage,
                    )
                ]
            case _:
                return []

    async def _sleep(self) -> None:
        """Put the CLI away; the session goes on when somebody speaks to it."""
        life = self._life
        if life is None or not self.view.native_id:
            return
        self._sleeping = True
        await life.session.close()
        if life.pump is not None:
            await asyncio.wait([life.pump])
        self._life, self._sleeping = None, False
        await self.say(Notice(level="info", code="asleep", message="the agent sleeps until somebody speaks to it"))
        async with self._writing:
            view = replace(self.view, activity="asleep")
            await self._journal.write(view)
            self.view = view

    async def say(self, event: Event) -> None:
        """An event of the service's own."""
        view = self.view
        stamp(event, view.agent, view.id, view.last_seq + 1, self._now(), view.turn)
        await self.store([event])

    async def _finish(self) -> None:
        life = self._life
        if life is not None:
            await life.session.close()
            if life.pump is None:
                life.pump = asyncio.get_running_loop().create_task(self._store_all(life))
            await life.pump
            self._life = None
        if not self.view.ended:
            from .recovery import closing

            await self.store(closing(self.view, (), self._now(), why="the session was closed"))
