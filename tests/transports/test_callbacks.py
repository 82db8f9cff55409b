"""The caller's functions: in threads where they are plain, and never obeyed after their time."""

from __future__ import annotations

import asyncio
import contextvars
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from stagedoor.transports.callbacks import CallbackLate, run_callback
from stagedoor.transports.tasks import TaskOwner

PLACE: contextvars.ContextVar[str] = contextvars.ContextVar("place", default="nowhere")


def plain(number: int) -> int:
    return number + 1


async def asynchronous(number: int) -> int:
    await asyncio.sleep(0)
    return number + 1


class Callable_:
    async def __call__(self, number: int) -> int:
        return number + 1


def fails(number: int) -> int:
    raise ValueError(f"no {number}")


def leaves(number: int) -> int:
    raise SystemExit(3)


@pytest.mark.parametrize(
    "function",
    [plain, asynchronous, Callable_(), lambda number: asynchronous(number)],
    ids=["plain", "async", "object", "lambda"],
)
def test_every_kind_of_function_answers(function: Callable[..., Any]) -> None:
    assert asyncio.run(run_callback(function, 1, timeout=60)) == 2


@pytest.mark.parametrize(("function", "fault"), [(fails, ValueError), (leaves, RuntimeError)])
def test_what_it_raises_is_raised_here(function: Callable[..., Any], fault: type[Exception]) -> None:
    with pytest.raises(fault):
        asyncio.run(run_callback(function, 1, timeout=60))


def test_a_plain_function_blocks_nobody_and_sees_the_context() -> None:
    release, seen = threading.Event(), list[str]()

    def waits() -> str:
        release.wait(60)
        seen.append(PLACE.get())
        return "yes"

    async def main() -> str:
        PLACE.set("here")
        answer = asyncio.ensure_future(run_callback(waits, timeout=60))
        await asyncio.sleep(0)  # the loop goes on while it waits
        release.set()
        return await answer

    assert (asyncio.run(main()), seen) == ("yes", ["here"])


def test_a_late_plain_function_is_refused_while_it_still_runs() -> None:
    release = threading.Event()

    def waits() -> str:
        release.wait(60)
        return "yes"

    async def main() -> None:
        with pytest.raises(CallbackLate):
            await run_callback(waits, timeout=0.01)
        release.set()

    asyncio.run(main())


async def blocks_the_loop() -> str:
    time.sleep(0.05)  # longer than it has: the loop could not even see that time was up
    return "yes"


async def ignores_its_end() -> str:
    for _ in range(3):
        try:
            await asyncio.sleep(0.02)
        except asyncio.CancelledError:
            continue
    return "yes"


async def raises_late() -> str:
    time.sleep(0.05)
    raise ValueError("too late to matter")


@pytest.mark.parametrize("function", [blocks_the_loop, ignores_its_end, raises_late])
def test_the_clock_decides(function: Callable[..., Any]) -> None:
    async def main() -> None:
        with pytest.raises(CallbackLate):
            await run_callback(function, timeout=0.01)

    asyncio.run(main())


def test_an_owner_ends_what_it_started() -> None:
    async def main() -> list[str]:
        ended: list[str] = []
        owner = TaskOwner()

        async def work(name: str) -> str:
            try:
                await asyncio.Event().wait()
            finally:
                ended.append(name)
            return name

        owner.start(work("first"), key="a")
        owner.start(work("second"), key="b")
        await asyncio.sleep(0)
        owner.start(work("third"), key="a")  # takes the place of the first
        await asyncio.sleep(0)
        owner.cancel_all(keep={"b"})
        await asyncio.sleep(0)
        assert ("b" in owner, "a" in owner, await owner.finish(0.01)) == (True, False, False)
        await owner.close()
        assert len(owner) == 0
        return ended

    assert asyncio.run(main()) == ["first", "third", "second"]


def test_a_task_does_not_end_itself_through_its_owner() -> None:
    async def main() -> str:
        owner = TaskOwner()

        async def work() -> str:
            owner.cancel("me")
            await owner.close()
            return "went on"

        return await owner.start(work(), key="me")

    assert asyncio.run(main()) == "went on"
