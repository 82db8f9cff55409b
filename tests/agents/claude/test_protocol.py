from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stagedoor.agents.claude import commands as c
from stagedoor.agents.claude.blocks import (
    ContentBlockDelta,
    MessageStop,
    TextBlock,
    TextBlockDelta,
    ThinkingBlock,
    ToolResultBlock,
    ToolUseBlock,
    decode_blocks,
)
from stagedoor.agents.claude.events import (
    ApiRetry,
    Assistant,
    CanUseTool,
    ClaudeResult,
    CompactBoundary,
    ControlCancelRequest,
    ControlResponse,
    Event,
    HookCallback,
    ModelFallback,
    PermissionRuleValue,
    PermissionUpdate,
    StreamEvent,
    SystemInit,
    SystemNotice,
    TaskNotification,
    TaskStarted,
    TurnSettled,
    User,
)
from stagedoor.agents.claude.protocol import ClaudeProtocol
from stagedoor.errors import AlreadyAnswered
from stagedoor.wire.shapes import UnknownMessage

NOT_JSON = {b"Hello from the fake model.", b"API Error: 400 messages.0: bad"}
"""Reviewed: two recordings were made in text mode."""


def replay(lines: list[bytes], protocol: ClaudeProtocol | None = None) -> list[Event]:
    protocol = protocol or ClaudeProtocol()
    events = [event for line in lines for event in protocol.receive(line)]
    return [*events, *protocol.receive_eof()]


def written(protocol: ClaudeProtocol) -> list[Any]:
    return [json.loads(message) for message in protocol.outgoing()]


def test_every_recorded_line_is_typed(transcripts: list[tuple[str, list[bytes]]]) -> None:
    assert len(transcripts) > 90
    unknown: list[bytes] = []
    for _, lines in transcripts:
        for event in replay(lines):
            match event:
                case UnknownMessage(raw):
                    unknown.append(raw)
                case Assistant() | User():
                    assert [b for b in event.message.blocks() if isinstance(b, UnknownMessage)] == []
                case _:
                    pass
    assert set(unknown) == NOT_JSON


def test_every_prefix_of_every_recording_ends_settled(transcripts: list[tuple[str, list[bytes]]]) -> None:
    for name, lines in transcripts:
        for length in range(len(lines) + 1):
            protocol = ClaudeProtocol()
            events = replay(lines[:length], protocol)
            assert not protocol.turn.running, (name, length)
            of_turns = [event for event in events if isinstance(event, (SystemInit, ClaudeResult, TurnSettled))]
            assert not of_turns or isinstance(of_turns[-1], TurnSettled), (name, length)


def test_a_plain_turn(lines) -> None:
    init, answer, result, end = replay(lines("01-"))
    assert isinstance(init, SystemInit)
    assert (init.model, init.cwd, init.permission_mode) == ("claude-opus-4-8[1m]", "/repo", "default")
    assert isinstance(answer, Assistant)
    assert answer.message.blocks() == [TextBlock("Hello from the fake model.")]
    assert isinstance(result, ClaudeResult)
    assert (result.subtype, result.failed, result.result) == ("success", False, "Hello from the fake model.")
    assert end == TurnSettled(result=result)


def test_partial_messages(lines) -> None:
    steps = [e.event for e in replay(lines("07-")) if isinstance(e, StreamEvent)]
    pieces = [step.delta for step in steps if isinstance(step, ContentBlockDelta)]
    assert TextBlockDelta in {type(piece) for piece in pieces}
    assert steps[-1] == MessageStop()


@pytest.mark.parametrize(
    ("recording", "kinds"),
    [
        ("08-", {ThinkingBlock, TextBlock}),
        ("09-", {TextBlock, ToolUseBlock, ToolResultBlock}),
        ("130-", {TextBlock, ToolUseBlock, ToolResultBlock}),
        ("176-", {TextBlock}),
    ],
)
def test_blocks(lines, recording: str, kinds: set[type]) -> None:
    messages = [e.message for e in replay(lines(recording)) if isinstance(e, (Assistant, User))]
    assert {type(block) for message in messages for block in message.blocks()} == kinds


