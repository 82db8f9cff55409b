"""Our tiers, approval modes and tool lists as Kimi Code's modes, and as hooks that refuse. Pure.

| tier, approval       | mode      | what happens                                                          |
|----------------------|-----------|-----------------------------------------------------------------------|
| dry-run, readOnly    | `plan`    | what acts is refused by a hook                                        |
| ask, askDangerous    | `default` | commands and tools of servers ask; files and commands go through us   |
| supervised, autoEdit | `default` | the same; most edits we allow at once                                 |
| autonomous, autoAll  | `auto`    | all runs                                                              |

In `default` it writes the files of a repository unasked, so it writes them through us, and its commands run in
terminals of ours: a refused one is not run by itself. It never asks about what it
fetches from the network and what it plans for later: outside the last row these are refused by a hook. Its mode
`yolo`, which it describes as the freer one, still asks about some commands.
"""

from __future__ import annotations

from ...mcp.functions import HOST
from ...unified.options import Options
from ...unified.tool_lists import ToolLists, tool_lists
from ..acp.questions import DRY_RUN, Stance, stance_of
from ..policing import without_denied_tools
from .home import RefusedTools, all_but, any_of
from .tools import OWN_TOOLS, TITLE

MODES: dict[Stance, str] = {"read": "plan", "ask": "default", "edit": "default", "act": "auto"}
UNASKED = ["FetchURL", "WebSearch", "CronCreate", "CronDelete"]
ACTING = ["Bash", "Write", "Edit", "ExitPlanMode", "mcp__*", *UNASKED]
NOBODY = "Kimi Code asks nobody about this tool, so this session does not have it. Do without it."
UNLISTED = "This session does not have this tool. Do without it."


def lists_of(options: Options) -> ToolLists:
    return tool_lists(without_denied_tools(options, OWN_TOOLS, "kimi"), OWN_TOOLS, agent=TITLE)


def refusals_of(options: Options) -> list[RefusedTools]:
    stance, lists = stance_of(options), lists_of(options)
    refusals: list[RefusedTools] = []
    if stance == "read":
        refusals.append(RefusedTools(any_of(ACTING, but=f"mcp__{HOST}__" if options.tools else ""), DRY_RUN))
    elif stance != "act":
        refusals.append(RefusedTools(any_of(UNASKED), NOBODY))
    denied = [tool.name for tool in lists.withheld]
    denied += [f"mcp__{one.server}__{one.tool or '*'}" for one in lists.denied.servers]
    denied += ["mcp__*"] if lists.denied.all_servers else []
    if denied:
        refusals.append(RefusedTools(any_of(denied), UNLISTED))
    if lists.allowed is not None:
        names = [tool.name for tool in lists.offered]
        names += [f"mcp__{one.server}__{one.tool or '*'}" for one in lists.allowed.servers]
        names += ["mcp__*"] if lists.allowed.all_servers else []
        refusals.append(RefusedTools(all_but(names), UNLISTED))
    return refusals
