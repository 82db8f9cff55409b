"""The Claude Code conversation (stream-json both ways, with the control channel) as a state machine. Pure."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, cast

import msgspec

from ...errors import AlreadyAnswered
from ...wire.shapes import UnknownMessage, repaired
from .commands import (
    AnswerCanUseTool,
    AnswerControlRequest,
    AnswerHook,
    AnswerMcp,
    ClaudeInterrupt,
    ClaudePrompt,
    Command,
    Decision,
    PermissionResultAllow,
    PermissionResultDeny,
    RefuseControlRequest,
    Reply,
    Request,
    StopTask,
    request_body,
)
from .events import (
    QUESTIONS,
    SHAPES,
    Assistant,
    CanUseTool,
    ClaudeResult,
    ControlCancelRequest,
    ControlRequest,
    ControlResponse,
    Event,
    HookCallback,
    Question,
    SessionStateChanged,
    StreamEvent,
    SystemInit,
    SystemStatus,
    TaskNotification,
    TaskStarted,
    TaskUpdated,
    TurnSettled,
    User,
)

_FREQUENT: tuple[tuple[bytes, Callable[[bytes], Event]], ...] = (
    (b'{"type":"stream_event"', msgspec.json.Decoder(StreamEvent).decode),
    (b'{"type":"assistant"', msgspec.json.Decoder(Assistant).decode),
    (b'{"type":"user"', msgspec.json.Decoder(User).decode),
)
"""The bulk of a stream, which changes nothing in who waits for whom: decoded without a detour."""


class ClaudeProtocol:
    """One conversation. Questions stay open until answered, cancelled by the agent, or cut off by the end."""

    def __init__(self) -> None:
        self._outgoing: list[bytes] = []
        self._requests = 0
        self._awaited: dict[str, Request | ClaudeInterrupt] = {}
        self._questions: dict[str, Question] = {}
        self._ended = False
        self.turn = ClaudeTurn()
        self.session_id = ""
        self.turn_id = 0

    # ------------------------------------------------------------------------------------------- from Claude Code

    def receive(self, message: bytes) -> list[Event]:
        """One line of output. Never raises on content."""
        for opening, decode in _FREQUENT:
            if message.startswith(opening):
                try:
                    return [decode(message)]
                except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
                    break  # the table repairs what can be repaired
        event = SHAPES.decode(message)
        return (
            [self._question(event, message)] if type(event) is ControlRequest else self._observe(cast("Event", event))
        )

    def receive_eof(self) -> list[Event]:
        """The output ended: open questions are void, and a turn that ran is over."""
        self._ended = True
        self._awaited.clear()
        events: list[Event] = [ControlCancelRequest(request_id) for request_id in self._questions]
        self._questions.clear()
        end = self.turn.end()
        return events if end is None else [*events, end]

    def _observe(self, event: Event) -> list[Event]:
        if type(event) is ControlResponse:
            self._awaited.pop(event.request_id, None)
        elif type(event) is ControlCancelRequest:
            self._questions.pop(event.request_id, None)
        else:
            self.session_id = event.session_id or self.session_id
        judge = _TURN.get(type(event))
        if judge is None:
            return [event]
        end = judge(self.turn, event)
        self.turn_id = self.turn.number
        return [event] if end is None else [event, end]

    def _question(self, envelope: ControlRequest, message: bytes) -> Event:
        decoded = QUESTIONS.decode(bytes(envelope.request))
        if isinstance(decoded, UnknownMessage):
            # Silence would leave the agent waiting for ever.
            self._respond(envelope.request_id, error="this host does not know that request")
            return UnknownMessage(message, decoded.why)
        question = msgspec.structs.replace(decoded, request_id=envelope.request_id)
        self._questions[envelope.request_id] = question
        return question

    @property
    def ended(self) -> bool:
        """The output is over."""
        return self._ended

    @property
    def open_questions(self) -> Mapping[str, Question]:
        """The agent's questions that nobody has answered yet, by request id."""
        return self._questions

    @property
    def awaited(self) -> Mapping[str, Request | ClaudeInterrupt]:
        """Our requests that the agent has not answered yet, by request id."""
        return self._awaited

    # --------------------------------------------------------------------------------------------- to Claude Code

    def send(self, command: Command) -> None:
        """What the caller wants. An answer that comes too late raises :class:`AlreadyAnswered`."""
        match command:
            case ClaudePrompt():
                self._prompt(command)
            case ClaudeInterrupt():
                self.request(command)
            case AnswerCanUseTool() | AnswerHook() | AnswerMcp() | AnswerControlRequest() | RefuseControlRequest():
                self._reply(command)
            case _:
                self.request(command)

    def request(self, request: Request | ClaudeInterrupt) -> str:
        """Queue a control request and return the id its :class:`ControlResponse` will carry."""
        if isinstance(request, ClaudeInterrupt):
            # Claude Code's own interrupt leaves background tasks running, and they would wake the model again.
            for task_id in self.turn.open_tasks:
                self.request(StopTask(task_id))
        self._requests += 1
        request_id = f"stagedoor_{self._requests}"
        body = {"subtype": "interrupt"} if isinstance(request, ClaudeInterrupt) else request_body(request)
        self._awaited[request_id] = request
        self._write({"type": "control_request", "request_id": request_id, "request": body})
        return request_id

    def outgoing(self) -> list[bytes]:
        messages, self._outgoing = self._outgoing, []
        return messages

    def decode_command(self, message: bytes) -> list[Command]:
        """The command behind a host's line in a two-way recording. Sends nothing."""
        command = _command_in(message, self._questions)
        match command:
            case None:
                return []
            case ClaudePrompt():
                self.turn.begin()
            case AnswerCanUseTool() | AnswerHook() | AnswerMcp() | AnswerControlRequest() | RefuseControlRequest():
                self._questions.pop(command.request_id, None)
            case _:
                pass
        return [command]

    def _prompt(self, prompt: ClaudePrompt) -> None:
        line: dict[str, Any] = {"type": "user", "message": {"role": "user", "content": prompt.content}}
        if prompt.uuid is not None:
            line["uuid"] = prompt.uuid
        if prompt.parent_tool_use_id is not None:
            line["parent_tool_use_id"] = prompt.parent_tool_use_id
        self.turn.begin()
        self.turn_id = self.turn.number
        self._write(line)

    def _reply(self, reply: Reply) -> None:
        question = self._questions.pop(reply.request_id, None)
        if question is None:
            raise AlreadyAnswered(
                f"question {reply.request_id!r} is not open: it was answered, or the agent cancelled it, or the "
                "session ended; answer each question once, while it is open"
            )
        match reply:
            case AnswerCanUseTool(request_id, decision):
                self._respond(request_id, permission_body(decision, question))
            case AnswerHook(request_id, output):
                self._respond(request_id, output)
            case AnswerMcp(request_id, message):
                self._respond(request_id, {"mcp_response": message or {"jsonrpc": "2.0", "result": {}, "id": 0}})
            case AnswerControlRequest(request_id, response):
                self._respond(request_id, response)
            case RefuseControlRequest(request_id, error):
                self._respond(request_id, error=error)

    def _respond(self, request_id: str, response: Mapping[str, Any] | None = None, *, error: str | None = None) -> None:
        if self._ended:
            return
        body: dict[str, Any] = {"subtype": "success" if error is None else "error", "request_id": request_id}
        body |= {"response": response or {}} if error is None else {"error": error}
        self._write({"type": "control_response", "response": body})

    def _write(self, line: object) -> None:
        try:
            message = msgspec.json.encode(line)
        except UnicodeEncodeError:  # half of a surrogate pair, which JSON can escape and UTF-8 cannot hold
            message = json.dumps(msgspec.to_builtins(line), separators=(",", ":")).encode()
        self._outgoing.append(message)


