"""The client against small stand-in programs: what the real one cannot be made to do on demand."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from stagedoor.agents.claude import (
    CanUseTool,
    ClaudeClient,
    ClaudePermissionMode,
    ClaudeResult,
    ClaudeSession,
    ClaudeSessionConfig,
    Event,
    PermissionResultAllow,
    PermissionResultDeny,
    SystemInit,
    TurnSettled,
)
from stagedoor.agents.claude.events import ControlCancelRequest
from stagedoor.errors import (
    AgentRefused,
    AlreadyAnswered,
    LaunchError,
    LocalProtocolError,
    NotInstalled,
    ProcessExited,
    SessionEnded,
    SessionNotFound,
    StagedoorError,
    UnsupportedVersion,
)
from stagedoor.transports.launch import Exited
from stagedoor.wire.shapes import UnknownMessage
from tests.processes import is_running

ENV = {"PATH": "/usr/bin:/bin", "HOME": "/nonexistent"}
INIT = '{"type":"system","subtype":"init","session_id":"s1","apiKeySource":"ANTHROPIC_API_KEY"}'
RESULT = '{"type":"result","subtype":"success","result":"done","session_id":"s1"}'
ASK = '{"type":"control_request","request_id":"q1","request":{"subtype":"can_use_tool","tool_name":"Bash","input":{}}}'

Program = Callable[[str], str]


@pytest.fixture
def program(tmp_path: Path) -> Program:
    """Make an executable of this Python text; ``say`` prints lines, ``hear`` reads one."""

    def make(body: str) -> str:
        path = tmp_path / "claude"
        prelude = (
            f"#!{sys.executable}\nimport json, sys\n"
            "def say(*lines): print(*lines, sep='\\n', flush=True)\n"
            "def hear(): return json.loads(sys.stdin.readline())\n"
        ) + ("" if "--version" in body else "if '--version' in sys.argv: sys.exit(print('2.1.197'))\n")
        path.write_text(prelude + body)
        path.chmod(0o755)
        return str(path)

    return make


def run(main: Coroutine[Any, Any, Any]) -> Any:
    async def bounded() -> Any:
        async with asyncio.timeout(240):
            return await main

    return asyncio.run(bounded())


async def rest(session: ClaudeSession) -> list[Event]:
    return [event async for event in session.events]


@pytest.mark.parametrize(
    ("body", "config", "error", "words"),
    [
        ("print('1.0.33 (Claude Code)') if '--version' in sys.argv else sys.exit('error: unknown option --x')",
         {}, UnsupportedVersion, "npm install -g"),
        ("print('2.1.197') if '--version' in sys.argv else sys.exit('error: unknown option --x')",
         {}, LocalProtocolError, "extra_args"),
        ("hear(); say('{\"type\":\"init\",\"claude_code_version\":\"1.0.2\"}'); sys.stdin.read()",
         {}, UnsupportedVersion, "1.0.2 is too old"),
        ("sys.exit('Error: Session ID x is already in use.')", {}, LocalProtocolError, "resume_session"),
        ("sys.exit('--dangerously-skip-permissions cannot be used with root/sudo privileges')",
         {}, LaunchError, "IS_SANDBOX"),
        ("sys.exit('Error: Invalid MCP configuration: file not found')", {}, LocalProtocolError, "mcp_servers"),
        ("sys.exit('No conversation found with session ID: x')", {}, SessionNotFound, "list_sessions"),
        ("sys.exit('who knows')", {}, ProcessExited, "code 1 before the conversation started: who knows"),
        ("sys.exit(0)", {}, ProcessExited, "no error output"),
        ("", {"max_turns": 0}, LocalProtocolError, "max_turns"),
    ],
)  # fmt: skip
def test_what_keeps_a_session_from_starting(
    program: Program, tmp_path: Path, body: str, config: dict[str, Any], error: type[StagedoorError], words: str
) -> None:
    client = ClaudeClient(tmp_path, program(body), ENV)
    with pytest.raises(error, match=words):
        run(client.create_session("hello", ClaudeSessionConfig(**config)))


def test_not_installed_says_what_to_do_and_where_we_looked(tmp_path: Path) -> None:
    client = ClaudeClient(tmp_path, env={"PATH": str(tmp_path), "HOME": str(tmp_path)})
    with pytest.raises(NotInstalled, match=r"with: npm install -g @anthropic-ai/claude-code.*looked in the PATH and"):
        client.find_executable()


def test_no_working_directory(program: Program, tmp_path: Path) -> None:
    with pytest.raises(LaunchError, match="create it, or pass another"):
        run(ClaudeClient(tmp_path / "nope", program(""), ENV).create_session("hello"))


def test_events_received_and_many_readers(program: Program, tmp_path: Path) -> None:
    async def main() -> None:
        body = f"hear(); say('{INIT}', 'not json', '{RESULT}'); sys.stdin.read()"
        session = await ClaudeClient(tmp_path, program(body), ENV).create_session("hello")
        first, second, pairs, batches = session.events, session.events, session.received, session.batches
        raws = [(await anext(pairs))[0] for _ in range(4)]
        assert raws == [INIT.encode(), b"not json", RESULT.encode(), RESULT.encode()]
        await session.close()
        await session.close()
        events = [event async for event in first]
        assert [type(event) for event in events] == [SystemInit, UnknownMessage, ClaudeResult, TurnSettled, Exited]
        assert [event async for event in second] == events
        assert [event async for batch in batches for _, event in batch] == events
        assert session.session_id == "s1"
        with pytest.raises(SessionEnded):
            await session.send("more")
        with pytest.raises(SessionEnded):
            await session.mcp_status()

    run(main())


def test_the_death_of_the_program_closes_everything(program: Program, tmp_path: Path) -> None:
    cancelled = asyncio.Event()

    async def never(request: CanUseTool) -> PermissionResultAllow:
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()
        return PermissionResultAllow()

    async def main() -> None:
        body = f"hear(); say('{INIT}', '{ASK}'); hear(); sys.exit('out of memory')"
        client = ClaudeClient(tmp_path, program(body), ENV)
        session = await client.create_session("hello", ClaudeSessionConfig(can_use_tool=never))
        with pytest.raises(ProcessExited, match="out of memory"):
            await session.mcp_status()
        await cancelled.wait()
        events = await rest(session)
        assert events[-3:] == [ControlCancelRequest("q1"), TurnSettled(), Exited(1, "out of memory\n")]
        with pytest.raises((SessionEnded, AlreadyAnswered)):
            await session.answer("q1", PermissionResultAllow())
        await session.interrupt()
        await session.close()

    run(main())


def test_the_host_answers_by_hand(program: Program, tmp_path: Path) -> None:
    async def main() -> None:
        body = f"hear(); say('{INIT}', '{ASK}'); answer = hear(); say('{RESULT}', json.dumps(answer)); sys.stdin.read()"
        config = ClaudeSessionConfig(host_answers_permissions=True)
        async with await ClaudeClient(tmp_path, program(body), ENV).create_session("hello", config) as session:
            async for event in session.events:
                if isinstance(event, CanUseTool):
                    assert list(session.open_questions) == ["q1"]
                    await session.answer("q1", PermissionResultDeny("by hand"))
                    with pytest.raises(AlreadyAnswered):
                        await session.answer("q1", PermissionResultAllow())
                if isinstance(event, TurnSettled):
                    break
        raws = [raw async for raw, _ in session.received]
        assert b'"message": "by hand"' in raws[0]

    run(main())


def test_a_refused_request(program: Program, tmp_path: Path) -> None:
    async def main() -> None:
        body = (
            "asked = hear()\n"
            "say(json.dumps({'type': 'control_response', 'response': "
            "{'subtype': 'error', 'request_id': asked['request_id'], 'error': 'no such mode'}}))\n"
            "sys.stdin.read()"
        )
        async with await ClaudeClient(tmp_path, program(body), ENV).create_session(None) as session:
            with pytest.raises(AgentRefused, match="no such mode"):
                await session.set_permission_mode(ClaudePermissionMode.plan)

    run(main())


def test_nobody_reads_and_the_session_still_closes(program: Program, tmp_path: Path) -> None:
    async def main() -> None:
        body = f"hear(); say('{INIT}')\nfor _ in range(20000): say('{RESULT}')\nsys.stdin.read()"
        session = await ClaudeClient(tmp_path, program(body), ENV).create_session("hello")
        await session.cancel()
        assert not is_running(session.pid)

    run(main())


def test_a_program_that_ignores_everything_is_killed(program: Program, tmp_path: Path) -> None:
    async def main() -> None:
        body = f"import signal, time\nsignal.signal(2, signal.SIG_IGN)\nhear(); say('{INIT}')\ntime.sleep(600)"
        session = await ClaudeClient(tmp_path, program(body), ENV).create_session("hello")
        pid = session.pid
        await session.cancel()
        assert not is_running(pid)
        exited = (await rest(session))[-1]
        assert isinstance(exited, Exited)
        assert exited.code < 0

    run(main())
