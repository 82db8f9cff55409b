"""The conversations as state machines, without a process or a socket."""

from __future__ import annotations

import json
from typing import Any

import pytest

from stagedoor.agents.opencode.commands import (
    Abort,
    Attachment,
    CheckStatus,
    Command,
    CreateSession,
    ModelName,
    OpenCodeForkSession,
    OpenCodePrompt,
    OpenSession,
    PermissionRule,
    RejectQuestion,
    ReplyPermission,
    ReplyQuestion,
)
from stagedoor.agents.opencode.events import (
    MessagePartUpdated,
    OpenCodeText,
    OpenCodeToolUse,
    PermissionAsked,
    QuestionAsked,
    Runaway,
    ServerAnswer,
    ServerEvent,
    ServerListening,
    ServerNotice,
    ServerOutput,
    ServerRefusal,
    StepFinish,
    StepsExhausted,
    StepStart,
    TurnEnded,
)
from stagedoor.agents.opencode.parts import (
    Cache,
    OpenCodeFailure,
    OpenCodeTokens,
    Span,
    StepFinishPart,
    StepStartPart,
    TextPart,
    ToolPart,
    ToolRef,
    ToolState,
)
from stagedoor.agents.opencode.protocol import RunProtocol, ServeProtocol
from stagedoor.errors import AlreadyAnswered, LocalProtocolError
from stagedoor.transports.launch import Exited
from stagedoor.wire.http import HttpAnswer, HttpRequest
from stagedoor.wire.shapes import UnknownMessage

DIRECTORY = {"directory": "/repo"}
SESSION = "ses_1"


def sse(kind: str, **properties: Any) -> bytes:
    return json.dumps({"id": "evt_1", "type": kind, "properties": properties}).encode()


def opened(**more: Any) -> ServeProtocol:
    """A protocol whose session exists."""
    protocol = ServeProtocol(directory="/repo", **more)
    protocol.send(CreateSession())
    (request,) = protocol.outgoing()
    protocol.receive_answer(request, HttpAnswer(200, json.dumps({"id": SESSION, "directory": "/repo"}).encode()))
    assert protocol.session_id == SESSION
    return protocol


def in_turn(**more: Any) -> ServeProtocol:
    protocol = opened(**more)
    protocol.send(OpenCodePrompt("go"))
    protocol.outgoing()
    assert consequences(protocol, BUSY, message("msg_1")) == []
    return protocol


def message(message_id: str, *, session: str = SESSION, completed: bool = False, **more: Any) -> bytes:
    time = {"created": 1, "completed": 2} if completed else {"created": 1}
    info = {"id": message_id, "role": "assistant", "sessionID": session, "time": time, **more}
    return sse("message.updated", sessionID=session, info=info)


def status(kind: str, session: str = SESSION) -> bytes:
    return sse("session.status", sessionID=session, status={"type": kind})


BUSY, IDLE_STATUS, IDLE = status("busy"), status("idle"), sse("session.idle", sessionID=SESSION)
ABORTED = {"name": "MessageAbortedError", "data": {"message": "Aborted"}}
PERMISSION = {
    "id": "per_1",
    "sessionID": SESSION,
    "permission": "bash",
    "patterns": ["ls"],
    "metadata": {"command": "ls"},
    "always": ["ls *"],
    "tool": {"messageID": "msg_1", "callID": "call_1"},
}


def consequences(protocol: ServeProtocol, *messages: bytes) -> list[ServerEvent]:
    """What follows from the messages, beyond their own events."""
    ours: list[ServerEvent] = []
    for line in messages:
        ours += [event for event in protocol.receive(line) if isinstance(event, (TurnEnded, Runaway, UnknownMessage))]
    return ours


# -------------------------------------------------------------------------------------------------------------- run


def line(kind: str, **more: Any) -> bytes:
    return json.dumps({"type": kind, "timestamp": 5, "sessionID": SESSION, **more}).encode()


