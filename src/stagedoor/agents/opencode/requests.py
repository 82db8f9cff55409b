"""What the server is asked, as HTTP request values: one function per command. Pure."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

import msgspec

from stagedoor.wire.http import Request

from .commands import CreateSession, ForkSession, OpenSession, Prompt, ReplyPermission, ReplyQuestion


def _post(path: str, body: object, directory: str, method: str = "POST") -> Request:
    content = b"" if body is None else msgspec.json.encode(body)
    return Request(method, path, content, {"directory": directory} if directory else {})


def _of(session_id: str, verb: str = "") -> str:
    return f"/session/{quote(session_id, safe='')}{verb}"


def create(command: CreateSession, directory: str) -> Request:
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


def open_stored(command: OpenSession, directory: str) -> list[Request]:
    path = _of(command.session_id)
    requests = [_post(path, None, directory, "GET")]
    if command.rules is not None:
        requests.append(_post(path, {"permission": command.rules}, directory, "PATCH"))
    return requests


def fork(command: ForkSession, directory: str) -> Request:
    body = {} if command.message_id is None else {"messageID": command.message_id}
    return _post(_of(command.session_id, "/fork"), body, directory)


def prompt(session_id: str, command: Prompt, directory: str) -> Request:
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
    return _post(_of(session_id, "/prompt_async"), body, directory)


def abort(session_id: str, directory: str) -> Request:
    return _post(_of(session_id, "/abort"), None, directory)


def reply_permission(command: ReplyPermission, directory: str) -> Request:
    body: dict[str, Any] = {"reply": command.reply}
    if command.message:
        body["message"] = command.message
    return _post(f"/permission/{quote(command.permission_id, safe='')}/reply", body, directory)


def reply_question(command: ReplyQuestion, directory: str) -> Request:
    return _post(f"/question/{quote(command.question_id, safe='')}/reply", {"answers": command.answers}, directory)


def reject_question(question_id: str, directory: str) -> Request:
    return _post(f"/question/{quote(question_id, safe='')}/reject", None, directory)
