"""Our tiers, approval modes and tool lists as OpenCode's permissions. Pure.

| tier, approval       | stance | reading | edits                | commands, network, MCP | sub-agents              |
|----------------------|--------|---------|----------------------|------------------------|-------------------------|
| dry-run, readOnly    | read   | allow   | deny                 | deny                   | deny                    |
| ask, askDangerous    | ask    | allow   | ask                  | ask                    | allow; their calls: ask |
| supervised, autoEdit | edit   | allow   | ask; inside: allowed | ask                    | allow; their calls: ask |
| autonomous, autoAll  | act    | allow   | allow                | allow                  | allow                   |

*inside*: edits are asked about so that we see them; those inside the working directory we allow at once. (OpenCode's
own notion of inside is the whole repository.) ``run`` can ask nobody: there, edits inside the repository run and
everything that needs a question is denied. Leaving the repository and files named ``.env`` are asked about wherever
something is.
With a policy of the caller's (``policed``) reading is asked about too: its rules decide. OpenCode removes a denied
tool from the model's list; its own agent ``plan`` is not used, for it may run commands.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from ...agents.opencode.commands import Action
from ...errors import NotSupported
from ...unified.options import Approval, Options, Tier
from .tools import NAMES, permissions_of

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
            if not asks:
                granted |= {"edit": "allow"} if stance == "edit" else {}
        case "read":
            granted |= {"external_directory": unsure if policed else "deny"}
        case "act":
            pass
    if policed and asks and stance != "act":
        granted |= {name: "ask" for name in ("read", *READING)}
    # Nobody waits for somebody who cannot be asked.
    granted["question"] = "allow" if asks and options.can_use_tool is not None else "deny"
    return _limit_tools(granted, options)


def _limit_tools(granted: Rules, options: Options) -> Rules:
    """Only the allowed tools can be used, and the disallowed ones cannot; the tier decides whether they ask."""
    if options.allowed_tools is not None:
        allowed = {name for tool in options.allowed_tools for name in _permissions_for(tool, "allowed_tools")}
        denied: Rules = {name: "deny" for name in granted if name not in ("*", *allowed) and name not in _NO_TOOLS}
        every: Rules = {**denied, **{name: granted.get(name, granted["*"]) for name in allowed}}
        conditions: Rules = {name: granted.get(name, granted["*"]) for name in _NO_TOOLS}
        granted = {"*": "deny", **conditions, **every}
    for tool in options.disallowed_tools:
        for permission in _permissions_for(tool, "disallowed_tools"):
            granted.pop(permission, None)  # the last rule decides
            granted[permission] = "deny"
    return granted


_NO_TOOLS = ("external_directory", "doom_loop")
"""Permissions that stand before no tool of their own."""


def _permissions_for(tool: str, option: str) -> tuple[str, ...]:
    if "(" in tool:
        raise NotSupported(f"OpenCode takes whole tools in {option}, not {tool!r}: remove the brackets")
    if tool in ("mcp", "other"):
        raise NotSupported(
            f"OpenCode has no name for all tools of MCP servers: list them in {option}, for example 'sums_*'"
        )
    permissions = permissions_of(tool)
    if permissions == (tool,) and tool not in NAMES and "_" not in tool and "*" not in tool:
        raise NotSupported(f"OpenCode has no tool {tool!r}: use our names (shell, edit_file) or its own (bash, edit)")
    return permissions
