"""Document 004 as its own client uses it: a chat window, with the embedded agent and with the real Claude Code and
Codex CLI; the lines of the document; and the control channel as it shows it."""

# ruff: noqa: E501 (lines as the document prints them)
from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import msgspec
import pytest

import stagedoor
from stagedoor.agents.claude import ClaudeClient, ClaudePermissionMode, ClaudeProtocol, ClaudeSessionConfig, HookMatcher
from stagedoor.agents.claude.commands import AnswerHook, ClaudeInitialize
from stagedoor.agents.claude.events import HookCallback, SystemInit
from stagedoor.agents.codex import CodexClient, CodexSessionConfig
from stagedoor.agents.codex.config import SandboxMode
from stagedoor.testing import ScriptedModel, find_cli, say, shell
from tests.seeds.client_004 import ChatWindow, Json, adapt, of
from tests.seeds.recording import recorder, words_of

BOUND = 240.0

COVERS: dict[str, str] = {
    "Quick Reference": "test_claude_code test_codex",
    "Quick Reference | Non-interactive mode": "test_claude_code test_codex",
    "Quick Reference | JSON streaming": "test_claude_code test_codex",
    "Quick Reference | Input format": "test_claude_code test_codex",
    "Quick Reference | Permission control": "test_a_chat_with_the_real_clis",
    "Quick Reference | Session ID source": "test_claude_code test_codex test_the_lines_of_the_document",
    "1 › Claude Code": "test_claude_code 001::test_the_config_of_claude",
    "1 › Codex CLI": "test_codex 001::test_the_config_of_codex",
    "2 › Claude Code Events": "test_the_lines_of_the_document test_a_chat_with_the_real_clis",
    "2 › Claude Code Events › System Init Event": "test_the_lines_of_the_document test_claude_code",
    "2 › Claude Code Events › Assistant Message Event": "test_the_lines_of_the_document",
    "2 › Claude Code Events › Tool Result Event (User Message)": "test_the_lines_of_the_document",
    "2 › Claude Code Events › Result Event": "test_the_lines_of_the_document",
    "2 › Codex CLI Events": "test_the_lines_of_the_document test_a_chat_with_the_real_clis",
    "2 › Codex CLI Events › Thread Started Event": "test_the_lines_of_the_document test_codex",
    "2 › Codex CLI Events › Turn Started Event": "test_the_lines_of_the_document",
    "2 › Codex CLI Events › Reasoning Event (Thinking)": "test_the_lines_of_the_document",
    "2 › Codex CLI Events › Command Execution Events": "test_the_lines_of_the_document",
    "2 › Codex CLI Events › File Change Event": "test_the_lines_of_the_document",
    "2 › Codex CLI Events › Agent Message Event": "test_the_lines_of_the_document",
    "2 › Codex CLI Events › Turn Completed Event": "test_the_lines_of_the_document",
    "3. Event Mapping to ChatEvent": "test_a_chat test_the_lines_of_the_document test_a_chat_with_the_real_clis",
    "3. Event Mapping to ChatEvent | `SessionInit`": "test_a_chat test_the_lines_of_the_document",
    "3. Event Mapping to ChatEvent | `Text`": "test_a_chat test_the_lines_of_the_document",
    "3. Event Mapping to ChatEvent | `ThinkingStart/End`": "test_a_chat test_the_lines_of_the_document",
    "3. Event Mapping to ChatEvent | `ToolStart`": "test_a_chat test_the_lines_of_the_document",
    "3. Event Mapping to ChatEvent | `ToolEnd`": "test_a_chat test_the_lines_of_the_document",
    "3. Event Mapping to ChatEvent | `TokenUsage`": "test_the_lines_of_the_document test_a_chat_with_the_real_clis",
    "3. Event Mapping to ChatEvent | `Complete`": "test_a_chat test_the_lines_of_the_document",
    "3. Event Mapping to ChatEvent | `Error`": "test_errors test_the_lines_of_the_document",
    "4 › Claude Code: Bidirectional JSON Protocol": "test_hooks_of_claude_code test_the_control_channel",
    "4 › Claude Code: Bidirectional JSON Protocol › Initialization (Send to stdin)": "test_the_control_channel",
    "4 › Claude Code: Bidirectional JSON Protocol › Permission Request (Received from stdout)": "test_the_control_channel "
    "test_hooks_of_claude_code",
    "4 › Claude Code: Bidirectional JSON Protocol › Permission Response (Send to stdin)": "test_the_control_channel "
    "test_hooks_of_claude_code",
    "4 › Codex CLI: No Programmatic Permission Callbacks": "test_a_chat_with_the_real_clis test_codex",
    "5 › Claude Code": "test_claude_code 001::test_claude 001::test_the_config_of_claude",
    "5 › Codex CLI": "test_codex test_resume_the_last 001::test_codex_exec",
    "6 › Claude Code": "test_a_chat_with_the_real_clis",
    "6 › Codex CLI": "test_a_chat_with_the_real_clis",
    "7 › Claude Code": "test_the_lines_of_the_document",
    "7 › Codex CLI": "test_the_lines_of_the_document",
    "8 › Claude Code": "test_claude_code 001::test_the_config_of_claude",
    "8 › Claude Code | Claude Opus 4.5": "test_claude_code 001::test_the_config_of_claude",
    "8 › Claude Code | Claude Sonnet 4.5": "test_claude_code",
    "8 › Claude Code | Claude Haiku 4.5": "test_claude_code",
    "8 › Codex CLI": "test_codex 001::test_the_config_of_codex",
    "8 › Codex CLI | GPT-5 Codex": "test_codex",
    "8 › Codex CLI | GPT-5": "test_codex",
    "8 › Codex CLI | GPT-5.1 Codex Max": "test_codex",
    "8 › Codex CLI | GPT-4.1 Mini": "test_codex",
    "9. Known Differences": "test_a_chat_with_the_real_clis",
    "9. Known Differences | Programmatic permissions": "test_a_chat_with_the_real_clis",
    "9. Known Differences | Thinking/reasoning events": "test_the_lines_of_the_document",
    "9. Known Differences | Tool types": "test_a_chat_with_the_real_clis",
    "9. Known Differences | ToolStart source": "test_a_chat_with_the_real_clis",
    "9. Known Differences | Session persistence": "test_claude_code test_codex",
    "9. Known Differences | Working directory": "test_codex test_a_chat_with_the_real_clis",
    "10. Verified CLI Versions": "test_a_chat_with_the_real_clis",
}
DIFFERS: dict[str, str] = {
    "Quick Reference | Permission control": "Codex has programmatic callbacks: its app-server asks",
    "1 › Codex CLI": "the prompt is standard input (`-`), and `--full-auto` is gone from the CLI",
    "2 › Claude Code Events › Assistant Message Event": "usage is counted once per message, not once per block",
    "2 › Codex CLI Events › Turn Completed Event": "the CLI's figure is the whole thread's: made per turn",
    "3. Event Mapping to ChatEvent | `ToolStart`": "from the `tool_use` block; the states (`awaiting_permission`, "
    "`running`, `denied`) follow in `ToolStatusUpdate`",
    "4 › Claude Code: Bidirectional JSON Protocol": "the CLI also asks by itself (`can_use_tool`), which needs no hook; an "
    "answer that fails denies",
    "4 › Codex CLI: No Programmatic Permission Callbacks": "true of `exec`; the app-server asks about commands, patches, "
    "MCP and permissions",
    "5 › Codex CLI": "`--last` may pick another folder's thread: `resume=last` is the newest in the folder",
    "6 › Claude Code": "in-band by a control request, which keeps the session; SIGINT only to end the process",
    "6 › Codex CLI": "SIGINT for `exec`; the app-server in-band, background terminals cleaned",
    "9. Known Differences | Programmatic permissions": "both have them: Codex by its app-server",
    "9. Known Differences | MCP integration": "`mcp_servers=` for this run only; nothing is written into the user's "
    "settings; shown for every agent in tests/live",
    "10. Verified CLI Versions": "newer ones, and a second version of each beside it: docs/compatibility.md",
}
HEADINGS: dict[str, str] = {
    "CLI Protocol Reference": "the title",
    "1. Process Spawning": "below",
    "2. Event Stream Format": "below",
    "4. Permission System": "below",
    "5. Session Management": "below",
    "6. Abort/Interrupt": "below",
    "7. Error Handling": "below",
    "8. Model Selection": "below",
}


