"""Document 001 as its own client uses it: the native clients of the real CLIs, and of any ACP agent."""

from __future__ import annotations

import asyncio
import os
import signal
import typing
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from stagedoor.agents.acp import AcpClient, AcpSessionConfig, PromptResponse, RequestPermission
from stagedoor.agents.acp import events as acp_events
from stagedoor.agents.claude import CanUseTool, ClaudeClient, ClaudePermissionMode, ClaudeSessionConfig, TurnSettled
from stagedoor.agents.claude import events as claude_events
from stagedoor.agents.codex import CodexClient, CodexSessionConfig
from stagedoor.agents.codex import client as codex_client
from stagedoor.agents.codex.config import SandboxMode
from stagedoor.agents.codex.notifications import TurnCompletedNotification
from stagedoor.agents.gemini import ApprovalMode, GeminiClient, GeminiSessionConfig
from stagedoor.agents.gemini import acp as gemini_acp
from stagedoor.agents.gemini import events as gemini_events
from stagedoor.agents.opencode import events as opencode_events
from stagedoor.errors import LocalProtocolError
from stagedoor.testing import ScriptedModel, find_cli, say, shell
from stagedoor.transports.launch import Exited
from stagedoor.understudy import command
from stagedoor.wire.permission import PermissionBehavior
from stagedoor.wire.stamps import Stamped
from tests.seeds.client_001 import NativeClient

BOUND = 240.0

COVERS: dict[str, str] = {
    "1.1 Goals": "test_claude test_codex_exec test_codex_app_server test_gemini test_any_acp_agent",
    "1.2 Design Principles": "test_every_event_of_every_library_has_the_three_facts",
    "2.1 Directory Structure": "test_every_event_of_every_library_has_the_three_facts",
    "2.2 Common Patterns (Not Shared Code)": "test_claude test_codex_exec test_gemini test_any_acp_agent",
    "3.1 Overview": "test_claude",
    "3.2 › claude_types.dart": "test_claude test_the_four_answers",
    "3.2 › claude_events.dart": "test_claude test_every_event_of_every_library_has_the_three_facts",
    "3.2 › claude_config.dart": "test_claude test_delegate_needs_its_function",
    "3.2 › claude_session.dart": "test_claude",
    "3.2 › claude_client.dart": "test_claude",
    "4.1 Overview": "test_codex_exec",
    "4.2 › codex_types.dart": "test_codex_exec",
    "4.2 › codex_events.dart": "test_codex_exec test_every_event_of_every_library_has_the_three_facts",
    "4.2 › codex_config.dart": "test_codex_exec",
    "4.2 › codex_session.dart": "test_codex_exec test_codex_app_server",
    "4.2 › codex_client.dart": "test_codex_exec",
    "5.1 Overview": "test_gemini",
    "5.2 › gemini_types.dart": "test_gemini",
    "5.2 › gemini_events.dart": "test_gemini test_every_event_of_every_library_has_the_three_facts",
    "5.2 › gemini_config.dart": "test_gemini",
    "5.2 › gemini_session.dart": "test_gemini",
    "5.2 › gemini_client.dart": "test_gemini",
    "6.2 Error Handling": "test_a_process_that_dies",
    "6.3 Stream Lifecycle": "test_claude test_codex_exec test_gemini test_a_process_that_dies",
    "6.4 File Parsing for Session Listing": "test_claude test_codex_exec test_gemini",
}
DIFFERS: dict[str, str] = {
    "1.3 Package Dependencies": "Python: msgspec; the `mcp` SDK is an optional extra",
    "2.1 Directory Structure": "`events commands protocol launch config`, `history`, `client session` in each library",
    "3.1 Overview": "the control channel asks; the MCP server of the document is one more way (`delegate`)",
    "3.2 › claude_session.dart": "`cancel` does not send SIGTERM, which would leave the tool's shell running",
    "3.2 › claude_client.dart": "a prompt is never an argument: it is limited, and other users see it",
    "4.2 › codex_types.dart": "today's CLI prints `command_execution` for `tool_call`; both are read",
    "4.2 › codex_session.dart": "`exec` and, where somebody is to be asked, the app-server",
    "5.2 › gemini_client.dart": "listed from the files: `gemini --list-sessions` calls the model",
    "6.1 MCP Permission Server for Claude": "the tool is `mcp__stagedoor__permission`, in a process of its own that "
    "asks us over a private socket; shown by `tests/live/test_claude_native.py`",
    "6.2 Error Handling": "one `ProcessExited` for all: the stream ends with `Exited`, and `wait()` raises",
}
HEADINGS: dict[str, str] = {
    "CLI Agent Adapter Design Specification": "the title",
    "Table of Contents": "contents",
    "1. Overview": "below",
    "2. Architecture": "below",
    "3. Claude Code Adapter": "below",
    "3.2 Types": "below",
    "4. Codex CLI Adapter": "below",
    "4.2 Types": "below",
    "5. Gemini CLI Adapter": "below",
    "5.2 Types": "below",
    "6. Implementation Notes": "below",
}


