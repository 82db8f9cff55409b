"""A session's records in a reader's dialect, from any place in the log on.

Most dialects depend on what went before, so a reader that starts at ``after`` needs a projection that has seen
everything up to there. :class:`DialectCursors` makes one: from the log, in chunks, starting at the nearest place it has
stored. ``after`` always counts our own ``seq``: a record is projected whole (one message, several or none) or not at
all.
"""

from __future__ import annotations

import asyncio
import copy
from collections import OrderedDict
from collections.abc import Iterable

import msgspec

from stagedoor.dialects import DIALECTS, Projection, encode
from stagedoor.errors import BadRequest
from stagedoor.service.service import Events
from stagedoor.service.views import Record
from stagedoor.unified.events import decode

CANONICAL = "stagedoor"
CHUNK = 512
MAX_STORED = 64
WORTH_STORING = 64
"""Records. A cursor that came a shorter way is not stored: to go there again costs less than a copy."""


def check_dialect(name: str) -> None:
    if name not in DIALECTS:
        raise BadRequest(f"unknown dialect {name!r}; use one of {', '.join(DIALECTS)}")


class DialectCursor:
    """One reader's projection. ``after`` is the last record it has seen."""

    __slots__ = ("_projection", "after", "dialect")

    def __init__(self, dialect: str = CANONICAL, after: int = 0) -> None:
        check_dialect(dialect)
        self.dialect = dialect
        self.after = after
        self._projection: Projection | None = None if dialect == CANONICAL else DIALECTS[dialect]()

    def project(self, record: Record) -> list[bytes]:
        """``record`` in the dialect: JSON objects, one message each."""
        self.after = record.seq
        return [record.body] if self._projection is None else encode(self._projection, decode(record.body))

    def project_all(self, records: Iterable[Record]) -> list[bytes]:
        return [message for record in records for message in self.project(record)]

    def copy(self) -> DialectCursor:
        return copy.deepcopy(self)


class DialectPage(msgspec.Struct, frozen=True):
    """The messages for the records after ``after``. ``last`` is where to continue from."""

    messages: list[bytes]
    after: int
    last: int


class DialectCursors:
    """Makes cursors that have seen what went before a place. Stores a bounded number of them."""

    def __init__(self, events: Events) -> None:
        self._events = events
        self._stored: OrderedDict[tuple[str, str, int], DialectCursor] = OrderedDict()

    async def at(self, session_id: str, dialect: str, after: int) -> DialectCursor:
        """A cursor that has seen everything up to ``after``, for this reader alone."""
        check_dialect(dialect)
        if dialect == CANONICAL:
            return DialectCursor(dialect, after)
        cursor = self._nearest(session_id, dialect, after)
        start = cursor.after
        while cursor.after < after:
            records = await self._events.read(session_id, cursor.after, min(CHUNK, after - cursor.after))
            if not records or records[0].seq > after:
                break
            for record in records:
                if record.seq <= after:
                    cursor.project(record)
            await asyncio.sleep(0)
        if cursor.after - start > WORTH_STORING:
            self.store(session_id, cursor)
        cursor.after = after
        return cursor

    async def page(self, session_id: str, dialect: str, after: int, limit: int) -> DialectPage:
        """The messages for up to ``limit`` records after ``after``."""
        cursor = await self.at(session_id, dialect, after)
        records = await self._events.read(session_id, after, limit)
        messages = cursor.project_all(records)
        self.store(session_id, cursor)
        return DialectPage(messages, after, cursor.after)

    def store(self, session_id: str, cursor: DialectCursor) -> None:
        """Store a copy of ``cursor``, for the next reader who starts where it is."""
        if cursor.dialect == CANONICAL or cursor.after <= 0:
            return
        key = (session_id, cursor.dialect, cursor.after)
        if key not in self._stored:
            self._stored[key] = cursor.copy()
            while len(self._stored) > MAX_STORED:
                self._stored.popitem(last=False)
        self._stored.move_to_end(key)

    def _nearest(self, session_id: str, dialect: str, after: int) -> DialectCursor:
        places = [key for key in self._stored if key[:2] == (session_id, dialect) and key[2] <= after]
        if not places:
            return DialectCursor(dialect)
        nearest = max(places, key=lambda key: key[2])
        self._stored.move_to_end(nearest)
        return self._stored[nearest].copy()
