"""Several threads on one pipe, and questions that are asked without holding anybody up."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from stagedoor.agents.codex.answering import FAILED, NOBODY, TOO_LATE, Answering
from stagedoor.agents.codex.commands import Accept, Answers, CurrentTime, Decision, Decline
from stagedoor.agents.codex.config import CanUseTool
from stagedoor.agents.codex.conversations import Conversations
from stagedoor.agents.codex.notifications import (
    AppEvent,
    ConfigWarningNotification,
    ItemCompletedNotification,
    ThreadStatusChangedNotification,
)
from stagedoor.agents.codex.questions import CommandExecutionRequestApproval, CurrentTimeRead, Question, RequestId
from stagedoor.agents.codex.switchboard import Switchboard, thread_of
from stagedoor.agents.codex.thread_items import CollabAgentToolCallThreadItem
from stagedoor.errors import AlreadyAnswered
from stagedoor.transports.launch import Exited
from stagedoor.transports.relay import Relay
from stagedoor.wire.shapes import Unrecognized

BOUND = 60.0


def said(thread_id: str) -> tuple[bytes, AppEvent]:
    return b"", ThreadStatusChangedNotification(thread_id)


def spawned(parent: str, child: str) -> tuple[bytes, AppEvent]:
    call = CollabAgentToolCallThreadItem("i", "spawnAgent", "completed", parent, [child])
    return b"", ItemCompletedNotification(parent, "u", call)


EVERYWHERE: tuple[bytes, AppEvent] = (b"", ConfigWarningNotification("careful"))
END: tuple[bytes, AppEvent] = (b"", Exited(0))


async def all_of(relay: Relay[tuple[bytes, AppEvent]]) -> list[tuple[bytes, AppEvent]]:
    return [pair async for pair in relay.reader()]


def test_threads_hear_of_themselves_and_their_own() -> None:
    async def main() -> None:
        conversations = Conversations()
        board = Switchboard(conversations)
        await board.publish([EVERYWHERE])
        board.expecting = 1
        await board.publish([said("a")])
        first = await board.open("a")
        second = await board.open("b")
        board.expecting = 0
        await board.publish([said("b"), said("child"), EVERYWHERE])
        introduction = spawned("b", "child")
        assert isinstance(introduction[1], ItemCompletedNotification)
        conversations.learn(introduction[1])
        await board.publish([introduction, said("child"), said("a")])
        await board.publish([END])
        assert await all_of(first) == [EVERYWHERE, said("a"), EVERYWHERE, said("a"), END]
        assert await all_of(second) == [
            said("b"),
            EVERYWHERE,
            said("child"),
            introduction,
            said("child"),
            END,
        ]
        late = await board.open("c")
        assert await all_of(late) == [END]

    asyncio.run(main())


def test_the_only_thread_hears_of_sub_agents_nobody_introduced() -> None:
    async def main() -> None:
        board = Switchboard(Conversations())
        only = await board.open("a")
        stranger = b'{"method":"thread/new/thing","params":{"threadId":"x"}}'
        await board.publish([said("x"), (stranger, Unrecognized(stranger, "unknown")), END])
        assert await all_of(only) == [said("x"), (stranger, Unrecognized(stranger, "unknown")), END]
        board.close("a")
        assert board.home("a") == "a"

    asyncio.run(main())


def test_a_closed_thread_is_not_kept() -> None:
    async def main() -> None:
        board = Switchboard(Conversations())
        relay = await board.open("a")
        await board.open("b")
        board.close("a")
        await board.publish([said("a")])
        assert await all_of(relay) == []
        again = await board.open("a")
        await board.publish([END])
        assert await all_of(again) == [END]

    asyncio.run(main())


@pytest.mark.parametrize(
    ("raw", "thread_id"),
    [
        (b'{"method":"a","params":{"threadId":"x"}}', "x"),
        (b'{"method":"a","params":{"threadId":null}}', None),
        (b'{"method":"a","params":[]}', None),
        (b"not json", None),
    ],
)
def test_whom_an_unrecognized_message_is_for(raw: bytes, thread_id: str | None) -> None:
    assert thread_of((raw, Unrecognized(raw, "why"))) == thread_id


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
            Answering(can_use_tool, timeout, waits=waits, deliver=deliver).ask(question)
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


MISFIT = "Answers does not answer a CommandExecutionRequestApproval; use Accept, Decline or Cancel"
NONSENSE = "bool does not answer a CommandExecutionRequestApproval; use Accept, Decline or Cancel"


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

        answering = Answering(ask, None, waits=True, deliver=deliver)
        for number in range(3):
            answering.ask(CommandExecutionRequestApproval(request_id=number, thread_id="t"))
        async with asyncio.timeout(BOUND):
            while len(patience) < 3:
                await asyncio.sleep(0)
            patience[1].set_result(Accept())
            await second_done.wait()
            answering.close(0)
            answering.close_all_but(set())
            while not (patience[0].cancelled() and patience[2].cancelled()):
                await asyncio.sleep(0)
        assert delivered == [1]

    asyncio.run(main())
