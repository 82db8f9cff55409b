"""How a Codex session is to run, in Codex's own words."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from enum import StrEnum
from typing import Any, Literal, Protocol, TypeAlias

import msgspec

from stagedoor.wire.permission import PermissionBehavior

from ...transports.launch import Confinement
from .commands import Decision
from .questions import Question

DriverName: TypeAlias = Literal["exec", "app-server"]
CanUseTool: TypeAlias = Callable[[Question], Decision | PermissionBehavior | Awaitable[Decision | PermissionBehavior]]
"""Answers a question. It may take its time: neither the stream nor another question waits for it."""


class SideServer(Protocol):
    """Something that a session needs beside it."""

    async def close(self) -> None: ...
    def abandon(self) -> None:
        """For finalizers."""
        ...


class ApprovalPolicy(StrEnum):
    """When Codex asks. ``codex exec`` never does, whatever is configured; only the app-server can."""

    UNTRUSTED = "untrusted"
    """Before every command and every patch."""
    ON_REQUEST = "on-request"
    """When the model wants out of the sandbox, and for MCP tools."""
    ON_FAILURE = "on-failure"
    """No longer known to Codex; ``on-request`` took its place and is what we send."""
    NEVER = "never"
    """Failures go back to the model."""


class GranularApproval(msgspec.Struct, frozen=True, kw_only=True):
    """The approval policy ``granular``: which kinds of question may be asked at all."""

    sandbox_approval: bool = True
    rules: bool = True
    mcp_elicitations: bool = True
    request_permissions: bool = True
    skill_approval: bool = True


class SandboxMode(StrEnum):
    READ_ONLY = "read-only"
    WORKSPACE_WRITE = "workspace-write"
    """The working directory and the temporary folders; no network, ``.git`` stays read-only."""
    DANGER_FULL_ACCESS = "danger-full-access"


class CodexSessionConfig(msgspec.Struct, frozen=True, kw_only=True):
    """Every option is sent, or refused with a sentence when the driver cannot honour it; none is silently dropped.

    ``driver`` is by default the app-server when questions can be asked (``can_use_tool``, or an approval policy that
    asks, or ``plan_mode``), else ``exec``. ``sandbox`` ``None`` leaves the choice to the user's own configuration.

    Whatever runs, nothing is written into the user's configuration: Codex would mark the project as trusted for ever
    as soon as the sandbox is writable, so ``project_trust`` is set for this run alone. ``"trusted"`` lets the
    project's own ``.codex`` folder take part.
    """

    driver: DriverName | None = None
    model: str | None = None
    model_provider: str | None = None
    reasoning_effort: str | None = None
    reasoning_summary: Literal["auto", "concise", "detailed", "none"] | None = None
    approval_policy: ApprovalPolicy | GranularApproval | None = None
    sandbox_mode: SandboxMode | None = SandboxMode.WORKSPACE_WRITE
    network_access: bool = False
    add_dirs: tuple[str, ...] = ()
    project_trust: Literal["untrusted", "trusted"] = "untrusted"
    full_auto: bool = False
    """Write in the workspace without questions. (The flag of that name is gone; this is what it did.)"""
    dangerously_bypass_approvals_and_sandbox: bool = False
    approve_for_me: bool = False
    """A reviewer model decides instead of a human."""

    can_use_tool: CanUseTool | None = None
    permission_timeout: float | None = None
    """Seconds after which an unanswered question is declined."""
    plan_mode: bool = False
    """Plan with the user before doing anything; the only mode in which the model can ask questions."""

    base_instructions: str | None = None
    """Instead of Codex's own system prompt."""
    developer_instructions: str | None = None
    """In addition to it. A thread keeps those it was started with: on a resume Codex does not take new ones."""
    web_search: Literal["disabled", "cached", "indexed", "live"] | bool | None = None
    mcp_servers: Mapping[str, Mapping[str, Any]] = {}
    """By name, with Codex's keys: ``command args env`` or ``url``, ``required``, ``default_tools_approval_mode`` …"""
    output_schema: Mapping[str, Any] | None = None
    images: tuple[str, ...] = ()
    """Files shown with the first prompt."""

    ephemeral: bool = False
    worktree: bool = False
    profile: str | None = None
    ignore_user_config: bool = False
    ignore_rules: bool = False
    strict_config: bool = False
    require_git_repo: bool = False
    plan_tool: bool = False
    """Offer ``update_plan`` to the model, which Codex no longer does by itself."""
    enable: tuple[str, ...] = ()
    disable: tuple[str, ...] = ()
    config: Mapping[str, Any] = {}
    """Any key of ``config.toml``, dotted, for this run."""
    env: Mapping[str, str] = {}
    extra_args: tuple[str, ...] = ()
    confinement: Confinement | None = None
    """Run it in a sandbox of ours."""
    beside: SideServer | None = None
    """It is closed with the session."""
    stall_after: float | None = None
    """Report ``Stalled`` after so many seconds without output and without processor time."""


def on_app_server(config: CodexSessionConfig) -> CodexSessionConfig:
    return msgspec.structs.replace(config, driver="app-server")


def chosen_driver(config: CodexSessionConfig) -> DriverName:
    if config.driver is not None:
        return config.driver
    asks = config.approval_policy not in (None, ApprovalPolicy.NEVER)
    return "app-server" if config.can_use_tool is not None or asks or config.plan_mode else "exec"
