"""Claude Code's recordings through protocol, dictionary and grammar: what they mean, and that each is well-formed."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from stagedoor.agents.claude import CanUseTool, ClaudeProtocol
from stagedoor.agents.claude.events import ClaudeResult, TurnSettled
from stagedoor.agents.claude.events import Event as NativeEvent
from stagedoor.drivers.claude.dictionary import ClaudeDictionary
from stagedoor.transports.launch import Exited, Stalled
from stagedoor.unified.events import (
    Done,
    Error,
    Event,
    FileChange,
    Init,
    Notice,
    PermissionRequest,
    Plan,
    PlanItem,
    Retry,
    Text,
    TextDelta,
    Thinking,
    ThinkingDelta,
    ToolResult,
    ToolUse,
    TurnCompleted,
    TurnStarted,
    Unrecognized,
    Usage,
    UsageReport,
)
from stagedoor.unified.grammar import Grammar
from stagedoor.unified.settings import QuotaWindow
from stagedoor.wire.jsonl import LineBuffer

TRANSCRIPTS = Path(__file__).parents[2] / "transcripts" / "claude-2.1.197"
NOT_STREAMS = ("sessionfile", "list")
CASES = sorted(path for path in TRANSCRIPTS.glob("*.jsonl") if not any(word in path.name for word in NOT_STREAMS))
SMALL = [path for path in CASES if path.stat().st_size < 60_000]


def printed(path: Path) -> list[bytes]:
    """What Claude Code printed: the lines of a raw capture, or the ``out`` side of a two-way log."""
    lines, out = LineBuffer(), list[bytes]()
    for line in [*lines.feed(path.read_bytes()), *lines.finish()]:
        assert isinstance(line, bytes)
        both: Any = json.loads(line) if line.startswith(b'{"dir"') else {"dir": "out", "line": line}
        if both["dir"] == "out":
            out.append(both["line"] if isinstance(both["line"], bytes) else both["line"].encode())
    return out


def play(lines: Iterable[bytes], *more: NativeEvent) -> list[Event]:
    protocol, dictionary, grammar = ClaudeProtocol(), ClaudeDictionary(), Grammar()
    natives = [native for line in lines for native in protocol.receive(line)] + protocol.receive_eof() + list(more)
    out = [event for native in natives for own in dictionary.translate(native) for event in grammar.accept(own)]
    return out + grammar.end("error" if grammar.in_turn else None)


def replay(name: str) -> list[Event]:
    [path] = TRANSCRIPTS.glob(f"{name}-*.jsonl")
    return play(printed(path))


def without_figures(events: list[Event]) -> list[Event]:
    return [event for event in events if not isinstance(event, Init | UsageReport)]


def check(events: list[Event]) -> None:
    """The grammar's promises, and those of this dictionary: wholes after deltas, figures that add up."""
    assert isinstance(events[0], Init)
    assert isinstance(events[-1], Done)
    in_turn, tools, total, piece = False, set[str](), Usage(), ""
    for event in events:
        match event:
            case TurnStarted():
                assert not in_turn
                in_turn = True
            case TurnCompleted():
                assert in_turn
                assert not tools
                assert not piece
                in_turn, total = False, total + event.usage
                if event.status == "error":
                    assert event.result
            case ToolUse():
                assert event.tool_use_id not in tools
                assert event.native_name
                tools.add(event.tool_use_id)
            case ToolResult():
                tools.remove(event.tool_use_id)
            case TextDelta() | ThinkingDelta():
                piece += event.text
            case Text() | Thinking():
                assert piece in ("", event.text)
                piece = ""
            case _:
                pass
    assert events[-1].usage == total
    assert not in_turn


@pytest.mark.parametrize("path", CASES, ids=lambda path: path.stem)
def test_every_recording_is_well_formed(path: Path) -> None:
    check(play(printed(path)))


