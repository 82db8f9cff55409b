"""The log in PostgreSQL, for several servers and workers at once. Needs the extra ``postgres`` (asyncpg)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from stagedoor.errors import ConfigError

from .address import DatabaseAddress

if TYPE_CHECKING:
    from .hub import PostgresHub
    from .log import PostgresStore


def log_in(url: str, *, password_file: str = "", durable: bool = False) -> tuple[PostgresStore, PostgresHub]:
    """The log at this address, and its doorbell. The driver is loaded only here."""
    address = DatabaseAddress(url, password_in(password_file) if password_file else "")
    try:
        from .connections import Engine
        from .hub import PostgresHub
        from .log import PostgresStore
    except ModuleNotFoundError as fault:
        if fault.name != "asyncpg":
            raise
        raise ConfigError("a log in PostgreSQL needs one more package: pip install asyncpg") from fault
    engine = Engine(address, durable=durable)
    return PostgresStore(engine), PostgresHub(engine)


async def grant(url: str, *, doors: Sequence[str], workers: Sequence[str]) -> None:
    """Bring the tables to the form of this version, as their owner, and let these roles use them."""
    from . import schema
    from .connections import FAULTS, Engine, close

    engine = Engine(DatabaseAddress(url))
    db = await engine.connect(once=True)
    try:
        await schema.migrate(db, engine.title)
        await schema.grant(db, doors=doors, workers=workers)
    except FAULTS as fault:
        raise engine.unusable("changed", fault) from fault
    finally:
        await close(db)


def password_in(file: str) -> str:
    """The first line of a file."""
    path = Path(file).expanduser()
    try:
        return path.read_text(encoding="utf-8").splitlines()[0]
    except (OSError, UnicodeDecodeError, IndexError) as fault:
        problem = "it is empty" if isinstance(fault, IndexError) else str(fault)
        raise ConfigError(f"the password of the database cannot be read from {path}: {problem}") from fault
