"""Codex's own tools, and what takes each of them away: it has switches for most, and asks about the rest.

Codex never asks about a web search, which runs at the provider: it is switched off unless tier and policy allow it.
Nor about what is typed into a command that runs (``write_stdin``): whoever allowed ``sh`` once would have allowed all
that is typed into it. Where commands are asked about, they therefore get no input, and each runs to its end.
MCP servers of the user's own configuration are held like those of the caller: their tools are asked about wherever
commands are, whatever that configuration approves beforehand.
"""

from __future__ import annotations

import sys
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, cast, get_args

from ...mcp import tools_only
from ...unified.events import PermissionRequest, Risk, ToolName
from ...unified.options import Options
from ...unified.tool_lists import AgentTool, ToolLists, tool_lists
from ...unified.tools import operation_of
from ..policing import without_denied_tools

TITLE = "Codex CLI"
_AGENTS = (
    "spawn_agent", "send_input", "resume_agent", "wait_agent", "close_agent", "followup_task", "interrupt_agent",
    "list_agents", "send_message", "spawn_agents_on_csv", "report_agent_job_result",
)  # fmt: skip
OWN_TOOLS: tuple[AgentTool, ...] = (
    AgentTool("exec_command", "shell", ("files", "network", "process")),
    AgentTool("write_stdin", "shell", ("files", "network", "process"), "withheld"),
    AgentTool("shell", "shell", ("files", "network", "process")),
    AgentTool("shell_command", "shell", ("files", "network", "process")),
    AgentTool("local_shell", "shell", ("files", "network", "process")),
    AgentTool("apply_patch", "edit_file", ("files",), also=("write_file",)),
    AgentTool("view_image", "read_file", ("files",), "free"),
    AgentTool("web_search", "web_search", ("network",), "withheld", also=("web_fetch",)),
    AgentTool("image_generation", "other", ("files", "network"), "withheld"),
    AgentTool("request_permissions", "other"),
    AgentTool("update_plan", "plan", control="free"),
    AgentTool("get_goal", "other", control="free", also=("plan",)),
    AgentTool("create_goal", "other", control="free", also=("plan",)),
    AgentTool("update_goal", "other", control="free", also=("plan",)),
    AgentTool("request_user_input", "question"),
    AgentTool("request_user_input_async", "question"),
    AgentTool("spawn_agent", "task", control="free"),
    *(AgentTool(name, "other", control="free", also=("task",)) for name in _AGENTS if name != "spawn_agent"),
    AgentTool("sleep", "other", control="free"),
    AgentTool("list_mcp_resources", "mcp", ("network", "process"), "withheld"),
    AgentTool("list_mcp_resource_templates", "mcp", ("network", "process"), "withheld"),
    AgentTool("read_mcp_resource", "mcp", ("network", "process"), "withheld"),
    AgentTool("curr_time", "other", control="plumbing"),
    AgentTool("exec", "other", control="plumbing"),
    AgentTool("wait", "other", control="plumbing"),
    AgentTool("tool_search", "other", control="plumbing"),
)
"""Its own tools, those of other models too. ``exec`` runs a script that can do nothing but call the others, ``wait``
waits for it, ``tool_search`` finds those that the session has. A sub-agent is only started unasked: its calls are asked
about. With no MCP server there is no resource to read; those of all servers are kept from it unless nothing is asked
about."""

SHELL_FEATURES = ("shell_tool", "unified_exec")
"""Without these the model has no shell, in code mode neither."""
_FEATURES: dict[str, tuple[str, ...]] = {
    "exec_command": SHELL_FEATURES,
    "write_stdin": ("unified_exec_tty",),
    "shell": SHELL_FEATURES,
    "shell_command": SHELL_FEATURES,
    "local_shell": SHELL_FEATURES,
    "view_image": ("view_image",),
    "image_generation": ("image_generation",),
    "request_permissions": ("request_permissions_tool",),
    "get_goal": ("goals",),
    "create_goal": ("goals",),
    "update_goal": ("goals",),
    "sleep": ("sleep_tool",),
    **dict.fromkeys(_AGENTS, ("multi_agent",)),
}
_SETTINGS: dict[str, Mapping[str, Any]] = {
    "web_search": {"web_search": "disabled"},
    "update_plan": {"tools.update_plan.enabled": False},
    "request_user_input": {"tools.experimental_request_user_input.enabled": False},
    "request_user_input_async": {"tools.experimental_request_user_input.enabled": False},
    **{name: {"agents.enabled": False} for name in _AGENTS},  # some models have them whatever the feature says
}


def lists_of(options: Options) -> ToolLists:
    return tool_lists(without_denied_tools(options, OWN_TOOLS, "codex"), OWN_TOOLS, agent=TITLE)


