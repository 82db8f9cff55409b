"""What a caller can ask of any agent. Each option is mapped per agent or refused (``NotSupported``), never ignored."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Iterable, Mapping
from pathlib import PurePath
from typing import TYPE_CHECKING, Any, Literal, TypedDict, cast, get_args, get_type_hints

import msgspec

from ..errors import BadRequest
from ..mcp.functions import HOST, Tool, tools_of
from .decisions import CanUseTool

if TYPE_CHECKING:
    from os import PathLike

    from ..permissions.policy import Policy

Tier = Literal["dry-run", "supervised", "autonomous"]
Approval = Literal["ask", "askDangerous", "autoEdit", "autoAll"]
PermissionMode = Literal["default", "accept_edits", "bypass", "plan"]
"""Other words for modes, understood wherever ``approval`` is given to ``run`` and its relatives."""
Sandbox = Literal["none", "readOnly", "workspaceWrite", "fullAccess"]
Confine = Literal["off", "workspace", "read-only"]

APPROVALS: dict[Tier, Approval] = {"dry-run": "ask", "supervised": "autoEdit", "autonomous": "autoAll"}
"""When somebody is asked under a tier that is not told otherwise."""
SANDBOXES: dict[Tier, Sandbox] = {"dry-run": "readOnly", "supervised": "none", "autonomous": "none"}
CONFINED: dict[Confine, Sandbox | None] = {"off": None, "workspace": "workspaceWrite", "read-only": "readOnly"}
"""What a confinement of ours amounts to."""
HOOKED_EVENTS = (
    "init", "turn_started", "text", "thinking", "plan", "tool_use", "tool_result", "file_change", "permission_request",
    "permission_resolved", "usage", "retry", "notice", "error", "turn_completed", "done", "unrecognized",
    "files_restored",
)  # fmt: skip
"""Those that ``on_event`` knows: all but the pieces, of which there are too many to start a program for each."""


class McpServer(msgspec.Struct, frozen=True, kw_only=True):
    """A server of the Model Context Protocol: ``command`` + ``args`` + ``env`` (stdio), or ``url`` + ``headers``."""

    command: str = ""
    args: tuple[str, ...] = ()
    env: Mapping[str, str] = {}
    url: str = ""
    headers: Mapping[str, str] = {}
    transport: Literal["stdio", "http", "sse"] = "stdio"


class FunctionServer(McpServer, frozen=True, kw_only=True):
    """The server of the caller's own functions, in this process. It decides about each call itself."""

    listed: Callable[[float], Awaitable[bool]]
    """Waits for so many seconds until the agent has read the list of tools; whether it has. Some agents begin their
    first turn before they have."""


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """All options, checked. The text below each is its meaning in docs/options.md."""

    cwd: str = "."
    """The working directory of the agent."""
    model: str | None = None
    """The model, by the agent's own name for it."""
    effort: str | None = None
    """How much the model thinks before it answers, by the agent's own word for it (`low`, `high`)."""
    mode: str | None = None
    """The agent's own mode, where it has any (`stagedoor agents add`) and the tier does not decide it."""
    tier: Tier = "supervised"
    """How much the agent may do without asking: `dry-run` changes nothing, `supervised` asks before it runs commands,
    `autonomous` never asks. See [tiers](tiers.md)."""
    approval: Approval | None = None
    """Which calls are asked about, in place of the tier's own choice. `default` is the tier's own, `plan` a dry run
    whatever the tier, `accept_edits` is `autoEdit`, `bypass` is `autoAll`."""
    sandbox: Sandbox | None = None
    """What commands may touch: by the agent's own sandbox where it has one, else by `confine`."""
    confine: Confine = "off"
    """Run the agent with everything it starts in a sandbox of ours: `workspace` lets it write in `cwd` and its own
    state folders only, `read-only` not even in `cwd`. Refused where the machine cannot do it. See
    [confine](confine.md)."""
    confine_write: tuple[str, ...] = ()
    """With `confine`: more folders that may be written, such as a package cache."""
    confine_hide: tuple[str, ...] = ()
    """With `confine`: files and folders that cannot even be read, such as `~/.ssh`."""
    trust: bool | None = None
    """Whether the project's own settings, hooks, plugins, tool servers and commands may take part. `None`: what is
    recorded for the folder (`stagedoor trust`), by default not. See [security](security.md)."""
    max_turns: int | None = None
    """Model calls per prompt before the turn ends as `max_turns`."""
    max_budget_usd: float | None = None
    """Cost before the turn ends as `max_budget`."""
    resume: str | None = None
    """The session to continue: Stagedoor's id, the agent's, or `last` for the agent's newest one in `cwd`."""
    fork: bool = False
    """With `resume`: continue in a copy and leave the original unchanged."""
    allowed_tools: tuple[str, ...] | None = None
    """Only these tools exist or are allowed; naming one grants nothing. By our words (`shell`, `read`), the agent's own
    names (`Bash`), or a server's (`mcp__server__tool`, `mcp`). See [permissions](permissions.md#lists-of-tools)."""
    disallowed_tools: tuple[str, ...] = ()
    """These tools do not exist or are denied, also those of `allowed_tools`. The same names."""
    can_use_tool: CanUseTool | None = None
    """Your function that decides about a permission request, plain or `async`. Without one, every request is
    denied."""
    policy: Any = None
    """A `Policy` or the path of a policy file. Its rules decide before anybody is asked."""
    before_tool_call: tuple[str, ...] = ()
    """A command that decides about every call before it runs: JSON on its standard input, its answer on its standard
    output. See [permissions](permissions.md#hooks)."""
    after_tool_call: tuple[str, ...] = ()
    """A command that is told of every call when it is over."""
    on_event: Mapping[str, tuple[str, ...]] = {}
    """Commands that are told of events, by the type of event (`turn_completed`, `permission_request`, …): the event as
    JSON on their standard input. Not of pieces (`text_delta`, `thinking_delta`, `tool_progress`)."""
    hook_timeout: float = 60.0
    """Seconds that one of these commands may take; a decision that is late is a no."""
    protected: Mapping[str, str] = {}
    """More files that are asked about before they are written, in every tier but `autonomous`: path patterns, or
    patterns with the reason that is shown. See [permissions](permissions.md#protected-files)."""
    remember_in: str | None = None
    """The policy file that `remember="always"` adds its rule to; by default the one given as `policy`."""
    audit: str | None = None
    """A file that every decision is appended to, hash-chained (`stagedoor audit verify`)."""
    system_prompt: str | None = None
    """Replaces the agent's own system prompt."""
    append_system_prompt: str | None = None
    """Added to the agent's own system prompt."""
    mcp_servers: Mapping[str, McpServer] = {}
    """Tool servers (Model Context Protocol) by name."""
    tools: tuple[Tool, ...] = ()
    """Functions of your program as tools, plain or `async`: their names, docstrings and type hints say the rest. See
    [tools](tools.md)."""
    output_schema: Mapping[str, Any] | None = None
    """A JSON Schema for the final answer; the result is in `turn_completed.structured`."""
    images: tuple[str, ...] = ()
    """Images for the first prompt: paths, or `data:` URLs with base64."""
    env: Mapping[str, str] = {}
    """Environment variables for the agent, on top of ours."""
    inherit_env: bool = True
    """False: the agent sees `env` and nothing else of our environment."""
    timeout: float | None = None
    """Seconds a turn may take before it is interrupted."""
    permission_timeout: float | None = 300.0
    """Seconds a question waits before it is denied; `None` waits for ever."""
    stall_after: float | None = 120.0
    """Seconds without output and without processor time before a notice says so."""
    watch_files: bool = True
    """Compare the workspace before and after each turn, so that every change is reported."""
    checkpoints: bool = False
    """Keep how the workspace stands before each turn, so that `session.undo()` can restore it. A server does so by
    itself."""
    extra_args: tuple[str, ...] = ()
    """More arguments for the agent's program."""
    driver: str | None = None
    """The way to run the agent, where it has several."""
    executable: str | None = None
    """The agent's program, if it is not the one on the PATH."""
    raw: bool | Literal["lines"] = False
    """Add the native message to each event, as `event.native`; `lines`: once each, and not for pieces of text."""


