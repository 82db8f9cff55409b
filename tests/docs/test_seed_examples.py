"""What the seeds themselves show of the CLIs' output, through the whole translation: their forms are older than ours."""

# ruff: noqa: E501 (lines as they were printed)
from __future__ import annotations

from typing import Any

import msgspec
import pytest

from stagedoor import catalog
from stagedoor.replay import Account, translate

HEADER = ("agent", "sessionId", "seq", "timestamp", "turn")
# section of a seed → (agent, driver, what it shows, the unified events that must come, in this order)
EXAMPLES: dict[str, tuple[str, str, str, list[dict[str, Any]]]] = {
    "002 §2.3 and appendix A": (
        "gemini",
        "stream-json",
        """
        {"type":"init","session_id":"abc123","model":"gemini-2.0-flash","version":"0.1.0"}
        {"type":"message","role":"assistant","content":[{"type":"text","text":"I'll read it."},{"type":"tool_call","id":"tc_1","name":"read_file","arguments":{"path":"main.go"}}]}
        {"type":"tool_result","id":"tc_1","content":"package main"}
        {"type":"tool_call","id":"tc_2","name":"shell","arguments":{"command":"ls"}}
        {"type":"tool_result","id":"tc_2","content":"main.go"}
        {"type":"done","usage":{"input_tokens":1500,"output_tokens":500},"duration_ms":3500}
        """,
        [
            {"type": "init", "nativeSessionId": "abc123", "model": "gemini-2.0-flash"},
            {"type": "text", "text": "I'll read it."},
            {"type": "tool_use", "toolUseId": "tc_1", "name": "read_file", "target": "main.go"},
            {"type": "tool_result", "toolUseId": "tc_1", "status": "success", "output": "package main"},
            {"type": "tool_use", "toolUseId": "tc_2", "name": "shell", "nativeName": "shell", "target": "ls"},
            {"type": "tool_result", "toolUseId": "tc_2", "output": "main.go"},
            {"type": "usage", "inputTokens": 1500, "outputTokens": 500, "totalTokens": 2000},
            {"type": "turn_completed", "status": "success", "durationMs": 3500.0},
        ],
    ),
    "001 §3.2 top-level init, 004 §7 an error": (
        "claude",
        "stream",
        """
        {"type":"init","session_id":"abc","model":"sonnet"}
        {"type":"result","subtype":"error","is_error":true,"result":"Error message"}
        """,
        [
            {"type": "init", "nativeSessionId": "abc", "model": "sonnet"},
            {"type": "error", "message": "Error message", "fatal": True},
            {"type": "turn_completed", "status": "error"},
            {"type": "done", "status": "error"},
        ],
    ),
    "004 §2 Claude Code": (
        "claude",
        "stream",
        """
        {"type":"system","subtype":"init","cwd":"/p","session_id":"uuid","tools":["Read","Write","Bash"],"model":"opus","permissionMode":"default","apiKeySource":"none","claude_code_version":"2.1.31"}
        {"type":"assistant","message":{"model":"opus","id":"msg_1","role":"assistant","content":[{"type":"text","text":"Response"},{"type":"tool_use","id":"toolu_1","name":"Write","input":{"file_path":"/p/a","content":"x"}}],"usage":{"input_tokens":100,"output_tokens":50,"cache_read_input_tokens":1000,"cache_creation_input_tokens":500}},"session_id":"uuid"}
        {"type":"user","message":{"role":"user","content":[{"tool_use_id":"toolu_1","type":"tool_result","content":"Tool output"}]},"tool_use_result":{"type":"create","filePath":"/p/a","content":"x"}}
        {"type":"result","subtype":"success","is_error":false,"duration_ms":5000,"num_turns":3,"result":"Final","session_id":"uuid","total_cost_usd":0.05,"usage":{"input_tokens":100,"output_tokens":50,"cache_read_input_tokens":1000}}
        """,
        [
            {"type": "init", "cwd": "/p", "model": "opus", "agentVersion": "2.1.31", "nativeSessionId": "uuid"},
            {"type": "text", "text": "Response", "messageId": "msg_1"},
            {"type": "tool_use", "toolUseId": "toolu_1", "name": "write_file", "nativeName": "Write"},
            {"type": "file_change", "change": "created", "after": "x", "toolUseId": "toolu_1"},
            {"type": "tool_result", "toolUseId": "toolu_1", "status": "success", "output": "Tool output"},
            {"type": "turn_completed", "status": "success", "result": "Final", "costUsd": 0.05, "durationMs": 5000.0},
        ],
    ),
    "004 §2 Codex CLI": (
        "codex",
        "exec",
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
            {"type": "init", "nativeSessionId": "uuid"},
            {"type": "thinking", "text": "Thinking about it"},
            {"type": "tool_use", "name": "shell", "target": "cat none.txt"},
            {"type": "tool_result", "status": "error", "exitCode": 1, "output": "cat: none.txt: No such file\n"},
            {"type": "file_change", "path": "/p/file.txt", "change": "modified"},
            {"type": "text", "text": "I've completed the task"},
            {"type": "usage", "inputTokens": 14172, "cachedTokens": 4352, "outputTokens": 127},
            {"type": "turn_completed", "status": "success", "result": "I've completed the task"},
        ],
    ),
}


@pytest.mark.parametrize("name", EXAMPLES)
def test_seed_example(name: str) -> None:
    agent, driver, shown, expected = EXAMPLES[name]
    lines = [line.strip().encode() for line in shown.strip().splitlines()]
    account = Account()
    received = [
        {key: value for key, value in msgspec.to_builtins(event).items() if key not in HEADER}
        for event in translate(agent, catalog.agent(agent).drivers[driver], lines, account)
    ]
    rest = iter(received)
    for event in expected:
        assert any(event.items() <= other.items() for other in rest), (event, received)
    assert (account.lines, account.unrecognized) == (len(lines), 0)
    assert [event["type"] for event in received].count("done") == 1


def test_claudes_control_channel_as_the_seed_shows_it() -> None:
    """004 §4: initialize with a hook, the hook is called, the answer allows."""
    from stagedoor.agents.claude import ClaudeProtocol
    from stagedoor.agents.claude.commands import AnswerHook, ClaudeInitialize
    from stagedoor.agents.claude.events import HookCallback

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


TOOL_NAMES = [  # 002 §5.2, row by row: ours, Claude's, Gemini's and Codex's as the seed has them
    ("shell", "Bash", "shell", "run_command"),
    ("read_file", "Read", "read_file", "read"),
    ("write_file", "Write", "write_file", "write"),
    ("edit_file", "Edit", "edit_file", "edit"),
    ("search_content", "Grep", "search_code", "grep"),
    ("find_files", "Glob", "find_files", "find"),
    ("web_fetch", "WebFetch", "web_fetch", "fetch_url"),
    ("web_search", "WebSearch", "web_search", "search_web"),
]


@pytest.mark.parametrize("row", TOOL_NAMES, ids=lambda row: row[0])
def test_tool_names(row: tuple[str, str, str, str]) -> None:
    from stagedoor.drivers.claude.tools import name_of as of_claude
    from stagedoor.drivers.codex.tools import name_of as of_codex
    from stagedoor.drivers.gemini.tools import TOOLS as OF_GEMINI

    ours, claude, gemini, codex = row
    assert (of_claude(claude), OF_GEMINI[gemini], of_codex(codex)) == (ours, ours, ours)
