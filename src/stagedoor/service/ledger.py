"""What the log holds beside the sessions: what was used, the audit, devices, and replies to requests with a key."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import msgspec

from stagedoor.errors import BadRequest, StoreError
from stagedoor.permissions.audit import AuditEntry
from stagedoor.permissions.audit_index import AuditIndex
from stagedoor.transports.tasks import TaskOwner

from .config.keys import KEYS
from .config.settings import Settings
from .journal import Bell, Journal
from .notify.receivers import push_row
from .store import ConfigChange, Remember, Secret, Store
from .views import By, Device, IdempotentReply, UsageSum

DEVICES = "devices"
"""The topic that rings whenever a device was saved."""
MOST_OFFSET = 14 * 60
"""Minutes: no clock on earth is farther from UTC."""


class UsageSums(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Days in order, all else by what it cost and used, most first. Times are in milliseconds."""

    by: By
    since: int | None = None
    until: int | None = None
    offset_minutes: int = 0
    rows: tuple[UsageSum, ...] = ()
    total: UsageSum = UsageSum()


class UsageLedger:
    """``service.usage``: by day, agent, project, session or model."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def sums(
        self, *, by: By = "day", since: int | None = None, until: int | None = None, offset_minutes: int = 0
    ) -> UsageSums:
        """Turns that ended from ``since`` on and before ``until``. Days are those of UTC plus ``offset_minutes``."""
        if abs(offset_minutes) > MOST_OFFSET:
            raise BadRequest(f"the offset from UTC must be within {MOST_OFFSET} minutes, not {offset_minutes}")
        if since is not None and until is not None and until < since:
            raise BadRequest("'until' is before 'since'; swap them")
        rows = await self._store.sums(by, since=since or 0, until=until, offset_minutes=offset_minutes)
        rows.sort(key=lambda row: row.key)
        if by != "day":
            rows.sort(key=lambda row: (row.usage.cost_usd or 0.0, row.usage.total_tokens), reverse=True)
        total = await self._store.sums(None, since=since or 0, until=until)
        return UsageSums(
            by=by,
            since=since,
            until=until,
            offset_minutes=offset_minutes,
            rows=tuple(rows),
            total=total[0] if total else UsageSum(),
        )


class Audited(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A decision, as it stands in the audit log."""

    entry: AuditEntry
    at: int
    who: str = ""
    """The device or person."""
    n: int = 0
    """Its number in the log."""


class AuditRows:
    """``service.audit``: the decisions, and the changes of the configuration; newest first.

    The decisions are those of the file in Stagedoor's home, the only place where they stand: also those of sessions
    that the library or the command line ran with the same home.
    """

    def __init__(self, store: Store, file: Path) -> None:
        self._store = store
        self._index = AuditIndex(file)

    async def config_changes(self) -> list[ConfigChange]:
        return await self._store.config_changes()

    async def page(
        self, *, offset: int = 0, limit: int = 100, session_id: str | None = None
    ) -> tuple[list[Audited], int]:
        """The decisions, and how many there are in all."""
        records, total = await asyncio.to_thread(self._index.page, offset=offset, limit=limit, session_id=session_id)
        rows = [Audited(entry=one.entry, at=one.at, who=one.entry.who, n=one.n) for one in records]
        return rows, total


class DeviceRows:
    """``service.devices``: those that were ever paired. Every door on the same log hears when they change."""

    def __init__(self, journal: Journal, revoked: Callable[[str], None]) -> None:
        self._store = journal.store
        self._hub = journal.hub
        self._revoked = revoked
        """Called with the id of a device that is not to be told anything any more."""

    async def list(self) -> list[Device]:
        return await self._store.devices()

    async def save(self, device: Device) -> None:
        """With what it has chosen, unless it is revoked: nobody needs that any more."""
        if device.revoked_at is None:
            await self._store.write(device)
        else:
            self._revoked(device.id)
            await self._store.write(device, Remember(_chosen(device.id), None), Secret(push_row(device.id), None))
        self._hub.ring(DEVICES)

    def bell(self) -> Bell:
        """Rings when one was saved, at any door."""
        return self._hub.bell(DEVICES)

    def learned(self, device: Device) -> None:
        """Another door saved it."""
        if device.revoked_at is not None:
            self._revoked(device.id)

    async def choices(self, device_id: str) -> bytes | None:
        """What a device has chosen at a door, as that door stored it."""
        return await self._store.setting(_chosen(device_id))

    async def save_choices(self, device_id: str, choices: bytes) -> None:
        await self._store.write(Remember(_chosen(device_id), choices))


