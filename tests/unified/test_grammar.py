"""Whatever a dictionary says, in whatever order, what comes out is well-formed."""

from __future__ import annotations

from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from stagedoor.unified.events import (
    Done,
    Error,
    Event,
    FileChange,
    Init,
    Notice,
    PermissionRequest,
    PermissionResolved,
    Plan,
    Retry,
    Text,
    TextDelta,
    Thinking,
    ToolProgress,
    ToolResult,
    ToolUse,
    TurnCompleted,
    TurnStarted,
    Unrecognized,
    Usage,
    UsageReport,
    decode,
    dollars,
    encode,
    session_changed,
)
from stagedoor.unified.grammar import RULES, Grammar

IDS = st.sampled_from(["a", "b", "c"])
EVENTS: st.SearchStrategy[Event] = st.one_of(
    st.just(Init(model="m")),
    st.builds(TurnStarted, prompt=st.just("p")),
    st.builds(TextDelta, text=st.text(max_size=3)),
    st.builds(Text, text=st.text(max_size=3)),
    st.builds(Thinking, text=st.text(max_size=3)),
    st.builds(ToolUse, tool_use_id=IDS, name=st.just("shell")),
    st.builds(ToolProgress, tool_use_id=IDS, output=st.just("x")),
    st.builds(ToolResult, tool_use_id=IDS, name=st.just("shell"), status=st.sampled_from(["success", "error"])),
    st.builds(FileChange, path=st.just("f"), change=st.just("modified")),
    st.just(Plan(items=[])),
    st.builds(PermissionRequest, request_id=IDS, tool_name=st.just("shell")),
    st.builds(PermissionResolved, request_id=IDS, decision=st.just("allow")),
    st.builds(UsageReport, input_tokens=st.integers(0, 9), total_tokens=st.integers(0, 9)),
    st.just(Retry(attempt=1)),
    st.just(Notice(level="info", code="c", message="m")),
    st.just(Error(kind="unknown", message="m")),
    st.builds(TurnCompleted, status=st.sampled_from(["success", "error", "interrupted"])),
    st.just(Done(status="success")),
    st.just(Unrecognized(raw="x", why="y")),
)
IN_TURN = (TextDelta, Text, Thinking, ToolUse, ToolProgress, ToolResult, FileChange, Plan, PermissionRequest, Retry)


def check(events: list[Event]) -> None:
    """The promises."""
    assert isinstance(events[0], Init)
    assert isinstance(events[-1], Done)
    assert [type(event) for event in events].count(Init) == 1
    assert [type(event) for event in events].count(Done) == 1
    in_turn, tools, questions = False, set[str](), set[str]()
    for event in events:
        match event:
            case TurnStarted():
                assert not in_turn
                in_turn = True
            case TurnCompleted():
                assert in_turn
                assert not tools
                assert not questions
                in_turn = False
            case ToolUse():
                assert event.tool_use_id not in tools
                tools.add(event.tool_use_id)
            case ToolResult():
                tools.remove(event.tool_use_id)
            case ToolProgress():
                assert event.tool_use_id in tools
            case PermissionRequest():
                questions.add(event.request_id)
            case PermissionResolved():
                questions.remove(event.request_id)
            case _:
                pass
        if isinstance(event, IN_TURN):
            assert in_turn
    assert not in_turn


@given(st.lists(EVENTS, max_size=30))
def test_any_sequence_comes_out_well_formed(events: list[Event]) -> None:
    grammar = Grammar()
    out = [event for each in events for event in grammar.accept(each)] + grammar.end()
    check(out)
    assert grammar.accept(Text(text="late")) == []
    assert grammar.end() == []


@given(st.lists(EVENTS, max_size=20))
def test_usage_adds_up(events: list[Event]) -> None:
    grammar = Grammar()
    out = [event for each in events for event in grammar.accept(each)] + grammar.end()
    turns = [event.usage for event in out if isinstance(event, TurnCompleted)]
    total = Usage()
    for usage in turns:
        total = total + usage
    done = out[-1]
    assert isinstance(done, Done)
    assert done.usage == total
    assert done.tool_uses == sum(isinstance(event, ToolUse) for event in out)


@given(EVENTS)
def test_encoding_is_reversible(event: Event) -> None:
    assert decode(encode(event)) == event


TOOL = ToolUse(tool_use_id="t", name="shell", input={"command": "ls"})
STALLED = Notice(level="warning", code="stalled", message="the agent has been silent for 5 s")
QUESTION = PermissionRequest(request_id="r", tool_use_id="t", tool_name="shell")
ANSWER = PermissionResolved(request_id="r", decision="allow", by="client")
REFUSABLE = PermissionRequest(request_id="q", tool_name="shell", target="ls")
REFUSED = PermissionResolved(request_id="q", decision="deny", by="client", message="not now")