def bounded(main: Callable[[], Coroutine[Any, Any, None]]) -> None:
    async def work() -> None:
        async with asyncio.timeout(BOUND):
            await main()

    asyncio.run(work())


def script(*replies: object) -> str:
    return json.dumps({"script": list(replies)})


@pytest.fixture
def window(tmp_path: Path) -> ChatWindow:
    (tmp_path / "workspace").mkdir()
    home = {"STAGEDOOR_UNDERSTUDY_HOME": str(tmp_path / "home")}
    return ChatWindow("understudy", cwd=str(tmp_path / "workspace"), env=home)


def statuses(events: list[Json], tool: str) -> list[str]:
    """Of one tool, from ``ToolStart`` to ``ToolEnd``."""
    return [event["status"] for event in events if tool in (event.get("toolUseId"), event.get("id"))]


def test_a_chat(window: ChatWindow) -> None:
    """§3: a thought, a text, a tool that is allowed and one that is not."""

    def decide(request: stagedoor.PermissionRequest) -> stagedoor.Decision:
        return stagedoor.Deny("no") if "not" in request.target else stagedoor.Allow()

    async def main() -> None:
        prompt = script(
            [{"think": "Let me see."}, {"say": "I look."}],
            [{"shell": "touch made"}],
            [{"shell": "touch not"}],
            [{"say": "Done."}],
        )
        events = await window.chat(prompt, approval="ask", can_use_tool=decide)
        assert events[0]["cwd"] == window.surroundings["cwd"]
        assert [event["content"] for event in of(events, "ThinkingEnd")] == ["Let me see."]
        assert "".join(event["content"] for event in of(events, "Text")) == "I look.Done."
        made, refused = (event["toolUseId"] for event in of(events, "ToolStart"))
        assert statuses(events, made) == ["running", "awaiting_permission", "running", "completed"]
        assert statuses(events, refused) == ["running", "awaiting_permission", "denied", "denied"]
        assert (events[-1]["type"], events[-1]["status"], events[-1]["result"]) == ("Complete", "success", "Done.")
        assert [path.name for path in Path(window.surroundings["cwd"]).iterdir()] == ["made"]

    bounded(main)