def run(main: Callable[[], Coroutine[Any, Any, None]]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(BOUND):
            await main()

    asyncio.run(bounded())


def environment(model: ScriptedModel, agent: str, folder: Path) -> Any:
    (folder / "repo").mkdir(exist_ok=True)
    return model.environment(agent, home=folder / "home", cwd=folder / "repo")


def needs(agent: str) -> pytest.MarkDecorator:
    return pytest.mark.skipif(find_cli(agent) is None, reason=f"{agent} is not installed: run `make clis`")


@pytest.mark.live
@needs("claude")
def test_claude(tmp_path: Path) -> None:
    requests: list[CanUseTool] = []

    async def ask(request: CanUseTool) -> PermissionBehavior:
        requests.append(request)
        return PermissionBehavior.allow if len(requests) == 1 else PermissionBehavior.deny_always

    async def main() -> None:
        script = [shell("touch made"), say("Made."), shell("touch not"), shell("touch not"), say("Not."), say("Again.")]
        async with ScriptedModel(script) as model:
            env = environment(model, "claude", tmp_path).env
            client = ClaudeClient(tmp_path / "repo", str(find_cli("claude")), env)
            native = NativeClient(client, lambda event: isinstance(event, TurnSettled))
            config = ClaudeSessionConfig(permission_mode=ClaudePermissionMode.default, can_use_tool=ask)
            session_id, _ = await native.converse(["Make it.", "Now that."], config)
            assert [(one.session_id, one.turn_id, one.input["command"]) for one in requests] == [
                (session_id, 1, "touch made"),
                (session_id, 2, "touch not"),
            ]
            assert [path.name for path in (tmp_path / "repo").iterdir()] == ["made"]
            [stored] = await native.list_sessions()
            assert (stored.session_id, stored.cwd) == (session_id, str(tmp_path / "repo"))
            await native.resume(session_id, "Once more.", config)

    run(main)


@pytest.mark.live
@needs("codex")
def test_codex_exec(tmp_path: Path) -> None:
    async def main() -> None:
        async with ScriptedModel([say("One."), say("Two."), say("Three.")]) as model:
            env = environment(model, "codex", tmp_path).env
            client = CodexClient(tmp_path / "repo", find_cli("codex"), env)
            native = NativeClient(client, lambda event: isinstance(event, Exited))
            config = CodexSessionConfig(sandbox_mode=SandboxMode.READ_ONLY)
            session_id, turns = await native.converse(["First.", "Second."], config)
            assert [event.thread_id for event in turns[0] if type(event).__name__ == "ThreadStarted"] == [session_id]
            assert [stored.session_id for stored in await native.list_sessions()] == [session_id]
            await native.resume(session_id, "Third.", config)

    run(main)


@pytest.mark.live
@needs("codex")
def test_codex_app_server(tmp_path: Path) -> None:
    requests: list[Any] = []

    def ask(question: Any) -> PermissionBehavior:
        requests.append(question)
        return PermissionBehavior.deny_always

    async def main() -> None:
        script = [shell("touch not"), shell("touch not"), say("Then not."), say("Again.")]
        async with ScriptedModel(script) as model:
            env = environment(model, "codex", tmp_path).env
            client = CodexClient(tmp_path / "repo", find_cli("codex"), env)
            native = NativeClient(client, lambda event: isinstance(event, TurnCompletedNotification))
            config = CodexSessionConfig(sandbox_mode=SandboxMode.READ_ONLY, can_use_tool=ask)
            thread = await client.create_session("Make it.", config)
            async with thread:
                events = thread.events
                async for event in events:
                    if isinstance(event, TurnCompletedNotification):
                        break
                await thread.wait()
                await thread.send("Again.")
                async for event in events:
                    if isinstance(event, TurnCompletedNotification):
                        assert (event.session_id, event.turn_id) == (thread.session_id, 2)
                        break
            assert [(one.session_id, one.turn_id) for one in requests] == [(thread.session_id, 1)]  # asked once
            assert [stored.session_id for stored in await native.list_sessions()] == [thread.session_id]

    run(main)


@pytest.mark.live
@needs("gemini")
def test_gemini(tmp_path: Path) -> None:
    async def main() -> None:
        async with ScriptedModel([say("One."), say("Two."), say("Three.")]) as model:
            place = environment(model, "gemini", tmp_path)
            client = GeminiClient(tmp_path / "repo", str(find_cli("gemini")), place.env)
            native = NativeClient(client, lambda event: isinstance(event, Exited))
            config = GeminiSessionConfig(model=place.model, approval_mode=ApprovalMode.DEFAULT)
            session_id, _ = await native.converse(["First."], config)
            assert [stored.session_id for stored in await native.list_sessions()] == [session_id]
            await native.resume(session_id, "Second.", config)

    run(main)


def understudy(folder: Path) -> AcpClient:
    (folder / "repo").mkdir()
    return AcpClient(
        list(command()), folder / "repo", {**os.environ, "STAGEDOOR_UNDERSTUDY_HOME": str(folder / "home")}
    )


def test_any_acp_agent(tmp_path: Path) -> None:
    async def main() -> None:
        native = NativeClient(understudy(tmp_path), lambda event: isinstance(event, PromptResponse))
        session_id, turns = await native.converse(["[{say: One.}]", "[{say: Two.}]"], AcpSessionConfig())
        assert [turn[-1].turn_id for turn in turns] == [1, 2]
        assert session_id in [stored.session_id for stored in await native.list_sessions()]
        resumed = await native.resume(session_id, "[{say: Three.}]", AcpSessionConfig())
        assert resumed[-1].turn_id == 1

    run(main)


@pytest.mark.parametrize(
    ("answers", "calls", "made"),
    [
        ([PermissionBehavior.allow, PermissionBehavior.deny], 2, ["one"]),
        ([PermissionBehavior.allow_always], 1, ["one"]),
        ([PermissionBehavior.deny, PermissionBehavior.deny], 2, []),
        ([PermissionBehavior.deny_always], 1, []),
    ],
)
def test_the_four_answers(tmp_path: Path, answers: list[PermissionBehavior], calls: int, made: list[str]) -> None:
    requests: list[RequestPermission] = []

    def ask(request: RequestPermission) -> PermissionBehavior:
        requests.append(request)
        return answers[len(requests) - 1]

    async def main() -> None:
        prompt = "[{shell: touch one}, {shell: touch one}, {say: Done.}]"
        async with await understudy(tmp_path).create_session(prompt, AcpSessionConfig(can_use_tool=ask)) as session:
            async for event in session.events:
                if isinstance(event, PromptResponse):
                    break
            assert [(one.session_id, one.turn_id) for one in requests] == [(session.session_id, 1)] * calls

    run(main)
    assert [path.name for path in (tmp_path / "repo").iterdir()] == made


def test_a_process_that_dies(tmp_path: Path) -> None:
    async def main() -> None:
        native = NativeClient(understudy(tmp_path), lambda event: isinstance(event, PromptResponse))

        async def kill(pid: int) -> None:
            os.kill(pid, signal.SIGKILL)

        ask = AcpSessionConfig(can_use_tool=lambda request: PermissionBehavior.allow)
        last, error = await native.die("[{shell: sleep 600}]", ask, kill)
        assert isinstance(last, Exited)
        assert error.code == last.code != 0
        assert "resume the session" in str(error)

    run(main)


def test_delegate_needs_its_function(tmp_path: Path) -> None:
    """``ArgumentError('permissionHandler is required when permissionMode is delegate')``"""

    async def main() -> None:
        config = ClaudeSessionConfig(permission_mode=ClaudePermissionMode.delegate)
        with pytest.raises(LocalProtocolError, match="can_use_tool"):
            await ClaudeClient(tmp_path, "/bin/true").create_session("Go.", config)

    run(main)


def members(union: Any) -> set[type]:
    parts = typing.get_args(union)
    return {union} if not parts else {member for part in parts for member in members(part)}


def test_every_event_of_every_library_has_the_three_facts() -> None:
    unions = (
        claude_events.Event, codex_client.Event, gemini_events.Event, gemini_acp.Event, opencode_events.Event,
        acp_events.Event,
    )  # fmt: skip
    types = {member for union in unions for member in members(union)}
    assert len(types) > 100
    assert sorted(kind.__name__ for kind in types if not issubclass(kind, Stamped)) == []
