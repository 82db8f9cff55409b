"""The log and the doorbell as one: append, then ring; follow by reading what is after the last number seen.

What was written lately is kept in memory too, so that many followers of a session do not each read it from disk. A
follower is never told anything that is not stored, misses nothing, and hears nothing twice.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import OrderedDict
from collections.abc import AsyncGenerator, Callable

from stagedoor.errors import EventsRemoved, StoreError

from .hub import Hub
from .line import Line
from .store import Append, Change, Forget, Query, Store, Trim
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
        self._lines: OrderedDict[str, Line] = OrderedDict()
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

    async def _learn(self, session_id: str, line: Line) -> None:
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

    def _line(self, session_id: str) -> Line:
        line = self._lines.get(session_id)
        if line is None:
            line = self._lines[session_id] = Line()
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