class HostedOptions(Options, frozen=True, kw_only=True):
    """Of a session that is driven by an editor, for agents that leave files and commands to their client."""

    host: Callable[[str, Mapping[str, Any]], Awaitable[Mapping[str, Any] | None]]
    """Carries out a method of the Agent Client Protocol in the editor; ``None``: it cannot, and we do it."""


class OpenOptions(TypedDict, total=False):
    """What ``run``, ``open`` and their relatives take as keyword arguments: the fields of ``Options``, as callers may
    write them."""

    cwd: str | PathLike[str]
    model: str | None
    effort: str | None
    mode: str | None
    tier: Tier
    approval: Approval | PermissionMode | None
    sandbox: Sandbox | None
    confine: Confine
    confine_write: list[str] | tuple[str, ...]
    confine_hide: list[str] | tuple[str, ...]
    trust: bool | None
    max_turns: int | None
    max_budget_usd: float | None
    resume: str | None
    fork: bool
    allowed_tools: list[str] | tuple[str, ...] | None
    disallowed_tools: list[str] | tuple[str, ...]
    can_use_tool: CanUseTool | None
    policy: Policy | str | PathLike[str] | None
    before_tool_call: list[str] | tuple[str, ...]
    after_tool_call: list[str] | tuple[str, ...]
    on_event: Mapping[str, list[str] | tuple[str, ...]]
    hook_timeout: float
    protected: list[str] | tuple[str, ...] | Mapping[str, str]
    remember_in: str | PathLike[str] | None
    audit: str | PathLike[str] | None
    system_prompt: str | None
    append_system_prompt: str | None
    mcp_servers: Mapping[str, McpServer]
    tools: list[Callable[..., Any] | Tool] | tuple[Callable[..., Any] | Tool, ...]
    output_schema: Mapping[str, Any] | None
    images: list[str] | tuple[str, ...]
    env: Mapping[str, str]
    inherit_env: bool
    timeout: float | None
    permission_timeout: float | None
    stall_after: float | None
    watch_files: bool
    checkpoints: bool
    extra_args: list[str] | tuple[str, ...]
    driver: str | None
    executable: str | PathLike[str] | None
    raw: bool | Literal["lines"]


