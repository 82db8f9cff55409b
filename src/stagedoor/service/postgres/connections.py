"""Connections to the engine: how they are made, what their faults mean, and how long one waits for it to come back.

While it is away everybody waits for it together, for ``PATIENCE`` seconds from the first fault on; after that whoever
asks tries once and is told (``StoreAway``).
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import ssl
import time
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from importlib import import_module
from typing import Any, Protocol, TypeVar

from stagedoor.errors import StoreAway, StoreBroken, StoreError, TooMany

from .address import DatabaseAddress
from .schema import NAME

asyncpg: Any = import_module("asyncpg")
"""It has no types; what we use of a connection has them below."""
_log = logging.getLogger("stagedoor.service")
Value = TypeVar("Value")
PATIENCE = 25.0
"""Seconds: longer than a restart of the engine takes, and shorter than a lease."""
GRACE = 2.0
"""Seconds after which the doors say that it is away instead of waiting for it."""
CONNECT_SECONDS = 5.0
STUCK_SECONDS = 30.0
"""After which an engine that says nothing counts as lost: the line may be cut without anybody being told."""
FIRST_PAUSE, LONGEST_PAUSE = 0.05, 1.0
QUICK = 6
SLOW = 2
SLOW_SECONDS = 10.0
"""After which a question that looks at many rows is given up."""
_AWAY: tuple[type[BaseException], ...] = (
    asyncpg.PostgresConnectionError,
    asyncpg.AdminShutdownError,
    asyncpg.CrashShutdownError,
    asyncpg.CannotConnectNowError,
    asyncpg.TooManyConnectionsError,
    asyncpg.IdleInTransactionSessionTimeoutError,
    asyncpg.InterfaceError,
    asyncpg.InternalClientError,
    ConnectionError,
    OSError,
    TimeoutError,
    EOFError,
)
FAULTS: tuple[type[BaseException], ...] = (asyncpg.PostgresError, *_AWAY)


class EngineConnection(Protocol):
    """What we use of the driver's connection."""

    async def execute(self, query: str, *args: Any) -> str: ...
    async def executemany(self, command: str, args: Any) -> None: ...
    async def copy_records_to_table(self, table_name: str, *, records: Any, columns: Any) -> str: ...
    async def fetch(self, query: str, *args: Any) -> list[Any]: ...
    async def fetchrow(self, query: str, *args: Any) -> Any: ...
    async def fetchval(self, query: str, *args: Any) -> Any: ...
    def transaction(self) -> AbstractAsyncContextManager[object]: ...
    async def add_listener(self, channel: str, callback: Callable[..., object]) -> None: ...
    def add_termination_listener(self, callback: Callable[..., object]) -> None: ...
    def is_closed(self) -> bool: ...
    def terminate(self) -> None: ...
    async def close(self, *, timeout: float | None = None) -> None: ...


def is_lost(fault: BaseException) -> bool:
    """The connection is gone, and with it the answer; the engine may have carried out what was asked."""
    return isinstance(fault, _AWAY) and not _is_about_tls(fault)


def _is_about_tls(fault: BaseException) -> bool:
    """It will be the same next time."""
    return isinstance(fault, ssl.SSLError) or "SSL upgrade" in str(fault)


class Engine:
    """The way to one database."""

    def __init__(self, address: DatabaseAddress, *, durable: bool = False, patience: float = PATIENCE) -> None:
        self.address = address
        self.title = address.title
        self.patience = patience
        self._durable = durable
        self._away_since: float | None = None

    async def connect(self, settings: dict[str, str] | None = None, *, once: bool = False) -> EngineConnection:
        """Waits for an engine that is away, as long as others do; ``once``: not at all."""
        pause = FIRST_PAUSE
        while True:
            try:
                db = await self._connect(settings or {})
            except FAULTS as fault:
                if not is_lost(fault):
                    raise self.unusable("opened", fault) from fault
                since = self.went_away()
                if once or time.monotonic() + pause > since + self.patience:
                    raise self.away(fault) from fault
                await asyncio.sleep(pause)
                pause = min(pause * 2, LONGEST_PAUSE)
            else:
                self.came_back()
                return db

    @property
    def is_away(self) -> bool:
        """For so long that nobody should wait for it who can come again."""
        return self._away_since is not None and time.monotonic() - self._away_since > GRACE

    def went_away(self) -> float:
        """Since when it is."""
        if self._away_since is None:
            self._away_since = time.monotonic()
            _log.warning("a connection to the log %s was lost", self.title)
        return self._away_since

    def came_back(self) -> None:
        """It has answered."""
        if self._away_since is not None:
            _log.warning("the log %s answers again, after %.1f s", self.title, time.monotonic() - self._away_since)
            self._away_since = None

    def away(self, fault: BaseException) -> StoreAway:
        reason = str(fault) or type(fault).__name__
        return StoreAway(
            f"the log {self.title} cannot be reached: {reason}; nothing is lost, try again when PostgreSQL is back"
        )

    def unusable(self, verb: str, fault: BaseException) -> StoreError:
        """What went wrong, and what to do about it."""
        if is_lost(fault):
            return self.away(fault)
        return StoreBroken(f"the log {self.title} cannot be {verb}: {fault}; {_advice(fault)}")

    async def _connect(self, settings: dict[str, str]) -> EngineConnection:
        own = {
            "search_path": NAME, "application_name": "stagedoor", "timezone": "UTC",
            "idle_in_transaction_session_timeout": "60s", "lock_timeout": "20s",
            "tcp_keepalives_idle": "10", "tcp_keepalives_interval": "5", "tcp_keepalives_count": "3",
        }  # fmt: skip
        if self._durable:
            own["synchronous_commit"] = "on"
        arguments = self.address.arguments()
        arguments["server_settings"] = arguments.get("server_settings", {}) | own | settings
        db: EngineConnection = await asyncpg.connect(timeout=CONNECT_SECONDS, **arguments)
        return db


