"""This process as a worker: who it is in the log, its lease, and the sessions that it takes.

A worker owns sessions as long as its lease holds. Where others may use the same log, the lease is renewed long before
it ends; when that has failed for too long by this machine's own clock, everything that runs is let go of: somebody else
may have it soon. What is still written then is refused by the epoch, whatever any clock says.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import logging
import os
import platform
import time
import uuid
from collections.abc import Awaitable, Callable, Iterable, Sequence
from pathlib import Path

import msgspec
from msgspec.structs import replace

from stagedoor.errors import NotAllowed, StoreError
from stagedoor.transports.tasks import TaskOwner
from stagedoor.whole_file import replace_file

from .journal import WORKERS, Bell, Journal
from .machines.places import CLONES
from .projection import MID_TURN
from .store import Query
from .views import SessionView, WorkerRow

_log = logging.getLogger("stagedoor.service")
HELD = 0.8
"""Share of the lease after which a worker that could not renew it lets go: in time, before anybody else comes."""
RENEW_EVERY = 0.25
"""Share of the lease after which it is renewed."""
GRACE = 4.0
"""Leases after the end of its own for which a worker's folders are waited for."""
EVERYTHING = 1_000_000
FOREVER = 2**53
"""The lease where nobody else can come."""
FILE_NAME = "worker.json"
AT_ONCE = 500
"""Sessions claimed together."""


class WorkerIdentity(msgspec.Struct, frozen=True):
    """Who this home's worker is, from its first start on. Its folders are known to others by its ``name``."""

    id: str
    name: str


def identity_in(home: Path) -> WorkerIdentity:
    """As it was written there, or written now."""
    path = home / FILE_NAME
    try:
        return msgspec.json.decode(path.read_bytes(), type=WorkerIdentity)
    except FileNotFoundError:
        identity = WorkerIdentity(id=str(uuid.uuid4()), name=platform.node() or "worker")
        replace_file(path, msgspec.json.encode(identity).decode() + "\n")
        return identity
    except (OSError, msgspec.DecodeError) as fault:
        advice = "correct it, or remove it to start as a new worker"
        raise NotAllowed(f"{path} cannot be read: {fault}; {advice}") from fault


