"""Our tiers, approval modes and sandbox modes as Codex's approval policy and sandbox, and what we allow it unasked.

| tier, approval       | over the app-server                                     | over exec, which asks nobody |
|----------------------|---------------------------------------------------------|------------------------------|
| dry-run, readOnly    | `never`, `read-only`                                    | `read-only`                  |
| ask, askDangerous    | `untrusted`, `workspace-write`: all that acts is asked  | `read-only`                  |
| supervised, autoEdit | the same, but we allow patches of the workspace's files | `read-only`                  |
| autonomous, autoAll  | `never`, `danger-full-access`                           | `danger-full-access`         |

A sandbox mode takes the place of the sandbox in the rows that act (`none` and `fullAccess` are both
`danger-full-access`), and so does `confine`: the sandbox is ours then, and Codex's own is off in it. MCP tools are
asked about, refused or approved like commands. Which tools it has at all: ``withholding``. A list without
``apply_patch`` makes a session that would never ask ask: there is no switch for it.

Codex's own rules (`rules/*.rules` in its home, "always allow") let a command out of every sandbox unasked. ``exec`` can
ignore them; the app-server cannot, so there a session that may not act has no shell tool when there are any.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from ...agents.codex.config import ApprovalPolicy, CodexSessionConfig, DriverName, SandboxMode
from ...agents.codex.locate import codex_home, trust_roots
from ...errors import NotSupported
from ...permissions.ground import is_free_edit
from ...unified.events import PermissionRequest
from ...unified.options import Approval, FunctionServer, McpServer, Options, Sandbox, Tier
from ..confinement import confinement_of, environ_of, is_confined
from .state import state_of
from .trust import PROJECT_PATHS
from .withholding import (
    RESOURCE_TOOLS,
    SHELL_FEATURES,
    features_off,
    lists_of,
    server_limits,
    settings_off,
    unasked_tools_off,
    user_addresses,
    user_servers,
    withholds_resources,
    without_resources,
)

Stance = Literal["read", "ask", "edits", "free"]

TIERS: dict[Tier, Stance] = {"dry-run": "read", "supervised": "edits", "autonomous": "free"}
_QUESTIONS = "default_mode_request_user_input"
"""The feature with which the model can ask the user something outside of plan mode too."""
APPROVALS: dict[Approval, Stance] = {"ask": "ask", "askDangerous": "ask", "autoEdit": "edits", "autoAll": "free"}
SANDBOXES: dict[Sandbox, SandboxMode] = {
    "none": SandboxMode.DANGER_FULL_ACCESS,
    "readOnly": SandboxMode.READ_ONLY,
    "workspaceWrite": SandboxMode.WORKSPACE_WRITE,
    "fullAccess": SandboxMode.DANGER_FULL_ACCESS,
}
FUNCTION_SECONDS = 86_400.0
"""A function of the calling program may take as long as it likes; whoever is impatient interrupts the turn."""
PATCH, SHELL = "apply_patch", "exec_command"
SYSTEM_RULES = Path("/etc/codex/rules")


def stance_of(options: Options) -> Stance:
    if options.tier == "dry-run" or options.sandbox == "readOnly":
        return "read"
    return TIERS[options.tier] if options.approval is None else APPROVALS[options.approval]


def asks(options: Options) -> bool:
    """Whether Codex must ask before something happens: also about a patch, which it has no switch for."""
    return stance_of(options) in ("ask", "edits") or (stance_of(options) == "free" and not _patches(options))


def check_exec(options: Options) -> None:
    """``exec`` asks nobody, and takes patches away only together with all other writing."""
    lists = lists_of(options)
    if stance_of(options) == "free" and lists.withholds(PATCH) and not lists.withholds(SHELL):
        raise NotSupported(
            "codex (exec) cannot withhold apply_patch from a session that has a shell: use driver='app-server', or "
            "withhold shell too"
        )


def _patches(options: Options) -> bool:
    return not lists_of(options).withholds(PATCH)


def has_rules(environ: Mapping[str, str]) -> bool:
    """Whether the user has rules that could let a command out of the sandbox."""
    places = (codex_home(environ) / "rules", SYSTEM_RULES)
    return any(place.is_dir() and any(place.iterdir()) for place in places)


def config_of(options: Options, driver: DriverName) -> CodexSessionConfig:
    """Everything but the callback."""
    stance, lists = stance_of(options), lists_of(options)
    sandbox, network = _sandbox(options, stance, driver)
    off = (*(tool.name for tool in lists.withheld), *unasked_tools_off(options))
    mine = {name: _server(name, server, options, driver) for name, server in options.mcp_servers.items()}
    questions = driver == "app-server" and asks(options) and not lists.withholds("request_user_input")
    secrets = _header_variables(options) if driver == "exec" else {}
    return CodexSessionConfig(
        driver=driver,
        model=options.model,
        reasoning_effort=options.effort,
        approval_policy=_policy(options, driver),
        sandbox_mode=sandbox,
        network_access=network,
        ignore_rules=driver == "exec" and stance != "free",
        enable=(_QUESTIONS,) if questions else (),
        disable=tuple(dict.fromkeys((*_without_shell(options, stance, driver), *features_off(off)))),
        base_instructions=_instructions(options, options.system_prompt),
        developer_instructions=_instructions(options, options.append_system_prompt),
        mcp_servers=user_servers(
            _config_files(options), lists, asks=stance != "free", resources=reads_resources(options)
        )
        | mine,
        output_schema=options.output_schema,
        images=options.images,
        plan_tool=not lists.withholds("update_plan"),
        config=settings_off(off) | ({"suppress_unstable_features_warning": True} if questions else {}),
        env={**(options.env if options.inherit_env else {}), **secrets},
        extra_args=options.extra_args,
        confinement=confinement_of(options, state_of, PROJECT_PATHS, own_sandbox=True),
        stall_after=options.stall_after,
    )


def reads_resources(options: Options) -> bool:
    """Codex never asks about the resources of a server: tier, mode or policy must allow them, and no list withhold
    them."""
    return not {*unasked_tools_off(options)}.intersection(RESOURCE_TOOLS) and not withholds_resources(lists_of(options))


def gated_servers(options: Options) -> dict[str, str]:
    """The addresses of the servers over HTTP whose resources must be kept from it: the caller's and the user's own."""
    if reads_resources(options):
        return {}
    lists = lists_of(options)
    mine = {
        name: server.url
        for name, server in options.mcp_servers.items()
        if server.transport == "http" and not isinstance(server, FunctionServer) and lists.permits_server(name)
    }
    others = user_addresses(_config_files(options), lists)
    return {name: url for name, url in others.items() if name not in options.mcp_servers} | mine


def _config_files(options: Options) -> list[Path]:
    """Where servers that nobody gave us can come from; the last one decides."""
    # What is laid over a server that is not there would be a server without a command, and Codex would not start.
    roots = [Path(root) / ".codex" for root in reversed(trust_roots(options.cwd))] if options.trust else []
    return [folder / "config.toml" for folder in (SYSTEM_RULES.parent, codex_home(environ_of(options)), *roots)]


def _policy(options: Options, driver: DriverName) -> ApprovalPolicy | None:
    if driver == "exec":
        return None
    return ApprovalPolicy.UNTRUSTED if asks(options) else ApprovalPolicy.NEVER


def _sandbox(options: Options, stance: Stance, driver: DriverName) -> tuple[SandboxMode, bool]:
    """The sandbox, and whether the network is open in it."""
    # Nobody could be asked about a patch of a file from which something runs later.
    if stance == "read" or (driver == "exec" and not (stance == "free" and _patches(options))):
        return SandboxMode.READ_ONLY, False
    if is_confined(options, own_sandbox=True):
        return SandboxMode.DANGER_FULL_ACCESS, False  # its own sandbox does not start inside ours everywhere
    if options.sandbox is not None:
        return SANDBOXES[options.sandbox], False
    if stance == "free":
        return SandboxMode.DANGER_FULL_ACCESS, False
    # Each command was allowed by somebody: one that needs the network shall not have to leave the sandbox for it.
    return SandboxMode.WORKSPACE_WRITE, driver == "app-server"


def _without_shell(options: Options, stance: Stance, driver: DriverName) -> tuple[str, ...]:
    if driver == "exec":
        return ()
    return SHELL_FEATURES if stance == "read" and has_rules(environ_of(options)) else ()


def _instructions(options: Options, text: str | None) -> str | None:
    if text is not None and options.resume is not None:
        raise NotSupported(
            "system_prompt and append_system_prompt cannot change when a Codex thread is resumed: leave them out"
        )
    return text


def _server(name: str, server: McpServer, options: Options, driver: DriverName) -> Mapping[str, Any]:
    stance = stance_of(options)
    asks_us = isinstance(server, FunctionServer)
    # Our own server decides about each call itself, so Codex asks only where it can: then nobody waits for an answer
    # inside a call, which has a time limit.
    approves = stance == "free" or (asks_us and (driver == "exec" or not asks(options)))
    limits: dict[str, Any] = {"default_tools_approval_mode": "approve" if approves else "prompt"}
    limits |= server_limits(name, lists_of(options))
    if asks_us:
        limits["tool_timeout_sec"] = FUNCTION_SECONDS
    match server.transport:
        case "stdio":
            command = {"command": server.command, "args": list(server.args)}
            if not reads_resources(options):
                command = without_resources(server.command, server.args)
            return {**command, "env": dict(server.env), **limits}
        case "http" if driver == "exec":  # its settings are arguments, which every user of the machine can read
            names = {header: _variable(name, header) for header in server.headers}
            return {"url": server.url, "env_http_headers": names, **limits}
        case "http":
            return {"url": server.url, "http_headers": dict(server.headers), **limits}
        case "sse":
            raise NotSupported(f"MCP server {name!r}: Codex does not support SSE: use http or stdio")


def _variable(server: str, header: str) -> str:
    return re.sub(r"\W", "_", f"STAGEDOOR_HEADER_{server}_{header}").upper()


def _header_variables(options: Options) -> dict[str, str]:
    return {
        _variable(name, header): value
        for name, server in options.mcp_servers.items()
        for header, value in server.headers.items()
    }


def allowed_unasked(request: PermissionRequest, options: Options) -> bool:
    """Whether the stance lets this happen without a question."""
    return stance_of(options) == "edits" and _patches(options) and is_free_edit(request, options)
