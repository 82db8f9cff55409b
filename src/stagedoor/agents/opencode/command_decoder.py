"""A client's own requests in a recording, read back into the commands that would have made them. Pure."""

from __future__ import annotations

import re
from typing import Any, cast
from urllib.parse import unquote

import msgspec

from stagedoor.wire.shapes import repaired

from .commands import (
    Abort,
    Command,
    OpenCodePrompt,
    PermissionReply,
    RejectQuestion,
    ReplyPermission,
    ReplyQuestion,
)

_REQUEST = re.compile(rb"POST (/[^ ?]*)(?:\?[^ ]*)?(?: (.*))?", re.DOTALL)
_REPLIES: dict[object, PermissionReply] = {"once": "once", "always": "always", "reject": "reject"}


def command_in(line: bytes) -> Command | None:
    """One request as ``HttpRequest.line`` writes it; ``None`` for what has no bearing on a turn."""
    request = _REQUEST.fullmatch(line)
    if request is None:
        return None
    body = _members(request[2] or b"")
    path = [unquote(part) for part in request[1].decode("utf-8", "replace").split("/")[1:]]
    if path[:2] == ["api", "session"] and len(path) == 6:  # the next API: /api/session/…/permission/…/reply
        path = path[3:]
    match path:
        case ["session", _, "prompt_async" | "message"]:
            return OpenCodePrompt(_text(body.get("parts")))
        case ["session", _, "abort"]:
            return Abort()
        case ["permission", permission_id, "reply"]:
            return _permission(permission_id, body.get("reply"), body.get("message"))
        case ["session", _, "permissions", permission_id]:  # the older way
            return _permission(permission_id, body.get("response"), body.get("message"))
        case ["question", question_id, "reply"]:
            answers: object = body.get("answers")
            rows = cast("list[object]", answers) if isinstance(answers, list) else []
            return ReplyQuestion(question_id, tuple(_labels(row) for row in rows))
        case ["question", question_id, "reject"]:
            return RejectQuestion(question_id)
        case _:
            return None


def _permission(permission_id: str, reply: object, message: object) -> ReplyPermission | None:
    """The server refuses a request with another word, and the question stays open."""
    word = _REPLIES.get(reply) if isinstance(reply, str) else None
    reason = message if isinstance(message, str) else None
    return None if word is None else ReplyPermission(permission_id, word, reason)


def _labels(row: object) -> tuple[str, ...]:
    return tuple(str(label) for label in cast("list[object]", row)) if isinstance(row, list) else ()


def _text(parts: object) -> str:
    texts: list[str] = []
    for part in cast("list[object]", parts) if isinstance(parts, list) else []:
        match part:
            case {"type": "text", "text": str(text)}:
                texts.append(text)
            case _:
                pass
    return "\n".join(texts)


def _members(body: bytes) -> dict[str, Any]:
    for read in (bytes, repaired):
        try:
            return msgspec.json.decode(read(body), type=dict[str, Any])
        except (msgspec.MsgspecError, ValueError, RecursionError):
            continue
    return {}
