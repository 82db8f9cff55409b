"""Our tiers, approval modes and tool lists as Qwen Code's approval mode and permission rules. Pure.

| tier, approval       | mode      | what happens                                        |
|----------------------|-----------|-----------------------------------------------------|
| dry-run, readOnly    | `plan` *  | what acts is refused by the CLI itself              |
| ask, askDangerous    | `default` | what acts is asked, harmless commands too           |
| supervised, autoEdit | `default` | the same; most edits we allow at once               |
| autonomous, autoAll  | `yolo`    | all runs                                            |

* `default` with functions of the caller's that only read, see ``mode_of``.

Its own `auto` (where it starts when nobody says otherwise) lets a model decide, and `auto-edit` lets edits run that we
would not see. In `default` it runs commands unasked that it takes for harmless, and whatever was once allowed "always";
a rule that asks is stronger than either.
"""

from __future__ import annotations

from typing import Any

from ...mcp.functions import HOST
from ...unified.options import Options
from ...unified.tool_lists import ServerTool, ToolLists, tool_lists
from ..acp.questions import Stance, stance_of
from ..policing import without_denied_tools
from .tools import OWN_TOOLS, TITLE

MODES: dict[Stance, str] = {"read": "plan", "ask": "default", "edit": "default", "act": "yolo"}
ACTING = tuple(tool.name for tool in OWN_TOOLS if tool.control == "asked" and not tool.name.endswith("_plan_mode"))
UNASKED = tuple(tool.name for tool in OWN_TOOLS if tool.control == "withheld")
"""It never asks about these."""
REFUSED_IN_A_DRY_RUN = (
    "agent", "web_fetch", "skill", "monitor", "send_message", "task_stop", "exit_plan_mode",
)  # fmt: skip
"""Its plan mode refuses edits, and knows nothing of these."""
EVERY_COMMAND = "run_shell_command(**)"
"""In plan mode it refuses the commands that it knows to change something, and asks about others; a refusal of ours
would end the turn, one by a rule does not. A rule for the tool as a whole would take it from the model."""
EVERY_SERVER = "mcp__*"


def lists_of(options: Options) -> ToolLists:
    return tool_lists(without_denied_tools(options, OWN_TOOLS, "qwen"), OWN_TOOLS, agent=TITLE)


def excluded_tools(options: Options) -> tuple[str, ...]:
    """The names that are taken from the model."""
    lists = lists_of(options)
    names = dict.fromkeys(tool.name for tool in lists.withheld)
    if stance_of(options) != "act":
        names |= dict.fromkeys(UNASKED)
    if stance_of(options) == "read":
        names |= dict.fromkeys(REFUSED_IN_A_DRY_RUN)
    return tuple(names)


def permission_rules(options: Options) -> dict[str, list[str]]:
    """Of these the CLI follows the strictest, whatever the user's or a project's own settings allow."""
    lists, stance = lists_of(options), stance_of(options)
    denied = [*excluded_tools(options), *(_name(one) for one in lists.denied.servers)]
    if lists.denied.all_servers or (stance == "read" and not has_readers(options)):
        denied.append(EVERY_SERVER)
    elif stance == "read":  # those of others that we know of; whatever else there is, is asked about, and refused
        denied += [f"mcp__{name}" for name in options.mcp_servers if name != HOST]
        denied += [name for name in ACTING if name not in denied and not EVERY_COMMAND.startswith(name)]
    if stance == "read":
        denied.append(EVERY_COMMAND)
    rules = {"deny": denied} if denied else {}
    if stance in ("ask", "edit"):
        rules["ask"] = [*ACTING, EVERY_SERVER]
    elif stance == "read" and has_readers(options):
        rules["ask"] = [EVERY_SERVER]
    return rules


def has_readers(options: Options) -> bool:
    """Whether there are functions of the caller's that only read."""
    return any(tool.reads for tool in options.tools)


def mode_of(options: Options) -> str:
    """Its plan mode takes every tool of a server for one that acts. With functions that only read, a dry run is kept by
    the rules alone: they take away what acts, and what they do not know is asked about, and refused."""
    stance = stance_of(options)
    return MODES["ask"] if stance == "read" and has_readers(options) else MODES[stance]


def _name(entry: ServerTool) -> str:
    return f"mcp__{entry.server}__{entry.tool}" if entry.tool else f"mcp__{entry.server}"


def settings_of(options: Options) -> dict[str, Any]:
    """What the CLI is told in the place of a system's settings, which nothing overrides."""
    return {
        "general": {"enableAutoUpdate": False},
        # Both ask the model for more after each turn: one writes files of its own, the other holds the answer back.
        "memory": {"enableManagedAutoMemory": False, "enableManagedAutoDream": False},
        "ui": {"enableFollowupSuggestions": False},
        "experimental": {"emitToolUseSummaries": False},
        "tools": {"todoWrite": {"enabled": True}, "approvalMode": mode_of(options)},
        "permissions": permission_rules(options),
    }
