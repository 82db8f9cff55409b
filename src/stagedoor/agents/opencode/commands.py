"""What a caller can want from OpenCode, and the HTTP requests that say it to the server. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, TypeAlias
from urllib.parse import quote

import msgspec

from stagedoor.wire.http import HttpRequest

Action: TypeAlias = Literal["allow", "ask", "deny"]
PermissionReply: TypeAlias = Literal["once", "always", "reject"]


class PermissionRule(msgspec.Struct, frozen=True):
    """One permission rule of a session; the last that matches wins."""

    permission: str
    pattern: str = "*"
    action: Action = "ask"


class ModelName(msgspec.Struct, frozen=True):
    """A model by its two names. Written ``provider/model`` everywhere else."""

    provider_id: str
    model_id: str

    @classmethod
    def parse(cls, name: str) -> ModelName | None:
        """Model names may contain slashes; provider names may not."""
        provider, slash, model = name.partition("/")
        return cls(provider, model) if slash and provider and model else None


class Attachment(msgspec.Struct, frozen=True):
    """A file sent with a prompt: a ``file:`` or ``data:`` URL."""

    url: str
    mime: str = "text/plain"
    filename: str | None = None


class CreateSession(msgspec.Struct, frozen=True):
    title: str | None = None
    agent: str | None = None
    model: ModelName | None = None
    variant: str | None = None
    rules: tuple[PermissionRule, ...] = ()


class OpenSession(msgspec.Struct, frozen=True):
    """Continue a stored session. ``rules`` take the place of those it was stored with."""

    session_id: str
    rules: tuple[PermissionRule, ...] | None = None


class OpenCodeForkSession(msgspec.Struct, frozen=True):
    """Continue from a copy of a stored session, or of its part before ``message_id``."""

    session_id: str
    message_id: str | None = None


class OpenCodePrompt(msgspec.Struct, frozen=True):
    """Start a turn. The model is sent every time: one bad choice would stick to the session otherwise."""

    text: str
    attachments: tuple[Attachment, ...] = ()
    model: ModelName | None = None
    agent: str | None = None
    variant: str | None = None
    system: str | None = None
    tools: Mapping[str, bool] | None = None
    output_schema: Mapping[str, Any] | None = None


class Abort(msgspec.Struct, frozen=True):
    """End the running turn and its commands; open questions are answered with a refusal."""


class ReplyPermission(msgspec.Struct, frozen=True):
    """``reject`` ends the turn; with a ``message`` the model reads it instead, and the turn continues."""

    permission_id: str
    reply: PermissionReply
    message: str | None = None


class ReplyQuestion(msgspec.Struct, frozen=True):
    """For each question the labels chosen."""

    question_id: str
    answers: tuple[tuple[str, ...], ...]


class RejectQuestion(msgspec.Struct, frozen=True):
    question_id: str


class CheckStatus(msgspec.Struct, frozen=True):
    """Ask whether the session is still busy, after a stream broke."""


Command: TypeAlias = (
    CreateSession
    | OpenSession
    | OpenCodeForkSession
    | OpenCodePrompt
    | Abort
    | ReplyPermission
    | ReplyQuestion
    | RejectQuestion
    | CheckStatus
)

# ---------------------------------------------------------------------------------------------------- as HTTP requests


def _post(path: str, body: object, directory: str, method: str = "POST") -> HttpRequest:
    content = b"" if body is None else msgspec.json.encode(body)
    return HttpRequest(method, path, content, {"directory": directory} if directory else {})


def _session_path(session_id: str, verb: str = "") -> str:
    return f"/session/{quote(session_id, safe='')}{verb}"


def create_request(command: CreateSession, directory: str) -> HttpRequest:
    body: dict[str, Any] = {}
    if command.title is not None:
        body["title"] = command.title
    if command.agent is not None:
        body["agent"] = command.agent
    if command.model is not None:
        body["model"] = {"providerID": command.model.provider_id, "id": command.model.model_id}
        if command.variant is not None:
            body["model"]["variant"] = command.variant
    if command.rules:
        body["permission"] = command.rules
    return _post("/session", body, directory)


def open_requests(command: OpenSession, directory: str) -> list[HttpRequest]:
    path = _session_path(command.session_id)
    requests = [_post(path, None, directory, "GET")]
    if command.rules is not None:
        requests.append(_post(path, {"permission": command.rules}, directory, "PATCH"))
    return requests


def fork_request(command: OpenCodeForkSession, directory: str) -> HttpRequest:
    body = {} if command.message_id is None else {"messageID": command.message_id}
    return _post(_session_path(command.session_id, "/fork"), body, directory)


def prompt_request(session_id: str, command: OpenCodePrompt, directory: str) -> HttpRequest:
    parts: list[dict[str, Any]] = [{"type": "text", "text": command.text}] if command.text else []
    for attachment in command.attachments:
        part = {"type": "file", "mime": attachment.mime, "url": attachment.url}
        parts.append(part if attachment.filename is None else part | {"filename": attachment.filename})
    body: dict[str, Any] = {"parts": parts}
    if command.model is not None:
        body["model"] = {"providerID": command.model.provider_id, "modelID": command.model.model_id}
    for name in ("agent", "variant", "system", "tools"):
        if (value := getattr(command, name)) is not None:
            body[name] = value
    if command.output_schema is not None:
        body["format"] = {"type": "json_schema", "schema": command.output_schema}
    return _post(_session_path(session_id, "/prompt_async"), body, directory)


def abort_request(session_id: str, directory: str) -> HttpRequest:
    return _post(_session_path(session_id, "/abort"), None, directory)


def permission_request(command: ReplyPermission, directory: str, next_session: str = "") -> HttpRequest:
    """``next_session``: the session of a question that came over the next API."""
    body: dict[str, Any] = {"reply": command.reply}
    if command.message:
        body["message"] = command.message
    return _post(_question_path("permission", command.permission_id, next_session, "reply"), body, directory)


def question_request(command: ReplyQuestion, directory: str, next_session: str = "") -> HttpRequest:
    path = _question_path("question", command.question_id, next_session, "reply")
    return _post(path, {"answers": command.answers}, directory)


def rejection_request(question_id: str, directory: str, next_session: str = "") -> HttpRequest:
    return _post(_question_path("question", question_id, next_session, "reject"), None, directory)


def _question_path(kind: str, question_id: str, next_session: str, verb: str) -> str:
    place = f"/api{_session_path(next_session)}" if next_session else ""
    return f"{place}/{kind}/{quote(question_id, safe='')}/{verb}"
