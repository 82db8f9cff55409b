"""A session's records in a reader's dialect, from any place in the log on.

Most dialects remember what went before, so a reader that comes in at ``after`` needs a projection that has heard
everything up to there. :class:`Tellings` makes one: from the log, in pieces, beginning at the nearest place it has
kept. ``after`` always counts our own ``seq``: a record is told whole (one message, several or none) or not at all.
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
KEPT = 64
WORTH_KEEPING = 64
"""Places nearer to the one they were made from than this are not kept: to go there again costs less than a copy."""


def known_dialect(name: str) -> str:
    if name in DIALECTS:
        return name
    raise BadRequest(f"{name!r} is not a dialect; choose one of {', '.join(DIALECTS)}")


class Telling:
    """One reader's projection. ``after`` is the last record it has heard."""

    __slots__ = ("_projection", "after", "dialect")

    def __init__(self, dialect: str = CANONICAL, after: int = 0) -> None:
        self.dialect = known_dialect(dialect)
        self.after = after
        self._projection: Projection | None = None if dialect == CANONICAL else DIALECTS[dialect]()

    def tell(self, record: Record) -> list[bytes]:
        """What the dialect says of ``record``: JSON objects, one message each."""
        self.after = record.seq
        return [record.body] if self._projection is None else encode(self._projection, decode(record.body))

    def tell_all(self, records: Iterable[Record]) -> list[bytes]:
        return [message for record in records for message in self.tell(record)]

    def copy(self) -> Telling:
        return copy.deepcopy(self)


class Page(msgspec.Struct, frozen=True):
    """What is said of the records after ``after``. ``last`` is where to go on from."""

    messages: list[bytes]
    after: int
    last: int


class Tellings:
    """Makes projections that know what went before a place. Remembers a bounded number of them."""

    def __init__(self, events: Events) -> None:
        self._events = events
        self._kept: OrderedDict[tuple[str, str, int], Telling] = OrderedDict()

    async def at(self, session_id: str, dialect: str, after: int) -> Telling:
        """A projection that has heard everything up to ``after``, for this reader alone."""
        if known_dialect(dialect) == CANONICAL:
            return Telling(dialect, after)
        telling = self._nearest(session_id, dialect, after)
        began = telling.after
        while telling.after < after:
            records = await self._events.read(session_id, telling.after, min(CHUNK, after - telling.after))
            if not records or records[0].seq > after:
                break
            for record in records:
                if record.seq <= after:
                    telling.tell(record)
            await asyncio.sleep(0)
        if telling.after - began > WORTH_KEEPING:
            self.keep(session_id, telling)
        telling.after = after
        return telling

    async def page(self, session_id: str, dialect: str, after: int, limit: int) -> Page:
        """What is said of up to ``limit`` records after ``after``."""
        telling = await self.at(session_id, dialect, after)
        records = await self._events.read(session_id, after, limit)
        messages = telling.tell_all(records)
        self.keep(session_id, telling)
        return Page(messages, after, telling.after)

    def keep(self, session_id: str, telling: Telling) -> None:
        """Remember where ``telling`` is, for the next reader who comes in there."""
        if telling.dialect == CANONICAL or telling.after <= 0:
            return
        key = (session_id, telling.dialect, telling.after)
        if key not in self._kept:
            self._kept[key] = telling.copy()
            while len(self._kept) > KEPT:
                self._kept.popitem(last=False)
        self._kept.move_to_end(key)

    def _nearest(self, session_id: str, dialect: str, after: int) -> Telling:
        places = [key for key in self._kept if key[:2] == (session_id, dialect) and key[2] <= after]
        if not places:
            return Telling(dialect)
        best = max(places, key=lambda key: key[2])
        self._kept.move_to_end(best)
        return self._kept[best].copy()