def test_run_events() -> None:
    protocol = RunProtocol()
    tool = {
        "type": "tool",
        "tool": "bash",
        "callID": "call_1",
        "id": "prt_1",
        "sessionID": SESSION,
        "messageID": "msg_1",
        "state": {"status": "completed", "input": {"command": "ls"}, "output": "a\n", "time": {"start": 1, "end": 2}},
    }
    assert protocol.receive(line("step_start", part={"type": "step-start"})) == [
        StepStart(session_id=SESSION, printed_at=5, part=StepStartPart())
    ]
    assert protocol.receive(line("tool_use", part=tool)) == [
        OpenCodeToolUse(
            session_id=SESSION,
            printed_at=5,
            part=ToolPart(
                id="prt_1",
                session_id=SESSION,
                message_id="msg_1",
                tool="bash",
                call_id="call_1",
                state=ToolState(status="completed", input={"command": "ls"}, output="a\n", time=Span(1, 2)),
            ),
        )
    ]
    assert protocol.receive(line("text", part={"type": "text", "text": "Hi."})) == [
        OpenCodeText(session_id=SESSION, printed_at=5, part=TextPart(text="Hi."))
    ]
    tokens = {"input": 1, "output": 2, "reasoning": 3, "cache": {"read": 4, "write": 5}}
    finish = {"type": "step-finish", "reason": "stop", "tokens": tokens, "cost": 0.5}
    assert protocol.receive(line("step_finish", part=finish)) == [
        StepFinish(
            session_id=SESSION,
            printed_at=5,
            part=StepFinishPart(reason="stop", tokens=OpenCodeTokens(1, 2, 3, Cache(4, 5)), cost=0.5),
        )
    ]
    assert protocol.session_id == SESSION
    assert protocol.receive(b'{"type":"new"}') == [UnknownMessage(b'{"type":"new"}', "unknown type 'new'")]
    assert isinstance(protocol.receive(b"\xff not json")[0], UnknownMessage)
    assert protocol.receive_eof() == []
    with pytest.raises(LocalProtocolError, match="serve"):
        protocol.send(Abort())


def test_run_notices_a_loop_once_and_forgives_retries() -> None:
    start, unknown = line("step_start", part={}), line("step_finish", part={"reason": "unknown"})
    stop = line("step_finish", part={"reason": "tool-calls"})
    protocol = RunProtocol(most_empty_steps=2)
    batches = [protocol.receive(line) for line in (start, unknown, start, stop, start, start)]
    assert not [event for events in batches for event in events if isinstance(event, Runaway)]
    batches = [protocol.receive(line) for line in (unknown, start, unknown, start)]
    assert [event for events in batches for event in events if isinstance(event, Runaway)] == [Runaway(SESSION, 3)]
    assert protocol.runaway


# --------------------------------------------------------------------------------------- what is asked of serve


REQUESTS: list[tuple[Command, list[HttpRequest]]] = [
    (CreateSession(), [HttpRequest("POST", "/session", b"{}", DIRECTORY)]),
    (
        CreateSession("T", "plan", ModelName("p", "m"), "high", (PermissionRule("bash", "*", "deny"),)),
        [
            HttpRequest(
                "POST",
                "/session",
                b'{"title":"T","agent":"plan","model":{"providerID":"p","id":"m","variant":"high"},'
                b'"permission":[{"permission":"bash","pattern":"*","action":"deny"}]}',
                DIRECTORY,
            )
        ],
    ),
    (
        OpenSession("ses_9", (PermissionRule("edit"),)),
        [
            HttpRequest("GET", "/session/ses_9", b"", DIRECTORY),
            HttpRequest(
                "PATCH",
                "/session/ses_9",
                b'{"permission":[{"permission":"edit","pattern":"*","action":"ask"}]}',
                DIRECTORY,
            ),
        ],
    ),
    (
        OpenCodeForkSession("ses_9", "msg_2"),
        [HttpRequest("POST", "/session/ses_9/fork", b'{"messageID":"msg_2"}', DIRECTORY)],
    ),
    (
        OpenCodePrompt(
            "hi",
            (Attachment("file:///a.png", "image/png", "a.png"),),
            ModelName("p", "m"),
            "build",
            "high",
            "Be brief.",
            {"bash": False},
            {"type": "object"},
        ),
        [
            HttpRequest(
                "POST",
                "/session/ses_1/prompt_async",
                b'{"parts":[{"type":"text","text":"hi"},{"type":"file","mime":"image/png","url":"file:///a.png",'
                b'"filename":"a.png"}],"model":{"providerID":"p","modelID":"m"},"agent":"build","variant":"high",'
                b'"system":"Be brief.","tools":{"bash":false},'
                b'"format":{"type":"json_schema","schema":{"type":"object"}}}',
                DIRECTORY,
            )
        ],
    ),
    (Abort(), [HttpRequest("POST", "/session/ses_1/abort", b"", DIRECTORY)]),
    (CheckStatus(), [HttpRequest("GET", "/session/status", b"", DIRECTORY)]),
]