def permission_body(decision: Decision, question: Question) -> dict[str, Any]:
    """The answer to a permission question. Claude Code insists on ``updatedInput`` and on ``message``."""
    match decision:
        case PermissionResultAllow(updated_input, updated_permissions):
            original = question.input if isinstance(question, CanUseTool) else {}
            body: dict[str, Any] = {
                "behavior": "allow",
                "updatedInput": original if updated_input is None else updated_input,
            }
            if updated_permissions:
                body["updatedPermissions"] = list(updated_permissions)
            return body
        case PermissionResultDeny(message, interrupt):
            denial: dict[str, Any] = {"behavior": "deny", "message": message or PermissionResultDeny().message}
            if interrupt:
                denial["interrupt"] = True
            return denial


# ------------------------------------------------------------------------------------- when is a turn really over?


class ClaudeTurn:
    """Judges when a turn is over.

    A ``result`` is not the end: a background task that finishes wakes the model again, which gives another ``result``.
    ``session_state_changed`` to ``idle`` is not the end either: it does not wait for background commands. The turn is
    over at the first ``idle`` with no task open. A task that ended while the model was at work is told to it with its
    next request, without a notification. Where the state events are off, a ``result`` stands in for ``idle``.
    """

    def __init__(self) -> None:
        self._state_events = False
        self._running = False
        self._result: ClaudeResult | None = None
        self._tasks: dict[str, None] = {}
        self._ended_tasks: set[str] = set()
        self.number = 0
        """Of the running turn, or of the last one."""

    @property
    def running(self) -> bool:
        """Whether a turn is running."""
        return self._running

    @property
    def open_tasks(self) -> tuple[str, ...]:
        return tuple(self._tasks)

    def begin(self) -> None:
        """A prompt is on its way."""
        self.number += not self._running
        self._running = True

    def status(self, event: SystemStatus) -> None:
        if self._ended_tasks and event.status == "requesting":
            for task_id in self._ended_tasks:
                self._tasks.pop(task_id, None)
            self._ended_tasks.clear()

    def init(self, event: SystemInit) -> None:
        self.begin()  # a prompt that had waited for the end of the turn before

    def task_started(self, event: TaskStarted) -> None:
        self._tasks[event.task_id] = None

    def task_updated(self, event: TaskUpdated) -> None:
        if event.patch.end_time is not None:
            self._ended_tasks.add(event.task_id)

    def task_notified(self, event: TaskNotification) -> None:
        self._tasks.pop(event.task_id, None)

    def result(self, event: ClaudeResult) -> TurnSettled | None:
        self._result = event
        return None if self._state_events else self._settle()

    def state_changed(self, event: SessionStateChanged) -> TurnSettled | None:
        self._state_events = True
        if event.state == "running":
            self.begin()
        return self._settle() if event.state == "idle" else None

    def end(self) -> TurnSettled | None:
        """The stream ended: whatever ran is over, and no task will ever report."""
        if not self._running and self._result is None:
            return None
        unfinished, self._tasks = tuple(self._tasks), {}
        return self._close(unfinished)

    def _settle(self) -> TurnSettled | None:
        return None if self._tasks or self._result is None else self._close()

    def _close(self, unfinished: tuple[str, ...] = ()) -> TurnSettled:
        result, self._running, self._result = self._result, False, None
        return TurnSettled(result=result, unfinished=unfinished)


