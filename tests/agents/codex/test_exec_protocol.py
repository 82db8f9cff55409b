"""What one run of ``codex exec --json`` says."""

from __future__ import annotations

from pathlib import Path

import pytest

from stagedoor.agents.codex.events import (
    AgentMessageItem,
    AgentState,
    CodexTodoItem,
    CodexTurnCompleted,
    CodexTurnFailed,
    CodexTurnStarted,
    CodexUsage,
    CollabToolCallItem,
    CommandExecutionItem,
    ErrorItem,
    ExecEvent,
    FileChangeItem,
    FileUpdate,
    ItemCompleted,
    ItemStarted,
    ItemUpdated,
    McpToolCallItem,
    McpToolCallItemError,
    ReasoningItem,
    StreamEnded,
    ThreadError,
    ThreadStarted,
    TodoListItem,
    ToolCallItem,
    TurnError,
    WebSearchItem,
)
from stagedoor.agents.codex.protocol import ExecProtocol
from stagedoor.errors import LocalProtocolError
from stagedoor.wire.shapes import UnknownMessage

TRANSCRIPTS = Path(__file__).parents[2] / "transcripts" / "codex-0.166.0"
EXEC = [path for path in sorted(TRANSCRIPTS.glob("*.jsonl")) if not path.read_bytes().startswith(b'{"dir"')]


def events_of(*lines: bytes, before: CodexUsage | None = None) -> list[ExecEvent]:
    protocol = ExecProtocol(before=before) if before else ExecProtocol()
    return [event for line in lines for event in protocol.receive(line)]


def transcript(name: str) -> list[ExecEvent]:
    return events_of(*(TRANSCRIPTS / name).read_bytes().splitlines())


@pytest.mark.parametrize("path", EXEC, ids=lambda path: path.stem)
def test_every_recorded_line_has_a_type(path: Path) -> None:
    lines = path.read_bytes().splitlines()
    events = events_of(*lines)
    assert len(events) == len(lines)
    assert [
        e for e in events if isinstance(e, UnknownMessage) or isinstance(getattr(e, "item", None), UnknownMessage)
    ] == []
    assert isinstance(events[0], ThreadStarted)


def test_a_whole_turn() -> None:
    running = CommandExecutionItem(
        "item_1", "/bin/bash -lc 'echo before; ls /definitely/missing; exit 3'", "", None, "in_progress"
    )
    output = "before\nls: cannot access '/definitely/missing': No such file or directory\n"
    usage = CodexUsage(10576, 5287, 0, 84, 14)
    assert transcript("04-bash-fail.jsonl") == [
        ThreadStarted("01a1ddd6-ab50-7a70-a846-76bdd4d4160d"),
        ItemCompleted(
            ErrorItem(
                "item_0",
                "Model metadata for `fake-model` not found. Defaulting to fallback metadata; this can degrade "
                "performance and cause issues.",
            )
        ),
        CodexTurnStarted(),
        ItemStarted(running),
        ItemCompleted(CommandExecutionItem("item_1", running.command, output, 3, "failed")),
        ItemCompleted(AgentMessageItem("item_2", "The command failed.")),
        CodexTurnCompleted(usage, usage),
    ]


@pytest.mark.parametrize(
    ("line", "event"),
    [
        (
            b'{"type":"item.updated","item":{"id":"i","type":"todo_list","items":[{"text":"a","completed":true}]}}',
            ItemUpdated(TodoListItem("i", [CodexTodoItem("a", True)])),
        ),
        (
            b'{"type":"item.completed","item":{"id":"i","type":"file_change","changes":[{"path":"/a","kind":"add"}],'
            b'"status":"completed"}}',
            ItemCompleted(FileChangeItem("i", [FileUpdate("/a", "add")], "completed")),
        ),
        (
            b'{"type":"item.completed","item":{"id":"i","type":"mcp_tool_call","server":"s","tool":"t","arguments":{"a":1},'
            b'"result":null,"error":{"message":"no"},"status":"failed"}}',
            ItemCompleted(McpToolCallItem("i", "s", "t", {"a": 1}, None, McpToolCallItemError("no"), "failed")),
        ),
        (
            b'{"type":"item.started","item":{"id":"item_0","type":"web_search","id":"ws_1","query":"q","action":{"type":"other"}}}',
            ItemStarted(WebSearchItem("ws_1", "q", {"type": "other"})),
        ),
        (
            b'{"type":"item.completed","item":{"id":"i","type":"collab_tool_call","tool":"wait","sender_thread_id":"p",'
            b'"receiver_thread_ids":["c"],"prompt":null,"agents_states":{"c":{"status":"completed","message":"hi"}},'
            b'"status":"completed"}}',
            ItemCompleted(
                CollabToolCallItem("i", "wait", "p", ["c"], None, {"c": AgentState("completed", "hi")}, "completed")
            ),
        ),
        (b'{"type":"error","message":"Reconnecting... 2/5"}', ThreadError("Reconnecting... 2/5")),
        (b'{"type":"turn.failed","error":{"message":"no"}}', CodexTurnFailed(TurnError("no"))),
        (b'{"type":"turn.failed"}', CodexTurnFailed(TurnError(""))),
    ],
)
def test_lines_of_today(line: bytes, event: ExecEvent) -> None:
    assert events_of(line) == [event]


