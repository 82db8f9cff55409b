"""OpenCode's conversations as state machines: what ``run`` prints, what ``serve`` gets and sends. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import msgspec

from stagedoor.errors import AlreadyAnswered, LocalProtocolError
from stagedoor.transports.launch import Exited
from stagedoor.wire.http import HttpAnswer, HttpRequest
from stagedoor.wire.shapes import UnknownMessage, decode_or_reason, decode_question

from .command_decoder import command_in
from .commands import (
    Abort,
    CheckStatus,
    Command,
    CreateSession,
    OpenCodeForkSession,
    OpenCodePrompt,
    OpenSession,
    RejectQuestion,
    ReplyPermission,
    ReplyQuestion,
    abort_request,
    create_request,
    fork_request,
    open_requests,
    permission_request,
    prompt_request,
    question_request,
    rejection_request,
)
from .events import (
    RUN_EVENTS,
    SERVER_EVENTS,
    SERVER_NOTICES,
    SERVER_QUESTIONS,
    KnownServerEvent,
    MessagePartDelta,
    MessagePartUpdated,
    MessageUpdated,
    OfSession,
    OpenCodeError,
    PermissionAsked,
    PermissionReplied,
    PermissionV2Asked,
    QuestionAsked,
    QuestionRejected,
    QuestionReplied,
    Runaway,
    RunEvent,
    ServerAnswer,
    ServerConnected,
    ServerEvent,
    ServerHeartbeat,
    ServerListening,
    ServerNotice,
    ServerOutput,
    ServerRefusal,
    SessionCreated,
    SessionError,
    SessionIdle,
    SessionStatus,
    StepFinish,
    StepsExhausted,
    StepStart,
    TurnEnded,
)
from .parts import (
    OpenCodeFailure,
    OpenCodeMessage,
    OpenCodeStatus,
    OpenCodeTokens,
    SessionRecord,
    StepFinishPart,
    StepStartPart,
)

LISTENING = b"opencode server listening on "
ABORTED = "MessageAbortedError"
OVERFLOW = "ContextOverflowError"

# ---------------------------------------------------------------------------------------------------- limits of a turn

MOST_EMPTY_STEPS = 8
"""OpenCode itself gives up after five retries where it counts them; where it does not, we do."""
MOST_OVERFLOWS = 3
"""A conversation that is too long is summarized and tried again; where that does not help, OpenCode never stops."""


class RunawayWatch:
    """Counts steps in a row that began and did not finish for a known reason, and overflows of one turn."""

    def __init__(self, most: int | None = MOST_EMPTY_STEPS) -> None:
        self._most = most
        self.steps = 0
        self.overflows = 0
        self._reported = False

    def count_overflow(self) -> bool:
        """True, once, when summarizing has not helped."""
        self.overflows += 1
        if self._most is None or self.overflows < MOST_OVERFLOWS or self._reported:
            return False
        self._reported = True
        return True

    def start_step(self) -> bool:
        """True, once, when there were too many."""
        self.steps += 1
        if self._most is None or self.steps <= self._most or self._reported:
            return False
        self._reported = True
        return True

    def finish_step(self, reason: str) -> None:
        if reason != "unknown":
            self.steps = 0

    def start_turn(self) -> None:
        self.steps, self.overflows, self._reported = 0, 0, False


class StepLimit:
    """Counts the steps of a turn after which the model wants to continue."""

    def __init__(self, most: int | None) -> None:
        self._most = most
        self.steps = 0

    def finish_step(self, reason: str) -> bool:
        """True, once, when the last step that was allowed is not the end."""
        self.steps += 1
        return reason == "tool-calls" and self.steps == self._most

    def start_turn(self) -> None:
        self.steps = 0


# ---------------------------------------------------------------------------------------------- one turn of the server


_STEP = b'"step-'
"""How the kinds of the parts begin that tell of a step."""


class ServeTurn:
    """Judges when a turn of the server is over.

    After an abort or an error the server reports *idle* twice, and the last parts and the message's end come in
    between; so idle alone proves nothing. A turn is over when the session is idle and none of its assistant messages is
    unfinished.
    """

    def __init__(self, watch: RunawayWatch, limit: StepLimit | None = None) -> None:
        self.running = False
        self._watch = watch
        self._limit = limit or StepLimit(None)
        self._session_id = ""
        self._messages: dict[str, OpenCodeMessage] = {}
        """The last one, and those before it that are not finished."""
        self._older: set[str] = set()
        """Those of earlier turns, and the finished ones of this, which are counted."""
        self._tokens, self._cost = OpenCodeTokens(), 0.0
        self._failure: OpenCodeFailure | None = None
        self.is_under_way = False
        self.was_running = False

    def start(self, session_id: str) -> None:
        self._older |= set(self._messages)
        self.running, self.was_running, self.is_under_way = True, True, False
        self._session_id = session_id
        self._messages = {}
        self._tokens, self._cost = OpenCodeTokens(), 0.0
        self._failure = None
        self._watch.start_turn()
        self._limit.start_turn()

    def observe(self, event: KnownServerEvent) -> list[TurnEnded | Runaway | StepsExhausted]:
        if not self.running or getattr(event, "session_id", None) != self._session_id:
            return []
        if type(event) is MessagePartUpdated:
            return self._step(event)
        match event:
            case MessageUpdated(info=info):
                if info.role == "assistant" and info.id not in self._older:
                    self.is_under_way = True
                    if info.id not in self._messages:
                        self._count_finished()
                    self._messages[info.id] = info
            case SessionStatus(status=status):
                self.is_under_way = self.is_under_way or status.type in ("busy", "retry")
            case SessionError(error=error):
                self.is_under_way = True
                self._failure = self._failure or error
                if error.name == OVERFLOW and self._watch.count_overflow():
                    return [Runaway(self._session_id, self._watch.overflows, "context_overflow")]
            case SessionIdle() if self.is_under_way and all(
                message.time.completed or message.finish for message in self._messages.values()
            ):
                return [self._end()]
            case _:
                pass
        return []

    def refuse(self, refusal: ServerRefusal) -> list[TurnEnded]:
        """The server refused the prompt itself."""
        if not self.running:
            return []
        self._failure = OpenCodeFailure("UnknownError", {"message": refusal.message, "statusCode": refusal.status})
        return [self._end()]

    def end_missed(self) -> list[TurnEnded]:
        """The server answers that the session is not busy: we have missed the turn's end."""
        return [self._end()] if self.running else []

    def cut_off(self) -> list[TurnEnded]:
        """The server has ended."""
        if not self.running:
            return []
        self._failure = self._failure or OpenCodeFailure(
            "UnknownError", {"message": "the server ended in the middle of a turn"}
        )
        return [self._end()]

    def _step(self, event: MessagePartUpdated) -> list[TurnEnded | Runaway | StepsExhausted]:
        if _STEP not in bytes(event.part):  # nearly all: nothing else of a part counts here
            return []
        match event.typed():
            case StepFinishPart(reason=reason):
                self._watch.finish_step(reason)
                if self._limit.finish_step(reason):
                    return [StepsExhausted(self._session_id, self._limit.steps)]
            case StepStartPart() if self._watch.start_step():
                return [Runaway(self._session_id, self._watch.steps)]
            case _:
                pass
        return []

    def _count_finished(self) -> None:
        """A new message has begun: what is finished changes no more. A turn may have very many."""
        for message in [one for one in self._messages.values() if one.time.completed]:
            self._tokens, self._cost = self._tokens.plus(message.tokens), self._cost + message.cost
            self._older.add(message.id)
            del self._messages[message.id]

    def _end(self) -> TurnEnded:
        self.running = False
        tokens, cost = self._tokens, self._cost
        last: OpenCodeMessage | None = None
        for last in self._messages.values():
            tokens, cost = tokens.plus(last.tokens), cost + last.cost
        # A failure that OpenCode overcame (a full context, compacted) is not the turn's: its last message is judged.
        error = last.error if last is not None and (last.finish or last.error) else self._failure
        return TurnEnded(self._session_id, _outcome(error), last.finish if last else None, error, tokens, cost)


