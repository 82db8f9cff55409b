"""The one who writes: whatever has gathered while a write was under way goes into the next one.

Each transaction moves a number of this writer's own on. When a connection breaks before the answer came, the next one
says whether the write was kept: it takes the writer's row for itself first (``life``), so that what the engine may
still have of the old connection can no longer be carried out. Nothing is guessed, nothing is written twice.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from stagedoor.errors import StoreAway, StoreBroken, StoreError
from stagedoor.transports.tasks import TaskOwner

from ..store import Append, Change
from ..views import Carried
from . import schema, statements
from .connections import FAULTS, STUCK_SECONDS, Engine, asyncpg, close, is_lost
from .statements import SearchedTexts, WriteStage, stages_of

if TYPE_CHECKING:
    from .connections import EngineConnection

_log = logging.getLogger("stagedoor.service")
AT_ONCE = 512
BYTES_AT_ONCE = 8 * 1024 * 1024
"""With so much gathered, a transaction takes no more: one that never ends tells nobody."""
ATTEMPTS = 5
"""At a write that somebody else's was in the way of."""
_REGISTER = """
INSERT INTO writers(id, life, n) VALUES($1, 1, 0) ON CONFLICT(id) DO UPDATE SET life=writers.life+1, at=now()
RETURNING life, n
"""
_CLEAR_AWAY = "DELETE FROM writers WHERE at<now()-interval '7 days' AND id<>$1"
_ADVANCE = "UPDATE writers SET n=$3, at=now() WHERE id=$1 AND life=$2 RETURNING 1"


class Job:
    """``work``: what cannot be put together with others; ``ask`` finds out what it returned, when it was kept and the
    answer was lost."""

    __slots__ = ("ask", "changes", "future", "size", "work")

    def __init__(
        self,
        future: asyncio.Future[Any],
        changes: tuple[Change, ...] = (),
        work: Callable[[EngineConnection], Awaitable[Any]] | None = None,
        ask: Callable[[EngineConnection], Awaitable[Any]] | None = None,
    ) -> None:
        self.future = future
        self.changes = changes
        self.work = work
        self.ask = ask
        self.size = 0
        for change in changes:
            if isinstance(change, Append):
                self.size += sum([len(record.body) for record in change.records]) + 64 * len(change.records)
            elif isinstance(change, Carried):
                self.size += len(change.body)