TABLE: list[tuple[str, list[Event], list[Event]]] = [
    (
        "an ordinary turn",
        [Init(model="m"), TurnStarted(prompt="p"), Text(text="hi"), TurnCompleted(status="success")],
        [
            Init(model="m"),
            TurnStarted(prompt="p"),
            Text(text="hi"),
            TurnCompleted(status="success", result="hi"),
            Done(status="success", result="hi"),
        ],
    ),
    (
        "what comes before init waits for it",
        [TurnStarted(prompt="p"), Notice(level="info", code="c", message="m"), Init(model="m")],
        [
            Init(model="m"),
            TurnStarted(prompt="p"),
            Notice(level="info", code="c", message="m"),
            TurnCompleted(status="interrupted"),
            Done(status="interrupted"),
        ],
    ),
    (
        "a tool left open is closed with its turn",
        [Init(), TurnStarted(), TOOL, TurnCompleted(status="success")],
        [
            Init(),
            TurnStarted(),
            TOOL,
            ToolResult(
                tool_use_id="t",
                name="shell",
                status="error",
                output="the turn ended (success) before a result was reported",
            ),
            TurnCompleted(status="success"),
            Done(status="success", tool_uses=1),
        ],
    ),
    (
        "an agent that wakes by itself opens a turn; a completion said twice is said once",
        [Init(), TurnStarted(), TurnCompleted(status="success"), TurnCompleted(status="error"), Text(text="woke")],
        [
            Init(),
            TurnStarted(),
            TurnCompleted(status="success"),
            TurnStarted(),
            Text(text="woke"),
            TurnCompleted(status="interrupted", result="woke"),
            Done(status="interrupted", result="woke"),
        ],
    ),
    (
        "an init said again is news only when it names another session",
        [
            Init(native_session_id="a"),
            TurnStarted(),
            Init(native_session_id="a"),
            Init(native_session_id="b"),
            Init(),
            Init(native_session_id="b"),
            TurnCompleted(status="success"),
        ],
        [
            Init(native_session_id="a"),
            TurnStarted(),
            session_changed("b"),
            TurnCompleted(status="success"),
            Done(status="success"),
        ],
    ),
    (
        "a result for a call nobody announced",
        [Init(), TurnStarted(), ToolResult(tool_use_id="t", name="shell", status="success", output="x")],
        [
            Init(),
            TurnStarted(),
            ToolUse(tool_use_id="t", name="shell"),
            ToolResult(tool_use_id="t", name="shell", status="success", output="x"),
            TurnCompleted(status="interrupted"),
            Done(status="interrupted", tool_uses=1),
        ],
    ),
    (
        "a call that nobody had allowed when its turn ended did not run",
        [
            Init(),
            TOOL,
            PermissionRequest(request_id="r", tool_use_id="t", tool_name="shell"),
            TurnCompleted(status="interrupted"),
        ],
        [
            Init(),
            TurnStarted(),
            TOOL,
            PermissionRequest(request_id="r", tool_use_id="t", tool_name="shell"),
            PermissionResolved(request_id="r", decision="deny", by="interrupt", message="the turn ended (interrupted)"),
            ToolResult(tool_use_id="t", name="shell", status="denied", output="the turn ended (interrupted)"),
            TurnCompleted(status="interrupted"),
            Done(status="interrupted", tool_uses=1),
        ],
    ),
    (
        "a late result is kept as a notice",
        [
            Init(),
            TOOL,
            TurnCompleted(status="interrupted"),
            ToolResult(tool_use_id="t", name="shell", status="error", output="gone"),
        ],
        [
            Init(),
            TurnStarted(),
            TOOL,
            ToolResult(
                tool_use_id="t",
                name="shell",
                status="error",
                output="the turn ended (interrupted) before a result was reported",
            ),
            TurnCompleted(status="interrupted"),
            Notice(level="info", code="late_tool_result", message="t (error): gone"),
            Done(status="interrupted", tool_uses=1),
        ],
    ),
    (
        "a fatal error is the result of a failed turn",
        [
            Init(),
            TurnStarted(),
            Error(kind="rate_limited", message="slow down", fatal=True),
            TurnCompleted(status="error"),
        ],
        [
            Init(),
            TurnStarted(),
            Error(kind="rate_limited", message="slow down", fatal=True),
            TurnCompleted(status="error", result="slow down"),
            Done(status="error", result="slow down"),
        ],
    ),
    (
        "a failure without a turn is one of its own, with its own result",
        [
            Init(),
            TurnStarted(),
            Error(kind="unknown", message="first", fatal=True),
            TurnCompleted(status="error"),
            Error(kind="rate_limited", message="second", fatal=True),
            TurnCompleted(status="error"),
            TurnCompleted(status="error"),
        ],
        [
            Init(),
            TurnStarted(),
            Error(kind="unknown", message="first", fatal=True),
            TurnCompleted(status="error", result="first"),
            Error(kind="rate_limited", message="second", fatal=True),
            TurnStarted(),
            TurnCompleted(status="error", result="second"),
            Done(status="error", result="second"),
        ],
    ),
    (
        "a question tells the call that the agent did not, and a refusal is the call's end",
        [Init(), TurnStarted(), REFUSABLE, REFUSED, TurnCompleted(status="success")],
        [
            Init(),
            TurnStarted(),
            ToolUse(tool_use_id="q", name="shell", target="ls"),
            REFUSABLE,
            REFUSED,
            ToolResult(tool_use_id="q", name="shell", status="denied", output="not now"),
            TurnCompleted(status="success"),
            Done(status="success", tool_uses=1),
        ],
    ),
    (
        "a question that nobody wants to answer was denied, although the agent calls its words an answer",
        [
            Init(),
            TurnStarted(),
            ToolUse(tool_use_id="w", name="question"),
            PermissionRequest(request_id="w1", tool_use_id="w", tool_name="question"),
            PermissionResolved(request_id="w1", decision="deny", by="callback", message="no"),
            ToolResult(tool_use_id="w", name="question", status="success", output="The user answered: no"),
            TurnCompleted(status="success"),
        ],
        [
            Init(),
            TurnStarted(),
            ToolUse(tool_use_id="w", name="question"),
            PermissionRequest(request_id="w1", tool_use_id="w", tool_name="question"),
            PermissionResolved(request_id="w1", decision="deny", by="callback", message="no"),
            ToolResult(tool_use_id="w", name="question", status="denied", output="The user answered: no"),
            TurnCompleted(status="success"),
            Done(status="success", tool_uses=1),
        ],
    ),
    (
        "silence is news only of an agent that should be at work",
        [
            Init(),
            STALLED,
            TurnStarted(),
            STALLED,
            TOOL,
            QUESTION,
            STALLED,
            ANSWER,
            STALLED,
            ToolResult(tool_use_id="t", name="shell", status="success"),
            TurnCompleted(status="success"),
            STALLED,
        ],
        [
            Init(),
            TurnStarted(),
            STALLED,
            TOOL,
            QUESTION,
            ANSWER,
            STALLED,
            ToolResult(tool_use_id="t", name="shell", status="success"),
            TurnCompleted(status="success"),
            Done(status="success", tool_uses=1),
        ],
    ),
]