def test_errors(window: ChatWindow) -> None:
    async def main() -> None:
        events = await window.chat(script([{"http_error": 401}]))
        assert (events[-1]["type"], events[-1]["status"]) == ("Error", "error")

    bounded(main)


def test_resume_the_last(window: ChatWindow) -> None:
    """§5 ``--continue`` and ``resume --last``."""

    async def main() -> None:
        await window.chat(script([{"say": "One."}]))
        again = await window.chat(script([{"say": "Two."}]), resume="last")
        assert of(again, "Text")[-1]["content"] == "Two."

    bounded(main)


STORIES: dict[str, tuple[str, str, str, list[Json]]] = {
    "§2 Claude Code": (
        "claude", "stream",
        """
        {"type":"system","subtype":"init","cwd":"/p","session_id":"uuid","tools":["Read","Write","Bash"],"model":"opus","permissionMode":"default","apiKeySource":"none","claude_code_version":"2.1.31"}
        {"type":"assistant","message":{"model":"opus","id":"msg_1","role":"assistant","content":[{"type":"thinking","thinking":"Hm."},{"type":"text","text":"Response"},{"type":"tool_use","id":"toolu_1","name":"Write","input":{"file_path":"/p/a","content":"x"}}],"usage":{"input_tokens":100,"output_tokens":50,"cache_read_input_tokens":1000,"cache_creation_input_tokens":500}},"session_id":"uuid"}
        {"type":"user","message":{"role":"user","content":[{"tool_use_id":"toolu_1","type":"tool_result","content":"Tool output"}]},"tool_use_result":{"type":"create","filePath":"/p/a","content":"x"}}
        {"type":"result","subtype":"success","is_error":false,"duration_ms":5000,"num_turns":3,"result":"Final","session_id":"uuid","total_cost_usd":0.05,"usage":{"input_tokens":100,"output_tokens":50,"cache_read_input_tokens":1000}}
        """,
        [
            {"type": "SessionInit", "cwd": "/p", "model": "opus", "tools": ["Read", "Write", "Bash"]},
            {"type": "ThinkingStart", "content": "Hm."},
            {"type": "ThinkingEnd", "content": "Hm."},
            {"type": "Text", "content": "Response"},
            {"type": "ToolStart", "toolUseId": "toolu_1", "toolType": "Write", "target": "/p/a"},
            {"type": "ToolEnd", "id": "toolu_1", "status": "completed", "output": "Tool output"},
            {"type": "TokenUsage", "outputTokens": 50},
            {"type": "Complete", "status": "success", "result": "Final", "durationMs": 5000.0},
        ],
    ),
    "§7 Claude Code": (
        "claude", "stream",
        """
        {"type":"system","subtype":"init","cwd":"/p","session_id":"uuid","tools":[],"model":"opus"}
        {"type":"result","subtype":"error","is_error":true,"result":"Error message"}
        """,
        [{"type": "Error", "message": "Error message"}, {"type": "Error", "status": "error"}],
    ),
    "§2 Codex CLI, §7": (
        "codex", "exec",
        r"""
        {"type":"thread.started","thread_id":"uuid"}
        {"type":"turn.started"}
        {"type":"item.completed","item":{"id":"item_0","type":"reasoning","text":"Thinking about it"}}
        {"type":"item.started","item":{"id":"item_1","type":"command_execution","command":"/bin/zsh -lc 'cat none.txt'","aggregated_output":"","exit_code":null,"status":"in_progress"}}
        {"type":"item.completed","item":{"id":"item_1","type":"command_execution","command":"/bin/zsh -lc 'cat none.txt'","aggregated_output":"cat: none.txt: No such file\n","exit_code":1,"status":"failed"}}
        {"type":"item.completed","item":{"id":"item_3","type":"file_change","changes":[{"path":"/p/file.txt","kind":"update"}],"status":"completed"}}
        {"type":"item.completed","item":{"id":"item_5","type":"agent_message","text":"I've completed the task"}}
        {"type":"turn.completed","usage":{"input_tokens":14172,"cached_input_tokens":4352,"output_tokens":127}}
        """,
        [
            {"type": "SessionInit", "agent": "codex"},
            {"type": "ThinkingStart", "content": "Thinking about it"},
            {"type": "ThinkingEnd", "content": "Thinking about it"},
            {"type": "ToolStart", "target": "cat none.txt"},
            {"type": "ToolEnd", "status": "error", "output": "cat: none.txt: No such file\n"},
            {"type": "ToolStart", "target": "/p/file.txt"},
            {"type": "ToolEnd", "status": "completed"},
            {"type": "Text", "content": "I've completed the task"},
            {"type": "TokenUsage", "inputTokens": 14172, "outputTokens": 127, "cachedTokens": 4352},
            {"type": "Complete", "status": "success", "result": "I've completed the task"},
        ],
    ),
}  # fmt: skip