def _outcome(error: OpenCodeFailure | None) -> Literal["completed", "failed", "aborted"]:
    if error is None:
        return "completed"
    return "aborted" if error.name == ABORTED else "failed"


# --------------------------------------------------------------------------------------------------- the two protocols


class RunProtocol:
    """``opencode run --format json``: one process is one turn, and nothing can be sent to it."""

    def __init__(self, *, most_empty_steps: int | None = MOST_EMPTY_STEPS, most_steps: int | None = None) -> None:
        self.session_id = ""
        self.turn_id = 0
        self.runaway = False
        self._watch = RunawayWatch(most_empty_steps)
        self._limit = StepLimit(most_steps)

    def receive(self, message: bytes) -> list[RunEvent]:
        event = RUN_EVENTS.decode(message)
        if isinstance(event, UnknownMessage):
            return [event]
        self.session_id = self.session_id or event.session_id
        if isinstance(event, StepFinish):
            self._watch.finish_step(event.part.reason)
            if self._limit.finish_step(event.part.reason):
                return [event, StepsExhausted(event.session_id, self._limit.steps)]
        elif isinstance(event, StepStart) and self._watch.start_step():
            self.runaway = True
            return [event, Runaway(event.session_id, self._watch.steps)]
        elif isinstance(event, OpenCodeError) and event.error.name == OVERFLOW and self._watch.count_overflow():
            self.runaway = True
            return [event, Runaway(event.session_id, self._watch.overflows, "context_overflow")]
        return [event]

    def receive_eof(self) -> list[RunEvent]:
        return []

    def send(self, command: Command) -> None:
        raise LocalProtocolError("opencode run reads its prompt at the start only: use the serve driver to send more")

    def outgoing(self) -> list[bytes]:
        return []


