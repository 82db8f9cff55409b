"""How calls, turns and requests of the Agent Client Protocol ended."""

from __future__ import annotations

from typing import Any, cast, get_args

import msgspec
import pytest

from stagedoor.agents.acp.events import RequestFailed
from stagedoor.agents.acp.protocol import AcpProtocol
from stagedoor.agents.acp.updates import KnownUpdate
from stagedoor.drivers.acp.agent import MANNER
from stagedoor.drivers.acp.dictionary import BY_UPDATE, AcpDictionary
from stagedoor.drivers.acp.turn_parts import reason_of
from stagedoor.unified.events import Error, Event, Notice, ToolResult, ToolUse, TurnCompleted


@pytest.mark.parametrize(
    ("message", "details", "reason"),
    [
        ("Internal error", None, "Internal error"),
        ("Internal error", {"details": "no such mode"}, "Internal error: no such mode"),
        ("no such mode", {"details": "no such mode"}, "no such mode"),
        ("", {"details": "no such mode"}, "no such mode"),
        ("Invalid params", {"_errors": ["not a method", "nor a name"]}, "Invalid params: not a method; nor a name"),
        (
            "Internal error",
            [{"path": ["cwd"], "message": "expected string"}, {"path": [], "message": "?"}, 3],
            "Internal error: cwd: expected string",
        ),
        ("Method not found", {"method": "x"}, "Method not found"),
    ],
)
def test_reasons(message: str, details: Any, reason: str) -> None:
    assert reason_of(RequestFailed("session/new", -32603, message, details)) == reason


def test_what_a_failed_request_means() -> None:
    details = {"details": "Too many requests"}
    [notice] = AcpDictionary().translate(RequestFailed("session/set_mode", -32603, "Internal error", details))
    message = "session/set_mode: Internal error: Too many requests"
    assert notice == Notice(level="warning", code="request_failed", message=message)
    assert AcpDictionary().translate(RequestFailed("session/prompt", -32603, "Internal error", details)) == [
        Error(kind="rate_limited", message="Internal error: Too many requests", fatal=True),
        TurnCompleted(status="error"),
    ]


def told(*messages: dict[str, Any]) -> list[Event]:
    """What an agent of which nothing is known says of its calls, in our words. Each is an update or a request."""
    protocol, dictionary = AcpProtocol(profile=MANNER.profile), AcpDictionary(MANNER)
    events: list[Event] = []
    for number, message in enumerate(messages):
        if "toolCall" in message:
            sent = {"id": number, "method": "session/request_permission", "params": {"sessionId": "s", **message}}
        else:
            sent = {"method": "session/update", "params": {"sessionId": "s", "update": message}}
        for native in protocol.receive(msgspec.json.encode({"jsonrpc": "2.0", **sent})):
            events += dictionary.translate(native)
    return [event for event in events if isinstance(event, ToolUse | ToolResult)]


def call(update: str, **more: Any) -> dict[str, Any]:
    return {"sessionUpdate": update, "toolCallId": "c1", **more}


def text(words: str) -> list[dict[str, Any]]:
    return [{"type": "content", "content": {"type": "text", "text": words}}]


