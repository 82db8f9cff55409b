"""Every task has one owner. What an owner started ends with it, and none is forgotten."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Coroutine, Hashable
from typing import Any, TypeVar

T = TypeVar("T")


class TaskOwner:
    """Starts tasks and keeps them until they end. A task with a ``key`` can be cancelled by it; the next one with the
    same key replaces it.

    Where the tasks belong to one block of code, ``asyncio.TaskGroup`` is the better owner; this one is for objects
    whose tasks come and go over their life.
    """

    def __init__(self) -> None:
        self._tasks: dict[Hashable, asyncio.Task[Any]] = {}

    def __len__(self) -> int:
        return len(self._tasks)

    def __contains__(self, key: Hashable) -> bool:
        return key in self._tasks

    def start(self, work: Coroutine[Any, Any, T], *, key: Hashable = None, name: str | None = None) -> asyncio.Task[T]:
        """Run ``work`` at once. Its result, or what it raised, is for whoever awaits the task."""
        task = asyncio.get_running_loop().create_task(work, name=name)
        place = task if key is None else key
        self.cancel(place)
        self._tasks[place] = task
        task.add_done_callback(lambda ended: self._forget(place, ended))
        return task

    def cancel(self, key: Hashable) -> None:
        """End the task with this key, if there is one. A task does not end itself."""
        task = self._tasks.get(key)
        if task is not None and task is not _current():
            del self._tasks[key]
            task.cancel()

    def cancel_all(self, *, keep: Collection[Hashable] = ()) -> None:
        """End all tasks but those whose keys are in ``keep``."""
        for key in [key for key in self._tasks if key not in keep]:
            self.cancel(key)

    async def finish(self, timeout: float | None = None) -> bool:
        """Wait until everything has ended by itself, what is started meanwhile included. False: time was up."""
        loop = asyncio.get_running_loop()
        until = None if timeout is None else loop.time() + timeout
        while waiting := self._others():
            left = None if until is None else until - loop.time()
            if left is not None and left <= 0:
                return False
            await asyncio.wait(waiting, timeout=left, return_when=asyncio.FIRST_COMPLETED)
        return True

    async def close(self) -> None:
        """Cancel everything and wait until it has ended, even when whoever waits is cancelled meanwhile."""
        cancelled = False
        ending: set[asyncio.Task[Any]] = set()
        while waiting := self._others():
            for task in waiting:
                if task not in ending:
                    ending.add(task)
                    task.cancel()
            try:
                await asyncio.wait(waiting)
            except asyncio.CancelledError:
                cancelled = True
        if cancelled:
            raise asyncio.CancelledError

    def _others(self) -> list[asyncio.Task[Any]]:
        current = _current()
        return [task for task in self._tasks.values() if task is not current and not task.done()]

    def _forget(self, key: Hashable, task: asyncio.Task[Any]) -> None:
        if self._tasks.get(key) is task:
            del self._tasks[key]


def _current() -> asyncio.Task[Any] | None:
    try:
        return asyncio.current_task()
    except RuntimeError:  # no loop runs: a finalizer calls
        return None