_TURN: dict[type, Callable[[ClaudeTurn, Any], TurnSettled | None]] = {
    SystemStatus: ClaudeTurn.status,
    SystemInit: ClaudeTurn.init,
    TaskStarted: ClaudeTurn.task_started,
    TaskUpdated: ClaudeTurn.task_updated,
    TaskNotification: ClaudeTurn.task_notified,
    ClaudeResult: ClaudeTurn.result,
    SessionStateChanged: ClaudeTurn.state_changed,
}
"""What tells whether a turn is over, and the judgement when it is."""


# ------------------------------------------------------ a host's lines in a recording, read back into its commands

UNREADABLE = "the answer could not be read, so the call was refused"


class _HostMessage(msgspec.Struct):
    content: str | list[dict[str, Any]]


class _HostRequest(msgspec.Struct):
    subtype: str = ""


class _HostResponse(msgspec.Struct):
    request_id: str
    subtype: str = ""
    response: msgspec.Raw = msgspec.Raw(b"{}")
    error: str = ""


class _HostLine(msgspec.Struct):
    type: str = ""
    message: _HostMessage | None = None
    request: _HostRequest | None = None
    response: _HostResponse | None = None


class _PermissionAnswer(msgspec.Struct, rename="camel"):
    """Claude Code insists on ``updatedInput`` and on ``message``; without them it takes neither answer."""

    behavior: str
    updated_input: dict[str, Any] | None = None
    updated_permissions: list[msgspec.Raw] = []
    message: str | None = None
    interrupt: bool = False


_HOST_LINE = msgspec.json.Decoder(_HostLine)


def _command_in(message: bytes, questions: Mapping[str, Question]) -> Command | None:
    """``None`` for what Claude Code does not take, and for what has no bearing on a turn."""
    match _host_line(message):
        case _HostLine("user", message=_HostMessage(content)):
            return ClaudePrompt(content)
        case _HostLine("control_request", request=_HostRequest("interrupt")):
            return ClaudeInterrupt()
        case _HostLine("control_response", response=_HostResponse() as response) if response.request_id in questions:
            return _answer(questions[response.request_id], response)
        case _:
            return None


def _answer(question: Question, response: _HostResponse) -> Command:
    if response.subtype != "success":
        return RefuseControlRequest(question.request_id, response.error)
    match question:
        case CanUseTool():
            return AnswerCanUseTool(question.request_id, _decision(question, response.response))
        case HookCallback():
            return AnswerHook(question.request_id, _members(response.response))
        case _:
            return AnswerControlRequest(question.request_id, _members(response.response))


def _decision(question: CanUseTool, body: msgspec.Raw) -> Decision:
    try:
        answer = msgspec.json.decode(body, type=_PermissionAnswer)
    except msgspec.DecodeError:
        return PermissionResultDeny(UNREADABLE)
    match answer:
        case _PermissionAnswer("allow", updated_input=dict()):
            changed = None if answer.updated_input == question.input else answer.updated_input
            return PermissionResultAllow(changed, answer.updated_permissions)
        case _PermissionAnswer("deny", message=str(words)):
            return PermissionResultDeny(words, interrupt=answer.interrupt)
        case _:
            return PermissionResultDeny(UNREADABLE)


def _members(body: msgspec.Raw) -> dict[str, Any]:
    try:
        return msgspec.json.decode(body, type=dict[str, Any])
    except msgspec.DecodeError:
        return {}


def _host_line(message: bytes) -> _HostLine | None:
    for read in (bytes, repaired):
        try:
            return _HOST_LINE.decode(read(message))
        except msgspec.ValidationError:
            return None
        except (msgspec.DecodeError, ValueError, RecursionError):
            continue
    return None
