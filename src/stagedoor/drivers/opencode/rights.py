"""Our tiers, approval modes and tool lists as OpenCode's permissions. Pure.

| tier, approval       | stance | reading | edits                | commands, network, MCP | sub-agents              |
|----------------------|--------|---------|----------------------|------------------------|-------------------------|
| dry-run, readOnly    | read   | allow   | deny                 | deny                   | deny                    |
| ask, askDangerous    | ask    | allow   | ask                  | ask                    | allow; their calls: ask |
| supervised, autoEdit | edit   | allow   | ask; inside: allowed | ask                    | allow; their calls: ask |
| autonomous, autoAll  | act    | allow   | allow                | allow                  | allow                   |

*inside*: edits are asked about so that we see them; those inside the working directory we allow at once. (OpenCode's
own notion of inside is the whole repository.) ``run`` can ask nobody: there, edits inside the repository run and what
would be asked is denied. Leaving the repository and files named ``.env`` are asked about wherever something is.
With a policy of the caller's (``policed``) reading is asked about too: its rules decide. A denied tool is taken from
the model's list; OpenCode's own agent ``plan`` is not used, for it may run commands.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from ...agents.opencode import Action
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
    made: Rules = {"*": "allow" if stance == "act" else "deny" if stance == "read" else unsure}
    if stance == "act":
        made |= {"external_directory": "allow", "doom_loop": "allow"}
    else:
        reading: dict[str, Action] = {"*": "allow", **{name: unsure for name in SECRETS}, "*.env.example": "allow"}
        made |= {**PLANNING, **READING, "read": reading}
    match stance:
        case "ask" | "edit":
            made |= {"task": "allow"}
            if not asks:
                made |= {"edit": "allow"} if stance == "edit" else {}
        case "read":
            made |= {"external_directory": unsure if policed else "deny"}
        case "act":
            pass
    if policed and asks and stance != "act":
        made |= {name: "ask" for name in ("read", *READING)}
    # Whoever cannot be asked is not to be waited for.
    made["question"] = "allow" if asks and options.can_use_tool is not None else "deny"
    return _listed(made, options)


def _listed(made: Rules, options: Options) -> Rules:
    """Only the allowed tools can be used, and the disallowed ones cannot; whether they ask is the tier's to say."""
    if options.allowed_tools is not None:
        kept = {permission for tool in options.allowed_tools for permission in _known(tool, "allowed_tools")}
        denied: Rules = {name: "deny" for name in made if name not in ("*", *kept) and name not in _NO_TOOLS}
        every: Rules = {**denied, **{name: made.get(name, made["*"]) for name in kept}}
        conditions: Rules = {name: made.get(name, made["*"]) for name in _NO_TOOLS}
        made = {"*": "deny", **conditions, **every}
    for tool in options.disallowed_tools:
        for permission in _known(tool, "disallowed_tools"):
            made.pop(permission, None)  # the last rule decides
            made[permission] = "deny"
    return made


_NO_TOOLS = ("external_directory", "doom_loop")
"""Permissions that stand before no tool of their own."""


def _known(tool: str, option: str) -> tuple[str, ...]:
    if "(" in tool:
        raise NotSupported(f"OpenCode takes whole tools in {option}, not {tool!r}; leave the brackets out")
    if tool in ("mcp", "other"):
        raise NotSupported(
            f"OpenCode cannot tell all tools of MCP servers from others; name them in {option}: 'sums_*'"
        )
    found = permissions_of(tool)
    if found == (tool,) and tool not in NAMES and "_" not in tool and "*" not in tool:
        raise NotSupported(f"OpenCode has no tool {tool!r}; use our names (shell, edit_file) or its own (bash, edit)")
    return found