_CHOICES: dict[str, tuple[str, ...]] = {
    "tier": get_args(Tier),
    "approval": (*get_args(Approval), *get_args(PermissionMode)),
    "sandbox": get_args(Sandbox),
    "confine": get_args(Confine),
}
_ABOVE_ZERO = ("hook_timeout", "max_turns", "max_budget_usd", "timeout", "permission_timeout", "stall_after")
_AS_THEY_ARE = ("can_use_tool", "policy")  # a function, and what is read where policies are known


_MODES: dict[PermissionMode, dict[str, str | None]] = {
    "default": {"approval": None},
    "accept_edits": {"approval": "autoEdit"},
    "bypass": {"approval": "autoAll"},
    "plan": {"approval": None, "tier": "dry-run"},
}


def without_modes(values: Mapping[str, Any]) -> Mapping[str, Any]:
    """The same with ``approval`` in our own words. Planning is a dry run, whatever tier is named beside it."""
    approval = values.get("approval")
    return {**values, **_MODES[approval]} if isinstance(approval, str) and approval in _MODES else values


def check_options(values: Mapping[str, Any]) -> Options:
    """The options as they were named, each checked before anything is started. Raises ``BadRequest``."""
    values = without_modes(values)
    unknown = set(values) - set(Options.__struct_fields__)
    if unknown:
        raise TypeError(
            f"unknown option {sorted(unknown)[0]!r}; the options are {', '.join(Options.__struct_fields__)}"
        )
    options = Options(**{name: _checked(name, value) for name, value in values.items()})
    for kind, words in options.on_event.items():
        if kind not in HOOKED_EVENTS:
            raise BadRequest(
                f"on_event: there is no event {kind!r} for a command; choose from {', '.join(HOOKED_EVENTS)}"
            )
        if not words:
            raise BadRequest(f"on_event: the command of {kind!r} is empty; give its words")
    if options.fork and options.resume is None:
        raise BadRequest("fork=True copies a session: name it with resume=")
    if options.tools and HOST in options.mcp_servers:
        raise BadRequest(f"mcp_servers: {HOST!r} is the server of your own tools: give that one another name")
    for name in ("confine_write", "confine_hide"):
        if getattr(options, name) and options.confine == "off" and options.sandbox != "workspaceWrite":
            raise BadRequest(f"{name} changes what confine does: set confine='workspace' or 'read-only' too")
    return options


def _checked(name: str, value: Any) -> Any:
    if name in _AS_THEY_ARE:
        if name == "can_use_tool" and value is not None and not callable(value):
            raise BadRequest(f"can_use_tool={value!r}: give a function that takes a request and returns Allow or Deny")
        return value
    if name == "tools":
        if not isinstance(value, list | tuple):
            raise BadRequest(f"tools={value!r}: give a list of functions")
        return tools_of(cast("Iterable[Callable[..., Any] | Tool]", value))
    if name == "protected" and isinstance(value, list | tuple):
        value = protected_files(value)  # pyright: ignore[reportUnknownArgumentType]
    try:
        checked = msgspec.convert(_plain(value), _hints()[name])
    except msgspec.ValidationError as fault:
        if name in _CHOICES:
            raise BadRequest(f"{name}={value!r}: choose from {', '.join(_CHOICES[name])}") from None
        shown = name if isinstance(value, Mapping) else f"{name}={value!r}"  # tables hold secrets
        raise BadRequest(f"{shown}: {str(fault)[:1].lower()}{str(fault)[1:]}") from None
    if name in _ABOVE_ZERO and checked is not None and not 0 < checked < math.inf:
        raise BadRequest(f"{name}={value!r}: give a number above 0, or None for no limit")
    return checked


def protected_files(patterns: Iterable[str]) -> dict[str, str]:
    """Patterns alone, with the reason that is shown for them."""
    return dict.fromkeys(patterns, "it is protected by your settings")


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
