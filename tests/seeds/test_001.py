"""Document 001 as its own client uses it: the native clients of the real CLIs, and of any ACP agent."""

# ruff: noqa: E501 (lines as the document prints them)
from __future__ import annotations

import asyncio
import json
import os
import signal
import tempfile
import typing
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from stagedoor.agents.acp import AcpClient, AcpSessionConfig, PromptResponse, RequestPermission
from stagedoor.agents.acp import events as acp_events
from stagedoor.agents.claude import (
    CanUseTool,
    ClaudeClient,
    ClaudePermissionMode,
    ClaudeProtocol,
    ClaudeSessionConfig,
    TurnSettled,
)
from stagedoor.agents.claude import events as claude_events
from stagedoor.agents.codex import CodexClient, CodexSessionConfig
from stagedoor.agents.codex import client as codex_client
from stagedoor.agents.codex.config import ApprovalPolicy, SandboxMode
from stagedoor.agents.codex.notifications import TurnCompletedNotification
from stagedoor.agents.codex.protocol import ExecProtocol
from stagedoor.agents.gemini import ApprovalMode, GeminiClient, GeminiSessionConfig
from stagedoor.agents.gemini import acp as gemini_acp
from stagedoor.agents.gemini import events as gemini_events
from stagedoor.agents.gemini.protocol import StreamProtocol
from stagedoor.agents.opencode import events as opencode_events
from stagedoor.errors import LocalProtocolError
from stagedoor.testing import ScriptedModel, find_cli, say, shell, write_file
from stagedoor.transports.launch import Exited
from stagedoor.understudy import command
from stagedoor.wire.permission import PermissionBehavior
from stagedoor.wire.stamps import Stamped
from tests.seeds.client_001 import NativeClient, check_stored, read_fields

BOUND = 240.0

