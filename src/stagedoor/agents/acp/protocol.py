"""The client's side of the Agent Client Protocol, version 1, over any transport. Pure.

One protocol serves one connection, which may carry many sessions; every event says which one it belongs to.
"""

from __future__ import annotations

from typing import Any, Literal, TypeAlias, TypeVar, cast, get_args

import msgspec

from stagedoor.errors import LocalProtocolError, NotSupported
from stagedoor.wire.jsonrpc import (
    INVALID_PARAMS,
    METHOD_NOT_FOUND,
    Id,
    Notification,
    Peer,
    Request,
    Response,
    messages_in,
    parse,
)
from stagedoor.wire.shapes import UnknownMessage, decode_or_reason, decode_question, repaired

from .command_decoder import answer_in, command_in
from .commands import (
    METHODS,
    AnswerElicitation,
    AnswerPermissionRequest,
    AnswerRequest,
    Call,
    CancelNotification,
    CancelRequest,
    ClientCapabilities,
    CloseSessionRequest,
    Command,
    DeleteSessionRequest,
    ForkSessionRequest,
    InitializeRequest,
    ListSessionsRequest,
    ListToolsRequest,
    LoadSessionRequest,
    McpServerHttp,
    McpServerSse,
    NewSessionRequest,
    PromptRequest,
    RefuseRequest,
    ResumeSessionRequest,
    SetSessionConfigOptionRequest,
)
from .config import AcpProfile
from .events import (
    CompleteElicitation,
    Event,
    ExtensionNotification,
    RequestDeclined,
    RequestFailed,
    RequestWithdrawn,
    SessionAddress,
    Unanswered,
)
from .requests import (
    REQUESTS,
    AgentRequest,
    CreateElicitation,
    CreateTerminal,
    ReadTextFile,
    RequestPermission,
    WriteTextFile,
)
from .responses import (
    METHOD_BY_MEMBER,
    RESPONSES,
    AgentResponse,
    CloseSessionResponse,
    DeleteSessionResponse,
    ForkSessionResponse,
    InitializeResponse,
    NewSessionResponse,
    UntypedResponse,
    addressed,
)
from .updates import (
    UPDATES,
    AcpToolCall,
    AgentMessageChunk,
    AgentThoughtChunk,
    AudioContent,
    ConversationUpdate,
    CurrentModeUpdate,
    EmbeddedResource,
    ImageContent,
    KnownUpdate,
    SessionUpdate,
    ToolCallUpdate,
    UserMessageChunk,
)

Question = TypeVar("Question", bound=AgentRequest)

Reply: TypeAlias = AgentResponse | UntypedResponse | RequestFailed | Unanswered

PROTOCOL_VERSION = 1
WITHOUT_MEANING = frozenset({"auth/status_update"})
"""Notifications of the unstable schema that say nothing of a conversation."""
REFUSED = frozenset({"mcp/message"})
"""Requests of the unstable schema for what we never offer; any other unknown request is refused, too."""
_LONGEST_ID = 20
"""Digits; longer ones are none of ours, and Python does not read any number of them."""
_IN_TURNS = (RequestPermission, CreateElicitation, ReadTextFile, WriteTextFile, CreateTerminal)
"""What an agent may ask for only while it works on a prompt: else nobody would know what it is for, nor who reads it.
"""
CANCELLED: dict[str, Any] = {"outcome": {"outcome": "cancelled"}}
_CONVERSATION: frozenset[type] = frozenset(get_args(ConversationUpdate))

_REQUEST_DECODERS: dict[str, msgspec.json.Decoder[AgentRequest]] = {
    method: msgspec.json.Decoder(shape) for method, shape in REQUESTS.items()
}
_RESPONSE_DECODERS: dict[str, msgspec.json.Decoder[AgentResponse]] = {
    method: msgspec.json.Decoder(shape) for method, shape in RESPONSES.items()
}


class _SessionUpdateParams(msgspec.Struct, frozen=True, rename="camel"):
    session_id: str
    update: msgspec.Raw


