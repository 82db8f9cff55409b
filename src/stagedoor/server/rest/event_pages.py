"""A page of a session's events in any dialect, by our ``seq`` or by counting the dialect's own events."""

from __future__ import annotations

import asyncio
from collections import OrderedDict

import msgspec

from stagedoor.service.service import Events
from stagedoor.service.views import SessionView, State

from ..streams.dialect_cursor import CANONICAL, CHUNK, DialectCursor, DialectCursors, check_dialect

MAX_STORED = 64


class EventPage(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """``events`` are objects of the chosen dialect; ``firstSeq`` and ``lastSeq`` are what the log holds now."""

    events: list[msgspec.Raw]
    offset: int
    limit: int
    total: int | None
    """How many there are in all now; ``null`` in another dialect, where they are not counted before the last page."""
    first_seq: int
    last_seq: int
    next_offset: int
    """Where the next page starts: send it as ``after`` when this page was read by ``after``, else as ``offset``."""
    state: State


class EventPages:
    """``after`` counts records; a page in another dialect holds the messages for up to ``limit`` of them. ``offset``
    counts the dialect's own events, for clients that know nothing of ours: where the last pages ended is stored, so
    that reading a session page by page costs no more than reading it once."""

    def __init__(self, events: Events) -> None:
        self._events = events
        self._cursors = DialectCursors(events)
        self._ends: OrderedDict[tuple[str, str, int], tuple[DialectCursor, list[bytes]]] = OrderedDict()

    async def after(self, view: SessionView, dialect: str, after: int, limit: int) -> EventPage:
        page = await self._cursors.page(view.id, dialect, min(after, view.last_seq), limit)
        total = view.last_seq if dialect == CANONICAL else None
        return _page(view, page.messages, after, limit, total=total, next_offset=max(page.last, after))

    async def offset(self, view: SessionView, dialect: str, offset: int, limit: int) -> EventPage:
        check_dialect(dialect)
        if dialect == CANONICAL:
            return await self.after(view, dialect, offset, limit)
        cursor, messages = await self._skipped(view, dialect, offset)
        while len(messages) < limit and cursor.after < view.last_seq:
            records = await self._events.read(view.id, cursor.after, CHUNK)
            if not records:
                break
            for record in records:
                messages += cursor.project(record)
                if len(messages) >= limit:
                    break
        page, rest = messages[:limit], messages[limit:]
        next_offset = offset + len(page)
        if page:
            self._store((view.id, dialect, next_offset), cursor, rest)
        whole = cursor.after >= view.last_seq and not rest and (bool(page) or offset == 0)
        return _page(view, page, offset, limit, total=next_offset if whole else None, next_offset=next_offset)

    async def _skipped(self, view: SessionView, dialect: str, offset: int) -> tuple[DialectCursor, list[bytes]]:
        """A cursor that has passed ``offset`` messages, and the messages it has read beyond them."""
        stored = self._ends.get((view.id, dialect, offset))
        if stored is not None:
            cursor, rest = stored
            return cursor.copy(), list(rest)
        cursor, count = DialectCursor(dialect), 0
        while count < offset and cursor.after < view.last_seq:
            records = await self._events.read(view.id, cursor.after, CHUNK)
            if not records:
                break
            for record in records:
                messages = cursor.project(record)
                count += len(messages)
                if count >= offset:
                    return cursor, messages[len(messages) - (count - offset) :]
            await asyncio.sleep(0)
        return cursor, []

    def _store(self, key: tuple[str, str, int], cursor: DialectCursor, rest: list[bytes]) -> None:
        self._ends[key] = cursor.copy(), rest
        self._ends.move_to_end(key)
        while len(self._ends) > MAX_STORED:
            self._ends.popitem(last=False)


def _page(
    view: SessionView, messages: list[bytes], offset: int, limit: int, *, total: int | None, next_offset: int
) -> EventPage:
    return EventPage(
        events=[msgspec.Raw(message) for message in messages],
        offset=offset,
        limit=limit,
        total=total,
        first_seq=view.first_seq,
        last_seq=view.last_seq,
        next_offset=next_offset,
        state=view.state,
    )