@pytest.mark.parametrize("story", STORIES)
def test_the_lines_of_the_document(story: str) -> None:
    """§2, §3, §7."""
    agent, driver, lines, expected = STORIES[story]
    adapted = adapt(agent, driver, [line.strip() for line in lines.strip().splitlines()])
    rest = iter(adapted)
    for event in expected:
        assert any(event.items() <= other.items() for other in rest), (event, adapted)


def test_the_control_channel() -> None:
    """§4: initialize with a hook, the hook is called, the answer allows."""
    protocol = ClaudeProtocol()
    hooks = {"PreToolUse": [{"matcher": "*", "hookCallbackIds": ["hook_0"]}]}
    protocol.send(ClaudeInitialize(hooks=hooks))
    (sent,) = map(msgspec.json.decode, protocol.outgoing())
    assert sent == {
        "type": "control_request",
        "request_id": sent["request_id"],
        "request": {"subtype": "initialize", "hooks": hooks},
    }
    message = {
        "type": "control_request",
        "request_id": "req_123",
        "request": {
            "subtype": "hook_callback",
            "callback_id": "hook_0",
            "input": {
                "hook_event_name": "PreToolUse",
                "tool_name": "Bash",
                "tool_input": {"command": "rm -rf /tmp/test"},
            },
        },
    }
    assert protocol.receive(msgspec.json.encode(message)) == [
        HookCallback("hook_0", message["request"]["input"], request_id="req_123")  # type: ignore[index]
    ]
    output = {"hookSpecificOutput": {"hookEventName": "PreToolUse", "permissionDecision": "allow"}}
    protocol.send(AnswerHook("req_123", output))
    assert [msgspec.json.decode(line) for line in protocol.outgoing()] == [
        {
            "type": "control_response",
            "response": {"subtype": "success", "request_id": "req_123", "response": output},
        }
    ]


@pytest.mark.live
def test_hooks_of_claude_code(tmp_path: Path) -> None:
    """§4 on the real wire: a PreToolUse hook of ours allows one call and denies another."""
    if (program := find_cli("claude")) is None:
        pytest.skip("claude is not installed: run `make clis`")
    calls: list[str] = []

    def decide(callback: HookCallback) -> Json:
        command = callback.input["tool_input"]["command"]
        calls.append(command)
        decision = "deny" if "not" in command else "allow"
        return {"hookSpecificOutput": {"hookEventName": "PreToolUse", "permissionDecision": decision}}

    async def main() -> None:
        async with ScriptedModel([shell("touch made"), shell("touch not"), say("Done.")]) as model:
            env = model.environment("claude", home=tmp_path / "home", cwd=tmp_path).env
            config = ClaudeSessionConfig(hooks={"PreToolUse": [HookMatcher([decide], matcher="*")]})
            client = ClaudeClient(tmp_path, str(program), env)
            async with await client.create_session("Go.", config) as session:
                await session.wait()
        assert calls == ["touch made", "touch not"]
        assert (tmp_path / "made").exists()
        assert not (tmp_path / "not").exists()

    bounded(main)


