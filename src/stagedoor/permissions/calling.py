"""A ``can_use_tool`` callback, called: whatever becomes of it is a decision."""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import threading
from collections.abc import Awaitable

from ..unified.decisions import Allow, CanUseTool, Decision, Deny
from ..unified.events import PermissionRequest


async def decision_of(callback: CanUseTool, request: PermissionRequest) -> Decision:
    """What the callback says; a refusal with the reason when it fails or says something else."""
    try:
        outcome: object = await _called(callback, request)
    except Exception as fault:  # a broken callback must deny, and the agent must hear why
        return Deny(f"the permission callback failed: {fault!r}")
    if isinstance(outcome, Allow | Deny):
        return outcome
    return Deny(f"the permission callback returned {outcome!r}, which is neither Allow nor Deny")


def is_person(callback: CanUseTool) -> bool:
    """Whether the callback only carries the question to somebody: the audit log says who decided."""
    return getattr(callback, "asks_a_person", False) is True


async def _called(callback: CanUseTool, request: PermissionRequest) -> object:
    """The callback's answer. A plain function gets a thread of its own: a person who thinks must stop nothing else."""
    if inspect.iscoroutinefunction(callback) or inspect.iscoroutinefunction(getattr(callback, "__call__", None)):  # noqa: B004
        outcome: object = callback(request)
    else:
        outcome = await _in_thread(callback, request)
    if inspect.isawaitable(outcome):
        return await _awaited(outcome)
    return outcome


async def _in_thread(callback: CanUseTool, request: PermissionRequest) -> object:
    loop = asyncio.get_running_loop()
    done: asyncio.Future[object] = loop.create_future()

    def deliver(outcome: object, fault: BaseException | None) -> None:
        if done.done():
            return
        if fault is None:
            done.set_result(outcome)
        else:
            done.set_exception(fault)

    def work() -> None:
        try:
            result: tuple[object, BaseException | None] = (context.run(callback, request), None)
        except BaseException as fault:  # carried over to the loop, where it denies
            result = (None, fault if isinstance(fault, Exception) else RuntimeError(repr(fault)))
        try:
            loop.call_soon_threadsafe(deliver, *result)
        except RuntimeError:  # the loop is closed: nobody waits any more
            return

    context = contextvars.copy_context()
    # A daemon: a person who never answers must not keep the program from ending.
    threading.Thread(target=work, name="stagedoor-permission", daemon=True).start()
    return await done


async def _awaited(outcome: Awaitable[object]) -> object:
    return await outcome
