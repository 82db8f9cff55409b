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
    "001 §3.2 top-level init": (
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