@pytest.mark.parametrize(
    ("recording", "subtype", "failed", "interrupted", "terminal_reason", "status"),
    [
        ("70-", "error_max_turns", True, False, "max_turns", None),
        ("73-", "success", True, False, "completed", 401),
        ("77-", "success", True, False, "prompt_too_long", 400),
        ("60-", "error_during_execution", True, True, "aborted_streaming", None),
        ("62-", "error_during_execution", True, True, "aborted_tools", None),
        ("92-", "error_max_structured_output_retries", True, False, None, None),
        ("116-", "error_during_execution", True, False, None, None),
        ("150-", "success", True, False, "completed", None),
        ("02-", "success", False, False, "completed", None),
    ],
)
def test_how_turns_end(lines, recording, subtype, failed, interrupted, terminal_reason, status) -> None:
    (result,) = [event for event in replay(lines(recording)) if isinstance(event, ClaudeResult)]
    ending = (result.subtype, result.failed, result.interrupted, result.terminal_reason, result.api_error_status)
    assert ending == (subtype, failed, interrupted, terminal_reason, status)


def test_notices(lines) -> None:
    assert [e.attempt for e in replay(lines("79-")) if isinstance(e, ApiRetry)] == [1, 2]
    assert any(isinstance(e, ModelFallback) for e in replay(lines("193-")))
    assert any(isinstance(e, CompactBoundary) for e in replay(lines("177-")))
    notice = b'{"type":"system","subtype":"notification","key":"k","text":"hello","priority":"low"}'
    (event,) = ClaudeProtocol().receive(notice)
    assert isinstance(event, SystemNotice)
    assert event.words() == "hello"


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (b'{"type":"init","session_id":"s","model":"m"}', SystemInit(session_id="s", model="m")),
        (
            b'{"type":"result","session_id":"s","subtype":"cancelled","cost_usd":0.5,"duration_ms":3}',
            ClaudeResult(session_id="s", subtype="cancelled", cost_usd=0.5, duration_ms=3),
        ),
    ],
)
def test_older_shapes(line: bytes, expected: Event) -> None:
    assert ClaudeProtocol().receive(line)[0] == expected


def test_older_result_subtypes_are_failures() -> None:
    assert [ClaudeResult(subtype=s).failed for s in ("success", "error", "cancelled")] == [False, True, True]


# ------------------------------------------------------------------------------------------------ when a turn is over


def lines_of(*entries: dict[str, Any]) -> list[bytes]:
    return [msgspec.json.encode(entry) for entry in entries]


INIT = {"type": "system", "subtype": "init", "session_id": "s"}
RESULT = {"type": "result", "subtype": "success", "result": "r"}
RUNNING = {"type": "system", "subtype": "session_state_changed", "state": "running"}
ASKING = {"type": "system", "subtype": "session_state_changed", "state": "requires_action"}
IDLE = {"type": "system", "subtype": "session_state_changed", "state": "idle"}
STARTED = {"type": "system", "subtype": "task_started", "task_id": "t1"}
UPDATED = {
    "type": "system",
    "subtype": "task_updated",
    "task_id": "t1",
    "patch": {"status": "completed", "end_time": 1},
}
REQUESTING = {"type": "system", "subtype": "status", "status": "requesting"}
NOTIFIED = {"type": "system", "subtype": "task_notification", "task_id": "t1", "status": "completed"}


@pytest.mark.parametrize(
    ("entries", "settled_after"),
    [
        ([INIT, RESULT], [1]),
        ([INIT, RESULT, INIT, RESULT], [1, 3]),
        ([INIT, STARTED, RESULT, UPDATED, NOTIFIED, INIT, RESULT], [6]),
        ([INIT, STARTED, NOTIFIED, RESULT], [3]),
        ([RUNNING, INIT, RESULT, IDLE], [3]),
        ([RUNNING, INIT, RESULT, INIT, RESULT, IDLE], [5]),
        ([RUNNING, INIT, ASKING, RUNNING, RESULT, IDLE], [5]),
        ([RUNNING, INIT, STARTED, RESULT, IDLE, UPDATED, RUNNING, NOTIFIED, INIT, RESULT, IDLE], [10]),
        ([RUNNING, INIT, STARTED, RESULT, IDLE, UPDATED, NOTIFIED, IDLE], [7]),
        ([RUNNING, INIT, STARTED, RESULT, IDLE, IDLE], []),
        ([RUNNING, INIT, STARTED, UPDATED, REQUESTING, RESULT, IDLE], [6]),  # the model was told with its next request
        ([RUNNING, INIT, STARTED, REQUESTING, UPDATED, RESULT, IDLE, NOTIFIED, REQUESTING, RESULT, IDLE], [10]),
        ([IDLE], []),
    ],
)
def test_when_a_turn_is_over(entries: list[dict[str, Any]], settled_after: list[int]) -> None:
    protocol = ClaudeProtocol()
    ends = [
        at
        for at, line in enumerate(lines_of(*entries))
        if any(isinstance(event, TurnSettled) for event in protocol.receive(line))
    ]
    assert ends == settled_after