COVERS: dict[str, str] = {
    "1.1 Goals": "test_claude test_codex_exec test_codex_app_server test_gemini test_any_acp_agent",
    "1.2 Design Principles": "test_every_event_of_every_library_has_the_three_facts",
    "2.1 Directory Structure": "test_every_event_of_every_library_has_the_three_facts",
    "2.2 Common Patterns (Not Shared Code)": "test_claude test_codex_exec test_gemini test_any_acp_agent",
    "3.1 Overview": "test_claude",
    "3.2 › claude_types.dart": "test_claude test_the_four_answers test_the_blocks_of_the_document",
    "3.2 › claude_events.dart": "test_claude test_the_events_of_the_document "
    "test_every_event_of_every_library_has_the_three_facts",
    "3.2 › claude_config.dart": "test_the_config_of_claude test_delegate_needs_its_function",
    "3.2 › claude_session.dart": "test_claude",
    "3.2 › claude_client.dart": "test_claude test_the_config_of_claude",
    "4.1 Overview": "test_codex_exec",
    "4.2 › codex_types.dart": "test_codex_exec test_the_config_of_codex test_the_events_of_the_document",
    "4.2 › codex_events.dart": "test_codex_exec test_the_events_of_the_document "
    "test_every_event_of_every_library_has_the_three_facts",
    "4.2 › codex_config.dart": "test_the_config_of_codex",
    "4.2 › codex_session.dart": "test_codex_exec test_codex_app_server",
    "4.2 › codex_client.dart": "test_codex_exec",
    "5.1 Overview": "test_gemini",
    "5.2 › gemini_types.dart": "test_gemini test_the_events_of_the_document",
    "5.2 › gemini_events.dart": "test_gemini test_the_events_of_the_document "
    "test_every_event_of_every_library_has_the_three_facts",
    "5.2 › gemini_config.dart": "test_the_config_of_gemini",
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
    "3.2 › claude_types.dart": "what the library makes of its own is named otherwise: `ClaudeStoredSession` (times in "
    "milliseconds), `CanUseTool`, `PermissionResultAllow`; the four answers are `PermissionBehavior`, for every agent",
    "3.2 › claude_config.dart": "`permissionHandler` is `can_use_tool`, which works in every mode; `delegate` needs it",
    "4.2 › codex_config.dart": "by the names of today's flags: `dangerously_bypass_approvals_and_sandbox`, `web_search`, "
    "`env`; without a policy nobody is asked, as `exec` cannot ask",
    "4.2 › codex_events.dart": "`threadId` is `session_id`, as in every library; a failed turn's message is `error.message`",
    "5.2 › gemini_types.dart": "a stored session has its folder (`cwd`) in place of the hash of it",
    "5.2 › gemini_events.dart": "a tool's fields are the event's own; code and message of an error are in `error`",
    "5.2 › gemini_config.dart": "`debug` is any flag (`extra_args`); `sandboxImage` is sent as `GEMINI_SANDBOX_IMAGE`",
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
    """A repository on the branch ``trunk``, with an origin."""
    git = folder / "repo" / ".git"
    for name in ("objects", "refs/heads"):
        (git / name).mkdir(parents=True)
    (git / "HEAD").write_text("ref: refs/heads/trunk\n")
    remote = '[remote "origin"]\n\turl = https://example.test/repo.git\n'
    (git / "config").write_text(f"[core]\n\trepositoryformatversion = 0\n{remote}")
    return model.environment(agent, home=folder / "home", cwd=folder / "repo")


def made_in(folder: Path) -> list[str]:
    return sorted(path.name for path in (folder / "repo").iterdir() if path.name != ".git")


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
            assert made_in(tmp_path) == ["made"]
            [stored] = await native.list_sessions()
            check_stored(stored, session_id=session_id, cwd=str(tmp_path / "repo"), git_branch="trunk")
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
            [stored] = await native.list_sessions()
            origin = "https://example.test/repo.git"
            place = str(tmp_path / "repo")
            check_stored(stored, session_id=session_id, cwd=place, repository_url=origin)
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
            [stored] = await native.list_sessions()
            check_stored(stored, session_id=session_id, cwd=str(tmp_path / "repo"))
            assert stored.message_count > 1
            await native.resume(session_id, "Second.", config)

    run(main)


@pytest.mark.live
@needs("claude")
def test_the_config_of_claude(tmp_path: Path) -> None:
    """Each field of ``ClaudeSessionConfig``, by what the CLI then does and asks of its model."""

    async def main() -> None:
        script = [shell("touch made"), shell("touch not"), write_file("edited", "x"), say("Done.")]
        async with ScriptedModel(script) as model:
            client = ClaudeClient(
                tmp_path / "repo", str(find_cli("claude")), environment(model, "claude", tmp_path).env
            )
            config = ClaudeSessionConfig(
                permission_mode=ClaudePermissionMode.default, model="claude-opus-4-5-20251101", max_turns=2,
                system_prompt="You are a stagehand.", append_system_prompt="Speak softly.",
                allowed_tools=("Bash(touch made:*)",), disallowed_tools=("WebFetch",),
            )  # fmt: skip
            async with await client.create_session("First of all.", config) as session:
                async for event in session.events:
                    if isinstance(event, claude_events.ClaudeResult):
                        break
            assert read_fields(event, "subtype", "session_id", "turn_id") == ("error_max_turns", session.session_id, 1)
            [first, second] = [request for request in model.requests if not request.side]
            assert (first.model, second.model) == (config.model, config.model)
            assert "You are a stagehand." in first.system
            assert "Speak softly." in first.system
            assert "Bash" in first.tools
            assert "WebFetch" not in first.tools
            assert made_in(tmp_path) == ["made"]  # that was granted, the other needs an answer
            edits = ClaudeSessionConfig(permission_mode=ClaudePermissionMode.accept_edits)
            async with await client.resume_session(session.session_id, "Go on.", edits) as resumed:
                await resumed.wait()
            assert "First of all." in json.dumps(model.requests[-1].body)
            assert made_in(tmp_path) == ["edited", "made"]

    run(main)


CODEX: list[tuple[dict[str, Any], list[str], bool]] = [
    # the config, what is made in the folder, whether something is made outside of it
    ({"sandbox_mode": SandboxMode.READ_ONLY, "approval_policy": ApprovalPolicy.NEVER}, [], False),
    ({"sandbox_mode": SandboxMode.WORKSPACE_WRITE, "approval_policy": ApprovalPolicy.NEVER}, ["inside"], False),
    ({"sandbox_mode": SandboxMode.DANGER_FULL_ACCESS, "approval_policy": ApprovalPolicy.NEVER}, ["inside"], True),
    ({"full_auto": True}, ["inside"], False),
    ({"dangerously_bypass_approvals_and_sandbox": True}, ["inside"], True),
]


@pytest.mark.live
@needs("codex")
def test_the_config_of_codex(tmp_path: Path) -> None:
    """Each field of ``CodexSessionConfig``, by what is there afterwards and what the model was asked."""

    async def main() -> None:
        for number, (settings, made, outside) in enumerate(CODEX):
            folder = tmp_path / str(number)
            folder.mkdir()
            # Not in the temporary folder of the machine: there a workspace's sandbox may write.
            with tempfile.TemporaryDirectory(dir="/var/tmp") as away:
                command = f"echo $SEED > inside; echo $SEED > {away}/outside"
                async with ScriptedModel([shell(command), say("Done.")]) as model:
                    client = CodexClient(folder / "repo", find_cli("codex"), environment(model, "codex", folder).env)
                    config = CodexSessionConfig(model="gpt-5.5", web_search=True, env={"SEED": "seed"}, **settings)
                    async with await client.create_session("First.", config) as session:
                        await session.wait()
                assert {request.model for request in model.requests} == {"gpt-5.5"}
                assert any("web_search" in name for name in model.requests[0].tools), model.requests[0].tools
                assert (made_in(folder), any(Path(away).iterdir())) == (made, outside), settings
                if made:
                    assert (folder / "repo" / "inside").read_text() == "seed\n"

    run(main)


@pytest.mark.live
@needs("gemini")
def test_the_config_of_gemini(tmp_path: Path) -> None:
    """``autoEdit``: edits run unasked, and nobody is there to be asked about a command."""

    async def main() -> None:
        async with ScriptedModel([write_file("edited", "x"), shell("touch not"), say("Done.")]) as model:
            place = environment(model, "gemini", tmp_path)
            client = GeminiClient(tmp_path / "repo", str(find_cli("gemini")), place.env)
            config = GeminiSessionConfig(model="gemini-2.5-flash", approval_mode=ApprovalMode.AUTO_EDIT)
            async with await client.create_session("First.", config) as session:
                await session.wait()
            assert {request.model for request in model.requests if not request.side} == {"gemini-2.5-flash"}
            assert made_in(tmp_path) == ["edited"]

    run(main)


Reading = tuple[str, tuple[str, ...], tuple[Any, ...]]
CLAUDE_LINES: list[Reading] = [
    ('{"type":"init","session_id":"s","model":"opus"}', ("model", "session_id"), ("opus", "s")),
    ('{"type":"assistant","session_id":"s","message":{"content":[],"usage":{"input_tokens":1,"output_tokens":2,'
     '"cache_creation_input_tokens":3,"cache_read_input_tokens":4}}}',
     ("message.usage.input_tokens", "message.usage.output_tokens", "message.usage.cache_creation_input_tokens",
      "message.usage.cache_read_input_tokens"), (1, 2, 3, 4)),
    ('{"type":"system","subtype":"compact_boundary","session_id":"s"}', ("session_id",), ("s",)),
    ('{"type":"result","subtype":"success","cost_usd":0.5,"duration_ms":5,"usage":{"input_tokens":1,"output_tokens":2}}',
     ("subtype", "cost_usd", "duration_ms", "usage.input_tokens"), ("success", 0.5, 5.0, 1)),
    ('{"type":"result","subtype":"error","error":"broken"}', ("subtype", "error"), ("error", "broken")),
    ('{"type":"brand_new","x":1}', ("raw",), (b'{"type":"brand_new","x":1}',)),
]  # fmt: skip
ITEM = '{"type":"item.completed","status":"success","item":%s}'
CODEX_LINES: list[Reading] = [
    ('{"type":"thread.started","thread_id":"t"}', ("thread_id",), ("t",)),
    (ITEM % '{"id":"1","type":"agent_message","text":"Hi"}', ("item.id", "item.text", "status"), ("1", "Hi", "success")),
    (ITEM % '{"id":"2","type":"reasoning","reasoning":"Hm","summary":"h"}', ("item.reasoning", "item.summary"), ("Hm", "h")),
    (ITEM % '{"id":"3","type":"tool_call","name":"shell","arguments":{"a":1},"output":"o","exit_code":0}',
     ("item.name", "item.arguments", "item.output", "item.exit_code"), ("shell", {"a": 1}, "o", 0)),
    (ITEM % '{"id":"4","type":"file_change","path":"a","before":"x","after":"y","diff":"d"}',
     ("item.path", "item.before", "item.after", "item.diff"), ("a", "x", "y", "d")),
    (ITEM % '{"id":"5","type":"mcp_tool_call","tool_name":"q","tool_input":{"a":1},"tool_result":"r"}',
     ("item.tool_name", "item.tool_input", "item.tool_result"), ("q", {"a": 1}, "r")),
    (ITEM % '{"id":"6","type":"web_search","query":"q","results":[{"u":1}]}', ("item.query", "item.results"), ("q", [{"u": 1}])),
    (ITEM % '{"id":"8","type":"brand_new"}', ("item.raw",), (b'{"id":"8","type":"brand_new"}',)),
    ('{"type":"turn.completed","usage":{"input_tokens":1,"output_tokens":2,"cached_input_tokens":3}}',
     ("usage.input_tokens", "usage.output_tokens", "usage.cached_input_tokens"), (1, 2, 3)),
    ('{"type":"turn.failed","error":{"message":"m"}}', ("error.message",), ("m",)),
    ('{"type":"error","message":"m"}', ("message",), ("m",)),
    ('{"type":"brand.new"}', ("raw",), (b'{"type":"brand.new"}',)),
]  # fmt: skip
GEMINI_LINES: list[Reading] = [
    ('{"type":"init","session_id":"s","model":"g"}', ("session_id", "model"), ("s", "g")),
    ('{"type":"message","role":"assistant","content":"Hi","delta":true}', ("role", "content", "delta"), ("assistant", "Hi", True)),
    ('{"type":"tool_use","tool_name":"ls","tool_id":"1","parameters":{"a":1}}',
     ("tool_name", "tool_id", "parameters"), ("ls", "1", {"a": 1})),
    ('{"type":"tool_result","tool_id":"1","status":"error","output":"o","error":{"message":"m"}}',
     ("tool_id", "status", "output", "error.message"), ("1", "error", "o", "m")),
    ('{"type":"result","status":"success","stats":{"total_tokens":3,"input_tokens":1,"output_tokens":2,"duration_ms":5,'
     '"tool_calls":1}}', ("status", "stats.total_tokens", "stats.input_tokens", "stats.output_tokens",
     "stats.duration_ms", "stats.tool_calls"), ("success", 3, 1, 2, 5.0, 1)),
    ('{"type":"error","error":{"code":"C","message":"m"}}', ("error.code", "error.message"), ("C", "m")),
    ('{"type":"retry","attempt":1,"max_attempts":3,"delay_ms":100}', ("attempt", "max_attempts", "delay_ms"), (1, 3, 100.0)),
    ('{"type":"brand_new"}', ("raw",), (b'{"type":"brand_new"}',)),
]  # fmt: skip


@pytest.mark.parametrize(
    ("protocol", "line", "names", "values"),
    [
        *((ClaudeProtocol, *row) for row in CLAUDE_LINES),
        *((ExecProtocol, *row) for row in CODEX_LINES),
        *((StreamProtocol, *row) for row in GEMINI_LINES),
    ],
)
def test_the_events_of_the_document(protocol: Any, line: str, names: tuple[str, ...], values: tuple[Any, ...]) -> None:
    """``fromJson``: every line of the document is an event with the fields that the document gives it."""
    assert read_fields(protocol().receive(line.encode())[0], *names) == values


def test_the_blocks_of_the_document() -> None:
    content = [
        {"type": "text", "text": "Hi"},
        {"type": "thinking", "thinking": "Hm"},
        {"type": "tool_use", "id": "t1", "name": "Bash", "input": {"command": "ls"}},
        {"type": "tool_result", "tool_use_id": "t1", "content": "out", "is_error": True},
        {"type": "brand_new", "x": 1},
    ]
    line = json.dumps({"type": "assistant", "session_id": "s", "message": {"role": "assistant", "content": content}})
    [event] = ClaudeProtocol().receive(line.encode())
    assert isinstance(event, claude_events.Assistant)
    text, thought, use, result, unknown = event.message.blocks()
    assert read_fields(text, "text") == ("Hi",)
    assert read_fields(thought, "thinking") == ("Hm",)
    assert read_fields(use, "id", "name", "input") == ("t1", "Bash", {"command": "ls"})
    assert read_fields(result, "tool_use_id", "is_error") == ("t1", True)
    assert b"brand_new" in read_fields(unknown, "raw")[0]


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
            await ClaudeClient(tmp_path, "/bin/sh").create_session("Go.", config)

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
