"""Our tiers, approval modes and tool lists as OpenCode's permissions. Pure.

| tier, approval       | stance | reading | edits                | commands, network, MCP | sub-agents              |
|----------------------|--------|---------|----------------------|------------------------|-------------------------|
| dry-run, readOnly    | read   | allow   | deny                 | deny                   | deny                    |
| ask, askDangerous    | ask    | allow   | ask                  | ask                    | allow; their calls: ask |
| supervised, autoEdit | edit   | allow   | ask; inside: allowed | ask                    | allow; their calls: ask |
| autonomous, autoAll  | act    | allow   | allow                | allow                  | allow                   |

*inside*: edits are asked about so that we see them; those inside the working directory we allow at once. (OpenCode's
own notion of inside is the whole repository.) ``run`` can ask nobody: there, everything that needs a question is
denied, and so are all edits: one might be of a file from which something runs later. Leaving the repository and files
named ``.env`` are asked about wherever something is.
With a policy of the caller's (``policed``) reading is asked about too: its rules decide. OpenCode removes a denied
tool from the model's list; its own agent ``plan`` is not used, for it may run commands.
"""

from __future__ import annotations

import fnmatch
from collections.abc import Iterable, Mapping
from typing import Literal

from ...agents.opencode.commands import Action
from ...errors import NotSupported
from ...mcp.functions import HOST
from ...unified.options import Approval, Options, Tier
from ...unified.tool_lists import AgentTool, ServerTool, ToolLists, tool_lists
from .tools import MCP_NAME, OWN_TOOLS, TITLE, name_of, permission_of

Stance = Literal["read", "ask", "edit", "act"]
Rules = dict[str, Action | Mapping[str, Action]]
TIERS: dict[Tier, Stance] = {"dry-run": "read", "supervised": "edit", "autonomous": "act"}
APPROVALS: dict[Approval, Stance] = {"ask": "ask", "askDangerous": "ask", "autoEdit": "edit", "autoAll": "act"}
READING: dict[str, Action] = {"glob": "allow", "grep": "allow", "list": "allow", "lsp": "allow", "skill": "allow"}
PLANNING: dict[str, Action] = {"todowrite": "allow"}
SECRETS = ("*.env", "*.env.*")


def stance_of(options: Options) -> Stance:
    if options.tier == "dry-run" or options.sandbox == "readOnly":
        return "read"
    return TIERS[options.tier] if options.approval is None else APPROVALS[options.approval]


def rules(options: Options, *, asks: bool, policed: bool = False) -> Rules:
    """``asks``: over this driver somebody can be asked."""
    stance = stance_of(options)
    unsure: Action = "ask" if asks else "deny"
    granted: Rules = {"*": "allow" if stance == "act" else "deny" if stance == "read" else unsure}
    if stance == "act":
        granted |= {"external_directory": "allow", "doom_loop": "allow"}
    else:
        reading: dict[str, Action] = {"*": "allow", **{name: unsure for name in SECRETS}, "*.env.example": "allow"}
        granted |= {**PLANNING, **READING, "read": reading}
    match stance:
        case "ask" | "edit":
            granted |= {"task": "allow"}
        case "read":
            granted |= {"external_directory": unsure if policed else "deny"}
        case "act":
            pass
    if policed and asks and stance != "act":
        granted |= {name: "ask" for name in ("read", *READING)}
    granted["question"] = "allow" if asks else "deny"  # where nobody answers, it is refused at once
    limited = _limit_tools(granted, lists_of(options))
    if options.tools and (stance == "read" or not asks):
        # They decide about each call themselves, and in a dry run there are only those that only read.
        limited[_served(ServerTool(HOST))] = "allow"
    return limited


def lists_of(options: Options) -> ToolLists:
    return tool_lists(options, OWN_TOOLS, agent=TITLE, mcp_name=MCP_NAME)


def offered(tools: Iterable[str], granted: Rules, lists: ToolLists) -> tuple[str, ...]:
    """Those of OpenCode's own ``tools`` that its model sees: it takes away what the last rule denies."""

    def is_denied(tool: str) -> bool:
        permission = permission_of(tool)
        matching = [rule for name, rule in granted.items() if fnmatch.fnmatchcase(permission, name)]
        return bool(matching) and matching[-1] == "deny"

    plumbing = {tool.name for tool in OWN_TOOLS if tool.control == "plumbing"}
    return tuple(
        tool for tool in tools if tool not in plumbing and not is_denied(tool) and lists.permits(tool, name_of(tool))
    )


def check_run(options: Options) -> None:
    """``run`` asks nobody, so it cannot tell apart what one permission stands before."""
    if any(_is_split(lists_of(options), permission) for permission in _OF_TOOLS):
        raise NotSupported(
            "opencode (run) has one permission for write and edit and cannot withhold only one of them: "
            "list both, or use driver='serve'"
        )


def _limit_tools(granted: Rules, lists: ToolLists) -> Rules:
    """Only the allowed tools can be used, and the disallowed ones cannot; the tier decides whether they ask."""
    if not lists.limits:
        return granted
    rest = granted["*"]
    has_servers = (lists.allowed is None or lists.allowed.all_servers) and not lists.denied.all_servers
    limited: Rules = {"*": rest if has_servers else "deny"}
    limited |= {name: granted.get(name, rest) for name in _NO_TOOLS}
    for permission, tools in _OF_TOOLS.items():
        action = granted.get(permission, rest)
        if _has_none(lists, tools):
            action = "deny"
        elif action != "deny" and _is_split(lists, permission):
            action = "ask"  # which of its tools it is, the question says
        limited[permission] = action
    if lists.allowed is not None:
        limited |= {_served(one): rest for one in lists.allowed.servers}
    for one in lists.denied.servers:
        limited.pop(_served(one), None)  # the last rule decides
        limited[_served(one)] = "deny"
    return limited


def _is_split(lists: ToolLists, permission: str) -> bool:
    """Whether the session has only some of the tools behind this permission."""
    tools = _OF_TOOLS[permission]
    return not _has_none(lists, tools) and not all(lists.permits(tool.name, tool.kind) for tool in tools)


def _has_none(lists: ToolLists, tools: list[AgentTool]) -> bool:
    """Whether the session has none of the tools behind a permission. Those that only some models have in place of
    ``write`` and ``edit`` go with these, unless a list names them."""
    permitted = {tool.name for tool in tools if lists.permits(tool.name, tool.kind)}
    names = {tool.name for tool in tools}
    return not permitted or (lists.allowed is None and not names.isdisjoint(_APART) and permitted.isdisjoint(_APART))


def _served(entry: ServerTool) -> str:
    return MCP_NAME.format(server=entry.server, tool=entry.tool or "*")


_NO_TOOLS = ("external_directory", "doom_loop")
"""Permissions that stand before no tool of their own."""
_APART = ("write", "edit")
_OF_TOOLS: dict[str, list[AgentTool]] = {}
for _tool in OWN_TOOLS:
    if _tool.control != "plumbing":
        _OF_TOOLS.setdefault(permission_of(_tool.name), []).append(_tool)
