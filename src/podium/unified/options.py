"""What a caller can ask of any agent. Each option is mapped per agent or refused (``NotSupported``), never ignored."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import msgspec

from .decisions import CanUseTool

Tier = Literal["dry-run", "supervised", "autonomous"]
Approval = Literal["ask", "askDangerous", "autoEdit", "autoAll"]
Sandbox = Literal["none", "readOnly", "workspaceWrite", "fullAccess"]


class McpServer(msgspec.Struct, frozen=True, kw_only=True):
    """A server of the Model Context Protocol: ``command`` + ``args`` + ``env`` (stdio), or ``url`` + ``headers``."""

    command: str = ""
    args: tuple[str, ...] = ()
    env: Mapping[str, str] = {}
    url: str = ""
    headers: Mapping[str, str] = {}
    transport: Literal["stdio", "http", "sse"] = "stdio"


class Options(msgspec.Struct, frozen=True, kw_only=True):
    cwd: str = "."
    model: str | None = None
    tier: Tier = "supervised"
    approval: Approval | None = None
    sandbox: Sandbox | None = None
    max_turns: int | None = None
    max_budget_usd: float | None = None
    resume: str | None = None
    fork: bool = False
    allowed_tools: tuple[str, ...] | None = None
    disallowed_tools: tuple[str, ...] = ()
    can_use_tool: CanUseTool | None = None
    policy: Any = None
    """A ``permissions.policy.Policy`` or the path of a policy file: its rules decide before anybody is asked."""
    remember_in: str | None = None
    """The policy file that ``remember="always"`` adds its rule to; by default the one given as ``policy``."""
    audit: str | None = None
    """A file that every decision is appended to, hash-chained (``podium audit verify``)."""
    system_prompt: str | None = None
    append_system_prompt: str | None = None
    mcp_servers: Mapping[str, McpServer] = {}
    output_schema: Mapping[str, Any] | None = None
    images: tuple[str, ...] = ()
    env: Mapping[str, str] = {}
    inherit_env: bool = True
    """False: the agent sees ``env`` and nothing else of our environment."""
    timeout: float | None = None
    """Seconds a turn may take before it is interrupted."""
    permission_timeout: float | None = 300.0
    """Seconds a question waits before it is denied; ``None`` waits for ever."""
    stall_after: float | None = 120.0
    """Seconds without output and without processor time before a notice says so."""
    watch_files: bool = True
    """Compare the workspace before and after each turn, so that no change goes untold."""
    extra_args: tuple[str, ...] = ()
    driver: str | None = None
    executable: str | None = None
    raw: bool = False
    """Put the native message beside each event."""