class Worker:
    """``let_go`` is awaited when the lease is lost: nothing may run any more. ``take`` is called then, and every few
    seconds, to see what is free."""

    def __init__(
        self,
        journal: Journal,
        home: Path,
        *,
        now: Callable[[], int],
        let_go: Callable[[], Awaitable[None]],
        take: Callable[[], Awaitable[None]],
        name: str = "",
        lease: float = 15.0,
        labels: Sequence[str] = (),
        seats: int = 0,
        version: str = "",
    ) -> None:
        self.claiming = asyncio.Lock()
        """Held by whoever puts a session that is this worker's own: nobody else here may take it for left over."""
        self._journal = journal
        self._home = home
        self._now = now
        self._let_go = let_go
        self._take = take
        self._name = name
        self._lease = lease
        self._labels = tuple(labels)
        self._seats = seats
        self._version = version
        self._identity: WorkerIdentity | None = None
        self._incarnation = ""
        self._deadline = 0.0
        self._is_new = False
        self._may_hold_others = False
        """Whether it was perhaps cut off while it closed what another had left."""
        self._tasks = TaskOwner()
        self._lock: int | None = None
        self.code = ""
        """With which it is let in, if it was not yet."""
        self.is_revoked = False
        self.on_revoked: Callable[[], None] = lambda: None
        """Called when it may not run anything any more."""

    @property
    def identity(self) -> WorkerIdentity:
        if self._identity is None:
            stored = identity_in(self._home)
            self._identity = replace(stored, name=self._name) if self._name else stored
        return self._identity

    @property
    def labels(self) -> tuple[str, ...]:
        """What it can run: its own, and the name of its machine."""
        return (f"host:{self.identity.name}", *self._labels)

    def add_labels(self, labels: Iterable[str]) -> None:
        """Before it registers."""
        self._labels = tuple(dict.fromkeys((*self._labels, *labels)))

    async def register(self) -> None:
        """Come as a new incarnation: whatever this worker held before is free, for it first of all."""
        store, identity = self._journal.store, self.identity
        if store.shared:
            self._lock_home()
        started = time.monotonic()
        self._incarnation = uuid.uuid4().hex
        row = WorkerRow(
            id=identity.id,
            name=identity.name,
            incarnation=self._incarnation,
            until=self._until(),
            labels=self.labels,
            seats=self._seats,
            version=self._version,
            seen_at=self._now(),
        )
        if self.code and store.admission is not None:
            await store.admission.enrol(identity.id, "".join(self.code.upper().split()))
        stored = await store.put_worker(row)
        if not stored.enrolled:
            wrong = "the code is wrong, used or older than an hour; " if self.code else ""
            raise NotAllowed(
                f"this machine ({identity.name}) is not enrolled: {wrong}run stagedoor workers enrol at a server, and "
                "here, once, stagedoor worker --enrol CODE"
            )
        if stored.revoked:
            raise NotAllowed(
                f"this worker ({identity.name}) was revoked; to start as a new one, remove {self._home / FILE_NAME}"
            )
        self._deadline = started + HELD * self._lease
        self._is_new = self._may_hold_others = True
        if not store.shared:
            for other in await store.workers():
                if other.id != identity.id and other.until:
                    await store.renew(other.id, other.incarnation, 0)  # nobody else can be there

    def start(self) -> None:
        """Renew the lease and look for sessions, where others may be there too."""
        if self._journal.store.shared:
            self._tasks.start(self._hold(), name="stagedoor lease")

    async def stop(self) -> None:
        """Others may take at once what is left."""
        await self._tasks.close()
        try:
            await self._leave()
        finally:
            self._unlock_home()

    async def _leave(self) -> None:
        if self._incarnation and self._journal.store.shared:
            with contextlib.suppress(StoreError):
                await self._journal.store.renew(self.identity.id, self._incarnation, 0)

    async def claim(self, limit: int | None = None) -> list[SessionView]:
        """Sessions that are free and that this worker can run: so many at most, or all. When it has just come, it takes
        whatever is in a folder of its machine, however much that is: it is what it held before."""
        back: list[SessionView] = []
        if self._is_new:
            own = [label for label in self.labels if not label.startswith(CLONES)]  # which all in repositories need
            back = await self._claim_pages(own, None)
            self._is_new = False
        return back + await self._claim_pages(self.labels, limit)

    async def _claim_pages(self, labels: Sequence[str], limit: int | None) -> list[SessionView]:
        claimed: list[SessionView] = []
        while True:
            size = AT_ONCE if limit is None else min(AT_ONCE, limit - len(claimed))
            page = await self._claim(labels, size)
            claimed += page
            if len(page) < size or len(claimed) == limit:
                return claimed

    async def claim_only(self, view: SessionView) -> SessionView | None:
        """This one, whatever it needs, if it is free."""
        claimed = await self._claim(view.needs, 1, view.id)
        return claimed[0] if claimed else None

    async def _claim(self, labels: Sequence[str], limit: int, session_id: str = "") -> list[SessionView]:
        return await self._journal.claim(
            self.identity.id, self._incarnation, labels=labels, limit=limit, now=self._now(), session_id=session_id
        )

    def as_own(self, view: SessionView) -> SessionView:
        """A new session, to be claimed when it is put: nobody else takes it meanwhile. Where others are, it says that
        its folder is here."""
        host = f"host:{self.identity.name}"
        if self._journal.store.shared and not view.place:
            view = replace(view, place=host, needs=tuple(dict.fromkeys((*view.needs, host))))
        return replace(view, worker=self.identity.id)

    async def orphans(self) -> list[SessionView]:
        """Sessions in the middle of something whose worker has been silent for so long that nobody waits for it; those
        too that this one began to close and cannot run itself."""
        store, late, me = self._journal.store, self._now() - int(GRACE * self._lease * 1000), self.identity.id
        gone = {row.id for row in await store.workers() if row.until < late and row.id != me}
        if not gone and not self._may_hold_others:
            return []
        views = await store.sessions(Query(ended=False, limit=EVERYTHING))
        self._may_hold_others = False
        left = [view for view in views if view.worker in gone and view.activity in MID_TURN]
        return left + [view for view in views if view.worker == me and not set(view.needs) <= set(self.labels)]

    def _lock_home(self) -> None:
        """Two with the same id would take the lease from each other without end. It goes with the process."""
        if self._lock is not None:
            return
        lock = os.open(self._home / f"{FILE_NAME}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as fault:
            os.close(lock)
            raise NotAllowed(
                f"another Stagedoor with the home {self._home} runs sessions already; give this one a home of its own "
                "(STAGEDOOR_HOME), or start it as a door (stagedoor serve --door)"
            ) from fault
        self._lock = lock

    def _unlock_home(self) -> None:
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def _until(self) -> int:
        return self._now() + int(self._lease * 1000) if self._journal.store.shared else FOREVER

    async def _hold(self) -> None:
        bell = self._journal.hub.bell(WORKERS)
        try:
            await self._hold_on(bell)
        finally:
            bell.close()

    async def _hold_on(self, bell: Bell) -> None:
        while not self.is_revoked:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(RENEW_EVERY * self._lease):
                    await bell.rung()
            if await self._renewed():
                with contextlib.suppress(StoreError):  # the next one to write finds out, and says it
                    await self._take()
                continue
            _log.error("this worker has lost its lease: what it ran is let go of, and taken again where it is free")
            await self._let_go()
            await self._come_back()

    async def _renewed(self) -> bool:
        """False: it could not be renewed in time, or somebody took it away."""
        while (left := self._deadline - time.monotonic()) > 0:
            started = time.monotonic()
            try:
                async with asyncio.timeout(left):
                    if not await self._journal.store.renew(self.identity.id, self._incarnation, self._until()):
                        return False
            except (StoreError, TimeoutError):
                await asyncio.sleep(min(1.0, left))
                continue
            self._deadline = started + HELD * self._lease
            return True
        return False

    async def _come_back(self) -> None:
        while True:
            try:
                await self.register()
                await self._take()
            except NotAllowed as fault:
                _log.error("%s", fault)
                self.is_revoked = True
                self.on_revoked()
                return
            except StoreError as fault:
                _log.error("this worker cannot come back yet: %s", fault)
                await asyncio.sleep(RENEW_EVERY * self._lease)
            else:
                return
