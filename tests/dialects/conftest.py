from __future__ import annotations

import msgspec
import pytest

from stagedoor.unified.events import (
    Done,
    Error,
    Event,
    FileChange,
    FilesRestored,
    Init,
    Notice,
    PermissionRequest,
    PermissionResolved,
    Plan,
    PlanItem,
    Retry,
    Text,
    TextDelta,
    Thinking,
    ThinkingDelta,
    ToolProgress,
    ToolResult,
    ToolUse,
    TurnCompleted,
    TurnStarted,
    Unrecognized,
    Usage,
    UsageReport,
    stamp,
)

USAGE = Usage(
    input_tokens=120, output_tokens=30, cached_tokens=100, reasoning_tokens=5, total_tokens=155, cost_usd=0.25
)
SAMPLES: list[Event] = [
    Init(
        model="sonnet",
        cwd="/project",
        tools=["Bash", "Edit"],
        capabilities={"thinking": True},
        agent_version="2.1.197",
        native_session_id="n-1",
        resumed=True,
    ),
    TurnStarted(prompt="Fix the login bug"),
    TextDelta(text="I'll ", message_id="m1"),
    Text(text="I'll look.", message_id="m1"),
    ThinkingDelta(text="Hm, "),
    Thinking(text="Hm, where is it?"),
    ToolUse(
        tool_use_id="t1",
        name="shell",
        native_name="Bash",
        input={"command": "npm test"},
        operation="execute",
        target="npm test",
        risk="high",
        description="Run the tests",
    ),
    ToolUse(tool_use_id="t2", name="read_file", input={}, operation="read", risk="low", parent_tool_use_id="t0"),
    ToolProgress(tool_use_id="t1", output="1 passed\n"),
    ToolResult(tool_use_id="t1", name="shell", status="success", output="ok", exit_code=0, duration_ms=12.6),
    ToolResult(tool_use_id="t1", name="shell", status="error", output="boom", exit_code=2),
    ToolResult(tool_use_id="t1", name="shell", status="denied", output="not allowed"),
    FileChange(
        path="a.py", change="modified", diff="@@ -1 +1 @@\n-a\n+b\n", before="a\n", after="b\n", tool_use_id="t3"
    ),
    FileChange(path="b.py", change="moved"),
    Plan(items=[PlanItem("Look", "completed"), PlanItem("Fix", "in_progress"), PlanItem("Test")]),
    PermissionRequest(
        request_id="q1",
        tool_name="shell",
        tool_use_id="t1",
        native_name="Bash",
        operation="execute",
        target="npm test",
        risk="high",
        input={"command": "npm test"},
        description="Run the tests",
        choices=["allow", "deny"],
        expires_at=1_764_756_060_000,
    ),
    PermissionRequest(request_id="q2", tool_name="read_file", operation="read", risk="low"),
    PermissionResolved(request_id="q1", decision="allow", remember="session", by="client", message="fine"),
    PermissionResolved(request_id="q1", decision="deny", by="timeout"),
    UsageReport(
        input_tokens=120,
        output_tokens=30,
        cached_tokens=100,
        reasoning_tokens=5,
        total_tokens=155,
        cost_usd=0.25,
        session=USAGE,
    ),
    Retry(attempt=1, max_attempts=3, delay_ms=500.0, reason="overloaded"),
    Notice(level="info", code="compaction", message="the context was compacted"),
    Notice(level="error", code="hook_failed", message="a hook failed"),
    Error(kind="rate_limited", message="slow down"),
    Error(kind="authentication_failed", message="no key", fatal=True),
    TurnCompleted(
        status="success", usage=USAGE, cost_usd=0.25, duration_ms=1500.4, result="Fixed.", structured={"n": 1}
    ),
    TurnCompleted(status="error", result="no key"),
    TurnCompleted(status="interrupted"),
    TurnCompleted(status="max_turns"),
    TurnCompleted(status="max_budget"),
    Done(status="success", result="Fixed.", usage=USAGE, cost_usd=0.25, duration_ms=1700.0, tool_uses=1),
    Done(status="error", result="no key"),
    Done(status="interrupted"),
    Done(status="max_turns"),
    Done(status="max_budget"),
    FilesRestored(
        before_turn=1,
        checkpoint="000001",
        redo="000002",
        files=2,
        paths=["a.py", "b.py"],
        not_restored=["c: no"],
        who="phone",
    ),
    Unrecognized(raw='{"type":"news"}', why="unknown type 'news'"),
    Text(text="raw", native=msgspec.Raw(b'{"type":"assistant"}')),
]
for number, event in enumerate(SAMPLES, 1):
    stamp(event, agent="claude", session_id="s1", seq=number, timestamp=1_764_756_000_000 + number, turn=1)


@pytest.fixture(scope="session")
def samples() -> list[Event]:
    """At least one event of every canonical type, and one of every variant that some dialect tells apart."""
    return SAMPLES


@pytest.fixture(scope="session")
def whole_turn() -> list[Event]:
    """One turn in the order of the grammar, with a sub-agent, a question and speech that is cut short."""
    story: list[Event] = [
        Init(model="sonnet", cwd="/project"),
        TurnStarted(prompt="Fix it"),
        ThinkingDelta(text="Let me "),
        ThinkingDelta(text="see."),
        Thinking(text="Let me see."),
        TextDelta(text="I'll ", message_id="m1"),
        TextDelta(text="look.", message_id="m1"),
        Text(text="I'll look.\n", message_id="m1"),
        ToolUse(tool_use_id="t1", name="shell", native_name="Bash", input={"command": "ls"}, operation="execute"),
        PermissionRequest(request_id="q1", tool_use_id="t1", tool_name="shell", native_name="Bash"),
        PermissionRequest(request_id="q2", tool_use_id="t2", tool_name="edit_file"),
        PermissionResolved(request_id="q1", decision="allow"),
        PermissionResolved(request_id="q2", decision="deny", by="policy"),
        ToolResult(tool_use_id="t1", name="shell", status="success", output="a.py"),
        ThinkingDelta(text="And ", parent_tool_use_id="t0"),
        TextDelta(text="Sub", message_id="m2", parent_tool_use_id="t0"),
        ThinkingDelta(text="now?"),
        Error(kind="timeout", message="too slow", fatal=True),
        TurnCompleted(status="error", result="too slow", usage=Usage(input_tokens=3, output_tokens=4, total_tokens=7)),
        Done(status="error", result="too slow", usage=Usage(input_tokens=3, output_tokens=4, total_tokens=7)),
    ]
    for number, event in enumerate(story, 1):
        turn = 0 if number == 1 else 1
        stamp(event, agent="codex", session_id="s2", seq=number, timestamp=1_764_756_000_000, turn=turn)
    return story