@pytest.mark.parametrize(("command", "requests"), REQUESTS)
def test_commands_become_requests(command: Command, requests: list[HttpRequest]) -> None:
    protocol = opened()
    protocol.send(command)
    assert protocol.outgoing() == requests
    assert protocol.outgoing() == []


def test_what_cannot_be_said_now() -> None:
    protocol = ServeProtocol(directory="/repo")
    with pytest.raises(LocalProtocolError, match="no session is open"):
        protocol.send(OpenCodePrompt("x"))
    protocol = opened()
    with pytest.raises(LocalProtocolError, match="the prompt is empty"):
        protocol.send(OpenCodePrompt("  "))
    protocol.send(OpenCodePrompt("x"))
    with pytest.raises(LocalProtocolError, match="a turn is running"):
        protocol.send(OpenCodePrompt("y"))
    for answer in (ReplyPermission("per_9", "once"), ReplyQuestion("que_9", ()), RejectQuestion("que_9")):
        with pytest.raises(AlreadyAnswered):
            protocol.send(answer)


# -------------------------------------------------------------------------------------------- when a turn is over


def test_a_turn_ends_when_idle_and_finished_with_its_sums() -> None:
    protocol = in_turn()
    tokens = {"total": 10, "input": 4, "output": 3, "reasoning": 1, "cache": {"read": 2, "write": 0}}
    first = message("msg_1", completed=True, finish="tool-calls", tokens=tokens, cost=0.25)
    second = message("msg_2", completed=True, finish="stop", tokens=tokens, cost=0.5)
    assert consequences(protocol, first, BUSY, message("msg_2"), second, IDLE_STATUS) == []
    assert consequences(protocol, IDLE) == [
        TurnEnded(SESSION, "completed", "stop", None, OpenCodeTokens(8, 6, 2, Cache(4, 0), 20), 0.75)
    ]
    assert consequences(protocol, IDLE_STATUS, IDLE) == []
    assert not protocol.in_turn


def test_after_an_abort_the_first_idle_is_not_the_end() -> None:
    protocol = in_turn()
    protocol.send(Abort())
    error = sse("session.error", sessionID=SESSION, error=ABORTED)
    assert consequences(protocol, error, IDLE_STATUS, IDLE) == []
    assert protocol.in_turn
    finished = message("msg_1", completed=True, error=ABORTED)
    assert consequences(protocol, finished, IDLE_STATUS, IDLE, IDLE) == [
        TurnEnded(SESSION, "aborted", None, OpenCodeFailure("MessageAbortedError", {"message": "Aborted"}))
    ]


def test_an_error_that_was_mended_is_not_the_turns() -> None:
    protocol = in_turn()
    overflow = sse("session.error", sessionID=SESSION, error={"name": "ContextOverflowError", "data": {}})
    assert consequences(protocol, overflow, message("msg_1", completed=True), BUSY, message("msg_2")) == []
    (ended,) = consequences(protocol, message("msg_2", completed=True, finish="stop"), IDLE)
    assert isinstance(ended, TurnEnded)
    assert (ended.outcome, ended.error) == ("completed", None)


