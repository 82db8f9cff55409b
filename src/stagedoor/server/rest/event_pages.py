"""A page of a session's events in any dialect, by our ``seq`` or by counting the dialect's own events."""

from __future__ import annotations

import asyncio
from collections import OrderedDict

import msgspec

from stagedoor.service.service import Events
from stagedoor.service.views import SessionView, State

from ..streams.dialect_cursor import CANONICAL, CHUNK, Telling, Tellings, known_dialect

KEPT = 64


class EventPage(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """``events`` are objects of the dialect asked for; ``firstSeq`` and ``lastSeq`` are what the log holds now."""

    events: list[msgspec.Raw]
    offset: int
    limit: int
    total: int | None
    """How many there are in all now; ``null`` in another dialect, where they are not counted before the last page."""
    first_seq: int
    last_seq: int
    next_offset: int
    """What to ask for next, as ``after`` when this page was asked for by ``after``, else as ``offset``."""
    state: State


class Pages:
    """``after`` counts records; a page in another dialect holds what is said of up to ``limit`` of them. ``offset``
    counts the dialect's own events, as clients do that know nothing of ours: there it is remembered where the last
    pages ended, so that reading a session page by page costs no more than reading it once."""

    def __init__(self, events: Events) -> None:
        self._events = events
        self._tellings = Tellings(events)
        self._ends: OrderedDict[tuple[str, str, int], tuple[Telling, list[bytes]]] = OrderedDict()

    async def after(self, view: SessionView, dialect: str, after: int, limit: int) -> EventPage:
        page = await self._tellings.page(view.id, dialect, min(after, view.last_seq), limit)
        total = view.last_seq if dialect == CANONICAL else None
        return _page(view, page.messages, after, limit, total=total, following=max(page.last, after))

    async def offset(self, view: SessionView, dialect: str, offset: int, limit: int) -> EventPage:
        if known_dialect(dialect) == CANONICAL:
            return await self.after(view, dialect, offset, limit)
        telling, said = await self._skipped(view, dialect, offset)
        while len(said) < limit and telling.after < view.last_seq:
            records = await self._events.read(view.id, telling.after, CHUNK)
            if not records:
                break
            for record in records:
                said += telling.tell(record)
                if len(said) >= limit:
                    break
        messages, rest = said[:limit], said[limit:]
        following = offset + len(messages)
        if messages:
            self._keep((view.id, dialect, following), telling, rest)
        whole = telling.after >= view.last_seq and not rest and (bool(messages) or offset == 0)
        return _page(view, messages, offset, limit, total=following if whole else None, following=following)

    async def _skipped(self, view: SessionView, dialect: str, offset: int) -> tuple[Telling, list[bytes]]:
        """A projection that has said ``offset`` events, and what it has said beyond them."""
        kept = self._ends.get((view.id, dialect, offset))
        if kept is not None:
            telling, rest = kept
            return telling.copy(), list(rest)
        telling, count = Telling(dialect), 0
        while count < offset and telling.after < view.last_seq:
            records = await self._events.read(view.id, telling.after, CHUNK)
            if not records:
                break
            for record in records:
                said = telling.tell(record)
                count += len(said)
                if count >= offset:
                    return telling, said[len(said) - (count - offset) :]
            await asyncio.sleep(0)
        return telling, []

    def _keep(self, key: tuple[str, str, int], telling: Telling, rest: list[bytes]) -> None:
        self._ends[key] = telling.copy(), rest
        self._ends.move_to_end(key)
        while len(self._ends) > KEPT:
            self._ends.popitem(last=False)


def _page(
    view: SessionView, messages: list[bytes], offset: int, limit: int, *, total: int | None, following: int
) -> EventPage:
    return EventPage(
        events=[msgspec.Raw(message) for message in messages],
        offset=offset,
        limit=limit,
        total=total,
        first_seq=view.first_seq,
        last_seq=view.last_seq,
        next_offset=following,
        state=view.state,
    )
