"""How a Gemini session shall run, in the CLI's own words."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Any, TypeAlias

import msgspec

from stagedoor.agents.acp.config import AskPermission

from .policy import PolicyRule


class Driver(StrEnum):
    STREAM_JSON = "stream-json"
    """A process for each turn, which asks nobody: what is not allowed is not there."""
    ACP = "acp"
    """One process for the session, which asks before it acts."""


class ApprovalMode(StrEnum):
    DEFAULT = "default"
    AUTO_EDIT = "auto_edit"
    """Over ACP, edits and ``web_fetch`` then pass by every policy rule, those that deny included."""
    PLAN = "plan"
    YOLO = "yolo"


class StdioServer(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    """An MCP server the CLI starts. As in settings.json, ``$NAME`` in a string stands for an environment variable."""

    command: str
    args: tuple[str, ...] = ()
    env: Mapping[str, str] = {}
    cwd: str | None = None
    timeout: int | None = None
    trust: bool | None = None
    include_tools: tuple[str, ...] | None = None
    exclude_tools: tuple[str, ...] | None = None


class HttpServer(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename={"http_url": "httpUrl"}):
    """An MCP server at a URL (streamable HTTP)."""

    http_url: str
    headers: Mapping[str, str] = {}
    timeout: int | None = None
    trust: bool | None = None


class SseServer(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An MCP server at a URL (server-sent events)."""

    url: str
    headers: Mapping[str, str] = {}
    timeout: int | None = None
    trust: bool | None = None


McpServer: TypeAlias = StdioServer | HttpServer | SseServer


class GeminiConfig(msgspec.Struct, frozen=True, kw_only=True):
    """Every useful flag and setting. What is ``None`` is left to the user's own settings."""

    driver: Driver | None = None
    """By default ACP when there is a ``can_use_tool``, else stream-json."""
    approval_mode: ApprovalMode = ApprovalMode.DEFAULT
    model: str | None = None
    can_use_tool: AskPermission | None = None
    """Asked before a tool is used: ``allow_once``, ``allow_always``, ``reject_once``, or one of the offered options.

    The CLI does not ask about everything: it reads, and runs commands it thinks harmless (``ls``, ``echo``), unasked;
    a rule that asks and has an ``args_pattern`` makes it ask about those too. Even in ``yolo`` it asks before it edits
    a build file (``package.json``, ``Makefile``); a headless run refuses that.
    """
    permission_timeout: float | None = None
    """Seconds after which an unanswered question is denied."""

    policy: tuple[PolicyRule, ...] = ()
    policy_files: tuple[str, ...] = ()
    allowed_tools: tuple[str, ...] = ()
    """Short rules, as in ``run_shell_command(git status)``; they become policy."""
    excluded_tools: tuple[str, ...] = ()

    sandbox: bool = False
    sandbox_image: str | None = None
    trust_workspace: bool = True
    """Without it a folder the user never trusted is refused (exit 55), or runs restricted over ACP.

    With it, the folder's own settings count: its hooks and MCP servers run. Leave it out for code you do not trust.
    """
    include_directories: tuple[str, ...] = ()

    session_id: str | None = None
    """For a new stream-json session; by default a fresh one."""
    max_session_turns: int | None = None
    max_attempts: int = 3
    """The CLI's own default is 10: minutes of silence when the API is down."""

    mcp_servers: Mapping[str, McpServer] = {}
    allowed_mcp_server_names: tuple[str, ...] = ()
    extensions: tuple[str, ...] | None = None
    """Use only these; ``()`` is none of them."""
    system_prompt: str | None = None
    """Replaces the CLI's own."""

    auth_type: str | None = None
    """``security.auth.selectedType``; by default ``gemini-api-key`` if there is a key and the user chose nothing."""
    usage_statistics: bool | None = None
    settings: Mapping[str, Any] = {}
    """More of settings.json, laid over the user's own for this session only."""
    expand_prompt: bool = False
    """Let the CLI run ``/commands`` and append ``@files`` in prompts, instead of taking them literally."""
    raw_output: bool = False
    debug: bool = False
    quiet: float | None = None
    """Report ``Stalled`` after so many seconds without output and without processor time."""
    env: Mapping[str, str] = {}
    extra_args: tuple[str, ...] = ()

    @property
    def chosen_driver(self) -> Driver:
        return self.driver or (Driver.ACP if self.can_use_tool else Driver.STREAM_JSON)
