"""OpenCode's conversations as state machines: what ``run`` prints, and what ``serve`` is asked and says. Pure."""

from __future__ import annotations

from typing import Any

import msgspec

from stagedoor.errors import AlreadyAnswered, LocalProtocolError
from stagedoor.transports.launch import Exited
from stagedoor.wire.http import Answer, Request
from stagedoor.wire.shapes import Unrecognized, repaired

from .command_decoder import command_in
from .commands import (
    Abort,
    CheckStatus,
    Command,
    CreateSession,
    ForkSession,
    OpenSession,
    Prompt,
    RejectQuestion,
    ReplyPermission,
    ReplyQuestion,
)
from .events import (
    RUN_EVENTS,
    SERVER_EVENTS,
    SERVER_NOTICES,
    Answered,
    Error,
    KnownServerEvent,
    PermissionAsked,
    PermissionReplied,
    QuestionAsked,
    QuestionRejected,
    QuestionReplied,
    Refused,
    Runaway,
    RunEvent,
    ServerConnected,
    ServerEvent,
    ServerHeartbeat,
    ServerListening,
    ServerNotice,
    ServerSaid,
    SessionCreated,
    SessionRecord,
    SessionStatus,
    Status,
    StepFinish,
    StepsExhausted,
    StepStart,
    TurnEnded,
)
from .requests import abort, create, fork, open_stored, prompt, reject_question, reply_permission, reply_question
from .runaway import MOST_EMPTY_STEPS, STAYS_TOO_LONG, RunawayWatch, StepLimit
from .turn import OVERFLOW, Turn

LISTENING = b"opencode server listening on "


class RunProtocol:
    """``opencode run --format json``: one process is one turn, and nothing can be said to it."""

    def __init__(self, *, most_empty_steps: int | None = MOST_EMPTY_STEPS, most_steps: int | None = None) -> None:
        self.session_id = ""
        self.runaway = False
        self._watch = RunawayWatch(most_empty_steps)
        self._limit = StepLimit(most_steps)

    def receive(self, message: bytes) -> list[RunEvent]:
        event = RUN_EVENTS.decode(message)
        if isinstance(event, Unrecognized):
            return [event]
        self.session_id = self.session_id or event.session_id
        if isinstance(event, StepFinish):
            self._watch.step_finished(event.part.reason)
            if self._limit.step_finished(event.part.reason):
                return [event, StepsExhausted(event.session_id, self._limit.steps)]
        elif isinstance(event, StepStart) and self._watch.step_began():
            self.runaway = True
            return [event, Runaway(event.session_id, self._watch.steps)]
        elif isinstance(event, Error) and event.error.name == OVERFLOW and self._watch.overflowed():
            self.runaway = True
            return [event, Runaway(event.session_id, self._watch.overflows, STAYS_TOO_LONG)]
        return [event]

    def receive_eof(self) -> list[RunEvent]:
        return []

    def send(self, command: Command) -> None:
        raise LocalProtocolError(
            "opencode run takes its prompt at the start and nothing afterwards; use the serve driver"
        )

    def outgoing(self) -> list[bytes]:
        return []


class _Envelope(msgspec.Struct, frozen=True):
    type: str = ""
    properties: msgspec.Raw = msgspec.Raw(b"{}")
    payload: msgspec.Raw = msgspec.Raw()


_ENVELOPE = msgspec.json.Decoder(_Envelope)
_DECODERS: dict[str, msgspec.json.Decoder[KnownServerEvent]] = {
    name: msgspec.json.Decoder(shape) for name, shape in SERVER_EVENTS.items()
}


