"""The log and the doorbell as one: append, then ring; follow by reading what is after the last number seen.

What was written or read lately is kept in memory too, so that many followers of a session do not each ask the log. A
ring that came from elsewhere makes that memory doubtful: then the log is asked again, once for all of them. A follower
is never told anything that is not stored, misses nothing, and hears nothing twice.
"""

from __future__ import annotations

import asyncio
import contextlib
import uuid
from collections import OrderedDict, deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Sequence
from itertools import islice
from typing import Protocol

from msgspec.structs import replace

from stagedoor.errors import EventsRemoved, StoreAway, StoreError
from stagedoor.transports.tasks import TaskOwner

from .store import Append, Change, Fence, Forget, Removable, Store, Sweep, Trim
from .views import Command, NoticeRow, Question, Record, SessionView

CHUNK = 512
REMEMBERED = 4096
"""Sessions about which something is kept in memory, besides those that are followed."""
REMEMBERED_BYTES = 64 * 1024 * 1024
SLICE = 10_000
"""Records removed at once: a write that waits behind it waits some milliseconds."""
LOOK_AGAIN = 1.0
"""Seconds after which a follower tries again when the log is away."""
PAGE = 500
"""Sessions that retention looks at together."""
DAY = 86_400_000
WORKERS = "workers"
"""The topic that rings when a worker was drained, taken back or revoked."""
NOTICES = "notices"
"""The topic that rings when there is something to be told to receivers."""
SESSIONS = "sessions"
"""The topic that rings whenever anything about any session changes."""


