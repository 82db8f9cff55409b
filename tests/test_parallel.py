"""Several agents at once, events in batches, and a signal that stops them."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Coroutine, Iterator
from contextlib import aclosing
from itertools import groupby
from pathlib import Path
from typing import Any

import pytest

import stagedoor
from stagedoor.transports.guard.processes import descendants
from stagedoor.unified.events import Done, Error, Init, Text, TextDelta

BOUND = 240.0


def run(main: Coroutine[Any, Any, None]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(BOUND):
            await main

    asyncio.run(bounded())


@pytest.fixture
def shared(tmp_path: Path) -> Iterator[dict[str, Any]]:
    """Options all tasks share; afterwards nothing may be left running."""
    import os

    workspace = tmp_path / "work"
    workspace.mkdir()
    before = set(descendants(os.getpid()))
    yield {"cwd": str(workspace), "tier": "autonomous", "env": {"STAGEDOOR_UNDERSTUDY_HOME": str(tmp_path / "home")}}
    assert set(descendants(os.getpid())) <= before


def say(text: str, **options: Any) -> stagedoor.Task:
    return stagedoor.Task("understudy", f"- say: {text}\n", options, name=text)


def test_every_task_has_a_whole_stream_tagged_with_it(shared: dict[str, Any]) -> None:
    async def main() -> None:
        tasks = [say("one"), say("two"), say("one")]
        streams: dict[int, list[stagedoor.Event]] = {0: [], 1: [], 2: []}
        async for item in stagedoor.run_parallel(tasks, **shared):
            assert (item.task, item.agent) == (tasks[item.number], "understudy")
            streams[item.number].append(item.event)
        for number, events in streams.items():
            assert isinstance(events[0], Init)
            assert [event.seq for event in events] == list(range(1, len(events) + 1))
            assert [event.result for event in events if isinstance(event, Done)] == [tasks[number].name]
            assert isinstance(events[-1], Done)

    run(main())


def test_one_that_fails_disturbs_no_other(shared: dict[str, Any]) -> None:
    async def main() -> None:
        tasks = [
            stagedoor.Task("nobody", "x"),
            stagedoor.Task("understudy", "x", {"max_turns": 3}),
            stagedoor.Task("understudy", "x", {"colour": "red"}),
            stagedoor.Task("understudy", "- http_error: 500\n"),
            stagedoor.Task("understudy", "- stall\n", {"timeout": 1.0}),
            say("fine"),
        ]
        done: dict[int, str] = {}
        errors: dict[int, str] = {}
        async for item in stagedoor.run_parallel(tasks, **shared):
            match item.event:
                case Done(status=status):
                    assert item.number not in done
                    done[item.number] = status
                case Error(message=message):
                    errors.setdefault(item.number, message)
                case _:
                    pass
        assert done == {0: "error", 1: "error", 2: "error", 3: "error", 4: "interrupted", 5: "success"}
        assert "unknown agent 'nobody'" in errors[0]
        assert "does not support max_turns" in errors[1]
        assert "unknown option 'colour'" in errors[2]
        assert "took longer than 1 s" in errors[4]
        assert 5 not in errors

    run(main())


def test_no_more_than_the_limit_run_at_once(shared: dict[str, Any]) -> None:
    async def main() -> None:
        running: set[int] = set()
        most = 0
        async for item in stagedoor.run_parallel([say(str(n)) for n in range(5)], limit=2, **shared):
            if isinstance(item.event, Init):
                running.add(item.number)
            most = max(most, len(running))
            if isinstance(item.event, Done):
                running.discard(item.number)
        # The next may begin when one has ended, though its last words are not read yet.
        assert most <= 3
        with pytest.raises(ValueError, match="at least one"):
            await anext(stagedoor.run_parallel([say("x")], limit=0))

    run(main())


def test_a_chatterer_does_not_drown_the_others(shared: dict[str, Any]) -> None:
    async def main() -> None:
        seen: list[int] = []
        tasks = [stagedoor.Task("understudy", "- endless\n"), stagedoor.Task("understudy", "- endless\n")]
        async with aclosing(stagedoor.run_parallel(tasks, **shared)) as stream:
            async for item in stream:
                if isinstance(item.event, TextDelta):
                    seen.append(item.number)
                if min(seen.count(0), seen.count(1)) >= 500:
                    break
        both = seen[min(seen.index(0), seen.index(1)) :]
        from_both = both[max(both.index(0), both.index(1)) :]
        longest = max(len(list(same)) for _, same in groupby(from_both))
        assert longest < 400, longest

    run(main())


def test_cancelling_stops_all(shared: dict[str, Any]) -> None:
    async def main() -> None:
        started = asyncio.Event()

        async def consume() -> None:
            running: set[int] = set()
            tasks = [stagedoor.Task("understudy", "- shell: sleep 300\n") for _ in range(3)]
            async for item in stagedoor.run_parallel(tasks, **shared):
                if isinstance(item.event, stagedoor.ToolUse):
                    running.add(item.number)
                if len(running) == 3:
                    started.set()

        consuming = asyncio.create_task(consume())
        await started.wait()
        consuming.cancel()
        with pytest.raises(asyncio.CancelledError):
            await consuming

    run(main())


def test_a_token_ends_a_run_from_another_thread(shared: dict[str, Any]) -> None:
    async def main() -> None:
        token = stagedoor.CancelToken()
        events: list[stagedoor.Event] = []
        async for event in stagedoor.run("understudy", "- shell: sleep 300\n", cancel=token, **shared):
            events.append(event)
            if isinstance(event, stagedoor.ToolUse):
                thread = threading.Thread(target=token.cancel)
                thread.start()
                thread.join()
        assert isinstance(events[-1], Done)
        assert events[-1].status == "interrupted"
        assert token.cancelled
        again = [event async for event in stagedoor.run("understudy", "- stall\n", cancel=token, **shared)]
        assert isinstance(again[-1], Done)
        assert again[-1].status == "interrupted"

    run(main())


# ------------------------------------------------------------------------------------------------------ EventBuffer


async def counted(number: int) -> AsyncIterator[int]:
    for n in range(number):
        yield n


def test_batches_are_full_or_on_time() -> None:
    async def main() -> None:
        more = asyncio.Event()

        async def source() -> AsyncIterator[int]:
            for n in range(7):
                yield n
            await more.wait()
            yield 7

        async with stagedoor.EventBuffer(source(), size=3, flush_interval=0.05) as buffer:
            assert [await anext(buffer) for _ in range(3)] == [[0, 1, 2], [3, 4, 5], [6]]
            more.set()
            assert await anext(buffer) == [7]
            with pytest.raises(StopAsyncIteration):
                await anext(buffer)

    run(main())


def test_a_waiting_buffer_slows_the_source_and_loses_nothing() -> None:
    async def main() -> None:
        made = 0

        async def source() -> AsyncIterator[int]:
            nonlocal made
            for n in range(1000):
                made = n + 1
                yield n

        async with stagedoor.EventBuffer(source(), size=5, capacity=10) as buffer:
            got = await anext(buffer)
            for _ in range(100):
                await asyncio.sleep(0)
            assert made <= 5 + 10 + 1
            async for batch in buffer:
                got += batch
            assert got == list(range(1000))
            assert buffer.dropped == 0

    run(main())


OVERFLOWS = {
    "drop_oldest": [Text(text="whole"), *(TextDelta(text=str(n)) for n in range(11, 19)), Done(status="success")],
    "drop_newest": [Text(text="whole"), *(TextDelta(text=str(n)) for n in range(1, 9)), Done(status="success")],
}


@pytest.mark.parametrize("overflow", OVERFLOWS)
def test_only_pieces_are_dropped(overflow: Any) -> None:
    async def source() -> AsyncIterator[stagedoor.Event]:
        yield TextDelta(text="0")
        yield Text(text="whole")
        for n in range(1, 19):
            yield TextDelta(text=str(n))
        yield Done(status="success")

    async def main() -> None:
        async with stagedoor.EventBuffer(source(), size=10, capacity=10, overflow=overflow) as buffer:
            reading = asyncio.create_task(buffer._read())
            await reading
            assert await anext(buffer) == OVERFLOWS[overflow]
            assert buffer.dropped == 11

    run(main())


def test_an_unknown_way_to_overflow_is_refused() -> None:
    unknown: Any = "drop"
    with pytest.raises(ValueError, match="overflow='drop': choose from wait, drop_oldest, drop_newest, raise"):
        stagedoor.EventBuffer(counted(1), overflow=unknown)


def test_raising_says_how_far_behind_the_consumer_is() -> None:
    async def main() -> None:
        async with stagedoor.EventBuffer(counted(100), size=10, capacity=20, overflow="raise") as buffer:
            await buffer._read()
            assert await anext(buffer) == list(range(10))
            assert await anext(buffer) == list(range(10, 20))
            with pytest.raises(stagedoor.BufferOverflow, match="20 items behind"):
                await anext(buffer)

    run(main())


def test_a_fault_of_the_source_comes_after_what_came_before_it() -> None:
    async def source() -> AsyncIterator[int]:
        yield 1
        raise OSError("gone")

    async def main() -> None:
        async with stagedoor.EventBuffer(source()) as buffer:
            assert await anext(buffer) == [1]
            with pytest.raises(OSError, match="gone"):
                await anext(buffer)

    run(main())


def test_closing_a_buffer_stops_the_agent(shared: dict[str, Any]) -> None:
    async def main() -> None:
        stream = stagedoor.run("understudy", "- endless\n", **shared)
        async with stagedoor.EventBuffer(stream, size=10) as buffer:
            assert isinstance((await anext(buffer))[0], Init)

    run(main())
