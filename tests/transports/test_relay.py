"""Many readers, nothing lost, nothing repeated, the slowest one slows the source."""

from __future__ import annotations

import asyncio
import gc

from hypothesis import given
from hypothesis import strategies as st

from stagedoor.transports.relay import Relay


def test_every_reader_gets_everything_in_order() -> None:
    async def main() -> None:
        relay: Relay[int] = Relay()
        first, second = relay.reader(), relay.reader()
        await relay.publish(range(3))
        await relay.publish([3])
        relay.close()
        assert [item async for item in first] == [0, 1, 2, 3]
        assert await second.batch() == [0, 1, 2, 3]
        assert await second.batch() == []

    asyncio.run(main())


def test_a_slow_reader_slows_the_source() -> None:
    async def main() -> None:
        relay: Relay[int] = Relay(limit=10)
        reader = relay.reader()
        published: list[int] = []

        async def source() -> None:
            for start in range(0, 100, 5):
                await relay.publish(range(start, start + 5))
                published.append(start)
            relay.close()

        task = asyncio.create_task(source())
        for _ in range(50):
            await asyncio.sleep(0)
        assert published == [0, 5]
        assert [item async for item in reader] == list(range(100))
        await task

    asyncio.run(main())


def test_a_reader_that_leaves_frees_the_source_and_the_next_goes_on_where_it_stopped() -> None:
    async def main() -> None:
        relay: Relay[int] = Relay(limit=2)
        reader = relay.reader()
        task = asyncio.create_task(relay.publish(range(10)))
        assert [await anext(reader) for _ in range(3)] == [0, 1, 2]
        del reader
        gc.collect()
        following = relay.reader()
        assert [await anext(following) for _ in range(7)] == [3, 4, 5, 6, 7, 8, 9]
        await task
        relay.close()
        assert [item async for item in following] == []

    asyncio.run(main())


def test_what_was_published_before_the_first_reader_is_kept() -> None:
    async def main() -> None:
        relay: Relay[int] = Relay()
        await relay.publish([1, 2])
        relay.close()
        assert [item async for item in relay.reader()] == [1, 2]

    asyncio.run(main())


@given(st.lists(st.integers(0, 400), max_size=8), st.integers(1, 600))
def test_any_batching_gives_the_same_items(sizes: list[int], limit: int) -> None:
    async def main() -> None:
        relay: Relay[int] = Relay(limit)
        readers = [relay.reader(), relay.reader()]
        total = sum(sizes)

        async def source() -> None:
            start = 0
            for size in sizes:
                await relay.publish(range(start, start + size))
                start += size
            relay.close()

        async def read_items() -> list[int]:
            return [item async for item in readers[0]]

        async def read_batches() -> list[int]:
            taken: list[int] = []
            while batch := await readers[1].batch():
                taken += batch
            return taken

        _, first, second = await asyncio.gather(source(), read_items(), read_batches())
        assert first == second == list(range(total))

    asyncio.run(main())
