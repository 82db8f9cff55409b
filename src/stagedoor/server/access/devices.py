"""Who was let in: the devices of the log, in memory for every request, and what each has open just now."""

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
from stagedoor.service.ledger import DeviceRows
from stagedoor.service.views import Device, Scope

from .tokens import hashed, new_token

RIGHTS: tuple[Scope, ...] = ("watch", "answer", "run", "admin")
"""Each implies those before it."""
LOCAL = "local"
"""The id of whoever holds the server's own token."""
MOST = 200
SEEN_EVERY_MS = 60_000

Why = Literal["revoked", "stopping"]


class Caller(msgspec.Struct, frozen=True):
    """Who asks."""

    device_id: str
    name: str
    scopes: tuple[Scope, ...]

    def may(self, right: Scope) -> bool:
        return any(RIGHTS.index(scope) >= RIGHTS.index(right) for scope in self.scopes)


def demand(caller: Caller, right: Scope) -> None:
    """Raises ``NotAllowed`` when the caller's scopes do not reach ``right``."""
    if not caller.may(right):
        had = ", ".join(caller.scopes) or "none"
        raise NotAllowed(f"that takes the scope {right!r}, and {caller.name!r} has {had}; pair the device anew with it")


class Visit:
    """One request while it lasts."""

    def __init__(self, device_id: str, task: asyncio.Task[object]) -> None:
        self.device_id = device_id
        self.ended_by: Why | None = None
        self._task = task

    def end(self, why: Why) -> None:
        if self.ended_by is None:
            self.ended_by = why
            self._task.cancel()

    def take_back(self) -> None:
        """The cancellation was ours and has been heard."""
        self._task.uncancel()


class Devices:
    """``token`` is the server's own: whoever shows it is the administrator."""

    def __init__(self, rows: DeviceRows, token: str, *, now: Callable[[], int] = milliseconds) -> None:
        self._rows = rows
        self._now = now
        self._local = (hashed(token), Caller(LOCAL, LOCAL, ("admin",)))
        self._devices: dict[str, Device] = {}
        self._visits: set[Visit] = set()
        self._errands: set[asyncio.Task[None]] = set()
        self.stopping = False

    async def open(self) -> None:
        self._devices = {device.id: device for device in await self._rows.list()}

    async def close(self) -> None:
        await asyncio.gather(*self._errands, return_exceptions=True)

    def caller(self, token: str) -> Caller | None:
        """Whose token this is. Every known one is compared, each in constant time."""
        shown = hashed(token).encode()
        known, found = self._local
        caller = found if hmac.compare_digest(known.encode(), shown) else None
        for device in self._devices.values():
            if hmac.compare_digest(device.token_hash.encode(), shown) and device.revoked_at is None:
                caller = Caller(device.id, device.name, device.scopes)
                self._note(device)
        return caller

    async def add(self, device_id: str, name: str, scope: Scope) -> tuple[Device, str]:
        """Let a device in; the token is told this once and never again."""
        if sum(device.revoked_at is None for device in self._devices.values()) >= MOST:
            raise TooMany(f"{MOST} devices are paired, which is the limit; revoke those that are not used any more")
        token = new_token()
        device = Device(id=device_id, name=name, scopes=(scope,), token_hash=hashed(token), created_at=self._now())
        await self._rows.save(device)
        self._devices[device.id] = device
        return device, token

    async def revoke(self, device_id: str) -> Device:
        """From now on its token is worth nothing, and what it has open ends."""
        device = self._devices.get(device_id)
        if device is None or device.revoked_at is not None:
            raise SessionNotFound(f"no device has the id {device_id!r}; GET /api/devices lists them")
        device = replace(device, revoked_at=self._now())
        self._devices[device_id] = device  # before it is stored: fail closed
        for visit in [visit for visit in self._visits if visit.device_id == device_id]:
            visit.end("revoked")
        await self._rows.save(device)
        return device

    def all(self) -> list[Device]:
        """Those that may come in, oldest first."""
        return sorted(
            (device for device in self._devices.values() if device.revoked_at is None), key=lambda one: one.created_at
        )

    # -- what is open

    @contextlib.contextmanager
    def visit(self, caller: Caller) -> Generator[Visit]:
        """Something that may last: it is cancelled when the device is revoked or the server stops."""
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
        """End everything that would otherwise last."""
        self.stopping = True
        for visit in list(self._visits):
            visit.end("stopping")

    def _note(self, device: Device) -> None:
        """When it was last seen: to the minute, and never a reason to wait."""
        if self._now() - device.seen_at < SEEN_EVERY_MS or self.stopping:
            return
        seen = self._devices[device.id] = replace(device, seen_at=self._now())
        task = asyncio.get_running_loop().create_task(self._keep(seen))
        self._errands.add(task)
        task.add_done_callback(self._errands.discard)

    async def _keep(self, device: Device) -> None:
        with contextlib.suppress(StoreError):
            if self._devices[device.id] is device:  # else it was revoked meanwhile
                await self._rows.save(device)
