"""What projections remember, and what they make of it."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import msgspec
import pytest

from stagedoor.dialects import DIALECTS, encode
from stagedoor.dialects.board import session_state
from stagedoor.dialects.event_parts import Drafts, iso_time, whole_ms
from stagedoor.unified.events import (
    Done,
    Error,
    Event,
    Init,
    PermissionRequest,
    PermissionResolved,
    Retry,
    Text,
    TextDelta,
    Thinking,
    ThinkingDelta,
    ToolResult,
    ToolUse,
    TurnCompleted,
    TurnStarted,
    Usage,
    UsageReport,
    steered,
)


def project(dialect: str, *events: Event) -> list[dict[str, Any]]:
    projection = DIALECTS[dialect]()
    return [msgspec.json.decode(line) for event in events for line in encode(projection, event)]


@pytest.mark.parametrize(
    ("pieces", "wholes", "rests"),
    [
        ([], ["Hello"], ["Hello"]),
        (["Hel", "lo"], ["Hello"], [""]),
        (["Hel"], ["Hello"], ["lo"]),
        (["A", "B"], ["A", "B"], ["", ""]),
        (["Hel", "Hello"], ["Hello"], [""]),
        (["Hello"], ["Goodbye"], ["Goodbye"]),
        (["Hello"], ["Hello", "Hello"], ["", "Hello"]),
    ],
)
def test_the_rest_of_a_message(pieces: list[str], wholes: list[str], rests: list[str]) -> None:
    drafts = Drafts()
    for piece in pieces:
        drafts.add((None, "m"), piece)
    assert [drafts.rest((None, "m"), whole) for whole in wholes] == rests
    assert [text for _, text in drafts.drain() if text] == []


def test_deltas_without_a_message_id_belong_to_the_next_message() -> None:
    drafts = Drafts()
    drafts.add((None, ""), "Hel")
    drafts.add(("t1", ""), "other")
    assert drafts.rest((None, "m1"), "Hello") == "lo"
    assert drafts.drain() == [(("t1", ""), "other")]
    assert drafts.drain() == []


@pytest.mark.parametrize(
    ("end", "errors", "reason", "message"),
    [
        ("success", [], "completed", None),
        ("success", [Error(kind="timeout", message="slow", fatal=True)], "completed", None),
        ("error", [], "failed", "the agent failed and gave no reason"),
        ("error", [Error(kind="unknown", message="odd", fatal=True)], "failed", "odd"),
        ("error", [Error(kind="timeout", message="slow", fatal=True)], "timeout", "slow"),
        ("interrupted", [Error(kind="timeout", message="slow", fatal=True)], "timeout", "slow"),
        ("interrupted", [Error(kind="unknown", message="odd", fatal=True)], "cancelled", "interrupted"),
        ("max_turns", [Error(kind="unknown", message="odd")], "failed", "the limit of turns was reached"),
        ("max_budget", [], "failed", "the budget was spent"),
    ],
)
def test_why_a_lifecycle_ends(end: Any, errors: list[Event], reason: str, message: str | None) -> None:
    last = project("lifecycle", *errors, Done(status=end))[-1]
    assert (last["reason"], last.get("error")) == (reason, message)


def test_a_failure_is_forgotten_with_its_turn() -> None:
    failure = Error(kind="timeout", message="slow", fatal=True)
    last = project("lifecycle", failure, TurnStarted(), Done(status="error", result="odd"))[-1]
    assert (last["reason"], last["error"]) == ("failed", "odd")


def test_notify_says_the_state_when_it_changes() -> None:
    story: list[Event] = [
        TurnStarted(prompt="go"),
        Retry(attempt=1),
        PermissionRequest(request_id="q1", tool_name="shell", tool_use_id="t1"),
        ToolUse(tool_use_id="t1", name="shell"),
        PermissionRequest(request_id="q2", tool_name="shell", tool_use_id="t2"),
        PermissionResolved(request_id="q2", decision="allow"),
        PermissionResolved(request_id="q1", decision="deny"),
        TurnCompleted(status="success"),
        TurnStarted(prompt="again"),
        TurnCompleted(status="interrupted"),
        Done(status="interrupted"),
    ]
    notes = project("notify", *story)
    assert [
        note["params"]["payload"]["state"] for note in notes if note["method"] == "agent_status"
    ] == ["running", "running", "waiting", "waiting", "running", "idle", "running", "idle", "stopped"]  # fmt: skip
    (call,) = (note["params"]["payload"] for note in notes if note["method"] == "agent_tool_call")
    assert call["requires_permission"] is True
    assert not [note for note in notes if note["method"].startswith("claude_")]


def test_notify_raises_no_question_that_a_rule_has_decided() -> None:
    story: list[Event] = [
        TurnStarted(agent="claude", prompt="go"),
        ToolUse(agent="claude", tool_use_id="t1", name="shell"),
        PermissionRequest(agent="claude", request_id="q1", tool_name="shell", tool_use_id="t1", automatic=True),
        PermissionResolved(agent="claude", request_id="q1", decision="allow", by="policy"),
        PermissionRequest(agent="claude", request_id="q2", tool_name="shell", tool_use_id="t2", automatic=True),
        ToolUse(agent="claude", tool_use_id="t2", name="shell"),
        PermissionResolved(agent="claude", request_id="q2", decision="deny", by="policy"),
    ]
    notes = project("notify", *story)
    assert {note["method"] for note in notes} <= {
        "agent_message", "agent_tool_call", "agent_status", "claude_log", "claude_status",
    }  # fmt: skip
    states = [note["params"]["payload"]["state"] for note in notes if note["method"] == "agent_status"]
    assert set(states) == {"running"}
    answers = [
        (answer["tool_id"], answer["decision"])
        for note in notes
        if (answer := note["params"]["payload"].get("permission")) is not None
    ]
    assert answers[:2] == [("t1", "allow"), ("t2", "deny")]
    calls = [note["params"]["payload"] for note in notes if note["method"] == "agent_tool_call"]
    assert [call["requires_permission"] for call in calls] == [False, False]


@pytest.mark.parametrize(
    ("risk", "operation", "hint"),
    [("low", "read", True), ("low", "other", False), ("low", "execute", False), ("medium", "read", False)],
)
def test_notify_hints_only_at_what_reads_without_risk(risk: Any, operation: Any, *, hint: bool) -> None:
    question = PermissionRequest(request_id="q", tool_name="other", risk=risk, operation=operation)
    (asked,) = (one["params"]["payload"] for one in project("notify", question) if one["method"] == "agent_permission")
    assert asked["auto_approve_hint"] is hint


CALL = ToolUse(tool_use_id="t1", name="shell", operation="execute")
SAID = Text(text="now", message_id="m")


@pytest.mark.parametrize(
    ("story", "reasons", "requires"),
    [
        ([SAID, TurnCompleted(status="success")], ["end_turn"], []),
        ([SAID, TurnCompleted(status="max_turns")], ["max_turns"], []),
        ([SAID, TurnCompleted(status="interrupted")], [None], []),
        ([SAID, UsageReport(), CALL], ["tool_use"], []),
        ([SAID, SAID], [None], []),
        ([CALL, PermissionRequest(request_id="q", tool_name="shell", tool_use_id="t1")], [], [True]),
        ([CALL, PermissionRequest(request_id="q", tool_name="shell", tool_use_id="t1", automatic=True)], [], [False]),
        ([CALL, UsageReport(), ToolResult(tool_use_id="t1", name="shell", status="success")], [], [False]),
        ([CALL, PermissionRequest(request_id="q", tool_name="shell", tool_use_id="t2")], [], []),
        ([CALL, TextDelta(text="on")], [], [False]),
        ([Init(approval="autoAll"), CALL], [], [False]),
    ],
)
def test_notify_says_what_only_the_next_event_shows(
    story: list[Event], reasons: list[str | None], requires: list[bool]
) -> None:
    notes = project("notify", *story)
    messages = [note["params"]["payload"] for note in notes if note["method"] == "agent_message"]
    assert [message.get("stop_reason") for message in messages] == reasons
    calls = [note["params"]["payload"] for note in notes if note["method"] == "agent_tool_call"]
    assert [call["requires_permission"] for call in calls] == requires


def test_notify_shows_both_sides() -> None:
    notes = project("notify", TurnStarted(prompt="go"), steered("faster"))
    messages = [note["params"]["payload"] for note in notes if note["method"] == "agent_message"]
    assert [(message["role"], message["content"][0]["text"]) for message in messages] == [
        ("user", "go"), ("user", "faster"),
    ]  # fmt: skip


def test_notify_passes_claudes_own_lines_on_once_each() -> None:
    line = {
        "type": "assistant",
        "message": {"content": [{"type": "text", "text": "I"}, {"type": "tool_use", "id": "t", "name": "Bash"}]},
        "session_id": "own",
        "whatever": [1.5, "ü"],
    }
    story: list[Event] = [
        Text(agent="claude", text="I", native=line),
        ToolUse(agent="claude", tool_use_id="t", name="shell"),
        TurnCompleted(agent="claude", status="success", native={"type": "result", "stop_reason": "end_turn"}),
    ]
    logs = [note["params"]["payload"] for note in project("notify", *story) if note["method"] == "claude_log"]
    assert [json.loads(log["line"]) for log in logs] == [line, {"type": "result", "stop_reason": "end_turn"}]
    assert logs[0]["parsed"] == {
        "type": "assistant",
        "session_id": "own",
        "content": [
            {"type": "text", "text": "I"},
            {"type": "tool_use", "tool_name": "Bash", "tool_id": "t", "tool_input": "null"},
        ],
        "stop_reason": "tool_use",
    }


def test_notify_speaks_to_old_clients_of_claude_in_parallel() -> None:
    story: list[Event] = [
        TextDelta(agent="claude", text="cut sh", message_id="m"),
        TurnCompleted(agent="claude", status="interrupted"),
    ]
    assert [note["method"] for note in project("notify", *story)] == [
        "agent_message_delta",
        "claude_log",
        "agent_message",
        "agent_complete",
        "agent_status",
        "claude_status",
        "claude_log",
    ]


@pytest.mark.parametrize(
    ("story", "expected"),
    [
        (
            [ThinkingDelta(text="a"), ThinkingDelta(text="b"), Thinking(text="ab!")],
            [("ThinkingStart", "a"), ("ThinkingEnd", "ab!")],
        ),
        ([Thinking(text="ab")], [("ThinkingStart", "ab"), ("ThinkingEnd", "ab")]),
        (
            [ThinkingDelta(text="a"), ThinkingDelta(text="b"), Text(text="c")],
            [("ThinkingStart", "a"), ("ThinkingEnd", "ab"), ("Text", "c")],
        ),
        (
            [ThinkingDelta(text="a"), TextDelta(text="c", parent_tool_use_id="t"), ThinkingDelta(text="b")],
            [("ThinkingStart", "a"), ("Text", "c")],
        ),
        (
            [ThinkingDelta(text="a"), ThinkingDelta(text="b", parent_tool_use_id="t"), Done(status="success")],
            [("ThinkingStart", "a"), ("ThinkingStart", "b"), ("ThinkingEnd", "a"), ("ThinkingEnd", "b")],
        ),
    ],
)
def test_thoughts_in_a_chat_start_and_end(story: list[Event], expected: list[tuple[str, str]]) -> None:
    assert [(each["type"], each["content"]) for each in project("chat", *story)] == expected


def test_a_chat_is_told_tokens_once() -> None:
    usage = Usage(input_tokens=1, output_tokens=2, total_tokens=3)
    report = UsageReport(input_tokens=1, output_tokens=2, total_tokens=3)
    messages = project("chat", report, TurnCompleted(status="success", usage=usage))
    assert [each["type"] for each in messages] == ["TokenUsage", "Complete"]
    messages = project("chat", report, TurnStarted(), TurnCompleted(status="success", usage=usage))
    assert [each["type"] for each in messages] == ["TokenUsage", "TokenUsage", "Complete"]


def test_a_chat_hears_of_a_session_that_never_came_to_a_turn() -> None:
    end = {"type": "Error", "message": "no key", "status": "error"}
    assert project("chat", Done(status="error", result="no key")) == [end]
    failures: list[Event] = [TurnCompleted(status="error", result="no key"), Done(status="error", result="no key")]
    assert project("chat", *failures) == [end]


@pytest.mark.parametrize(
    ("status", "state"),
    [
        (None, "running"),
        ("success", "done"),
        ("error", "failed"),
        ("max_turns", "failed"),
        ("max_budget", "failed"),
        ("interrupted", "cancelled"),
    ],
)
def test_the_state_of_a_session_on_the_board(status: Any, state: str) -> None:
    assert session_state(status) == state


@pytest.mark.parametrize(
    ("milliseconds", "text"),
    [
        (0, "1970-01-01T00:00:00.000Z"),
        (1_764_756_001_234, "2025-12-03T10:00:01.234Z"),
        (-5, "1970-01-01T00:00:00.000Z"),
        (10**18, "9999-12-31T23:59:59.999Z"),
    ],
)
def test_times(milliseconds: int, text: str) -> None:
    assert iso_time(milliseconds) == text


@pytest.mark.parametrize(
    ("duration", "whole"), [(None, None), (1.6, 2), (float("nan"), None), (float("inf"), None), (1e300, None)]
)
def test_durations(duration: float | None, whole: int | None) -> None:
    assert whole_ms(duration) == whole


def test_a_dialect_is_imported_when_it_is_opened() -> None:
    program = (
        "import sys, stagedoor.dialects as d\n"
        "names = lambda: [n for n in d.DIALECTS if 'stagedoor.dialects.' + n in sys.modules]\n"
        "before = names(); d.DIALECTS['ues'](); print(before, names())"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "[] ['ues']\n"
