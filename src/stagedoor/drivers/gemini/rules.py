"""Our tiers, approval modes and tool lists as Gemini CLI's approval mode and policy rules. Pure.

| tier, approval       | stance | mode      | over ACP                               | over stream-json (none to ask) |
|----------------------|--------|-----------|----------------------------------------|--------------------------------|
| dry-run, readOnly    | read   | `plan`    | what acts is refused                   | the same                       |
| ask, askDangerous    | ask    | `default` | what acts is asked                     | what acts is refused           |
| supervised, autoEdit | edit   | `default` | edits run; the rest that acts is asked | edits run; the rest is refused |
| autonomous, autoAll  | act    | `yolo`    | all runs                               | all, save edits of build files |

The CLI's own mode `auto_edit` is not used: over ACP its edits and ``web_fetch`` pass by every rule, refusals too.

A rule that fits every call would take its tool from the model's list, so that nobody sees what the model tried. One
with a pattern does not, as long as another rule behind it does not refuse; and only a rule with a pattern makes the
CLI ask about commands it takes for harmless.
"""

from __future__ import annotations

from typing import Literal

from ...agents.gemini.config import ApprovalMode
from ...agents.gemini.policy import TOOLS, Decision, PolicyRule
from ...errors import NotSupported
from ...unified.options import Approval, Options, Tier
from .tools import MCP, natives_of

Stance = Literal["read", "ask", "edit", "act"]
TIERS: dict[Tier, Stance] = {"dry-run": "read", "supervised": "edit", "autonomous": "act"}
APPROVALS: dict[Approval, Stance] = {"ask": "ask", "askDangerous": "ask", "autoEdit": "edit", "autoAll": "act"}
MODES: dict[Stance, ApprovalMode] = {
    "read": ApprovalMode.PLAN,
    "ask": ApprovalMode.DEFAULT,
    "edit": ApprovalMode.DEFAULT,
    "act": ApprovalMode.YOLO,
}
SHELL = ("run_shell_command",)
EDITS = ("write_file", "replace")
NETWORK = ("web_fetch", "google_web_search")
OTHERS = ("save_memory", "activate_skill", "invoke_agent")
MODE_CHANGES = ("enter_plan_mode", "exit_plan_mode")
HARMLESS = ("write_todos", "update_topic")

ANY = "."
"""The pattern every call's arguments fit."""
HIGHEST, SECOND, LOWEST = 999, 998, 1
"""Priorities. Of equals the first rule decides, and ours come before the user's own, who may refuse what is free."""
DRY_RUN = "This is a dry run: nothing may be changed. Say what you would do instead."
UNATTENDED = "Nobody can be asked for permission in this session."


def stance_of(options: Options) -> Stance:
    if options.tier == "dry-run" or options.sandbox == "readOnly":
        return "read"
    return TIERS[options.tier] if options.approval is None else APPROVALS[options.approval]


def rules(options: Options, *, asks: bool) -> tuple[PolicyRule, ...]:
    """``asks``: over this driver somebody can be asked."""
    stance = stance_of(options)
    refused = [rule for tool in options.disallowed_tools for rule in _disallowed(tool)]
    if options.allowed_tools is not None:
        refused += _only(options.allowed_tools, stance)
    match stance:
        case "read":
            acting = (*SHELL, *EDITS, *NETWORK, *OTHERS, *MODE_CHANGES)
            return (*_refuse(acting, DRY_RUN), *refused, _free(HARMLESS))
        case "act":
            return tuple(refused)
        case "ask" | "edit":
            acting = (*SHELL, *NETWORK, *(EDITS if stance == "ask" else ()))
            free = (*HARMLESS, *(EDITS if stance == "edit" else ()))
            limits = _ask(acting) if asks else _refuse((*acting, "activate_skill"), UNATTENDED)
            return (*refused, *limits, _free(free))


def _refuse(tools: tuple[str, ...], why: str) -> list[PolicyRule]:
    """Refuse, and stay in sight."""
    deny, behind = Decision.DENY, Decision.ASK_USER
    return [
        PolicyRule(tool_name=tools, decision=deny, priority=HIGHEST, args_pattern=ANY, deny_message=why),
        PolicyRule(tool_name="*", mcp_name="*", decision=deny, priority=HIGHEST, args_pattern=ANY, deny_message=why),
        PolicyRule(tool_name=tools, decision=behind, priority=SECOND),
        PolicyRule(tool_name="*", mcp_name="*", decision=behind, priority=SECOND),
    ]


def _ask(tools: tuple[str, ...]) -> list[PolicyRule]:
    ask = Decision.ASK_USER
    return [
        PolicyRule(tool_name=tools, decision=ask, priority=SECOND, args_pattern=ANY),
        PolicyRule(tool_name="*", mcp_name="*", decision=ask, priority=SECOND, args_pattern=ANY),
    ]


def _free(tools: tuple[str, ...]) -> PolicyRule:
    return PolicyRule(tool_name=tools, decision=Decision.ALLOW, priority=LOWEST)


def _disallowed(tool: str) -> list[PolicyRule]:
    name, prefix = _parsed(tool)
    if name == "mcp":
        return [PolicyRule(tool_name="*", mcp_name="*", decision=Decision.DENY, priority=HIGHEST)]
    natives = _natives(name)
    return [_rule(natives, prefix, Decision.DENY, HIGHEST)]


def _only(allowed: tuple[str, ...], stance: Stance) -> list[PolicyRule]:
    """Only these can be used. Whether they ask is still the mode's to say, save where a rule must name them."""
    named = [_parsed(tool) for tool in allowed]
    whole = {native for name, prefix in named if prefix is None and name != "mcp" for native in _natives(name)}
    parts = [(name, prefix) for name, prefix in named if prefix is not None]
    decision = Decision.ALLOW if stance == "act" else Decision.ASK_USER
    listed = [_rule(_natives(name), prefix, decision, HIGHEST) for name, prefix in parts]
    served = tuple(sorted(native for native in whole if native.startswith(MCP)))
    if served:
        listed.append(PolicyRule(tool_name=served, decision=decision, priority=HIGHEST))
    unlisted = tuple(native for native in TOOLS if native not in whole and native not in HARMLESS)
    out = [*listed, PolicyRule(tool_name=unlisted, decision=Decision.DENY, priority=HIGHEST)]
    if ("mcp", None) not in named:
        out.append(PolicyRule(tool_name="*", mcp_name="*", decision=Decision.DENY, priority=HIGHEST))
    return out


def _rule(tools: tuple[str, ...], prefix: str | None, decision: Decision, priority: int) -> PolicyRule:
    if prefix is None:
        return PolicyRule(tool_name=tools, decision=decision, priority=priority)
    if tools != SHELL:
        raise NotSupported(f"only shell takes a command in brackets, not {tools[0]}: leave the brackets out")
    return PolicyRule(tool_name=tools[0], decision=decision, priority=priority, command_prefix=prefix)


def _parsed(tool: str) -> tuple[str, str | None]:
    """``shell(git status)`` → the tool, and how its command must begin."""
    name, bracket, rest = tool.partition("(")
    return name, rest.removesuffix(")").removesuffix(":*").removesuffix(" *") if bracket else None


def _natives(name: str) -> tuple[str, ...]:
    natives = natives_of(name)
    if not natives:
        raise NotSupported(f"Gemini CLI has no tool {name!r}: use our names (shell, edit_file) or its own ({TOOLS[6]})")
    return natives
