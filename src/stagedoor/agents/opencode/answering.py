"""Asks the caller's functions about OpenCode's questions: each on its own, every doubt a no."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
from collections.abc import Awaitable, Callable, Sequence
from typing import cast

from stagedoor.agents.acp.requests import RequestPermission
from stagedoor.errors import StagedoorError

from .commands import RejectQuestion, ReplyPermission, ReplyQuestion
from .config import Allow, CanUseTool, Decision, OpenCodeConfig, Reject
from .events import PermissionAsked, QuestionAsked

Reply = ReplyPermission | ReplyQuestion | RejectQuestion
Deliver = Callable[[Reply], Awaitable[None]]


class Answering:
    """The open questions of one conversation and its sub-agents."""

    def __init__(self, config: OpenCodeConfig, deliver: Deliver) -> None:
        self._config = config
        self._deliver = deliver
        self._tasks: dict[str, asyncio.Task[None]] = {}

    def ask(self, question: PermissionAsked | QuestionAsked) -> None:
        """Begin to answer; returns at once."""
        task = asyncio.get_running_loop().create_task(self._answer(question))
        self._tasks[question.id] = task
        task.add_done_callback(lambda done: self._forget(question.id, done))

    def close(self, question_id: str) -> None:
        """It was answered elsewhere, or its turn is over: stop asking."""
        task = self._tasks.pop(question_id, None)
        if task is not None and task is not asyncio.current_task():
            task.cancel()

    def close_all(self) -> None:
        for question_id in list(self._tasks):
            self.close(question_id)

    def _forget(self, question_id: str, task: asyncio.Task[None]) -> None:
        if self._tasks.get(question_id) is task:
            del self._tasks[question_id]

    async def _answer(self, question: PermissionAsked | QuestionAsked) -> None:
        reply = await self._reply(question)
        if reply is not None:
            with contextlib.suppress(StagedoorError):  # closed meanwhile, or the server is gone
                await self._deliver(reply)

    async def _reply(self, question: PermissionAsked | QuestionAsked) -> Reply | None:
        config = self._config
        asked = config.can_use_tool if isinstance(question, PermissionAsked) else config.answer_question
        if asked is None and config.leave_open and config.permission_timeout is None:
            return None
        try:
            async with asyncio.timeout(config.permission_timeout):
                if asked is None and config.leave_open:
                    await asyncio.get_running_loop().create_future()  # until the time is up, or it is answered
                if isinstance(question, PermissionAsked):
                    return _permission(question, await decide(config.can_use_tool, question))
                return await self._choices(question)
        except TimeoutError:
            late = "No answer came in time."
            return _permission(question, Reject(late)) if isinstance(question, PermissionAsked) else _no(question)

    async def _choices(self, question: QuestionAsked) -> Reply:
        if self._config.answer_question is None:
            return _no(question)
        try:
            given = self._config.answer_question(question)
            answers: Sequence[Sequence[str]] | None = await given if inspect.isawaitable(given) else given
            if answers is None or isinstance(answers, str):
                return _no(question)
            return ReplyQuestion(question.id, tuple(tuple(labels) for labels in answers))
        except Exception:
            return _no(question)


async def decide(can_use_tool: CanUseTool | None, question: PermissionAsked | RequestPermission) -> Decision:
    """What the caller's function says; a no when there is none, when it fails, or when it says anything else."""
    if can_use_tool is None:
        return Reject()
    try:
        given = can_use_tool(question)
        decision = cast("object", await given if inspect.isawaitable(given) else given)
    except Exception:
        return Reject("The permission callback failed.")
    return decision if isinstance(decision, (Allow, Reject)) else Reject()


def _permission(question: PermissionAsked, decision: Decision) -> ReplyPermission:
    if isinstance(decision, Allow):
        return ReplyPermission(question.id, "always" if decision.always else "once")
    return ReplyPermission(question.id, "reject", decision.message)


def _no(question: QuestionAsked) -> RejectQuestion:
    return RejectQuestion(question.id)