def _chosen(device_id: str) -> str:
    return f"chosen by {device_id}"


class ReplyRows:
    """``service.replies``: what requests with an idempotency key were answered with."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def get(self, key: str) -> IdempotentReply | None:
        return await self._store.done(key)

    async def save(self, reply: IdempotentReply) -> None:
        await self._store.write(reply)


SETTINGS_ROW = "told at the last start"
POLICY = "policy (its text)"
_SECRET = "env"
"""What agents are given may be keys: that something changed there is told, never what."""


class ConfigChanges:
    """``machine``: the id and the name of this one, where several share a log: each has a configuration of its own."""

    def __init__(self, journal: Journal, now: Callable[[], int], machine: Callable[[], tuple[str, str]]) -> None:
        self._journal = journal
        self._now = now
        self._machine = machine
        self._tasks = TaskOwner()

    async def note(self, settings: Settings, policy: Path) -> None:
        """At the start: compare with the last one. The very first leaves no rows, there was nothing to change."""
        current = flat_settings(settings) | {POLICY: await asyncio.to_thread(_text, policy)}
        stored = await self._journal.store.setting(self._name)
        before = current if stored is None else msgspec.json.decode(stored, type=dict[str, str])
        changed = [name for name in {**before, **current} if before.get(name, "") != current.get(name, "")]
        rows = [self._row("start", name, before.get(name, ""), current.get(name, "")) for name in sorted(changed)]
        if rows or stored is None:
            await self._journal.write(*rows, Remember(self._name, msgspec.json.encode(current)))

    def policy_changed(self, before: str, after: str) -> None:
        """The policy file was read again, by a session that asked it something."""
        self._tasks.start(self._policy(before, after))

    async def finish(self) -> None:
        await self._tasks.finish()

    async def _policy(self, before: str, after: str) -> None:
        with contextlib.suppress(StoreError):  # whoever writes next finds out, and says it
            stored = await self._journal.store.setting(self._name)
            current = {} if stored is None else msgspec.json.decode(stored, type=dict[str, str])
            row = self._row("file", POLICY, before, after)
            await self._journal.write(row, Remember(self._name, msgspec.json.encode(current | {POLICY: after})))

    def _row(self, who: str, name: str, before: str, after: str) -> ConfigChange:
        machine = self._machine()[1]
        return ConfigChange(at=self._now(), who=who, name=name, before=before, after=after, machine=machine)

    @property
    def _name(self) -> str:
        identity = self._machine()[0]
        return f"{SETTINGS_ROW}: {identity}" if identity else SETTINGS_ROW


def flat_settings(settings: Settings) -> dict[str, str]:
    """``agents.gemini.model`` → its value as JSON; of secrets only how many there are."""
    values: dict[str, str] = {}
    hidden = {key.setting for key in KEYS if key.secret and key.setting}

    def walk(name: str, value: Any) -> None:
        if name in hidden:
            count = len(cast("Sequence[Any]", value)) if isinstance(value, list | tuple) else 1
            values[name] = f"{count} values" if value else ""
        elif isinstance(value, Mapping):
            inner = cast("Mapping[str, Any]", value)
            if name.endswith(f".{_SECRET}"):
                values[name] = f"{len(inner)} values: {', '.join(sorted(inner))}"
                return
            for key, inner_value in inner.items():
                walk(f"{name}.{key}" if name else key, inner_value)
        else:
            values[name] = msgspec.json.encode(value).decode()

    walk("", msgspec.to_builtins(settings))
    return values


def _text(path: Path) -> str:
    try:
        return path.read_text("utf-8", "replace")
    except OSError:
        return ""
