"""Events in batches, for consumers that pay per call: a database, a socket, a screen.

>>> async with stagedoor.EventBuffer(stagedoor.run("claude", "…"), size=100, flush_interval=0.25) as buffer:
...     async for batch in buffer: await store(batch)
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Generic, Literal, TypeVar, get_args

from .transports.tasks import TaskOwner

Item = TypeVar("Item")

Overflow = Literal["wait", "drop_oldest", "drop_newest", "raise"]


class BufferOverflow(RuntimeError):
    """The consumer fell too far behind, and the buffer was told to say so."""


class EventBuffer(Generic[Item]):
    """Yields lists of at most ``size`` items, as soon as one is full or ``flush_interval`` seconds have passed.

    At most ``capacity`` items are held. When the consumer is slower than the source and they are used up, ``overflow``
    says what happens: ``wait`` slows the source and loses nothing; ``drop_oldest`` and ``drop_newest`` lose items and
    count them in ``dropped`` (of events, only the deltas and progress a whole event repeats: the grammar of the stream
    is never broken, so more than ``capacity`` may be held when nothing else is left); ``raise`` fails the consumer.
    """

    def __init__(
        self,
        source: AsyncIterator[Item],
        *,
        size: int = 100,
        flush_interval: float = 0.1,
        capacity: int | None = None,
        overflow: Overflow = "wait",
    ) -> None:
        if size < 1 or flush_interval < 0 or (capacity is not None and capacity < size):
            raise ValueError("size must be at least 1, flush_interval not negative, capacity not below size")
        if overflow not in get_args(Overflow):
            raise ValueError(f"overflow={overflow!r}: choose from {', '.join(get_args(Overflow))}")
        self.dropped = 0
        self._source = source
        self._size = size
        self._interval = flush_interval
        self._capacity = capacity if capacity is not None else max(10 * size, 1000)
        self._overflow: Overflow = overflow
        self._items: deque[Item] = deque()
        self._first_at = 0.0
        self._changed = asyncio.Event()
        self._room = asyncio.Event()
        self._tasks = TaskOwner()
        self._reader: asyncio.Task[None] | None = None
        self._fault: BaseException | None = None
        self._ended = False

    async def __aenter__(self) -> EventBuffer[Item]:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def __aiter__(self) -> EventBuffer[Item]:
        return self

    async def __anext__(self) -> list[Item]:
        """The next batch. A fault of the source is raised after what came before it."""
        if self._reader is None and not self._ended:
            self._reader = self._tasks.start(self._read())
        loop = asyncio.get_running_loop()
        while not (self._ended or len(self._items) >= self._size):
            left = self._interval - (loop.time() - self._first_at) if self._items else None
            if left is not None and left <= 0:
                break
            self._changed.clear()
            try:
                async with asyncio.timeout(left):
                    await self._changed.wait()
            except TimeoutError:
                break
        return self._taken()

    async def close(self) -> None:
        """Stop reading and close the source: for a stream of ``stagedoor.run`` this stops the agent."""
        self._ended = True
        self._items.clear()
        await self._tasks.close()
        aclose: Callable[[], Awaitable[None]] | None = getattr(self._source, "aclose", None)
        if aclose is not None:
            await aclose()

    def _taken(self) -> list[Item]:
        if not self._items:
            if self._fault is not None:
                fault, self._fault = self._fault, None
                raise fault
            raise StopAsyncIteration
        batch = [self._items.popleft() for _ in range(min(self._size, len(self._items)))]
        self._first_at = asyncio.get_running_loop().time()
        self._room.set()
        return batch

    async def _read(self) -> None:
        try:
            async for item in self._source:
                if len(self._items) >= self._capacity and not await self._make_room(item):
                    continue
                if not self._items:
                    self._first_at = asyncio.get_running_loop().time()
                    self._changed.set()
                self._items.append(item)
                if len(self._items) >= self._size:
                    self._changed.set()
        except Exception as fault:
            self._fault = fault
        finally:
            self._ended = True
            self._changed.set()

    async def _make_room(self, item: Item) -> bool:
        """Whether ``item`` may be put in now."""
        match self._overflow:
            case "wait":
                while len(self._items) >= self._capacity:
                    self._room.clear()
                    await self._room.wait()
            case "drop_newest":
                if may_be_dropped(item):
                    self.dropped += 1
                    return False
                self._drop_first()
            case "drop_oldest":
                self._drop_first()
            case "raise":
                raise BufferOverflow(
                    f"the consumer is {len(self._items)} items behind; make it faster, or capacity= larger"
                )
        return True

    def _drop_first(self) -> None:
        for at, item in enumerate(self._items):
            if may_be_dropped(item):
                del self._items[at]
                self.dropped += 1
                return


def may_be_dropped(item: object) -> bool:
    """Whether the stream stays whole without it: pieces that are repeated later may go, other events may not."""
    from .unified import events

    whole = (
        events.Init | events.TurnStarted | events.Text | events.Thinking | events.ToolUse | events.ToolResult
        | events.FileChange | events.Plan | events.PermissionRequest | events.PermissionResolved | events.Error
        | events.TurnCompleted | events.Done | events.Unrecognized | events.Retry | events.Notice
        | events.FilesRestored
    )  # fmt: skip
    return not isinstance(item, whole)
