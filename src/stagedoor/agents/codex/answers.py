"""Asks the caller's function about the server's questions: each on its own, none ever left open, every doubt a no."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable, Collection

from ...errors import AlreadyAnswered, LocalProtocolError, ProcessExited
from ...transports.callbacks import CallbackLate, run_callback
from ...transports.tasks import TaskOwner
from .commands import CurrentTime, Decision, Decline
from .config import CanUseTool
from .questions import CurrentTimeRead, Question, RequestId, result

NOBODY = "Declined: no permission callback is set."
TOO_LATE = "Declined: no answer came in time."
FAILED = "Declined: the permission callback failed."

Deliver = Callable[[RequestId, Decision], Awaitable[None]]


class CodexAnswerer:
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
        self._tasks = TaskOwner()

    def ask(self, question: Question) -> None:
        """Begin to answer; returns at once."""
        self._tasks.start(self._answer(question), key=question.request_id, name="stagedoor codex question")

    def close(self, request_id: RequestId) -> None:
        """The question is closed on the other side: stop asking."""
        self._tasks.cancel(request_id)

    def close_all_but(self, still_open: Collection[RequestId]) -> None:
        self._tasks.cancel_all(keep=still_open)

    async def _answer(self, question: Question) -> None:
        decision = await self._decide(question)
        if decision is None:
            return
        with contextlib.suppress(AlreadyAnswered, ProcessExited):  # closed meanwhile, or everything has ended
            await self._deliver(question.request_id, decision)

    async def _decide(self, question: Question) -> Decision | None:
        if isinstance(question, CurrentTimeRead):
            return CurrentTime(int(time.time()))
        if self._can_use_tool is None:
            if not self._waits:
                return Decline(NOBODY)
            if self._timeout is None:
                return None
            await asyncio.sleep(self._timeout)  # answer() cancels this task
            return Decline(TOO_LATE)
        try:
            decision: Decision = await run_callback(self._can_use_tool, question, timeout=self._timeout)
            result(question, decision)
        except CallbackLate:
            return Decline(TOO_LATE)
        except LocalProtocolError as error:
            return Decline(str(error))
        except Exception:
            return Decline(FAILED)
        return decision
