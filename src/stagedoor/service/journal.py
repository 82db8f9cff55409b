"""The log and the doorbell as one: append, then ring; follow by reading what is after the last number seen.

What was written lately is kept in memory too, so that many followers of a session do not each read it from disk. A
follower is never told anything that is not stored, misses nothing, and hears nothing twice.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import OrderedDict, deque
from collections.abc import AsyncGenerator, Callable, Sequence
from itertools import islice
from typing import Protocol

from stagedoor.errors import EventsRemoved, StoreError

from .store import Append, Change, Forget, Query, Store, Sweep, Trim
from .views import Question, Record, SessionView

CHUNK = 512
REMEMBERED = 4096
"""Sessions about which something is kept in memory, besides those that are followed."""
REMEMBERED_BYTES = 64 * 1024 * 1024
SLICE = 10_000
"""Records removed at once: a write that waits behind it waits some milliseconds."""
DAY = 86_400_000
SESSIONS = "sessions"
"""The topic that rings whenever anything about any session changes."""


class Journal:
    def __init__(self, store: Store, hub: Hub) -> None:
        self.store = store
        self.hub = hub
        self._lines: OrderedDict[str, RecentRecords] = OrderedDict()
        """Those written to last stand at the end."""
        self._bytes = 0
        self._asking: set[asyncio.Task[None]] = set()
        self.rewriting = asyncio.Lock()
        """Held from reading to writing by whoever changes the row of a session though it may not be running."""

    @property
    def followers(self) -> int:
        return sum(line.followers for line in self._lines.values())

    async def write(self, *changes: Change) -> None:
        """Store, then tell: nobody hears of what is not kept."""
        try:
            await self.store.write(*changes)
        except asyncio.CancelledError:
            task = asyncio.get_running_loop().create_task(self._find_out(changes))
            self._asking.add(task)
            task.add_done_callback(self._asking.discard)
            raise
        self._tell(changes)

    def hand_over(self, changes: tuple[Change, ...], over: Callable[[BaseException | None], None]) -> None:
        """``write`` for somebody who does not wait; ``over`` is called when it is stored and told, or was refused."""

        def settled(stored: asyncio.Future[None]) -> None:
            fault = asyncio.CancelledError() if stored.cancelled() else stored.exception()
            if fault is None:
                self._tell(changes)
            over(fault)

        asyncio.ensure_future(self.store.write(*changes)).add_done_callback(settled)

    async def answer(self, question: Question) -> bool:
        """Put the answered ``question`` if the stored one is open, and tell. False: somebody was faster."""
        won = await self.store.answer(question)
        if won:
            self._ring({question.session_id, SESSIONS})
        return won

    async def read(self, session_id: str, after: int, limit: int = CHUNK) -> list[Record]:
        """What comes after ``after``: from memory when it is recent, else from the log."""
        line = self._lines.get(session_id)
        found = None if line is None else line.after(after, limit)
        return await self.store.records(session_id, after, limit) if found is None else found

    async def follow(self, session_id: str, after: int) -> AsyncGenerator[list[Record]]:
        """Everything after ``after``, then what comes, until the session has ended and all of it was told.

        ``EventsRemoved`` when what comes next is no longer there: ``verdict`` says what is. While somebody follows,
        nothing is removed. Several followers may be given the same list.
        """
        line = self._line(session_id)
        line.followers += 1
        bell = self.hub.bell(session_id)
        try:
            while True:
                if not line.known:
                    await self._learn(session_id, line)
                over = line.over  # asked before reading: its last records were stored together with its end
                records = [] if line.gone else line.after(after, CHUNK)
                if records is None:
                    records = await self.store.records(session_id, after, CHUNK)
                if records:
                    if records[0].seq != after + 1:
                        raise EventsRemoved(
                            f"events {after + 1} to {records[0].seq - 1} of session {session_id} are no longer kept; "
                            "ask again, and go on as the verdict says"
                        )
                    after = records[-1].seq
                    yield records
                elif over:
                    return
                else:
                    await bell.rung()
        finally:
            bell.close()
            line.followers -= 1

    async def forget(self, session_id: str) -> None:
        """Remove a session; a long one piece by piece, so that nobody's write waits long."""
        view = await self.store.session(session_id)
        if view is not None:
            await self._trim(view)
        async with self.rewriting:
            await self.write(Forget(session_id))

    async def retain(self, keep_days: float, now: int) -> int:
        """Remove the records of sessions that ended more than ``keep_days`` ago, but for the last; says of how many.

        Sessions that somebody follows are left for the next time.
        """
        before = now - int(keep_days * DAY)
        query = Query(ended=True, limit=200)
        trimmed = 0
        while page := await self.store.sessions(query):
            for view in page:
                if view.updated_at < before and view.first_seq < view.last_seq:
                    trimmed += await self._trim(view)
            query = Query(ended=True, limit=query.limit, offset=query.offset + query.limit)
        return trimmed

    async def _trim(self, view: SessionView) -> bool:
        seq = view.first_seq
        while seq < view.last_seq:
            line = self._lines.get(view.id)
            if line is not None and line.followers:
                return False
            seq = min(seq + SLICE, view.last_seq)
            async with self.rewriting:
                await self.write(Trim(view.id, seq))
        return True

    async def _learn(self, session_id: str, line: RecentRecords) -> None:
        while not line.known:
            version = line.version
            view = await self.store.session(session_id)
            if version != line.version:
                continue  # something happened meanwhile; what was read may be old
            if view is None:
                line.forget()
            else:
                line.learn(view)

    async def _find_out(self, changes: tuple[Change, ...]) -> None:
        """Whoever wrote has gone, and whether it was stored nobody knows: wait until it must be, then look again."""
        with contextlib.suppress(StoreError):
            await self.store.write()
        topics = {SESSIONS}
        for change in changes:
            name = change.id if isinstance(change, SessionView) else getattr(change, "session_id", "")
            if (line := self._lines.get(name)) is not None:
                self._bytes -= line.clear()
                line.doubt()
                topics.add(name)
        self._ring(topics)

    def _tell(self, changes: tuple[Change, ...]) -> None:
        topics: set[str] = set()
        for change in changes:
            match change:
                case Append(session_id, records) if records:
                    self._bytes += self._line(session_id).add(records)
                    topics.add(session_id)
                case SessionView():
                    self._line(change.id).learn(change)
                    topics |= {change.id, SESSIONS}
                case Forget(session_id):
                    line = self._line(session_id)
                    self._bytes -= line.clear()
                    line.forget()
                    topics |= {session_id, SESSIONS}
                case Trim(session_id):
                    self._bytes -= self._line(session_id).clear()
                    topics |= {session_id, SESSIONS}
                case _:
                    topics.add(SESSIONS)
        if self._bytes > REMEMBERED_BYTES or len(self._lines) > REMEMBERED:
            self._let_go()
        self._ring(topics)

    def _ring(self, topics: set[str]) -> None:
        for topic in topics:
            self.hub.ring(topic)

    def _line(self, session_id: str) -> RecentRecords:
        line = self._lines.get(session_id)
        if line is None:
            line = self._lines[session_id] = RecentRecords()
        else:
            self._lines.move_to_end(session_id)
        return line

    def _let_go(self) -> None:
        """Of what was longest not written to; what is followed stays known."""
        for session_id, line in list(self._lines.items()):
            if self._bytes <= REMEMBERED_BYTES and len(self._lines) <= REMEMBERED:
                return
            self._bytes -= line.clear()
            if not line.followers:
                del self._lines[session_id]