class _FrequentParams(msgspec.Struct, frozen=True, rename="camel"):
    session_id: str
    update: AgentMessageChunk | AgentThoughtChunk | UserMessageChunk | AcpToolCall | ToolCallUpdate


class _FrequentMessage(msgspec.Struct, frozen=True):
    """What is said and what is done, the bulk of a stream: typed in one pass."""

    method: Literal["session/update"]
    params: _FrequentParams
    id: Any = msgspec.UNSET


_FREQUENT = msgspec.json.Decoder(_FrequentMessage)


class _Withdrawal(msgspec.Struct, frozen=True, rename="camel"):
    request_id: Id


NOTIFICATIONS: dict[str, msgspec.json.Decoder[_SessionUpdateParams | CompleteElicitation | _Withdrawal]] = {
    "session/update": msgspec.json.Decoder(_SessionUpdateParams),
    "elicitation/complete": msgspec.json.Decoder(CompleteElicitation),
    "$/cancel_request": msgspec.json.Decoder(_Withdrawal),
}


class AcpProtocol:
    def __init__(self, capabilities: ClientCapabilities | None = None, profile: AcpProfile | None = None) -> None:
        self.capabilities = capabilities or ClientCapabilities()
        self.profile = profile or AcpProfile()
        self.agent: InitializeResponse | None = None
        self._peer = Peer()
        self._calls: dict[Id, tuple[str, str]] = {}  # method, session
        self._questions: dict[Id, AgentRequest] = {}
        self._turns: dict[str, Id] = {}
        self._prompted: set[str] = set()
        self._replaying: set[str] = set()
        self._opened: set[str] = set()
        self._withdrawn: list[Event] = []
        self._answers: dict[Id, Reply] = {}
        self._listening = True  # until we send a request, this is a recording and not our agent

    # ---------------------------------------------------------------------------------------------- commands

    def send(self, command: Command) -> None:
        """Raises ``LocalProtocolError`` or ``NotSupported`` for what cannot be sent now or to this agent."""
        match command:
            case CancelNotification(session_id=session_id):
                self._cancel(session_id)
            case CancelRequest(request_id=number):
                if number in self._calls:
                    self._peer.notify("$/cancel_request", {"requestId": number})
            case AnswerPermissionRequest():
                self._answer_permission(command)
            case AnswerElicitation(action=action, content=content):
                self._take(command.request_id, CreateElicitation)
                accepted = {"content": content} if action == "accept" and content is not None else {}
                self._peer.answer(command.request_id, {"action": action, **accepted})
            case AnswerRequest(result=result):
                self._take(command.request_id)
                self._peer.answer(command.request_id, result)
            case RefuseRequest(message=message, code=code):
                if isinstance(self._take(command.request_id), RequestPermission):
                    self._peer.answer(command.request_id, CANCELLED)
                else:
                    self._peer.refuse(command.request_id, code, message)
            case _:
                self.call(command)

    def call(self, command: Call) -> int:
        """Queue a request and return the number its answer will carry."""
        self._permit(command)
        self._listening = False
        method = method_of(command)
        session_id: str = getattr(command, "session_id", "")
        number = self._peer.call(method, self._params(command))
        self._remember_call(number, method, session_id)
        return number

    def outgoing(self) -> list[bytes]:
        return self._peer.outgoing()

    def decode_command(self, message: bytes) -> list[Command]:
        """What *we* once sent, as a two-way recording holds it: it decides what the answers mean. Sends nothing."""
        command: Command | None = None
        match parse(strict(message)):
            case Request() as request:
                self._remember_call(request.id, request.method, session_in(request.params))
                command = command_in(request)
            case Notification() as notification:
                command = command_in(notification)
            case Response() as response:
                question = self._questions.pop(response.id, None)
                command = None if question is None else answer_in(question, response)
            case _:
                pass
        return [] if command is None else [command]

    def answers(self) -> dict[Id, Reply]:
        """What has become of our requests, by the number :meth:`call` gave them; drains."""
        answers, self._answers = self._answers, {}
        return answers

    def is_open(self, request_id: Id) -> bool:
        """Whether the agent still waits for our answer to this request."""
        return request_id in self._questions

    def in_turn(self, session_id: str) -> bool:
        return session_id in self._turns

    def open_questions(self, session_id: str) -> list[AgentRequest]:
        return [request for request in self._questions.values() if request.session_id == session_id]

    # ---------------------------------------------------------------------------------------------- messages

    def receive(self, message: bytes) -> list[Event]:
        if message.startswith(b"{"):
            return self._received(message)
        return [event for one in messages_in(message) for event in self._received(one)]

    def _received(self, message: bytes) -> list[Event]:
        events = self._withdrawn
        self._withdrawn = []
        try:
            frequent = _FREQUENT.decode(message)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            frequent = None
        if frequent is not None and frequent.id is msgspec.UNSET:
            events.append(self._updated(frequent.params.session_id, frequent.params.update))
            return events
        match parse(strict(message)):
            case Notification() as notification:
                events += self._notified(message, notification)
            case UnknownMessage(why=why):
                events.append(UnknownMessage(message, why))
            case Request() as request:
                events += self._question(message, request)
            case Response() as response:
                events += self._answered(message, response)
        return events

    def receive_eof(self) -> list[Event]:
        events = self._withdrawn
        self._withdrawn = []
        events += [RequestWithdrawn(question, "the agent ended") for question in self._questions.values()]
        for number, (method, session_id) in self._calls.items():
            lost = Unanswered(method, session_id, number)
            self._answers[number] = lost
            events.append(lost)
        self._questions.clear()
        self._calls.clear()
        self._turns.clear()
        self._peer.abandoned()
        return events

    def _notified(self, message: bytes, notification: Notification) -> list[Event]:
        method, params = notification.method, notification.params
        decoder = NOTIFICATIONS.get(method)
        if decoder is not None:
            decoded = decode_or_reason(decoder, params)
            match decoded:
                case _SessionUpdateParams():
                    return [self._update(message, decoded)]
                case _Withdrawal(request_id):
                    return self._taken_back(request_id)
                case CompleteElicitation():
                    return [decoded]
                case _:
                    return [UnknownMessage(message, f"{method}: {decoded}")]
        if method.startswith("_") or method in WITHOUT_MEANING:
            return [ExtensionNotification(method, params)]
        return [UnknownMessage(message, f"unknown notification {method!r}")]

    def _update(self, message: bytes, params: _SessionUpdateParams) -> Event:
        update = UPDATES.decode(bytes(params.update))
        if isinstance(update, UnknownMessage):
            return UnknownMessage(message, f"session/update: {update.why}")
        return self._updated(params.session_id, update)

    def _updated(self, session_id: str, update: KnownUpdate) -> SessionUpdate:
        prefix = self.profile.mode_prefix
        if prefix is not None and isinstance(update, AgentMessageChunk) and update.text.startswith(prefix):
            update = CurrentModeUpdate(update.text.removeprefix(prefix).strip())
        if type(update) not in _CONVERSATION:
            return SessionUpdate(session_id, update)
        if session_id in self._turns and session_id in self._opened and session_id not in self._replaying:
            return SessionUpdate(session_id, update)  # the bulk of a stream
        replayed = self._is_replay(session_id)
        return SessionUpdate(session_id, update, replayed, late=not replayed and self._rests(session_id))

    def _rests(self, session_id: str) -> bool:
        """Whether the agent has answered every prompt of this session, and there was one."""
        if session_id in self._turns or self.profile.begins_turns or session_id not in self._prompted:
            return False
        return ("session/prompt", session_id) not in self._calls.values()

    def _is_idle(self, session_id: str) -> bool:
        """Whether nothing may be asked for in this session now. An unknown one is a part of another's turn."""
        known = session_id in self._opened or session_id in self._prompted
        return self._rests(session_id) if known or not self._prompted else all(map(self._rests, self._prompted))

    def _is_replay(self, session_id: str) -> bool:
        if session_id in self._replaying:
            return True
        # A fork is replayed under its new id before the answer brings us that id.
        return session_id not in self._opened and any(
            method in ("session/fork", "session/load") for method, _ in self._calls.values()
        )

    def _taken_back(self, request_id: Id) -> list[Event]:
        question = self._questions.pop(request_id, None)
        if question is None:
            return []
        self._peer.refuse(request_id, -32800, "Request cancelled")
        return [RequestWithdrawn(question, "the agent cancelled it")]

    def _question(self, message: bytes, request: Request) -> list[Event]:
        decoder = _REQUEST_DECODERS.get(request.method)
        if decoder is None:
            self._peer.refuse(request.id, METHOD_NOT_FOUND, f"Method not found: {request.method}")
            return [UnknownMessage(message, f"unknown request {request.method!r}")]
        decoded = decode_question(decoder, request.params)
        if isinstance(decoded, str):
            self._peer.refuse(request.id, INVALID_PARAMS, decoded)
            return [UnknownMessage(message, f"{request.method}: {decoded}")]
        question = msgspec.structs.replace(decoded, request_id=request.id)
        if not self._listening and (first := self._questions.pop(request.id, None)) is not None:
            # The answer to the one would be taken for the answer to the other.
            self._refuse(first)
            why = f"{request.method}: the agent asked under the id of a question that was still open"
            return [RequestWithdrawn(first, why), UnknownMessage(message, why)]
        if not self._listening and not offers(self.capabilities, question):
            if isinstance(question, WriteTextFile) and self.profile.undeclared_writes_are_echoes:
                self._peer.answer(request.id, {})
                return [RequestDeclined(question, "the agent had already written this file")]
            self._peer.refuse(request.id, METHOD_NOT_FOUND, f"{request.method} was not offered")
            return [RequestDeclined(question, "not offered")]
        if not self._listening and isinstance(question, _IN_TURNS) and self._is_idle(question.session_id):
            self._refuse(question)
            return [RequestDeclined(question, f"the agent asked for {request.method} while no turn was running")]
        self._questions[request.id] = question
        return [question]

    # ------------------------------------------------------------------------------------- answers to our requests

    def _number(self, response: Response) -> Id:
        """The number of our request that is answered. Some give it back as text, and name none where they could not
        read what we said: that was the only request they have."""
        number = response.id
        if isinstance(number, str) and number.isdecimal() and len(number) < _LONGEST_ID and int(number) in self._calls:
            return int(number)
        if number is None and response.fault is not None and len(self._calls) == 1:
            return next(iter(self._calls))
        return number

    def _answered(self, message: bytes, response: Response) -> list[Event]:
        if response.id not in self._calls:
            response = msgspec.structs.replace(response, id=self._number(response))
        self._peer.settle(response)
        call = self._calls.pop(response.id, None)
        if call is None and not self._listening:
            return [UnknownMessage(message, "answers no request of ours")]
        method, session_id = call or ("", "")
        withdrawn = self._end_turn(response.id, session_id)
        reply = self._reply(message, method, session_id, response)
        if isinstance(reply, UnknownMessage):
            # The turn is over however its answer looks; a caller that waits for it must not wait for ever.
            failed = RequestFailed(method, INVALID_PARAMS, reply.why, None, session_id, response.id)
            self._answers[response.id] = failed
            return [*withdrawn, reply, failed]
        if call is not None:
            self._answers[response.id] = reply
        return [*withdrawn, reply]

    def _reply(self, message: bytes, method: str, session_id: str, response: Response) -> Reply | UnknownMessage:
        if response.fault is not None:
            fault = response.fault
            if method in ("session/load", "session/resume"):
                self._forget(session_id)
            details = msgspec.json.decode(bytes(fault.data))
            return RequestFailed(method, fault.code, fault.message, details, session_id, response.id)
        result = bytes(response.result or b"null")
        decoder = _RESPONSE_DECODERS.get(method or method_by_shape(result))
        if decoder is None:
            return UntypedResponse(response.id, msgspec.Raw(result))
        decoded = decode_or_reason(decoder, b"{}" if result == b"null" else result)
        if isinstance(decoded, str):
            return UnknownMessage(message, f"unreadable answer to {method}: {decoded}")
        answer = addressed(decoded, session_id)
        match answer:
            case InitializeResponse():
                self.agent = answer
            case NewSessionResponse():
                self._opened.add(answer.session_id)
            case ForkSessionResponse():
                self._opened.add(answer.session_id)
                self._replaying.add(answer.session_id)
            case CloseSessionResponse() | DeleteSessionResponse():
                self._forget(session_id)
            case _:
                pass
        return answer

    def _forget(self, session_id: str) -> None:
        self._opened.discard(session_id)
        self._replaying.discard(session_id)

    def _end_turn(self, number: Id, session_id: str) -> list[Event]:
        """What the agent asked in a turn that has ended needs no answer, but gets one: the agent may still wait."""
        if session_id not in self._turns or self._turns[session_id] != number:
            return []
        del self._turns[session_id]
        return self._withdraw(session_id, "its turn ended")

    # --------------------------------------------------------------------------------------------------- our side

    def _remember_call(self, number: Id, method: str, session_id: str) -> None:
        self._calls[number] = (method, session_id)
        if method == "session/load":
            self._replaying.add(session_id)
            self._opened.add(session_id)
        elif method == "session/resume":
            self._opened.add(session_id)
        elif method == "session/prompt":
            self._turns[session_id] = number
            self._prompted.add(session_id)
            self._replaying.discard(session_id)

    def _params(self, command: Call) -> object:
        match command:
            case InitializeRequest(client_name=name, client_version=version):
                return {
                    "protocolVersion": PROTOCOL_VERSION,
                    "clientCapabilities": self.capabilities.members(),
                    "clientInfo": {"name": name, "version": version},
                }
            case SetSessionConfigOptionRequest(session_id=session_id, config_id=config_id, value=bool(value)):
                return {"sessionId": session_id, "configId": config_id, "type": "boolean", "value": value}
            case ListToolsRequest(session_id=session_id, cwd=cwd):
                return {"sessionId": session_id, "cwd": cwd}
            case _:
                return command

    def _permit(self, command: Call) -> None:
        if isinstance(command, PromptRequest):
            if command.session_id in self._turns:
                raise LocalProtocolError("a turn is running in this session: wait for its end, or interrupt it first")
            if not command.prompt:
                raise LocalProtocolError("the prompt is empty: pass at least one content block")
        if self.agent is None:
            return
        missing = missing_capability(command, self.agent)
        if missing:
            name = self.agent.agent_info.name if self.agent.agent_info else ""
            raise NotSupported(f"{name or 'this agent'} does not support {missing}")

    def _cancel(self, session_id: str) -> None:
        if session_id in self._turns:
            self._peer.notify("session/cancel", {"sessionId": session_id})
        # Some agents do not act on the cancellation while a question is open: the answers go right behind it.
        self._withdrawn += self._withdraw(session_id, "the turn was cancelled")

    def _withdraw(self, session_id: str, why: str) -> list[Event]:
        withdrawn: list[Event] = []
        for request_id, question in list(self._questions.items()):
            if question.session_id != session_id:
                continue
            del self._questions[request_id]
            withdrawn.append(RequestWithdrawn(question, why))
            self._refuse(question)
        return withdrawn

    def _refuse(self, question: AgentRequest) -> None:
        match question:
            case RequestPermission(request_id=request_id):
                self._peer.answer(request_id, CANCELLED)
            case CreateElicitation(request_id=request_id):
                self._peer.answer(request_id, {"action": "cancel"})
            case _:
                self._peer.refuse(question.request_id, -32800, "Request cancelled")

    def _answer_permission(self, answer: AnswerPermissionRequest) -> None:
        question = self._take(answer.request_id, RequestPermission)
        option_id = answer.option_id
        if option_id is not None and all(option.option_id != option_id for option in question.options):
            self._questions[answer.request_id] = question
            raise LocalProtocolError(f"{option_id!r} is not an option of this question")
        if option_id is None and answer.kind is not None:
            option = question.option(answer.kind, broad=self.profile.broad_options)
            option_id = option.option_id if option else None
        chosen: dict[str, Any] = CANCELLED
        if option_id is not None:
            chosen = {"outcome": {"outcome": "selected", "optionId": option_id}}
        if answer.answers is not None:
            chosen = {**chosen, "answers": dict(answer.answers)}
        self._peer.answer(answer.request_id, chosen)

    def _take(self, request_id: Id, kind: type[Question] | None = None) -> Question:
        question = self._questions.get(request_id)
        if question is None:
            raise LocalProtocolError("this question is closed: it was answered, or its turn has ended")
        if kind is not None and not isinstance(question, kind):
            raise LocalProtocolError(f"this request is a {type(question).__name__}: it needs another kind of answer")
        del self._questions[request_id]
        return cast("Question", question)