def test_a_background_task_keeps_the_recorded_turn_open(lines) -> None:
    events = replay(lines("170-"))
    assert [type(e) for e in events if isinstance(e, (TaskStarted, ClaudeResult, TaskNotification, TurnSettled))] == [
        TaskStarted,
        ClaudeResult,
        TaskNotification,
        ClaudeResult,
        TurnSettled,
    ]
    assert isinstance(events[-1], TurnSettled)
    assert events[-1].result is not None
    assert events[-1].result.origin is not None


def test_the_end_of_the_stream_settles_what_ran() -> None:
    protocol = ClaudeProtocol()
    for line in lines_of(INIT, STARTED):
        protocol.receive(line)
    assert protocol.turn.running
    assert protocol.receive_eof() == [TurnSettled(unfinished=("t1",))]
    assert ClaudeProtocol().receive_eof() == []


# ------------------------------------------------------------------------------------------------------- questions

QUESTION = {
    "type": "control_request",
    "request_id": "q1",
    "request": {
        "subtype": "can_use_tool",
        "tool_name": "Bash",
        "input": {"command": "ls"},
        "tool_use_id": "toolu_1",
        "permission_suggestions": [
            {
                "type": "addRules",
                "rules": [{"toolName": "Bash", "ruleContent": "ls"}],
                "behavior": "allow",
                "destination": "localSettings",
            },
            {"no type": 1},
        ],
    },
}


@pytest.mark.parametrize(
    ("decision", "body"),
    [
        (c.PermissionResultAllow(), {"behavior": "allow", "updatedInput": {"command": "ls"}}),
        (c.PermissionResultAllow({"command": "pwd"}), {"behavior": "allow", "updatedInput": {"command": "pwd"}}),
        (
            c.PermissionResultAllow(
                updated_permissions=[
                    PermissionUpdate("addRules", "session", "allow", (PermissionRuleValue("Bash", "ls:*"),))
                ]
            ),
            {
                "behavior": "allow",
                "updatedInput": {"command": "ls"},
                "updatedPermissions": [
                    {
                        "type": "addRules",
                        "destination": "session",
                        "behavior": "allow",
                        "rules": [{"toolName": "Bash", "ruleContent": "ls:*"}],
                    }
                ],
            },
        ),
        (c.PermissionResultDeny("no"), {"behavior": "deny", "message": "no"}),
        (c.PermissionResultDeny("no", interrupt=True), {"behavior": "deny", "message": "no", "interrupt": True}),
        (c.PermissionResultDeny(""), {"behavior": "deny", "message": "The user refused this call."}),
    ],
)
def test_answers_to_a_permission_question(decision: c.Decision, body: dict[str, Any]) -> None:
    protocol = ClaudeProtocol()
    (question,) = protocol.receive(msgspec.json.encode(QUESTION))
    assert isinstance(question, CanUseTool)
    assert question.suggestions() == [
        PermissionUpdate("addRules", "localSettings", "allow", (PermissionRuleValue("Bash", "ls"),)),
    ]
    assert protocol.open_questions == {"q1": question}
    protocol.send(c.AnswerCanUseTool("q1", decision))
    (answer,) = written(protocol)
    assert answer == {
        "type": "control_response",
        "response": {"subtype": "success", "request_id": "q1", "response": body},
    }
    assert protocol.open_questions == {}
    with pytest.raises(AlreadyAnswered, match="q1"):
        protocol.send(c.AnswerCanUseTool("q1", decision))


