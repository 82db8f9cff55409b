"""One session in the log: its row, its events, its questions and the prompts that wait, always written together."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter, deque
from collections.abc import Callable, Sequence

from msgspec.structs import force_setattr, replace

from stagedoor.errors import SessionEnded, SessionNotFound, StoreBroken, StoreError
from stagedoor.permissions.audit import AuditLog, entry_of
from stagedoor.unified.events import (
    Done,
    Error,
    Event,
    Init,
    Notice,
    PermissionRequest,
    PermissionResolved,
    Status,
    TurnCompleted,
    TurnStarted,
    decode,
    stamp,
)

from .journal import Journal
from .projection import IRRELEVANT, MID_TURN, PLAIN, asleep, closing, project
from .question_rows import QuestionRows, needs_the_agent, resolution, words_of
from .store import Append, Change, Fence
from .views import Carried, Question, QueuedPrompt, Record, SessionView, TurnUsage

_log = logging.getLogger("stagedoor.service")
CHUNK = 4096
STOPPED = "the server stopped"
CLOSED = "the session was closed"
UNANSWERED = "nobody answered in time"


class SessionLog:
    """Whatever is written here is written under one lock, so that rows and events never contradict each other.

    It is written behind a fence: what was meant for a session that has changed hands since is not kept (``Fenced``).
    """

    def __init__(
        self,
        view: SessionView,
        journal: Journal,
        *,
        now: Callable[[], int],
        new_id: Callable[[], str],
        broken: Callable[[StoreError], None],
        counts: Counter[str],
        audit: AuditLog,
        notices_of: Callable[[SessionView, list[Event]], Sequence[Change]] = lambda view, events: (),
    ) -> None:
        self.view = view
        self.questions = QuestionRows()
        self.queue: deque[QueuedPrompt] = deque()
        self.sending: QueuedPrompt | None = None
        """The prompt that is on its way; it counts as sent when the stream says that its turn has started."""
        self.taken: QueuedPrompt | None = None
        """The prompt whose turn is about to start, or has: it is changed no more."""
        self.turn_over = asyncio.Event()
        self.now = now
        self._journal = journal
        self._new_id = new_id
        self._broken = broken
        self._counts = counts
        self._audit = audit
        self._notices_of = notices_of
        self._writing = asyncio.Lock()
        self._fence = Fence(view.id, view.epoch)
        self._pipeline = WritePipeline(journal, broken, self._fence)

    async def store(self, events: list[Event]) -> None:
        """Returns when they are kept; pieces of text, which change nothing but the number, may be on their way."""
        async with self._writing:
            if PLAIN.issuperset(map(type, events)):
                await self._append_ahead(events)
            else:
                await self._append(events)

    async def quiet(self) -> None:
        """Wait until nothing of it is on its way to the log."""
        await self._pipeline.quiet()

    async def say(self, event: Event) -> None:
        """An event of the service's own."""
        await self.store([self._stamped(event)])

    async def enqueue(self, message: QueuedPrompt) -> QueuedPrompt:
        """Take a prompt that waits behind the others, also when the queue is read again: that goes by their times."""
        async with self._writing:
            if self.view.ended:
                raise SessionEnded(f"session {self.view.id} has ended; resume it to continue")
            if self.queue and message.at <= self.queue[-1].at:
                message = replace(message, at=self.queue[-1].at + 1)
            more = {"queued": self.view.queued + 1, "updated_at": self.now(), "queue_paused": False}
            await self._put(replace(self.view, **more), message)
            self.queue.append(message)
            return message

    async def hand_to_agent(self, message: QueuedPrompt) -> None:
        """Say that ``message`` goes to the agent now, before it does: should this life be cut off, nobody sends it
        again without knowing whether it arrived."""
        async with self._writing:
            taken = replace(message, taken_epoch=self.view.epoch)
            await self._put(self.view, taken)
            self.queue[self.queue.index(message)] = taken
            self.taken = taken

    async def pause(self) -> None:
        """What waits goes on waiting when the turn ends."""
        async with self._writing:
            if any(message is not self.taken for message in self.queue):
                await self._put(replace(self.view, queue_paused=True))

    async def rewrite(self, message_id: str, *, prompt: str | None = None, place: int | None = None) -> QueuedPrompt:
        """Another ``prompt`` for a message that waits, or another ``place`` among those that do (0: the next)."""
        async with self._writing:
            waiting = [message for message in self.queue if message is not self.taken]
            message = self._waiting(message_id)
            times = [one.at for one in waiting]
            index = next(at for at, one in enumerate(waiting) if one.id == message_id)
            if prompt is not None:
                waiting[index] = replace(message, prompt=prompt)
            if place is not None:
                waiting.insert(place, waiting.pop(index))
            waiting = [replace(one, at=at) for one, at in zip(waiting, times, strict=True)]
            await self._put(replace(self.view, updated_at=self.now()), *waiting)
            first = [message for message in self.queue if message is self.taken]
            self.queue.clear()
            self.queue.extend([*first, *waiting])
            return next(one for one in waiting if one.id == message_id)

    async def withdraw(self, message_id: str) -> None:
        """A message that waits is not sent."""
        async with self._writing:
            message = self._waiting(message_id)
            left = len(self.queue) - 1
            view = replace(self.view, queued=left, queue_paused=self.view.queue_paused and left > 0)
            await self._put(view, replace(message, state="dropped"))
            self.queue.remove(message)

    def _waiting(self, message_id: str) -> QueuedPrompt:
        for message in self.queue:
            if message.id == message_id and message is not self.taken:
                return message
        raise SessionNotFound(f"message {message_id!r} does not wait any more: it was sent, or removed")

    async def change(self, **fields: object) -> SessionView:
        async with self._writing:
            await self._put(replace(self.view, **fields))
            return self.view

    async def carry(self, carried: Carried) -> None:
        """Keep what the session needs to go on elsewhere."""
        async with self._writing:
            await self._put(self.view, carried)

    async def answer(self, question: Question) -> bool:
        """Put the answered ``question``, once."""
        async with self._writing:
            await self._pipeline.stored()
            try:
                won = await self._journal.answer(question, fence=self._fence)
            except StoreError as fault:
                self._broken(fault)
                raise
            if not won:
                return False
            self.questions.answer_stored(question)
            return True

    async def end(self, why: str, *, status: Status = "interrupted", intended: bool = False) -> None:
        """Close what is open and say ``done``, though there is no agent to say it. ``intended``: by somebody."""
        events = await self._last_turn()
        async with self._writing:
            refused = [
                PermissionResolved(request_id=name, decision="deny", by="interrupt", message=why)
                for name in self.questions.rearmed
            ]
            closed = closing(self.view, events, self.now(), why=why, status=status, intended=intended)
            decided = [self._as_decided(event) for event in (*map(self._stamped, refused), *closed)]
            await self._record(decided)
            await self._append(decided)

    async def _record(self, events: list[Event]) -> None:
        """What was decided though no agent was there to be told: to the audit log before anybody hears of it.

        Where that cannot be written nothing is allowed by it: an agent that comes back asks, and is recorded, again.
        """
        for event in events:
            if not isinstance(event, PermissionResolved):
                continue
            known = self.questions.open.get(event.request_id) or self.questions.rearmed.get(event.request_id)
            if known is not None:
                entry = entry_of(known.request, event, session=self.view.id, who=known.who)
                try:
                    await self._audit.keep(entry, self.now())
                except OSError as fault:
                    _log.error("a decision could not be recorded: %s", fault, extra={"session": self.view.id})

    def _as_decided(self, event: Event) -> Event:
        """What somebody has decided stays decided, though the agent was never told."""
        if isinstance(event, PermissionResolved):
            known = self.questions.open.get(event.request_id) or self.questions.rearmed.get(event.request_id)
            if known is not None and known.decision is not None:
                return self._stamped(resolution(known))
        return event

    # -- questions that outlive their turn

    async def rearm(self) -> None:
        """End the turn and not the session; its open questions wait for an answer while the CLI is away."""
        events = await self._last_turn()
        questions = self.questions
        async with self._writing:
            waiting = {name: replace(one, rearmed=True) for name, one in questions.open.items()}
            new_events = closing(self.view, events, self.now(), why=STOPPED, keep=waiting, end=False)
            questions.rearmed.update(waiting)
            questions.open.clear()
            await self._append([*new_events, self._stamped(asleep(STOPPED))], *waiting.values())

    async def settle(self, question: Question) -> None:
        """A re-armed question was answered: say so, and when it was the last, queue a prompt that tells the agent."""
        decided = [one for one in await self.outlived() if not one.open]
        left = [name for name in self.questions.rearmed if name != question.request.request_id]
        async with self._writing:
            new_events: list[Event] = [self._stamped(resolution(question))]
            await self._record(new_events)
            if left:
                await self._append(new_events)
            elif needs_the_agent(decided):
                message = QueuedPrompt(
                    id=self._new_id(),
                    session_id=self.view.id,
                    prompt=words_of(decided),
                    at=min((question.asked_at, *(one.at - 1 for one in self.queue))),
                    who=question.who,
                )
                self.view = replace(self.view, queued=self.view.queued + 1)
                self.queue.appendleft(message)
                await self._append(new_events, message)
            else:
                if question.by == "timeout" and not self.view.keep_open:
                    new_events.append(self._stamped(Error(kind="timeout", message=UNANSWERED, fatal=True)))
                await self._append(new_events)

    async def outlived(self) -> list[Question]:
        """The questions of the last turn that outlived it, answered or not."""
        known = await self._journal.store.questions(session_id=self.view.id, open_only=False)
        return [one for one in known if one.rearmed and one.request.turn == self.view.turn]

    async def mend(self, *, resumable: bool) -> list[Question]:
        """After the server's end, orderly or not: close what was cut off. Returns the answers nobody was told of."""
        known = await self._journal.store.questions(session_id=self.view.id, open_only=False)
        pending = {
            one.request.request_id: one for one in known if not one.applied and one.request.turn == self.view.turn
        }
        waiting = await self._journal.store.messages(self.view.id)
        cut_off = [one for one in waiting if one.taken_epoch] if self.view.last_seq else []
        self.queue.extend(one for one in waiting if one not in cut_off)
        if cut_off:
            await self._give_up(cut_off)
        activity = self.view.activity
        if activity in MID_TURN:
            self.questions.open = pending
            await (self.rearm() if resumable and (pending or self.view.keep_open) else self.end(STOPPED))
        else:
            self.questions.rearmed = pending
            goes_on = resumable and (self.view.keep_open or bool(pending) or (activity == "asleep" and self.queue))
            if not goes_on:
                await self.end(STOPPED)
            elif activity != "asleep":
                await self.say(asleep(STOPPED))
        return [one for one in self.questions.rearmed.values() if not one.open]

    async def is_untouched(self) -> bool:
        """Whether nothing of it ever went to an agent: then it can begin anywhere, with the prompts that wait."""
        waiting = [] if self.view.last_seq else await self._journal.store.messages(self.view.id)
        if not waiting or any(one.taken_epoch for one in waiting):
            return False
        self.queue.extend(waiting)
        return True

    async def _give_up(self, messages: list[QueuedPrompt]) -> None:
        """They were on their way when the life before this one was cut off, and may have arrived: never sent again."""
        prompts = ", ".join(repr(one.prompt[:80]) for one in messages)
        why = (
            f"the agent was cut off when a message was on its way: {prompts}; whether it arrived is not known, so "
            "it is not sent again: look at what was done, and send it anew if that is needed"
        )
        async with self._writing:
            self.view = replace(self.view, queued=len(self.queue))
            notice = self._stamped(Notice(level="warning", code="message_cut_off", message=why))
            await self._append([notice], *(replace(one, state="dropped") for one in messages))

    async def _last_turn(self) -> list[Event]:
        """The events of the last turn that matter for what is open. The log may be huge: the rest is not read."""
        events: list[Event] = []
        after = max(self.view.turn_seq - 1, 0)
        while records := await self._journal.store.records(self.view.id, after, CHUNK):
            events += [decode(one.body) for one in records if one.type not in IRRELEVANT]
            after = records[-1].seq
        return events

    # -- everything goes through here

    async def _append_ahead(self, events: list[Event]) -> None:
        """Number pieces of text and hand them over. The row needs no writing: it follows its last record."""
        view = self.view
        if view.ended or not events:
            return
        for seq, event in enumerate(events, view.last_seq + 1):
            force_setattr(event, "seq", seq)
        records = [Record.of(event) for event in events]
        self.view = replace(view, last_seq=records[-1].seq, updated_at=records[-1].at)
        self._counts["events"] += len(records)
        await self._pipeline.write(Append(view.id, records))

    async def _append(self, events: list[Event], *more: Change) -> None:
        """Number and store ``events``, with the rows that follow from them."""
        view = self.view
        if view.ended:
            return
        records: list[Record] = []
        changes: list[Change] = []
        seq, over = view.last_seq, False
        for event in self._with_dropped(events):
            seq += 1
            force_setattr(event, "seq", seq)
            if isinstance(event, Init):
                force_setattr(event, "project_id", view.project_id)
            if type(event) not in PLAIN:
                view, rows = self._rows(project(view, event), event)
                changes += rows
                over = over or isinstance(event, TurnCompleted | Done)
            records.append(Record.of(event))
        if records:
            view = replace(view, last_seq=seq, updated_at=records[-1].at)
            changes.insert(0, Append(view.id, records))
        changes += self._notices_of(view, [event for event in events if self._waits_or_ends(event)])
        await self._put(view, *changes, *more)
        self._counts["events"] += len(records)
        if over and self.sending is None:
            self.turn_over.set()

    async def _put(self, view: SessionView, *changes: Change) -> None:
        await self._pipeline.stored()
        try:
            await self._journal.write(self._fence, *changes, view)
        except StoreError as fault:
            self._broken(fault)
            raise
        self.view = view

    def _waits_or_ends(self, event: Event) -> bool:
        """Whether somebody who looks elsewhere may want to hear of it."""
        if isinstance(event, PermissionRequest):
            question = self.questions.open.get(event.request_id)
            return question is not None and question.open
        return isinstance(event, TurnCompleted | Done)

    def _with_dropped(self, events: list[Event]) -> list[Event]:
        """What still waits when the session ends is said not to have been sent: before ``done``, which is the last."""
        if not self.queue or not events or not isinstance(events[-1], Done):
            return events
        waiting = [one for one in self.queue if one is not self.sending or not _starts(events, one)]
        if not waiting:
            return events
        many = "a message was" if len(waiting) == 1 else f"{len(waiting)} messages were"
        text = f"{many} still waiting when the session ended, and not sent"
        notice = self._stamped(Notice(level="warning", code="messages_dropped", message=text))
        return [*events[:-1], notice, events[-1]]

    def _rows(self, view: SessionView, event: Event) -> tuple[SessionView, list[Change]]:
        match event:
            case TurnStarted() if self.sending is not None and event.prompt == self.sending.prompt:
                sent = replace(self.sending, state="sent")
                self.queue.remove(self.sending)
                self.sending = None
                return replace(view, queued=len(self.queue)), [sent]
            case PermissionRequest():
                self._counts["questions asked"] += 1
                _log.info("question asked", extra={"session": view.id, "question": event.request_id})
                return view, [self.questions.ask(event, view)]
            case PermissionResolved():
                self._counts["questions expired" if event.by == "timeout" else "questions answered"] += 1
                return view, self.questions.resolve(event)
            case TurnCompleted():
                self.questions.arranged.clear()
                return view, [_spent(view, event)]
            case Done():
                dropped = [replace(one, state="dropped") for one in self.queue]
                self.queue.clear()
                self.sending = None
                self._counts[f"ended {view.agent} {view.state}"] += 1
                _log.info("session ended", extra={"session": view.id, "agent": view.agent, "state": view.state})
                return view, list(dropped)
            case _:
                return view, []

    def _stamped(self, event: Event) -> Event:
        view = self.view
        # To be put away is no activity: after a restart of the server every session would seem to be new.
        rests = isinstance(event, Notice) and event.code == "asleep" and view.activity not in MID_TURN
        return stamp(event, view.agent, view.id, 0, view.updated_at if rests else self.now(), view.turn)


