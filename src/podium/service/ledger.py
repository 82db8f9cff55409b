"""What was used, summed up: by day, agent, project, session or model."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone
from typing import Literal, TypeAlias

import msgspec

from podium.errors import BadRequest
from podium.unified.events import Usage

from .store import Store
from .views import Spent

By: TypeAlias = Literal["day", "agent", "project", "session", "model"]
FARTHEST = 14 * 60
"""Minutes: no clock on earth is farther from UTC."""


class Sum(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """``key``: a day (``2026-11-15``), or the name of an agent, project, session or model."""

    key: str = ""
    sessions: int = 0
    turns: int = 0
    usage: Usage = Usage()


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
        spent = [
            one
            for one in await self._store.spent(since=since or 0, until=until)
            if (since is None or one.at >= since) and (until is None or one.at < until)
        ]
        key = _KEYS[by] if by != "day" else _day(offset_minutes)
        groups: dict[str, list[Spent]] = {}
        for one in spent:
            groups.setdefault(key(one), []).append(one)
        rows = [_sum(name, group) for name, group in groups.items()]
        rows.sort(key=lambda row: row.key)
        if by != "day":
            rows.sort(key=lambda row: (row.usage.cost_usd or 0.0, row.usage.total_tokens), reverse=True)
        return Sums(
            by=by,
            since=since,
            until=until,
            offset_minutes=offset_minutes,
            rows=tuple(rows),
            total=_sum("", spent),
        )


_KEYS: dict[By, Callable[[Spent], str]] = {
    "agent": lambda one: one.agent,
    "project": lambda one: one.project,
    "session": lambda one: one.session_id,
    "model": lambda one: one.model,
}


def _day(offset_minutes: int) -> Callable[[Spent], str]:
    zone = timezone(timedelta(minutes=offset_minutes)) if offset_minutes else UTC
    return lambda one: datetime.fromtimestamp(one.at / 1000, zone).date().isoformat()


def _sum(key: str, spent: list[Spent]) -> Sum:
    usage = sum((one.usage for one in spent), Usage())
    return Sum(key=key, sessions=len({one.session_id for one in spent}), turns=len(spent), usage=usage)
