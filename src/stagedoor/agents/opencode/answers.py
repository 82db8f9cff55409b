"""Puts OpenCode's questions to the caller's functions: each on its own, every doubt a no."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeAlias, cast

import msgspec

from stagedoor.agents.acp.answers import call_identity
from stagedoor.agents.acp.requests import RequestPermission
from stagedoor.errors import StagedoorError
from stagedoor.transports.callbacks import CallbackLate, run_callback
from stagedoor.transports.tasks import TaskOwner
from stagedoor.wire.permission import PermissionBehavior

from .commands import RejectQuestion, ReplyPermission, ReplyQuestion
from .config import CanUseTool, OpenCodeAllow, OpenCodeDecision, OpenCodeReject, OpenCodeSessionConfig
from .events import PermissionAsked, QuestionAsked

AnswerCommand: TypeAlias = ReplyPermission | ReplyQuestion | RejectQuestion
Deliver: TypeAlias = Callable[[AnswerCommand], Awaitable[None]]
LATE = "No answer came in time."
REFUSED = "The user refused this call."


class OpenCodeAnswers:
    """The open questions of one conversation and its sub-agents."""

    def __init__(self, config: OpenCodeSessionConfig, deliver: Deliver) -> None:
        self._config = config
        self._deliver = deliver
        self._refused: set[bytes] = set()
        self._tasks = TaskOwner()

    def ask(self, question: PermissionAsked | QuestionAsked) -> None:
        """Start to answer; returns at once."""
        self._tasks.start(self._answer(question), key=question.id)

    def withdraw(self, question_id: str) -> None:
        """It was answered elsewhere: stop asking."""
        self._tasks.cancel(question_id)

    def withdraw_all(self) -> None:
        """The turn is over: stop asking."""
        self._tasks.cancel_all()

    async def close(self) -> None:
        await self._tasks.close()

    async def _answer(self, question: PermissionAsked | QuestionAsked) -> None:
        answer = await self._answer_of(question)
        if answer is not None:
            with contextlib.suppress(StagedoorError):  # closed meanwhile, or the server has ended
                await self._deliver(answer)

    async def _answer_of(self, question: PermissionAsked | QuestionAsked) -> AnswerCommand | None:
        config = self._config
        function = config.can_use_tool if isinstance(question, PermissionAsked) else config.answer_question
        if function is None and config.leave_open:
            if config.permission_timeout is None:
                return None
            await asyncio.sleep(config.permission_timeout)  # the caller's own answer withdraws the question
            if isinstance(question, QuestionAsked):
                return RejectQuestion(question.id)
            return permission_answer(question.id, OpenCodeReject(LATE))
        if isinstance(question, QuestionAsked):
            return await self._choices(question)
        return permission_answer(
            question.id,
            await decide(config.can_use_tool, question, refused=self._refused, timeout=config.permission_timeout),
        )

    async def _choices(self, question: QuestionAsked) -> AnswerCommand:
        function = self._config.answer_question
        try:
            answers: Sequence[Sequence[str]] | None = None
            if function is not None:
                answers = await run_callback(function, question, timeout=self._config.permission_timeout)
            if answers is None or isinstance(answers, str):
                return RejectQuestion(question.id)
            return choices_answer(question.id, answers)
        except Exception:  # late, broken, or no labels: nothing that it returned is an answer
            return RejectQuestion(question.id)


async def decide(
    can_use_tool: CanUseTool | None,
    question: PermissionAsked | RequestPermission,
    *,
    refused: set[bytes],
    timeout: float | None = None,
) -> OpenCodeDecision:
    """The decision of the caller's function; a no without one, and when it fails, is late or returns anything else.

    ``refused``: the calls of the session that are refused for good; OpenCode has no such answer.
    """
    if can_use_tool is None:
        return OpenCodeReject()
    call = _identity(question)
    if call in refused:
        return OpenCodeReject(REFUSED)
    try:
        decision = cast("object", await run_callback(can_use_tool, question, timeout=timeout))
    except CallbackLate:
        return OpenCodeReject(LATE)
    except Exception:
        return OpenCodeReject("The permission callback failed.")
    match decision:
        case OpenCodeAllow() | OpenCodeReject():
            return decision
        case PermissionBehavior.allow | PermissionBehavior.allow_always:
            return OpenCodeAllow(always=decision is PermissionBehavior.allow_always)
        case PermissionBehavior.deny:
            return OpenCodeReject(REFUSED)
        case PermissionBehavior.deny_always:
            refused.add(call)
            return OpenCodeReject(REFUSED)
        case _:
            return OpenCodeReject()


def _identity(question: PermissionAsked | RequestPermission) -> bytes:
    if isinstance(question, PermissionAsked):
        return msgspec.json.encode([question.permission, question.patterns, question.metadata], enc_hook=repr)
    return call_identity(question)


def permission_answer(permission_id: str, decision: OpenCodeDecision) -> ReplyPermission:
    if isinstance(decision, OpenCodeAllow):
        return ReplyPermission(permission_id, "always" if decision.always else "once")
    return ReplyPermission(permission_id, "reject", decision.message)


def choices_answer(question_id: str, answers: Sequence[Sequence[str]]) -> ReplyQuestion:
    return ReplyQuestion(question_id, tuple(tuple(labels) for labels in answers))