@pytest.mark.parametrize("path", SMALL, ids=lambda path: path.stem)
def test_every_prefix_can_be_closed(path: Path) -> None:
    lines = printed(path)
    for count in range(0, len(lines), max(1, len(lines) // 25)):
        check(play(lines[:count]))


def usage(times: int = 1, cost: float = 0.001025) -> Usage:
    """What the recorded model claims for one answer."""
    return Usage(
        input_tokens=150 * times,
        output_tokens=20 * times,
        cached_tokens=50 * times,
        total_tokens=170 * times,
        cost_usd=round(cost * times, 10),
    )


def report(used: Usage) -> UsageReport:
    fields = {name: getattr(used, name) for name in Usage.__struct_fields__}
    return UsageReport(**fields, session=used)


# --------------------------------------------------------------------------------------------------- whole streams


def test_deltas_thinking_a_command_and_usage() -> None:
    running = msgspec.structs.replace(usage(1), cost_usd=None)
    both = msgspec.structs.replace(usage(2), cost_usd=None)
    init, *events = replay("07")
    assert isinstance(init, Init)
    assert (init.model, init.cwd, init.agent_version, init.resumed) == (
        "claude-opus-4-8[1m]",
        "/repo",
        "2.1.197",
        False,
    )
    assert "Bash" in init.tools
    assert len(init.native_session_id) == 36
    command = {"command": "echo t", "description": "t"}
    call = "toolu_fake00000041"
    assert events == [
        TurnStarted(),
        ThinkingDelta(text="I should run"),
        ThinkingDelta(text=" a command."),
        Thinking(text="I should run a command."),
        ToolUse(
            tool_use_id=call, name="shell", native_name="Bash", input=command, operation="execute", target="echo t",
            description="t",
        ),
        report(running),
        ToolResult(tool_use_id=call, name="shell", status="success", output="t", exit_code=0),
        ThinkingDelta(text="It worked."),
        Thinking(text="It worked."),
        TextDelta(text="Done.", message_id="msg_fake00000042"),
        Text(text="Done.", message_id="msg_fake00000042"),
        report(both),
        report(usage(2)),
        TurnCompleted(status="success", usage=usage(2), cost_usd=0.00205, duration_ms=329.0, result="Done."),
        Done(status="success", result="Done.", usage=usage(2), cost_usd=0.00205, tool_uses=1),
    ]  # fmt: skip


def test_a_sub_agent_carries_its_parent_and_counts() -> None:
    parent = "toolu_fake00000058"
    prompt = "Do the sub job. [[scenario:bash]]"
    command = {"command": "echo hi-from-bash", "description": "Say hi"}
    assert without_figures(replay("10"))[2:-2] == [
        ToolUse(
            tool_use_id=parent, name="task", native_name="Agent", target="Sub job", description="Sub job",
            input={"description": "Sub job", "subagent_type": "general-purpose", "prompt": prompt},
        ),
        ToolUse(
            tool_use_id="toolu_fake00000061", name="shell", native_name="Bash", input=command, operation="execute",
            target="echo hi-from-bash", description="Say hi", parent_tool_use_id=parent,
        ),
        ToolResult(
            tool_use_id="toolu_fake00000061", name="shell", status="success", output="hi-from-bash", exit_code=0,
            parent_tool_use_id=parent,
        ),
        ToolResult(
            tool_use_id=parent, name="task", status="success", output="The command printed hi-from-bash.",
            duration_ms=290.0,
        ),
        Text(text="The sub-agent reported back.", message_id="msg_fake00000064"),
    ]  # fmt: skip
    [completed] = [event for event in replay("10") if isinstance(event, TurnCompleted)]
    assert completed.usage == usage(4)  # the result's own figure leaves the sub-agent's two answers out


def test_todos_become_plans() -> None:
    plans = [event.items for event in replay("11") if isinstance(event, Plan)]
    assert plans == [
        [PlanItem("First")],
        [PlanItem("First"), PlanItem("Second")],
        [PlanItem("First", "in_progress"), PlanItem("Second")],
        [PlanItem("First", "completed"), PlanItem("Second")],
    ]


def test_turns_are_charged_for_themselves_only() -> None:
    events = replay("20")
    turns = [event.usage for event in events if isinstance(event, TurnCompleted)]
    assert turns == [usage(1), usage(2), usage(1), usage(1), usage(1)]
    assert [event.code for event in events if isinstance(event, Notice)] == ["cumulative_usage"]
    done = events[-1]
    assert isinstance(done, Done)
    assert done.usage.total_tokens == 6 * 170


def test_a_background_task_keeps_its_turn_open() -> None:
    events = replay("170")
    [completed] = [event for event in events if isinstance(event, TurnCompleted)]
    assert (completed.status, completed.usage) == ("success", usage(3))
    [notice] = [event for event in events if isinstance(event, Notice)]
    assert (notice.level, notice.code) == ("info", "background_task")
    [result] = [event for event in events if isinstance(event, ToolResult)]
    assert (result.status, result.exit_code) == ("success", None)


def test_files_are_told_with_their_diffs() -> None:
    [written] = [event for event in replay("31") if isinstance(event, FileChange)]
    assert written == FileChange(
        path="/repo/w1.txt",
        change="created",
        diff="--- /dev/null\n+++ b/repo/w1.txt\n@@ -0,0 +1 @@\n+hello\n",
        after="hello\n",
        tool_use_id="toolu_fake00000180",
    )


# ------------------------------------------------------------------------------------------------------- endings

ENDINGS = {
    "01": [("success", None)],
    "70": [("max_turns", None)],
    "73": [("error", "authentication_failed")],
    "74": [("error", "authentication_failed")],
    "77": [("error", "context_overflow")],
    "80": [("error", "rate_limited")],
    "81": [("error", "connection_failed")],
    "82": [("error", "unknown")],
    "85": [("error", "rate_limited")],
    "86": [("error", "connection_failed")],
    "87": [("error", "rate_limited")],
    "91": [("error", "protocol_error")],
    "92": [("error", "protocol_error")],
    "116": [("error", "session_not_found")],
    "150": [("error", "authentication_failed")],
    "60": [("interrupted", None)],
    "66": [("interrupted", None)],
    "63": [("error", "connection_failed")],
    "64": [("error", "connection_failed")],
    "198": [("error", "unknown"), ("success", None)],
    "199": [("success", None), ("error", "unknown")],
    "197": [("success", None), ("success", None), ("max_turns", None), ("success", None)],
}


@pytest.mark.parametrize(("name", "endings"), ENDINGS.items(), ids=ENDINGS)
def test_endings_are_judged_by_what_happened(name: str, endings: list[tuple[str, str | None]]) -> None:
    seen_endings: list[tuple[str, str | None]] = []
    error: Error | None = None
    for event in replay(name):
        if isinstance(event, Error):
            assert event.fatal
            error = event
        elif isinstance(event, TurnCompleted):
            seen_endings.append((event.status, error.kind if error else None))
            if error is not None:
                assert event.result in (error.message, "Hello from the fake model.")
            error = None
    assert seen_endings == endings


SILENCES = {"84": [(1, "no_answer")], "34": [(2, "cumulative_usage"), (6, "hook_stopped")], "90": []}


@pytest.mark.parametrize("name", SILENCES)
def test_a_turn_without_an_answer_says_why(name: str) -> None:
    turn, notices = 0, list[tuple[int, str]]()
    for event in replay(name):
        turn += isinstance(event, TurnStarted)
        if isinstance(event, Notice):
            notices.append((turn, event.code))
    assert notices == SILENCES[name]


TARGETS = {"11": "First", "13": "tiny.add", "90": "", "160": "Which colour?"}


@pytest.mark.parametrize("name", TARGETS)
def test_calls_say_what_they_are_about(name: str) -> None:
    assert next(event.target for event in replay(name) if isinstance(event, ToolUse)) == TARGETS[name]


def test_a_success_that_is_an_error_is_corrected_aloud() -> None:
    message = "Invalid API key · Fix external API key"
    turn = [event for event in without_figures(replay("73")) if not isinstance(event, Retry)]
    assert turn[1:3] == [
        Notice(level="info", code="success_was_error", message=f"Claude Code calls it a success: {message}"),
        Error(kind="authentication_failed", message=message, fatal=True),
    ]


def test_retries_and_another_model_are_told() -> None:
    events = replay("193")
    assert [event for event in events if isinstance(event, Retry)] == [
        Retry(attempt=1, max_attempts=10, delay_ms=531.1144143693242, reason="overloaded (HTTP 529)"),
        Retry(attempt=2, max_attempts=10, delay_ms=1181.5815959955316, reason="overloaded (HTTP 529)"),
    ]
    words = "Switched to Haiku 4.5 due to high demand for Opus 4.8 (1M context)"
    assert [event for event in events if isinstance(event, Notice)] == [
        Notice(level="warning", code="model_fallback", message=words)
    ]


STATUSES: dict[str, list[Any]] = {
    "02": ["denied", "error", "error"],
    "09": [("success", 0), ("error", 3), ("success", None)],
    "31": ["success", "success", "denied", "denied", "denied", "denied", "denied", "success"],
    "160": ["success", "success", "denied"],
    "102": ["denied"],
    "191": ["success", "denied"],
    "194": ["denied"],
}


@pytest.mark.parametrize("name", STATUSES)
def test_results_say_what_became_of_the_call(name: str) -> None:
    results = [event for event in replay(name) if isinstance(event, ToolResult)]
    with_codes = isinstance(STATUSES[name][0], tuple)
    statuses = [(result.status, result.exit_code) if with_codes else result.status for result in results]
    assert statuses == STATUSES[name]


def test_a_refusal_nobody_saw_is_at_least_told() -> None:
    """Refused over an MCP server: the stream of the CLI does not say so before the result does."""
    [path] = TRANSCRIPTS.glob("102-*.jsonl")
    events = play(line.replace(b'"Bash"', b'"WebFetch"') for line in printed(path))
    assert [event.status for event in events if isinstance(event, ToolResult)] == ["error"]
    [notice] = [event for event in events if isinstance(event, Notice)]
    assert notice.code == "permission_denied"
    assert notice.message.startswith("WebFetch was refused: toolu_")


INTRODUCTIONS = {"43d": "d7ffb017-ba6c-4ece-9c71-e0bf73690c92", "116": ""}


@pytest.mark.parametrize("name", INTRODUCTIONS)
def test_a_turn_that_fails_before_init_still_names_its_session(name: str) -> None:
    """But not one that was never found: the id Claude Code then tells is of nothing."""
    [init] = [event for event in replay(name) if isinstance(event, Init)]
    assert init.native_session_id == INTRODUCTIONS[name]


def test_clearing_the_conversation_makes_another_session_of_it() -> None:
    events = replay("177")
    assert isinstance(events[0], Init)
    assert events[0].native_session_id == "70546d22-6ec4-4363-a740-99a4f452be26"
    [changed] = [event for event in events if isinstance(event, Notice) and event.code == "session_changed"]
    assert changed.native_session_id == "6879b376-3583-4534-8784-973a9603ca94"


# -------------------------------------------------------------------------------------------------------- by hand


def stream_event(event: dict[str, Any]) -> bytes:
    return json.dumps({"type": "stream_event", "event": event, "parent_tool_use_id": None}).encode()


def begin(message_id: str) -> bytes:
    return stream_event({"type": "message_start", "message": {"id": message_id, "usage": {"input_tokens": 3}}})


def delta(text: str) -> bytes:
    return stream_event({"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": text}})


def line(**fields: Any) -> bytes:
    return json.dumps(fields).encode()


def assistant(*content: dict[str, Any], message_id: str = "m", **fields: Any) -> bytes:
    return line(type="assistant", message={"id": message_id, "content": list(content)}, **fields)


INIT = line(type="system", subtype="init", model="m", cwd="/repo", session_id="s")
RETRY = line(type="system", subtype="api_retry", attempt=1, max_retries=2, retry_delay_ms=5.0, error="overloaded")
RESULT = line(type="result", subtype="success", result="fin", num_turns=1)
AGAIN = Notice(
    level="warning",
    code="text_repeated",
    message="the answer broke off after 8 characters and starts again: what follows may repeat them",
)
RETRIED = Retry(attempt=1, max_attempts=2, delay_ms=5.0, reason="overloaded")
BROKEN = "Claude Code ended before it had finished the turn; resume the session to go on"

BY_HAND: dict[str, tuple[list[bytes], list[Event]]] = {
    "a retry after deltas": (
        [begin("a"), delta("Half "), delta("an "), RETRY, begin("b"), delta("Half an answer."), RESULT],
        [
            TextDelta(text="Half ", message_id="a"),
            TextDelta(text="an ", message_id="a"),
            Text(text="Half an ", message_id="a"),
            RETRIED,
            AGAIN,
            TextDelta(text="Half an answer.", message_id="b"),
            Text(text="Half an answer.", message_id="b"),
        ],
    ),
    "an answer begun anew without a word": (
        [begin("a"), delta("Half an "), begin("b"), delta("Half an answer."), RESULT],
        [
            TextDelta(text="Half an ", message_id="a"),
            Text(text="Half an ", message_id="a"),
            AGAIN,
            TextDelta(text="Half an answer.", message_id="b"),
            Text(text="Half an answer.", message_id="b"),
        ],
    ),
    "a retry after a whole block": (
        [
            assistant({"type": "text", "text": "Half an "}),
            RETRY,
            assistant({"type": "text", "text": "Half an answer."}),
            RESULT,
        ],
        [Text(text="Half an ", message_id="m"), RETRIED, AGAIN, Text(text="Half an answer.", message_id="m")],
    ),
    "a new kind of block hides no neighbour": (
        [assistant({"type": "hologram", "n": 1}, {"type": "text", "text": "hi"}), RESULT],
        [
            Unrecognized(raw='{"type": "hologram", "n": 1}', why="unknown type 'hologram'"),
            Text(text="hi", message_id="m"),
        ],
    ),
    "a new kind of delta": (
        [stream_event({"type": "content_block_delta", "index": 0, "delta": {"type": "smell", "x": 1}}), RESULT],
        [
            Unrecognized(
                raw=stream_event(
                    {"type": "content_block_delta", "index": 0, "delta": {"type": "smell", "x": 1}}
                ).decode(),
                why="Invalid value 'smell' - at `$.event.delta.type`",
            )
        ],
    ),
    "an MCP server that is down": (
        [line(type="system", subtype="init", mcp_servers=[{"name": "x", "status": "failed"}]), RESULT],
        [
            Notice(
                level="warning",
                code="mcp_server",
                message="MCP server 'x' is not connected (failed): its tools are missing",
            )
        ],
    ),
}


@pytest.mark.parametrize("name", BY_HAND)
def test_by_hand(name: str) -> None:
    lines, expected = BY_HAND[name]
    events = without_figures(play([INIT, *lines]))
    conversation = [event for event in events if not isinstance(event, TurnStarted | TurnCompleted | Done)]
    assert conversation == expected


def test_an_edit_in_a_sub_agent_is_told_from_its_input() -> None:
    arguments = {"file_path": "/repo/a.txt", "old_string": "one\n", "new_string": "1\n"}
    call = {"type": "tool_use", "id": "t", "name": "Edit", "input": arguments}
    result = {"type": "tool_result", "tool_use_id": "t", "content": "The file /repo/a.txt has been updated."}
    done = line(type="user", message={"role": "user", "content": [result]}, parent_tool_use_id="p")
    [change] = [
        event
        for event in play([INIT, assistant(call, parent_tool_use_id="p"), done, RESULT])
        if isinstance(event, FileChange)
    ]
    assert change == FileChange(
        path="/repo/a.txt",
        change="modified",
        diff="--- a/repo/a.txt\n+++ b/repo/a.txt\n@@ -1 +1 @@\n-one\n+1\n",
        tool_use_id="t",
        parent_tool_use_id="p",
    )


def test_the_end_of_the_program_and_the_silence_after_it() -> None:
    events = play([INIT, delta("Half an ")], Stalled(30.0), Exited(137, "out of memory\n"))
    assert without_figures(events) == [
        TurnStarted(),
        TextDelta(text="Half an "),
        Text(text="Half an "),
        Error(kind="connection_failed", message=BROKEN, fatal=True),
        TurnCompleted(status="error", result=BROKEN),
        Notice(level="warning", code="exited", message="Claude Code exited with code 137: out of memory"),
        Done(status="error", result=BROKEN),
    ]


def test_who_waits_for_our_answer_does_not_stall() -> None:
    dictionary = ClaudeDictionary(prompted=True)
    assert dictionary.translate(CanUseTool("Bash", {"command": "make"}, "r", "t")) == []
    assert dictionary.translate(Stalled(30.0)) == []
    dictionary.translate(TurnSettled())
    assert [type(event) for event in dictionary.translate(Stalled(30.0))] == [Notice]


def test_a_result_for_the_older_ones_among_us() -> None:
    """Before there was ``modelUsage``: the turn's own figures count, and the cost under its older name."""
    native = ClaudeResult(subtype="success", result="x", cost_usd=0.5, num_turns=1)
    dictionary = ClaudeDictionary(prompted=True)
    assert dictionary.translate(native) == [UsageReport(cost_usd=0.5)]
    assert dictionary.translate(TurnSettled(result=native)) == [
        TurnCompleted(status="success", usage=Usage(cost_usd=0.5), result="x", duration_ms=0.0)
    ]


def test_a_question_in_our_words() -> None:
    dictionary = ClaudeDictionary(prompted=True)
    started = line(type="system", subtype="task_started", task_id="agent7", tool_use_id="parent")
    for native in ClaudeProtocol().receive(started):
        dictionary.translate(native)
    question = CanUseTool("Bash", {"command": "make"}, "r1", "t1", description="Build", agent_id="agent7")
    assert dictionary.request(question) == PermissionRequest(
        request_id="r1",
        tool_use_id="t1",
        tool_name="shell",
        native_name="Bash",
        operation="execute",
        target="make",
        input={"command": "make"},
        description="Build",
        choices=["allow_once", "allow_always", "reject_once"],
        parent_tool_use_id="parent",
    )


FIVE_HOURS = {"resetsAt": 1794999999, "rateLimitType": "five_hour", "utilization": 0.91, "surpassedThreshold": 0.9}
"""As Claude Code 2.1.197 wrote it for a subscription whose model had said so."""
LIMITS: list[tuple[dict[str, Any], list[Event], list[QuotaWindow]]] = [
    ({"status": "allowed", "isUsingOverage": False}, [], []),
    (
        {"status": "allowed_warning", **FIVE_HOURS},
        [Notice(level="warning", code="rate_limit", message="The rate limit is near (5 hours): 91% used")],
        [QuotaWindow(name="5 hours", used_percent=91, resets_at=1794999999000)],
    ),
    (
        {"status": "allowed", "rateLimitType": "seven_day", "utilization": 0.355},
        [],
        [
            QuotaWindow(name="5 hours", used_percent=91, resets_at=1794999999000),
            QuotaWindow(name="7 days", used_percent=35.5),
        ],
    ),
    (
        {"status": "rejected", **FIVE_HOURS, "utilization": 1},
        [Notice(level="warning", code="rate_limit", message="The rate limit is reached (5 hours): 100% used")],
        [
            QuotaWindow(name="5 hours", used_percent=100, resets_at=1794999999000),
            QuotaWindow(name="7 days", used_percent=35.5),
        ],
    ),
    (
        {"status": "rejected", "rateLimitType": "a_new_one", "utilization": "much", "resetsAt": "soon"},
        [Notice(level="warning", code="rate_limit", message="The rate limit is reached (a new one)")],
        [
            QuotaWindow(name="5 hours", used_percent=100, resets_at=1794999999000),
            QuotaWindow(name="7 days", used_percent=35.5),
        ],
    ),
]


def test_limits_of_a_subscription_are_told() -> None:
    """Each event speaks of one window; what was said of the others stays."""
    dictionary = ClaudeDictionary(prompted=True)
    for limit, events, quotas in LIMITS:
        [native] = ClaudeProtocol().receive(line(type="rate_limit_event", rate_limit_info=limit))
        assert dictionary.translate(native) == events
        assert list(dictionary.report.quotas) == quotas
