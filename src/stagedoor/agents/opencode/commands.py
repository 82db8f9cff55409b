"""What a caller can want from OpenCode."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, TypeAlias

import msgspec

Action: TypeAlias = Literal["allow", "ask", "deny"]
Reply: TypeAlias = Literal["once", "always", "reject"]


class Rule(msgspec.Struct, frozen=True):
    """One permission rule of a session; the last that matches wins."""

    permission: str
    pattern: str = "*"
    action: Action = "ask"


class Model(msgspec.Struct, frozen=True):
    """A model by its two names. Written ``provider/model`` everywhere else."""

    provider_id: str
    model_id: str

    @classmethod
    def parse(cls, name: str) -> Model | None:
        """Model names may contain slashes; provider names may not."""
        provider, slash, model = name.partition("/")
        return cls(provider, model) if slash and provider and model else None


class Attachment(msgspec.Struct, frozen=True):
    """A file that goes along with a prompt: a ``file:`` or ``data:`` URL."""

    url: str
    mime: str = "text/plain"
    filename: str | None = None


class CreateSession(msgspec.Struct, frozen=True):
    title: str | None = None
    agent: str | None = None
    model: Model | None = None
    variant: str | None = None
    rules: tuple[Rule, ...] = ()


class OpenSession(msgspec.Struct, frozen=True):
    """Go on with a stored session. ``rules`` take the place of those it was stored with."""

    session_id: str
    rules: tuple[Rule, ...] | None = None


class ForkSession(msgspec.Struct, frozen=True):
    """Go on from a copy of a stored session, or of its part before ``message_id``."""

    session_id: str
    message_id: str | None = None


class Prompt(msgspec.Struct, frozen=True):
    """Begin a turn. The model goes along every time: one bad choice would stick to the session otherwise."""

    text: str
    attachments: tuple[Attachment, ...] = ()
    model: Model | None = None
    agent: str | None = None
    variant: str | None = None
    system: str | None = None
    tools: Mapping[str, bool] | None = None
    output_schema: Mapping[str, Any] | None = None


class Abort(msgspec.Struct, frozen=True):
    """End the running turn and its commands; open questions are answered with a refusal."""


class ReplyPermission(msgspec.Struct, frozen=True):
    """``reject`` ends the turn; with a ``message`` the model hears it instead, and the turn goes on."""

    permission_id: str
    reply: Reply
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
    | ForkSession
    | Prompt
    | Abort
    | ReplyPermission
    | ReplyQuestion
    | RejectQuestion
    | CheckStatus
)