def test_an_error_before_any_message_fails_the_turn() -> None:
    protocol = opened()
    protocol.send(OpenCodePrompt("go"))
    (ended,) = consequences(
        protocol,
        IDLE,  # of the turn before
        sse("session.error", sessionID=SESSION, error={"name": "UnknownError", "data": {"message": "Model not found"}}),
        IDLE,
    )
    assert ended == TurnEnded(SESSION, "failed", None, OpenCodeFailure("UnknownError", {"message": "Model not found"}))


def test_a_refused_prompt_and_a_dead_server_end_the_turn() -> None:
    protocol = opened()
    protocol.send(OpenCodePrompt("go"))
    (request,) = protocol.outgoing()
    events = protocol.receive_answer(request, HttpAnswer(500, b'{"name":"UnknownError","data":{"message":"Oh."}}'))
    assert events == [
        ServerRefusal(500, "POST /session/ses_1/prompt_async", "Oh."),
        TurnEnded(SESSION, "failed", None, OpenCodeFailure("UnknownError", {"message": "Oh.", "statusCode": 500})),
    ]
    protocol = in_turn()
    (ended,) = protocol.receive_eof()
    assert isinstance(ended, TurnEnded)
    assert ended.outcome == "failed"
    assert protocol.receive_eof() == []


def test_a_sub_agents_end_is_not_the_turns() -> None:
    protocol = in_turn()
    child = sse("session.created", sessionID="ses_2", info={"id": "ses_2", "parentID": SESSION})
    quiet = sse("session.idle", sessionID="ses_2")
    assert (
        consequences(protocol, child, status("busy", "ses_2"), message("msg_9", session="ses_2", completed=True), quiet)
        == []
    )
    assert protocol.in_turn


def test_an_abort_before_the_server_is_busy_waits_for_it() -> None:
    protocol = opened()
    protocol.send(OpenCodePrompt("go"))
    protocol.outgoing()
    protocol.send(Abort())
    assert protocol.outgoing() == []
    consequences(protocol, BUSY)
    assert protocol.outgoing() == [HttpRequest("POST", "/session/ses_1/abort", b"", DIRECTORY)]


def test_a_broken_stream_is_asked_about() -> None:
    protocol = in_turn()
    connected = sse("server.connected")
    consequences(protocol, connected)
    assert protocol.outgoing() == []
    consequences(protocol, connected)
    (request,) = protocol.outgoing()
    assert request == HttpRequest("GET", "/session/status", b"", DIRECTORY)
    busy = HttpAnswer(200, b'{"ses_1":{"type":"busy"}}')
    assert protocol.receive_answer(request, busy) == [ServerAnswer(200, busy.body, "GET /session/status")]
    answered, ended = protocol.receive_answer(request, HttpAnswer(200, b"{}"))
    assert isinstance(answered, ServerAnswer)
    assert isinstance(ended, TurnEnded)


def test_a_turn_of_which_nothing_was_heard_ends_at_the_second_idle() -> None:
    protocol = opened()
    connected, beat = sse("server.connected"), sse("server.heartbeat")
    consequences(protocol, connected)
    protocol.send(OpenCodePrompt("go"))
    consequences(protocol, beat)
    assert len(protocol.outgoing()) == 1  # the prompt: nothing is in doubt
    consequences(protocol, connected)
    (request,) = protocol.outgoing()
    assert len(protocol.receive_answer(request, HttpAnswer(200, b"{}"))) == 1
    consequences(protocol, beat)
    (request,) = protocol.outgoing()
    assert protocol.receive_answer(request, HttpAnswer(200, b"{}"))[1] == TurnEnded(SESSION, "completed")


def test_a_loop_is_aborted() -> None:
    protocol = in_turn(most_empty_steps=1)
    step = sse("message.part.updated", sessionID=SESSION, part={"type": "step-start"})
    finish = sse("message.part.updated", sessionID=SESSION, part={"type": "step-finish", "reason": "unknown"})
    assert consequences(protocol, step, finish) == []
    assert consequences(protocol, step, finish, step) == [Runaway(SESSION, 2)]
    assert protocol.outgoing() == [HttpRequest("POST", "/session/ses_1/abort", b"", DIRECTORY)]


