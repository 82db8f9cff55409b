"""Our tiers, approval modes and tool lists as Gemini CLI's approval mode and policy rules. Pure.

| tier, approval       | stance | mode      | over ACP                               | over stream-json (none to ask) |
|----------------------|--------|-----------|----------------------------------------|--------------------------------|
| dry-run, readOnly    | read   | `plan` *  | what acts is refused                   | the same                       |
| ask, askDangerous    | ask    | `default` | what acts is asked                     | what acts is refused           |
| supervised, autoEdit | edit   | `default` | the same; most edits we allow at once  | the same                       |
| autonomous, autoAll  | act    | `yolo`    | all runs                               | all, save edits of build files |

* ``default`` with functions of the caller's that only read, see ``mode_of``.

Edits are asked about so that we see them: one of a file from which something runs later must be asked about, and no
pattern over arguments knows where a link leads. Where nobody can be asked, no edit runs for the same reason.

The CLI's own mode `auto_edit` is not used: over ACP its edits and ``web_fetch`` pass by every rule, refusals too.

A rule that fits every call would take its tool from the model's list, so that nobody sees what the model tried. One
with a pattern does not, as long as another rule behind it does not refuse; and only a rule with a pattern makes the
CLI ask about commands it takes for harmless.
"""

from __future__ import annotations

from typing import Literal

from ...agents.gemini.config import ApprovalMode
from ...agents.gemini.policy import Decision, PolicyRule
from ...mcp.functions import HOST
from ...unified.options import Approval, Options, Tier
from ...unified.tool_lists import ServerTool, ToolLists, tool_lists
from ..policing import without_denied_tools
from .tools import MCP_NAME, OWN_TOOLS, TITLE

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
RESOURCES = ("read_mcp_resource", "list_mcp_resources")
"""Of MCP servers. By itself it asks about none of them."""
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


def lists_of(options: Options) -> ToolLists:
    options = without_denied_tools(options, OWN_TOOLS, "gemini")
    return tool_lists(options, OWN_TOOLS, agent=TITLE, mcp_name=MCP_NAME)


def rules(options: Options, *, asks: bool) -> tuple[PolicyRule, ...]:
    """``asks``: over this driver somebody can be asked."""
    stance, lists = stance_of(options), lists_of(options)
    refused, closing = [*_functions(options, stance, asks=asks), *_unlisted(lists, stance)], _closing(lists, stance)
    match stance:
        case "read":
            acting = (*SHELL, *EDITS, *NETWORK, *RESOURCES, *OTHERS, *MODE_CHANGES)
            readers = _functions(options, stance, asks=asks)
            return (*readers, *_refuse(acting, DRY_RUN), *_unlisted(lists, stance), _free(HARMLESS), *closing)
        case "act":
            return (*refused, *closing)
        case "ask" | "edit":
            acts = (*SHELL, *NETWORK, *RESOURCES, *EDITS)
            limits = _ask(acts) if asks else _refuse((*acts, "activate_skill"), UNATTENDED)
            return (*refused, *limits, _free(HARMLESS), *closing)


def _functions(options: Options, stance: Stance, *, asks: bool) -> list[PolicyRule]:
    """The caller's own functions decide about each call themselves. Where somebody can be asked over this driver, that
    is better than inside a call; in a dry run all tools of servers are asked about then, and only these are allowed.
    """
    if not (readers_of(options) if stance == "read" else options.tools and not asks):
        return []
    if not asks:
        return _served(ServerTool(HOST), Decision.ALLOW)
    return [PolicyRule(tool_name="*", mcp_name="*", decision=Decision.ASK_USER, priority=HIGHEST, args_pattern=ANY)]


def mode_of(options: Options) -> ApprovalMode:
    """In plan mode the program has no tool of a server, whatever a rule says. With functions that only read, a dry run
    is kept by the rules alone: they refuse the same, and what they do not know is asked about, which is refused too."""
    stance = stance_of(options)
    return ApprovalMode.DEFAULT if stance == "read" and readers_of(options) else MODES[stance]


def readers_of(options: Options) -> list[str]:
    """The caller's functions that only read."""
    return [tool.name for tool in options.tools if tool.reads]


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


def _unlisted(lists: ToolLists, stance: Stance) -> list[PolicyRule]:
    """Take away what the lists do not have. A rule without a pattern also takes it from the model's list."""
    out: list[PolicyRule] = []
    if withheld := tuple(tool.name for tool in lists.withheld):
        out.append(PolicyRule(tool_name=withheld, decision=Decision.DENY, priority=HIGHEST))
    out += [rule for one in lists.denied.servers for rule in _served(one, Decision.DENY)]
    every = PolicyRule(tool_name="*", mcp_name="*", decision=Decision.DENY, priority=HIGHEST)
    if lists.denied.all_servers:
        return [*out, every]
    if lists.allowed is None or lists.allowed.all_servers:
        return out
    decision = Decision.ALLOW if stance == "act" else Decision.ASK_USER
    return [*out, *(rule for one in lists.allowed.servers for rule in _served(one, decision)), every]


def _served(entry: ServerTool, decision: Decision) -> list[PolicyRule]:
    by_server = PolicyRule(tool_name=entry.tool or "*", mcp_name=entry.server, decision=decision, priority=HIGHEST)
    if not entry.tool:
        return [by_server]
    native = MCP_NAME.format(server=entry.server, tool=entry.tool)
    return [by_server, PolicyRule(tool_name=native, decision=decision, priority=HIGHEST)]


def _closing(lists: ToolLists, stance: Stance) -> list[PolicyRule]:
    """With ``allowed_tools``: a tool that nobody has heard of is refused, so those that are listed need a rule."""
    if lists.allowed is None:
        return []
    free = tuple(tool.name for tool in lists.offered if stance == "act" or tool.control in ("free", "plumbing"))
    rest = tuple(tool.name for tool in lists.offered if tool.name not in free)
    out = [_free(free)] if free else []
    out += [PolicyRule(tool_name=rest, decision=Decision.ASK_USER, priority=LOWEST)] if rest else []
    return [*out, PolicyRule(tool_name="*", decision=Decision.DENY, priority=0)]