class Journal:
    def __init__(self, store: Store, hub: Hub) -> None:
        self.store = store
        self.hub = hub
        self._recent: OrderedDict[str, RecentRecords] = OrderedDict()
        """Those written to last stand at the end."""
        self._bytes = 0
        self._tasks = TaskOwner()
        self.rewriting = asyncio.Lock()
        """Held from reading to writing by whoever changes the row of a session though it may not be running."""
        hub.watch(self._doubt, self)

    @property
    def followers(self) -> int:
        return sum(recent.followers for recent in self._recent.values())

    async def write(self, *changes: Change) -> None:
        """Store, then tell: nobody hears of what is not kept."""
        try:
            await self.store.write(*changes)
        except asyncio.CancelledError:
            self._tasks.start(self._find_out(changes))
            raise
        self._tell(changes)

    def hand_over(self, changes: tuple[Change, ...], on_end: Callable[[BaseException | None], None]) -> None:
        """``write`` for somebody who does not wait; ``on_end`` is called when it is stored and announced, or failed."""

        def finish(stored: asyncio.Future[None]) -> None:
            fault = asyncio.CancelledError() if stored.cancelled() else stored.exception()
            if fault is None:
                self._tell(changes)
            on_end(fault)

        writing = self.store.write(*changes)
        stored = writing if isinstance(writing, asyncio.Future) else self._tasks.start(writing)
        stored.add_done_callback(finish)

    async def answer(self, question: Question, *, fence: Fence | None = None) -> bool:
        """``Store.answer``, and tell."""
        won = await self.store.answer(question, fence=fence)
        if won:
            self._ring({question.session_id, SESSIONS})
        return won

    async def claim(
        self, worker_id: str, incarnation: str, *, labels: Collection[str], limit: int, now: int, session_id: str = ""
    ) -> list[SessionView]:
        """``Store.claim``, and tell."""
        views = await self.store.claim(
            worker_id, incarnation, labels=labels, limit=limit, now=now, session_id=session_id
        )
        if views:
            self._ring({SESSIONS, *(view.id for view in views)})
        return views

    async def release(self, session_id: str, epoch: int) -> bool:
        """``Store.release``, and tell."""
        released = await self.store.release(session_id, epoch)
        if released:
            self._ring({SESSIONS, session_id})
        return released

    async def read(self, session_id: str, after: int, limit: int = CHUNK) -> list[Record]:
        """What comes after ``after``: from memory when it is recent, else from the log."""
        recent = self._recent.get(session_id)
        records = None if recent is None or not recent.certain else recent.after(after, limit)
        return await self.store.records(session_id, after, limit) if records is None else records

    async def follow(self, session_id: str, after: int) -> AsyncGenerator[list[Record]]:
        """Everything after ``after``, then what comes, until the session has ended and all of it was told.

        ``EventsRemoved`` when what comes next is no longer there: ``verdict`` says what is. While somebody follows,
        nothing is removed. Several followers may be given the same list.
        """
        recent = self._recent_of(session_id)
        recent.followers += 1
        bell = self.hub.bell(session_id)
        try:
            while True:
                try:
                    if not recent.certain:
                        await self._learn(session_id, recent)
                    complete = recent.complete  # before reading: its last records were stored together with its end
                    records = [] if recent.deleted else recent.after(after, CHUNK)
                    if records is None:
                        records = await self._look(session_id, recent, after)
                except StoreAway:  # a stream stays open: it goes on when the log is back
                    await asyncio.sleep(LOOK_AGAIN)
                    continue
                if records:
                    if records[0].seq != after + 1:
                        raise EventsRemoved(
                            f"events {after + 1} to {records[0].seq - 1} of session {session_id} are no longer stored; "
                            "read again from the place that the verdict names"
                        )
                    after = records[-1].seq
                    yield records
                elif complete:
                    return
                elif recent.certain:  # else somebody wrote elsewhere meanwhile: look again
                    await bell.rung()
        finally:
            bell.close()
            recent.followers -= 1

    async def forget(self, session_id: str) -> None:
        """Remove a session; a long one piece by piece, so that nobody's write waits long."""
        view = await self.store.session(session_id)
        if view is not None:
            await self._trim(Removable(session_id, view.updated_at, view.first_seq, view.last_seq))
        async with self.rewriting:
            await self.write(Forget(session_id))

    async def retain(self, keep_days: float, now: int) -> int:
        """Remove the records of sessions that ended more than ``keep_days`` ago, but for the last; says of how many.

        Sessions that somebody follows are left for the next time.
        """
        before = now - int(keep_days * DAY)
        trimmed = 0
        last: Removable | None = None
        while page := await self.store.removable(before, last, PAGE):
            last = page[-1]
            small: list[Removable] = []
            records = 0
            for old in page:
                size = old.last_seq - old.first_seq
                if size > SLICE:
                    trimmed += await self._trim(old)
                    continue
                if records + size > SLICE:
                    trimmed += await self._trim_together(small)
                    small, records = [], 0
                small.append(old)
                records += size
            trimmed += await self._trim_together(small)
        return trimmed

    async def _trim(self, old: Removable) -> bool:
        """A long one, piece by piece."""
        seq = old.first_seq
        while seq < old.last_seq:
            seq = min(seq + SLICE, old.last_seq)
            if not await self._trim_together([replace(old, last_seq=seq)]):
                return False
        return True

    async def _trim_together(self, olds: list[Removable]) -> int:
        async with self.rewriting:
            trims = [Trim(old.session_id, old.last_seq) for old in olds if not self._is_followed(old.session_id)]
            await self.write(*trims)
        return len(trims)

    def _is_followed(self, session_id: str) -> bool:
        recent = self._recent.get(session_id)
        return recent is not None and recent.followers > 0

    async def _look(self, session_id: str, recent: RecentRecords, after: int) -> list[Record]:
        """What the log holds after ``after``. Those who ask for the newest are told from one reading."""
        if not recent.is_newest(after):
            return await self.store.records(session_id, after, CHUNK)
        async with recent.looking:
            if (records := recent.after(after, CHUNK)) is None:
                records = await self.store.records(session_id, after, CHUNK)
                if recent is self._recent.get(session_id):
                    self._bytes += recent.add_read(records)
            return records

    async def _learn(self, session_id: str, recent: RecentRecords) -> None:
        """How the session stands. It stays uncertain when somebody rang from elsewhere meanwhile: who asks then looks
        again, with what is known by now."""
        async with recent.looking:
            while not recent.certain:
                version, doubts = recent.version, recent.doubts
                view = await self.store.session(session_id)
                if version != recent.version:
                    continue  # something was written here meanwhile; what was read may be older
                if view is None:
                    self._bytes -= recent.clear()
                    recent.forget()
                else:
                    recent.learn(view)
                recent.cleared = doubts
                if doubts != recent.doubts:
                    return

    def _doubt(self, topic: str | None) -> None:
        doubtful = self._recent.values() if topic is None else filter(None, (self._recent.get(topic),))
        for recent in doubtful:
            recent.doubt()

    async def _find_out(self, changes: tuple[Change, ...]) -> None:
        """Whoever wrote has gone, and whether it was stored nobody knows: wait until it must be, then look again."""
        with contextlib.suppress(StoreError):
            await self.store.write()
        topics = {SESSIONS}
        for change in changes:
            name = change.id if isinstance(change, SessionView) else getattr(change, "session_id", "")
            if (recent := self._recent.get(name)) is not None:
                self._bytes -= recent.clear()
                recent.doubt()
                topics.add(name)
        self._ring(topics)

    def _tell(self, changes: tuple[Change, ...]) -> None:
        topics: set[str] = set()
        for change in changes:
            match change:
                case Append(session_id, records) if records:
                    self._bytes += self._recent_of(session_id).add(records)
                    topics.add(session_id)
                case SessionView():
                    self._recent_of(change.id).learn(change)
                    topics |= {change.id, SESSIONS}
                case Forget(session_id):
                    recent = self._recent_of(session_id)
                    self._bytes -= recent.clear()
                    recent.forget()
                    topics |= {session_id, SESSIONS}
                case Trim(session_id):
                    self._bytes -= self._recent_of(session_id).clear()
                    topics |= {session_id, SESSIONS}
                case Fence():
                    pass
                case NoticeRow():
                    topics.add(NOTICES)
                case _:
                    topics.add(SESSIONS)
        if self._bytes > REMEMBERED_BYTES or len(self._recent) > REMEMBERED:
            self._let_go()
        self._ring(topics)

    def _ring(self, topics: set[str]) -> None:
        for topic in topics:
            self.hub.ring(topic, self)

    def _recent_of(self, session_id: str) -> RecentRecords:
        recent = self._recent.get(session_id)
        if recent is None:
            recent = self._recent[session_id] = RecentRecords()
        else:
            self._recent.move_to_end(session_id)
        return recent

    def _let_go(self) -> None:
        """Of what was longest not written to; what is followed stays known."""
        for session_id, recent in list(self._recent.items()):
            if self._bytes <= REMEMBERED_BYTES and len(self._recent) <= REMEMBERED:
                return
            self._bytes -= recent.clear()
            if not recent.followers:
                del self._recent[session_id]


