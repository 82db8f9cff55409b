"""What a caller can ask of any agent. Each option is mapped per agent or refused (``NotSupported``), never ignored."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import PurePath
from typing import Any, Literal, get_args, get_type_hints

import msgspec

from ..errors import BadRequest
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
    """A file that every decision is appended to, hash-chained (``stagedoor audit verify``)."""
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


_CHOICES: dict[str, tuple[str, ...]] = {
    "tier": get_args(Tier),
    "approval": get_args(Approval),
    "sandbox": get_args(Sandbox),
}
_ABOVE_ZERO = ("max_turns", "max_budget_usd", "timeout", "permission_timeout", "stall_after")
_AS_THEY_ARE = ("can_use_tool", "policy")  # a function, and what is read where policies are known


def checked(given: Mapping[str, Any]) -> Options:
    """The options as they were named, each checked before anything is started. Raises ``BadRequest``."""
    unknown = set(given) - set(Options.__struct_fields__)
    if unknown:
        raise TypeError(
            f"unknown option {sorted(unknown)[0]!r}; the options are {', '.join(Options.__struct_fields__)}"
        )
    options = Options(**{name: _right(name, value) for name, value in given.items()})
    if options.fork and options.resume is None:
        raise BadRequest("fork=True copies a session: say which one with resume=")
    return options


def _right(name: str, value: Any) -> Any:
    if name in _AS_THEY_ARE:
        if name == "can_use_tool" and value is not None and not callable(value):
            raise BadRequest(f"can_use_tool={value!r}: give a function that takes a request and returns Allow or Deny")
        return value
    try:
        right = msgspec.convert(_plain(value), _hints()[name])
    except msgspec.ValidationError as fault:
        if name in _CHOICES:
            raise BadRequest(f"{name}={value!r}: choose from {', '.join(_CHOICES[name])}") from None
        shown = name if isinstance(value, Mapping) else f"{name}={value!r}"  # tables hold secrets
        raise BadRequest(f"{shown}: {str(fault)[:1].lower()}{str(fault)[1:]}") from None
    if name in _ABOVE_ZERO and right is not None and not 0 < right < math.inf:
        raise BadRequest(f"{name}={value!r}: give a number above 0, or None for no limit")
    return right


def _hints() -> dict[str, Any]:
    if not _HINTS:
        _HINTS.update(get_type_hints(Options))
    return _HINTS


_HINTS: dict[str, Any] = {}


def _plain(value: Any) -> Any:
    """Paths as text, and any mapping or sequence as what JSON knows: that is all that is asked of them."""
    match value:
        case PurePath():
            return str(value)
        case Mapping():
            return {key: _plain(one) for key, one in value.items()}  # pyright: ignore[reportUnknownVariableType]
        case list() | tuple():
            return [_plain(one) for one in value]  # pyright: ignore[reportUnknownVariableType]
        case _:
            return value
