"""How a session with OpenCode is set up."""

from __future__ import annotations

import enum
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, TypeAlias

import msgspec

from stagedoor.agents.acp.requests import RequestPermission

from .commands import Attachment, Rule
from .events import PermissionAsked, QuestionAsked
from .permissions import Permission
from .runaway import MOST_EMPTY_STEPS


class Driver(enum.Enum):
    """How OpenCode is run: one process a turn, a private HTTP server, or the Agent Client Protocol."""

    RUN = "run"
    SERVE = "serve"
    ACP = "acp"


class Allow(msgspec.Struct, frozen=True):
    """``always``: for the patterns OpenCode proposed, as long as this server runs."""

    always: bool = False


class Reject(msgspec.Struct, frozen=True):
    """Without a ``message`` the turn ends here; with one the model hears it and goes on."""

    message: str | None = None


Decision: TypeAlias = Allow | Reject
CanUseTool: TypeAlias = Callable[[PermissionAsked | RequestPermission], Decision | Awaitable[Decision]]
"""Asked with ``PermissionAsked`` by the serve driver and with ``RequestPermission`` by the acp driver."""

AnswerQuestion: TypeAlias = Callable[
    [QuestionAsked], Sequence[Sequence[str]] | Awaitable[Sequence[Sequence[str]] | None] | None
]
"""Returns for each question the labels chosen, or None to reject it."""


class McpLocal(msgspec.Struct, frozen=True, omit_defaults=True, tag_field="type", tag="local"):
    """An MCP server that OpenCode starts."""

    command: tuple[str, ...]
    environment: Mapping[str, str] = {}
    cwd: str | None = None
    enabled: bool = True
    timeout: int | None = None


class McpRemote(msgspec.Struct, frozen=True, omit_defaults=True, tag_field="type", tag="remote"):
    url: str
    headers: Mapping[str, str] = {}
    enabled: bool = True
    timeout: int | None = None


class OpenCodeConfig(msgspec.Struct, frozen=True, kw_only=True):
    """One session.

    ``model`` is ``provider/model``. ``permission`` goes into the validated configuration, ``rules`` are those of this
    session alone and come after it (serve only). ``auto`` answers *once* to everything that would be asked (run only).
    ``settings`` are further members of OpenCode's configuration (``provider``, ``agent``, ``instructions`` …).
    ``can_use_tool`` is asked in a task of its own for each question; when it raises, returns something else or takes
    longer than ``permission_timeout`` seconds, the answer is no. Without it a question is rejected, unless
    ``leave_open`` is true: then the caller answers through the session.
    ``ask_every_command`` closes a gap: OpenCode does not ask about a script it finds no command in (see ``guard``);
    where that cannot be, no session begins. ``run`` asks nobody: deny it ``bash`` as a whole.
    ``verify_model`` refuses a model that OpenCode does not offer before it sticks to the session (serve only).
    ``steps`` is OpenCode's own bound on the model requests of a turn: it tells the model to come to an end.
    ``most_steps`` ends the turn after so many (serve and run). ``most_empty_steps`` ends a turn that repeats itself
    without end.
    """

    driver: Driver = Driver.SERVE
    model: str | None = None
    verify_model: bool = True
    small_model: str | None = None
    agent: str | None = None
    variant: str | None = None
    title: str | None = None
    system: str | None = None
    tools: Mapping[str, bool] | None = None
    output_schema: Mapping[str, Any] | None = None
    attachments: tuple[Attachment, ...] = ()
    files: tuple[str, ...] = ()
    thinking: bool = True
    steps: int | None = None
    permission: Permission | None = None
    rules: tuple[Rule, ...] = ()
    auto: bool = False
    can_use_tool: CanUseTool | None = None
    answer_question: AnswerQuestion | None = None
    permission_timeout: float | None = None
    leave_open: bool = False
    mcp: Mapping[str, McpLocal | McpRemote] = {}
    enabled_providers: tuple[str, ...] | None = None
    instructions: tuple[str, ...] = ()
    plugins: bool = True
    settings: Mapping[str, Any] = {}
    env: Mapping[str, str] = {}
    extra_args: tuple[str, ...] = ()
    fork: bool = False
    stall_after: float | None = None
    most_steps: int | None = None
    ask_every_command: bool = False
    most_empty_steps: int | None = MOST_EMPTY_STEPS
