"""How a Claude Code session shall run: every useful option, typed. Pure."""

from __future__ import annotations

import enum
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Literal, TypeAlias

import msgspec

from stagedoor.wire.permission import PermissionBehavior

from ...errors import LocalProtocolError
from ...mcp.protocol import ToolServer
from ...transports.launch import Confinement
from .commands import Decision
from .events import CanUseTool, Elicitation, HookCallback

CanUseToolCallback: TypeAlias = Callable[
    [CanUseTool], Decision | PermissionBehavior | Awaitable[Decision | PermissionBehavior]
]
ElicitCallback: TypeAlias = Callable[[Elicitation], Mapping[str, Any] | Awaitable[Mapping[str, Any] | None] | None]
HookOutput: TypeAlias = Mapping[str, Any] | None
HookFunction: TypeAlias = Callable[[HookCallback], HookOutput | Awaitable[HookOutput]]
Effort: TypeAlias = Literal["low", "medium", "high", "xhigh", "max"]


class ClaudePermissionMode(enum.Enum):
    """Who decides about a tool call.

    With ``can_use_tool`` set, whatever the mode itself does not decide is asked through the control channel.
    ``delegate`` asks through an MCP server instead (``--permission-prompt-tool mcp__…``; needs the ``mcp`` package).
    """

    default = "default"
    accept_edits = "acceptEdits"
    auto = "auto"
    bypass_permissions = "bypassPermissions"
    dont_ask = "dontAsk"
    plan = "plan"
    delegate = "delegate"


class HookMatcher(msgspec.Struct, frozen=True):
    """Functions for one kind of hook. ``matcher`` is a pattern over tool names, ``None`` is every tool.

    A function gets the :class:`HookCallback` and returns the hook's output, such as
    ``{"hookSpecificOutput": {"hookEventName": "PreToolUse", "permissionDecision": "deny", …}}``, or ``None`` for no
    opinion. ``PreToolUse`` fires for every call, also for those that need no permission. A function that fails or
    takes longer than ``timeout`` seconds denies in ``PreToolUse`` and has no opinion elsewhere.
    """

    hooks: Sequence[HookFunction]
    matcher: str | None = None
    timeout: float | None = None


HOOK_EVENTS = (
    "PreToolUse", "PostToolUse", "PostToolUseFailure", "PermissionRequest", "UserPromptSubmit", "SessionStart",
    "SessionEnd", "Stop", "SubagentStart", "SubagentStop", "PreCompact", "PostCompact", "Notification",
)  # fmt: skip


class ClaudeSessionConfig(msgspec.Struct, frozen=True, kw_only=True):
    """Options of one session. Everything left out is Claude Code's own default.

    ``can_use_tool`` may be a plain or an async function; each question runs on its own. An exception, a wrong answer
    and silence longer than ``permission_timeout`` all deny. ``host_answers_permissions`` asks the questions without a
    callback: they come as ``CanUseTool`` events and are answered with ``session.answer``.
    """

    permission_mode: ClaudePermissionMode | None = None
    can_use_tool: CanUseToolCallback | None = None
    elicit: ElicitCallback | None = None
    """Fills in what an MCP server asks for, or returns None to decline; without one, everything is declined."""
    host_answers_permissions: bool = False
    permission_timeout: float | None = None
    permission_prompt_tool: str | None = None
    allow_dangerously_skip_permissions: bool = False
    hooks: Mapping[str, Sequence[HookMatcher]] = {}

    model: str | None = None
    fallback_models: Sequence[str] = ()
    effort: Effort | None = None
    max_thinking_tokens: int | None = None
    system_prompt: str | None = None
    append_system_prompt: str | None = None
    agents: Mapping[str, Mapping[str, Any]] = {}
    agent: str | None = None
    max_turns: int | None = None
    max_budget_usd: float | None = None
    output_schema: Mapping[str, Any] | None = None

    tools: Sequence[str] | None = None
    allowed_tools: Sequence[str] = ()
    disallowed_tools: Sequence[str] = ()
    mcp_servers: Mapping[str, Mapping[str, Any] | ToolServer] = {}
    awaited_servers: tuple[str, ...] = ()
    """The first prompt waits until these are connected; Claude Code itself does not."""
    strict_mcp_config: bool = False
    add_dirs: Sequence[str] = ()
    settings: str | Mapping[str, Any] | None = None
    setting_sources: Sequence[str] | None = None

    session_id: str | None = None
    fork_session: bool = False
    continue_session: bool = False
    persist_session: bool = True
    name: str | None = None

    include_partial_messages: bool = True
    include_hook_events: bool = False
    replay_user_messages: bool = False
    forward_subagent_text: bool = False
    prompt_suggestions: bool = False
    bare: bool = False
    safe_mode: bool = False

    env: Mapping[str, str] = {}
    extra_args: Sequence[str] = ()
    confinement: Confinement | None = None
    """Run it in a sandbox of ours."""
    stall_after: float | None = None

    @property
    def asks_host(self) -> bool:
        """Whether permission questions come over the control channel."""
        if self.permission_mode is ClaudePermissionMode.delegate or self.permission_prompt_tool is not None:
            return False
        return self.can_use_tool is not None or self.host_answers_permissions

    @property
    def delegates(self) -> bool:
        return self.permission_mode is ClaudePermissionMode.delegate

    def tool_servers(self) -> dict[str, ToolServer]:
        """The MCP servers that live in this process."""
        return {name: server for name, server in self.mcp_servers.items() if isinstance(server, ToolServer)}