@pytest.mark.parametrize(("events", "expected"), [row[1:] for row in TABLE], ids=[row[0] for row in TABLE])
def test_rules(events: list[Event], expected: list[Event]) -> None:
    grammar = Grammar()
    assert [event for each in events for event in grammar.accept(each)] + grammar.end() == expected


def test_how_long_a_call_took_does_not_count_the_time_of_its_question() -> None:
    grammar = Grammar()
    events = [(Init(), 10), (TOOL, 20), (replace(QUESTION, tool_use_id="t"), 30), (ANSWER, 70_000)]
    for event, now in events:
        grammar.accept(event, now)
    [result] = grammar.accept(ToolResult(tool_use_id="t", name="shell", status="success"), 70_005)
    assert result == ToolResult(tool_use_id="t", name="shell", status="success", duration_ms=5.0)


def test_a_refused_call_is_denied_whatever_the_agent_says_of_it() -> None:
    grammar = Grammar()
    grammar.accept(Init())
    grammar.denied("early", "no")
    for tool in ("t", "early", "silent"):
        grammar.accept(ToolUse(tool_use_id=tool, name="shell"))
    grammar.denied("t", "not now")
    grammar.denied("silent", "never")
    failed = grammar.accept(ToolResult(tool_use_id="t", name="shell", status="error", output="was cancelled"))
    early = grammar.accept(ToolResult(tool_use_id="early", name="shell", status="error"))
    closed = grammar.accept(TurnCompleted(status="success"))
    assert [event.status for event in [*failed, *early, *closed] if isinstance(event, ToolResult)] == ["denied"] * 3


def test_a_session_that_never_began_ends_in_error() -> None:
    error = Error(kind="connection_failed", message="gone", fatal=True)
    assert Grammar(Init(cwd="/w")).end("error", error) == [Init(cwd="/w"), error, Done(status="error")]


def test_money_leaves_no_dust() -> None:
    assert (Usage(cost_usd=0.1) + Usage(cost_usd=0.2)).cost_usd == 0.3
    assert (Usage(cost_usd=0.1) + Usage()).cost_usd == 0.1
    assert (Usage() + Usage()).cost_usd is None
    assert dollars(0.3 - 0.1) == 0.2


def test_usage_is_per_turn_and_per_session() -> None:
    grammar = Grammar()
    events: list[Event] = [
        Init(),
        TurnStarted(),
        UsageReport(input_tokens=5, total_tokens=5, cost_usd=0.1),
        TurnCompleted(status="success"),
        TurnStarted(),
        UsageReport(input_tokens=2, total_tokens=2, cost_usd=0.2),
    ]
    out = [event for each in events for event in grammar.accept(each)]
    last = out[-1]
    assert isinstance(last, UsageReport)
    assert (last.input_tokens, last.session.input_tokens) == (2, 7)
    assert last.session.cost_usd == 0.3


def test_every_kind_of_event_has_a_rule() -> None:
    assert set(RULES) == set(get_args(Event))
