"""A client's own messages in a recording, read back into the commands that would have written them. Pure."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast, get_args

import msgspec

from stagedoor.wire.jsonrpc import Notification, Request, Response

from .commands import (
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
from .requests import AgentRequest, PermissionKind, RequestPermission
from .updates import TextContent

UNREADABLE = "the answer could not be read"

_OPENING: dict[str, Callable[[str, str], Command]] = {
    "session/new": lambda session_id, cwd: NewSessionRequest(cwd),
    "session/load": LoadSessionRequest,
    "session/resume": ResumeSessionRequest,
    "session/fork": ForkSessionRequest,
}


def command_in(message: Request | Notification) -> Command | None:
    """``None`` for what has no bearing on a turn."""
    params = _members(message.params)
    session_id, cwd = _text(params.get("sessionId")), _text(params.get("cwd"))
    match message:
        case Request(method="session/prompt"):
            blocks: object = params.get("prompt")
            return PromptRequest(
                session_id, tuple(_texts(cast("list[object]", blocks) if isinstance(blocks, list) else []))
            )
        case Request(method=method) if method in _OPENING:
            return _OPENING[method](session_id, cwd)
        case Notification(method="session/cancel"):
            return CancelNotification(session_id)
        case _:
            return None


def answer_in(question: AgentRequest, response: Response) -> Command | None:
    """An answer by an option that was not offered keeps the option's name and has no kind."""
    if not isinstance(question, RequestPermission):
        return None
    if response.result is None:
        fault = response.fault
        return RefuseRequest(question.request_id, (fault.message if fault is not None else "") or UNREADABLE)
    match _members(response.result).get("outcome"):
        case {"outcome": "cancelled"}:
            return AnswerPermissionRequest(question.request_id)
        case {"outcome": "selected", "optionId": str(chosen)}:
            kind = next((option.kind for option in question.options if option.option_id == chosen), "")
            permission = cast("PermissionKind", kind) if kind in get_args(PermissionKind) else None
            return AnswerPermissionRequest(question.request_id, permission, chosen)
        case _:
            return RefuseRequest(question.request_id, UNREADABLE)


def _texts(blocks: list[object]) -> list[TextContent]:
    texts: list[TextContent] = []
    for block in blocks:
        match block:
            case {"type": "text", "text": str(text)}:
                texts.append(TextContent(text))
            case _:
                pass
    return texts


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


def _members(raw: msgspec.Raw) -> dict[str, Any]:
    try:
        return msgspec.json.decode(bytes(raw), type=dict[str, Any])
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return {}
