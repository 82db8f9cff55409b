"""Both sides of a recording of an agent that speaks the Agent Client Protocol."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from ...agents.acp.commands import (
    AnswerElicitation,
    AnswerPermissionRequest,
    CancelNotification,
    Command,
    ForkSessionRequest,
    LoadSessionRequest,
    NewSessionRequest,
    PromptRequest,
    RefuseRequest,
    ResumeSessionRequest,
)
from ...agents.acp.events import RequestWithdrawn
from ...agents.acp.requests import CreateElicitation, RequestPermission
from ...agents.acp.updates import TextContent
from ...unified.decisions import Allow, Decision, Deny
from ...unified.recording import (
    UNREADABLE,
    PromptSent,
    QuestionAnswered,
    QuestionWithdrawn,
    RecordedAction,
    SessionOpened,
    TurnInterrupted,
)
from ...wire.jsonrpc import Id


class AcpRecordingReader:
    """``refuse`` and ``allow`` report to the dictionary what was answered, ``two_sided`` that the recording says so;
    ``lasting`` are the options that outlive the session."""

    def __init__(
        self,
        refuse: Callable[[str, str], None] = lambda call, message: None,
        allow: Callable[[str], None] = lambda call: None,
        two_sided: Callable[[], None] = lambda: None,
        *,
        lasting: tuple[str, ...] = (),
    ) -> None:
        self._refuse = refuse
        self._allow = allow
        self._two_sided = two_sided
        self._lasting = lasting
        self._questions: dict[Id, RequestPermission | CreateElicitation] = {}

    def from_agent(self, native: Any) -> Iterable[RecordedAction]:
        match native:
            case RequestPermission() | CreateElicitation():
                self._questions[native.request_id] = native
            case RequestWithdrawn(request=(RequestPermission() | CreateElicitation()) as question):
                return [QuestionWithdrawn(_id(question))]
            case _:
                pass
        return ()

    def from_client(self, command: Command) -> Iterable[RecordedAction]:
        self._two_sided()
        match command:
            case (
                NewSessionRequest(cwd=cwd)
                | LoadSessionRequest(cwd=cwd)
                | ResumeSessionRequest(cwd=cwd)
                | ForkSessionRequest(cwd=cwd)
            ):
                return [SessionOpened(cwd)] if cwd else ()
            case PromptRequest(prompt=blocks):
                return [PromptSent("\n".join(block.text for block in blocks if isinstance(block, TextContent)))]
            case CancelNotification():
                return [TurnInterrupted()]
            case AnswerPermissionRequest():
                return self._answered(command.request_id, self._decision(command))
            case AnswerElicitation(action="accept", content=content):
                filled = None if content is None else {"content": content}
                return self._answered(command.request_id, Allow(updated_input=filled))
            case AnswerElicitation():
                return self._answered(command.request_id, Deny())
            case RefuseRequest():
                return self._answered(command.request_id, Deny(command.message))
            case _:
                return ()

    def _answered(self, request_id: Id, decision: Decision) -> Iterable[RecordedAction]:
        question = self._questions.pop(request_id, None)
        if question is None:
            return ()
        if isinstance(question, CreateElicitation):
            pass
        elif isinstance(decision, Deny):
            self._refuse(question.tool_call.tool_call_id, decision.message)
        else:
            self._allow(question.tool_call.tool_call_id)
        return [QuestionAnswered(_id(question), decision)]

    def _decision(self, answer: AnswerPermissionRequest) -> Decision:
        match answer.kind:
            case "allow_once":
                return Allow()
            case "allow_always":
                return Allow(remember="always" if answer.option_id in self._lasting else "session")
            case "reject_once" | "reject_always":
                return Deny()
            case None:
                return Deny() if answer.option_id is None else UNREADABLE


def _id(question: RequestPermission | CreateElicitation) -> str:
    return f"{question.session_id}:{question.request_id}"


_METHODS = frozenset({"initialize", "authenticate"})
_RESULTS = frozenset({"protocolVersion", "sessionId", "stopReason", "agentCapabilities", "configOptions"})


def recognize_acp(agent: str) -> Callable[[bytes, Mapping[str, Any]], int]:
    """Of the protocol, and certainly of ``agent`` where its program gives its name."""

    def recognize(line: bytes, message: Mapping[str, Any]) -> int:
        if message.get("jsonrpc") != "2.0":
            return 0
        match message:
            case {"method": str(method)}:
                return 3 if method.startswith(("session/", "fs/", "terminal/")) else int(method in _METHODS)
            case {"result": {"agentInfo": {"name": str(name)}}}:
                words = "".join(letter for letter in name.lower() if letter.isalnum() or letter in "-_.")
                return 1000 if words.startswith(agent) else 3
            case {"result": {**members}} if members.keys() & _RESULTS:
                return 3
            case _:
                return 1

    return recognize
