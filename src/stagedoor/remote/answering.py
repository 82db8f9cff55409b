"""A ``can_use_tool`` callback on this side for questions asked on the other."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from typing import TypeAlias

from ..errors import AlreadyAnswered, BadRequest, SessionEnded, SessionNotFound, StagedoorError
from ..permissions.questions import callback_decision
from ..unified.decisions import CanUseTool, Decision, Deny
from ..unified.events import Event, PermissionRequest, PermissionResolved

Post: TypeAlias = Callable[[str, Decision], Awaitable[None]]


class Answering:
    """Calls ``callback`` for every question that is still open, all at once, and posts what it says.

    Somebody else may be faster: then the callback is cancelled, or its answer is late, which is no error. ``failed`` is
    told when an answer cannot be given at all.
    """

    def __init__(self, callback: CanUseTool, post: Post, failed: Callable[[StagedoorError], None]) -> None:
        self._callback = callback
        self._post = post
        self._failed = failed
        self._open: dict[str, PermissionRequest] = {}
        self._asked: dict[str, asyncio.Task[None]] = {}
        self._decided: set[str] = set()

    def hear(self, events: Iterable[Event], *, current: bool) -> None:
        """``current``: nothing newer is known, so what is not resolved by now is open. Before that nobody is asked."""
        for event in events:
            if isinstance(event, PermissionRequest):
                self._open[event.request_id] = event
            elif isinstance(event, PermissionResolved):
                self._open.pop(event.request_id, None)
                asked = self._asked.get(event.request_id)
                if asked is not None and event.request_id not in self._decided:
                    asked.cancel()
        if not current:
            return
        for request_id in self._open.keys() - self._asked.keys():
            self._asked[request_id] = asyncio.get_running_loop().create_task(self._answer(self._open[request_id]))

    async def close(self) -> None:
        tasks = list(self._asked.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _answer(self, request: PermissionRequest) -> None:
        decision = await callback_decision(self._callback, request)
        self._decided.add(request.request_id)
        late = (AlreadyAnswered, SessionEnded, SessionNotFound)
        try:
            with suppress(*late):
                try:
                    await self._post(request.request_id, decision)
                except BadRequest as refused:  # such as a changed input that the agent does not take: then not at all
                    await self._post(request.request_id, Deny(str(refused)))
        except StagedoorError as fault:
            self._failed(fault)
