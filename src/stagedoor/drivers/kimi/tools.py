"""Kimi Code's own tools: by our names, and what each of them reaches."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from ...unified.events import ToolName
from ...unified.tool_lists import AgentTool

TITLE = "Kimi Code"
OWN_TOOLS: tuple[AgentTool, ...] = (
    AgentTool("Bash", "shell", ("files", "network", "process")),
    AgentTool("Read", "read_file", ("files",), "free"),
    AgentTool("ReadMediaFile", "read_file", ("files",), "free"),
    AgentTool("Write", "write_file", ("files",)),
    AgentTool("Edit", "edit_file", ("files",)),
    AgentTool("Grep", "search_content", ("files",), "free"),
    AgentTool("Glob", "find_files", ("files",), "free"),
    AgentTool("FetchURL", "web_fetch", ("network",)),
    AgentTool("WebSearch", "web_search", ("network",)),
    AgentTool("Agent", "task", control="free"),
    AgentTool("AgentSwarm", "task", control="free"),
    AgentTool("TodoList", "plan", control="free"),
    AgentTool("TaskList", "other", control="free", also=("shell",)),
    AgentTool("TaskOutput", "other", control="free", also=("shell",)),
    AgentTool("TaskStop", "other", control="free", also=("shell",)),
    AgentTool("WaitFor", "other", control="free", also=("shell",)),
    AgentTool("Skill", "other", ("files",), "free"),
    AgentTool("AskUserQuestion", "question"),
    AgentTool("EnterPlanMode", "other", also=("plan",)),
    AgentTool("ExitPlanMode", "other", also=("plan",)),
    AgentTool("CreateGoal", "other", control="free", also=("plan",)),
    AgentTool("GetGoal", "other", control="free", also=("plan",)),
    AgentTool("SetGoalBudget", "other", control="free", also=("plan",)),
    AgentTool("UpdateGoal", "other", control="free", also=("plan",)),
    AgentTool("CronCreate", "other"),
    AgentTool("CronDelete", "other"),
    AgentTool("CronList", "other", control="free"),
)
NAMES: dict[str, ToolName] = {tool.name: tool.kind for tool in OWN_TOOLS}
MCP = "mcp__"


class KimiToolNames(Mapping[str, ToolName]):
    """:data:`NAMES`, and every tool of an MCP server."""

    def __getitem__(self, native: str) -> ToolName:
        return "mcp" if native.startswith(MCP) else NAMES[native]

    def __iter__(self) -> Iterator[str]:
        return iter(NAMES)

    def __len__(self) -> int:
        return len(NAMES)


TOOLS = KimiToolNames()
