"""The sans-I/O protocol: what we say, what we hear, what is answered without being asked."""

from typing import Any

import msgspec
import pytest
from acp import schema

from stagedoor.agents.acp import (
    AcpProfile,
    AcpProtocol,
    AgentMessageChunk,
    AnswerElicitation,
    AnswerPermissionRequest,
    AnswerRequest,
    AuthenticateRequest,
    CancelNotification,
    CancelRequest,
    ClientCapabilities,
    CloseSessionRequest,
    CreateElicitation,
    CurrentModeUpdate,
    DeleteSessionRequest,
    EmbeddedResource,
    EnvVariable,
    ExtensionNotification,
    ForkSessionRequest,
    HttpHeader,
    ImageContent,
    InitializeRequest,
    ListSessionsRequest,
    LoadSessionRequest,
    LoadSessionResponse,
    McpServerHttp,
    McpServerSse,
    McpServerStdio,
    NewSessionRequest,
    NewSessionResponse,
    PermissionOption,
    PromptRequest,
    PromptResponse,
    ReadTextFile,
    RefuseRequest,
    RequestDeclined,
    RequestFailed,
    RequestPermission,
    RequestWithdrawn,
    Resource,
    ResourceLink,
    ResumeSessionRequest,
    SessionUpdate,
    SetSessionConfigOptionRequest,
    SetSessionModelRequest,
    SetSessionModeRequest,
    TextContent,
    ToolCallUpdate,
    Unanswered,
    WriteTextFile,
)
from stagedoor.errors import LocalProtocolError, NotSupported
from stagedoor.wire.shapes import UnknownMessage

SERVERS = (
    McpServerStdio("s", "/bin/x", ("-a",), (EnvVariable("K", "v"),)),
    McpServerHttp("h", "http://127.0.0.1/", (HttpHeader("A", "b"),)),
    McpServerSse("e", "http://127.0.0.1/"),
)
BLOCKS = (
    TextContent("hi"),
    ImageContent("AA==", "image/png"),
    ResourceLink("file:///a", "a"),
    EmbeddedResource(Resource("file:///a", text="t")),
)


def drain(protocol: AcpProtocol) -> list[Any]:
    return [msgspec.json.decode(message) for message in protocol.outgoing()]


def message(**members: Any) -> bytes:
    return msgspec.json.encode({"jsonrpc": "2.0", **members})


def update(session_id: str, **members: Any) -> bytes:
    return message(method="session/update", params={"sessionId": session_id, "update": members})


def text_update(session_id: str, text: str) -> bytes:
    return update(session_id, sessionUpdate="agent_message_chunk", content={"type": "text", "text": text})


def chunk(session_id: str, text: str, *, replayed: bool = False) -> SessionUpdate:
    content = msgspec.Raw(msgspec.json.encode({"type": "text", "text": text}))
    return SessionUpdate(session_id, AgentMessageChunk(content), replayed)


OPTIONS = [
    {"optionId": "server", "name": "Always, the whole server", "kind": "allow_always"},
    {"optionId": "tool", "name": "Always", "kind": "allow_always"},
    {"optionId": "once", "name": "Once", "kind": "allow_once"},
    {"optionId": "no", "name": "No", "kind": "reject_once"},
]


def asks(number: int = 0, session_id: str = "s", options: list[dict[str, str]] | None = None) -> bytes:
    params = {
        "sessionId": session_id,
        "toolCall": {"toolCallId": "c1", "title": "ls"},
        "options": OPTIONS if options is None else options,
    }
    return message(id=number, method="session/request_permission", params=params)


def question(number: int = 0, session_id: str = "s", options: list[dict[str, str]] | None = None) -> RequestPermission:
    offered = msgspec.convert(OPTIONS if options is None else options, list[PermissionOption])
    return RequestPermission(session_id, ToolCallUpdate("c1", title="ls"), offered, request_id=number)


