"""A host's own lines in a recording, read back into the commands that would have written them. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from ...wire.shapes import repaired
from .commands import Allow, Answer, AnswerHook, AnswerPermission, Command, Decision, Deny, Interrupt, Prompt, Refuse
from .requests import CanUseTool, HookCallback, Question

UNREADABLE = "the answer could not be read, so the call was refused"


class _Message(msgspec.Struct):
    content: str | list[dict[str, Any]]


class _Request(msgspec.Struct):
    subtype: str = ""


class _Response(msgspec.Struct):
    request_id: str
    subtype: str = ""
    response: msgspec.Raw = msgspec.Raw(b"{}")
    error: str = ""


class _Line(msgspec.Struct):
    type: str = ""
    message: _Message | None = None
    request: _Request | None = None
    response: _Response | None = None


class _Permission(msgspec.Struct, rename="camel"):
    """Claude Code insists on ``updatedInput`` and on ``message``; without them it takes neither answer."""

    behavior: str
    updated_input: dict[str, Any] | None = None
    updated_permissions: list[msgspec.Raw] = []
    message: str | None = None
    interrupt: bool = False


_LINE = msgspec.json.Decoder(_Line)


def command_in(message: bytes, questions: Mapping[str, Question]) -> Command | None:
    """``None`` for what Claude Code does not take, and for what has no bearing on a turn."""
    match _line(message):
        case _Line("user", message=_Message(content)):
            return Prompt(content)
        case _Line("control_request", request=_Request("interrupt")):
            return Interrupt()
        case _Line("control_response", response=_Response() as response) if response.request_id in questions:
            return _answer(questions[response.request_id], response)
        case _:
            return None


def _answer(question: Question, response: _Response) -> Command:
    if response.subtype != "success":
        return Refuse(question.request_id, response.error)
    match question:
        case CanUseTool():
            return AnswerPermission(question.request_id, _decision(question, response.response))
        case HookCallback():
            return AnswerHook(question.request_id, _members(response.response))
        case _:
            return Answer(question.request_id, _members(response.response))


def _decision(question: CanUseTool, body: msgspec.Raw) -> Decision:
    try:
        given = msgspec.json.decode(body, type=_Permission)
    except msgspec.DecodeError:
        return Deny(UNREADABLE)
    match given:
        case _Permission("allow", updated_input=dict()):
            changed = None if given.updated_input == question.input else given.updated_input
            return Allow(changed, given.updated_permissions)
        case _Permission("deny", message=str(words)):
            return Deny(words, interrupt=given.interrupt)
        case _:
            return Deny(UNREADABLE)


def _members(body: msgspec.Raw) -> dict[str, Any]:
    try:
        return msgspec.json.decode(body, type=dict[str, Any])
    except msgspec.DecodeError:
        return {}


def _line(message: bytes) -> _Line | None:
    for read in (bytes, repaired):
        try:
            return _LINE.decode(read(message))
        except msgspec.ValidationError:
            return None
        except (msgspec.DecodeError, ValueError, RecursionError):
            continue
    return None