@pytest.mark.parametrize(
    ("line", "event"),
    [
        (
            b'{"type":"item.completed","item_type":"agent_message","id":"i","text":"hi","status":"success"}',
            ItemCompleted(AgentMessageItem("i", "hi"), "success"),
        ),
        (
            b'{"type":"item.completed","item":{"id":"i","item_type":"assistant_message","text":"hi"}}',
            ItemCompleted(AgentMessageItem("i", "hi")),
        ),
        (
            b'{"type":"item.completed","item":{"id":"i","type":"reasoning","reasoning":"hm","summary":"h"}}',
            ItemCompleted(ReasoningItem("i", "", "hm", "h")),
        ),
        (
            b'{"type":"item.started","item":{"id":"i","type":"tool_call","name":"shell","arguments":{"command":"ls"}}}',
            ItemStarted(ToolCallItem("i", "shell", {"command": "ls"})),
        ),
        (
            b'{"type":"item.completed","item_type":"shell","id":"i","name":"shell","output":"x","exit_code":1}',
            ItemCompleted(ToolCallItem("i", "shell", None, "x", 1)),
        ),
        (
            b'{"type":"item.completed","item":{"id":"i","type":"file_change","path":"a","before":"x","after":"y","diff":"d"}}',
            ItemCompleted(FileChangeItem("i", [], "", "a", "x", "y", "d")),
        ),
        (
            b'{"type":"item.completed","item":{"id":"i","type":"mcp_tool_call","tool_name":"t","tool_input":{"a":1},'
            b'"tool_result":"r"}}',
            ItemCompleted(McpToolCallItem("i", tool_name="t", tool_input={"a": 1}, tool_result="r")),
        ),
        (
            b'{"type":"item.completed","item":{"id":"i","type":"web_search","query":"q","results":[{"url":"u"}]}}',
            ItemCompleted(WebSearchItem("i", "q", None, [{"url": "u"}])),
        ),
        (
            b'{"type":"turn.completed","usage":{"input_tokens":5,"output_tokens":2}}',
            CodexTurnCompleted(CodexUsage(5, 0, 0, 2), CodexUsage(5, 0, 0, 2)),
        ),
    ],
)
def test_lines_of_older_versions(line: bytes, event: ExecEvent) -> None:
    assert events_of(line) == [event]


@pytest.mark.parametrize(
    ("line", "why"),
    [
        (b"Reading additional input from stdin...", "Expecting value: line 1 column 1 (char 0)"),
        (b'{"type":"thread.paused"}', "unknown type 'thread.paused'"),
        (b'{"type":"item.completed"}', "an item event without an item"),
        (b'{"type":"thread.started"}', "Object missing required field `thread_id`"),
    ],
)
def test_a_surprising_line_is_kept(line: bytes, why: str) -> None:
    assert events_of(line) == [UnknownMessage(line, why)]


def test_a_surprising_item_leaves_its_event() -> None:
    line = b'{"type":"item.started","item":{"id":"i","type":"hologram"}}'
    assert events_of(line) == [ItemStarted(UnknownMessage(b'{"id":"i","type":"hologram"}', "unknown type 'hologram'"))]


def test_half_an_emoji_is_repaired() -> None:
    line = b'{"type":"item.completed","item":{"id":"i","type":"agent_message","text":"\\ud83d"}}'
    assert events_of(line) == [ItemCompleted(AgentMessageItem("i", "\ufffd"))]


def test_usage_is_turned_into_the_turns_own() -> None:
    line = (TRANSCRIPTS / "77b-resume-stdin.jsonl").read_bytes().splitlines()[-1]
    total = CodexUsage(28785, 14391, 0, 168, 28)
    (event,) = events_of(line, before=CodexUsage(21422, 10710, 0, 126, 21))
    assert isinstance(event, CodexTurnCompleted)
    assert event.usage is not None
    assert event.turn_usage == event.usage.since(CodexUsage(21422, 10710, 0, 126, 21))
    assert total.since(CodexUsage(21422, 10710, 0, 126, 21)) == CodexUsage(7363, 3681, 0, 42, 7)
    assert CodexUsage(5).since(CodexUsage(9)) == CodexUsage()
    (unknown,) = ExecProtocol(before=None).receive(line)
    assert unknown == CodexTurnCompleted(event.usage, None)


def test_the_end_is_known_only_from_the_stream() -> None:
    protocol = ExecProtocol()
    for line in (TRANSCRIPTS / "140-SIGINT-midcmd-launcher.jsonl").read_bytes().splitlines():
        protocol.receive(line)
    assert (protocol.ended, protocol.receive_eof(), protocol.outgoing()) == (False, [StreamEnded()], [])
    protocol.receive(b'{"type":"turn.completed"}')
    assert protocol.ended
    with pytest.raises(LocalProtocolError, match="app-server"):
        protocol.send("anything")  # type: ignore[arg-type]
