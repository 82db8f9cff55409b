"""The app-server's conversation, without a server."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from stagedoor.agents.codex.commands import (
    Accept,
    AcceptForSession,
    AcceptWithExecpolicyAmendment,
    AnswerQuestion,
    Answers,
    ApplyNetworkPolicyAmendment,
    CallMethod,
    CancelTurn,
    CleanBackgroundTerminals,
    CurrentTime,
    Decision,
    Decline,
    ForkThread,
    InterruptTurn,
    ResumeThread,
    ServerCall,
    StartThread,
    StartTurn,
    Steer,
    ToolOutput,
    UnsubscribeThread,
)
from stagedoor.agents.codex.events import CodexUsage
from stagedoor.agents.codex.notifications import (
    AppEvent,
    ErrorNotification,
    ItemStartedNotification,
    ServerRequestResolvedNotification,
    TurnCompletedNotification,
)
from stagedoor.agents.codex.protocol import AppServerProtocol
from stagedoor.agents.codex.questions import (
    ApplyPatchApproval,
    CommandExecutionRequestApproval,
    CurrentTimeRead,
    DynamicToolCall,
    ExecCommandApproval,
    FileChangeRequestApproval,
    McpServerElicitationRequest,
    PermissionsRequestApproval,
    Question,
    ToolRequestUserInput,
    result,
)
from stagedoor.agents.codex.threads import (
    CallRefusal,
    CallReply,
    FileUpdateChange,
    PatchChangeKind,
    ThreadResponse,
    TurnErrorDetails,
    TurnStartResponse,
    UserMessageThreadItem,
)
from stagedoor.errors import AlreadyAnswered, LocalProtocolError
from stagedoor.wire.shapes import UnknownMessage

TRANSCRIPTS = Path(__file__).parents[2] / "transcripts" / "codex-0.166.0"
APP = [path for path in sorted(TRANSCRIPTS.glob("*.jsonl")) if path.read_bytes().startswith(b'{"dir"')]
GREETING = {"id": 0, "result": {"userAgent": "stagedoor/0.166.0", "codexHome": "/h"}}


def line(message: dict[str, Any]) -> bytes:
    return json.dumps(message).encode()


def events_of(protocol: AppServerProtocol, *messages: dict[str, Any]) -> list[AppEvent]:
    return [event for message in messages for event in protocol.receive(line(message))]


def wants(protocol: AppServerProtocol) -> list[dict[str, Any]]:
    return [json.loads(message) for message in protocol.outgoing()]


def ready() -> AppServerProtocol:
    protocol = AppServerProtocol(name="test", version="1")
    events_of(protocol, GREETING)
    protocol.outgoing()
    return protocol


def note(method: str, **params: Any) -> dict[str, Any]:
    return {"method": method, "params": params}


def replay(name: str) -> tuple[AppServerProtocol, list[AppEvent]]:
    protocol, events = AppServerProtocol(), list[AppEvent]()
    for entry in map(json.loads, (TRANSCRIPTS / name).read_bytes().splitlines()):
        if entry["dir"] == "in":
            protocol.decode_command(entry["line"].encode())
        else:
            events += protocol.receive(entry["line"].encode())
    return protocol, events


@pytest.mark.parametrize("path", APP, ids=lambda path: path.stem)
def test_every_recorded_line_has_a_type(path: Path) -> None:
    _, events = replay(path.name)
    assert [e for e in events if UnknownMessage in (type(e), type(getattr(e, "item", None)))] == []


def test_the_handshake_comes_before_everything() -> None:
    protocol = AppServerProtocol(name="test", version="1")
    assert protocol.call(StartThread({"cwd": "/repo"})) == 1
    greeting = {
        "clientInfo": {"name": "test", "title": "test", "version": "1"},
        "capabilities": {"experimentalApi": True},
    }
    assert wants(protocol) == [{"id": 0, "method": "initialize", "params": greeting}]
    assert wants(protocol) == []
    events_of(protocol, GREETING)
    assert wants(protocol) == [
        {"method": "initialized"},
        {"id": 1, "method": "thread/start", "params": {"cwd": "/repo"}},
    ]


@pytest.mark.parametrize(
    ("command", "method", "params"),
    [
        (StartThread({"model": "m"}), "thread/start", {"model": "m"}),
        (ResumeThread("t", {"cwd": "/"}), "thread/resume", {"threadId": "t", "cwd": "/"}),
        (ForkThread("t"), "thread/fork", {"threadId": "t"}),
        (ForkThread("t", {"cwd": "/"}, "u"), "thread/fork", {"threadId": "t", "lastTurnId": "u", "cwd": "/"}),
        (
            StartTurn("t", "hi", ("/a.png",), {"effort": "low"}),
            "turn/start",
            {
                "threadId": "t",
                "input": [{"type": "text", "text": "hi"}, {"type": "localImage", "path": "/a.png"}],
                "effort": "low",
            },
        ),
        (CleanBackgroundTerminals("t"), "thread/backgroundTerminals/clean", {"threadId": "t"}),
        (UnsubscribeThread("t"), "thread/unsubscribe", {"threadId": "t"}),
        (CallMethod("model/list", {"limit": 1}), "model/list", {"limit": 1}),
    ],
)
def test_requests(command: ServerCall, method: str, params: dict[str, Any]) -> None:
    protocol = ready()
    protocol.send(command)
    assert wants(protocol) == [{"id": 1, "method": method, "params": params}]


def test_steering_names_the_running_turn() -> None:
    protocol = ready()
    with pytest.raises(LocalProtocolError, match="no running turn"):
        protocol.send(Steer("t", "left"))
    events_of(protocol, note("turn/started", threadId="t", turn={"id": "u"}))
    protocol.send(Steer("t", "left"))
    params = {"threadId": "t", "expectedTurnId": "u", "input": [{"type": "text", "text": "left"}]}
    assert wants(protocol) == [{"id": 1, "method": "turn/steer", "params": params}]


def test_replies_are_typed_and_addressed() -> None:
    protocol = ready()
    protocol.call(StartTurn("t", "hi"))
    protocol.call(CallMethod("no/such"))
    (started,) = events_of(protocol, {"id": 1, "result": {"turn": {"id": "u", "status": "inProgress"}}})
    assert isinstance(started, CallReply)
    assert isinstance(started.result, TurnStartResponse)
    assert (started.method, started.thread_id, started.result.turn.id) == ("turn/start", "t", "u")
    refusal = {"id": 2, "error": {"code": -32600, "message": "Invalid request"}}
    assert events_of(protocol, refusal) == [CallRefusal(2, "no/such", -32600, "Invalid request")]


def test_an_interrupt_cleans_up_after_the_turn_and_its_sub_agents() -> None:
    protocol = ready()
    spawned = {"type": "collabAgentToolCall", "id": "i", "senderThreadId": "t", "receiverThreadIds": ["child"]}
    events_of(
        protocol,
        note("turn/started", threadId="t", turn={"id": "u"}),
        note("item/completed", threadId="t", turnId="u", item=spawned),
        note("turn/started", threadId="child", turn={"id": "v", "rootTurnId": "u"}),
    )
    assert protocol.busy("t")
    protocol.send(InterruptTurn("t"))
    assert [(m["method"], m["params"]) for m in wants(protocol)] == [
        ("turn/interrupt", {"threadId": "t", "turnId": "u"}),
        ("turn/interrupt", {"threadId": "child", "turnId": "v"}),
    ]
    events_of(protocol, {"id": 1, "result": {}}, note("turn/completed", threadId="t", turn={"id": "u"}))
    assert [(m["id"], m["method"], m["params"]) for m in wants(protocol)] == [
        (3, "thread/backgroundTerminals/clean", {"threadId": "t"})
    ]
    events_of(protocol, {"id": 3, "result": {}}, {"id": 2, "error": {"code": -32600, "message": "gone"}})
    assert protocol.busy("t")
    events_of(protocol, note("turn/completed", threadId="child", turn={"id": "v"}))
    assert [m["method"] for m in wants(protocol)] == ["thread/backgroundTerminals/clean"]
    events_of(protocol, {"id": 4, "result": {}})
    assert not protocol.busy("t")


def test_an_interrupt_waits_for_the_turns_id() -> None:
    protocol = ready()
    protocol.call(StartTurn("t", "hi"))
    protocol.outgoing()
    protocol.send(InterruptTurn("t"))
    assert wants(protocol) == []
    events_of(
        protocol, {"id": 1, "result": {"turn": {"id": "u"}}}, note("turn/started", threadId="t", turn={"id": "u"})
    )
    assert [(m["method"], m["params"]) for m in wants(protocol)] == [
        ("turn/interrupt", {"threadId": "t", "turnId": "u"})
    ]


def test_an_interrupt_with_no_turn_still_cleans_up() -> None:
    protocol = ready()
    protocol.send(InterruptTurn("t"))
    assert [m["method"] for m in wants(protocol)] == ["thread/backgroundTerminals/clean"]


def test_an_interrupt_that_came_too_late_still_cleans_up() -> None:
    protocol = ready()
    events_of(protocol, note("turn/started", threadId="t", turn={"id": "u"}))
    protocol.send(InterruptTurn("t"))
    events_of(protocol, note("turn/completed", threadId="t", turn={"id": "u"}))
    refused = {"id": 1, "error": {"code": -32600, "message": "no active turn"}}
    events_of(protocol, refused)
    assert [m["method"] for m in wants(protocol)] == ["turn/interrupt", "thread/backgroundTerminals/clean"]


def question_line(request_id: int | str = 0) -> dict[str, Any]:
    params = {"threadId": "t", "turnId": "u", "itemId": "i", "command": "ls"}
    return {"method": "item/commandExecution/requestApproval", "id": request_id, "params": params}


def test_a_question_is_answered_once() -> None:
    protocol = ready()
    (question,) = events_of(protocol, question_line("q"))
    assert question == CommandExecutionRequestApproval(
        request_id="q", thread_id="t", native_turn_id="u", item_id="i", command="ls"
    )
    protocol.send(AnswerQuestion("q", Decline()))
    assert wants(protocol) == [{"id": "q", "result": {"decision": "decline"}}]
    with pytest.raises(AlreadyAnswered):
        protocol.send(AnswerQuestion("q", Accept()))
    assert wants(protocol) == []


def test_a_misfit_leaves_the_question_open() -> None:
    protocol = ready()
    events_of(protocol, question_line())
    with pytest.raises(LocalProtocolError, match="Answers does not answer a CommandExecutionRequestApproval"):
        protocol.send(AnswerQuestion(0, Answers({})))
    protocol.send(AnswerQuestion(0, CancelTurn()))
    assert wants(protocol) == [{"id": 0, "result": {"decision": "cancel"}}]


@pytest.mark.parametrize(
    "closing",
    [
        note("serverRequest/resolved", threadId="t", requestId=0),
        note("turn/completed", threadId="t", turn={"id": "u", "status": "interrupted"}),
    ],
)
def test_questions_close_with_their_turn(closing: dict[str, Any]) -> None:
    protocol = ready()
    events_of(protocol, question_line(), closing)
    assert protocol.open_questions == {}
    with pytest.raises(AlreadyAnswered):
        protocol.send(AnswerQuestion(0, Accept()))


@pytest.mark.parametrize(
    ("request_", "code"),
    [
        ({"method": "mind/read", "id": 7, "params": {}}, -32601),
        ({"method": "item/fileChange/requestApproval", "id": 7, "params": {"turnId": "u"}}, -32602),
    ],
)
def test_what_nobody_can_answer_is_refused(request_: dict[str, Any], code: int) -> None:
    protocol = ready()
    (event,) = events_of(protocol, request_)
    assert isinstance(event, UnknownMessage)
    (answer,) = wants(protocol)
    assert (answer["id"], answer["error"]["code"]) == (7, code)
    assert protocol.open_questions == {}


def test_a_file_question_gets_the_diff_of_its_item() -> None:
    _, events = replay("85-app-file-accept.jsonl")
    (question,) = [event for event in events if isinstance(event, FileChangeRequestApproval)]
    assert question.changes == [
        FileUpdateChange("/home/user/outside/f-accept.txt", PatchChangeKind("add"), "line one\nline two\n")
    ]


def test_an_mcp_question_gets_the_call_it_is_about() -> None:
    _, events = replay("94-app-mcp-accept.jsonl")
    (question,) = [event for event in events if isinstance(event, McpServerElicitationRequest)]
    assert question.call is not None
    assert (question.is_tool_approval, question.tool_params, question.call.tool) == (True, {"a": 2, "b": 3}, "add")
    assert question.item_id == question.call.id


def test_usage_is_per_turn_for_threads_resumed_threads_forks_and_sub_agents() -> None:
    def turns(name: str) -> list[tuple[str, int | None]]:
        _, events = replay(name)
        done = [event for event in events if isinstance(event, TurnCompletedNotification)]
        return [(e.turn.status, e.turn_usage.total_tokens if e.turn_usage else None) for e in done]

    assert turns("101-app-resume.jsonl") == [("completed", 7247)]
    assert turns("100-app-threads.jsonl") == [("completed", 13985), ("completed", 7163), ("completed", 12241)]
    assert turns("107-app-subagent-v1.jsonl") == [("completed", 6352), ("completed", 26223)]
    assert turns("103-app-errors.jsonl")[:2] == [("failed", 0), ("failed", 0)]


def test_sub_agents_belong_to_their_parent() -> None:
    protocol, events = replay("107-app-subagent-v1.jsonl")
    parent, child = "01a1dde5-d511-78b3-8b70-53487d1265db", "01a1dde5-d743-7183-805b-37e0176350c0"
    assert protocol.thread_states.family(parent) == [parent, child]
    assert protocol.thread_states.root(child) == parent
    texts = [e for e in events if isinstance(e, ItemStartedNotification) and isinstance(e.item, UserMessageThreadItem)]
    assert [(e.thread_id, e.item.text) for e in texts if isinstance(e.item, UserMessageThreadItem)] == [
        (parent, "[[scenario:spawn]] hi"),
        (child, "[[scenario:text|I am the child.]] do it"),
    ]


def test_failures_keep_their_kind() -> None:
    _, events = replay("103-app-errors.jsonl")
    final = [event.error for event in events if isinstance(event, ErrorNotification) and not event.will_retry]
    assert [(error.kind, error.http_status) for error in final] == [
        ("other", None),
        ("modelNotFound", None),
        ("contextWindowExceeded", None),
        ("usageLimitExceeded", None),
        ("httpConnectionFailed", 401),
    ]
    assert TurnErrorDetails("x").kind == ""


def test_a_recording_needs_no_calls_of_our_own() -> None:
    protocol = AppServerProtocol()
    thread = {"id": 9, "result": {"thread": {"id": "t"}, "model": "m"}}
    (reply,) = events_of(protocol, thread)
    assert isinstance(reply, CallReply)
    assert isinstance(reply.result, ThreadResponse)
    assert reply.method == ""
    (resolved,) = events_of(protocol, note("serverRequest/resolved", threadId="t", requestId=3))
    assert resolved == ServerRequestResolvedNotification("t", 3)


COMMAND = CommandExecutionRequestApproval(request_id=0, thread_id="t")
FILES = FileChangeRequestApproval(request_id=0, thread_id="t")
PERMISSIONS = PermissionsRequestApproval(request_id=0, thread_id="t", permissions={"network": {"enabled": True}})
FORM = McpServerElicitationRequest(request_id=0, thread_id="t")
INPUT = ToolRequestUserInput(request_id=0, thread_id="t")
TOOL = DynamicToolCall(request_id=0, thread_id="t")


@pytest.mark.parametrize(
    ("question", "decision", "expected"),
    [
        (COMMAND, Accept(), {"decision": "accept"}),
        (COMMAND, AcceptForSession(), {"decision": "acceptForSession"}),
        (COMMAND, Decline(), {"decision": "decline"}),
        (COMMAND, CancelTurn(), {"decision": "cancel"}),
        (
            COMMAND,
            AcceptWithExecpolicyAmendment(("git", "status")),
            {"decision": {"acceptWithExecpolicyAmendment": {"execpolicy_amendment": ["git", "status"]}}},
        ),
        (
            COMMAND,
            ApplyNetworkPolicyAmendment("example.com", "deny"),
            {
                "decision": {
                    "applyNetworkPolicyAmendment": {
                        "network_policy_amendment": {"host": "example.com", "action": "deny"}
                    }
                }
            },
        ),
        (FILES, Accept(), {"decision": "accept"}),
        (FILES, AcceptForSession(), {"decision": "acceptForSession"}),
        (FILES, Decline("no"), {"decision": "decline"}),
        (PERMISSIONS, Accept(), {"permissions": {"network": {"enabled": True}}, "scope": "turn"}),
        (PERMISSIONS, AcceptForSession(), {"permissions": {"network": {"enabled": True}}, "scope": "session"}),
        (PERMISSIONS, Decline(), {"permissions": {}, "scope": "turn"}),
        (FORM, Accept({"name": "x"}), {"action": "accept", "content": {"name": "x"}}),
        (FORM, AcceptForSession(), {"action": "accept", "content": {}, "_meta": {"persist": "session"}}),
        (FORM, Decline(), {"action": "decline"}),
        (FORM, CancelTurn(), {"action": "cancel"}),
        (INPUT, Answers({"q": ["Blue"]}), {"answers": {"q": {"answers": ["Blue"]}}}),
        (INPUT, Decline(), {"answers": {}}),
        (TOOL, ToolOutput("5"), {"contentItems": [{"type": "inputText", "text": "5"}], "success": True}),
        (TOOL, Decline("no"), {"contentItems": [{"type": "inputText", "text": "no"}], "success": False}),
        (TOOL, CancelTurn(), {"contentItems": [], "success": False}),
        (CurrentTimeRead(request_id=0, thread_id="t"), CurrentTime(5), {"currentTimeAt": 5}),
        (ExecCommandApproval(request_id=0), Accept(), {"decision": "approved"}),
        (ExecCommandApproval(request_id=0), Decline("no"), {"decision": {"denied": {"rejection": "no"}}}),
        (ApplyPatchApproval(request_id=0), AcceptForSession(), {"decision": "approved_for_session"}),
        (ApplyPatchApproval(request_id=0), CancelTurn(), {"decision": "abort"}),
    ],
)
def test_answers(question: Question, decision: Decision, expected: dict[str, Any]) -> None:
    assert result(question, decision) == expected


@pytest.mark.parametrize(
    ("question", "decision"),
    [
        (FILES, AcceptWithExecpolicyAmendment(("ls",))),
        (COMMAND, ToolOutput("x")),
        (INPUT, Accept()),
        (TOOL, Accept()),
        (PERMISSIONS, Answers({})),
        (FORM, CurrentTime(1)),
    ],
)
def test_answers_that_do_not_fit(question: Question, decision: Decision) -> None:
    with pytest.raises(LocalProtocolError, match="does not answer"):
        result(question, decision)


def test_no_line_raises() -> None:
    protocol = ready()
    for raw in (b"", b"[]", b'{"id":null}', b'{"method":5}', b'{"method":"turn/started","params":[]}', b"\xff"):
        for event in protocol.receive(raw):
            assert isinstance(event, UnknownMessage)
    assert CodexUsage(1, 0, 0, 2).total_tokens == 3
