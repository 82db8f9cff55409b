"""Asks the caller's function about the server's questions: each on its own, none ever left open, every doubt a no."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable, Collection

import msgspec

from ...errors import AlreadyAnswered, LocalProtocolError, ProcessExited
from ...transports.callbacks import CallbackLate, run_callback
from ...transports.tasks import TaskOwner
from ...wire.permission import PermissionBehavior
from .commands import Accept, AcceptForSession, CurrentTime, Decision, Decline
from .config import CanUseTool
from .questions import CurrentTimeRead, Question, RequestId, result

NOBODY = "Declined: no permission callback is set."
TOO_LATE = "Declined: no answer came in time."
FAILED = "Declined: the permission callback failed."
REMEMBERED = "Declined, as the same call was before."

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
        self._refused: set[bytes] = set()
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
        if _identity(question) in self._refused:
            return Decline(REMEMBERED)
        try:
            answer: Decision | PermissionBehavior = await run_callback(
                self._can_use_tool, question, timeout=self._timeout
            )
            decision = self._decision(question, answer) if isinstance(answer, PermissionBehavior) else answer
            result(question, decision)
        except CallbackLate:
            return Decline(TOO_LATE)
        except LocalProtocolError as error:
            return Decline(str(error))
        except Exception:
            return Decline(FAILED)
        return decision

    def _decision(self, question: Question, behavior: PermissionBehavior) -> Decision:
        match behavior:
            case PermissionBehavior.allow:
                return Accept()
            case PermissionBehavior.allow_always:
                try:
                    result(question, AcceptForSession())
                except LocalProtocolError:  # a question that can only be answered for this once
                    return Accept()
                return AcceptForSession()
            case PermissionBehavior.deny:
                return Decline()
            case PermissionBehavior.deny_always:  # Codex has no such answer
                self._refused.add(_identity(question))
                return Decline()


OF_THE_MOMENT = frozenset({"request_id", "item_id", "call_id", "approval_id", "native_turn_id", "stamp"})
"""The fields of a question that differ though it asks the same."""


def _identity(question: Question) -> bytes:
    fields = msgspec.structs.asdict(question)
    return msgspec.json.encode(
        [type(question).__name__, {name: value for name, value in fields.items() if name not in OF_THE_MOMENT}],
        enc_hook=repr,
        order="deterministic",
    )