MOST_RECORDS = 1024
MOST_RECORD_BYTES = 1024 * 1024


class RecentRecords:
    """``known``: what is said here is what the log says. The last record is kept whatever its size."""

    def __init__(self) -> None:
        self.followers = 0
        self.known = False
        self.gone = False
        self.version = 0
        """Changes whenever something about the session is learnt or doubted."""
        self._ended = False
        self._last = 0
        self._records: deque[Record] = deque()
        self._bytes = 0
        self._given: tuple[int, int, list[Record]] | None = None

    @property
    def over(self) -> bool:
        """Nothing more will come."""
        return self.gone or self._ended

    def learn(self, view: SessionView) -> None:
        self.known, self.gone, self._ended = True, False, view.ended
        self._last = max(self._last, view.last_seq)
        self.version += 1

    def forget(self) -> None:
        self.known = self.gone = True
        self._last = 0
        self.version += 1

    def doubt(self) -> None:
        """What is known may be out of date."""
        self.known = False
        self.version += 1

    def add(self, records: Sequence[Record]) -> int:
        """Those that were stored just now; returns by how many bytes this has grown."""
        before = self._bytes
        kept = self._records
        if kept and kept[-1].seq + 1 != records[0].seq:
            self.clear()  # one was stored past us: what is here must have no hole
        for record in records:
            kept.append(record)
            self._bytes += len(record.body)
        while len(kept) > 1 and (len(kept) > MOST_RECORDS or self._bytes > MOST_RECORD_BYTES):
            self._bytes -= len(kept.popleft().body)
        self._last = records[-1].seq
        self._given = None
        return self._bytes - before

    def clear(self) -> int:
        """Returns how many bytes that were."""
        freed, self._bytes = self._bytes, 0
        self._records.clear()
        self._given = None
        return freed

    def after(self, after: int, limit: int) -> list[Record] | None:
        """What comes after ``after``, if that can be told from here."""
        kept = self._records
        if self.known and after >= self._last:
            return []
        if not kept or kept[0].seq > after + 1:
            return None
        if self._given is not None and self._given[0] == after and self._given[1] == limit:
            return self._given[2]
        missing = kept[-1].seq - after
        if missing <= 0:
            return []
        if missing < 8:  # from the right: a deque finds its ends fast
            found = [kept[at] for at in range(-missing, min(0, limit - missing))]
        else:
            found = list(islice(kept, len(kept) - missing, len(kept) - missing + limit))
        self._given = (after, limit, found)
        return found