def test_recorded_questions_and_cancels(lines) -> None:
    protocol = ClaudeProtocol()
    events = [event for line in lines("194-") for event in protocol.receive(line)]
    assert any(isinstance(event, HookCallback) for event in events)
    (cancel,) = [event for event in events if isinstance(event, ControlCancelRequest)]
    assert cancel.request_id not in protocol.open_questions
    with pytest.raises(AlreadyAnswered):
        protocol.send(c.AnswerHook(cancel.request_id))


def test_the_end_voids_open_questions() -> None:
    protocol = ClaudeProtocol()
    protocol.receive(msgspec.json.encode(QUESTION))
    assert protocol.receive_eof() == [ControlCancelRequest("q1")]
    with pytest.raises(AlreadyAnswered):
        protocol.send(c.AnswerCanUseTool("q1", c.PermissionResultAllow()))


def test_an_unknown_question_is_refused_at_once() -> None:
    protocol = ClaudeProtocol()
    line = b'{"type":"control_request","request_id":"q9","request":{"subtype":"sing"}}'
    assert protocol.receive(line) == [UnknownMessage(line, "unknown subtype 'sing'")]
    (answer,) = written(protocol)
    assert answer["response"]["subtype"] == "error"
    assert answer["response"]["request_id"] == "q9"


@pytest.mark.parametrize(
    ("reply", "response"),
    [
        (c.AnswerHook("h"), {}),
        (c.AnswerHook("h", {"continue": False}), {"continue": False}),
        (c.AnswerMcp("h", {"id": 1, "result": {}}), {"mcp_response": {"id": 1, "result": {}}}),
        (c.AnswerMcp("h", None), {"mcp_response": {"jsonrpc": "2.0", "id": 0, "result": {}}}),
        (c.AnswerControlRequest("h", {"action": "decline"}), {"action": "decline"}),
    ],
)
def test_answers_to_other_questions(reply: c.Reply, response: dict[str, Any]) -> None:
    protocol = ClaudeProtocol()
    ask = {"type": "control_request", "request_id": "h", "request": {"subtype": "hook_callback", "callback_id": "x"}}
    protocol.receive(msgspec.json.encode(ask))
    protocol.send(reply)
    assert written(protocol)[0]["response"] == {"subtype": "success", "request_id": "h", "response": response}


# -------------------------------------------------------------------------------------------------------- commands


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        (c.ClaudePrompt("hi"), {"type": "user", "message": {"role": "user", "content": "hi"}}),
        (
            c.ClaudePrompt([{"type": "text", "text": "look"}, c.image("QUJD")], uuid="u1"),
            {
                "type": "user",
                "message": {
                    "role": "user",
                    "content": [
                        {"type": "text", "text": "look"},
                        {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "QUJD"}},
                    ],
                },
                "uuid": "u1",
            },
        ),
        (c.ClaudePrompt("half \ud83d"), {"type": "user", "message": {"role": "user", "content": "half \ud83d"}}),
    ],
)
def test_prompts(command: c.ClaudePrompt, expected: dict[str, Any]) -> None:
    protocol = ClaudeProtocol()
    protocol.send(command)
    assert protocol.turn.running
    assert written(protocol) == [expected]
    assert protocol.outgoing() == []


