"""Questions that are asked without holding anybody up."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable

import pytest

from stagedoor.agents.codex.answers import FAILED, NOBODY, TOO_LATE, CodexAnswerer
from stagedoor.agents.codex.commands import Accept, Answers, CurrentTime, Decision, Decline
from stagedoor.agents.codex.config import CanUseTool
from stagedoor.agents.codex.questions import CommandExecutionRequestApproval, CurrentTimeRead, Question, RequestId
from stagedoor.errors import AlreadyAnswered

BOUND = 240.0
QUESTION = CommandExecutionRequestApproval(request_id=0, thread_id="t", command="ls")


def decisions(
    can_use_tool: CanUseTool | None, *, timeout: float | None = None, waits: bool = True, question: Question = QUESTION
) -> Decision:
    async def main() -> Decision:
        answered: asyncio.Future[Decision] = asyncio.get_running_loop().create_future()

        async def deliver(request_id: RequestId, decision: Decision) -> None:
            assert request_id == question.request_id
            answered.set_result(decision)

        async with asyncio.timeout(BOUND):
            CodexAnswerer(can_use_tool, timeout, waits=waits, deliver=deliver).ask(question)
            return await answered

    return asyncio.run(main())


def sync_yes(question: Question) -> Decision:
    return Accept()


async def async_yes(question: Question) -> Decision:
    return Accept()


def broken(question: Question) -> Decision:
    raise RuntimeError("no idea")


async def silent(question: Question) -> Decision:
    await asyncio.get_running_loop().create_future()
    return Accept()


def misfit(question: Question) -> Decision:
    return Answers({})


def nonsense(question: Question) -> Decision:
    return True  # type: ignore[return-value]


MISFIT = "Answers does not answer a CommandExecutionRequestApproval; use Accept, Decline or CancelTurn"
NONSENSE = "bool does not answer a CommandExecutionRequestApproval; use Accept, Decline or CancelTurn"


@pytest.mark.parametrize(
    ("can_use_tool", "timeout", "waits", "expected"),
    [
        (sync_yes, None, True, Accept()),
        (async_yes, 5.0, True, Accept()),
        (broken, None, True, Decline(FAILED)),
        (silent, 0.01, True, Decline(TOO_LATE)),
        (misfit, None, True, Decline(MISFIT)),
        (nonsense, None, True, Decline(NONSENSE)),
        (None, None, False, Decline(NOBODY)),
        (None, 0.01, True, Decline(TOO_LATE)),
    ],
)
def test_every_doubt_is_a_no(
    can_use_tool: Callable[[Question], Decision | Awaitable[Decision]] | None,
    timeout: float | None,
    waits: bool,
    expected: Decision,
) -> None:
    assert decisions(can_use_tool, timeout=timeout, waits=waits) == expected


def test_the_time_is_told_without_asking() -> None:
    assert isinstance(decisions(None, question=CurrentTimeRead(request_id=1, thread_id="t")), CurrentTime)


def test_one_waiting_human_holds_up_nobody() -> None:
    async def main() -> None:
        delivered: list[RequestId] = []
        second_done = asyncio.Event()
        patience: dict[RequestId, asyncio.Future[Decision]] = {}

        async def ask(question: Question) -> Decision:
            patience[question.request_id] = asyncio.get_running_loop().create_future()
            return await patience[question.request_id]

        async def deliver(request_id: RequestId, decision: Decision) -> None:
            delivered.append(request_id)
            second_done.set()
            raise AlreadyAnswered("too late")  # what the protocol says to late answers; it must not surface anywhere

        answerer = CodexAnswerer(ask, None, waits=True, deliver=deliver)
        for number in range(3):
            answerer.ask(CommandExecutionRequestApproval(request_id=number, thread_id="t"))
        async with asyncio.timeout(BOUND):
            while len(patience) < 3:
                await asyncio.sleep(0)
            patience[1].set_result(Accept())
            await second_done.wait()
            answerer.close(0)
            answerer.close_all_but(set())
            while not (patience[0].cancelled() and patience[2].cancelled()):
                await asyncio.sleep(0)
        assert delivered == [1]

    asyncio.run(main())


def test_a_plain_function_that_sleeps_too_long_stalls_nobody_and_is_not_obeyed() -> None:
    woken = threading.Event()
    asleep = threading.Event()
    ended = threading.Event()

    def sleepy(question: Question) -> Decision:
        asleep.set()
        woken.wait(BOUND)
        ended.set()
        return Accept()

    async def main() -> list[Decision]:
        delivered: list[Decision] = []
        declined = asyncio.Event()

        async def deliver(request_id: RequestId, decision: Decision) -> None:
            delivered.append(decision)
            declined.set()

        answerer = CodexAnswerer(sleepy, 0.05, waits=True, deliver=deliver)
        async with asyncio.timeout(BOUND):
            answerer.ask(QUESTION)
            await declined.wait()  # the loop runs although the function still sleeps
            assert asleep.is_set()
            assert not ended.is_set()
            woken.set()
            await asyncio.to_thread(ended.wait, BOUND)
            await asyncio.to_thread(lambda: None)  # whatever the function still has to deliver comes before this
        return delivered

    assert asyncio.run(main()) == [Decline(TOO_LATE)]