class _ServerEnvelope(msgspec.Struct, frozen=True):
    type: str = ""
    properties: msgspec.Raw = msgspec.Raw(b"{}")
    payload: msgspec.Raw = msgspec.Raw()


class _QuestionId(OfSession, frozen=True, kw_only=True):
    id: str


class _QuestionEnvelope(msgspec.Struct, frozen=True):
    """As much of a question as is needed to refuse it."""

    type: str
    properties: _QuestionId


UNREADABLE = "the client cannot read this question"
_QUESTION_ENVELOPE = msgspec.json.Decoder(_QuestionEnvelope)
_ENVELOPE = msgspec.json.Decoder(_ServerEnvelope)
_DECODERS: dict[str, msgspec.json.Decoder[KnownServerEvent | PermissionV2Asked]] = {
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
        self._turns: dict[str, ServeTurn] = {}
        self._children: set[str] = set()
        self._connected = False
        self._idle_answers = 0  # how many, since the stream broke in a turn whose start we have not seen
        self._in_doubt = False
        self._abort_once_busy = False
        self._is_recording = True  # until we send something, we read a recording and not a server of ours
        self._outgoing: list[HttpRequest] = []

    @property
    def in_turn(self) -> bool:
        return self._turn(self.session_id).running

    # ------------------------------------------------------------------------------------------------------ outgoing

    def send(self, command: Command) -> None:
        """Raises ``LocalProtocolError`` or ``AlreadyAnswered`` for what cannot be sent now."""
        self._is_recording = False
        match command:
            case CreateSession():
                self._request(create_request(command, self._directory))
            case OpenSession(session_id=session_id):
                self.assign_session(session_id)
                self._outgoing += open_requests(command, self._directory)
            case OpenCodeForkSession():
                self._request(fork_request(command, self._directory))
            case OpenCodePrompt():
                self._start_turn(command)
            case Abort():
                self._abort()
            case ReplyPermission(permission_id=permission_id):
                session = self._take(self.permissions, permission_id)
                self._request(permission_request(command, self._directory, session))
            case ReplyQuestion(question_id=question_id):
                session = self._take(self.questions, question_id)
                self._request(question_request(command, self._directory, session))
            case RejectQuestion(question_id=question_id):
                session = self._take(self.questions, question_id)
                self._request(rejection_request(question_id, self._directory, session))
            case CheckStatus():
                self._request(HttpRequest("GET", "/session/status", query={"directory": self._directory}))

    def outgoing(self) -> list[HttpRequest]:
        requests, self._outgoing = self._outgoing, []
        return requests

    def _request(self, request: HttpRequest) -> None:
        self._outgoing.append(request)

    def _start_turn(self, command: OpenCodePrompt) -> None:
        if not self.session_id:
            raise LocalProtocolError("no session is open: create or open one first")
        if self.in_turn:
            # A prompt sent to a busy session is stored, but starts no turn.
            raise LocalProtocolError("a turn is running: wait for TurnEnded, or interrupt it")
        if not command.text.strip() and not command.attachments:
            raise LocalProtocolError("the prompt is empty: pass some text or an attachment")
        self._turn(self.session_id).start(self.session_id)
        self._abort_once_busy = self._in_doubt = False
        self._request(prompt_request(self.session_id, command, self._directory))

    def _abort(self) -> None:
        if not self.session_id:
            return
        if self.in_turn and not self._turn(self.session_id).is_under_way:
            self._abort_once_busy = True  # now it would be ignored
        else:
            self._request(abort_request(self.session_id, self._directory))
        self._close_questions()

    def _close_questions(self) -> None:
        """The server lists an aborted turn's questions for ever, and a tool may wait for them: refuse each."""
        for permission_id in list(self.permissions):
            self.send(ReplyPermission(permission_id, "reject"))
        for question_id in list(self.questions):
            self.send(RejectQuestion(question_id))

    def _take(self, questions: Mapping[str, PermissionAsked | QuestionAsked], key: str) -> str:
        """The question is no longer open. Its session, where it is answered over the next API."""
        question = questions.get(key)
        if question is None:
            raise AlreadyAnswered(f"question {key!r} is closed: it was answered, or its turn is over")
        self.permissions.pop(key, None)
        self.questions.pop(key, None)
        return question.session_id if question.next_api else ""

    def _refuse_unreadable(self, message: bytes) -> None:
        """Nobody can answer a question that we cannot read, and the server would wait for ever."""
        envelope = decode_or_reason(_QUESTION_ENVELOPE, message)
        if self._is_recording or isinstance(envelope, str) or envelope.type not in SERVER_QUESTIONS:
            return
        question = envelope.properties
        session = question.session_id if ".v2." in envelope.type else ""
        if envelope.type.startswith("permission"):
            refusal = ReplyPermission(question.id, "reject", UNREADABLE)
            self._request(permission_request(refusal, self._directory, session))
        else:
            self._request(rejection_request(question.id, self._directory, session))

    # ------------------------------------------------------------------------------------------------------ incoming

    def receive(self, message: bytes) -> list[ServerEvent]:
        if message.startswith(b"{"):
            return self._streamed(message)
        word, _, rest = message.partition(b" ")
        match word:
            case b"sse" if rest.startswith(b"data: "):
                return self._streamed(rest.removeprefix(b"data: "))
            case b"HTTP":
                status, _, body = rest.partition(b" ")
                return [ServerAnswer(int(status), body)] if status.isdigit() else [_output(message)]
            case b"exit" if rest.lstrip(b"-").isdigit():
                return [Exited(int(rest))]
            case b"stdout:":
                return self._printed(rest)
            case _:
                return self._printed(message)

    def receive_answer(self, request: HttpRequest, answer: HttpAnswer) -> list[ServerEvent]:
        """What came back for a request of ours."""
        call = f"{request.method} {request.path}"
        if not answer.ok:
            refused = ServerRefusal(answer.status, call, complaint_in(answer.body))
            if request.path.endswith("/prompt_async"):
                return [refused, *self._turn(self.session_id).refuse(refused)]
            return [refused]
        if request.path in ("/session", f"/session/{self.session_id}") or request.path.endswith("/fork"):
            self._opened(answer.body)
        elif request.path == "/session/status":
            return [ServerAnswer(answer.status, answer.body, call), *self._checked(answer.body)]
        return [ServerAnswer(answer.status, answer.body, call)]

    def decode_command(self, message: bytes) -> list[Command]:
        """The command that a line of a two-way recording was sent for. Sends nothing."""
        command = command_in(message)
        return [] if command is None else [command]

    def receive_eof(self) -> list[ServerEvent]:
        self.permissions.clear()
        self.questions.clear()
        return [event for turn in self._turns.values() for event in turn.cut_off()]

    def assign_session(self, session_id: str) -> None:
        """This conversation belongs to that stored session."""
        self.session_id = session_id

    def _opened(self, body: bytes) -> None:
        try:
            self.record = msgspec.json.decode(body, type=SessionRecord)
        except (msgspec.DecodeError, UnicodeDecodeError):
            return
        self.assign_session(self.record.id)

    def _checked(self, body: bytes) -> list[ServerEvent]:
        try:
            busy = msgspec.json.decode(body, type=dict[str, OpenCodeStatus])
        except (msgspec.DecodeError, UnicodeDecodeError):
            return []
        if self.session_id in busy:
            return []
        self._idle_answers += 1
        turn = self._turn(self.session_id)
        # A prompt just accepted may not be busy yet; at the next heartbeat it is, or it was and we missed it.
        return [*turn.end_missed()] if turn.is_under_way or self._idle_answers > 1 else []

    def _printed(self, line: bytes) -> list[ServerEvent]:
        if line.startswith(LISTENING):
            return [ServerListening(line.removeprefix(LISTENING).decode("utf-8", "replace").strip())]
        return [_output(line)]

    def _streamed(self, message: bytes) -> list[ServerEvent]:
        event = _decoded(message)
        if type(event) is MessagePartDelta:
            return [event]  # the bulk of a stream, which moves no turn
        if type(event) is MessagePartUpdated:
            return [event, *self._in_turn(event)]
        if isinstance(event, (UnknownMessage, ServerNotice)):
            if isinstance(event, UnknownMessage):
                self._refuse_unreadable(message)
            return [event]
        return [event, *self._follow(event)]

    def _follow(self, event: KnownServerEvent) -> list[ServerEvent]:
        match event:
            case ServerConnected():
                again, self._connected = self._connected, True
                if again and self.in_turn:
                    self._in_doubt, self._idle_answers = True, 0
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
        if self._is_recording and not turn.running and session_id not in self._children:
            busy = isinstance(event, SessionStatus) and event.status.type == "busy"
            failed = isinstance(event, SessionError) and not turn.was_running
            if busy or failed:
                turn.start(session_id)
        consequences = turn.observe(event)
        if not consequences and not self._abort_once_busy:
            return []
        if any(isinstance(consequence, (Runaway, StepsExhausted)) for consequence in consequences) or (
            self._abort_once_busy and turn.is_under_way
        ):
            self._abort_once_busy = False
            self._abort()
        if any(isinstance(consequence, TurnEnded) for consequence in consequences) and not self._is_recording:
            self._close_questions()
        return [*consequences]

    def _turn(self, session_id: str) -> ServeTurn:
        turn = self._turns.get(session_id)
        if turn is None:
            turn = self._turns[session_id] = ServeTurn(RunawayWatch(self._most_empty_steps), self._limit_of(session_id))
        return turn

    def _limit_of(self, session_id: str) -> StepLimit:
        """Only the session's own steps are counted, not those of its sub-agents."""
        return StepLimit(None if session_id in self._children else self._most_steps)


class _DeltaEnvelope(msgspec.Struct, frozen=True, gc=False, tag_field="type", tag="message.part.delta"):
    properties: MessagePartDelta


class _PartEnvelope(msgspec.Struct, frozen=True, gc=False, tag_field="type", tag="message.part.updated"):
    properties: MessagePartUpdated


_FREQUENT: msgspec.json.Decoder[_DeltaEnvelope | _PartEnvelope] = msgspec.json.Decoder(_DeltaEnvelope | _PartEnvelope)
"""The bulk of a stream: typed in one pass."""


def _decoded(message: bytes) -> KnownServerEvent | ServerNotice | UnknownMessage:
    try:
        return _FREQUENT.decode(message).properties
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        pass
    envelope = decode_or_reason(_ENVELOPE, message)
    if not isinstance(envelope, str) and bytes(envelope.payload):  # /global/event wraps what /event sends
        envelope = decode_or_reason(_ENVELOPE, envelope.payload)
    if isinstance(envelope, str):
        return UnknownMessage(message, envelope)
    decoder = _DECODERS.get(envelope.type)
    if decoder is not None:
        decode = decode_question if envelope.type in SERVER_QUESTIONS else decode_or_reason
        event = decode(decoder, envelope.properties)
        match event:
            case str():
                return UnknownMessage(message, event)
            case PermissionV2Asked():
                return event.question()
            case QuestionAsked() if ".v2." in envelope.type:
                return msgspec.structs.replace(event, next_api=True)
            case _:
                return event
    if envelope.type in SERVER_NOTICES:
        return ServerNotice(envelope.type, msgspec.Raw(bytes(envelope.properties)))
    return UnknownMessage(message, f"unknown type {envelope.type!r}" if envelope.type else "no 'type' in the message")


def _output(line: bytes) -> ServerOutput:
    return ServerOutput(line.decode("utf-8", "replace"))


class _Complaint(msgspec.Struct, frozen=True):
    message: str = ""
    data: dict[str, Any] = {}
    name: str = ""
    tag: str = msgspec.field(default="", name="_tag")


def complaint_in(body: bytes) -> str:
    """The reason in the body of a refusal."""
    try:
        complaint = msgspec.json.decode(body, type=_Complaint)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return body.decode("utf-8", "replace")[:500]
    return (
        complaint.message
        or str(complaint.data.get("message", ""))
        or complaint.name
        or complaint.tag
        or body.decode()[:500]
    )
