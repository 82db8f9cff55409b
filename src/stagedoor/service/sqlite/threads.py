"""The one thread that writes. Whatever has gathered while it was busy is committed at once; then all are told.

A second thread moves what was committed from the WAL into the file, so that no write waits for that.
"""

from __future__ import annotations

import asyncio
import contextlib
import queue
import sqlite3
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

from stagedoor.errors import StoreBroken, TooMany

from .schema import Durable, open_for_checkpoints, open_for_reading, open_for_writing, unusable

Work: TypeAlias = Callable[[sqlite3.Connection], Any]
_Job: TypeAlias = tuple[Work, asyncio.Future[Any]]
_Outcome: TypeAlias = tuple[asyncio.Future[Any], Any, BaseException | None]

AT_ONCE = 256
"""With so many jobs gathered, a commit waits for no more: one that never ends tells nobody."""
CHECKPOINT_AT = 4 * 1024 * 1024
"""How large the WAL grows before it is moved into the file."""
CHECKPOINT_NOW = 64 * 1024 * 1024
"""How large it may become when the disk is too slow for that: then writing waits."""


class Writer:
    """``finish`` is the last work of each transaction; ``rolled_back`` is told when one came to nothing."""

    def __init__(
        self,
        path: Path,
        durable: Durable,
        *,
        finish: Callable[[sqlite3.Connection], None],
        rolled_back: Callable[[], None],
    ) -> None:
        self._path = path
        self._wal = path.with_name(path.name + "-wal")
        self._finish = finish
        self._durable: Durable = durable
        self._rolled_back = rolled_back
        self._gathered: list[_Job] = []
        self._queue: queue.SimpleQueue[list[_Job] | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._inode = 0
        self._checkpoints = _Checkpoints(path)

    async def start(self) -> None:
        """Open the file and migrate it."""
        loop = asyncio.get_running_loop()
        ready: asyncio.Future[None] = loop.create_future()
        self._thread = threading.Thread(target=self._run, args=(loop, ready), name="stagedoor-log", daemon=True)
        self._thread.start()
        try:
            await ready
        except BaseException:
            await self.stop()
            raise

    async def stop(self) -> None:
        """What was asked for before is done; what comes after is refused."""
        thread, self._thread = self._thread, None
        if thread is not None:
            self._hand_over()
            self._queue.put(None)
            await asyncio.to_thread(thread.join)

    def do(self, work: Work) -> asyncio.Future[Any]:
        """Carry ``work`` out in a transaction, in the order it was asked for."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Any] = loop.create_future()
        if self._thread is None:
            future.set_exception(StoreBroken(f"the log {self._path} is closed; start the server to use it"))
            return future
        if not self._gathered:
            loop.call_soon(self._hand_over)
        self._gathered.append((work, future))
        return future

    def _hand_over(self) -> None:
        """Once per turn of the loop: what is asked for in one turn is committed together."""
        if self._gathered:
            self._queue.put(self._gathered)
            self._gathered = []

    def _run(self, loop: asyncio.AbstractEventLoop, ready: asyncio.Future[None]) -> None:
        def tell(outcomes: list[_Outcome]) -> None:
            with contextlib.suppress(RuntimeError):  # the loop is closed: nobody is left to be told
                loop.call_soon_threadsafe(_settle, outcomes)

        try:
            db = open_for_writing(self._path, self._durable)
        except BaseException as fault:
            tell([(ready, None, fault)])
            return
        try:
            self._inode = self._path.stat().st_ino
            tell([(ready, None, None)])
            self._checkpoints.start()
            last = False
            while not last and (jobs := self._queue.get()) is not None:
                while len(jobs) < AT_ONCE and not self._queue.empty():
                    more = self._queue.get()
                    if more is None:
                        last = True
                        break
                    jobs += more
                tell(self._commit(db, jobs))
                self._keep_small(db)
        finally:
            self._checkpoints.stop()
            with contextlib.suppress(sqlite3.Error):  # closing moves what is left of the WAL; that can wait
                db.close()

    def _commit(self, db: sqlite3.Connection, jobs: list[_Job]) -> list[_Outcome]:
        """All in one transaction; should one of them fail, each in its own, so that it alone is refused."""
        outcomes = self._attempt(db, jobs)
        if len(jobs) > 1 and any(fault is not None for _, _, fault in outcomes):
            outcomes = [outcome for job in jobs for outcome in self._attempt(db, [job])]
        return outcomes

    def _attempt(self, db: sqlite3.Connection, jobs: list[_Job]) -> list[_Outcome]:
        try:
            self._check_place()
            db.execute("BEGIN IMMEDIATE")
            outcomes: list[_Outcome] = [(future, work(db), None) for work, future in jobs]
            self._finish(db)
            db.execute("COMMIT")
        except BaseException as fault:
            with contextlib.suppress(sqlite3.Error):  # a full disk has rolled back already
                db.execute("ROLLBACK")
            self._rolled_back()
            if isinstance(fault, sqlite3.Error | OSError):
                fault = unusable(self._path, "written", fault)
            return [(future, None, fault) for _, future in jobs]
        return outcomes

    def _check_place(self) -> None:
        """SQLite would go on writing into a file that was removed, and all of it would be gone in the end."""
        try:
            same = self._path.stat().st_ino == self._inode
        except FileNotFoundError:
            same = False
        if not same:
            raise StoreBroken(
                f"the log {self._path} was removed or replaced while the server ran; nothing more can be stored: "
                "restore it and start the server again"
            )

    def _keep_small(self, db: sqlite3.Connection) -> None:
        with contextlib.suppress(OSError):
            size = self._wal.stat().st_size
            if size < CHECKPOINT_AT:
                return
            self._checkpoints.ask()
            if self._checkpoints.ended(wait=size > CHECKPOINT_NOW):
                # The other thread has moved all but what was written meanwhile; with that little moved as well,
                # the next commit begins the WAL anew. Without this it would grow as long as somebody writes.
                with contextlib.suppress(sqlite3.Error):
                    db.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()


class _Checkpoints:
    """Passive ones: they wait for nobody and nobody waits for them."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._requested = threading.Event()
        self._ended = threading.Event()
        self._under_way = False
        self._stopping = False
        self._thread = threading.Thread(target=self._run, name="stagedoor-log-checkpoints", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def ask(self) -> None:
        """For one, unless one is under way."""
        if not self._under_way:
            self._under_way = True
            self._requested.set()

    def ended(self, *, wait: bool) -> bool:
        """Whether the one that was asked for has ended; true once for each."""
        if wait:
            self._ended.wait()
        if not self._ended.is_set():
            return False
        self._ended.clear()
        self._under_way = False
        return True

    def stop(self) -> None:
        self._stopping = True
        self._requested.set()
        if self._thread.ident is not None:
            self._thread.join()

    def _run(self) -> None:
        while self._requested.wait() and not self._stopping:
            self._requested.clear()
            # What is wrong with the file, the writing thread will say.
            with (
                contextlib.suppress(sqlite3.Error, OSError),
                contextlib.closing(open_for_checkpoints(self._path)) as db,
            ):
                db.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
            self._ended.set()


def _settle(outcomes: list[_Outcome]) -> None:
    for future, value, fault in outcomes:
        if future.done():
            continue  # whoever asked has gone; what was kept is kept
        if fault is None:
            future.set_result(value)
        else:
            future.set_exception(fault)


Value = TypeVar("Value")

READERS = 4
STEPS = 10_000
"""Of SQLite's machine between two looks at the clock."""


class Readers:
    """``most_seconds``: a question that takes longer is given up (``TooMany``), so that the next one gets its turn."""

    def __init__(self, path: Path, threads: int = READERS, *, most_seconds: float | None = None) -> None:
        self.most_seconds = most_seconds
        self._path = path
        self._count = threads
        self._threads: ThreadPoolExecutor | None = None
        self._idle: queue.SimpleQueue[sqlite3.Connection] = queue.SimpleQueue()

    def start(self) -> None:
        self._threads = ThreadPoolExecutor(self._count, thread_name_prefix="stagedoor-log-read")

    async def stop(self) -> None:
        threads, self._threads = self._threads, None
        if threads is not None:
            await asyncio.to_thread(threads.shutdown)
            while not self._idle.empty():
                self._idle.get().close()

    async def do(self, work: Callable[[sqlite3.Connection], Value]) -> Value:
        if self._threads is None:
            raise StoreBroken(f"the log {self._path} is closed; start the server to use it")
        return await asyncio.get_running_loop().run_in_executor(self._threads, self._run, work)

    def _run(self, work: Callable[[sqlite3.Connection], Value]) -> Value:
        try:
            try:
                db = self._idle.get_nowait()
            except queue.Empty:
                db = open_for_reading(self._path)
            try:
                return work(db) if self.most_seconds is None else _within(self.most_seconds, db, work)
            finally:
                self._idle.put(db)
        except sqlite3.Error as fault:
            raise unusable(self._path, "read", fault) from fault


def _within(seconds: float, db: sqlite3.Connection, work: Callable[[sqlite3.Connection], Value]) -> Value:
    until = time.monotonic() + seconds
    db.set_progress_handler(lambda: time.monotonic() > until, STEPS)
    try:
        return work(db)
    except sqlite3.OperationalError as fault:
        if time.monotonic() > until:
            raise TooMany(
                f"the question took longer than {seconds:g} seconds and was given up; ask for less: a longer text to "
                "search for, an agent, a project or a state, or a shorter time"
            ) from fault
        raise
    finally:
        db.set_progress_handler(None, 0)
