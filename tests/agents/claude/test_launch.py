from __future__ import annotations

import json
from typing import Any

import pytest

from stagedoor.agents.claude import ClaudePermissionMode, ClaudeSessionConfig, HookMatcher, ToolServer
from stagedoor.agents.claude.commands import ClaudeInitialize, PermissionResultAllow
from stagedoor.agents.claude.launch import PERMISSION_TOOL, STOP, SURROUNDING, initialize, launch
from stagedoor.errors import LocalProtocolError
from stagedoor.transports.launch import SCRATCH, Launch

FIXED = ["--print", "--input-format", "stream-json", "--output-format", "stream-json", "--verbose"]
PARTIAL = "--include-partial-messages"
ID = "0a1b2c3d-1111-4222-8333-444455556666"


def yes(request: object) -> PermissionResultAllow:
    return PermissionResultAllow()


def args(config: ClaudeSessionConfig, **more: Any) -> list[str]:
    """What stands between the fixed part and the end."""
    argv = list(launch(config, cwd="/repo", executable="claude", **more).argv)
    assert argv[: len(FIXED) + 1] == ["claude", *FIXED]
    return argv[len(FIXED) + 1 :]


def test_a_whole_launch() -> None:
    assert launch(ClaudeSessionConfig(), cwd="/repo", executable="/bin/claude") == Launch(
        argv=("/bin/claude", *FIXED, PARTIAL),
        cwd="/repo",
        env={"CLAUDE_CODE_EMIT_SESSION_STATE_EVENTS": "1", "DISABLE_AUTOUPDATER": "1"},
        stop=STOP,
    )


MODE = ClaudePermissionMode


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        (dict(permission_mode=MODE.default), ["--permission-mode", "default", PARTIAL]),
        (dict(permission_mode=MODE.accept_edits), ["--permission-mode", "acceptEdits", PARTIAL]),
        (dict(permission_mode=MODE.bypass_permissions), ["--permission-mode", "bypassPermissions", PARTIAL]),
        (dict(permission_mode=MODE.plan), ["--permission-mode", "plan", PARTIAL]),
        (dict(permission_mode=MODE.dont_ask), ["--permission-mode", "dontAsk", PARTIAL]),
        (dict(permission_mode=MODE.auto), ["--permission-mode", "auto", PARTIAL]),
        (
            dict(permission_mode=MODE.delegate, can_use_tool=yes),
            ["--permission-prompt-tool", PERMISSION_TOOL, PARTIAL],
        ),
        (dict(can_use_tool=yes), ["--permission-prompt-tool", "stdio", PARTIAL]),
        (dict(host_answers_permissions=True), ["--permission-prompt-tool", "stdio", PARTIAL]),
        (dict(permission_prompt_tool="mcp__a__b"), ["--permission-prompt-tool", "mcp__a__b", PARTIAL]),
        (dict(allow_dangerously_skip_permissions=True), ["--allow-dangerously-skip-permissions", PARTIAL]),
        (dict(model="opus", fallback_models=["a", "b"]), ["--fallback-model", "a,b", "--model", "opus", PARTIAL]),
        (dict(effort="high"), ["--effort", "high", PARTIAL]),
        (dict(system_prompt="Be brief."), ["--system-prompt", "Be brief.", PARTIAL]),
        (dict(append_system_prompt="-x"), ["--append-system-prompt", "-x", PARTIAL]),
        (dict(max_turns=3, max_budget_usd=0.5), ["--max-turns", "3", "--max-budget-usd", "0.5", PARTIAL]),
        (dict(agents={"a": {"prompt": "p"}}), ["--agents", '{"a":{"prompt":"p"}}', PARTIAL]),
        (dict(agent="a"), ["--agent", "a", PARTIAL]),
        (dict(output_schema={"type": "object"}), ["--json-schema", '{"type":"object"}', PARTIAL]),
        (dict(tools=["Read", "Bash"]), ["--tools=Read,Bash", PARTIAL]),
        (dict(tools=[]), ["--tools=", PARTIAL]),
        (dict(allowed_tools=["Bash(git *)"], disallowed_tools=["Write", "Edit"]),
         ["--allowedTools=Bash(git *)", "--disallowedTools=Write,Edit", PARTIAL]),
        (dict(add_dirs=["/a", "/b"]), ["--add-dir=/a", "--add-dir=/b", PARTIAL]),
        (dict(settings={"a": 1}, setting_sources=["user"]),
         ["--settings", '{"a":1}', "--setting-sources=user", PARTIAL]),
        (dict(settings="file.json", setting_sources=[]), ["--settings", "file.json", "--setting-sources=", PARTIAL]),
        (dict(mcp_servers={"x": {"command": "y"}}, strict_mcp_config=True),
         ['--mcp-config={"mcpServers":{"x":{"command":"y"}}}', "--strict-mcp-config", PARTIAL]),
        (dict(mcp_servers={"desk": ToolServer([])}),
         ['--mcp-config={"mcpServers":{"desk":{"type":"sdk","name":"desk"}}}', PARTIAL]),
        (dict(session_id=ID), ["--session-id", ID, PARTIAL]),
        (dict(continue_session=True), ["--continue", PARTIAL]),
        (dict(continue_session=True, fork_session=True, session_id=ID),
         ["--continue", "--fork-session", "--session-id", ID, PARTIAL]),
        (dict(persist_session=False, name="n"), ["--no-session-persistence", "--name", "n", PARTIAL]),
        (dict(include_partial_messages=False, include_hook_events=True, replay_user_messages=True),
         ["--include-hook-events", "--replay-user-messages"]),
        (dict(bare=True, safe_mode=True, extra_args=["--chrome"]), [PARTIAL, "--bare", "--safe-mode", "--chrome"]),
    ],
)  # fmt: skip
def test_options(config: dict[str, Any], expected: list[str]) -> None:
    assert args(ClaudeSessionConfig(**config)) == expected