def _advice(fault: BaseException) -> str:
    if _is_about_tls(fault):
        return (
            "the way to it must be encrypted and its certificate must fit its name: set ssl=on there, and name the "
            "authority of the certificate with ?sslrootcert=FILE in the address"
        )
    known: tuple[tuple[tuple[type[BaseException], ...], str], ...] = (
        (
            (asyncpg.InvalidPasswordError, asyncpg.InvalidAuthorizationSpecificationError),
            "check the role and its password (in a file that PGPASSFILE names, or in log.database_password_file)",
        ),
        ((asyncpg.InvalidCatalogNameError,), "create it first, with: createdb --encoding UTF8 NAME"),
        (
            (asyncpg.DiskFullError, asyncpg.OutOfMemoryError),
            "free some space on its machine; the server continues by itself once it can write",
        ),
        ((asyncpg.ReadOnlySQLTransactionError,), "it is a standby: give the address of the primary"),
        (
            (asyncpg.InsufficientPrivilegeError,),
            "let its owner run stagedoor log grant, or use a role that may write to it",
        ),
        ((asyncpg.DataCorruptedError, asyncpg.IndexCorruptedError), "it is damaged: restore a backup"),
    )
    for kinds, advice in known:
        if isinstance(fault, kinds):
            return advice
    return "the log of PostgreSQL says more"


class EnginePool:
    """Connections for reading, made when they are needed and kept. ``seconds``: a question that takes longer is given
    up (``TooMany``), so that the next one gets its turn."""

    def __init__(self, engine: Engine, size: int, *, seconds: float | None = None) -> None:
        self.seconds = seconds
        self._engine = engine
        self._size = size
        self._idle: list[EngineConnection] = []
        self._turns = asyncio.Semaphore(size)
        self._opened = False

    def start(self) -> None:
        self._opened = True

    async def stop(self) -> None:
        self._opened = False
        for _ in range(self._size):
            await self._turns.acquire()
        for db in self._idle:
            await close(db)
        self._idle.clear()
        for _ in range(self._size):
            self._turns.release()

    async def do(self, work: Callable[[EngineConnection], Awaitable[Value]]) -> Value:
        """A question asked on a connection that turns out to be gone is asked again on a new one."""
        attempts = 0
        while True:
            if not self._opened:
                raise StoreBroken(f"the log {self._engine.title} is closed; start the server to use it")
            attempts += 1
            async with self._turns:
                db = self._idle.pop() if self._idle else await self._connect()
                try:
                    async with asyncio.timeout(STUCK_SECONDS if self.seconds is None else self.seconds + STUCK_SECONDS):
                        value = await work(db)
                except asyncpg.QueryCanceledError as fault:
                    self._idle.append(db)
                    raise TooMany(
                        f"the question took longer than {self.seconds or STUCK_SECONDS:g} seconds and was given up; "
                        "ask for less: a longer text to search for, an agent, a project or a state, or a shorter time"
                    ) from fault
                except FAULTS as fault:
                    if is_lost(fault):
                        db.terminate()
                        self._engine.went_away()
                        if attempts > self._size + 2:  # those that were idle are gone, and new ones go as well
                            raise self._engine.away(fault) from fault
                        continue
                    self._idle.append(db)
                    raise self._engine.unusable("read", fault) from fault
                except BaseException:
                    db.terminate()  # in the middle of an answer it is of no use to anybody
                    raise
                self._idle.append(db)
                self._engine.came_back()
                return value

    async def _connect(self) -> EngineConnection:
        seconds = STUCK_SECONDS if self.seconds is None else self.seconds
        return await self._engine.connect({"statement_timeout": f"{int(seconds * 1000)}ms"})


async def close(db: EngineConnection) -> None:
    with contextlib.suppress(*FAULTS):
        await db.close(timeout=2)
