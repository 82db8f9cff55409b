"""OpenCode's recordings through protocol, dictionary and grammar: what they mean, and that each is well-formed."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from stagedoor.agents.acp.protocol import AcpProtocol
from stagedoor.agents.acp.requests import RequestPermission
from stagedoor.agents.opencode import OpenCodeSessionConfig, RunProtocol, ServeProtocol
from stagedoor.agents.opencode.client import has_credentials
from stagedoor.agents.opencode.events import (
    MessagePartDelta,
    MessagePartUpdated,
    MessageUpdated,
    PermissionAsked,
    PermissionReplied,
    QuestionAsked,
    Runaway,
    ServerRefusal,
    SessionCompacted,
    SessionCreated,
    SessionError,
    SessionStatus,
    StepsExhausted,
    TurnEnded,
)
from stagedoor.agents.opencode.launch import configuration
from stagedoor.agents.opencode.parts import Cache, OpenCodeFailure, OpenCodeTokens
from stagedoor.drivers.opencode.acp_dictionary import OpenCodeAcpDictionary
from stagedoor.drivers.opencode.agent import AGENT
from stagedoor.drivers.opencode.calls import Calls, changes_of, judge_call, plan_of
from stagedoor.drivers.opencode.endings import error_of, usage_of
from stagedoor.drivers.opencode.opening import RecordedRun
from stagedoor.drivers.opencode.rights import check_run, lists_of, offered, rules, stance_of
from stagedoor.drivers.opencode.run_dictionary import RunDictionary
from stagedoor.drivers.opencode.serve_dictionary import ServeDictionary, answers_in
from stagedoor.drivers.opencode.tools import permission_of
from stagedoor.errors import BadRequest, NotSupported
from stagedoor.replay import translate
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
    ToolProgress,
    ToolResult,
    ToolUse,
    TurnCompleted,
    TurnStarted,
    Unrecognized,
    Usage,
    UsageReport,
)
from stagedoor.unified.options import Options
from stagedoor.wire.jsonl import LineBuffer
from stagedoor.wire.shapes import UnknownMessage

TRANSCRIPTS = Path(__file__).parents[2] / "transcripts" / "opencode-1.18.33"
NOT_STREAMS = ("list", "db-path", "debug-paths")
CASES = sorted(path for path in TRANSCRIPTS.glob("*.jsonl") if not any(word in path.name for word in NOT_STREAMS))
SMALL = [path for path in CASES if path.stat().st_size < 20_000]
ROOT, CHILD = "ses_root", "ses_child"


def lines_of(path: Path) -> list[bytes]:
    buffer = LineBuffer()
    return [line for line in [*buffer.feed(path.read_bytes()), *buffer.finish()] if isinstance(line, bytes)]


def way_of(path: Path) -> str:
    mark = path.name.split("-")[1]
    return mark if mark in ("serve", "acp") else "run"


def replayed(path: Path, lines: Iterable[bytes]) -> list[Event]:
    return list(translate("opencode", AGENT.drivers[way_of(path)], lines))


def translated(name: str) -> list[Event]:
    """What the dictionary alone makes of a recording."""
    [path] = TRANSCRIPTS.glob(f"{name}*.jsonl")
    protocol: Any = {"serve": ServeProtocol, "acp": AcpProtocol, "run": RecordedRun}[way_of(path)]()
    dictionary: Any = AGENT.drivers[way_of(path)].dictionary()
    out: list[Event] = []
    for line in lines_of(path):
        both: Any = json.loads(line) if line.startswith(b'{"dir"') else {"dir": "out", "line": line.decode()}
        if both["dir"] == "out":
            out += [
                event for native in protocol.receive(both["line"].encode()) for event in dictionary.translate(native)
            ]
        elif way_of(path) == "acp":
            protocol.decode_command(both["line"].encode())
    return [*out, *(event for native in protocol.receive_eof() for event in dictionary.translate(native))]


# ------------------------------------------------------------------------------------------------- well-formed


def check(stream: list[Event]) -> None:
    assert isinstance(stream[0], Init)
    assert isinstance(stream[-1], Done)
    assert Counter(type(event) for event in stream)[Init] == 1
    assert Counter(type(event) for event in stream)[Done] == 1
    edges = [type(event) for event in stream if isinstance(event, TurnStarted | TurnCompleted)]
    assert edges == [TurnStarted, TurnCompleted] * (len(edges) // 2)
    uses = [event.tool_use_id for event in stream if isinstance(event, ToolUse)]
    results = [event.tool_use_id for event in stream if isinstance(event, ToolResult)]
    assert sorted(uses) == sorted(results)
    assert len(set(uses)) == len(uses)
    for kind, whole in ((TextDelta, Text), (ThinkingDelta, Thinking)):
        pieces = "".join(event.text for event in stream if isinstance(event, kind))
        assert not pieces or pieces == "".join(event.text for event in stream if isinstance(event, whole))


@pytest.mark.parametrize("path", CASES, ids=lambda path: path.stem)
def test_every_recording_is_recognized_and_well_formed(path: Path) -> None:
    stream = replayed(path, lines_of(path))
    check(stream)
    assert [event for event in stream if isinstance(event, Unrecognized)] == []


@pytest.mark.parametrize("path", SMALL, ids=lambda path: path.stem)
def test_every_prefix_is_well_formed(path: Path) -> None:
    lines = lines_of(path)
    for length in range(len(lines)):
        check(replayed(path, lines[:length]))


# ---------------------------------------------------------------------------------------------- run: recordings

STEP = Usage(input_tokens=1200, output_tokens=34, cached_tokens=1000, total_tokens=1234, cost_usd=0.00141)


def used(usage: Usage) -> UsageReport:
    return UsageReport(
        input_tokens=usage.input_tokens,
        output_tokens=usage.output_tokens,
        cached_tokens=usage.cached_tokens,
        reasoning_tokens=usage.reasoning_tokens,
        total_tokens=usage.total_tokens,
        cost_usd=usage.cost_usd,
    )


def test_run_command() -> None:
    assert translated("02-bash") == [
        Init(native_session_id="ses_e22272a47ffefukhuTbGK2VlZx"),
        Text(text="I will run a command.", message_id="msg_1ddd8dbca001PKZ7OdNuvS71m2"),
        ToolUse(
            tool_use_id="call_8_0",
            name="shell",
            native_name="bash",
            input={"command": "echo hello-from-bash", "description": "Print a greeting"},
            operation="execute",
            target="echo hello-from-bash",
            description="Print a greeting",
        ),
        ToolResult(
            tool_use_id="call_8_0",
            name="shell",
            status="success",
            output="hello-from-bash\n",
            exit_code=0,
            duration_ms=207.0,
        ),
        used(STEP),
        Text(text="The command is done.", message_id="msg_1ddd8e4fc0016Wb1lzaViFm1XG"),
        used(STEP + STEP),
        TurnCompleted(status="success", usage=STEP + STEP),
    ]


def test_run_write_tells_the_change() -> None:
    [change] = [event for event in translated("03-write") if isinstance(event, FileChange)]
    assert change == FileChange(
        path="/repo/hello.txt",
        change="created",
        diff="--- /dev/null\n+++ b/repo/hello.txt\n@@ -0,0 +1,2 @@\n+hello\n+world\n",
        after="hello\nworld\n",
        tool_use_id="call_11_0",
    )


@pytest.mark.parametrize(
    ("name", "status", "kind"),
    [
        ("01-plain-text", "success", None),
        ("12-permission-ask-bash-headless", "error", "permission_denied"),
        ("19-bash-exit3", "success", None),
        ("23-length", "error", "unknown"),
        ("24-empty", "success", None),
        ("30-http401", "error", "authentication_failed"),
        ("31-unknown-model", "error", "model_not_found"),
        ("33-broken-stream", "error", "connection_failed"),
        ("38-context-overflow", "success", None),
        ("61-sigterm-mid-command", "error", "connection_failed"),
        ("99-no-provider", "error", "connection_failed"),
    ],
)
def test_run_is_judged_by_what_happened(name: str, status: str, kind: str | None) -> None:
    events = translated(name)
    assert [event.kind for event in events if isinstance(event, Error) and event.fatal] == ([kind] if kind else [])
    [completed] = [event for event in events if isinstance(event, TurnCompleted)]
    assert completed.status == status


@pytest.mark.parametrize(
    ("name", "results"),
    [
        ("09-mcp", [("mcp", "success", None)]),
        ("10-mcp-error", [("mcp", "error", None)]),
        ("11-task-subagent", [("task", "success", None)]),
        ("14-permission-deny-bash-auto", [("shell", "denied", None)]),
        ("15-permission-bash-pattern-deny", [("shell", "denied", None)]),
        ("18-question-tool", [("question", "denied", None)]),
        ("19-bash-exit3", [("shell", "error", 3)]),
        ("20-unknown-tool", [("other", "error", None)]),
        ("21-bad-args", [("shell", "error", None)]),
        ("95-readonly-tier", [("read_file", "success", None), ("write_file", "denied", None)]),
    ],
)
def test_run_calls_are_judged(name: str, results: list[tuple[str, str, int | None]]) -> None:
    events = [event for event in translated(name) if isinstance(event, ToolResult)]
    assert [(event.name, event.status, event.exit_code) for event in events] == results


def test_run_summaries_are_no_answers() -> None:
    events = translated("38-context-overflow")
    assert [event.text for event in events if isinstance(event, Text)] == ["Hello from the fake model."]
    assert [event.code for event in events if isinstance(event, Notice)] == ["context_overflow", "compacted"]


def step(reason: str) -> dict[str, Any]:
    return {"type": "step_finish", "sessionID": ROOT, "part": {"reason": reason}}


STEP_START = {"type": "step_start", "sessionID": ROOT, "part": {}}


SILENT = Notice(level="warning", code="no_answer", message="the model ended its turn without a word")


def run(*messages: dict[str, Any] | object, most_steps: int | None = None) -> list[Event]:
    protocol, dictionary = RunProtocol(most_empty_steps=2, most_steps=most_steps), RunDictionary()
    out: list[Event] = []
    for message in messages:
        natives: list[Any] = (
            list(protocol.receive(json.dumps(message).encode())) if isinstance(message, dict) else [message]
        )
        out += [event for native in natives for event in dictionary.translate(native)]
    return out


def test_run_endings() -> None:
    init = Init(native_session_id=ROOT)
    assert run(STEP_START, Exited(1, "oops\nAPI key missing\n")) == [
        init,
        Error(
            kind="authentication_failed",
            message="opencode ended in the middle of its turn: API key missing",
            fatal=True,
        ),
        TurnCompleted(status="error"),
    ]
    assert run(STEP_START, Exited(-15)) == [init, TurnCompleted(status="error")]
    assert run(STEP_START, step("tool-calls"), STEP_START, step("tool-calls"), Exited(-15), most_steps=2) == [
        init,
        TurnCompleted(status="max_turns"),
    ]
    assert run(STEP_START, step("unknown"), STEP_START, step("unknown"), STEP_START, Exited(-15)) == [
        init,
        Error(
            kind="connection_failed",
            message="the model's answers end without a reason, and OpenCode repeats the request without limit; "
            "ended after 3 tries",
            fatal=True,
        ),
        TurnCompleted(status="error"),
    ]
    assert run(STEP_START, step("stop"), Exited(0)) == [init, SILENT, TurnCompleted(status="success")]
    text_line = {"type": "text", "sessionID": ROOT, "part": {"text": "Hi.", "messageID": "m"}}
    text = Text(text="Hi.", message_id="m")
    assert run(STEP_START, text_line, step("stop"), Exited(0)) == [init, text, TurnCompleted(status="success")]
    assert run(STEP_START, text_line, step("tool-calls"), STEP_START, step("stop"), Exited(0)) == [
        init,
        text,
        SILENT,
        TurnCompleted(status="success"),
    ]
    assert run(Exited(1, "Error: Session not found\n")) == [
        Error(kind="session_not_found", message="opencode ended at its start: Error: Session not found", fatal=True),
        TurnCompleted(status="error"),
    ]
    assert run(Stalled(5)) == [Notice(level="warning", code="stalled", message="the agent has been silent for 5 s")]
    assert run(UnknownMessage(b"\xff", "no JSON")) == [Unrecognized(raw="\ufffd", why="no JSON")]


def test_run_steps_that_begin_again_are_retries() -> None:
    again = "the model's answer broke off, and OpenCode asks again; it does not say why"
    text_line = {"type": "text", "sessionID": ROOT, "part": {"text": "Hi.", "messageID": "m"}}
    events = run(
        STEP_START,
        STEP_START,
        step("tool-calls"),
        STEP_START,
        STEP_START,
        text_line,
        step("stop"),
        Exited(0),
        STEP_START,
    )
    assert events == [
        Init(native_session_id=ROOT),
        Retry(attempt=1, reason=again),
        Retry(attempt=1, reason=again),
        Text(text="Hi.", message_id="m"),
        TurnCompleted(status="success"),
    ]
    assert [event.attempt for event in translated("37-streamerror") if isinstance(event, Retry)] == [1, 2, 3, 4]


# -------------------------------------------------------------------------------------------------------- serve


def test_serve_recording() -> None:
    events = translated("40-serve-main")
    assert events[:6] == [
        Init(
            model="fake/fake-model",
            cwd="/repo",
            agent_version="1.18.33",
            native_session_id="ses_e221e7aaaffefOvIQ0BsrRtqRv",
        ),
        TextDelta(text="Plain text a", message_id="msg_1dde19bfc00134Z0hAEXnP3tPH"),
        TextDelta(text="nswer.", message_id="msg_1dde19bfc00134Z0hAEXnP3tPH"),
        Text(text="Plain text answer.", message_id="msg_1dde19bfc00134Z0hAEXnP3tPH"),
        used(STEP),
        TurnCompleted(status="success", usage=STEP),
    ]
    assert [event.status for event in events if isinstance(event, TurnCompleted)] == [
        "success",
        "success",
        "success",  # refused with a reason
        "interrupted",  # refused without
        "success",
        "success",
    ]
    assert [event.status for event in events if isinstance(event, ToolResult)] == [
        "success",
        "denied",
        "denied",
        "success",
        "success",
        "success",
    ]


def updated(part: dict[str, Any], session: str = ROOT, message: str = "m") -> MessagePartUpdated:
    whole = {"id": "p", "sessionID": session, "messageID": message, **part}
    return MessagePartUpdated(session_id=session, part=json.dumps(whole).encode())  # type: ignore[arg-type]


def tool(
    name: str, call: str, status: str, session: str = ROOT, message: str = "m", **state: Any
) -> MessagePartUpdated:
    part = {"type": "tool", "id": call, "tool": name, "callID": call, "state": {"status": status, **state}}
    return updated(part, session, message)


def serve(*natives: Any, dictionary: ServeDictionary | None = None) -> list[Event]:
    dictionary = dictionary or ServeDictionary()
    created = {"id": ROOT, "directory": "/repo", "version": "1", "model": {"id": "m", "providerID": "p"}}
    dictionary.translate(_event(SessionCreated, {"sessionID": ROOT, "info": created}))
    dictionary.translate(
        _event(MessageUpdated, {"sessionID": ROOT, "info": {"id": "u", "role": "user", "sessionID": ROOT}})
    )
    return [event for native in natives for event in dictionary.translate(native)]


def _event(kind: Any, properties: dict[str, Any]) -> Any:
    return msgspec.convert(properties, kind)


def ended(outcome: Any = "completed", finish: str | None = "stop", error: OpenCodeFailure | None = None) -> TurnEnded:
    return TurnEnded(ROOT, outcome, finish, error)


def test_serve_subagents_carry_their_parent_and_spend_for_the_turn() -> None:
    child = {"id": CHILD, "parentID": ROOT, "directory": "/repo"}
    tokens = {"input": 10, "output": 2, "reasoning": 1, "cache": {"read": 5, "write": 0}}
    spent = Usage(input_tokens=15, output_tokens=2, cached_tokens=5, reasoning_tokens=1, total_tokens=18, cost_usd=0.5)
    events = serve(
        tool("task", "t", "running", input={"description": "Look"}),
        _event(SessionCreated, {"sessionID": CHILD, "info": child}),
        tool("task", "t", "running", input={"description": "Look"}, metadata={"sessionId": CHILD}),
        tool("bash", "c", "running", CHILD, "n", input={"command": "ls"}),
        tool("bash", "c", "running", CHILD, "n", input={"command": "ls"}, metadata={"output": "a\n"}),
        tool("bash", "c", "running", CHILD, "n", input={"command": "ls"}, metadata={"output": "a\nb\n"}),
        tool("bash", "c", "completed", CHILD, "n", input={"command": "ls"}, output="a\nb\n", metadata={"exit": 0}),
        updated({"type": "step-finish", "reason": "stop", "tokens": tokens, "cost": 0.5}, CHILD, "n"),
        SessionError(session_id=CHILD, error=OpenCodeFailure("APIError", {"message": "busy"})),
        tool("task", "t", "completed", input={"description": "Look"}, output="Done."),
        ended(),
    )
    assert events == [
        ToolUse(
            tool_use_id="t",
            name="task",
            native_name="task",
            input={"description": "Look"},
            target="Look",
            description="Look",
        ),
        ToolUse(
            tool_use_id="c",
            name="shell",
            native_name="bash",
            input={"command": "ls"},
            operation="execute",
            target="ls",
            parent_tool_use_id="t",
        ),
        ToolProgress(tool_use_id="c", output="a\n", parent_tool_use_id="t"),
        ToolProgress(tool_use_id="c", output="b\n", parent_tool_use_id="t"),
        ToolResult(
            tool_use_id="c", name="shell", status="success", output="a\nb\n", exit_code=0, parent_tool_use_id="t"
        ),
        used(spent),
        Notice(level="warning", code="subagent_failed", message="busy", parent_tool_use_id="t"),
        ToolResult(tool_use_id="t", name="task", status="success", output="Done."),
        SILENT,
        TurnCompleted(status="success", usage=spent),
    ]


def test_serve_speech() -> None:
    empty: dict[str, Any] = {"type": "text", "text": "", "time": {"start": 1}}
    events = serve(
        updated({"type": "text", "text": "the prompt"}, message="u"),
        MessagePartDelta(session_id=ROOT, message_id="u", part_id="x", delta="the prompt"),
        updated({"type": "reasoning", "id": "r", "text": "", "time": {"start": 1}}),
        MessagePartDelta(session_id=ROOT, message_id="m", part_id="r", delta="Hm."),
        updated({"type": "reasoning", "id": "r", "text": "Hm.", "time": {"start": 1, "end": 2}}),
        updated({**empty, "id": "a"}),
        MessagePartDelta(session_id=ROOT, message_id="m", part_id="a", delta="One "),
        updated({**empty, "id": "a", "text": "One", "time": {"start": 1, "end": 2}}),
        updated({**empty, "id": "a", "text": "One", "time": {"start": 1, "end": 2}}),
        updated({**empty, "id": "b"}),
        MessagePartDelta(session_id=ROOT, message_id="m", part_id="b", delta="So f"),
        _event(SessionStatus, {"sessionID": ROOT, "status": {"type": "retry", "attempt": 2, "message": "busy"}}),
        updated({**empty, "id": "b", "text": "So f", "time": {"start": 1, "end": 2}}),
        SessionCompacted(session_id=ROOT),
        ServerRefusal(404, "POST /permission/x/reply", "gone"),
    )
    assert events == [
        ThinkingDelta(text="Hm."),
        Thinking(text="Hm."),
        TextDelta(text="One ", message_id="m"),
        Text(text="One ", message_id="m"),
        TextDelta(text="So f", message_id="m"),
        Text(text="So f", message_id="m"),
        Retry(attempt=2, reason="busy"),
        Notice(level="info", code="compacted", message="the conversation grew too long and was summarized"),
    ]


CALL: dict[str, Any] = {"input": {"command": "ls"}}
NO = "The user rejected permission to use this specific tool call."


@pytest.mark.parametrize(
    ("natives", "status", "kind"),
    [
        ([ended()], "success", None),
        ([ended(finish=None)], "success", None),
        ([ended("aborted", None, OpenCodeFailure("MessageAbortedError"))], "interrupted", None),
        (
            [ended("failed", None, OpenCodeFailure("APIError", {"message": "no", "statusCode": 429}))],
            "error",
            "rate_limited",
        ),
        ([ended("failed", None, OpenCodeFailure("ProviderAuthError", {}))], "error", "authentication_failed"),
        (
            [ended("failed", None, OpenCodeFailure("UnknownError", {"message": "no such model"}))],
            "error",
            "model_not_found",
        ),
        ([ended(finish="length")], "error", "unknown"),
        ([ended(finish="unknown")], "error", "unknown"),
        ([ended(finish="tool-calls")], "success", None),
        ([Runaway(ROOT, 8), ended("aborted", None)], "error", "connection_failed"),
        ([StepsExhausted(ROOT, 2), ended("aborted", None)], "max_turns", None),
        (
            [
                tool("bash", "c", "running", **CALL),
                PermissionReplied(session_id=ROOT, request_id="q", reply="reject"),
                tool("bash", "c", "error", **CALL, error=NO),
                ended(finish="tool-calls"),
            ],
            "interrupted",
            None,
        ),
    ],
)  # fmt: skip
def test_serve_endings(natives: list[Any], status: str, kind: str | None) -> None:
    events = serve(*natives)
    assert [event.kind for event in events if isinstance(event, Error)] == ([kind] if kind else [])
    completed = events[-1]
    assert isinstance(completed, TurnCompleted)
    assert completed.status == status


def test_serve_tokens_of_the_turn_where_no_step_told_them() -> None:
    tokens = OpenCodeTokens(input=1, output=2, cache=Cache(read=3, write=4))
    usage = Usage(input_tokens=8, output_tokens=2, cached_tokens=3, total_tokens=10)
    assert serve(TurnEnded(ROOT, "completed", "stop", None, tokens)) == [
        used(usage),
        SILENT,
        TurnCompleted(status="success", usage=usage),
    ]


def test_serve_structured_answers() -> None:
    info = {"id": "m", "role": "assistant", "sessionID": ROOT, "structured": {"answer": 42}}
    events = serve(_event(MessageUpdated, {"sessionID": ROOT, "info": info}), ended(finish="tool-calls"), ended())
    assert events == [
        TurnCompleted(status="success", structured={"answer": 42}),
        SILENT,
        TurnCompleted(status="success"),
    ]


def test_serve_turns_without_an_answer() -> None:
    text_part = updated({"id": "p", "type": "text", "text": "Hi.", "time": {"start": 1, "end": 2}})
    step_start = updated({"type": "step-start"})
    below = updated({"type": "step-start"}, CHILD, "n")
    child = _event(SessionCreated, {"sessionID": CHILD, "info": {"id": CHILD, "parentID": ROOT}})
    text, end = Text(text="Hi.", message_id="m"), TurnCompleted(status="success")
    assert serve(child, step_start, text_part, below, ended()) == [text, end]
    assert serve(step_start, text_part, step_start, ended()) == [text, SILENT, end]
    assert serve(ended(finish=None)) == [end]  # the text was missed


def test_serve_tells_nothing_of_the_past_a_fork_was_copied_from() -> None:
    info = {"id": "old", "role": "assistant", "sessionID": ROOT, "time": {"created": 1, "completed": 2}}
    events = serve(
        _event(MessageUpdated, {"sessionID": ROOT, "info": info}),
        updated({"type": "text", "text": "Long ago.", "time": {"start": 1, "end": 2}}, message="old"),
        tool("bash", "c", "completed", message="old", **CALL),
    )
    assert events == []


def test_serve_questions() -> None:
    dictionary = ServeDictionary()
    question: PermissionAsked = _event(
        PermissionAsked,
        {
            "id": "per_1",
            "sessionID": ROOT,
            "permission": "bash",
            "patterns": ["ls"],
            "metadata": {"command": "ls"},
            "tool": {"messageID": "m", "callID": "c"},
        },
    )
    request = PermissionRequest(
        request_id="per_1",
        tool_use_id="c",
        tool_name="shell",
        native_name="bash",
        operation="execute",
        target="ls",
        input={"command": "ls"},
        choices=["allow_once", "allow_always", "reject_once"],
    )
    assert not dictionary.has_call_of(question)
    assert dictionary.request(question) == request
    serve(tool("bash", "c", "running", input={"command": "ls", "description": "List"}), dictionary=dictionary)
    assert dictionary.has_call_of(question)
    dictionary.guarded = True
    assert [event.code for event in dictionary.translate(question) if isinstance(event, Notice)] == ["guard_missing"]
    marked = tool("bash", "c", "running", input={"command": ":\nls", "description": "List"})
    assert serve(marked, dictionary=dictionary) == []
    full = dictionary.request(question)
    assert (full.input, full.description) == ({"command": "ls", "description": "List"}, "List")


@pytest.mark.parametrize(
    ("permission", "metadata", "patterns", "expected"),
    [
        ("edit", {"filepath": "/r/a", "diff": "@@"}, ["a"], ("edit_file", "write", "/r/a")),
        ("external_directory", {"filepath": "/o/a", "parentDir": "/o"}, ["/o/*"], ("read_file", "read", "/o/a")),
        ("external_directory", {"command": "ls /o"}, ["/o/*"], ("shell", "execute", "ls /o")),
        ("webfetch", {"url": "http://x", "format": "text"}, ["http://x"], ("web_fetch", "network", "http://x")),
        ("doom_loop", {"tool": "bash", "input": {"command": "ls"}}, ["bash"], ("shell", "execute", "ls")),
        ("sums_add", {}, ["*"], ("mcp", "other", "sums_add")),
        ("read", {}, [".env"], ("read_file", "read", ".env")),
    ],
)
def test_questions_without_a_call(
    permission: str, metadata: dict[str, Any], patterns: list[str], expected: tuple[str, str, str]
) -> None:
    question = _event(
        PermissionAsked, {"id": "q", "permission": permission, "metadata": metadata, "patterns": patterns}
    )
    request = ServeDictionary().request(question)
    assert (request.tool_name, request.operation, request.target) == expected


def test_questions_to_the_person() -> None:
    which = {"question": "Which?", "header": "Pick", "options": [{"label": "A"}, {"label": "B"}]}
    question: QuestionAsked = _event(QuestionAsked, {"id": "q", "questions": [which]})
    request = ServeDictionary().request(question)
    assert (request.tool_name, request.target, request.choices) == ("question", "Which?", ["A", "B"])
    [use] = serve(tool("question", "c", "running", input={"questions": [which]}))
    assert isinstance(use, ToolUse)
    assert use.target == "Which?"
    assert answers_in(question, {"answers": [["B"]]}) == [["B"]]
    assert answers_in(question, {"answers": ["B"]}) == [["B"]]
    assert answers_in(question, {"answers": {"Which?": "A"}}) == [["A"]]
    assert answers_in(question, {"answers": {"Pick": ["A", "B"]}}) == [["A", "B"]]
    assert answers_in(question, {}) is None
    assert answers_in(question, None) is None


# ---------------------------------------------------------------------------------------------------------- acp


def test_acp_recording() -> None:
    events = translated("50-acp-main")
    results = {event.tool_use_id: event for event in events if isinstance(event, ToolResult)}
    uses = {event.tool_use_id: event for event in events if isinstance(event, ToolUse)}
    assert uses["call_90_0"] == ToolUse(
        tool_use_id="call_90_0",
        name="shell",
        native_name="bash",
        input={"command": "echo hello-from-bash", "description": "Print a greeting"},
        operation="execute",
        target="echo hello-from-bash",
        description="Print a greeting",
    )
    assert results["call_90_0"] == ToolResult(
        tool_use_id="call_90_0", name="shell", status="success", output="hello-from-bash\n", exit_code=0
    )
    assert results["call_92_0"].status == "denied"
    assert uses["call_102_0"].target == ""  # the plan itself says what it is about
    assert [event for event in events if isinstance(event, FileChange)][:2] == [
        FileChange(
            path="/repo/acp.txt",
            change="created",
            diff="--- /dev/null\n+++ b/repo/acp.txt\n@@ -0,0 +1,2 @@\n+one\n+two\n",
            after="one\ntwo\n",
            tool_use_id="call_97_0",
        ),
        FileChange(
            path="/repo/acp.txt",
            change="modified",
            diff="--- a/repo/acp.txt\n+++ b/repo/acp.txt\n@@ -1,2 +1,2 @@\n one\n-two\n+three\n",
            tool_use_id="call_99_0",
        ),
    ]
    assert [event.items for event in events if isinstance(event, Plan)] == [
        [PlanItem("First thing", "in_progress"), PlanItem("Second thing")],
        [PlanItem("First thing", "completed"), PlanItem("Second thing", "in_progress")],
    ]
    costs = [event.usage.cost_usd for event in events if isinstance(event, TurnCompleted)]
    assert costs[:4] == [0.00141, 0.00282, 0.00141, 0.00141]  # each turn's own, though OpenCode tells the sum
    [error, *_] = [event for event in events if isinstance(event, Error)]
    assert error == Error(kind="authentication_failed", message="Incorrect API key provided: fake.", fatal=True)


def test_acp_refusals_that_interrupt() -> None:
    protocol, dictionary = AcpProtocol(), OpenCodeAcpDictionary()
    protocol.decode_command(
        b'{"jsonrpc":"2.0","id":1,"method":"session/prompt","params":{"sessionId":"s","prompt":[]}}'
    )
    dictionary.interrupt()
    [answer] = protocol.receive(b'{"jsonrpc":"2.0","id":1,"result":{"stopReason":"end_turn"}}')
    assert dictionary.translate(answer)[-1] == TurnCompleted(status="interrupted")


def test_acp_refusals_that_end_the_turn() -> None:
    refused = [event.status for event in translated("50-acp-main") if isinstance(event, TurnCompleted)]
    assert refused[:5] == ["success", "success", "interrupted", "interrupted", "success"]


def acp(*updates: dict[str, Any], continues_after_refusal: bool = False, stop: str = "end_turn") -> list[Event]:
    """A turn of these updates."""
    protocol, dictionary = AcpProtocol(), OpenCodeAcpDictionary()
    dictionary.continues_after_refusal = continues_after_refusal
    protocol.decode_command(
        b'{"jsonrpc":"2.0","id":1,"method":"session/prompt","params":{"sessionId":"s","prompt":[]}}'
    )
    params = [{"sessionId": "s", "update": update} for update in updates]
    lines = [{"jsonrpc": "2.0", "method": "session/update", "params": entry} for entry in params]
    answer = {"jsonrpc": "2.0", "id": 1, "result": {"stopReason": stop}}
    natives = [native for line in [*lines, answer] for native in protocol.receive(json.dumps(line).encode())]
    return [event for native in natives for event in dictionary.translate(native)]


ANNOUNCED = {"sessionUpdate": "tool_call", "toolCallId": "c", "title": "bash", "kind": "execute", "status": "pending"}
REFUSED = {
    "sessionUpdate": "tool_call_update",
    "toolCallId": "c",
    "status": "failed",
    "rawInput": {"command": "ls"},
    "rawOutput": {"error": NO},
}
MESSAGE_CHUNK = {
    "sessionUpdate": "agent_message_chunk",
    "messageId": "m",
    "content": {"type": "text", "text": "Then not."},
}


@pytest.mark.parametrize(
    ("updates", "continues_after_refusal", "ending"),
    [
        ([MESSAGE_CHUNK, ANNOUNCED, REFUSED], False, [TurnCompleted(status="interrupted")]),
        (
            [ANNOUNCED, REFUSED, MESSAGE_CHUNK],
            False,
            [Text(text="Then not.", message_id="m"), TurnCompleted(status="success")],
        ),
        ([ANNOUNCED, REFUSED], True, [SILENT, TurnCompleted(status="success")]),
        ([MESSAGE_CHUNK], True, [Text(text="Then not.", message_id="m"), TurnCompleted(status="success")]),
        ([], True, [SILENT, TurnCompleted(status="success")]),
    ],
)
def test_acp_turns_that_end_with_a_refusal(
    updates: list[dict[str, Any]], continues_after_refusal: bool, ending: list[Event]
) -> None:
    events = acp(*updates, continues_after_refusal=continues_after_refusal)
    last = max((index for index, event in enumerate(events) if isinstance(event, ToolResult | TextDelta)), default=-1)
    assert events[last + 1 :] == ending


def test_acp_turns_in_which_the_model_refuses() -> None:
    reason = "the model refused to answer"
    assert acp(ANNOUNCED, REFUSED, stop="refusal")[-2:] == [
        Error(kind="unknown", message=reason, fatal=True),
        TurnCompleted(status="error"),
    ]


def test_a_question_over_acp_that_overtakes_its_call_is_taken_for_what_it_can_be_at_most() -> None:
    message = (
        b'{"jsonrpc":"2.0","id":0,"method":"session/request_permission","params":{"sessionId":"s","options":[],'
        b'"toolCall":{"toolCallId":"c","title":":\\ntouch ~/.bashrc","kind":"other","status":"pending",'
        b'"rawInput":{"command":"touch ~/.bashrc"}}}}'
    )
    protocol, dictionary = AcpProtocol(), OpenCodeAcpDictionary()
    [question] = protocol.receive(message)
    assert isinstance(question, RequestPermission)
    assert not dictionary.has_call_of(question)
    request = dictionary.request(question)
    assert (request.tool_name, request.operation, request.target) == ("shell", "execute", "touch ~/.bashrc")


def test_a_question_over_acp_waits_for_the_input_that_its_announcement_leaves_out() -> None:
    call = {"toolCallId": "c", "title": "marker_write", "kind": "other", "rawInput": {}}
    answer = {"sessionId": "s", "options": [], "toolCall": {**call, "status": "pending"}}
    protocol, dictionary = AcpProtocol(), OpenCodeAcpDictionary()

    def receive(method: str, params: dict[str, Any], **more: Any) -> Any:
        [event] = protocol.receive(json.dumps({"jsonrpc": "2.0", "method": method, "params": params, **more}).encode())
        dictionary.translate(event)
        return event

    def update(kind: str, **more: Any) -> None:
        receive("session/update", {"sessionId": "s", "update": {"sessionUpdate": kind, **call, **more}})

    update("tool_call", status="pending")
    question = receive("session/request_permission", answer, id=0)
    assert not dictionary.has_call_of(question)
    update("tool_call_update", status="in_progress", rawInput={"path": "/r/a"})
    assert dictionary.has_call_of(question)
    request = dictionary.request(question)
    assert (request.native_name, request.input) == ("marker_write", {"path": "/r/a"})


# ------------------------------------------------------------------------------------------------ calls and changes


def test_ids_of_calls_that_come_again_are_told_apart() -> None:
    calls = Calls()
    assert [calls.id_of("m1", "bash:0"), calls.id_of("m2", "bash:0"), calls.id_of("m1", "bash:0")] == [
        "bash:0",
        "bash:0:m2",
        "bash:0",
    ]


@pytest.mark.parametrize(
    ("tool", "status", "error", "metadata", "expected"),
    [
        ("bash", "completed", "", {"exit": 0}, ("success", 0)),
        ("bash", "completed", "", {"exit": 2}, ("error", 2)),
        ("bash", "completed", "", {"exit": None}, ("error", None)),
        ("bash", "completed", "", {}, ("success", None)),
        ("read", "completed", "", {}, ("success", None)),
        ("read", "error", "File not found", {}, ("error", None)),
        ("edit", "error", f"{NO[:-1]} with the following feedback: Nope", {}, ("denied", None)),
        ("question", "error", "The user dismissed this question", {}, ("denied", None)),
        ("write", "error", "Model tried to call unavailable tool 'invalid'. Available: read.", {}, ("denied", None)),
        ("nope", "error", "Model tried to call unavailable tool 'nope'. Available: read.", {}, ("error", None)),
    ],
)
def test_judged(tool: str, status: str, error: str, metadata: dict[str, Any], expected: Any) -> None:
    assert judge_call(tool, status, error, metadata) == expected


PATCH = "Index: /r/a\n=====\n--- /r/a\n+++ /r/a\n@@ -1 +1 @@\n-x\n+y\n"
PLAIN = "--- a/r/a\n+++ b/r/a\n@@ -1 +1 @@\n-x\n+y\n"


@pytest.mark.parametrize(
    ("tool", "arguments", "metadata", "diff", "expected"),
    [
        ("edit", {"oldString": "x"}, {"filediff": {"file": "/r/a", "patch": PATCH}}, "", [("/r/a", "modified", PLAIN)]),
        (
            "edit",
            {"oldString": ""},
            {"filediff": {"file": "/r/a", "patch": "@@ -0,0 +1 @@\n+y\n"}},
            "",
            [("/r/a", "created", "--- /dev/null\n+++ b/r/a\n@@ -0,0 +1 @@\n+y\n")],
        ),
        ("write", {"content": "y\n"}, {"filepath": "/r/a", "exists": True}, PATCH, [("/r/a", "modified", PLAIN)]),
        ("write", {"content": "y\n"}, {"filepath": "/r/a", "exists": True}, "", [("/r/a", "modified", "")]),
        ("write", {"content": "y\n"}, {"filepath": "/r/a", "exists": True}, PATCH[: PATCH.index("@@")], []),
        (
            "apply_patch",
            {},
            {
                "files": [
                    {"filePath": "/r/a", "type": "update", "patch": PATCH},
                    {"filePath": "/r/b", "type": "delete", "patch": "@@ -1 +0,0 @@\n-x\n"},
                    {"filePath": "/r/c", "type": "move", "movePath": "/r/d", "patch": ""},
                    "nonsense",
                ]
            },
            "",
            [
                ("/r/a", "modified", PLAIN),
                ("/r/b", "deleted", "--- a/r/b\n+++ /dev/null\n@@ -1 +0,0 @@\n-x\n"),
                ("/r/d", "moved", ""),
            ],
        ),
        ("read", {}, {"preview": "x"}, "", []),
    ],
)
def test_changes(tool: str, arguments: Any, metadata: Any, diff: str, expected: list[tuple[str, str, str]]) -> None:
    events = changes_of(tool, arguments, metadata, "c", diff)
    assert [
        (change.path, change.change, change.diff) for change in events if isinstance(change, FileChange)
    ] == expected


def test_plan() -> None:
    todos = [{"content": "A", "status": "completed"}, {"content": "B", "status": "cancelled"}, {"content": "C"}, 7]
    assert plan_of({"todos": todos}) == [Plan(items=[PlanItem("A", "completed"), PlanItem("C")])]
    assert plan_of({"todos": "x"}) == []


def test_errors_that_say_nothing() -> None:
    error = error_of(
        OpenCodeFailure("UnknownError", {"message": "Unexpected server error. Check server logs for details."})
    )
    assert (error.kind, "opencode models" in error.message) == ("model_not_found", True)


# -------------------------------------------------------------------------------------------------------- rights


@pytest.mark.parametrize(
    ("options", "stance"),
    [
        (Options(tier="dry-run", approval="autoAll"), "read"),
        (Options(tier="autonomous", sandbox="readOnly"), "read"),
        (Options(), "edit"),
        (Options(tier="autonomous"), "act"),
        (Options(approval="ask"), "ask"),
        (Options(approval="askDangerous"), "ask"),
        (Options(approval="autoEdit"), "edit"),
        (Options(approval="autoAll"), "act"),
    ],
)
def test_stance(options: Options, stance: str) -> None:
    assert stance_of(options) == stance


READ = {"*": "allow", "*.env": "ask", "*.env.*": "ask", "*.env.example": "allow"}


def effective(options: Options, *, asks: bool = True, policed: bool = False) -> dict[str, Any]:
    """The rules as OpenCode gets them, each permission written out."""
    config = OpenCodeSessionConfig(permission=rules(options, asks=asks, policed=policed))
    permissions: dict[str, Any] = json.loads(configuration(config))["permission"]
    return permissions


def actions(permissions: dict[str, Any], *names: str) -> list[Any]:
    return [permissions.get(name, permissions["*"]) for name in names]


ACTS = ("edit", "bash", "webfetch", "websearch", "external_directory", "doom_loop", "sums_add")
READS = ("glob", "grep", "list", "todowrite")


def test_rules() -> None:
    dry = effective(Options(tier="dry-run"))
    assert actions(dry, *ACTS, "task") == ["deny"] * 8
    assert dry["question"] == "allow"  # who plans may ask
    assert actions(dry, *READS) == ["allow"] * 4
    assert dry["read"] == READ
    ask = effective(Options(approval="ask"))
    assert actions(ask, *ACTS) == ["ask"] * 7
    assert actions(ask, *READS, "task") == ["allow"] * 5
    supervised = effective(Options())
    assert actions(supervised, *ACTS) == ["ask"] * 7
    unattended = effective(Options(), asks=False)
    assert actions(unattended, *ACTS) == ["deny"] * 7
    everything = effective(Options(tier="autonomous"))
    assert actions(everything, *ACTS, *READS, "task", "read") == ["allow"] * 13
    assert everything["question"] == "allow"
    policed = effective(Options(approval="ask"), policed=True)
    assert actions(policed, "read", "glob", "grep", "list", "bash") == ["ask"] * 5


def test_tool_lists() -> None:
    only = effective(Options(tier="autonomous", allowed_tools=("read_file", "shell", "sums_*")))
    assert actions(only, "read", "bash", "sums_*") == ["allow"] * 3
    assert actions(only, "edit", "webfetch", "glob", "task", "other_tool") == ["deny"] * 5
    dry = effective(Options(tier="dry-run", allowed_tools=("shell", "read_file")))
    assert actions(dry, "bash", "edit", "grep") == ["deny"] * 3
    less = effective(Options(tier="autonomous", disallowed_tools=("write_file", "edit_file", "web_fetch", "mcp")))
    assert actions(less, "edit", "webfetch", "bash", "sums_add") == ["deny", "deny", "allow", "deny"]
    served = effective(Options(tier="autonomous", allowed_tools=("mcp",), disallowed_tools=("mcp__sums__add",)))
    assert actions(served, "sums_add", "bash", "other_tool") == ["deny", "deny", "allow"]
    # Both stand behind one permission: the question tells them apart, and where nobody asks, nothing can.
    split = Options(tier="autonomous", disallowed_tools=("write_file",))
    assert actions(effective(split), "edit", "bash") == ["ask", "allow"]
    check_run(Options(disallowed_tools=("write_file", "edit_file")))
    # By the names of the tools: one permission stands before five of them.
    by_name: dict[tuple[str, ...], str] = {("write", "edit"): "deny", ("write",): "ask", ("apply_patch",): "ask"}
    for names, action in by_name.items():
        assert actions(effective(Options(tier="autonomous", disallowed_tools=names)), "edit") == [action]
    assert actions(effective(Options(tier="autonomous", allowed_tools=("apply_patch",))), "edit") == ["ask"]
    check_run(Options(disallowed_tools=("write", "edit")))
    with pytest.raises(NotSupported, match="driver='serve'"):
        check_run(split)
    for wrong in ("shell(git *)", "nonsense", "todo_write"):
        with pytest.raises(BadRequest):
            rules(Options(disallowed_tools=(wrong,)), asks=True)
    assert [permission_of(name) for name in ("edit", "write", "bash")] == ["edit", "edit", "bash"]


def test_credentials(tmp_path: Path) -> None:
    env = {"HOME": str(tmp_path), "XDG_DATA_HOME": "", "XDG_CONFIG_HOME": ""}
    assert not has_credentials(env)
    assert has_credentials({**env, "MISTRAL_API_KEY": "x"})
    assert has_credentials({**env, "OPENCODE_CONFIG_CONTENT": '{"provider":{"a":{"options":{"apiKey":"x"}}}}'})
    auth = tmp_path / ".local" / "share" / "opencode" / "auth.json"
    auth.parent.mkdir(parents=True)
    auth.write_text("{}")
    assert not has_credentials(env)
    auth.write_text('{"anthropic": {"type": "api", "key": "x"}}')
    assert has_credentials(env)


def test_money_leaves_no_dust() -> None:
    assert usage_of(OpenCodeTokens(), 0.1 + 0.2).cost_usd == 0.3
    assert usage_of(OpenCodeTokens(), 0.0).cost_usd is None


def test_a_turn_of_many_messages_is_counted_whole_and_keeps_only_what_is_open() -> None:
    """What is finished is counted and let go: outputs and messages of a long turn do not stay in memory."""
    protocol, dictionary = ServeProtocol(), ServeDictionary()

    def feed(kind: str, **properties: object) -> list[Any]:
        raw = json.dumps({"type": kind, "properties": {"sessionID": "ses_1", **properties}}).encode()
        return [event for native in protocol.receive(raw) for event in dictionary.translate(native)]

    feed("server.connected")
    feed("session.status", status={"type": "busy"})
    spent = {"input": 2, "output": 1, "reasoning": 0, "cache": {"read": 0, "write": 0}}
    for number in range(50):
        info: dict[str, Any] = {
            "id": f"msg_{number}", "sessionID": "ses_1", "role": "assistant", "time": {"created": 1}, "modelID": "m",
            "providerID": "p", "mode": "build", "agent": "build", "cost": 0.25, "tokens": spent,
        }  # fmt: skip
        feed("message.updated", info=info)
        for state in (
            {"status": "running", "input": {"command": "ls"}, "time": {"start": 1}},
            {"status": "completed", "input": {"command": "ls"}, "output": "x" * 9000, "title": "ls",
             "metadata": {"exit": 0}, "time": {"start": 1, "end": 2}},
        ):  # fmt: skip
            part = {"id": f"prt_{number}", "messageID": f"msg_{number}", "sessionID": "ses_1", "type": "tool",
                    "callID": f"c{number}", "tool": "bash", "state": state}  # fmt: skip
            feed("message.part.updated", part=part, time=1)
        feed("message.updated", info=info | {"time": {"created": 1, "completed": 2}, "finish": "tool-calls"})
    assert dictionary._calls._parts == {}
    assert list(protocol._turns["ses_1"]._messages) == ["msg_49"]
    (completed,) = [event for event in feed("session.idle") if isinstance(event, TurnCompleted)]
    assert (completed.usage.input_tokens, completed.usage.output_tokens, completed.usage.cost_usd) == (100, 50, 12.5)


REGISTERED = ("invalid", "question", "bash", "read", "edit", "write", "task", "webfetch", "skill")


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (Options(tier="autonomous"), ("question", "bash", "read", "edit", "write", "task", "webfetch", "skill")),
        (Options(tier="dry-run"), ("question", "read", "skill")),
        (
            Options(tier="autonomous", disallowed_tools=("shell", "edit")),
            ("question", "read", "write", "task", "webfetch", "skill"),
        ),
        (Options(allowed_tools=("read",)), ("read",)),
    ],
)  # fmt: skip
def test_the_tools_that_the_model_is_offered(options: Options, expected: tuple[str, ...]) -> None:
    assert offered(REGISTERED, rules(options, asks=True), lists_of(options)) == expected
