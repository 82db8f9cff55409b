"""Several prompts at once, as one stream.

>>> async for one in stagedoor.run_parallel([stagedoor.Task("claude", "…"), stagedoor.Task("codex", "…")], limit=2):
...     match one:
...         case stagedoor.Tagged(task=task, event=stagedoor.Done(status=status)): print(task.agent, status)
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Iterable
from contextlib import aclosing
from typing import Any

import msgspec

from . import api
from .api import Task
from .errors import StagedoorError
from .live import milliseconds
from .unified.events import Done, Event, stamp
from .unified.faults import error_of
from .unified.grammar import Grammar

HELD = 64
"""Events a task may be ahead of the reader; more of them slow its agent, and only that one."""


class Tagged(msgspec.Struct, frozen=True):
    """An event and whose it is. ``number`` is the task's place in the list, for tasks that are equal."""

    number: int
    task: Task
    event: Event

    @property
    def agent(self) -> str:
        return self.task.agent


async def run_parallel(tasks: Iterable[Task], *, limit: int | None = None, **options: Any) -> AsyncGenerator[Tagged]:
    """Run ``tasks`` at once, at most ``limit`` of them, and yield their events as they come, each with its task.

    Every task has a whole stream of its own, from ``init`` to one ``done``, in order; where several have something to
    say, they take turns. ``options`` hold for all; a task's own go over them, so each can have its timeout, budget and
    turn limit. A task that fails says so in its own stream (an ``error``, then ``done``) and disturbs no other one.
    Leaving the loop, or cancelling whoever is in it, stops every agent before it returns.
    """
    if limit is not None and limit < 1:
        raise ValueError(f"limit={limit}: at least one task must be able to run")
    lanes = [_Lane(number, task) for number, task in enumerate(tasks)]
    news = asyncio.Event()
    places = asyncio.Semaphore(limit if limit is not None else max(len(lanes), 1))
    workers = [
        asyncio.create_task(
            _work(lane, places, news, {**options, **lane.task.options}), name=f"stagedoor-task-{lane.number}"
        )
        for lane in lanes
    ]
    try:
        while True:
            spoke = False
            for lane in lanes:
                if lane.waiting:
                    spoke = True
                    yield Tagged(lane.number, lane.task, lane.take())
            if spoke:
                continue
            if all(worker.done() for worker in workers):
                break
            news.clear()
            if any(lane.waiting for lane in lanes):
                continue
            await news.wait()
        for worker in workers:
            worker.result()  # a fault of our own is not to be swallowed
    finally:
        for worker in workers:
            worker.cancel()
        await _ended(workers)


class _Lane:
    """What one task has said and nobody has read yet."""

    def __init__(self, number: int, task: Task) -> None:
        self.number = number
        self.task = task
        self.waiting: deque[Event] = deque()
        self._room = asyncio.Event()
        self._room.set()

    def take(self) -> Event:
        event = self.waiting.popleft()
        if len(self.waiting) < HELD:
            self._room.set()
        return event

    async def put(self, event: Event) -> None:
        await self._room.wait()
        self.waiting.append(event)
        if len(self.waiting) >= HELD:
            self._room.clear()


async def _work(lane: _Lane, places: asyncio.Semaphore, news: asyncio.Event, options: dict[str, Any]) -> None:
    try:
        async with places:
            await _stream(lane, news, options)
    finally:
        news.set()


async def _stream(lane: _Lane, news: asyncio.Event, options: dict[str, Any]) -> None:
    said, done = 0, False
    try:
        async with aclosing(api.run(lane.task.agent, lane.task.prompt, **options)) as events:
            async for event in events:
                said, done = event.seq, isinstance(event, Done)
                await lane.put(event)
                news.set()
    except (StagedoorError, OSError, TypeError, ValueError, ModuleNotFoundError) as fault:
        if not done:
            for event in _failure(lane.task.agent, fault, begun=said > 0, seq=said):
                await lane.put(event)
                news.set()


def _failure(agent: str, fault: Exception, *, begun: bool, seq: int) -> list[Event]:
    """What a task that could not be run says of itself."""
    made = Grammar().end("error", error_of(fault))
    now = milliseconds()
    kept = made[1:] if begun else made  # the first is init
    return [
        stamp(event, agent=agent, session_id="", seq=seq + number, timestamp=now, turn=0)
        for number, event in enumerate(kept, 1)
    ]


async def _ended(workers: list[asyncio.Task[None]]) -> None:
    """Wait for every worker, even when whoever waits is cancelled meanwhile: nothing may be left running."""
    cancelled = False
    while pending := [worker for worker in workers if not worker.done()]:
        try:
            await asyncio.wait(pending)
        except asyncio.CancelledError:
            cancelled = True
    if cancelled:
        raise asyncio.CancelledError
