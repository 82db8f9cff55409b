"""Gemini CLI's recordings through protocol, dictionary and grammar: what they mean, and that each is well-formed."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from stagedoor.agents.acp.protocol import AcpProtocol
from stagedoor.agents.gemini import Decision, FileDiff, Paused, StreamProtocol, ToolDetails, policy_toml
from stagedoor.drivers.gemini import agent as driver
from stagedoor.drivers.gemini.acp_dictionary import GeminiAcpDictionary
from stagedoor.drivers.gemini.corrections import Repeats, error_of, repeated_text
from stagedoor.drivers.gemini.rules import HIGHEST, SECOND, rules, stance_of
from stagedoor.drivers.gemini.stream_dictionary import StreamDictionary
from stagedoor.errors import BadRequest
from stagedoor.replay import translate
from stagedoor.transports.launch import Exited, Stalled
from stagedoor.unified.events import (
    Done,
    Error,
    Event,
    FileChange,
    Init,
    Notice,
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
from stagedoor.unified.options import Options
from stagedoor.wire.jsonl import LineBuffer

TRANSCRIPTS = Path(__file__).parents[2] / "transcripts" / "gemini-0.61.0"
NOT_STREAMS = ("sessionfile", "list", "plain-json", "json-tools", "delete-uuid")
CASES = sorted(path for path in TRANSCRIPTS.glob("*.jsonl") if not any(word in path.name for word in NOT_STREAMS))
SMALL = [path for path in CASES if path.stat().st_size < 20_000]


def logged(path: Path) -> list[tuple[str, bytes]]:
    """The lines of a raw capture or a two-way log, each with who said it."""
    lines = LineBuffer()
    out: list[tuple[str, bytes]] = []
    for line in [*lines.feed(path.read_bytes()), *lines.finish()]:
        assert isinstance(line, bytes)
        both: Any = json.loads(line) if line.startswith(b'{"dir"') else {"dir": "out", "line": line.decode()}
        out.append((both["dir"], both["line"].encode()))
    return out


def is_acp(path: Path) -> bool:
    return path.name.split("-")[1] == "acp"


def natives(path: Path, lines: Iterable[tuple[str, bytes]]) -> Iterator[Any]:
    if not is_acp(path):
        stream = StreamProtocol()
        for _, line in lines:
            yield from stream.receive(line)
        yield from stream.receive_eof()
        return
    protocol = AcpProtocol()
    for side, line in lines:
        if side == "out":
            yield from protocol.receive(line)
        else:
            protocol.decode_command(line)
    yield from protocol.receive_eof()


def translated(dictionary: Any, natives: Iterable[Any]) -> list[Event]:
    return [event for native in natives for event in dictionary.translate(native)]


def dictionary_of(path: Path) -> Any:
    return GeminiAcpDictionary() if is_acp(path) else StreamDictionary()


def replayed(name: str) -> list[Event]:
    [path] = TRANSCRIPTS.glob(f"{name}*.jsonl")
    return translated(dictionary_of(path), natives(path, logged(path)))


def stream(*messages: dict[str, Any] | object, dictionary: StreamDictionary | None = None) -> list[Event]:
    """What a stream-json dictionary makes of these messages; native events may stand among them."""
    protocol, translator = StreamProtocol(), dictionary or StreamDictionary()
    out: list[Event] = []
    for message in messages:
        events = protocol.receive(json.dumps(message).encode()) if isinstance(message, dict) else [message]
        out += translated(translator, events)
    return out


# ------------------------------------------------------------------------------------------------- well-formed


def assert_well_formed(events: list[Event]) -> None:
    assert isinstance(events[0], Init)
    assert [type(event) for event in events].count(Init) == 1
    assert [index for index, event in enumerate(events) if isinstance(event, Done)] == [len(events) - 1]
    uses = Counter(event.tool_use_id for event in events if isinstance(event, ToolUse))
    assert set(uses.values()) <= {1}
    assert uses == Counter(event.tool_use_id for event in events if isinstance(event, ToolResult))
    turns = [event for event in events if isinstance(event, TurnStarted | TurnCompleted)]
    assert [type(event) for event in turns] == [TurnStarted, TurnCompleted] * (len(turns) // 2)
    deltas, kind = "", ""
    for event in events:  # what was streamed is said once more, whole, before anything else happens
        match event:
            case TextDelta() | ThinkingDelta():
                kind, deltas = type(event).__name__.removesuffix("Delta"), deltas + event.text
            case Text() | Thinking():
                assert (type(event).__name__, event.text) == (kind, deltas)
                deltas = ""
            case ToolUse() | TurnCompleted():
                assert deltas == ""
            case _:
                pass


def ordered(path: Path, lines: list[tuple[str, bytes]]) -> list[Event]:
    grammar, out = Grammar(), list[Event]()
    for event in translated(dictionary_of(path), natives(path, lines)):
        out += grammar.accept(event)
    return [*out, *grammar.end("error" if grammar.in_turn else None)]


@pytest.mark.parametrize("path", CASES, ids=lambda path: path.stem)
def test_every_recording_is_well_formed(path: Path) -> None:
    assert_well_formed(ordered(path, logged(path)))


@pytest.mark.parametrize("path", SMALL, ids=lambda path: path.stem)
def test_every_beginning_of_a_recording_is_well_formed(path: Path) -> None:
    lines = logged(path)
    for end in range(len(lines)):
        assert_well_formed(ordered(path, lines[:end]))


# ------------------------------------------------------------------------------------------------- stream-json

SHELL_ID = "run_shell_command__run_shell_command_1794723248310_0"


def test_a_shell_command_whole() -> None:
    usage = Usage(input_tokens=300, output_tokens=25, cached_tokens=30, total_tokens=325)
    assert replayed("04-shell-yolo") == [
        Init(model="auto", native_session_id="ae6ec312-d5be-4d61-b3e1-dab757c9cf90"),
        TextDelta(text="Running it. ", message_id="message-1"),
        Text(text="Running it. ", message_id="message-1"),
        ToolUse(
            tool_use_id=SHELL_ID,
            name="shell",
            native_name="run_shell_command",
            input={"command": "echo out; echo err >&2", "description": "echo test"},
            operation="execute",
            target="echo out; echo err >&2",
            description="echo test",
        ),
        ToolResult(tool_use_id=SHELL_ID, name="shell", status="success", output="out\nerr", duration_ms=550),
        TextDelta(text="All ", message_id="message-2"),
        TextDelta(text="done.", message_id="message-2"),
        Text(text="All done.", message_id="message-2"),
        UsageReport(input_tokens=300, output_tokens=25, cached_tokens=30, total_tokens=325),
        TurnCompleted(status="success", usage=usage, duration_ms=814),
    ]


def test_a_recording_has_its_prompts() -> None:
    [path] = TRANSCRIPTS.glob("92-empty*.jsonl")
    events = list(translate("gemini", driver.AGENT.drivers["stream-json"], path.read_bytes().splitlines()))
    turns = [event for event in events if isinstance(event, TurnStarted | Error | TurnCompleted)]
    assert [(type(event), event.turn) for event in turns] == [(TurnStarted, 1), (Error, 1), (TurnCompleted, 1)]
    assert isinstance(turns[0], TurnStarted)
    assert turns[0].prompt == "[[scenario:empty]] go"


CALL = {"type": "tool_use", "tool_name": "run_shell_command", "tool_id": "s", "parameters": {"command": "exit 3"}}
WRITE = {
    "type": "tool_use",
    "tool_name": "write_file",
    "tool_id": "w",
    "parameters": {"file_path": "a.txt", "content": "one\n"},
}


def result(tool_id: str, **more: Any) -> dict[str, Any]:
    return {"type": "tool_result", "tool_id": tool_id, "status": "success", **more}


def test_details_correct_a_result_and_tell_the_change() -> None:
    diff = FileDiff("ignored", "a.txt", "/repo/a.txt", "", "one\n", None, True)
    events = stream(
        CALL,
        WRITE,
        result("s", output="oops"),
        result("w"),
        ToolDetails("s", "run_shell_command", "success", 3, response={"output": "Output: oops\nExit Code: 3"}),
        ToolDetails("w", "write_file", "success", diff=diff, response={"output": "Wrote it."}),
    )
    assert events[2:] == [
        ToolResult(tool_use_id="s", name="shell", status="error", output="oops", exit_code=3),
        Notice(
            level="info",
            code="failed_command",
            message="the CLI calls it a success, but the command ended with code 3",
        ),
        FileChange(
            path="/repo/a.txt",
            change="created",
            diff="--- /dev/null\n+++ b/repo/a.txt\n@@ -0,0 +1 @@\n+one\n",
            after="one\n",
            tool_use_id="w",
        ),
        ToolResult(tool_use_id="w", name="write_file", status="success", output="Wrote it."),
    ]


def test_without_details_the_next_event_ends_a_call() -> None:
    dictionary = StreamDictionary()
    assert [type(event) for event in stream(WRITE, result("w"), dictionary=dictionary)] == [ToolUse]
    assert stream({"type": "message", "role": "assistant", "content": "x", "delta": True}, dictionary=dictionary) == [
        FileChange(path="a.txt", change="modified", after="one\n", tool_use_id="w"),
        ToolResult(tool_use_id="w", name="write_file", status="success"),
        TextDelta(text="x", message_id="message-1"),
    ]


@pytest.mark.parametrize(
    ("name", "status", "says"),
    [
        ("19-write-outside", "error", "Path not in workspace"),
        ("11-readmissing", "error", "File not found"),
        ("15-badtool", "error", "not found"),
        ("16-badargs", "error", "required property"),
        ("38-mcp-error", "error", "MCP tool 'boom'"),
        ("21-shell-default", "denied", 'Tool "run_shell_command" not found'),
        ("27-shell-plan", "denied", 'Tool "run_shell_command" not found'),
        ("30-shell-allowedtools", "denied", "requires user confirmation"),
        ("31b-shell-allowedtools-prefix", "denied", "denied by policy"),
        ("33-policy-deny-in-yolo", "denied", "no oops allowed"),
    ],
)
def test_failed_and_refused_calls(name: str, status: str, says: str) -> None:
    results = [event for event in replayed(name) if isinstance(event, ToolResult) and event.status != "success"]
    assert [event.status for event in results] == [status]
    assert says in results[0].output


@pytest.mark.parametrize(
    ("name", "kind", "says"),
    [
        ("80-err400", "unknown", "fake bad request (400 INVALID_ARGUMENT)"),
        ("81-err401", "authentication_failed", "fake bad credentials (401 UNAUTHENTICATED)"),
        ("82-badkey", "authentication_failed", "API key not valid"),
        ("84b-invalid-model", "model_not_found", "nope-model-9"),
        ("85d-err429", "rate_limited", "fake rate limit"),
        ("85b-err429day", "quota_exceeded", "daily quota"),
        ("86b-err500", "connection_failed", "fake internal error"),
        ("92-empty", "connection_failed", "without a finish reason"),
        ("93-emptystop", "unknown", "empty response"),
        ("94-thinkonly", "unknown", "thoughts but no final response"),
        ("96-safety", "unknown", "safety settings"),
        ("97-malformed", "protocol_error", "malformed function call"),
        ("98-badjson", "protocol_error", "in JSON at position 1"),
        ("99-loop", "unknown", "Loop detected"),
        ("123-hook-ask-silent", "connection_failed", "without a result"),
        ("107-sigint-group", "connection_failed", "without a result"),
    ],
)
def test_failed_turns_say_why(name: str, kind: str, says: str) -> None:
    events = replayed(name)
    [error] = [event for event in events if isinstance(event, Error)]
    assert (error.kind, error.fatal) == (kind, True)
    assert says in error.message
    assert isinstance(events[-1], TurnCompleted)
    assert events[-1].status == "error"


def test_a_turn_limit_is_no_error() -> None:
    events = replayed("65-max-turns")
    assert not [event for event in events if isinstance(event, Error)]
    assert isinstance(events[-1], TurnCompleted)
    assert (events[-1].status, events[-1].usage.total_tokens) == ("max_turns", 210)


def test_todos_are_a_plan() -> None:
    plans = [event for event in replayed("17b-todos") if isinstance(event, Plan)]
    assert plans == [Plan(items=[PlanItem("first", "in_progress"), PlanItem("second")])]


def answer_piece(text: str, at: str) -> dict[str, Any]:
    return {
        "type": "message",
        "role": "assistant",
        "content": text,
        "delta": True,
        "timestamp": f"2026-11-15T06:00:{at}Z",
    }


def test_an_answer_repeated_by_a_retry_is_told_once() -> None:
    end = {"type": "error", "severity": "error", "message": "Model stream ended without a finish reason."}
    events = stream(
        answer_piece("Hello ", "00.000"),
        answer_piece("there. ", "00.010"),
        answer_piece("Hello ", "01.020"),
        answer_piece("there. ", "01.030"),
        answer_piece("Hello there. And more.", "03.050"),
        end,
        {"type": "result", "status": "error"},
    )
    repeated = Notice(
        level="warning",
        code="text_repeated",
        message="the answer broke off and was requested again; repeated text is left out",
    )
    assert events == [
        TextDelta(text="Hello ", message_id="message-1"),
        TextDelta(text="there. ", message_id="message-1"),
        repeated,
        repeated,
        TextDelta(text="And more.", message_id="message-1"),
        Text(text="Hello there. And more.", message_id="message-1"),
        Error(kind="connection_failed", message="Model stream ended without a finish reason.", fatal=True),
        TurnCompleted(status="error"),
    ]


@pytest.mark.parametrize(
    ("pieces", "expected"),
    [
        ([("Hello there. ", False), ("Hello there. ", False)], "Hello there. Hello there. "),
        ([("Hello there. ", False), ("Hello there. ", True)], "Hello there. "),
        ([("Hello there. ", False), ("Hello ", True), ("world.", False)], "Hello there. Hello world."),
        ([("Hello there. ", False), ("Hello ", True)], "Hello there. Hello "),
        ([("No. ", False), ("No. ", True)], "No. No. "),
    ],
)
def test_nothing_else_is_left_out(pieces: list[tuple[str, bool]], expected: str) -> None:
    repeats = Repeats()
    assert "".join(repeats.feed(text, paused=paused)[0] for text, paused in pieces) + repeats.finish() == expected


def test_how_a_process_can_end() -> None:
    init = {"type": "init", "session_id": "1", "model": "m"}
    protocol = StreamProtocol()
    assert stream(init, Exited(0))[1:] == []
    assert stream(Exited(42, "Error resuming session: nothing"))[0] == Error(
        kind="session_not_found",
        message="session not found: Gemini CLI has no such session for this folder; list_sessions() lists them",
        fatal=True,
    )
    assert [type(event) for event in stream(Exited(41, "no auth"))] == [Error, TurnCompleted]
    assert stream(init, *protocol.receive_eof(), Exited(0))[1:] == [
        Error(kind="connection_failed", message="the output ended without a result event", fatal=True),
        TurnCompleted(status="error"),
    ]
    assert stream(Stalled(30.0)) == [
        Notice(level="warning", code="stalled", message="the agent has been silent for 30 s")
    ]


def test_older_forms_are_understood() -> None:
    events = stream(
        {"type": "content", "value": "Hi."},
        {"type": "tool_call", "name": "read_file", "args": {"file_path": "a"}},
        {"type": "retry", "attempt": 1, "max_attempts": 3, "delay_ms": 5},
        {"type": "error", "error": {"code": "x", "message": "first"}, "status": "y"},
        {"type": "error", "error": {"code": "x", "message": "second"}, "status": "y"},
        {"type": "done", "status": "success", "stats": {"input_tokens": 1, "output_tokens": 2, "thought_tokens": 3}},
        {"type": "news"},
    )
    usage = Usage(input_tokens=1, output_tokens=2, reasoning_tokens=3, total_tokens=6)
    assert events == [
        TextDelta(text="Hi.", message_id="message-1"),
        Text(text="Hi.", message_id="message-1"),
        ToolUse(
            tool_use_id="call-1",
            name="read_file",
            native_name="read_file",
            input={"file_path": "a"},
            operation="read",
            target="a",
        ),
        ToolResult(tool_use_id="call-1", name="read_file", status="success"),
        Retry(attempt=1, max_attempts=3, delay_ms=5),
        Error(kind="unknown", message="first"),
        UsageReport(input_tokens=1, output_tokens=2, reasoning_tokens=3, total_tokens=6),
        Error(kind="unknown", message="second"),
        Notice(level="warning", code="no_answer", message="the model ended its turn without a word"),
        TurnCompleted(status="success", usage=usage),
        Unrecognized(raw='{"type": "news"}', why=events[-1].why if isinstance(events[-1], Unrecognized) else ""),
    ]


# ------------------------------------------------------------------------------------------------- acp


def acp(*updates: dict[str, Any] | object, dictionary: GeminiAcpDictionary | None = None) -> list[Event]:
    protocol, translator = AcpProtocol(), dictionary or GeminiAcpDictionary()
    out: list[Event] = []
    for update in updates:
        if isinstance(update, dict):
            params = {"sessionId": "1", "update": update}
            line = json.dumps({"jsonrpc": "2.0", "method": "session/update", "params": params}).encode()
            out += translated(translator, protocol.receive(line))
        else:
            out += translator.translate(update)
    return out


def chunk(text: str, kind: str = "agent_message_chunk") -> dict[str, Any]:
    return {"sessionUpdate": kind, "content": {"type": "text", "text": text}}


def finished(tool: str, status: str = "completed", **more: Any) -> dict[str, Any]:
    members = {"sessionUpdate": "tool_call_update", "toolCallId": f"{tool}__1", "status": status, "content": []}
    return {**members, **more}


def test_questions_refusals_and_edits_over_acp() -> None:
    events = replayed("71-acp")
    results = [(event.name, event.status) for event in events if isinstance(event, ToolResult)]
    assert results[:6] == [
        ("shell", "success"),
        ("shell", "denied"),
        ("shell", "denied"),
        ("write_file", "success"),
        ("edit_file", "denied"),
        ("edit_file", "success"),
    ]
    [use, *_] = [event for event in events if isinstance(event, ToolUse)]
    assert (use.target, use.description) == ("echo out; echo err >&2", "echo test")
    [change, *_] = [event for event in events if isinstance(event, FileChange)]
    assert change == FileChange(
        path="/repo/hello.txt",
        change="modified",
        diff="--- a/repo/hello.txt\n+++ b/repo/hello.txt\n@@ -1,2 +1,2 @@\n one\n-two\n+three\n",
        before="one\ntwo\n",
        after="one\nthree\n",
        tool_use_id="replace__replace_1794723325613_0",
    )


def asked_over_acp(number: int, command: str) -> bytes:
    """As Gemini CLI 0.61.0 asks."""
    kinds = {"proceed_always": "allow_always", "proceed_once": "allow_once", "cancel": "reject_once"}
    call = {
        "toolCallId": f"run_shell_command__{number}", "status": "pending", "title": command, "content": [],
        "locations": [], "kind": "execute",
    }  # fmt: skip
    choices = [{"optionId": option, "name": option, "kind": kind} for option, kind in kinds.items()]
    params = {"sessionId": "1", "options": choices, "toolCall": call}
    message = {"jsonrpc": "2.0", "id": number, "method": "session/request_permission", "params": params}
    return json.dumps(message).encode()


@pytest.mark.parametrize("allowed", [True, False])
def test_a_question_may_be_open_while_others_go_on_over_acp(allowed: bool) -> None:
    dictionary, protocol = GeminiAcpDictionary(), AcpProtocol()
    dictionary.expect_answers()
    events = translated(dictionary, protocol.receive(asked_over_acp(1, "echo one")))
    reading = {"sessionUpdate": "tool_call", "toolCallId": "read_file__2", "status": "in_progress", "title": "f.txt"}
    others = [
        {**reading, "content": [], "locations": [], "kind": "read"},
        chunk("Hm.", "agent_thought_chunk"),
        finished("read_file", toolCallId="read_file__2"),
    ]
    events += acp(*others, dictionary=dictionary)
    events += translated(dictionary, protocol.receive(asked_over_acp(3, "echo three")))
    assert [event for event in events if isinstance(event, ToolResult) and event.name == "shell"] == []
    if allowed:
        dictionary.allow("run_shell_command__1")
        events += acp(finished("run_shell_command", kind="execute"), chunk("Done."), dictionary=dictionary)
    else:
        dictionary.refuse("run_shell_command__1", "not now")
        events += acp(chunk("Done."), dictionary=dictionary)
    results = {event.tool_use_id: (event.status, event.output) for event in events if isinstance(event, ToolResult)}
    assert results == {
        "read_file__2": ("success", ""),
        "run_shell_command__1": ("success", "") if allowed else ("denied", "not now"),
    }


def test_details_complete_a_call_over_acp() -> None:
    assert acp(
        {
            "sessionUpdate": "tool_call",
            "toolCallId": "run_shell_command__1",
            "status": "in_progress",
            "title": "exit 3",
            "kind": "execute",
            "content": [
                {"type": "content", "content": {"type": "text", "text": "[current working directory /r] (Try)"}}
            ],
        },
        finished("run_shell_command", title="exit 3", kind="execute"),
        ToolDetails("run_shell_command__1", "run_shell_command", "success", 3),
        finished("write_file", "failed", kind="edit", content=[_text('Tool execution for "x" denied by policy.')]),
        ToolDetails("write_file__1", "write_file", "error", args={"file_path": "a", "content": "b"}),
        finished("write_todos", title="Set 1 todo(s)", kind="other"),
        ToolDetails("write_todos__1", "write_todos", "success", args={"todos": [{"description": "a", "status": "x"}]}),
    ) == [
        ToolUse(
            tool_use_id="run_shell_command__1",
            name="shell",
            native_name="run_shell_command",
            input={"command": "exit 3", "description": "Try"},
            operation="execute",
            target="exit 3",
            description="Try",
        ),
        ToolResult(tool_use_id="run_shell_command__1", name="shell", status="error", exit_code=3),
        Notice(
            level="info",
            code="failed_command",
            message="the CLI calls it a success, but the command ended with code 3",
        ),
        ToolUse(
            tool_use_id="write_file__1",
            name="write_file",
            native_name="write_file",
            input={"file_path": "a", "content": "b"},
            operation="write",
            target="a",
        ),
        ToolResult(
            tool_use_id="write_file__1",
            name="write_file",
            status="denied",
            output='Tool execution for "x" denied by policy.',
        ),
        ToolUse(
            tool_use_id="write_todos__1",
            name="plan",
            native_name="write_todos",
            input={"todos": [{"description": "a", "status": "x"}]},
            target="Set 1 todo(s)",
            description="Set 1 todo(s)",
        ),
        Plan(items=[PlanItem("a")]),
        ToolResult(tool_use_id="write_todos__1", name="plan", status="success"),
    ]


def _text(text: str) -> dict[str, Any]:
    return {"type": "content", "content": {"type": "text", "text": text}}


def test_an_exit_code_that_is_only_shown() -> None:
    dictionary = GeminiAcpDictionary()
    update = finished("run_shell_command", kind="execute", content=[_text("Command exited with code: 7")])
    assert [type(event) for event in acp(update, dictionary=dictionary)] == []
    [_, result, notice, _] = acp(chunk("x"), dictionary=dictionary)
    assert isinstance(result, ToolResult)
    assert (result.status, result.exit_code) == ("error", 7)
    assert isinstance(notice, Notice)


def test_thoughts_and_repeated_answers_over_acp() -> None:
    thought = "agent_thought_chunk"
    events = acp(
        chunk("**A**\nOne.", thought),
        chunk("**B**\nTwo.", thought),
        chunk("Hello there. "),
        chunk("**A**\nOne.", thought),
        Paused(1.1),
        chunk("Hello there. "),
        chunk("More."),
        chunk("[MODE_UPDATE] plan"),
    )
    assert [event for event in events if not isinstance(event, Notice)] == [
        ThinkingDelta(text="**A**\nOne."),
        ThinkingDelta(text="\n\n**B**\nTwo."),
        Thinking(text="**A**\nOne.\n\n**B**\nTwo."),
        TextDelta(text="Hello there. ", message_id="message-1"),
        Text(text="Hello there. ", message_id="message-1"),
        ThinkingDelta(text="**A**\nOne."),
        Thinking(text="**A**\nOne."),
        TextDelta(text="More.", message_id="message-2"),
    ]
    assert [event.code for event in events if isinstance(event, Notice)] == ["text_repeated", "mode"]


def test_a_turn_that_ends_with_a_call_is_one_without_an_answer() -> None:
    [*_, notice, completed] = stream(answer_piece("I will.", "00.000"), CALL, result("s"), {"type": "result"})
    assert notice == Notice(level="warning", code="no_answer", message="the model ended its turn without a word")
    assert completed == TurnCompleted(status="success")


def test_a_turn_without_an_answer_is_an_error_over_acp() -> None:
    events = replayed("72-acp")
    failed = [event for event in events if isinstance(event, Error) and event.fatal]
    assert [event.kind for event in failed] == ["session_not_found", "unknown", "authentication_failed", "unknown"]
    assert failed[-1].message.startswith("the model gave no answer")
    assert [event.code for event in events if isinstance(event, Notice)].count("no_answer") == 1


@pytest.mark.parametrize(
    ("pieces", "text"),
    [
        (["Hello ", "there. "] * 3, "Hello there. "),
        (["Hello there. "], None),
        (["Hello ", "there. ", "Hello "], None),
        (["a", "a"], None),
        ([], None),
    ],
)
def test_a_recording_of_several_attempts(pieces: list[str], text: str | None) -> None:
    assert repeated_text(pieces) == text


@pytest.mark.parametrize("message", ["", "[API Error: {]", "[API Error: {}]", '{"error": 3}', "[API Error: x]\nmore"])
def test_odd_complaints_are_kept(message: str) -> None:
    assert error_of(message, fatal=True).message == message


# ------------------------------------------------------------------------------------------------- options


@pytest.mark.parametrize(
    ("options", "stance"),
    [
        (Options(tier="dry-run"), "read"),
        (Options(tier="dry-run", approval="autoAll"), "read"),
        (Options(tier="autonomous", sandbox="readOnly"), "read"),
        (Options(), "edit"),
        (Options(tier="autonomous"), "act"),
        (Options(tier="autonomous", approval="ask"), "ask"),
        (Options(approval="askDangerous"), "ask"),
        (Options(approval="autoEdit"), "edit"),
        (Options(approval="autoAll"), "act"),
    ],
)
def test_stances(options: Options, stance: str) -> None:
    assert stance_of(options) == stance
    for asks in (True, False):
        policy_toml(rules(options, asks=asks))  # none of them is one the CLI would drop


def decided(options: Options, tool: str, *, asks: bool = True, command: str = "") -> Decision | None:
    """What the first rule that fits decides, as the CLI reads them; ``None`` leaves it to the mode."""
    by_priority = sorted(rules(options, asks=asks), key=lambda rule: -rule.priority)
    for rule in by_priority:
        names = (rule.tool_name,) if isinstance(rule.tool_name, str) else rule.tool_name
        if rule.mcp_name is not None and not tool.startswith("mcp_"):
            continue
        if rule.command_prefix is not None and not command.startswith(str(rule.command_prefix)):
            continue
        if tool in names or "*" in names:
            return rule.decision
    return None


ALLOW, DENY, ASK = Decision.ALLOW, Decision.DENY, Decision.ASK_USER


@pytest.mark.parametrize(
    ("options", "asks", "decisions"),
    [
        (
            Options(tier="dry-run"),
            True,
            {"run_shell_command": DENY, "replace": DENY, "mcp_a_b": DENY, "read_file": None},
        ),
        (Options(), True, {"run_shell_command": ASK, "web_fetch": ASK, "mcp_a_b": ASK, "replace": ASK}),
        (Options(), False, {"run_shell_command": DENY, "web_fetch": DENY, "mcp_a_b": DENY, "replace": DENY}),
        (Options(approval="ask"), True, {"write_file": ASK, "write_todos": ALLOW, "read_file": None}),
        (Options(approval="ask"), False, {"write_file": DENY}),
        (Options(tier="autonomous"), True, {"run_shell_command": None, "mcp_a_b": None}),
        (
            Options(tier="autonomous", disallowed_tools=("shell", "mcp")),
            True,
            {"run_shell_command": DENY, "mcp_a_b": DENY, "write_file": None},
        ),
        (
            Options(tier="autonomous", allowed_tools=("read_file", "edit_file", "mcp_a_b")),
            True,
            {
                "read_file": ALLOW,
                "replace": ALLOW,
                "mcp_a_b": ALLOW,
                "mcp_a_c": DENY,
                "run_shell_command": DENY,
                "update_topic": ALLOW,
                "a_tool_of_tomorrow": DENY,
            },
        ),
        (
            Options(tier="dry-run", allowed_tools=("shell", "mcp__a__b")),
            True,
            {"run_shell_command": DENY, "mcp_a_b": DENY, "read_file": DENY},
        ),
    ],
)
def test_rules(options: Options, asks: bool, decisions: dict[str, Decision | None]) -> None:
    assert {tool: decided(options, tool, asks=asks) for tool in decisions} == decisions
    policy_toml(rules(options, asks=asks))


def test_a_list_names_whole_tools_and_grants_nothing() -> None:
    options = Options(allowed_tools=("shell",))
    assert decided(options, "run_shell_command", command="git status -s") is ASK
    assert decided(options, "replace") is DENY
    assert HIGHEST > SECOND
    for name, hint in (("shel", "'shell'"), ("shell(git status)", "policy"), ("nothing_like_it", "its own names")):
        with pytest.raises(BadRequest, match=hint):
            rules(Options(allowed_tools=(name,)), asks=True)


@pytest.mark.parametrize(
    ("env", "settings", "signed_in"),
    [
        ({"GEMINI_API_KEY": "k"}, None, True),
        ({}, None, False),
        ({}, {"security": {"auth": {"selectedType": "gateway"}}}, False),
        ({}, {"security": {"auth": {"selectedType": "oauth-personal"}}}, None),
        ({"GOOGLE_GENAI_USE_VERTEXAI": "true"}, None, None),
        ({"GEMINI_API_KEY": "k"}, {"security": {"auth": {"selectedType": "gemini-api-key"}}}, True),
    ],
)
def test_signed_in(tmp_path: Path, env: dict[str, str], settings: Any, signed_in: bool | None) -> None:
    (tmp_path / ".gemini").mkdir()
    if settings is not None:
        (tmp_path / ".gemini" / "settings.json").write_bytes(msgspec.json.encode(settings))
    answer, problem, fix = driver.sign_in({**env, "GEMINI_CLI_HOME": str(tmp_path)})
    assert answer is signed_in
    assert bool(problem) is bool(fix) is (answer is False)