@pytest.mark.parametrize(
    ("command", "method", "model"),
    [
        (InitializeRequest(), "initialize", schema.InitializeRequest),
        (AuthenticateRequest("login"), "authenticate", schema.AuthenticateRequest),
        (NewSessionRequest("/w", SERVERS), "session/new", schema.NewSessionRequest),
        (NewSessionRequest("/w", (), ("/x",)), "session/new", schema.NewSessionRequest),
        (LoadSessionRequest("s", "/w", SERVERS), "session/load", schema.LoadSessionRequest),
        (ResumeSessionRequest("s", "/w"), "session/resume", schema.ResumeSessionRequest),
        (ForkSessionRequest("s", "/w"), "session/fork", schema.ForkSessionRequest),
        (ListSessionsRequest(), "session/list", schema.ListSessionsRequest),
        (ListSessionsRequest("/w", "next"), "session/list", schema.ListSessionsRequest),
        (CloseSessionRequest("s"), "session/close", schema.CloseSessionRequest),
        (DeleteSessionRequest("s"), "session/delete", schema.DeleteSessionRequest),
        (SetSessionModeRequest("s", "code"), "session/set_mode", schema.SetSessionModeRequest),
        (
            SetSessionConfigOptionRequest("s", "c", "v"),
            "session/set_config_option",
            schema.SetSessionConfigOptionSelectRequest,
        ),
        (
            SetSessionConfigOptionRequest("s", "c", True),
            "session/set_config_option",
            schema.SetSessionConfigOptionBooleanRequest,
        ),
        (PromptRequest("s", BLOCKS), "session/prompt", schema.PromptRequest),
    ],
)
def test_each_request_is_one_the_official_schema_accepts(command: Any, method: str, model: Any) -> None:
    protocol = AcpProtocol(ClientCapabilities(True, True, True, True, True))
    protocol.send(command)
    (sent,) = drain(protocol)
    assert sent["method"] == method
    parsed = model.model_validate(sent["params"])
    assert parsed.model_dump(mode="json", by_alias=True, exclude_unset=True) == sent["params"]


def test_set_model_is_sent_as_it_is_spoken() -> None:
    protocol = AcpProtocol()
    protocol.send(SetSessionModelRequest("s", "m"))
    assert drain(protocol) == [
        {"jsonrpc": "2.0", "id": 0, "method": "session/set_model", "params": {"sessionId": "s", "modelId": "m"}}
    ]


@pytest.mark.parametrize(
    ("answer", "broad", "chosen"),
    [
        (AnswerPermissionRequest(0, "allow_once"), (), "once"),
        (AnswerPermissionRequest(0, "allow_always"), (), "server"),
        (AnswerPermissionRequest(0, "allow_always"), ("server",), "tool"),
        (AnswerPermissionRequest(0, "reject_once"), (), "no"),
        (AnswerPermissionRequest(0, "reject_always"), (), "no"),
        (AnswerPermissionRequest(0, option_id="tool"), (), "tool"),
        (AnswerPermissionRequest(0), (), None),
    ],
)
def test_a_permission_is_answered_by_kind(
    answer: AnswerPermissionRequest, broad: tuple[str, ...], chosen: str | None
) -> None:
    protocol = AcpProtocol(profile=AcpProfile(broad_options=broad))
    assert protocol.receive(asks()) == [question()]
    protocol.send(answer)
    outcome = {"outcome": "cancelled"} if chosen is None else {"outcome": "selected", "optionId": chosen}
    assert drain(protocol) == [{"jsonrpc": "2.0", "id": 0, "result": {"outcome": outcome}}]


