"""``service.machines``: the workers on this log, what each runs, and which take new work."""

from __future__ import annotations

import hashlib
import secrets
from collections import defaultdict
from collections.abc import Callable, Sequence

import msgspec

from stagedoor.errors import BadRequest, SessionNotFound

from ..journal import WORKERS, Journal
from ..store import Query
from ..views import OneTimeCode, SessionView, State, WorkerRow

MOST_LISTED = 1000
CODE_SECONDS = 3600.0
LETTERS = "ABCDEFGHJKMNPQRSTVWXYZ23456789"
"""Without letters that look alike."""


class RunningThere(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A session that has not ended."""

    id: str
    agent: str
    title: str
    state: State


class Machine(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A worker as others see it."""

    id: str
    name: str
    labels: tuple[str, ...]
    seats: int
    """Sessions whose agent runs at the same time."""
    version: str
    draining: bool
    revoked: bool
    away: bool
    """Its lease is over: nobody has heard of it for a while."""
    seen_at: int
    sessions: tuple[RunningThere, ...] = ()


class Machines:
    def __init__(self, journal: Journal, now: Callable[[], int], lease: float) -> None:
        self._journal = journal
        self._now = now
        self._lease = int(lease * 1000)

    async def list(self) -> list[Machine]:
        """Those that can take work first, by name; revoked ones only while they still hold something."""
        rows = await self._journal.store.workers()
        open_views: dict[str, list[SessionView]] = defaultdict(list)
        for view in await self._journal.store.sessions(Query(ended=False, limit=MOST_LISTED)):
            open_views[view.worker].append(view)
        machines = [self._machine(row, open_views[row.id]) for row in rows if not row.revoked or open_views[row.id]]
        return sorted(
            machines, key=lambda machine: (machine.revoked, machine.away, machine.draining, machine.name, machine.id)
        )

    async def labels(self) -> frozenset[str]:
        """What those have that take work now."""
        rows = await self._journal.store.workers()
        ready = [row for row in rows if not row.revoked and not row.draining and row.until > self._now()]
        return frozenset(label for row in ready for label in row.labels)

    async def get(self, worker_id: str) -> Machine:
        for machine in await self.list():
            if machine.id == worker_id:
                return machine
        raise SessionNotFound(f"worker {worker_id!r} not found; stagedoor workers lists them")

    async def drain(self, worker_id: str, *, draining: bool) -> Machine:
        """Whether it takes nothing new; what it runs goes on."""
        return await self._marked(worker_id, draining=draining)

    async def revoke(self, worker_id: str) -> Machine:
        """It lets go of everything at once and may not come back under this id."""
        return await self._marked(worker_id, revoked=True)

    async def enrol(self, *, by: str) -> str:
        """A code with which one new machine is let in, within an hour."""
        admission = self._journal.store.admission
        if admission is None:
            raise BadRequest("the log is in a file, so no other machine can come; keep it in PostgreSQL (log.database)")
        code = "-".join("".join(secrets.choice(LETTERS) for _ in range(4)) for _ in range(4))
        digest = hashlib.sha256(code.encode()).digest()
        await admission.put_code(OneTimeCode(digest=digest, scope="worker", by=by), CODE_SECONDS)
        return code

    async def _marked(self, worker_id: str, *, draining: bool | None = None, revoked: bool | None = None) -> Machine:
        row = await self._journal.store.mark_worker(worker_id, draining=draining, revoked=revoked)
        if row is None:
            raise SessionNotFound(f"worker {worker_id!r} not found; stagedoor workers lists them")
        self._journal.hub.ring(WORKERS)
        return self._machine(row, ())

    def _last_seen(self, row: WorkerRow) -> int:
        """It was there when it renewed its lease last."""
        renewed, now = row.until - self._lease, self._now()
        return max(row.seen_at, renewed) if renewed <= now else now

    def _machine(self, row: WorkerRow, views: Sequence[SessionView]) -> Machine:
        return Machine(
            id=row.id,
            name=row.name,
            labels=row.labels,
            seats=row.seats,
            version=row.version,
            draining=row.draining,
            revoked=row.revoked,
            away=row.until < self._now(),
            seen_at=self._last_seen(row),
            sessions=tuple(
                RunningThere(id=view.id, agent=view.agent, title=view.title, state=view.state) for view in views
            ),
        )
