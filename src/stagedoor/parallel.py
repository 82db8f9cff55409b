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
from typing import Unpack

import msgspec

from . import api
from .api import Task
from .engine import milliseconds
from .errors import StagedoorError
from .transports.tasks import TaskOwner
from .unified.events import Done, Event, stamp
from .unified.faults import error_of
from .unified.grammar import Grammar
from .unified.options import OpenOptions

LEAD = 64
"""Events a task may be ahead of the reader; more of them slow its agent, and only that one."""


class Tagged(msgspec.Struct, frozen=True):
    """An event and whose it is. ``number`` is the task's place in the list, for tasks that are equal."""

    number: int
    task: Task
    event: Event

    @property
    def agent(self) -> str:
        return _name(self.task)


async def run_parallel(
    tasks: Iterable[Task], *, limit: int | None = None, **options: Unpack[OpenOptions]
) -> AsyncGenerator[Tagged]:
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
    tasks_running = TaskOwner()
    workers = [
        tasks_running.start(
            _work(lane, places, news, {**options, **lane.task.options}), name=f"stagedoor-task-{lane.number}"
        )
        for lane in lanes
    ]
    try:
        while True:
            progress = False
            for lane in lanes:
                if lane.waiting:
                    progress = True
                    yield Tagged(lane.number, lane.task, lane.take())
            if progress:
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
        await tasks_running.close()


def _name(task: Task) -> str:
    return task.agent if isinstance(task.agent, str) else task.agent.name


class _Lane:
    """The events of one task that nobody has read yet."""

    def __init__(self, number: int, task: Task) -> None:
        self.number = number
        self.task = task
        self.waiting: deque[Event] = deque()
        self._room = asyncio.Event()
        self._room.set()

    def take(self) -> Event:
        event = self.waiting.popleft()
        if len(self.waiting) < LEAD:
            self._room.set()
        return event

    async def put(self, event: Event) -> None:
        await self._room.wait()
        self.waiting.append(event)
        if len(self.waiting) >= LEAD:
            self._room.clear()


async def _work(lane: _Lane, places: asyncio.Semaphore, news: asyncio.Event, options: OpenOptions) -> None:
    try:
        async with places:
            await _stream(lane, news, options)
    finally:
        news.set()


async def _stream(lane: _Lane, news: asyncio.Event, options: OpenOptions) -> None:
    last_seq, done = 0, False
    try:
        async with aclosing(api.run(lane.task.agent, lane.task.prompt, **options)) as events:
            async for event in events:
                last_seq, done = event.seq, isinstance(event, Done)
                await lane.put(event)
                news.set()
    except (StagedoorError, OSError, TypeError, ValueError, ModuleNotFoundError) as fault:
        if not done:
            for event in _failure(_name(lane.task), fault, started=last_seq > 0, seq=last_seq):
                await lane.put(event)
                news.set()


def _failure(agent: str, fault: Exception, *, started: bool, seq: int) -> list[Event]:
    """What a task that could not be run says of itself."""
    events = Grammar().end("error", error_of(fault))
    now = milliseconds()
    if started:
        events = events[1:]  # the first is init
    return [
        stamp(event, agent=agent, session_id="", seq=seq + number, timestamp=now, turn=0)
        for number, event in enumerate(events, 1)
    ]