@pytest.mark.parametrize("kind", ["allow_once", "reject_once"])
def test_an_answer_that_is_not_offered_becomes_cancelled_and_never_more(kind: Any) -> None:
    protocol = AcpProtocol()
    always = [{"optionId": "x", "name": "Always", "kind": "allow_always"}]
    protocol.receive(asks(options=always))
    protocol.send(AnswerPermissionRequest(0, kind))
    assert drain(protocol) == [{"jsonrpc": "2.0", "id": 0, "result": {"outcome": {"outcome": "cancelled"}}}]


def test_a_question_takes_one_answer_of_the_right_kind() -> None:
    protocol = AcpProtocol()
    protocol.receive(asks())
    with pytest.raises(LocalProtocolError, match="not an option"):
        protocol.send(AnswerPermissionRequest(0, option_id="bogus"))
    with pytest.raises(LocalProtocolError, match="another kind of answer"):
        protocol.send(AnswerElicitation(0, "accept"))
    assert protocol.is_open(0)
    protocol.send(RefuseRequest(0, "no"))
    assert drain(protocol) == [{"jsonrpc": "2.0", "id": 0, "result": {"outcome": {"outcome": "cancelled"}}}]
    with pytest.raises(LocalProtocolError, match="closed"):
        protocol.send(AnswerPermissionRequest(0, "allow_once"))


def prompted(*sessions: str, capabilities: ClientCapabilities | None = None) -> AcpProtocol:
    protocol = AcpProtocol(capabilities)
    for session_id in sessions:
        protocol.send(PromptRequest(session_id, (TextContent("go"),)))
    protocol.outgoing()
    return protocol


def test_cancel_answers_the_open_questions_of_its_session_only() -> None:
    protocol = prompted("s", "other")
    protocol.receive(asks(0))
    protocol.receive(asks(1, "other"))
    protocol.send(CancelNotification("s"))
    assert drain(protocol) == [
        {"jsonrpc": "2.0", "method": "session/cancel", "params": {"sessionId": "s"}},
        {"jsonrpc": "2.0", "id": 0, "result": {"outcome": {"outcome": "cancelled"}}},
    ]
    assert protocol.open_questions("other") == [question(1, "other")]
    assert protocol.receive(message(id=0, result={"stopReason": "cancelled"})) == [
        RequestWithdrawn(question(0), "the turn was cancelled"),
        PromptResponse("cancelled", session_id="s"),
    ]
    protocol.send(CancelNotification("s"))
    assert drain(protocol) == []


def test_a_turn_that_ends_closes_its_questions() -> None:
    protocol = prompted("s")
    protocol.receive(asks(4))
    assert protocol.receive(message(id=0, error={"code": 500, "message": "boom", "data": {"a": 1}})) == [
        RequestWithdrawn(question(4), "its turn ended"),
        RequestFailed("session/prompt", 500, "boom", {"a": 1}, "s", 0),
    ]
    assert drain(protocol) == [{"jsonrpc": "2.0", "id": 4, "result": {"outcome": {"outcome": "cancelled"}}}]
    assert not protocol.in_turn("s")


def test_an_agent_may_take_its_question_back() -> None:
    protocol = prompted("s")
    protocol.receive(asks(4))
    assert protocol.receive(message(method="$/cancel_request", params={"requestId": 4})) == [
        RequestWithdrawn(question(4), "the agent cancelled it")
    ]
    assert not protocol.is_open(4)


def test_we_may_take_a_request_back() -> None:
    """Only one that is not answered; the answer that comes all the same is the agent's to send."""
    protocol = prompted("s")
    number = protocol.call(SetSessionModeRequest("s", "ask"))
    drain(protocol)
    protocol.send(CancelRequest(number))
    assert drain(protocol) == [{"jsonrpc": "2.0", "method": "$/cancel_request", "params": {"requestId": number}}]
    protocol.receive(message(id=number, error={"code": -32800, "message": "Request cancelled"}))
    protocol.send(CancelRequest(number))
    assert drain(protocol) == []


