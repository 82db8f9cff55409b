"""What Claude Code may do unasked: our tiers and approval modes in its permission modes, and a hook where those differ.

=============  ===================  =================================================================================
asked for      permission mode      what the ``PreToolUse`` hook adds (it sees every call, sub-agents' calls too)
=============  ===================  =================================================================================
dry-run        plan                 denies all but reading, planning and talking
supervised     acceptEdits          asks about every call but reading, planning, talking, and edits of low risk
autonomous     bypassPermissions    nothing: no hook, no questions
ask            default              asks about every call but reading, planning and talking
askDangerous   default              the same, but allows what is of low risk
autoEdit       acceptEdits          as supervised
autoAll        bypassPermissions    as autonomous
readOnly       plan                 as dry-run
workspaceWrite as without it        denies edits outside the workspace; commands run in Claude Code's own sandbox
=============  ===================  =================================================================================

Without the hook, Claude Code runs commands it takes for harmless, and ``plan`` writes what somebody allows. Where the
hook has no opinion, the mode decides: reading and editing outside the working directory are asked about. With a policy
of the caller's (``policed``) reading and starting sub-agents are asked about too: its rules decide. With a list of
tools there is a hook in every mode: it denies what is not in the lists.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal

import msgspec

from ...agents.claude.config import ClaudePermissionMode
from ...unified.events import Risk
from ...unified.options import Approval, Options, Tier
from ...unified.tool_lists import ToolLists
from .tools import TOOLS, name_of

Verdict = Literal["allow", "ask", "deny"]
Hook = Literal["deny_acts", "ask_acts", "ask_dangerous", "ask_commands"]

READING = frozenset({"Read", "NotebookRead", "Glob", "Grep", "LS", "TaskOutput", "BashOutput", "CronList"})
PLANNING = frozenset({"TodoWrite", "TaskCreate", "TaskUpdate", "TaskList", "TaskGet", "EnterPlanMode", "ExitPlanMode"})
TALKING = frozenset({"AskUserQuestion", "StructuredOutput", "ReportFindings", "ToolSearch"})
DELEGATING = frozenset({"Agent", "Task"})
"""A sub-agent is only started; each of its calls is judged again."""
EDITING = frozenset({"Write", "Edit", "MultiEdit", "NotebookEdit"})
HARMLESS = READING | PLANNING | TALKING | DELEGATING
QUESTIONS_IN_A_DRY_RUN = READING | DELEGATING | {"AskUserQuestion"}
"""Where the mode or a policy asks, the answer may be yes; for anything else it is no."""

NOT_IN_A_DRY_RUN = "This is a dry run: nothing is written and nothing is run. Say what you would do instead."
THE_PLAN_IS_ALL = "This is a dry run: the plan is its result. Do not carry it out; end your turn with it."


class Rights(msgspec.Struct, frozen=True):
    mode: ClaudePermissionMode
    hook: Hook | None


_DRY = Rights(ClaudePermissionMode.plan, "deny_acts")
_EDITS = Rights(ClaudePermissionMode.accept_edits, "ask_commands")
_ALL = Rights(ClaudePermissionMode.bypass_permissions, None)
TIERS: dict[Tier, Rights] = {"dry-run": _DRY, "supervised": _EDITS, "autonomous": _ALL}
APPROVALS: dict[Approval, Rights] = {
    "ask": Rights(ClaudePermissionMode.default, "ask_acts"),
    "askDangerous": Rights(ClaudePermissionMode.default, "ask_dangerous"),
    "autoEdit": _EDITS,
    "autoAll": _ALL,
}


def rights_of(options: Options) -> Rights:
    if options.tier == "dry-run" or options.sandbox == "readOnly":
        return _DRY
    return TIERS[options.tier] if options.approval is None else APPROVALS[options.approval]


SANDBOX = {
    "enabled": True,
    "failIfUnavailable": True,
    "allowUnsandboxedCommands": False,
    "autoAllowBashIfSandboxed": False,
}
"""Claude Code's own sandbox, for commands. By itself it would run them without one where bubblewrap or socat is
missing, let the model ask for a command outside, and ask nobody about a command inside."""
STAYS_INSIDE = "This session may not change anything outside its workspace."


def is_sandboxed(options: Options) -> bool:
    """Whether Claude Code's own sandbox is on. In one of ours it is off: it does not start there everywhere."""
    return options.sandbox == "workspaceWrite" and options.confine == "off" and options.tier != "dry-run"


class HookJudge(msgspec.Struct, frozen=True):
    """The hook's verdict on a call; ``None`` is no opinion. A tool that we do not know counts as one that acts."""

    hook: Hook | None
    risk: Callable[[str, Mapping[str, Any]], Risk]
    policed: bool = False
    lists: ToolLists = ToolLists(TOOLS)
    readers: frozenset[str] = frozenset()
    """Functions of the calling program that only read."""

    def judge(self, tool: str, arguments: Mapping[str, Any]) -> Verdict | None:
        if self.is_unlisted(tool):
            return "deny"
        if tool in HARMLESS:
            return "ask" if self.policed and tool in READING | DELEGATING else None
        match self.hook:
            case None:
                return None
            case "deny_acts":
                return "allow" if tool in self.readers else "deny"
            case "ask_commands":
                # The mode would let an edit of a file run that is itself run later.
                return None if tool in EDITING and self.risk(tool, arguments) != "high" else "ask"
            case "ask_dangerous":
                return "allow" if self.risk(tool, arguments) == "low" and not self.policed else "ask"
            case "ask_acts":
                return "ask"

    def is_unlisted(self, tool: str) -> bool:
        return self.lists.limits and not self.lists.permits(tool, name_of(tool))


def hook_output(verdict: Verdict | None, reason: str = "") -> dict[str, Any]:
    """The verdict as Claude Code wants it from a ``PreToolUse`` hook."""
    if verdict is None:
        return {}
    decision = {"hookEventName": "PreToolUse", "permissionDecision": verdict, "permissionDecisionReason": reason}
    return {"hookSpecificOutput": decision}
