"""Verbs that change something are carried out to their end, though whoever asked has left meanwhile.

A client may vanish, or its device be revoked, between a write and what follows from it: an answer that is stored and
never told would leave its agent waiting, and nobody could give another one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from functools import wraps
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar

Value = TypeVar("Value")
Given = ParamSpec("Given")


class Errands:
    def __init__(self) -> None:
        self._under_way: set[asyncio.Task[Any]] = set()

    async def run(self, work: Coroutine[Any, Any, Value]) -> Value:
        task = asyncio.get_running_loop().create_task(work)
        self._under_way.add(task)
        task.add_done_callback(self._under_way.discard)
        return await asyncio.shield(task)

    async def settled(self, within: float) -> None:
        """Wait until what is under way now is over, but no longer than ``within`` seconds."""
        if self._under_way:
            await asyncio.wait(set(self._under_way), timeout=within)


class _Runs(Protocol):
    errands: Errands


Owner = TypeVar("Owner", bound=_Runs)


def to_the_end(
    verb: Callable[Concatenate[Owner, Given], Coroutine[Any, Any, Value]],
) -> Callable[Concatenate[Owner, Given], Coroutine[Any, Any, Value]]:
    """For a verb that must not be left half done."""

    @wraps(verb)
    async def whole(owner: Owner, /, *args: Given.args, **named: Given.kwargs) -> Value:
        return await owner.errands.run(verb(owner, *args, **named))

    return whole
