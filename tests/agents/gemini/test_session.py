"""Sessions on a program that only prints what it is told: what the real CLI cannot be made to do at will."""

import asyncio
import sys
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from stagedoor.agents.gemini import (
    GeminiClient,
    GeminiInit,
    GeminiMessage,
    GeminiResult,
    GeminiSession,
    GeminiSessionConfig,
    Truncated,
)
from stagedoor.errors import LocalProtocolError, ProcessExited, SessionEnded
from stagedoor.transports.launch import Exited
from stagedoor.transports.relay import LIMIT
from stagedoor.wire.shapes import UnknownMessage
from tests.processes import command_lines

INIT = 'print(\'{"type":"init","session_id":"s"}\', flush=True)'
BOUND = 240.0


@pytest.fixture
def client(repo: Path, home: Path, tmp_path: Path) -> Callable[[str], GeminiClient]:
    """A client whose CLI runs this Python code."""

    def make(code: str) -> GeminiClient:
        program = tmp_path / "gemini"
        program.write_text(
            f"#!{sys.executable}\nimport sys, time\nif '--version' in sys.argv: sys.exit(print('0.61.0'))\n"
            f"prompt = sys.stdin.read()\n{code}\n"
        )
        program.chmod(0o755)
        return GeminiClient(repo, str(program), {"HOME": str(home), "PATH": "/usr/bin:/bin"})

    return make


async def turn(events: AsyncIterator[object]) -> list[object]:
    received: list[object] = []
    async with asyncio.timeout(BOUND):
        async for event in events:
            received.append(event)
            if isinstance(event, Exited):
                break
    return received


def test_an_exit_code_of_0_without_a_result_is_no_success(client):
    async def main() -> list[object]:
        async with await client(f"{INIT}; print('garbage')").create_session("go") as session:
            return await turn(session.events)

    assert asyncio.run(main()) == [
        GeminiInit("s"),
        UnknownMessage(b"garbage", "Expecting value: line 1 column 1 (char 0)"),
        Truncated("the output ended without a result event"),
        Exited(0, ""),
    ]


def test_the_next_turn_resumes_and_the_prompt_is_read(client):
    code = """
import json
print(json.dumps({"type": "init", "session_id": "s"}))
print(json.dumps({"type": "message", "role": "user", "content": prompt}))
print(json.dumps({"type": "message", "role": "assistant", "content": " ".join(sys.argv[1:])}))
print(json.dumps({"type": "result", "status": "success"}))
"""

    async def main() -> None:
        session = await client(code).create_session("/first", GeminiSessionConfig(session_id="my-id"))
        async with session:
            events = session.events
            first = await turn(events)
            await session.send("second @x")
            second = await turn(events)
        flags = "--output-format stream-json --approval-mode default"
        assert [type(event) for event in first] == [GeminiInit, GeminiMessage, GeminiMessage, GeminiResult, Exited]
        assert [event.content for event in first[1:3]] == [" /first", f"{flags} --session-id=my-id"]
        assert [event.content for event in second[1:3]] == [r"second \@x", f"{flags} --resume=my-id"]
        with pytest.raises(SessionEnded):
            await session.send("third")

    asyncio.run(main())


def test_readers_that_do_not_read_hold_up_the_program_but_not_us(client):
    line = '{"type":"message","role":"assistant","content":"x"}'
    code = f"{INIT}\nwhile True: print('{line}')"

    async def main() -> None:
        session = await client(code).create_session("go")
        events = session.events
        assert await anext(events) == GeminiInit("s")
        async with asyncio.timeout(BOUND):
            while len(session._relay._items) <= LIMIT:
                await asyncio.sleep(0.01)
            await session.interrupt()
            assert session.running  # its last events wait for readers
            with pytest.raises(LocalProtocolError, match="turn is running"):
                await session.send("next")
            received = await turn(events)
            assert not session.running
            assert received[-2] == Truncated("the turn was interrupted", True)
            await session.send("next")
            await session.cancel()
            await session.cancel()

    asyncio.run(main())


def test_a_program_that_fails_before_it_begins(client):
    sessions: list[GeminiSession] = []

    async def main() -> None:
        sessions.append(await client("sys.stderr.write('no luck'); sys.exit(7)").create_session("go"))

    with pytest.raises(ProcessExited, match="code 7: no luck") as caught:
        asyncio.run(main())
    assert (caught.value.code, caught.value.stderr, sessions) == (7, "no luck", [])


def test_a_cancelled_start_leaves_nothing(client, tmp_path):
    async def main() -> None:
        up = tmp_path / "up"
        code = f"open({str(up)!r}, 'w').close(); time.sleep(1000)"
        starting = asyncio.create_task(client(code).create_session("go"))
        async with asyncio.timeout(BOUND):
            while not up.exists():
                await asyncio.sleep(0.01)
        assert not starting.done()
        starting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await starting

    asyncio.run(main())
    deadline = time.monotonic() + 240
    while any(str(tmp_path) in line for line in command_lines().values()):
        assert time.monotonic() < deadline
        time.sleep(0.02)