def test_claude_code(tmp_path: Path) -> None:
    """§1, §5, §8: how it is started, by any name of a model; and the id of a session."""
    wrapper, record = recorder(tmp_path)
    client = ClaudeClient(tmp_path, str(wrapper), {"HOME": str(tmp_path)})

    async def main() -> None:
        required = {"--print", "--output-format stream-json", "--verbose", "--input-format stream-json"}
        for model in ("opus", "claude-opus-4-5-20251101", "sonnet", "claude-sonnet-4-5-20250929", "haiku"):
            received = await words_of(client, record, ClaudeSessionConfig(model=model))
            assert required | {f"--model {model}"} <= received
            assert "Go." not in received  # the prompt is standard input
        for mode in (ClaudePermissionMode.default, ClaudePermissionMode.accept_edits):
            assert f"--permission-mode {mode.value}" in await words_of(
                client, record, ClaudeSessionConfig(permission_mode=mode)
            )
        assert "--resume some-session" in await words_of(client, record, ClaudeSessionConfig(), resumed="some-session")
        assert "--continue" in await words_of(client, record, ClaudeSessionConfig(continue_session=True))
        assert "--no-session-persistence" in await words_of(client, record, ClaudeSessionConfig(persist_session=False))
        line = b'{"type":"system","subtype":"init","cwd":"/p","session_id":"uuid","tools":[],"model":"opus"}'
        assert [event.session_id for event in ClaudeProtocol().receive(line) if isinstance(event, SystemInit)] == [
            "uuid"
        ]

    bounded(main)


def test_codex(tmp_path: Path) -> None:
    """§1, §5, §8."""
    wrapper, record = recorder(tmp_path)
    client = CodexClient(tmp_path, wrapper, {"HOME": str(tmp_path), "CODEX_API_KEY": "none"})

    async def main() -> None:
        for model in ("gpt-5-codex", "gpt-5", "gpt-5.1-codex-max", "gpt-4.1-mini"):
            received = await words_of(client, record, CodexSessionConfig(model=model))
            assert {"exec", "--json", f"-C {tmp_path}", "-"} <= received
            assert any(model == word.strip('"') or word.endswith(f" {model}") for word in received)
            assert "Go." not in received  # the prompt is standard input
        for mode in SandboxMode:
            assert any(
                mode.value in word for word in await words_of(client, record, CodexSessionConfig(sandbox_mode=mode))
            )
        thread = "0198c5f0-0000-7000-8000-000000000000"
        assert f"resume {thread}" in await words_of(client, record, CodexSessionConfig(), resumed=thread)
        assert "--ephemeral" in await words_of(client, record, CodexSessionConfig(ephemeral=True))

    bounded(main)


@pytest.mark.live
@pytest.mark.parametrize("agent", ["claude", "codex"])
def test_a_chat_with_the_real_clis(tmp_path: Path, agent: str) -> None:
    """§3, §4, §6, §9: the same window, whichever CLI it is: one tool is allowed, one is not, one is interrupted."""
    if (program := find_cli(agent)) is None:
        pytest.skip(f"{agent} is not installed: run `make clis`")

    def decide(request: stagedoor.PermissionRequest) -> stagedoor.Decision:
        return stagedoor.Deny("no") if "not" in request.target else stagedoor.Allow()

    async def main() -> None:
        async with ScriptedModel([shell("touch made"), shell("touch not"), shell("sleep 600")]) as model:
            place = model.environment(agent, home=tmp_path / "home", cwd=tmp_path)
            window = ChatWindow(
                agent, cwd=str(tmp_path), env=place.env, inherit_env=False, executable=str(program), model=place.model
            )
            token, events = stagedoor.CancelToken(), list[Json]()
            async for event in window.events("Go.", approval="ask", can_use_tool=decide, cancel=token):
                events.append(event)
                if (
                    event.get("status") == "running"
                    and len(of(events, "ToolStart")) == 3
                    and event["type"] != "ToolStart"
                ):
                    token.cancel()
        made, refused, cut = (event["toolUseId"] for event in of(events, "ToolStart"))
        assert statuses(events, made) == ["running", "awaiting_permission", "running", "completed"]
        assert statuses(events, refused) == ["running", "awaiting_permission", "denied", "denied"]
        assert statuses(events, cut)[:3] == ["running", "awaiting_permission", "running"]
        assert (events[-1]["type"], events[-1]["status"]) == ("Complete", "interrupted")
        assert of(events, "TokenUsage")
        assert (tmp_path / "made").exists()
        assert not (tmp_path / "not").exists()

    bounded(main)