@pytest.mark.parametrize(
    ("command", "request_member"),
    [
        (c.ClaudeInterrupt(), {"subtype": "interrupt"}),
        (c.ClaudeInitialize(), {"subtype": "initialize"}),
        (
            c.ClaudeInitialize(hooks={"Stop": [{"hookCallbackIds": ["x"]}]}, sdk_mcp_servers=["desk"]),
            {"subtype": "initialize", "hooks": {"Stop": [{"hookCallbackIds": ["x"]}]}, "sdkMcpServers": ["desk"]},
        ),
        (c.SetPermissionMode("plan"), {"subtype": "set_permission_mode", "mode": "plan"}),
        (c.ClaudeSetModel("haiku"), {"subtype": "set_model", "model": "haiku"}),
        (c.ClaudeSetModel(), {"subtype": "set_model"}),
        (c.SetMaxThinkingTokens(9), {"subtype": "set_max_thinking_tokens", "max_thinking_tokens": 9}),
        (c.McpStatus(), {"subtype": "mcp_status"}),
        (c.McpReconnect("s"), {"subtype": "mcp_reconnect", "serverName": "s"}),
        (c.McpToggle("s", False), {"subtype": "mcp_toggle", "serverName": "s", "enabled": False}),
        (c.McpSetServers({"s": {"command": "x"}}), {"subtype": "mcp_set_servers", "servers": {"s": {"command": "x"}}}),
        (c.McpCall("t", {"a": 1}), {"subtype": "mcp_call", "tool": "t", "arguments": {"a": 1}}),
        (c.GetContextUsage(), {"subtype": "get_context_usage"}),
        (c.GetSettings(), {"subtype": "get_settings"}),
        (c.GetSessionCost(), {"subtype": "get_session_cost"}),
        (c.GetBinaryVersion(), {"subtype": "get_binary_version"}),
        (c.GetUsage(), {"subtype": "get_usage"}),
        (c.RenameSession("t"), {"subtype": "rename_session", "title": "t"}),
        (c.StopTask("t1"), {"subtype": "stop_task", "task_id": "t1"}),
        (c.BackgroundTasks(), {"subtype": "background_tasks"}),
        (c.RewindFiles("m"), {"subtype": "rewind_files", "user_message_id": "m"}),
        (c.CancelAsyncMessage("m"), {"subtype": "cancel_async_message", "message_uuid": "m"}),
        (c.OtherControlRequest("read_file", {"path": "p"}), {"subtype": "read_file", "path": "p"}),
    ],
)
def test_requests(command: c.Request | c.ClaudeInterrupt, request_member: dict[str, Any]) -> None:
    protocol = ClaudeProtocol()
    request_id = protocol.request(command)
    assert protocol.awaited == {request_id: command}
    assert written(protocol) == [{"type": "control_request", "request_id": request_id, "request": request_member}]
    answer = {"type": "control_response", "response": {"subtype": "error", "request_id": request_id, "error": "no"}}
    (event,) = protocol.receive(msgspec.json.encode(answer))
    assert isinstance(event, ControlResponse)
    assert (event.ok, event.request_id, event.response.error) == (False, request_id, "no")
    assert protocol.awaited == {}


def test_an_interrupt_stops_the_background_tasks_too() -> None:
    protocol = ClaudeProtocol()
    for line in lines_of(RUNNING, INIT, STARTED):
        protocol.receive(line)
    protocol.send(c.ClaudeInterrupt())
    assert [message["request"] for message in written(protocol)] == [
        {"subtype": "stop_task", "task_id": "t1"},
        {"subtype": "interrupt"},
    ]


# ------------------------------------------------------------------------------------------------------ bad input


@pytest.mark.parametrize(
    "line",
    [
        b"not json",
        b"[1,2]",
        b"null",
        b'{"type":"from the future"}',
        b'{"type":"system","subtype":"from the future"}',
        b'{"type":"assistant"}',
        b'{"type":"assistant","message":7}',
        b'{"type":"control_request","request_id":"x"}',
        b'{"type":"stream_event"',
    ],
)
def test_surprising_lines_are_kept(line: bytes) -> None:
    (event,) = ClaudeProtocol().receive(line)
    assert isinstance(event, UnknownMessage)
    assert event.raw == line


def test_one_strange_block_does_not_hide_its_neighbours() -> None:
    line = b'{"type":"assistant","message":{"content":[{"type":"text","text":"a"},{"type":"hologram"}]}}'
    (event,) = ClaudeProtocol().receive(line)
    assert isinstance(event, Assistant)
    text, other = event.message.blocks()
    assert text == TextBlock("a")
    assert isinstance(other, UnknownMessage)
    assert decode_blocks(None) == []


def test_half_an_emoji_is_repaired() -> None:
    line = b'{"type":"assistant","message":{"content":[{"type":"text","text":"\\ud83d!"}]}}'
    (event,) = ClaudeProtocol().receive(line)
    assert isinstance(event, Assistant)
    assert event.message.blocks() == [TextBlock("\N{REPLACEMENT CHARACTER}!")]


@given(st.binary())
def test_no_line_raises(line: bytes) -> None:
    protocol = ClaudeProtocol()
    for prefix in (b"", b'{"type":"user",', b'{"type":"control_request","request":'):
        protocol.receive(prefix + line)
    protocol.receive_eof()
