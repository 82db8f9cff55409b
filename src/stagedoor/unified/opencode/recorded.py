"""Both sides of a recording of ``opencode serve``, which also says itself how its questions were answered."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ...agents.opencode.commands import Abort, Command, Prompt, RejectQuestion, ReplyPermission, ReplyQuestion
from ...agents.opencode.events import PermissionReplied, QuestionRejected, QuestionReplied
from ..decisions import Allow, Decision, Deny
from ..recorded import Answered, Interrupted, Prompted, Said
from .serve import ServeDictionary


class ServeRecorded:
    def __init__(self, dictionary: ServeDictionary) -> None:
        pass

    def heard(self, native: Any) -> Iterable[Said]:
        match native:
            case PermissionReplied():
                return [Answered(native.request_id, _permission(native.reply))]
            case QuestionReplied():
                return [Answered(native.request_id, _answers(native.answers))]
            case QuestionRejected():
                return [Answered(native.request_id, Deny())]
            case _:
                return ()

    def said(self, command: Command) -> Iterable[Said]:
        match command:
            case Prompt(text=text):
                return [Prompted(text)]
            case Abort():
                return [Interrupted()]
            case ReplyPermission(permission_id, reply, message):
                return [Answered(permission_id, _permission(reply, message or ""))]
            case ReplyQuestion(question_id, answers):
                return [Answered(question_id, _answers(answers))]
            case RejectQuestion(question_id):
                return [Answered(question_id, Deny())]
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
