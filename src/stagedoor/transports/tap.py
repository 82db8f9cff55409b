"""Overhear what goes in and out of child processes: for recordings. Nothing is changed by listening."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Literal, TypeAlias

LineRecorder: TypeAlias = Callable[[Literal["in", "out"], bytes], None]
"""``in`` is sent to the child, ``out`` comes from it; one whole line each, without its line end."""

_tap: ContextVar[LineRecorder | None] = ContextVar("stagedoor_tap", default=None)


@contextmanager
def record_lines(listener: LineRecorder) -> Generator[None]:
    """Every process started inside (in this task and those it starts): ``listener`` gets its lines."""
    token = _tap.set(listener)
    try:
        yield
    finally:
        _tap.reset(token)


def current() -> LineRecorder | None:
    return _tap.get()