class EngineWriter:
    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._id = uuid4().hex
        self._life = 0
        self._n = 0
        """Of the last transaction that was begun."""
        self._confirmed = 0
        """Of the last one that is known to be kept."""
        self._db: EngineConnection | None = None
        self._texts = SearchedTexts()
        self._jobs: deque[Job] = deque()
        self._gathered = asyncio.Event()
        self._tasks = TaskOwner()
        self._running: asyncio.Task[None] | None = None
        self._stopping = False

    async def start(self) -> None:
        """Bring the tables to their form, and begin."""
        await self._connected(once=True)
        self._stopping = False
        self._running = self._tasks.start(self._run(), name="stagedoor log writer")

    async def stop(self) -> None:
        """What was asked for before is done; what comes after is refused."""
        running, self._running = self._running, None
        if running is not None:
            self._stopping = True
            self._gathered.set()
            await asyncio.wait([running])
        await self._tasks.close()
        if self._db is not None:
            db, self._db = self._db, None
            try:
                async with asyncio.timeout(2):
                    await db.execute("DELETE FROM writers WHERE id=$1", self._id)
            except FAULTS:
                pass
            await close(db)

    def write(self, changes: tuple[Change, ...]) -> asyncio.Future[Any]:
        return self._put(Job(asyncio.get_running_loop().create_future(), changes))

    def do(
        self,
        work: Callable[[EngineConnection], Awaitable[Any]],
        ask: Callable[[EngineConnection], Awaitable[Any]],
    ) -> asyncio.Future[Any]:
        """Carry ``work`` out in a transaction of its own, in the order it was asked for."""
        return self._put(Job(asyncio.get_running_loop().create_future(), work=work, ask=ask))

    def _put(self, job: Job) -> asyncio.Future[Any]:
        if self._running is None:
            job.future.set_exception(StoreBroken(f"the log {self._engine.title} is closed; start the server to use it"))
            return job.future
        self._jobs.append(job)
        self._gathered.set()
        return job.future

    async def _run(self) -> None:
        while self._jobs or not self._stopping:
            if not self._jobs:
                self._gathered.clear()
                await self._gathered.wait()
                continue
            jobs = self._next()
            try:
                await self._commit(jobs)
            except BaseException as fault:  # whatever it is, nobody may wait for ever
                for job in jobs:
                    _fail(job, fault if isinstance(fault, Exception) else StoreBroken("the writer was stopped"))
                if not isinstance(fault, Exception):
                    raise

    def _next(self) -> list[Job]:
        first = self._jobs.popleft()
        jobs = [first]
        size = first.size
        while first.work is None and self._jobs and len(jobs) < AT_ONCE and size < BYTES_AT_ONCE:
            if self._jobs[0].work is not None:
                break
            jobs.append(self._jobs.popleft())
            size += jobs[-1].size
        return jobs

    async def _commit(self, jobs: list[Job]) -> None:
        """All in one transaction; should one of them fail, each in its own, so that it alone is refused."""
        if len(jobs) > 1:
            try:
                stages = stages_of(job.changes for job in jobs)
                if all(stage.fits for stage in stages):
                    await self._carry_out(lambda db: self._write(db, stages), lambda db: _nothing())
                    for job in jobs:
                        _settle(job, None)
                    return
            except StoreAway:
                raise
            except Exception:
                self._texts.doubt()
        for job in jobs:
            try:
                _settle(job, await self._alone(job))
            except Exception as fault:
                self._texts.doubt()
                _fail(job, fault)

    async def _alone(self, job: Job) -> Any:
        if job.work is not None and job.ask is not None:
            work = job.work
            return await self._carry_out(lambda db: self._within(db, work), job.ask)
        if not job.changes:
            return None
        stages = stages_of([job.changes])
        for attempt in range(ATTEMPTS):
            if all(stage.fits for stage in stages):
                try:
                    return await self._carry_out(lambda db: self._write(db, stages), lambda db: _nothing())
                except _Refused:
                    pass
            if (fault := await self._reason(job.changes)) is not None:
                raise fault
            await asyncio.sleep(0.01 * attempt)
        raise StoreBroken(
            f"the log {self._engine.title} refused a write {ATTEMPTS} times; the log of PostgreSQL says more"
        )

    async def _reason(self, changes: tuple[Change, ...]) -> StoreError | None:
        db = await self._connected()
        try:
            return await statements.reason(db, changes)
        except FAULTS as fault:
            self._lose(db, fault)
            raise self._engine.unusable("written", fault) from fault

    async def _carry_out(
        self,
        work: Callable[[EngineConnection], Awaitable[Any]],
        ask: Callable[[EngineConnection], Awaitable[Any]],
    ) -> Any:
        """Until it is known to be kept, or known not to be."""
        self._n += 1
        for attempt in range(ATTEMPTS):
            db = await self._connected()
            try:
                if self._confirmed >= self._n:  # it was, and only the answer was lost
                    return await ask(db)
                async with asyncio.timeout(STUCK_SECONDS):
                    value = await work(db)
                self._confirmed = self._n
                self._engine.came_back()
                return value
            except asyncpg.PostgresError as fault:
                if is_lost(fault):
                    self._lose(db, fault)
                    continue
                if fault.sqlstate in (schema.REFUSED, "23505"):  # or a record with this number is there
                    raise _Refused from fault
                if fault.sqlstate in ("40P01", "40001", "55P03") and attempt + 1 < ATTEMPTS:
                    continue  # somebody else's was in the way
                raise self._engine.unusable("written", fault) from fault
            except FAULTS as fault:
                self._lose(db, fault)
        raise self._engine.away(ConnectionError("the connection breaks again and again"))

    def _lose(self, db: EngineConnection, fault: BaseException) -> None:
        db.terminate()
        if self._db is db:
            self._db = None
        if is_lost(fault):
            self._engine.went_away()

    async def _write(self, db: EngineConnection, stages: list[WriteStage]) -> None:
        writer = (self._id, self._life, self._n)
        first = stages[0]
        if len(stages) == 1 and first.is_plain and first.is_familiar(self._texts):
            names = await first.write(db, self._texts, writer)
            if names:  # somebody else has put other words meanwhile
                async with db.transaction():
                    await first.write_words(db, self._texts, names)
        else:
            async with db.transaction():
                for stage in stages:
                    await stage.write_words(db, self._texts, await stage.write(db, self._texts, writer))
                    await stage.write_rows(db)
        for stage in stages:
            stage.stored(self._texts)

    async def _within(self, db: EngineConnection, work: Callable[[EngineConnection], Awaitable[Any]]) -> Any:
        async with db.transaction():
            if await db.fetchval(_ADVANCE, self._id, self._life, self._n) is None:
                raise ConnectionError("another connection has taken over")
            return await work(db)

    async def _connected(self, *, once: bool = False) -> EngineConnection:
        """Ready to write, with what is known of the last transaction up to date."""
        while self._db is None or self._db.is_closed():
            db = await self._engine.connect(
                {"plan_cache_mode": "force_generic_plan", "jit": "off"}, once=once
            )  # fmt: skip
            try:
                if self._life == 0:
                    await schema.migrate(db, self._engine.title)
                    await db.execute(_CLEAR_AWAY, self._id)
                async with asyncio.timeout(STUCK_SECONDS):
                    row = await db.fetchrow(_REGISTER, self._id)
            except FAULTS as fault:
                db.terminate()
                if once or not is_lost(fault):
                    raise self._engine.unusable("opened", fault) from fault
                continue
            except BaseException:
                db.terminate()
                raise
            assert row is not None
            self._life = row["life"]
            if row["n"] < self._confirmed:
                _log.error(
                    "the log %s has lost what it had acknowledged: it is a replica that was behind, or a backup",
                    self._engine.title,
                )
            self._confirmed = row["n"]
            self._db = db
        return self._db


class _Refused(Exception):
    """It does not follow from what is stored."""


def _settle(job: Job, value: Any) -> None:
    if not job.future.done():  # else whoever asked has gone; what was kept is kept
        job.future.set_result(value)


def _fail(job: Job, fault: Exception) -> None:
    if not job.future.done():
        job.future.set_exception(fault)


async def _nothing() -> None:
    return None