MOST_RECORDS = 1024
MOST_RECORD_BYTES = 1024 * 1024


class RecentRecords:
    """``certain``: what stands here is what the log holds. The last record is kept whatever its size."""

    def __init__(self) -> None:
        self.followers = 0
        self.deleted = False
        self.version = 0
        """Changes whenever something about the session is learnt."""
        self.doubts = 0
        self.cleared = 0
        """How many of the doubts the log has cleared up."""
        self.looking = asyncio.Lock()
        """Held by the one that asks the log for all."""
        self._learnt = False
        self._ended = False
        self._last = 0
        self._records: deque[Record] = deque()
        self._bytes = 0
        self._last_slice: tuple[int, int, list[Record]] | None = None

    @property
    def certain(self) -> bool:
        """What is known is how it stands."""
        return self._learnt and self.doubts == self.cleared

    @property
    def complete(self) -> bool:
        """Nothing more will come."""
        return self.deleted or self._ended

    def learn(self, view: SessionView) -> None:
        self._learnt, self.deleted, self._ended = True, False, view.ended
        self._last = max(self._last, view.last_seq)
        self.version += 1

    def forget(self) -> None:
        self._learnt = self.deleted = True
        self._last = 0
        self.version += 1

    def doubt(self) -> None:
        """What is known may be out of date, until somebody has asked the log."""
        self.doubts += 1

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
        self._last = max(self._last, records[-1].seq)
        self._last_slice = None
        return self._bytes - before

    def is_newest(self, after: int) -> bool:
        """Nothing that is here comes after ``after``, and not much else does."""
        return self._records[-1].seq <= after if self._records else self._last - after <= CHUNK

    def add_read(self, records: Sequence[Record]) -> int:
        """Those that were read from the log, where they go on from what is here, or are the last there are; returns
        by how many bytes this has grown."""
        kept = self._records
        if not records or (kept[-1].seq + 1 != records[0].seq if kept else records[-1].seq < self._last):
            return 0
        return self.add(records)

    def clear(self) -> int:
        """Returns how many bytes that were."""
        freed, self._bytes = self._bytes, 0
        self._records.clear()
        self._last_slice = None
        return freed

    def after(self, after: int, limit: int) -> list[Record] | None:
        """What comes after ``after``, if that can be told from here."""
        kept = self._records
        if self.certain and after >= self._last:
            return []
        if not kept or kept[0].seq > after + 1:
            return None
        if self._last_slice is not None and self._last_slice[0] == after and self._last_slice[1] == limit:
            return self._last_slice[2]
        missing = kept[-1].seq - after
        if missing <= 0:
            return None  # others have written more, or may have
        if missing < 8:  # from the right: a deque finds its ends fast
            records = [kept[at] for at in range(-missing, min(0, limit - missing))]
        else:
            records = list(islice(kept, len(kept) - missing, len(kept) - missing + limit))
        self._last_slice = (after, limit, records)
        return records


