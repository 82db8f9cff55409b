"""Stored sessions read back, from files as the agents write them and from spoiled files."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from stagedoor import catalog
from stagedoor.drivers.agent import StoredSession
from stagedoor.unified.events import Event, Text, Thinking, ToolResult, ToolUse, TurnStarted

AT = "2026-11-15T08:00:00.000Z"
MS = 1794729600000


def lines(*objects: Any) -> bytes:
    return b"".join(json.dumps(row).encode() + b"\n" for row in objects)


def claude(*contents: tuple[str, Any]) -> bytes:
    return lines(*({"type": role, "timestamp": AT, "message": {"role": role, "content": c}} for role, c in contents))


def codex(*payloads: tuple[str, dict[str, Any]]) -> bytes:
    return lines(*({"type": kind, "timestamp": AT, "payload": payload} for kind, payload in payloads))


def item_completed(item: str, text: str) -> tuple[str, dict[str, Any]]:
    return "event_msg", {"type": "item_completed", "item": {"type": item, "content": [{"type": "text", "text": text}]}}


def call(native: str, command: str, key: str = "command") -> ToolUse:
    return ToolUse(
        tool_use_id="c1", name="shell", native_name=native, input={key: command}, operation="execute", target=command,
        timestamp=MS,
    )  # fmt: skip


FILES: dict[str, tuple[bytes, list[Event]]] = {
    "claude": (
        claude(
            ("user", "Fix it"),
            ("assistant", [{"type": "thinking", "thinking": "Hm."}]),
            ("assistant", [{"type": "text", "text": "I run it."}]),
            ("assistant", [{"type": "tool_use", "id": "c1", "name": "Bash", "input": {"command": "false"}}]),
            ("user", [{"type": "tool_result", "tool_use_id": "c1", "content": "Exit code 1\nno", "is_error": True}]),
        )
        + lines({"type": "user", "isSidechain": True, "message": {"content": "sub-agent"}}, {"type": "mode"}),
        [
            TurnStarted(prompt="Fix it", timestamp=MS),
            Thinking(text="Hm.", timestamp=MS),
            Text(text="I run it.", timestamp=MS),
            call("Bash", "false"),
            ToolResult(
                tool_use_id="c1", name="shell", status="error", output="Exit code 1\nno", exit_code=1, timestamp=MS
            ),
        ],
    ),
    "codex": (
        codex(
            ("session_meta", {"id": "x"}),
            item_completed("UserMessage", "Fix it"),
            (
                "response_item",
                {"type": "function_call", "name": "exec_command", "call_id": "c1", "arguments": '{"cmd": "ls"}'},
            ),
            (
                "response_item",
                {"type": "function_call_output", "call_id": "c1", "output": "Process exited with code 0\nOutput:\na"},
            ),
            ("response_item", {"type": "function_call_output", "call_id": "unknown", "output": "x"}),
            item_completed("AgentMessage", "Done."),
        ),
        [
            TurnStarted(prompt="Fix it", timestamp=MS),
            call("exec_command", "ls", "cmd"),
            ToolResult(
                tool_use_id="c1", name="shell", status="success", exit_code=0, timestamp=MS,
                output="Process exited with code 0\nOutput:\na",
            ),
            Text(text="Done.", timestamp=MS),
        ],
    ),
    "gemini": (
        lines(
            {"sessionId": "s", "kind": "main"},
            {"id": "1", "type": "user", "timestamp": AT, "content": [{"text": "<session_context>x"}]},
            {"id": "2", "type": "user", "timestamp": AT, "content": [{"text": "Fix it"}]},
            {
                "id": "3", "type": "gemini", "timestamp": AT, "content": "I run it.",
                "thoughts": [{"subject": "Plan", "description": "look"}],
                "toolCalls": [
                    {
                        "id": "c1", "name": "run_shell_command", "args": {"command": "ls"}, "status": "success",
                        "result": [{"functionResponse": {"response": {"output": "Output: a\nProcess Group PGID: 7"}}}],
                    }
                ],
            },
        ),
        [
            TurnStarted(prompt="Fix it", timestamp=MS),
            Thinking(text="Plan: look", timestamp=MS),
            Text(text="I run it.", timestamp=MS),
            call("run_shell_command", "ls"),
            ToolResult(
                tool_use_id="c1", name="shell", status="success", exit_code=0, timestamp=MS,
                output="Output: a\nProcess Group PGID: 7",
            ),
        ],
    ),
}  # fmt: skip


def stored_events(agent: str, path: Path) -> list[Event]:
    read = catalog.agent(agent).read_stored
    assert read is not None
    return list(read(StoredSession(agent=agent, session_id="s", path=str(path)), {"HOME": str(path.parent)}))


@pytest.mark.parametrize("agent", FILES)
def test_a_file_is_read_in_order(agent: str, tmp_path: Path) -> None:
    content, expected = FILES[agent]
    path = tmp_path / "session.jsonl"
    path.write_bytes(content)
    assert stored_events(agent, path) == expected


@pytest.mark.parametrize("agent", FILES)
def test_spoiled_lines_are_passed_over(agent: str, tmp_path: Path) -> None:
    content, expected = FILES[agent]
    rubbish = [
        b"",
        b"nonsense",
        b"[]",
        b"\xff\xfe",
        b"null",
        b'{"type":"user","message":7}',
        b'{"payload":[]}',
        b"[" * 9999,
    ]
    path = tmp_path / "session.jsonl"
    good = content.splitlines()
    path.write_bytes(b"\n".join([*rubbish, *(line for row in good for line in (row, *rubbish)), good[0][:20]]))
    assert stored_events(agent, path) == expected


def database(path: Path, parts: list[tuple[str, Any]]) -> None:
    with closing(sqlite3.connect(path)) as db:
        db.execute("create table message (id, session_id, time_created, data)")
        db.execute("create table part (id, message_id, session_id, time_created, data)")
        for number, (role, part) in enumerate(parts):
            data = part if isinstance(part, str) else json.dumps(part)
            db.execute("insert into message values (?, 's', ?, ?)", (f"m{number}", MS, json.dumps({"role": role})))
            db.execute("insert into part values (?, ?, 's', ?, ?)", (f"p{number}", f"m{number}", MS, data))
        db.commit()


def test_a_database_is_read_in_order(tmp_path: Path) -> None:
    state = {"status": "completed", "input": {"command": "false"}, "output": "no", "metadata": {"exit": 1}}
    parts: list[tuple[str, Any]] = [
        ("user", {"type": "text", "text": "Fix it"}),
        ("user", {"type": "text", "text": "added by the program", "synthetic": True}),
        ("assistant", "spoiled"),
        ("assistant", {"type": "reasoning", "text": "Hm."}),
        ("assistant", {"type": "tool", "tool": "bash", "callID": "c1", "state": state}),
        ("assistant", {"type": "step-finish"}),
        ("assistant", {"type": "text", "text": "Done."}),
    ]
    database(tmp_path / "opencode.db", parts)
    assert stored_events("opencode", tmp_path / "opencode.db") == [
        TurnStarted(prompt="Fix it", timestamp=MS),
        Thinking(text="Hm.", timestamp=MS),
        call("bash", "false"),
        ToolResult(tool_use_id="c1", name="shell", status="error", output="no", exit_code=1, timestamp=MS),
        Text(text="Done.", timestamp=MS),
    ]


def test_every_agent_has_a_reader() -> None:
    assert [name for name in catalog.names() if catalog.agent(name).read_stored is None] == []