def test_the_end_of_the_stream_settles_everything() -> None:
    protocol = prompted("s")
    protocol.receive(asks(4))
    assert protocol.receive_eof() == [
        RequestWithdrawn(question(4), "the agent ended"),
        Unanswered("session/prompt", "s", 0),
    ]
    assert protocol.answers() == {0: Unanswered("session/prompt", "s", 0)}
    assert protocol.receive_eof() == []


def test_one_turn_at_a_time() -> None:
    protocol = prompted("s")
    with pytest.raises(LocalProtocolError, match="a turn is running"):
        protocol.send(PromptRequest("s", (TextContent("again"),)))
    with pytest.raises(LocalProtocolError, match="prompt is empty"):
        protocol.send(PromptRequest("t", ()))


READ = message(id=3, method="fs/read_text_file", params={"sessionId": "s", "path": "/a", "limit": 2})
WRITE = message(id=3, method="fs/write_text_file", params={"sessionId": "s", "path": "/a", "content": "x"})
TERMINAL = message(id=3, method="terminal/output", params={"sessionId": "s", "terminalId": "t"})
FORM = message(id=3, method="elicitation/create", params={"sessionId": "s", "message": "?", "mode": "form"})
PAGE = message(id=3, method="elicitation/create", params={"message": "?", "mode": "url", "url": "http://x"})


@pytest.mark.parametrize("request_", [READ, WRITE, TERMINAL, FORM, PAGE])
def test_what_was_not_offered_is_refused(request_: bytes) -> None:
    protocol = prompted("s")
    (event,) = protocol.receive(request_)
    assert isinstance(event, RequestDeclined)
    assert event.why == "not offered"
    (answer,) = drain(protocol)
    assert (answer["id"], answer["error"]["code"]) == (3, -32601)


def test_an_echo_of_a_write_is_acknowledged_where_the_profile_says_so() -> None:
    protocol = AcpProtocol(profile=AcpProfile(undeclared_writes_are_echoes=True))
    protocol.send(InitializeRequest())
    protocol.outgoing()
    written = WriteTextFile("s", "/a", "x", request_id=3)
    assert protocol.receive(WRITE) == [RequestDeclined(written, "the agent had already written this file")]
    assert drain(protocol) == [{"jsonrpc": "2.0", "id": 3, "result": {}}]


def test_what_was_offered_waits_for_an_answer() -> None:
    protocol = prompted("s", capabilities=ClientCapabilities(read_files=True, elicitation_forms=True))
    assert protocol.receive(READ) == [ReadTextFile("s", "/a", limit=2, request_id=3)]
    protocol.send(AnswerRequest(3, {"content": "text"}))
    assert protocol.receive(FORM) == [CreateElicitation("?", "form", session_id="s", request_id=3)]
    protocol.send(AnswerElicitation(3, "accept", {"a": 1}))
    assert [sent["result"] for sent in drain(protocol)] == [
        {"content": "text"},
        {"action": "accept", "content": {"a": 1}},
    ]


def test_a_loaded_session_is_history_until_the_next_prompt() -> None:
    protocol = AcpProtocol()
    protocol.send(LoadSessionRequest("s", "/w"))
    received = protocol.receive(text_update("s", "before"))
    received += protocol.receive(message(id=0, result={}))
    received += protocol.receive(text_update("s", "after the answer"))
    protocol.send(PromptRequest("s", (TextContent("go"),)))
    received += protocol.receive(text_update("s", "live"))
    assert received == [
        chunk("s", "before", replayed=True),
        LoadSessionResponse("s"),
        chunk("s", "after the answer", replayed=True),
        chunk("s", "live"),
    ]


def test_a_fork_is_replayed_under_an_id_we_do_not_know_yet() -> None:
    protocol = prompted("old")
    protocol.send(ForkSessionRequest("old", "/w"))
    received = protocol.receive(text_update("new", "history"))
    protocol.receive(message(id=1, result={"sessionId": "new"}))
    received += protocol.receive(text_update("new", "more history"))
    assert received == [chunk("new", "history", replayed=True), chunk("new", "more history", replayed=True)]