class Hub(Protocol):
    def ring(self, topic: str) -> None:
        """Wake everyone who listens to ``topic``."""

    def bell(self, topic: str) -> Bell:
        """Listen to ``topic`` from now on."""
        ...


class Bell(Protocol):
    async def rung(self) -> None:
        """Wait until the topic was rung since the last time this returned."""

    def close(self) -> None: ...


class LocalHub:
    """Within one process."""

    def __init__(self) -> None:
        self._bells: dict[str, set[LocalBell]] = {}

    def ring(self, topic: str) -> None:
        for bell in self._bells.get(topic, ()):
            bell.event.set()

    def bell(self, topic: str) -> LocalBell:
        bell = LocalBell(self, topic)
        self._bells.setdefault(topic, set()).add(bell)
        return bell

    def _leave(self, bell: LocalBell) -> None:
        bells = self._bells.get(bell.topic)
        if bells is not None:
            bells.discard(bell)
            if not bells:
                del self._bells[bell.topic]


class LocalBell:
    def __init__(self, hub: LocalHub, topic: str) -> None:
        self.topic = topic
        self.event = asyncio.Event()
        self._hub = hub

    async def rung(self) -> None:
        await self.event.wait()
        self.event.clear()

    def close(self) -> None:
        self._hub._leave(self)


UPKEEP_EVERY = 3600.0


class Upkeep:
    """``keep_days``: how long ended sessions keep their records. An idempotency key counts for a day."""

    def __init__(self, journal: Journal, keep_days: float | None, now: Callable[[], int]) -> None:
        self._journal = journal
        self._keep_days = keep_days
        self._now = now
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._go_on(), name="stagedoor upkeep")

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    async def once(self) -> None:
        await self._journal.write(Sweep(self._now() - DAY))
        if self._keep_days is not None:
            await self._journal.retain(self._keep_days, self._now())

    async def _go_on(self) -> None:
        while True:
            with contextlib.suppress(StoreError):  # whoever writes next finds out, and says it
                await self.once()
            await asyncio.sleep(UPKEEP_EVERY)
