"""Several threads on one pipe."""

from __future__ import annotations

import asyncio

import pytest

from stagedoor.agents.codex.app_server import Switchboard
from stagedoor.agents.codex.notifications import (
    AppEvent,
    ConfigWarningNotification,
    ItemCompletedNotification,
    ThreadStatusChangedNotification,
)
from stagedoor.agents.codex.protocol import ThreadStates, thread_of
from stagedoor.agents.codex.threads import CollabAgentToolCallThreadItem
from stagedoor.transports.launch import Exited
from stagedoor.transports.relay import Relay
from stagedoor.wire.shapes import UnknownMessage


def status_of(thread_id: str) -> tuple[bytes, AppEvent]:
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
        states = ThreadStates()
        board = Switchboard(states)
        await board.publish([EVERYWHERE])
        board.expecting = 1
        await board.publish([status_of("a")])
        first = await board.open("a")
        second = await board.open("b")
        board.expecting = 0
        await board.publish([status_of("b"), status_of("child"), EVERYWHERE])
        introduction = spawned("b", "child")
        assert isinstance(introduction[1], ItemCompletedNotification)
        states.learn(introduction[1])
        await board.publish([introduction, status_of("child"), status_of("a")])
        await board.publish([END])
        assert await all_of(first) == [EVERYWHERE, status_of("a"), EVERYWHERE, status_of("a"), END]
        assert await all_of(second) == [
            status_of("b"),
            EVERYWHERE,
            status_of("child"),
            introduction,
            status_of("child"),
            END,
        ]
        late = await board.open("c")
        assert await all_of(late) == [END]

    asyncio.run(main())


def test_the_only_thread_hears_of_sub_agents_nobody_introduced() -> None:
    async def main() -> None:
        board = Switchboard(ThreadStates())
        only = await board.open("a")
        stranger = b'{"method":"thread/new/thing","params":{"threadId":"x"}}'
        await board.publish([status_of("x"), (stranger, UnknownMessage(stranger, "unknown")), END])
        assert await all_of(only) == [status_of("x"), (stranger, UnknownMessage(stranger, "unknown")), END]
        board.close("a", only)
        assert board.home("a") == "a"

    asyncio.run(main())


def test_a_closed_thread_is_not_kept() -> None:
    async def main() -> None:
        board = Switchboard(ThreadStates())
        relay = await board.open("a")
        await board.open("b")
        board.close("a", relay)
        await board.publish([status_of("a")])
        assert await all_of(relay) == []
        again = await board.open("a")
        board.close("a", relay)  # of the one before: what is open now is another
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
    assert thread_of(UnknownMessage(raw, "why")) == thread_id