def test_a_failed_load_leaves_nothing_behind() -> None:
    protocol = AcpProtocol()
    protocol.send(LoadSessionRequest("s", "/w"))
    assert protocol.receive(message(id=0, error={"code": -32603, "message": "no"})) == [
        RequestFailed("session/load", -32603, "no", None, "s", 0)
    ]
    assert protocol.receive(text_update("s", "x")) == [chunk("s", "x")]


def test_a_change_of_mode_in_disguise() -> None:
    protocol = AcpProtocol(profile=AcpProfile(mode_prefix="[MODE_UPDATE] "))
    received = protocol.receive(text_update("s", "[MODE_UPDATE] yolo")) + protocol.receive(
        text_update("s", "a [MODE_UPDATE] b")
    )
    assert received == [SessionUpdate("s", CurrentModeUpdate("yolo")), chunk("s", "a [MODE_UPDATE] b")]


def test_the_tool_name_in_an_id() -> None:
    profile = AcpProfile(tool_name_in_id=r"(.+?)__")
    assert profile.tool_name("run_shell_command__run_shell_command_17_0") == "run_shell_command"
    assert profile.tool_name("call_1") is None
    assert AcpProfile().tool_name("run__1") is None


@pytest.mark.parametrize(
    ("capabilities", "command", "lacking"),
    [
        ({}, LoadSessionRequest("s", "/w"), "loading a stored session"),
        ({}, ResumeSessionRequest("s", "/w"), "resuming"),
        ({}, ForkSessionRequest("s", "/w"), "forking"),
        ({}, ListSessionsRequest(), "listing its sessions"),
        ({}, CloseSessionRequest("s"), "closing"),
        ({}, DeleteSessionRequest("s"), "deleting"),
        ({}, PromptRequest("s", (ImageContent("AA==", "image/png"),)), "images"),
        ({}, PromptRequest("s", (EmbeddedResource(Resource("file:///a", text="")),)), "embedded resources"),
        ({}, NewSessionRequest("/w", SERVERS[1:2]), "over HTTP"),
        ({"mcpCapabilities": {"http": True}}, NewSessionRequest("/w", SERVERS), "over SSE"),
    ],
)
def test_what_the_agent_does_not_offer_is_not_sent(capabilities: Any, command: Any, lacking: str) -> None:
    protocol = AcpProtocol()
    protocol.send(InitializeRequest())
    hello = {"protocolVersion": 1, "agentCapabilities": capabilities, "agentInfo": {"name": "probe", "version": "1"}}
    protocol.receive(message(id=0, result=hello))
    protocol.outgoing()
    with pytest.raises(NotSupported, match=f"probe does not support .*{lacking}"):
        protocol.send(command)
    assert protocol.outgoing() == []


SURPRISES = [
    b"Warning: something",
    b"[]",
    b"null",
    b"{}",
    b'{"jsonrpc":"2.0","id":77,"result":{}}',
    update("s", sessionUpdate="brand_new", a=1),
    update("s", sessionUpdate="tool_call"),
    update("s"),
    message(method="session/update", params=[]),
    message(method="window/message", params={}),
    message(id=1, method="session/request_permission", params={"sessionId": "s"}),
    message(id=1, method="mcp/connect", params={}),
    b"\xff\xfe",
    b"[" * 100_000,
    message(id="9" * 5000, result={}),
]


@pytest.mark.parametrize("surprise", SURPRISES, ids=range(len(SURPRISES)))
def test_a_surprise_is_kept_whole(surprise: bytes) -> None:
    protocol = prompted("s")
    (event,) = protocol.receive(surprise)
    assert isinstance(event, UnknownMessage)
    assert event.raw == surprise
    assert event.why
    assert protocol.receive(text_update("s", "next")) == [chunk("s", "next")]


