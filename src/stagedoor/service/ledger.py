"""What the log holds beside the sessions: what was used, the audit, devices, and replies to requests with a key."""

from __future__ import annotations

import msgspec

from stagedoor.errors import BadRequest

from .store import Audited, ConfigChange, Store
from .views import By, Device, Done, Sum

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
    """``service.usage``: by day, agent, project, session or model."""

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


class AuditRows:
    """``service.audit``: the decisions, and the changes of the configuration; newest first."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def config_changes(self) -> list[ConfigChange]:
        return await self._store.config_changes()

    async def list(self, *, offset: int = 0, limit: int = 100, session_id: str | None = None) -> list[Audited]:
        return await self._store.audit(offset=offset, limit=limit, session_id=session_id)

    async def count(self, *, session_id: str | None = None) -> int:
        return await self._store.audit_count(session_id=session_id)


class DeviceRows:
    """``service.devices``: those that were ever paired."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def list(self) -> list[Device]:
        return await self._store.devices()

    async def save(self, device: Device) -> None:
        await self._store.write(device)


class ReplyRows:
    """``service.replies``: what requests with an idempotency key were answered with."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def get(self, key: str) -> Done | None:
        return await self._store.done(key)

    async def save(self, reply: Done) -> None:
        await self._store.write(reply)