class Hub(Protocol):
    async def open(self) -> None: ...
    async def close(self) -> None: ...

    def ring(self, topic: str, by: object = None) -> None:
        """Wake everyone who listens to ``topic``, in every process that shares this hub. It never waits.

        Whoever rings has written before: nothing is missed by who looks then. ``by``: who rings.
        """

    def ring_all(self) -> None:
        """Wake everyone who listens in this process: rings of others may have been lost."""

    def bell(self, topic: str) -> Bell:
        """Listen to ``topic`` from now on."""
        ...

    def watch(self, watcher: Callable[[str | None], None], me: object) -> None:
        """Call ``watcher`` with the topic of every ring that is not by ``me``, before anybody is woken by it, and with
        ``None`` when rings may have been lost (then everyone is woken)."""


class Bell(Protocol):
    async def rung(self) -> None:
        """Wait until the topic was rung since the last time this returned."""

    def close(self) -> None: ...


class LocalHub:
    """Within one process."""

    def __init__(self) -> None:
        self._bells: dict[str, set[LocalBell]] = {}
        self._watchers: list[tuple[Callable[[str | None], None], object]] = []

    async def open(self) -> None:
        pass

    async def close(self) -> None:
        pass

    def ring(self, topic: str, by: object = None) -> None:
        for watcher, me in self._watchers:
            if me is not by:
                watcher(topic)
        for bell in self._bells.get(topic, ()):
            bell.event.set()

    def ring_all(self) -> None:
        """Rings may have been lost."""
        for watcher, _ in self._watchers:
            watcher(None)
        for bells in self._bells.values():
            for bell in bells:
                bell.event.set()

    def watch(self, watcher: Callable[[str | None], None], me: object) -> None:
        self._watchers.append((watcher, me))

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
    """``keep_days``: how long ended sessions keep their records. An idempotency key counts for a day.

    Of all that share the log one does that each time; ``sweep`` clears away what each keeps outside of it.
    """

    def __init__(
        self,
        journal: Journal,
        keep_days: float | None,
        now: Callable[[], int],
        *,
        sweep: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        self._sweep = sweep
        self._journal = journal
        self._keep_days = keep_days
        self._now = now
        self._tasks = TaskOwner()

    def start(self) -> None:
        self._tasks.start(self._repeat(), name="stagedoor upkeep")

    async def stop(self) -> None:
        await self._tasks.close()

    async def once(self) -> None:
        if await self._is_ours():
            await self._journal.write(Sweep(self._now() - DAY))
            if self._keep_days is not None:
                await self._journal.retain(self._keep_days, self._now())
        if self._sweep is not None:
            await self._sweep()

    async def _is_ours(self) -> bool:
        """Whoever puts the row of this hour first does what it says."""
        if not self._journal.store.shared:
            return True
        hour = self._now() // int(UPKEEP_EVERY * 1000)
        row = Command(id=str(uuid.uuid4()), kind="upkeep", key=f"upkeep {hour}", at=self._now(), done=True)
        return (await self._journal.store.put_command(row)).id == row.id

    async def _repeat(self) -> None:
        while True:
            with contextlib.suppress(StoreError):  # whoever writes next finds out, and says it
                await self.once()
            await asyncio.sleep(UPKEEP_EVERY)