def test_requests_we_cannot_read_are_refused_and_not_left_open() -> None:
    protocol = prompted("s")
    protocol.receive(message(id=1, method="session/request_permission", params={"sessionId": "s"}))
    protocol.receive(message(id=2, method="mcp/connect", params={}))
    assert [(sent["id"], sent["error"]["code"]) for sent in drain(protocol)] == [(1, -32602), (2, -32601)]


def test_an_unreadable_answer_still_ends_the_turn() -> None:
    protocol = prompted("s")
    raw = message(id=0, result={"usage": 3})
    surprise, failed = protocol.receive(raw)
    assert isinstance(surprise, UnknownMessage)
    assert isinstance(failed, RequestFailed)
    assert not protocol.in_turn("s")


def test_half_an_emoji_does_not_spoil_a_message() -> None:
    protocol = prompted("s")
    raw = b'{"method":"session/update","params":{"sessionId":"s","update":'
    raw += b'{"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":"a\\ud83d\xff"}}}}'
    (event,) = protocol.receive(raw)
    assert isinstance(event, SessionUpdate)
    assert isinstance(event.update, AgentMessageChunk)
    assert event.update.text == "a\ufffd\ufffd"
    failed = b'{"id":0,"error":{"code":1,"message":"\\ud83d","data":{"x":"\\ud83d"}}}'
    assert protocol.receive(failed) == [RequestFailed("session/prompt", 1, "\ufffd", {"x": "\ufffd"}, "s", 0)]


def test_notifications_of_the_agents_own() -> None:
    assert AcpProtocol().receive(message(method="_x/y", params={"a": 1})) == [
        ExtensionNotification("_x/y", msgspec.Raw(b'{"a":1}'))
    ]


def test_a_recording_of_one_side_is_typed_by_shape() -> None:
    protocol = AcpProtocol()
    assert protocol.receive(message(id=1, result={"sessionId": "s"})) == [NewSessionResponse("s")]
    assert protocol.receive(message(id=2, result={"stopReason": "end_turn"})) == [PromptResponse("end_turn")]
    assert protocol.receive(READ) == [ReadTextFile("s", "/a", limit=2, request_id=3)]


UPDATE = '"method":"session/update","params":{"sessionId":"s1","update":%s}'
PIECE = '{"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":"words"}}'
BACKWARDS = '{"content":{"text":"words","type":"text"},"sessionUpdate":"agent_message_chunk"}'


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ('{"jsonrpc":"2.0",' + UPDATE % PIECE + "}", "words"),
        ("{" + UPDATE % BACKWARDS + "}", "words"),
        ('{"jsonrpc":"2.0","id":7,' + UPDATE % PIECE + "}", "unknown request 'session/update'"),
        ('{"jsonrpc":"2.0","id":null,' + UPDATE % PIECE + "}", "unknown request 'session/update'"),
        ("{" + UPDATE % PIECE.replace("words", "half \\ud83d") + "}", "half \ufffd"),
        ("{" + UPDATE % PIECE.replace('"text":"words"', '"text":"words","annotations":5') + "}", "words"),
        ("{" + UPDATE % PIECE.replace("}}", '},"messageId":5}') + "}", "words"),
        ("{" + UPDATE % PIECE.replace('"type":"text"', '"type":"hologram"') + "}", ""),
        ("{" + UPDATE % PIECE.replace("agent_message_chunk", "telepathy") + "}", "session/update: unknown"),
    ],
)
def test_a_piece_in_whatever_form_it_comes(line: str, expected: str) -> None:
    [event] = AcpProtocol().receive(line.encode())
    match event:
        case SessionUpdate(session_id="s1", update=AgentMessageChunk() as chunk):
            assert chunk.text == expected
        case UnknownMessage(raw=raw, why=why):
            assert raw == line.encode()
            assert why.startswith(expected)
        case _:
            raise AssertionError(event)