def _starts(events: list[Event], message: QueuedPrompt) -> bool:
    return any(isinstance(event, TurnStarted) and event.prompt == message.prompt for event in events)


def _spent(view: SessionView, event: TurnCompleted) -> TurnUsage:
    return TurnUsage(
        session_id=view.id,
        turn=event.turn,
        at=event.timestamp,
        agent=view.agent,
        project=view.project_id or (view.spec and (view.spec.cwd or view.spec.place)) or view.cwd,  # not its worktree
        model=view.model,
        usage=event.usage,
    )


MOST_UNDER_WAY = 4
"""On their way at once; with so many, whoever hands over waits."""


class WritePipeline:
    """``failed`` is told of the first one that was not kept; from then on everybody is refused."""

    def __init__(self, journal: Journal, failed: Callable[[StoreError], None], fence: Fence) -> None:
        self._journal = journal
        self._failed = failed
        self._fence = fence
        self._under_way = 0
        self._one_ended = asyncio.Event()
        self._fault: StoreError | None = None

    async def write(self, append: Append) -> None:
        """Hand over; returns when there is room for another."""
        self._check()
        self._under_way += 1
        self._journal.hand_over((self._fence, append), self._ended)
        await self._fewer_than(MOST_UNDER_WAY)
        self._check()

    async def stored(self) -> None:
        """Wait until everything handed over is kept. Raises when something was not."""
        await self.quiet()
        self._check()

    async def quiet(self) -> None:
        """Wait until nothing is on its way, however that ended."""
        await self._fewer_than(1)

    async def _fewer_than(self, most: int) -> None:
        while self._under_way >= most:
            self._one_ended.clear()
            await self._one_ended.wait()

    def _ended(self, fault: BaseException | None) -> None:
        self._under_way -= 1
        self._one_ended.set()
        if fault is not None and self._fault is None:
            self._fault = fault if isinstance(fault, StoreError) else StoreBroken(f"not written: {fault!r}")
            self._failed(self._fault)

    def _check(self) -> None:
        if self._fault is not None:
            raise self._fault