@pytest.mark.parametrize(
    ("config", "more", "expected"),
    [
        ({}, {"resume": "abc"}, ["--resume", "abc", PARTIAL]),
        ({}, {"resume": "abc", "session_id": ID}, ["--resume", "abc", PARTIAL]),
        ({}, {"session_id": ID}, ["--session-id", ID, PARTIAL]),
        (
            {"fork_session": True},
            {"resume": "abc", "session_id": ID},
            ["--resume", "abc", "--fork-session", "--session-id", ID, PARTIAL],
        ),
        (
            {},
            {"permission_server": {"command": "p"}},
            ['--mcp-config={"mcpServers":{"stagedoor":{"command":"p"}}}', PARTIAL],
        ),
    ],
)
def test_resume(config: dict[str, Any], more: dict[str, Any], expected: list[str]) -> None:
    assert args(ClaudeSessionConfig(**config), **more) == expected


def test_a_system_prompt_too_long_for_an_argument_travels_in_a_file() -> None:
    long = "ä" * 60_000
    command = launch(ClaudeSessionConfig(system_prompt=long), cwd="/repo", executable="claude")
    assert ["--system-prompt-file", f"{SCRATCH}/system-prompt.txt"] == list(command.argv[7:9])
    assert command.files == {"system-prompt.txt": long.encode()}


@pytest.mark.parametrize("secret", [{"env": {"KEY": "hush"}}, {"headers": {"Authorization": "hush"}}])
def test_what_a_tool_server_signs_in_with_is_in_no_argument(secret: dict[str, Any]) -> None:
    command = launch(
        ClaudeSessionConfig(mcp_servers={"x": {"command": "y", **secret}}), cwd="/repo", executable="claude"
    )
    assert f"--mcp-config={SCRATCH}/servers.json" in command.argv
    assert "hush" not in str(command.argv)
    assert {name: json.loads(text) for name, text in command.files.items()} == {
        "servers.json": {"mcpServers": {"x": {"command": "y", **secret}}}
    }


def test_environment() -> None:
    inherited = {"CLAUDECODE": "1", "CLAUDE_CODE_ENTRYPOINT": "cli", "CLAUDE_CONFIG_DIR": "/c", "HOME": "/h"}
    config = ClaudeSessionConfig(env={"CLAUDE_CODE_MAX_RETRIES": "2"}, max_thinking_tokens=7)
    command = launch(config, cwd="/repo", executable="claude", inherited=inherited)
    assert command.unset == SURROUNDING
    assert command.env == {
        "CLAUDE_CONFIG_DIR": "/c",
        "CLAUDE_CODE_EMIT_SESSION_STATE_EVENTS": "1",
        "DISABLE_AUTOUPDATER": "1",
        "MAX_THINKING_TOKENS": "7",
        "CLAUDE_CODE_MAX_RETRIES": "2",
    }
    assert launch(config, cwd="/repo", executable="claude").unset == ()


@pytest.mark.parametrize(
    ("config", "resume", "words"),
    [
        (dict(permission_mode=MODE.delegate), None, "needs can_use_tool"),
        (
            dict(permission_mode=MODE.delegate, can_use_tool=yes, permission_prompt_tool="x"),
            None,
            "sets permission_prompt_tool itself",
        ),
        (dict(can_use_tool=yes, permission_prompt_tool="x"), None, "leave one of the two out"),
        (dict(continue_session=True), "abc", "leave it out"),
        (dict(fork_session=True), None, "resume one by its id"),
        (dict(session_id=ID), "abc", "keeps its id"),
        (dict(session_id="mine"), None, "uuid"),
        ({}, "  ", "empty"),
        (dict(hooks={"PreTool": []}), None, "unknown hook 'PreTool'"),
        (dict(max_turns=0), None, "at least 1"),
        (dict(max_budget_usd=0), None, "above 0"),
        (dict(allowed_tools="Bash"), None, "takes a list"),
    ],
)
def test_bad_combinations(config: dict[str, Any], resume: str | None, words: str) -> None:
    with pytest.raises(LocalProtocolError, match=words):
        launch(ClaudeSessionConfig(**config), cwd="/repo", executable="claude", resume=resume)


def test_what_must_be_registered() -> None:
    def hook(call: object) -> None:
        return None

    assert initialize(ClaudeSessionConfig()) is None
    config = ClaudeSessionConfig(
        hooks={"PreToolUse": [HookMatcher([hook, hook], matcher="Bash", timeout=3), HookMatcher([hook])]},
        mcp_servers={"desk": ToolServer([]), "other": {"command": "x"}},
        forward_subagent_text=True,
    )
    assert initialize(config) == ClaudeInitialize(
        hooks={
            "PreToolUse": [
                {"matcher": "Bash", "hookCallbackIds": ["PreToolUse_0_0", "PreToolUse_0_1"], "timeout": 8},
                {"matcher": None, "hookCallbackIds": ["PreToolUse_1_0"]},
            ]
        },
        sdk_mcp_servers=("desk",),
        forward_subagent_text=True,
    )
    assert json.dumps(config.env) == "{}"