def test_a_turn_with_more_steps_than_allowed_is_aborted_once() -> None:
    protocol = in_turn(most_steps=2)
    step = sse("message.part.updated", sessionID=SESSION, part={"type": "step-finish", "reason": "tool-calls"})
    events = [event for line in (step, step, step) for event in protocol.receive(line)]
    assert [event for event in events if isinstance(event, StepsExhausted)] == [StepsExhausted(SESSION, 2)]
    assert protocol.outgoing() == [HttpRequest("POST", "/session/ses_1/abort", b"", DIRECTORY)]


# --------------------------------------------------------------------------------------------------------- questions


def test_questions_of_the_next_api_are_answered_there() -> None:
    protocol = in_turn()
    tool = {"type": "tool", "messageID": "msg_1", "callID": "call_1"}
    asked = {
        "id": "per_2",
        "sessionID": "ses_1",
        "action": "bash",
        "resources": ["ls"],
        "save": ["ls *"],
        "source": tool,
    }
    assert protocol.receive(sse("permission.v2.asked", **asked)) == [
        PermissionAsked(
            id="per_2",
            session_id="ses_1",
            permission="bash",
            patterns=["ls"],
            always=["ls *"],
            tool=ToolRef("msg_1", "call_1"),
            next_api=True,
        )
    ]
    protocol.receive(sse("question.v2.asked", id="que_2", sessionID="ses_1", questions=[]))
    protocol.receive(sse("question.v2.asked", id="que_3", sessionID="ses_1", questions=[]))
    protocol.send(ReplyPermission("per_2", "once"))
    protocol.send(ReplyQuestion("que_2", (("Yes",),)))
    protocol.send(RejectQuestion("que_3"))
    place = "/api/session/ses_1"
    requests = [
        HttpRequest("POST", f"{place}/permission/per_2/reply", b'{"reply":"once"}', DIRECTORY),
        HttpRequest("POST", f"{place}/question/que_2/reply", b'{"answers":[["Yes"]]}', DIRECTORY),
        HttpRequest("POST", f"{place}/question/que_3/reject", b"", DIRECTORY),
    ]
    assert protocol.outgoing() == requests
    assert [protocol.decode_command(request.line()) for request in requests] == [
        [ReplyPermission("per_2", "once")],
        [ReplyQuestion("que_2", (("Yes",),))],
        [RejectQuestion("que_3")],
    ]


@pytest.mark.parametrize(
    ("kind", "properties", "path"),
    [
        ("permission.asked", {"id": "per_1", "patterns": "everything"}, "/permission/per_1/reply"),
        ("permission.v2.asked", {"id": "per_1", "resources": []}, "/api/session/ses_1/permission/per_1/reply"),
        ("question.asked", {"id": "que_1", "questions": {}}, "/question/que_1/reject"),
        ("question.v2.asked", {"id": "que_1", "questions": 5}, "/api/session/ses_1/question/que_1/reject"),
    ],
)
def test_a_question_that_cannot_be_read_is_refused(kind: str, properties: dict[str, Any], path: str) -> None:
    """Somebody would allow something else than what then runs, or the server would wait for ever."""
    protocol = in_turn()
    (event,) = protocol.receive(sse(kind, sessionID="ses_1", **properties))
    assert isinstance(event, UnknownMessage)
    (refusal,) = protocol.outgoing()
    assert refusal.path == path
    assert refusal.body in (b"", b'{"reply":"reject","message":"the client cannot read this question"}')
    assert (protocol.permissions, protocol.questions) == ({}, {})


