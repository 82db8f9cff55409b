"""The serve driver when the server misbehaves: a stand-in process, real pipes and sockets."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import sys
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from stagedoor.agents.opencode import OpenCodeClient, OpenCodeSession, OpenCodeSessionConfig
from stagedoor.agents.opencode.events import MessagePartDelta, ServerAnswer, ServerConnected, TurnEnded
from stagedoor.errors import LaunchError, SessionEnded, StagedoorError, UnsupportedVersion
from stagedoor.transports.launch import Exited
from stagedoor.wire.shapes import UnknownMessage
from tests.processes import HAS_PROC, is_running

BOUND = 240.0
FAKE = Path(__file__).parent / "fake_opencode.py"


@pytest.fixture
def client(tmp_path: Path) -> Callable[..., OpenCodeClient]:
    program = tmp_path / "opencode"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} {FAKE} "$@"\n')
    program.chmod(0o755)

    def make(behaviour: str = "", **more: Any) -> OpenCodeClient:
        env = {"PATH": "/usr/bin:/bin", "HOME": str(tmp_path), "FAKE": behaviour}
        return OpenCodeClient(tmp_path, str(program), env, **more)

    return make


def play(scene: Coroutine[Any, Any, None]) -> None:
    async def main() -> None:
        async with asyncio.timeout(BOUND):
            await scene

    asyncio.run(main())


async def started(client: OpenCodeClient, prompt: str | None = "go") -> OpenCodeSession:
    session = await client.create_session(prompt, OpenCodeSessionConfig(model="p/m"))
    assert isinstance(session, OpenCodeSession)
    return session


@pytest.mark.parametrize(
    ("behaviour", "error", "says"),
    [
        ("crashes", LaunchError, "does not know an option"),
        ("bad-config", LaunchError, "refused its configuration: bad member"),
        ("old", UnsupportedVersion, "opencode 0.3.1 is too old"),
        ("public", LaunchError, "not on the loopback address"),
        ("mute", LaunchError, "did not listen within 0.5 s"),
    ],
)
def test_a_server_that_does_not_begin(
    client: Callable[..., OpenCodeClient], behaviour: str, error: type[StagedoorError], says: str
) -> None:
    async def scene() -> None:
        more = {"start_timeout": 0.5} if behaviour == "mute" else {}
        with pytest.raises(error, match=says):
            await started(client(behaviour, **more))

    play(scene())


def test_a_server_that_dies_ends_the_turn_and_the_session(client: Callable[..., OpenCodeClient]) -> None:
    async def scene() -> None:
        session = await started(client("dies"))
        ended = await session.turn_ended()
        assert (ended.outcome, ended.error and ended.error.message) == (
            "failed",
            "the server ended in the middle of a turn",
        )
        events = [event async for event in session.events]
        assert events[-2:] == [ended, Exited(137, "out of memory\n")]
        assert not session.running
        with pytest.raises(SessionEnded):
            await session.send("more")
        await session.close()

    play(scene())


def test_the_end_of_a_turn_that_nobody_heard_is_asked_for(client: Callable[..., OpenCodeClient]) -> None:
    async def scene() -> None:
        async with await started(client("broken-stream")) as session:
            events = session.events
            ended = await session.turn_ended()
        received = [event async for event in events]
        assert ended.outcome == "completed"
        assert len([event for event in received if isinstance(event, ServerConnected)]) == 2
        assert any(isinstance(event, ServerAnswer) and event.call == "GET /session/status" for event in received)

    play(scene())


def test_a_session_nobody_reads_can_be_cancelled(client: Callable[..., OpenCodeClient]) -> None:
    async def scene() -> None:
        session = await started(client("chatty"))
        while len(session._server.relay._items) < 4096:
            await asyncio.sleep(0.01)
        await session.cancel()
        events = [event async for event in session.events]
        assert [type(event) for event in events[-2:]] == [TurnEnded, Exited]

    play(scene())


def test_nothing_is_lost_on_a_reader_that_is_slow_and_one_that_is_not(client: Callable[..., OpenCodeClient]) -> None:
    async def scene() -> None:
        async with await started(client("chatty"), None) as session:

            async def count_deltas(pause: int) -> int:
                count = 0
                async for event in session.events:
                    if isinstance(event, MessagePartDelta):
                        count += 1
                        if pause and count % pause == 0:
                            await asyncio.sleep(0)
                    if isinstance(event, TurnEnded):
                        break
                return count

            readers = [asyncio.create_task(count_deltas(pause)) for pause in (0, 3)]
            await asyncio.sleep(0)
            await session.send("go")
            assert await asyncio.gather(*readers) == [20_000, 20_000]

    play(scene())


@pytest.mark.skipif(not HAS_PROC, reason="only Linux tells which sockets are ours")
def test_a_session_nobody_holds_leaves_no_process_and_no_socket(client: Callable[..., OpenCodeClient]) -> None:
    async def scene() -> None:
        session = await started(client(), "go")
        await session.turn_ended()
        pid = session.pid
        sockets = {*_sockets()}
        assert sockets
        del session
        gc.collect()
        while is_running(pid) or sockets & {*_sockets()}:
            await asyncio.sleep(0.01)

    play(scene())


def _sockets() -> list[str]:
    """The connections of this process to anybody."""
    mine: list[str] = []
    for entry in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(OSError):
            mine.append(str(entry.readlink()))
    connected = Path("/proc/self/net/tcp").read_text()
    return [link for link in mine if link.startswith("socket:") and link[8:-1] in connected]


def test_a_stream_that_never_holds_ends_the_session(client: Callable[..., OpenCodeClient]) -> None:
    async def scene() -> None:
        async with await started(client("deaf"), None) as session:
            events = session.events
            count = 0
            async for event in events:
                count += isinstance(event, ServerConnected)
                assert not isinstance(event, UnknownMessage)
                if count == 3:
                    break

    play(scene())