def check(config: ClaudeSessionConfig, *, resume: str | None = None) -> None:
    """Refuse combinations that Claude Code would misread or drop, each with what to do instead."""
    _check_permissions(config)
    _check_session(config, resume)
    for event in config.hooks:
        if event not in HOOK_EVENTS:
            raise LocalProtocolError(f"unknown hook {event!r}; the hooks are {', '.join(HOOK_EVENTS)}")
    if config.max_turns is not None and config.max_turns < 1:
        raise LocalProtocolError(f"max_turns must be at least 1, not {config.max_turns}; leave it out for no limit")
    if config.max_budget_usd is not None and config.max_budget_usd <= 0:
        raise LocalProtocolError(
            f"max_budget_usd must be above 0, not {config.max_budget_usd}; leave it out for no limit"
        )
    for option, values in (("allowed_tools", config.allowed_tools), ("disallowed_tools", config.disallowed_tools)):
        if isinstance(values, str):
            raise LocalProtocolError(f'{option} takes a list of tools, not the string {values!r}; write ["{values}"]')


def _check_permissions(config: ClaudeSessionConfig) -> None:
    if config.delegates and config.can_use_tool is None:
        raise LocalProtocolError(
            "permission_mode delegate needs can_use_tool, the function that decides; set it, or choose another mode"
        )
    if config.delegates and config.permission_prompt_tool is not None:
        raise LocalProtocolError(
            "permission_mode delegate sets permission_prompt_tool itself; leave one of the two out"
        )
    if config.permission_prompt_tool is not None and config.can_use_tool is not None:
        raise LocalProtocolError("permission_prompt_tool and can_use_tool cannot both decide; leave one of the two out")


def _check_session(config: ClaudeSessionConfig, resume: str | None) -> None:
    if resume is not None and config.continue_session:
        raise LocalProtocolError(
            "continue_session picks the newest session; leave it out when you resume a session by its id"
        )
    if config.fork_session and resume is None and not config.continue_session:
        raise LocalProtocolError("fork_session needs a session to copy: resume one by its id, or set continue_session")
    if config.session_id is not None and (resume is not None or config.continue_session) and not config.fork_session:
        raise LocalProtocolError("a resumed session keeps its id; leave session_id out, or set fork_session")
    if config.session_id is not None and not _is_uuid(config.session_id):
        raise LocalProtocolError(f"session_id must be a UUID, not {config.session_id!r}; use str(uuid.uuid4())")
    if resume is not None and not resume.strip():
        raise LocalProtocolError("the id of the session to resume is empty; list_sessions() shows the ids")


def _is_uuid(text: str) -> bool:
    groups = text.split("-")
    return [len(group) for group in groups] == [8, 4, 4, 4, 12] and all(
        char in "0123456789abcdefABCDEF" for group in groups for char in group
    )
