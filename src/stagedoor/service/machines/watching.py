"""The folder of a session on another machine, watched from a door: the machine watches it, and the door asks, step by
step, what was touched since the step before."""

from __future__ import annotations

import asyncio
import contextlib
import time
import uuid
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing

from stagedoor.errors import StagedoorError
from stagedoor.transports.tasks import TaskOwner

from ..workspaces import Workspaces
from ..workspaces.watch import Touched

WAIT = 20.0
"""Seconds after which a machine answers that nothing was touched."""
IDLE = 90.0
"""Seconds after which a machine ends a watch that nobody asks for any more."""
MOST_WATCHES = 200
MOST_STEPS = 500
"""Of what was touched and not asked for; then it is said that there was more."""
_SWEEP = object()


class FolderWatch:
    """One that a door follows."""

    def __init__(self) -> None:
        self.waiting: list[Touched] = []
        self.more = asyncio.Event()
        self.fault: StagedoorError | None = None
        self.ended = False
        self.step = 0
        self.last: list[Touched] | None = []
        """The answer to this step: it is given again to whoever asks again."""
        self.asking = 0
        """How many wait for an answer just now."""
        self.asked_at = time.monotonic()


class FolderWatches:
    """On the machine with the folders."""

    def __init__(self, workspaces: Workspaces) -> None:
        self._workspaces = workspaces
        self._watches: dict[str, FolderWatch] = {}
        self._tasks = TaskOwner()
        self._stopping = False

    async def touched(self, session_id: str, *, watch: str, step: int) -> list[Touched] | None:
        """What was touched since the step before; nothing for a while: an empty list; ``None``: the watch has ended,
        because the folder is gone. The first step answers with an empty one when it has begun. A machine that does not
        know the watch any more says that there was more."""
        followed = self._watches.get(watch)
        if followed is None:
            if self._stopping:
                return []
            followed = self._watches[watch] = FolderWatch()
            self._tasks.start(self._follow(session_id, followed), key=watch)
            if step > 1:
                followed.waiting.append(Touched(git=True, cut=True))
                followed.more.set()
            self._forget()
            self._tasks.start(self._sweep(), key=_SWEEP)
        followed.asking += 1
        try:
            return await self._answer(followed, step)
        finally:
            followed.asking -= 1
            followed.asked_at = time.monotonic()

    async def stop(self) -> None:
        """Whoever waits is answered at once."""
        self._stopping = True
        for watch in self._watches.values():
            watch.more.set()
        await self._tasks.close()

    async def _answer(self, followed: FolderWatch, step: int) -> list[Touched] | None:
        if step == followed.step:
            return followed.last
        if not followed.waiting and not followed.ended and not self._stopping:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(WAIT):
                    await followed.more.wait()
        if not followed.waiting and followed.fault is not None:
            raise followed.fault
        is_over = followed.ended and not followed.waiting
        followed.step, followed.last, followed.waiting = step, None if is_over else followed.waiting, []
        if not followed.ended:
            followed.more.clear()
        return followed.last

    async def _follow(self, session_id: str, watch: FolderWatch) -> None:
        is_over = True
        try:
            async with aclosing(self._workspaces.watch(session_id)) as touches:
                async for touched in touches:
                    if len(watch.waiting) >= MOST_STEPS:
                        watch.waiting = [Touched(git=True, cut=True)]
                    watch.waiting.append(touched)
                    watch.more.set()
        except StagedoorError as fault:
            watch.fault = fault
        except asyncio.CancelledError:  # it is forgotten, or this machine stops: the folder is still there
            is_over = False
            raise
        finally:
            watch.ended = is_over
            watch.more.set()

    async def _sweep(self) -> None:
        while self._watches:
            oldest = min(watch.asked_at for watch in self._watches.values())
            await asyncio.sleep(max(oldest + IDLE - time.monotonic(), IDLE / 10))
            self._forget()

    def _forget(self) -> None:
        now = time.monotonic()
        by_age = sorted(self._watches, key=lambda name: self._watches[name].asked_at)
        for place, name in enumerate(by_age):
            watch = self._watches[name]
            is_idle = not watch.asking and watch.asked_at < now - IDLE
            if is_idle or len(by_age) - place > MOST_WATCHES:
                del self._watches[name]
                self._tasks.cancel(name)


async def watch_elsewhere(
    ask: Callable[..., Awaitable[list[Touched] | None]], session_id: str
) -> AsyncGenerator[Touched]:
    """At a door. ``ask`` is ``FolderWatches.touched`` of the machine with the folder."""
    name, step = uuid.uuid4().hex, 1
    while (touches := await ask(session_id, watch=name, step=step)) is not None:
        for touched in touches:
            yield touched
        step += 1
