"""Questions put to the caller: each on its own, every doubt a no."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from stagedoor.agents.opencode import OpenCodeAllow, OpenCodeReject, OpenCodeSessionConfig
from stagedoor.agents.opencode.answers import AnswerCommand, OpenCodeAnswers
from stagedoor.agents.opencode.commands import RejectQuestion, ReplyPermission, ReplyQuestion
from stagedoor.agents.opencode.events import PermissionAsked, QuestionAsked
from stagedoor.errors import AlreadyAnswered

PERMISSION = PermissionAsked(id="per_1", permission="bash", patterns=["ls"])
QUESTION = QuestionAsked(id="que_1")


async def later(decision: Any) -> Any:
    await asyncio.sleep(0)
    return decision


async def never(_: Any) -> Any:
    await asyncio.Event().wait()


def broken(_: Any) -> Any:
    raise RuntimeError("a bug of the caller")


def answered(config: OpenCodeSessionConfig, question: PermissionAsked | QuestionAsked) -> AnswerCommand:
    async def main() -> AnswerCommand:
        replied: asyncio.Future[AnswerCommand] = asyncio.get_running_loop().create_future()

        async def deliver(reply: AnswerCommand) -> None:
            replied.set_result(reply)

        OpenCodeAnswers(config, deliver).ask(question)
        async with asyncio.timeout(240):
            return await replied

    return asyncio.run(main())


@pytest.mark.parametrize(
    ("config", "reply"),
    [
        (OpenCodeSessionConfig(), ReplyPermission("per_1", "reject")),
        (OpenCodeSessionConfig(can_use_tool=lambda _: OpenCodeAllow()), ReplyPermission("per_1", "once")),
        (
            OpenCodeSessionConfig(can_use_tool=lambda _: later(OpenCodeAllow(always=True))),
            ReplyPermission("per_1", "always"),
        ),
        (
            OpenCodeSessionConfig(can_use_tool=lambda _: OpenCodeReject("Use git.")),
            ReplyPermission("per_1", "reject", "Use git."),
        ),
        (OpenCodeSessionConfig(can_use_tool=lambda _: True), ReplyPermission("per_1", "reject")),  # type: ignore[arg-type, return-value]
        (
            OpenCodeSessionConfig(can_use_tool=broken),
            ReplyPermission("per_1", "reject", "The permission callback failed."),
        ),
        (
            OpenCodeSessionConfig(can_use_tool=never, permission_timeout=0.01),
            ReplyPermission("per_1", "reject", "No answer came in time."),
        ),
        (
            OpenCodeSessionConfig(leave_open=True, permission_timeout=0.01),
            ReplyPermission("per_1", "reject", "No answer came in time."),
        ),
    ],
)
def test_permissions(config: OpenCodeSessionConfig, reply: AnswerCommand) -> None:
    assert answered(config, PERMISSION) == reply


@pytest.mark.parametrize(
    ("config", "reply"),
    [
        (OpenCodeSessionConfig(), RejectQuestion("que_1")),
        (OpenCodeSessionConfig(answer_question=lambda _: [["A", "B"]]), ReplyQuestion("que_1", (("A", "B"),))),
        (OpenCodeSessionConfig(answer_question=lambda _: later([["A"]])), ReplyQuestion("que_1", (("A",),))),
        (OpenCodeSessionConfig(answer_question=lambda _: None), RejectQuestion("que_1")),
        (OpenCodeSessionConfig(answer_question=lambda _: "A"), RejectQuestion("que_1")),
        (OpenCodeSessionConfig(answer_question=broken), RejectQuestion("que_1")),
        (OpenCodeSessionConfig(answer_question=never, permission_timeout=0.01), RejectQuestion("que_1")),
    ],
)
def test_questions(config: OpenCodeSessionConfig, reply: AnswerCommand) -> None:
    assert answered(config, QUESTION) == reply


def test_a_plain_function_that_is_late_neither_stalls_the_loop_nor_is_obeyed() -> None:
    released, returned = threading.Event(), threading.Event()

    def ask(_: Any) -> OpenCodeAllow:
        released.wait(60)
        returned.set()
        return OpenCodeAllow()

    async def main() -> None:
        replies: list[AnswerCommand] = []
        delivered = asyncio.Event()

        async def deliver(reply: AnswerCommand) -> None:
            replies.append(reply)
            delivered.set()

        answers = OpenCodeAnswers(OpenCodeSessionConfig(can_use_tool=ask, permission_timeout=0.01), deliver)
        answers.ask(PERMISSION)
        async with asyncio.timeout(240):
            await delivered.wait()
        released.set()
        assert await asyncio.to_thread(returned.wait, 60)
        await answers.close()
        assert replies == [ReplyPermission("per_1", "reject", "No answer came in time.")]

    asyncio.run(main())


def test_a_waiting_question_blocks_no_other_and_can_be_closed() -> None:
    async def main() -> None:
        replies: list[AnswerCommand] = []
        waiting = asyncio.Event()

        async def decide(question: Any) -> Any:
            if question.id == "per_1":
                waiting.set()
                await asyncio.Event().wait()
            return OpenCodeAllow()

        async def deliver(reply: AnswerCommand) -> None:
            replies.append(reply)
            raise AlreadyAnswered("closed meanwhile")

        answers = OpenCodeAnswers(OpenCodeSessionConfig(can_use_tool=decide), deliver)
        answers.ask(PERMISSION)
        answers.ask(PermissionAsked(id="per_2"))
        async with asyncio.timeout(240):
            await waiting.wait()
            while not replies:
                await asyncio.sleep(0)
        answers.withdraw("per_1")
        answers.withdraw_all()
        await asyncio.sleep(0)
        assert replies == [ReplyPermission("per_2", "once")]

    asyncio.run(main())
