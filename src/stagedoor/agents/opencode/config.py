"""How a session with OpenCode is set up: its permissions and everything else. Pure."""

from __future__ import annotations

import enum
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, TypeAlias

import msgspec

from stagedoor.agents.acp.config import AcpProfile
from stagedoor.agents.acp.requests import RequestPermission
from stagedoor.errors import LocalProtocolError
from stagedoor.transports.launch import Confinement
from stagedoor.wire.permission import PermissionBehavior

from .commands import Action, Attachment, PermissionRule
from .events import PermissionAsked, QuestionAsked
from .protocol import MOST_EMPTY_STEPS

Permission: TypeAlias = Action | Mapping[str, Action | Mapping[str, Action]]
"""An action for everything, or by permission (``bash``, ``edit``, ``*`` …), or by permission and pattern.

The last rule that matches wins. ``edit`` covers every tool that writes."""

PERMISSIONS = (
    "read", "edit", "glob", "grep", "list", "bash", "task", "external_directory", "todowrite", "question", "webfetch",
    "websearch", "lsp", "doom_loop", "skill",
)  # fmt: skip

READ_ONLY: Mapping[str, Action] = {
    "*": "deny",
    "read": "allow",
    "glob": "allow",
    "grep": "allow",
    "list": "allow",
    "todowrite": "allow",
}
"""Nothing can be written or run. The agent ``plan`` does not promise that: it may still use the shell."""

SUPERVISED: Mapping[str, Action] = {
    "edit": "ask",
    "bash": "ask",
    "webfetch": "ask",
    "websearch": "ask",
    "external_directory": "ask",
    "doom_loop": "ask",
}
AUTONOMOUS: Mapping[str, Action] = {"*": "allow", "external_directory": "allow", "doom_loop": "allow"}


def expand_permission(permission: Permission) -> dict[str, Action | Mapping[str, Action]]:
    """The same with ``*`` written out for every known permission.

    OpenCode merges its configuration files member by member, so a ``bash: allow`` of the user's own would survive
    behind our ``*: deny``.
    """
    actions: dict[str, Action | Mapping[str, Action]]
    actions = {"*": permission} if isinstance(permission, str) else dict(permission)
    for_all = actions.get("*")
    if not isinstance(for_all, str):
        return actions
    whole: dict[str, Action | Mapping[str, Action]] = {"*": for_all}
    for name in PERMISSIONS:
        if name not in actions:
            whole[name] = for_all
    for name, value in actions.items():
        if name != "*":
            whole[name] = value
    return whole


def permission_rules(permission: Permission) -> tuple[PermissionRule, ...]:
    """The same as the rules of a session, which come after every configuration."""
    rules: list[PermissionRule] = []
    for name, value in expand_permission(permission).items():
        if isinstance(value, str):
            rules.append(PermissionRule(name, "*", value))
        else:
            rules += [PermissionRule(name, pattern, action) for pattern, action in value.items()]
    return tuple(rules)


def check_permission(permission: Permission) -> None:
    """Raise ``LocalProtocolError`` for an unknown action."""
    for rule in permission_rules(permission):
        if rule.action not in ("allow", "ask", "deny"):
            raise LocalProtocolError(
                f"permission {rule.permission!r} has the unknown action {rule.action!r}: use allow, ask or deny"
            )


# ----------------------------------------------------------------------------------------------------------- a session

ACP_PROFILE = AcpProfile(undeclared_writes_are_echoes=True)
"""How OpenCode speaks the Agent Client Protocol."""


class OpenCodeDriver(enum.Enum):
    """How OpenCode is run: one process a turn, a private HTTP server, or the Agent Client Protocol."""

    RUN = "run"
    SERVE = "serve"
    ACP = "acp"


class OpenCodeAllow(msgspec.Struct, frozen=True):
    """``always``: for the patterns OpenCode proposed, as long as this server runs."""

    always: bool = False


class OpenCodeReject(msgspec.Struct, frozen=True):
    """Without a ``message`` the turn ends here; with one the model reads it and continues."""

    message: str | None = None


OpenCodeDecision: TypeAlias = OpenCodeAllow | OpenCodeReject
CanUseTool: TypeAlias = Callable[
    [PermissionAsked | RequestPermission],
    OpenCodeDecision | PermissionBehavior | Awaitable[OpenCodeDecision | PermissionBehavior],
]
"""Called with ``PermissionAsked`` by the serve driver and with ``RequestPermission`` by the acp driver."""

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


class OpenCodeSessionConfig(msgspec.Struct, frozen=True, kw_only=True):
    """One session.

    ``model`` is ``provider/model``. ``permission`` goes into the validated configuration, ``rules`` are those of this
    session alone and come after it (serve only). ``auto`` answers *once* to every question (run only).
    ``settings`` are further members of OpenCode's configuration (``provider``, ``agent``, ``instructions`` …).
    ``can_use_tool`` may be a plain function, which runs in a thread, or a coroutine function; when it raises, returns
    something else or takes longer than ``permission_timeout`` seconds, the answer is no. Without it a question is
    rejected, unless ``leave_open`` is true: then the caller answers through the session.
    ``ask_every_command`` closes a gap: OpenCode does not ask about a script in which it finds no command (see
    ``launch``); where the gap cannot be closed, no session starts. ``run`` asks nobody: deny it ``bash`` as a whole.
    ``verify_model`` refuses a model that OpenCode does not offer before it sticks to the session (serve only).
    ``steps`` is OpenCode's own bound on the model requests of a turn: at the last one it asks the model to finish.
    ``most_steps`` ends the turn after so many (serve and run). ``most_empty_steps`` ends a turn that repeats itself
    without end.
    """

    driver: OpenCodeDriver = OpenCodeDriver.SERVE
    model: str | None = None
    verify_model: bool = True
    small_model: str | None = None
    agent: str | None = None
    variant: str | None = None
    title: str | None = None
    append_system_prompt: str | None = None
    tools: Mapping[str, bool] | None = None
    output_schema: Mapping[str, Any] | None = None
    attachments: tuple[Attachment, ...] = ()
    files: tuple[str, ...] = ()
    thinking: bool = True
    steps: int | None = None
    permission: Permission | None = None
    rules: tuple[PermissionRule, ...] = ()
    auto: bool = False
    can_use_tool: CanUseTool | None = None
    answer_question: AnswerQuestion | None = None
    permission_timeout: float | None = None
    leave_open: bool = False
    mcp_servers: Mapping[str, McpLocal | McpRemote] = {}
    enabled_providers: tuple[str, ...] | None = None
    instructions: tuple[str, ...] = ()
    plugins: bool = True
    settings: Mapping[str, Any] = {}
    env: Mapping[str, str] = {}
    extra_args: tuple[str, ...] = ()
    confinement: Confinement | None = None
    """Run it in a sandbox of ours."""
    fork: bool = False
    stall_after: float | None = None
    most_steps: int | None = None
    ask_every_command: bool = False
    most_empty_steps: int | None = MOST_EMPTY_STEPS