class ServeProtocol:
    """One conversation with ``opencode serve``, sub-agents included.

    ``receive`` takes what the event stream carries, what the server prints, and the lines of a two-way recording alike.
    ``outgoing`` gives HTTP requests; what comes back goes into ``receive_answer``.
    """

    def __init__(
        self,
        *,
        directory: str = "",
        most_empty_steps: int | None = MOST_EMPTY_STEPS,
        most_steps: int | None = None,
    ) -> None:
        self.session_id = ""
        self.record: SessionRecord | None = None
        self.permissions: dict[str, PermissionAsked] = {}
        self.questions: dict[str, QuestionAsked] = {}
        self._directory = directory
        self._most_empty_steps = most_empty_steps
        self._most_steps = most_steps
        self._turns: dict[str, Turn] = {}
        self._children: set[str] = set()
        self._connected = False
        self._found_idle = 0  # how often, since the stream broke in a turn whose beginning we have not heard
        self._in_doubt = False
        self._abort_once_busy = False
        self._listening = True  # until we ask for something, we hear a recording and not a server of ours
        self._outgoing: list[Request] = []

    @property
    def in_turn(self) -> bool:
        return self._turn(self.session_id).running

    # --------------------------------------------------------------------------------------------------- what we say

    def send(self, command: Command) -> None:
        """Raises ``LocalProtocolError`` or ``AlreadyAnswered`` for what cannot be said now."""
        self._listening = False
        match command:
            case CreateSession():
                self._say(create(command, self._directory))
            case OpenSession(session_id=session_id):
                self.opens(session_id)
                self._outgoing += open_stored(command, self._directory)
            case ForkSession():
                self._say(fork(command, self._directory))
            case Prompt():
                self._begin(command)
            case Abort():
                self._abort()
            case ReplyPermission(permission_id=permission_id):
                self._take(self.permissions, permission_id)
                self._say(reply_permission(command, self._directory))
            case ReplyQuestion(question_id=question_id):
                self._take(self.questions, question_id)
                self._say(reply_question(command, self._directory))
            case RejectQuestion(question_id=question_id):
                self._take(self.questions, question_id)
                self._say(reject_question(question_id, self._directory))
            case CheckStatus():
                self._say(Request("GET", "/session/status", query={"directory": self._directory}))

    def outgoing(self) -> list[Request]:
        requests, self._outgoing = self._outgoing, []
        return requests

    def _say(self, request: Request) -> None:
        self._outgoing.append(request)

    def _begin(self, command: Prompt) -> None:
        if not self.session_id:
            raise LocalProtocolError("there is no session yet: create or open one first")
        if self.in_turn:
            # A prompt sent to a busy session is stored, but gets no turn of its own.
            raise LocalProtocolError("a turn is running: wait for TurnEnded, or interrupt it")
        if not command.text.strip() and not command.attachments:
            raise LocalProtocolError("an empty prompt: OpenCode would call the model with nothing to do")
        self._turn(self.session_id).begin(self.session_id)
        self._abort_once_busy = self._in_doubt = False
        self._say(prompt(self.session_id, command, self._directory))

    def _abort(self) -> None:
        if not self.session_id:
            return
        if self.in_turn and not self._turn(self.session_id).began:
            self._abort_once_busy = True  # now it would be ignored
        else:
            self._say(abort(self.session_id, self._directory))
        self._close_questions()

    def _close_questions(self) -> None:
        """The server lists an aborted turn's questions for ever, and a tool may wait for them: refuse each."""
        for permission_id in list(self.permissions):
            self.send(ReplyPermission(permission_id, "reject"))
        for question_id in list(self.questions):
            self.send(RejectQuestion(question_id))

    def _take(self, open_ones: dict[str, Any], key: str) -> None:
        if open_ones.pop(key, None) is None:
            raise AlreadyAnswered(f"{key} is closed: it was answered, or its turn is over")

    # -------------------------------------------------------------------------------------------------- what we hear

    def receive(self, message: bytes) -> list[ServerEvent]:
        if message.startswith(b"{"):
            return self._streamed(message)
        word, _, rest = message.partition(b" ")
        match word:
            case b"sse" if rest.startswith(b"data: "):
                return self._streamed(rest.removeprefix(b"data: "))
            case b"HTTP":
                status, _, body = rest.partition(b" ")
                return [Answered(int(status), body)] if status.isdigit() else [_said(message)]
            case b"exit" if rest.lstrip(b"-").isdigit():
                return [Exited(int(rest))]
            case b"stdout:":
                return self._printed(rest)
            case _:
                return self._printed(message)

    def receive_answer(self, request: Request, answer: Answer) -> list[ServerEvent]:
        """What came back for a request of ours."""
        call = f"{request.method} {request.path}"
        if not answer.ok:
            refused = Refused(answer.status, call, complaint_in(answer.body))
            if request.path.endswith("/prompt_async"):
                return [refused, *self._turn(self.session_id).refused(refused)]
            return [refused]
        if request.path in ("/session", f"/session/{self.session_id}") or request.path.endswith("/fork"):
            self._opened(answer.body)
        elif request.path == "/session/status":
            return [Answered(answer.status, answer.body, call), *self._checked(answer.body)]
        return [Answered(answer.status, answer.body, call)]

    def decode_command(self, message: bytes) -> list[Command]:
        """What a client once asked for, as a two-way recording holds it. Sends nothing."""
        command = command_in(message)
        return [] if command is None else [command]

    def receive_eof(self) -> list[ServerEvent]:
        self.permissions.clear()
        self.questions.clear()
        return [ended for turn in self._turns.values() for ended in turn.cut_off()]

    def opens(self, session_id: str) -> None:
        """This conversation is that stored session's."""
        self.session_id = session_id

    def _opened(self, body: bytes) -> None:
        try:
            self.record = msgspec.json.decode(body, type=SessionRecord)
        except (msgspec.DecodeError, UnicodeDecodeError):
            return
        self.opens(self.record.id)

    def _checked(self, body: bytes) -> list[ServerEvent]:
        try:
            busy = msgspec.json.decode(body, type=dict[str, Status])
        except (msgspec.DecodeError, UnicodeDecodeError):
            return []
        if self.session_id in busy:
            return []
        self._found_idle += 1
        turn = self._turn(self.session_id)
        # A prompt just accepted may not be busy yet; at the next heartbeat it is, or it was and nobody heard.
        return [*turn.found_idle()] if turn.began or self._found_idle > 1 else []

    def _printed(self, line: bytes) -> list[ServerEvent]:
        if line.startswith(LISTENING):
            return [ServerListening(line.removeprefix(LISTENING).decode("utf-8", "replace").strip())]
        return [_said(line)]

    def _streamed(self, message: bytes) -> list[ServerEvent]:
        event = _decoded(message)
        if isinstance(event, (Unrecognized, ServerNotice)):
            return [event]
        return [event, *self._noticed(event)]

    def _noticed(self, event: KnownServerEvent) -> list[ServerEvent]:
        match event:
            case ServerConnected():
                again, self._connected = self._connected, True
                if again and self.in_turn:
                    self._in_doubt, self._found_idle = True, 0
                    self.send(CheckStatus())
            case ServerHeartbeat():
                if self._in_doubt and self.in_turn:
                    self.send(CheckStatus())
            case SessionCreated(info=info):
                if info.parent_id is not None:
                    self._children.add(info.id)
            case PermissionAsked():
                self.permissions[event.id] = event
            case PermissionReplied(request_id=request_id):
                self.permissions.pop(request_id, None)
            case QuestionAsked():
                self.questions[event.id] = event
            case QuestionReplied(request_id=request_id) | QuestionRejected(request_id=request_id):
                self.questions.pop(request_id, None)
            case _:
                return self._in_turn(event)
        return []

    def _in_turn(self, event: KnownServerEvent) -> list[ServerEvent]:
        session_id = getattr(event, "session_id", "")
        turn = self._turn(session_id)
        busy = isinstance(event, SessionStatus) and event.status.type == "busy"
        if self._listening and busy and not turn.running and session_id not in self._children:
            turn.begin(session_id)
        consequences = turn.sees(event)
        if any(isinstance(one, (Runaway, StepsExhausted)) for one in consequences) or (
            self._abort_once_busy and turn.began
        ):
            self._abort_once_busy = False
            self._abort()
        if any(isinstance(one, TurnEnded) for one in consequences) and not self._listening:
            self._close_questions()
        return [*consequences]

    def _turn(self, session_id: str) -> Turn:
        turn = self._turns.get(session_id)
        if turn is None:
            turn = self._turns[session_id] = Turn(RunawayWatch(self._most_empty_steps), self._limit_of(session_id))
        return turn

    def _limit_of(self, session_id: str) -> StepLimit:
        """Only the session's own steps are counted, not those of its sub-agents."""
        return StepLimit(None if session_id in self._children else self._most_steps)


