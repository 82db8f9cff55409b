"""What was used, summed up: by day, agent, project, session or model."""

from __future__ import annotations

import msgspec

from stagedoor.errors import BadRequest

from .store import Store
from .views import By, Sum

FARTHEST = 14 * 60
"""Minutes: no clock on earth is farther from UTC."""


class Sums(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Days in order, all else by what it cost and used, most first. Times are in milliseconds."""

    by: By
    since: int | None = None
    until: int | None = None
    offset_minutes: int = 0
    rows: tuple[Sum, ...] = ()
    total: Sum = Sum()


class Ledger:
    def __init__(self, store: Store) -> None:
        self._store = store

    async def sums(
        self, *, by: By = "day", since: int | None = None, until: int | None = None, offset_minutes: int = 0
    ) -> Sums:
        """Turns that ended from ``since`` on and before ``until``. Days are those of UTC plus ``offset_minutes``."""
        if abs(offset_minutes) > FARTHEST:
            raise BadRequest(f"an offset from UTC is within {FARTHEST} minutes, not {offset_minutes}")
        if since is not None and until is not None and until < since:
            raise BadRequest("'until' is before 'since'; swap them")
        rows = await self._store.sums(by, since=since or 0, until=until, offset_minutes=offset_minutes)
        rows.sort(key=lambda row: row.key)
        if by != "day":
            rows.sort(key=lambda row: (row.usage.cost_usd or 0.0, row.usage.total_tokens), reverse=True)
        total = await self._store.sums(None, since=since or 0, until=until)
        return Sums(
            by=by,
            since=since,
            until=until,
            offset_minutes=offset_minutes,
            rows=tuple(rows),
            total=total[0] if total else Sum(),
        )
