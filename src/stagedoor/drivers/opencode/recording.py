"""Both sides of a recording of ``opencode serve``, whose own events also hold the answers to its questions."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from ...agents.opencode.commands import Abort, Command, OpenCodePrompt, RejectQuestion, ReplyPermission, ReplyQuestion
from ...agents.opencode.events import PermissionReplied, QuestionRejected, QuestionReplied
from ...unified.decisions import Allow, Decision, Deny
from ...unified.recording import PromptSent, QuestionAnswered, RecordedAction, TurnInterrupted
from .serve_dictionary import ServeDictionary


class ServeRecordingReader:
    def __init__(self, dictionary: ServeDictionary) -> None:
        pass

    def from_agent(self, native: Any) -> Iterable[RecordedAction]:
        match native:
            case PermissionReplied():
                return [QuestionAnswered(native.request_id, _permission(native.reply))]
            case QuestionReplied():
                return [QuestionAnswered(native.request_id, _answers(native.answers))]
            case QuestionRejected():
                return [QuestionAnswered(native.request_id, Deny())]
            case _:
                return ()

    def from_client(self, command: Command) -> Iterable[RecordedAction]:
        match command:
            case OpenCodePrompt(text=text):
                return [PromptSent(text)]
            case Abort():
                return [TurnInterrupted()]
            case ReplyPermission(permission_id, reply, message):
                return [QuestionAnswered(permission_id, _permission(reply, message or ""))]
            case ReplyQuestion(question_id, answers):
                return [QuestionAnswered(question_id, _answers(answers))]
            case RejectQuestion(question_id):
                return [QuestionAnswered(question_id, Deny())]
            case _:
                return ()


def _permission(reply: str, message: str = "") -> Decision:
    match reply:
        case "once":
            return Allow()
        case "always":
            return Allow(remember="session")  # as long as the server lives
        case _:
            return Deny(message)


def _answers(answers: Iterable[Iterable[str]]) -> Decision:
    return Allow(updated_input={"answers": [list(labels) for labels in answers]})


_RUN = frozenset({"step_start", "text", "reasoning", "tool_use", "step_finish", "error"})
_HTTP = re.compile(rb"(?:POST|GET|PATCH|DELETE|PUT) /|HTTP \d{3}\b|sse data: |stdout: |opencode server listening on ")


def recognize_serve(line: bytes, message: Mapping[str, Any]) -> int:
    match message:
        case {"type": str(kind), "properties": {**_others}} if "." in kind:
            return 3
        case {"payload": {"type": str(kind)}} if "." in kind:
            return 3
        case _:
            return 2 if _HTTP.match(line) else 0


def recognize_run(line: bytes, message: Mapping[str, Any]) -> int:
    match message:
        case {"type": str(kind), "sessionID": str()} if kind in _RUN:
            return 3
        case {"type": str(kind), "part": {**_others}} if kind in _RUN:
            return 3
        case _:
            return 0