def _decoded(message: bytes) -> KnownServerEvent | ServerNotice | Unrecognized:
    try:
        return _typed(message, message)
    except msgspec.ValidationError as error:
        return Unrecognized(message, str(error))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        pass
    try:
        return _typed(message, repaired(message))
    except (msgspec.DecodeError, ValueError, RecursionError) as error:
        return Unrecognized(message, str(error) or type(error).__name__)


def _typed(raw: bytes, message: bytes) -> KnownServerEvent | ServerNotice | Unrecognized:
    envelope = _ENVELOPE.decode(message)
    if bytes(envelope.payload):  # /global/event wraps what /event says
        envelope = _ENVELOPE.decode(bytes(envelope.payload))
    decoder = _DECODERS.get(envelope.type)
    if decoder is not None:
        return decoder.decode(bytes(envelope.properties))
    if envelope.type in SERVER_NOTICES:
        return ServerNotice(envelope.type, msgspec.Raw(bytes(envelope.properties)))
    return Unrecognized(raw, f"unknown type {envelope.type!r}" if envelope.type else "no 'type' in the message")


def _said(line: bytes) -> ServerSaid:
    return ServerSaid(line.decode("utf-8", "replace"))


class _Complaint(msgspec.Struct, frozen=True):
    message: str = ""
    data: dict[str, Any] = {}
    name: str = ""
    tag: str = msgspec.field(default="", name="_tag")


def complaint_in(body: bytes) -> str:
    """What the body of a refusal says."""
    try:
        said = msgspec.json.decode(body, type=_Complaint)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return body.decode("utf-8", "replace")[:500]
    return said.message or str(said.data.get("message", "")) or said.name or said.tag or body.decode()[:500]