def test_questions_are_kept_answered_and_closed_with_the_turn() -> None:
    protocol = in_turn()
    (question,) = protocol.receive(sse("permission.asked", **PERMISSION))
    assert isinstance(question, PermissionAsked)
    assert (question.permission, question.patterns, question.always) == ("bash", ["ls"], ["ls *"])
    protocol.send(ReplyPermission("per_1", "reject", "Use git."))
    assert protocol.outgoing() == [
        HttpRequest("POST", "/permission/per_1/reply", b'{"reply":"reject","message":"Use git."}', DIRECTORY)
    ]
    with pytest.raises(AlreadyAnswered):
        protocol.send(ReplyPermission("per_1", "once"))

    consequences(protocol, sse("permission.asked", **{**PERMISSION, "id": "per_2"}))
    consequences(protocol, sse("permission.replied", sessionID=SESSION, requestID="per_2", reply="once"))
    with pytest.raises(AlreadyAnswered):
        protocol.send(ReplyPermission("per_2", "once"))

    (question,) = protocol.receive(
        sse(
            "question.asked",
            id="que_1",
            sessionID=SESSION,
            questions=[{"question": "Which?", "options": [{"label": "A"}]}],
        )
    )
    assert isinstance(question, QuestionAsked)
    assert question.questions[0].options[0].label == "A"
    protocol.send(ReplyQuestion("que_1", (("A",),)))
    assert protocol.outgoing() == [HttpRequest("POST", "/question/que_1/reply", b'{"answers":[["A"]]}', DIRECTORY)]

    consequences(protocol, sse("permission.asked", **{**PERMISSION, "id": "per_3"}))
    consequences(protocol, sse("question.asked", id="que_2", sessionID=SESSION))
    protocol.send(Abort())
    assert protocol.outgoing() == [
        HttpRequest("POST", "/session/ses_1/abort", b"", DIRECTORY),
        HttpRequest("POST", "/permission/per_3/reply", b'{"reply":"reject"}', DIRECTORY),
        HttpRequest("POST", "/question/que_2/reject", b"", DIRECTORY),
    ]


# ------------------------------------------------------------------------------------------------------- odd messages


@pytest.mark.parametrize(
    ("raw", "event"),
    [
        (b"stdout: opencode server listening on http://127.0.0.1:4096", ServerListening("http://127.0.0.1:4096")),
        (b"opencode server listening on http://127.0.0.1:4096", ServerListening("http://127.0.0.1:4096")),
        (b"Warning: something", ServerOutput("Warning: something")),
        (b"HTTP 204 ", ServerAnswer(204, b"")),
        (b'HTTP 200 {"a":1}', ServerAnswer(200, b'{"a":1}')),
        (b"HTTP what", ServerOutput("HTTP what")),
        (b"exit -15", Exited(-15)),
        (b"exit now", ServerOutput("exit now")),
        (b"", ServerOutput("")),
        (
            b'{"type":"new.thing","properties":{}}',
            UnknownMessage(b'{"type":"new.thing","properties":{}}', "unknown type 'new.thing'"),
        ),
        (b'{"properties":{}}', UnknownMessage(b'{"properties":{}}', "no 'type' in the message")),
    ],
)
def test_lines_of_every_sort(raw: bytes, event: ServerEvent) -> None:
    assert ServeProtocol().receive(raw) == [event]


@pytest.mark.parametrize(
    "raw",
    [
        b"{",
        b'{"type":1}',
        b'{"type":"session.error","properties":[]}',
        b'{"type":"message.updated","properties":{"info":{"role":5}}}',
        b'{"payload":7}',
        b"\xff\xfe{",
        b"{" * 100_000,
    ],
)
def test_nothing_the_server_says_raises(raw: bytes) -> None:
    (event,) = ServeProtocol().receive(raw)
    assert isinstance(event, (UnknownMessage, ServerOutput))


def test_half_an_emoji_and_wrapped_events() -> None:
    raw = b'{"directory":"/x","payload":{"type":"plugin.added","properties":{"id":"\\ud83d"}}}'
    (event,) = ServeProtocol().receive(raw)
    assert isinstance(event, ServerNotice)
    (event,) = ServeProtocol().receive(b'{"type":"message.part.updated","properties":{"part":{"type":"odd"}}}')
    assert isinstance(event, MessagePartUpdated)
    assert event.typed() == UnknownMessage(b'{"type":"odd"}', "unknown type 'odd'")
