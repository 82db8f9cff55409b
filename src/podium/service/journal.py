"""The log and the doorbell as one: append, then ring; follow by reading what is after the last number seen."""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import AsyncGenerator

from .hub import Hub
from .store import Append, Change, Store
from .views import Record, SessionView, Verdict

CHUNK = 512
TAIL = 1024
TAIL_BYTES = 1024 * 1024
TAILS = 256
SESSIONS = "sessions"
"""The topic that rings whenever anything about any session changes."""


class Journal:
    def __init__(self, store: Store, hub: Hub) -> None:
        self.store = store
        self.hub = hub
        self._tails: OrderedDict[str, _Tail] = OrderedDict()

    async def write(self, *changes: Change) -> None:
        """Store, then tell: nobody hears of what is not kept."""
        await self.store.write(*changes)
        topics: set[str] = set()
        for change in changes:
            match change:
                case Append(session_id, records) if records:
                    self._tail(session_id).add(records)
                    topics.add(session_id)
                case SessionView():
                    topics |= {change.id, SESSIONS}
                case _:
                    topics.add(SESSIONS)
        for topic in topics:
            self.hub.ring(topic)

    async def read(self, session_id: str, after: int, limit: int = CHUNK) -> list[Record]:
        """What comes after ``after``: from memory when it is recent, else from the log."""
        tail = self._tails.get(session_id)
        if tail is not None and tail.reaches(after):
            return tail.after(after, limit)
        return await self.store.records(session_id, after, limit)

    async def follow(self, session_id: str, after: int) -> AsyncGenerator[list[Record]]:
        """Everything after ``after``, then what comes, until the session has ended and all of it was told."""
        bell = self.hub.bell(session_id)
        try:
            while True:
                records = await self.read(session_id, after)
                if records:
                    after = records[-1].seq
                    yield records
                    continue
                view = await self.store.session(session_id)
                if view is None or (view.ended and after >= view.last_seq):
                    return
                await bell.rung()
        finally:
            bell.close()

    def _tail(self, session_id: str) -> _Tail:
        tail = self._tails.get(session_id)
        if tail is None:
            tail = self._tails[session_id] = _Tail()
            while len(self._tails) > TAILS:
                self._tails.popitem(last=False)
        self._tails.move_to_end(session_id)
        return tail


class _Tail:
    """The last records of a session, so that many followers do not each read them from disk."""

    def __init__(self) -> None:
        self._records: deque[Record] = deque()
        self._bytes = 0

    def add(self, records: object) -> None:
        for record in records:  # type: ignore[attr-defined]
            self._records.append(record)
            self._bytes += len(record.body)
        while len(self._records) > TAIL or self._bytes > TAIL_BYTES:
            self._bytes -= len(self._records.popleft().body)

    def reaches(self, after: int) -> bool:
        return bool(self._records) and self._records[0].seq <= after + 1

    def after(self, after: int, limit: int) -> list[Record]:
        last = self._records[-1].seq
        skip = len(self._records) - (last - after)
        return [self._records[at] for at in range(max(skip, 0), min(len(self._records), skip + limit))]


def verdict(view: SessionView, after: int) -> Verdict:
    """Whether everything after ``after`` can be told."""
    if after + 1 >= view.first_seq:
        return Verdict(session_id=view.id, after=after, last_seq=view.last_seq)
    return Verdict(
        verdict="gap",
        session_id=view.id,
        after=after,
        last_seq=view.last_seq,
        missing_from=after + 1,
        missing_to=view.first_seq - 1,
    )
