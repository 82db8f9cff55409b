"""Agents that die, flood, cannot be used or are forgotten."""

import asyncio
import contextlib
import gc
from pathlib import Path

import pytest

from stagedoor.agents.acp import (
    AcpClient,
    AcpSession,
    AgentMessageChunk,
    Event,
    PromptResponse,
    RequestFailed,
    SessionUpdate,
    Unanswered,
)
from stagedoor.errors import (
    AgentRefused,
    LaunchError,
    NotSignedIn,
    ProcessExited,
    SessionEnded,
    UnsupportedVersion,
)
from stagedoor.transports.launch import Exited
from tests.agents.acp.turns import AGENT, TURN_END, run, text_in, turn, until
from tests.processes import is_running


def test_a_refused_turn_and_a_death(tmp_path: Path) -> None:
    async def main() -> None:
        async with await AcpClient(AGENT, tmp_path).create_session("fail") as session:
            events = session.events
            end = (await turn(events))[-1]
            assert isinstance(end, RequestFailed)
            assert (end.method, end.code, end.message) == ("session/prompt", 429, "Slow down")
            await session.send("die")
            rest = [event async for event in events]
            assert [type(event) for event in rest] == [Exited, Unanswered]
            assert isinstance(rest[0], Exited)
            assert rest[0].code == 7
            assert "something went wrong" in rest[0].stderr
            assert isinstance(await session.turn_ended(), Unanswered)
            with pytest.raises(SessionEnded):
                await session.send("say x")
            await session.interrupt()

    run(main())


@pytest.mark.parametrize(
    ("argv", "error", "words"),
    [
        ([*AGENT, "--signed-out"], NotSignedIn, "not signed in: .*ways to sign in: Log in"),
        ([*AGENT, "--future"], UnsupportedVersion, "uses version 99"),
        (["sh", "-c", "echo no such flag >&2; exit 2"], ProcessExited, "before it answered initialize: no such flag"),
        (["sh", "-c", "echo Welcome; read line; exit 0"], ProcessExited, "before it answered initialize"),
    ],
    ids=["signed-out", "future", "wrong-flag", "no-acp"],
)
def test_agents_that_cannot_be_used(tmp_path: Path, argv: list[str], error: type[Exception], words: str) -> None:
    async def main() -> None:
        with pytest.raises(error, match=words):
            await AcpClient(argv, tmp_path).create_session("say x")

    run(main())


def test_an_agent_that_never_answers(tmp_path: Path) -> None:
    async def main() -> None:
        with pytest.raises(LaunchError, match=r"did not answer within 0\.2 s: check that this command line"):
            await AcpClient(["sh", "-c", "cat >/dev/null"], tmp_path, start_timeout=0.2).create_session()

    run(main())


def test_a_forgotten_session_leaves_nothing_running(tmp_path: Path) -> None:
    async def main() -> None:
        session = await AcpClient(AGENT, tmp_path).create_session("wait")
        await turn_begun(session)
        pid = session.pid
        del session
        gc.collect()
        await until(lambda: not is_running(pid))

    run(main())


def test_a_session_lives_as_long_as_somebody_reads_it(tmp_path: Path) -> None:
    async def main() -> None:
        received: list[Event] = []
        async for event in (await AcpClient(AGENT, tmp_path).create_session("say hello")).events:
            gc.collect()
            received.append(event)
            if isinstance(event, TURN_END):
                break
        assert text_in(received) == "hello"
        assert isinstance(received[-1], PromptResponse)

    run(main())


async def turn_begun(session: AcpSession) -> None:
    async for event in session.events:
        if isinstance(event, SessionUpdate):
            return


def test_an_exception_in_the_block_ends_everything(tmp_path: Path) -> None:
    async def main() -> None:
        pid = 0
        with contextlib.suppress(ZeroDivisionError):
            async with await AcpClient(AGENT, tmp_path).create_session("wait") as session:
                pid = session.pid
                raise ZeroDivisionError
        assert not is_running(pid)

    run(main())


def test_signing_in_comes_first_when_asked_for(tmp_path: Path) -> None:
    async def main() -> None:
        async with await AcpClient(AGENT, tmp_path, sign_in="login").create_session("say in") as session:
            assert text_in(await turn(session.events)) == "in"
        with pytest.raises(AgentRefused, match="refused authenticate"):
            await AcpClient(AGENT, tmp_path, sign_in="nonsense").create_session("say in")

    run(main())


def test_a_flood_waits_for_its_reader_and_loses_nothing(tmp_path: Path) -> None:
    async def main() -> None:
        async with await AcpClient(AGENT, tmp_path).create_session("flood 9000") as session:
            assert session.running
            await asyncio.sleep(0)
            received = await turn(session.events)
            numbers = [event.update.text for event in received if is_text(event)]
            assert numbers == [f"{number} " for number in range(9000)]

    run(main())


def is_text(event: Event) -> bool:
    return isinstance(event, SessionUpdate) and isinstance(event.update, AgentMessageChunk)


def test_the_only_reader_of_a_flood_may_interrupt_it(tmp_path: Path) -> None:
    async def main() -> None:
        async with await AcpClient(AGENT, tmp_path).create_session("flood 1000000") as session:
            events = session.events
            await turn_begun(session)
            await until(lambda: session._connection.congested)
            await session.interrupt()
            end = (await turn(events))[-1]
            assert isinstance(end, PromptResponse)
            assert end.stop_reason == "cancelled"

    run(main())


def test_a_flood_that_nobody_reads_does_not_hold_up_the_end(tmp_path: Path) -> None:
    async def main() -> None:
        session = await AcpClient(AGENT, tmp_path).create_session("flood 100000")
        await until(lambda: session._connection.congested)
        pid = session.pid
        await session.close()
        assert not is_running(pid)

    run(main())