CALLS: dict[str, tuple[list[dict[str, Any]], list[tuple[Any, ...]]]] = {
    "a placeholder, then the command": (
        [
            call("tool_call", title="Terminal", kind="execute", status="pending", rawInput={}),
            call("tool_call_update", title="`ls -l`", rawInput={"command": "ls -l"}),
            call("tool_call_update", status="completed", rawOutput={"formatted_output": "a\n", "exit_code": 0}),
        ],
        [("shell", "Terminal", "ls -l", {"command": "ls -l"}), ("shell", "success", "a\n", 0)],
    ),
    "a placeholder that its question explains": (
        [
            call("tool_call", title="Shell", kind="execute", status="pending", rawInput={}, locations=[],
                 _meta={"toolName": "run_shell_command"}),
            {"toolCall": {"toolCallId": "c1", "rawInput": {"command": "make"}}, "options": []},
            call("tool_call_update", status="failed", content=text("no"), rawOutput={"exitCode": 3, "output": "x"}),
        ],
        [("shell", "run_shell_command", "make", {"command": "make"}), ("shell", "error", "no", 3)],
    ),
    "input that comes as text, piece by piece": (
        [
            call("tool_call", title="Bash", kind="execute", status="pending", content=text("")),
            call("tool_call_update", status="in_progress", content=text('{"command": "ech')),
            call("tool_call_update", status="in_progress", content=text('{"command": "echo x"}')),
            call("tool_call_update", status="in_progress", title="Running: echo x", rawInput={"command": "echo x"}),
            call("tool_call_update", status="completed", content=text("x\n"), rawOutput="x\n"),
        ],
        [("shell", "Bash", "echo x", {"command": "echo x"}), ("shell", "success", "x\n", None)],
    ),
    "a call without any input": (
        [
            call("tool_call", title="list_tasks", kind="other", status="pending", rawInput={}),
            call("tool_call_update", status="completed", content=text("none")),
        ],
        [("other", "list_tasks", "list_tasks", {}), ("other", "success", "none", None)],
    ),
    "a command as a title": (
        [
            call("tool_call", title="git status", kind="execute", status="in_progress"),
            call("tool_call_update", status="completed", content=text("clean")),
        ],
        [("shell", "git", "git status", {"command": "git status"}), ("shell", "success", "clean", None)],
    ),
    "the tool's name in the id, an exit code among the contents": (
        [
            {**call("tool_call", title="x y", kind="other", rawInput={"command": "ls"}),
             "toolCallId": "run_shell_command-1771234567890"},
            {**call("tool_call_update", status="completed", rawOutput={"contents": [{"exitCode": 2}], "output": "e"}),
             "toolCallId": "run_shell_command-1771234567890"},
        ],
        [("shell", "run_shell_command", "ls", {"command": "ls"}), ("shell", "error", "e", 2)],
    ),
    "a placeholder that runs already, then the command": (
        [
            call("tool_call", title="Terminal", kind="execute", status="in_progress", rawInput={}),
            call("tool_call_update", status="in_progress", rawInput={"command": "make"}),
            call("tool_call_update", status="failed", rawOutput="Exit code 2\nno rule",
                 content=text("```\nExit code 2\nno rule\n```")),
        ],
        [("shell", "Terminal", "make", {"command": "make"}), ("shell", "error", "no rule", 2)],
    ),
    "the words of a program, and a terminal of the agent's own": (
        [
            call("tool_call", title="make all", kind="execute", status="in_progress", name="exec_command",
                 content=[{"type": "terminal", "terminalId": "c1"}],
                 rawInput={"command": ["/bin/bash", "-lc", "make all"]}),
            call("tool_call_update", _meta={"terminal_output": {"terminal_id": "c1", "data": "cc a.c\n"}}),
            call("tool_call_update", _meta={"terminal_output": {"terminal_id": "c1", "data": "ld a.o\n"}}),
            call("tool_call_update", status="completed", _meta={"terminal_exit": {"exit_code": 0, "signal": None}}),
        ],
        [
            ("shell", "exec_command", "make all", {"command": "make all"}),
            ("shell", "success", "cc a.c\nld a.o\n", 0),
        ],
    ),
    "an output in a fence": (
        [
            call("tool_call", title="ls", kind="execute", status="in_progress", rawInput={"command": "ls"}),
            call("tool_call_update", status="completed", rawOutput="a\nb", content=text("```console\na\nb\n```")),
        ],
        [("shell", "ls", "ls", {"command": "ls"}), ("shell", "success", "a\nb", None)],
    ),
    "a picture as a result": (
        [
            call("tool_call", title="Look", kind="read", rawInput={"path": "a.png"}),
            call("tool_call_update", status="completed",
                 content=[{"type": "content", "content": {"type": "image", "data": "AAAA", "mimeType": "image/png"}}]),
        ],
        [
            ("read_file", "Look", "a.png", {"path": "a.png"}),
            ("read_file", "success", "[an image: image/png, 3 bytes]", None),
        ],
    ),
}  # fmt: skip


def test_what_becomes_known_later_is_told_as_a_change() -> None:
    """Announced, because it had output already; then the agent says what it is."""
    messages = (
        call("tool_call", title="Terminal", kind="execute", status="in_progress", rawInput={}, content=text("hello")),
        call("tool_call_update", rawInput={"command": "make"}),
        call("tool_call_update", rawInput={"command": "make"}),
        call("tool_call_update", rawInput={"command": "make -k"}),
    )
    protocol, dictionary = AcpProtocol(), AcpDictionary(MANNER)
    events: list[Event] = []
    for message in messages:
        sent = {"jsonrpc": "2.0", "method": "session/update", "params": {"sessionId": "s", "update": message}}
        events += [event for one in protocol.receive(msgspec.json.encode(sent)) for event in dictionary.translate(one)]
    assert [event.target if isinstance(event, ToolUse) else event for event in events] == [
        "Terminal",
        Notice(level="info", code="call_changed", message="Terminal: make"),
        Notice(level="info", code="call_changed", message="Terminal: make -k"),
    ]


@pytest.mark.parametrize("name", CALLS)
def test_a_call_is_told_when_it_is_known(name: str) -> None:
    messages, expected = CALLS[name]
    events = cast("list[ToolUse | ToolResult]", told(*messages))
    assert [
        (event.name, event.native_name, event.target, event.input)
        if isinstance(event, ToolUse)
        else (event.name, event.status, event.output, event.exit_code)
        for event in events
    ] == expected


def test_every_update_has_a_translation() -> None:
    assert set(BY_UPDATE) == set(get_args(KnownUpdate))
