"""Asks the caller's function about the server's questions: each on its own, none ever left open, every doubt a no."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import time
from collections.abc import Awaitable, Callable

from ...errors import AlreadyAnswered, LocalProtocolError, ProcessExited
from .commands import CurrentTime, Decision, Decline
from .config import CanUseTool
from .questions import CurrentTimeRead, Question, RequestId, result

NOBODY = "Nobody is there to answer; declined."
TOO_LATE = "No answer came in time; declined."
FAILED = "The permission callback failed; declined."

Deliver = Callable[[RequestId, Decision], Awaitable[None]]


class Answering:
    """The open questions of one thread and its sub-agents.

    ``waits`` leaves questions open for the caller's own ``answer()`` when there is no function to ask.
    """

    def __init__(
        self, can_use_tool: CanUseTool | None, timeout: float | None, *, waits: bool, deliver: Deliver
    ) -> None:
        self._can_use_tool = can_use_tool
        self._timeout = timeout
        self._waits = waits
        self._deliver = deliver
        self._tasks: dict[RequestId, asyncio.Task[None]] = {}

    def ask(self, question: Question) -> None:
        """Begin to answer; returns at once."""
        task = asyncio.get_running_loop().create_task(self._answer(question))
        self._tasks[question.request_id] = task
        task.add_done_callback(lambda done: self._forget(question.request_id, done))

    def close(self, request_id: RequestId) -> None:
        """The question is closed on the other side: stop asking."""
        if (task := self._tasks.pop(request_id, None)) is not None:
            task.cancel()

    def close_all_but(self, still_open: set[RequestId]) -> None:
        for request_id in [key for key in self._tasks if key not in still_open]:
            self.close(request_id)

    def _forget(self, request_id: RequestId, task: asyncio.Task[None]) -> None:
        if self._tasks.get(request_id) is task:
            del self._tasks[request_id]

    async def _answer(self, question: Question) -> None:
        decision = await self._decide(question)
        if decision is None:
            return
        with contextlib.suppress(AlreadyAnswered, ProcessExited):  # closed meanwhile, or everything has ended
            await self._deliver(question.request_id, decision)

    async def _decide(self, question: Question) -> Decision | None:
        if isinstance(question, CurrentTimeRead):
            return CurrentTime(int(time.time()))
        if self._can_use_tool is None and self._waits and self._timeout is None:
            return None
        if self._can_use_tool is None and not self._waits:
            return Decline(NOBODY)
        try:
            async with asyncio.timeout(self._timeout):
                return await self._consult(question)
        except TimeoutError:
            return Decline(TOO_LATE)

    async def _consult(self, question: Question) -> Decision:
        if self._can_use_tool is None:
            await asyncio.get_running_loop().create_future()  # until the time is up, or somebody calls answer()
            raise AssertionError("unreachable")
        try:
            answer = self._can_use_tool(question)
            decision: Decision = await answer if inspect.isawaitable(answer) else answer
            result(question, decision)
        except LocalProtocolError as error:
            return Decline(str(error))
        except Exception:
            return Decline(FAILED)
        return decision
