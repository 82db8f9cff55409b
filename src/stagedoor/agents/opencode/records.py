"""Sessions, messages and questions as the server keeps them: what its events carry."""

from __future__ import annotations

from typing import Any

import msgspec

from .parts import Failure, Tokens


class Times(msgspec.Struct, frozen=True):
    """Milliseconds since the epoch."""

    created: float = 0
    updated: float | None = None
    completed: float | None = None
    archived: float | None = None


class SessionRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A session as the server keeps it; ``parent_id`` is set for a sub-agent's."""

    id: str
    directory: str = ""
    parent_id: str | None = msgspec.field(default=None, name="parentID")
    project_id: str = msgspec.field(default="", name="projectID")
    title: str = ""
    version: str = ""
    agent: str | None = None
    model: dict[str, Any] | None = None
    cost: float = 0
    tokens: Tokens = Tokens()
    time: Times = Times()


class Message(msgspec.Struct, frozen=True, kw_only=True):
    """A user's or an assistant's message, without its parts. An assistant's is over when ``time.completed`` is set."""

    id: str
    role: str = ""
    session_id: str = msgspec.field(default="", name="sessionID")
    parent_id: str | None = msgspec.field(default=None, name="parentID")
    provider_id: str = msgspec.field(default="", name="providerID")
    model_id: str = msgspec.field(default="", name="modelID")
    agent: str = ""
    finish: str | None = None
    error: Failure | None = None
    cost: float = 0
    tokens: Tokens = Tokens()
    time: Times = Times()
    structured: Any = None


class Status(msgspec.Struct, frozen=True):
    """``busy``, ``idle``, or ``retry`` (``next`` is when, in milliseconds since the epoch)."""

    type: str = ""
    attempt: int | None = None
    message: str | None = None
    next: float | None = None


class ToolRef(msgspec.Struct, frozen=True):
    message_id: str = msgspec.field(default="", name="messageID")
    call_id: str = msgspec.field(default="", name="callID")


class Choice(msgspec.Struct, frozen=True):
    label: str = ""
    description: str = ""


class Question(msgspec.Struct, frozen=True):
    question: str = ""
    header: str = ""
    options: list[Choice] = []
    multiple: bool = False
    custom: bool | None = None


class Todo(msgspec.Struct, frozen=True):
    content: str = ""
    status: str = ""
    priority: str = ""