def method_of(command: Call) -> str:
    return command.method if isinstance(command, ListToolsRequest) else METHODS[type(command)]


def offers(capabilities: ClientCapabilities, question: AgentRequest) -> bool:
    """Whether we offered this to the agent."""
    match question:
        case RequestPermission():
            return True
        case ReadTextFile():
            return capabilities.read_files
        case WriteTextFile():
            return capabilities.write_files
        case CreateElicitation(mode="form"):
            return capabilities.elicitation_forms
        case CreateElicitation():
            return capabilities.elicitation_urls
        case _:
            return capabilities.terminals


def missing_capability(command: Call, agent: InitializeResponse) -> str:
    """What this command needs and the agent has not declared; empty when it can be sent."""
    capabilities = agent.capabilities
    session = capabilities.session
    match command:
        case LoadSessionRequest() if not capabilities.load_session:
            return "loading a stored session"
        case ResumeSessionRequest() if session.resume is None:
            return "resuming a session"
        case ForkSessionRequest() if session.fork is None:
            return "forking a session"
        case ListSessionsRequest() if session.list is None:
            return "listing its sessions"
        case CloseSessionRequest() if session.close is None:
            return "closing a session"
        case DeleteSessionRequest() if session.delete is None:
            return "deleting a session"
        case PromptRequest(prompt=blocks):
            return _unreadable(blocks, agent)
        case _:
            pass
    if isinstance(command, NewSessionRequest | LoadSessionRequest | ResumeSessionRequest | ForkSessionRequest):
        if any(isinstance(server, McpServerHttp) for server in command.mcp_servers) and not capabilities.mcp.http:
            return "MCP servers over HTTP"
        if any(isinstance(server, McpServerSse) for server in command.mcp_servers) and not capabilities.mcp.sse:
            return "MCP servers over SSE"
    return ""


def _unreadable(blocks: tuple[object, ...], agent: InitializeResponse) -> str:
    readable = agent.capabilities.prompt
    for block in blocks:
        match block:
            case ImageContent() if not readable.image:
                return "images in a prompt"
            case AudioContent() if not readable.audio:
                return "audio in a prompt"
            case EmbeddedResource() if not readable.embedded_context:
                return "embedded resources in a prompt"
            case _:
                pass
    return ""


def strict(message: bytes) -> bytes:
    """Half an emoji or a stray byte deep inside the parameters must not spoil the whole message."""
    if message.isascii() and b"\\ud" not in message and b"\\uD" not in message:
        return message
    try:
        msgspec.json.decode(message)
        return message
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        pass
    try:
        return repaired(message)
    except (ValueError, RecursionError):
        return message


def session_in(params: msgspec.Raw) -> str:
    try:
        return msgspec.json.decode(bytes(params), type=SessionAddress).session_id
    except msgspec.MsgspecError:
        return ""


def method_by_shape(result: bytes) -> str:
    try:
        members = msgspec.json.decode(result, type=dict[str, msgspec.Raw])
    except msgspec.MsgspecError:
        return ""
    return next((method for member, method in METHOD_BY_MEMBER.items() if member in members), "")
