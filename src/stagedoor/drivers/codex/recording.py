"""Both sides of a recording of ``codex app-server``."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, get_args

from ...agents.codex import commands
from ...agents.codex.commands import (
    AnswerQuestion,
    Command,
    ForkThread,
    InterruptTurn,
    ResumeThread,
    StartThread,
    StartTurn,
    Steer,
)
from ...agents.codex.notifications import NOTIFICATIONS, ServerRequestResolvedNotification
from ...agents.codex.questions import QUESTIONS, Question, RequestId
from ...agents.codex.threads import CallRefusal, CallReply, TurnStartResponse, TurnSteerResponse
from ...unified.decisions import Allow, Decision, Deny
from ...unified.recording import (
    PromptSent,
    QuestionAnswered,
    QuestionWithdrawn,
    RecordedAction,
    SessionOpened,
    TextSteered,
    TurnInterrupted,
)
from .app_server_dictionary import AppServerDictionary

STEERED = (TurnSteerResponse, TurnStartResponse)


class AppServerRecordingReader:
    def __init__(self, dictionary: AppServerDictionary) -> None:
        self._dictionary = dictionary
        self._questions: dict[RequestId, Question] = {}
        self._steering: list[str] = []  # sent into the running turn; the reply shows whether Codex took it

    def from_agent(self, native: Any) -> Iterable[RecordedAction]:
        if isinstance(native, get_args(Question)):
            self._questions[native.request_id] = native
        elif isinstance(native, CallReply) and isinstance(native.result, STEERED) and self._steering:
            return [TextSteered(self._steering.pop(0))]
        elif isinstance(native, CallRefusal) and native.method in ("turn/steer", "turn/start") and self._steering:
            self._steering.pop(0)
        elif isinstance(native, ServerRequestResolvedNotification):
            question = self._questions.pop(native.request_id, None)
            return [QuestionWithdrawn(_id(question))] if question is not None else ()
        return ()

    def from_client(self, command: Command) -> Iterable[RecordedAction]:
        match command:
            case StartThread(params) | ResumeThread(_, params) | ForkThread(_, params):
                return [SessionOpened(cwd)] if isinstance(cwd := params.get("cwd"), str) else ()
            case StartTurn(text=text):
                return [PromptSent(text)]
            case Steer(text=text):
                self._steering.append(text)
                return ()
            case InterruptTurn():
                return [TurnInterrupted()]
            case AnswerQuestion(request_id, decision):
                question = self._questions.get(request_id)
                return () if question is None else [self._answered(question, decision_of(decision))]
            case _:
                return ()

    def _answered(self, question: Question, decision: Decision) -> QuestionAnswered:
        if isinstance(decision, Deny):
            self._dictionary.refuse(question, decision.message)
        return QuestionAnswered(_id(question), decision)


def _id(question: Question) -> str:
    return f"{question.thread_id}:{question.request_id}"


def decision_of(decision: commands.Decision) -> Decision:
    match decision:
        case commands.Accept(content):
            return Allow(updated_input=None if content is None else {**content})
        case commands.AcceptForSession():
            return Allow(remember="session")
        case commands.AcceptWithExecpolicyAmendment() | commands.ApplyNetworkPolicyAmendment(action="allow"):
            return Allow(remember="always")
        case commands.Answers(answers):
            return Allow(updated_input={"answers": {key: list(words) for key, words in answers.items()}})
        case commands.Decline(message):
            return Deny(message)
        case commands.CancelTurn():
            return Deny(interrupt=True)
        case commands.ApplyNetworkPolicyAmendment():
            return Deny()
        case commands.ToolOutput() | commands.CurrentTime():
            return Allow()


def recognize_exec(line: bytes, message: Mapping[str, Any]) -> int:
    match message:
        case {"type": str(kind)} if kind.startswith(("thread.", "turn.", "item.")) and "properties" not in message:
            return 3
        case {"type": "error", "message": str()} if len(message) == 2:
            return 2  # nobody else says so little
        case _:
            return 0


def recognize_app_server(line: bytes, message: Mapping[str, Any]) -> int:
    """JSON-RPC that does not say so."""
    if "jsonrpc" in message:
        return 0
    match message:
        case {"method": str(method)}:
            known = method in NOTIFICATIONS or method in QUESTIONS or method.partition("/")[0] in ("thread", "turn")
            return 3 if known else 1
        case {"id": _, "result": _} | {"id": _, "error": {"code": _}}:
            return 2
        case _:
            return 0
