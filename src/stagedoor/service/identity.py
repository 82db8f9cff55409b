"""New ids. Random ones, except while a request with an idempotency key is carried out: those follow from the key, so
that what such a request made can be found again when a crash has swallowed its answer."""

from __future__ import annotations

import uuid
from collections.abc import Generator
from contextlib import contextmanager
from contextvars import ContextVar

_ROOM = uuid.UUID("6d0b5b0c-6e0f-5d7e-9c35-0d9f6c1f2a41")


class _Seed:
    def __init__(self, seed: str) -> None:
        self.seed = seed
        self.count = 0
        self.closed = False


_CALLER: ContextVar[str] = ContextVar("stagedoor-caller", default="")
_CURRENT: ContextVar[_Seed | None] = ContextVar("stagedoor-id-seed", default=None)


def fresh_id() -> str:
    seed = _CURRENT.get()
    if seed is None or seed.closed:  # a task that was started under a seed outlives the request
        return str(uuid.uuid4())
    seed.count += 1
    return _numbered(seed.seed, seed.count)


@contextmanager
def ids_from(seed: str) -> Generator[None]:
    """Ids follow from ``seed`` in here, in order."""
    current = _Seed(seed)
    before = _CURRENT.set(current)
    try:
        yield
    finally:
        current.closed = True
        _CURRENT.reset(before)


def first_id() -> str:
    """The first id that ``fresh_id`` gives under the current seed."""
    seed = _CURRENT.get()
    if seed is None:
        raise RuntimeError("ask for the first id inside ids_from")
    return _numbered(seed.seed, 1)


def current_seed() -> str:
    """What ids follow from now; empty: from nothing."""
    seed = _CURRENT.get()
    return "" if seed is None or seed.closed else seed.seed


def id_below(name: str) -> str:
    """The one with this ``name`` under the current seed, beside those in order; a random one without a seed."""
    seed = current_seed()
    return str(uuid.uuid5(_ROOM, f"{name}:{seed}") if seed else uuid.uuid4())


def note_caller(name: str) -> None:
    """Who asks for what this task does from now on: the name of a device."""
    _CALLER.set(name)


def current_caller() -> str:
    return _CALLER.get()


def _numbered(seed: str, number: int) -> str:
    return str(uuid.uuid5(_ROOM, f"{number}:{seed}"))
