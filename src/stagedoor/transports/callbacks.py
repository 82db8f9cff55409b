"""The one place where functions of the caller are run to answer something.

A plain function gets a thread of its own, so that a person who thinks holds up nobody else. The deadline is ours: it is
the clock that decides, not the order in which the loop comes to things. What comes after it is refused, never applied.
"""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import threading
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar, cast

from .tasks import TaskOwner

T = TypeVar("T")

_left_behind = TaskOwner()
"""Callbacks that did not obey their cancellation. Nobody waits for them, and what they return goes nowhere."""


class CallbackLate(Exception):
    """The function had not answered when its time was up."""


async def run_callback(
    function: Callable[..., T | Awaitable[T]], *arguments: object, timeout: float | None = None
) -> T:
    """What ``function(*arguments)`` returns, in time; whatever it raises is raised here. Raises ``CallbackLate``."""
    loop = asyncio.get_running_loop()
    deadline = None if timeout is None else loop.time() + timeout
    task = _left_behind.start(_outcome(function, arguments), name="stagedoor callback")
    try:
        await asyncio.wait([task], timeout=timeout)
    finally:
        if not task.done():
            task.cancel()
    if not task.done() or (deadline is not None and loop.time() >= deadline):
        if task.done() and not task.cancelled():
            task.exception()  # looked at: what it raised too late interests nobody
        raise CallbackLate
    return cast("T", task.result())


async def _outcome(function: Callable[..., Any], arguments: tuple[object, ...]) -> object:
    is_async = inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(
        getattr(function, "__call__", None)  # noqa: B004
    )
    outcome: object = function(*arguments) if is_async else await _in_thread(function, arguments)
    return await outcome if inspect.isawaitable(outcome) else outcome


async def _in_thread(function: Callable[..., Any], arguments: tuple[object, ...]) -> object:
    loop = asyncio.get_running_loop()
    answer: asyncio.Future[object] = loop.create_future()
    context = contextvars.copy_context()

    def deliver(outcome: object, fault: BaseException | None) -> None:
        if answer.done():
            return
        if fault is None:
            answer.set_result(outcome)
        else:
            answer.set_exception(fault)

    def work() -> None:
        try:
            result: tuple[object, BaseException | None] = (context.run(function, *arguments), None)
        except BaseException as fault:  # carried over to the loop
            carried = isinstance(fault, Exception) and not isinstance(fault, StopIteration)
            result = (None, fault if carried else RuntimeError(repr(fault)))
        try:
            loop.call_soon_threadsafe(deliver, *result)
        except RuntimeError:  # the loop is closed: nobody waits any more
            return

    # A daemon: a person who never answers must not keep the program from ending.
    threading.Thread(target=work, name="stagedoor-callback", daemon=True).start()
    return await answer
