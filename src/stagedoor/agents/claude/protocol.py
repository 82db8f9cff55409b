"""The Claude Code conversation (stream-json both ways, with the control channel) as a state machine. Pure."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from ...errors import AlreadyAnswered
from ...wire.shapes import Unrecognized
from .command_decoder import command_in
from .commands import (
    Allow,
    Answer,
    AnswerHook,
    AnswerMcp,
    AnswerPermission,
    Command,
    Decision,
    Deny,
    Interrupt,
    Prompt,
    Refuse,
    Reply,
    Request,
    StopTask,
    request_body,
)
from .events import (
    SHAPES,
    Assistant,
    ControlCancelRequest,
    ControlRequest,
    ControlResponse,
    Event,
    StreamEvent,
    User,
)
from .requests import QUESTIONS, CanUseTool, Question
from .turn import Turn

_OFTEN: tuple[tuple[bytes, Callable[[bytes], Event]], ...] = (
    (b'{"type":"stream_event"', msgspec.json.Decoder(StreamEvent).decode),
    (b'{"type":"assistant"', msgspec.json.Decoder(Assistant).decode),
    (b'{"type":"user"', msgspec.json.Decoder(User).decode),
)
"""The bulk of a stream, which says nothing about who waits for whom: decoded without a detour."""


class ClaudeProtocol:
    """One conversation. Questions stay open until answered, cancelled by the agent, or cut off by the end."""

    def __init__(self) -> None:
        self._outgoing: list[bytes] = []
        self._requests = 0
        self._awaited: dict[str, Request | Interrupt] = {}
        self._questions: dict[str, Question] = {}
        self._ended = False
        self.turn = Turn()
        self.session_id = ""

    # ------------------------------------------------------------------------------------------------ what it says

    def receive(self, message: bytes) -> list[Event]:
        """One line of output. Never raises on content."""
        for opening, decode in _OFTEN:
            if message.startswith(opening):
                try:
                    return [decode(message)]
                except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
                    break  # the table repairs what can be repaired
        return self._noted(SHAPES.decode(message), message)

    def receive_eof(self) -> list[Event]:
        """The output ended: open questions are void, and a turn that ran is over."""
        self._ended = True
        self._awaited.clear()
        voided: list[Event] = [ControlCancelRequest(request_id) for request_id in self._questions]
        self._questions.clear()
        settled = self.turn.end()
        return voided if settled is None else [*voided, settled]

    def _noted(self, event: Event | ControlRequest, message: bytes) -> list[Event]:
        if isinstance(event, ControlRequest):
            return [self._question(event, message)]
        if isinstance(event, ControlResponse):
            self._awaited.pop(event.request_id, None)
        elif isinstance(event, ControlCancelRequest):
            self._questions.pop(event.request_id, None)
        else:
            self.session_id = getattr(event, "session_id", "") or self.session_id
        settled = self.turn.observe(event)
        return [event] if settled is None else [event, settled]

    def _question(self, envelope: ControlRequest, message: bytes) -> Event:
        asked = QUESTIONS.decode(bytes(envelope.request))
        if isinstance(asked, Unrecognized):
            # Silence would leave the agent waiting for ever.
            self._respond(envelope.request_id, error="this host does not know that request")
            return Unrecognized(message, asked.why)
        question = msgspec.structs.replace(asked, request_id=envelope.request_id)
        self._questions[envelope.request_id] = question
        return question

    @property
    def open_questions(self) -> Mapping[str, Question]:
        """The agent's questions that nobody has answered yet, by request id."""
        return self._questions

    @property
    def awaited(self) -> Mapping[str, Request | Interrupt]:
        """Our requests that the agent has not answered yet, by request id."""
        return self._awaited

    # --------------------------------------------------------------------------------------------- what we say

    def send(self, command: Command) -> None:
        """What the caller wants. An answer that comes too late raises :class:`AlreadyAnswered`."""
        match command:
            case Prompt():
                self._prompt(command)
            case Interrupt():
                self.request(command)
            case AnswerPermission() | AnswerHook() | AnswerMcp() | Answer() | Refuse():
                self._reply(command)
            case _:
                self.request(command)

    def request(self, request: Request | Interrupt) -> str:
        """Queue a control request and return the id its :class:`ControlResponse` will carry."""
        if isinstance(request, Interrupt):
            # Claude Code's own interrupt leaves background tasks running, and they would wake the model again.
            for task_id in self.turn.open_tasks:
                self.request(StopTask(task_id))
        self._requests += 1
        request_id = f"stagedoor_{self._requests}"
        body = {"subtype": "interrupt"} if isinstance(request, Interrupt) else request_body(request)
        self._awaited[request_id] = request
        self._write({"type": "control_request", "request_id": request_id, "request": body})
        return request_id

    def outgoing(self) -> list[bytes]:
        messages, self._outgoing = self._outgoing, []
        return messages

    def decode_command(self, message: bytes) -> list[Command]:
        """What a host once said, as a two-way recording holds it. Sends nothing."""
        command = command_in(message, self._questions)
        match command:
            case None:
                return []
            case Prompt():
                self.turn.begin()
            case AnswerPermission() | AnswerHook() | AnswerMcp() | Answer() | Refuse():
                self._questions.pop(command.request_id, None)
            case _:
                pass
        return [command]

    def _prompt(self, prompt: Prompt) -> None:
        line: dict[str, Any] = {"type": "user", "message": {"role": "user", "content": prompt.content}}
        if prompt.uuid is not None:
            line["uuid"] = prompt.uuid
        if prompt.parent_tool_use_id is not None:
            line["parent_tool_use_id"] = prompt.parent_tool_use_id
        self.turn.begin()
        self._write(line)

    def _reply(self, reply: Reply) -> None:
        question = self._questions.pop(reply.request_id, None)
        if question is None:
            raise AlreadyAnswered(
                f"nothing waits for an answer under {reply.request_id!r}: it was answered, cancelled by the agent, or "
                "cut off by the end of the session; answer each question once, while it is open"
            )
        match reply:
            case AnswerPermission(request_id, decision):
                self._respond(request_id, permission_body(decision, question))
            case AnswerHook(request_id, output):
                self._respond(request_id, output)
            case AnswerMcp(request_id, message):
                self._respond(request_id, {"mcp_response": message or {"jsonrpc": "2.0", "result": {}, "id": 0}})
            case Answer(request_id, response):
                self._respond(request_id, response)
            case Refuse(request_id, error):
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
        case Allow(updated_input, updated_permissions):
            original = question.input if isinstance(question, CanUseTool) else {}
            body: dict[str, Any] = {
                "behavior": "allow",
                "updatedInput": original if updated_input is None else updated_input,
            }
            if updated_permissions:
                body["updatedPermissions"] = list(updated_permissions)
            return body
        case Deny(message, interrupt):
            denied: dict[str, Any] = {"behavior": "deny", "message": message or "The user refused this call."}
            if interrupt:
                denied["interrupt"] = True
            return denied