def features_off(names: Iterable[str]) -> tuple[str, ...]:
    """The features without which these tools are not offered."""
    return tuple(dict.fromkeys(feature for name in names for feature in _FEATURES.get(name, ())))


def settings_off(names: Iterable[str]) -> dict[str, Any]:
    """The settings with which these tools are not offered."""
    return {key: value for name in names for key, value in _SETTINGS.get(name, {}).items()}


def unasked_tools_off(options: Options) -> tuple[str, ...]:
    """The tools that Codex never asks about and that nothing allows: tier, mode or policy must, and not deny them."""
    unasked = [tool for tool in OWN_TOOLS if tool.control == "withheld"]
    if options.tier == "dry-run" or options.sandbox == "readOnly":
        return tuple(tool.name for tool in unasked)
    from ...permissions.policy import built_in
    from ...permissions.risk.judge import RiskVerdict

    policy = options.policy or built_in(tier=options.tier, approval=options.approval, sandbox=options.sandbox)

    def decided(tool: AgentTool, word: ToolName) -> set[str]:
        request = PermissionRequest(
            request_id="", tool_name=word, native_name=tool.name, operation=operation_of(word), agent="codex"
        )
        verdicts: list[RiskVerdict | None] = [None]
        if word == "shell":  # what is typed may be of any risk, and nobody reads it first
            unread = ("what is typed into the command is not known",)
            verdicts += [RiskVerdict(risk, unread, problems=unread) for risk in get_args(Risk)]
        return {str(policy.decide(request, options.cwd, verdict=verdict).action) for verdict in verdicts}

    return tuple(
        tool.name
        for tool in unasked
        if decided(tool, tool.kind) != {"allow"} or any("deny" in decided(tool, word) for word in tool.also)
    )


# --------------------------------------------------------------------------------------------------------- MCP servers


def server_limits(name: str, lists: ToolLists) -> dict[str, Any]:
    """The keys of a server's table that leave the session the tools it has."""
    if not lists.permits_server(name):
        return {"enabled": False}
    limits: dict[str, Any] = {}
    if lists.allowed is not None and not lists.allowed.all_servers:
        named = [one.tool for one in lists.allowed.servers if one.server == name]
        if all(named):
            limits["enabled_tools"] = named
    denied = [one.tool for one in lists.denied.servers if one.server == name and one.tool]
    return {**limits, "disabled_tools": denied} if denied else limits


RESOURCE_TOOLS = ("list_mcp_resources", "list_mcp_resource_templates", "read_mcp_resource")
"""Codex has them as soon as there is a server, asks about none of them, and has no switch for them."""


def withholds_resources(lists: ToolLists) -> bool:
    return any(lists.withholds(name) for name in RESOURCE_TOOLS)


def without_resources(command: str, arguments: Iterable[str]) -> dict[str, Any]:
    """The command of a server whose resources cannot be reached through it."""
    return {"command": sys.executable, "args": ["-I", tools_only.__file__, command, *arguments]}


def user_servers(
    files: Iterable[Path], lists: ToolLists, *, asks: bool, resources: bool = True
) -> dict[str, dict[str, Any]]:
    """What is laid over the servers of these configuration files. ``asks``: no tool is approved beforehand.
    ``resources``: whether those that they have may be read."""
    over: dict[str, dict[str, Any]] = {}
    for file in files:
        for name, server in _servers_in(file).items():
            limits = server_limits(name, lists)
            if asks:
                tools = _table(server.get("tools"))
                approvals: dict[str, Any] = {"default_tools_approval_mode": "prompt"}
                if tools:
                    approvals["tools"] = {tool: {"approval_mode": "prompt"} for tool in tools}
                limits = {**limits, **approvals}
            command: object = server.get("command")
            if not resources and isinstance(command, str) and limits.get("enabled") is not False:
                words: object = server.get("args")
                more = [str(word) for word in cast("list[object]", words)] if isinstance(words, list) else []
                limits = {**limits, **without_resources(command, more)}
            if limits:
                over.setdefault(name, {}).update(limits)
    return over


def user_addresses(files: Iterable[Path], lists: ToolLists) -> dict[str, str]:
    """Where the servers over HTTP of these configuration files are."""
    addresses: dict[str, str] = {}
    for file in files:
        for name, server in _servers_in(file).items():
            address: object = server.get("url")
            if isinstance(address, str) and lists.permits_server(name):
                addresses[name] = address
    return addresses


def _servers_in(file: Path) -> dict[str, dict[str, Any]]:
    try:
        document = tomllib.loads(file.read_text("utf-8"))
    except (OSError, ValueError):
        return {}  # Codex says itself what is wrong with it, and does not start
    return {name: _table(server) for name, server in _table(document.get("mcp_servers")).items()}


def _table(value: object) -> dict[str, Any]:
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}
