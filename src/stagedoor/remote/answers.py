"""A ``can_use_tool`` callback on this side for questions of a session on the server."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from typing import TypeAlias

from ..errors import AlreadyAnswered, BadRequest, SessionEnded, SessionNotFound, StagedoorError
from ..permissions.questions import callback_decision
from ..transports.tasks import TaskOwner
from ..unified.decisions import CanUseTool, Decision, Deny
from ..unified.events import Event, PermissionRequest, PermissionResolved

Post: TypeAlias = Callable[[str, Decision], Awaitable[None]]


class CallbackAnswers:
    """Calls ``callback`` for every question that is still open, all at once, and posts its decisions.

    Somebody else may answer first: then the callback is cancelled, or its answer is late, which is not an error.
    ``fail`` is called when an answer cannot be posted at all.
    """

    def __init__(self, callback: CanUseTool, post: Post, fail: Callable[[StagedoorError], None]) -> None:
        self._callback = callback
        self._post = post
        self._fail = fail
        self._open: dict[str, PermissionRequest] = {}
        self._passed_on: set[str] = set()
        self._tasks = TaskOwner()
        """By request id, while the callback runs: once it has decided, nothing cancels the posting."""

    def receive(self, events: Iterable[Event], *, current: bool) -> None:
        """``current``: these are the newest events, so what is not resolved by now is open. Before that nobody is
        asked."""
        for event in events:
            if isinstance(event, PermissionRequest):
                if event.automatic:
                    continue
                self._open[event.request_id] = event
            elif isinstance(event, PermissionResolved):
                self._open.pop(event.request_id, None)
                self._tasks.cancel(event.request_id)
        if not current:
            return
        for request_id in self._open.keys() - self._passed_on:
            self._passed_on.add(request_id)
            self._tasks.start(self._decide(self._open[request_id]), key=request_id)

    async def close(self) -> None:
        await self._tasks.close()

    async def _decide(self, request: PermissionRequest) -> None:
        decision = await callback_decision(self._callback, request)
        self._tasks.start(self._answer(request.request_id, decision))

    async def _answer(self, request_id: str, decision: Decision) -> None:
        try:
            with suppress(AlreadyAnswered, SessionEnded, SessionNotFound):
                try:
                    await self._post(request_id, decision)
                except BadRequest as refused:  # such as a changed input that the agent cannot take: then deny
                    await self._post(request_id, Deny(str(refused)))
        except StagedoorError as fault:
            self._fail(fault)
