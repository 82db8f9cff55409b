"""The paired devices: stored in the log, in memory for every request, with the requests each has open now."""

from __future__ import annotations

import asyncio
import contextlib
import hmac
from collections.abc import Callable, Generator
from typing import Literal

import msgspec
from msgspec.structs import replace

from stagedoor.engine import milliseconds
from stagedoor.errors import NotAllowed, SessionNotFound, StoreError, TooMany
from stagedoor.service.journal import Bell
from stagedoor.service.ledger import DeviceRows
from stagedoor.service.terminal import proof_by_hash
from stagedoor.service.views import Device, Scope
from stagedoor.transports.tasks import TaskOwner

from .tokens import new_token, token_hash

RIGHTS: tuple[Scope, ...] = ("watch", "answer", "run", "admin")
"""Each implies those before it. ``call`` is beside them: it opens the MCP door and nothing else, for a model."""
LOCAL = "local"
"""The id of whoever holds the server's own token."""
MAX_DEVICES = 200
LAST_USE_EVERY_MS = 60_000

EndReason = Literal["revoked", "stopping"]


class Caller(msgspec.Struct, frozen=True):
    """Who sends a request."""

    device_id: str
    name: str
    scopes: tuple[Scope, ...]
    dialect: str = ""
    """What its streams speak where a request does not say; empty: what the server speaks."""

    def may(self, right: Scope) -> bool:
        return any(scope in RIGHTS and RIGHTS.index(scope) >= RIGHTS.index(right) for scope in self.scopes)


def demand(caller: Caller, right: Scope) -> None:
    """Raises ``NotAllowed`` when the caller's scopes do not reach ``right``."""
    if not caller.may(right):
        scopes = ", ".join(caller.scopes) or "none"
        raise NotAllowed(
            f"this needs the scope {right!r}, but {caller.name!r} has {scopes}; pair the device again with that scope"
        )


class Visit:
    """One request while it lasts."""

    def __init__(self, device_id: str, task: asyncio.Task[object]) -> None:
        self.device_id = device_id
        self.ended_by: EndReason | None = None
        self._task = task

    def end(self, reason: EndReason) -> None:
        if self.ended_by is None:
            self.ended_by = reason
            self._task.cancel()

    def absorb(self) -> None:
        """The cancellation was ours and has had its effect."""
        self._task.uncancel()


class Devices:
    """``token`` is the server's own: whoever sends it is the administrator."""

    def __init__(self, rows: DeviceRows, token: str, *, now: Callable[[], int] = milliseconds) -> None:
        self._rows = rows
        self._now = now
        self._local = (token_hash(token), Caller(LOCAL, LOCAL, ("admin",)))
        self._devices: dict[str, Device] = {}
        self._visits: set[Visit] = set()
        self._writes = TaskOwner()
        self._following = TaskOwner()
        self.stopping = False

    async def open(self) -> None:
        bell = self._rows.bell()  # before they are read: what changes meanwhile is read again
        self._devices = {device.id: device for device in await self._rows.list()}
        self._following.start(self._follow(bell))

    async def close(self) -> None:
        await self._following.close()
        await self._writes.finish()

    def proof(self, nonce: str) -> str:
        """That this server has its home's token, for somebody who has it too."""
        return proof_by_hash(self._local[0], nonce)

    def caller(self, token: str) -> Caller | None:
        """Whose token this is. It is compared with every stored one, each in constant time."""
        sent_hash = token_hash(token).encode()
        own_hash, administrator = self._local
        caller = administrator if hmac.compare_digest(own_hash.encode(), sent_hash) else None
        for device in self._devices.values():
            if hmac.compare_digest(device.token_hash.encode(), sent_hash) and device.revoked_at is None:
                caller = Caller(device.id, device.name, device.scopes, device.dialect)
                self._store_last_use(device)
        return caller

    async def add(self, device_id: str, name: str, scope: Scope, dialect: str = "") -> tuple[Device, str]:
        """Pair a device. The token is returned this once and never again."""
        if sum(device.revoked_at is None for device in self._devices.values()) >= MAX_DEVICES:
            raise TooMany(f"{MAX_DEVICES} devices are paired, which is the limit; revoke those you no longer use")
        token = new_token()
        device = Device(
            id=device_id,
            name=name,
            scopes=(scope,),
            token_hash=token_hash(token),
            created_at=self._now(),
            dialect=dialect,
        )
        await self._rows.save(device)
        self._devices[device.id] = device
        return device, token

    async def revoke(self, device_id: str) -> Device:
        """Its token is refused from now on, and its open requests end."""
        device = self._devices.get(device_id)
        if device is None or device.revoked_at is not None:
            raise SessionNotFound(f"device {device_id!r} not found; GET /api/devices lists the paired devices")
        device = replace(device, revoked_at=self._now())
        self._devices[device_id] = device  # before it is stored: fail closed
        self._end_visits(device_id)
        await self._rows.save(device)
        return device

    async def speak(self, device_id: str, dialect: str) -> Device:
        """Its streams speak ``dialect`` from now on where a request does not say; empty: what the server speaks."""
        device = self._devices.get(device_id)
        if device is None or device.revoked_at is not None:
            raise SessionNotFound(f"device {device_id!r} not found; GET /api/devices lists the paired devices")
        device = self._devices[device_id] = replace(device, dialect=dialect)
        await self._rows.save(device)
        return device

    def all(self) -> list[Device]:
        """Those that are not revoked, oldest first."""
        return sorted(
            (device for device in self._devices.values() if device.revoked_at is None),
            key=lambda device: device.created_at,
        )

    @contextlib.contextmanager
    def visit(self, caller: Caller) -> Generator[Visit]:
        """A request that may last: it is cancelled when the device is revoked or the server stops."""
        task = asyncio.current_task()
        assert task is not None
        visit = Visit(caller.device_id, task)
        self._visits.add(visit)
        try:
            yield visit
        finally:
            self._visits.discard(visit)

    @property
    def open_visits(self) -> int:
        return len(self._visits)

    def stop(self) -> None:
        """End every open request."""
        self.stopping = True
        for visit in list(self._visits):
            visit.end("stopping")

    async def _follow(self, bell: Bell) -> None:
        """What other doors do to the devices: one that is revoked there is refused here, too."""
        try:
            while True:
                await bell.rung()
                with contextlib.suppress(StoreError):  # whoever comes next is told; a sound log rings again
                    for device in await self._rows.list():
                        self._learn(device)
        finally:
            bell.close()

    def _learn(self, device: Device) -> None:
        known = self._devices.get(device.id)
        if known is not None and known.revoked_at is not None:
            return  # nobody takes that back
        self._devices[device.id] = device
        if device.revoked_at is not None:
            self._end_visits(device.id)
            self._rows.learned(device)

    def _end_visits(self, device_id: str) -> None:
        for visit in [visit for visit in self._visits if visit.device_id == device_id]:
            visit.end("revoked")

    def _store_last_use(self, device: Device) -> None:
        """Store when it was last used: to the minute, and without making the request wait."""
        if self._now() - device.seen_at < LAST_USE_EVERY_MS or self.stopping:
            return
        current = self._devices[device.id] = replace(device, seen_at=self._now())
        self._writes.start(self._store(current))

    async def _store(self, device: Device) -> None:
        with contextlib.suppress(StoreError):
            if self._devices[device.id] is device:  # else it was revoked meanwhile
                await self._rows.save(device)
