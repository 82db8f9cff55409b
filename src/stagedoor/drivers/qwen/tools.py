"""Qwen Code's own tools: by our names, and what each of them reaches."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from ...unified.events import ToolName
from ...unified.tool_lists import AgentTool

TITLE = "Qwen Code"
OWN_TOOLS: tuple[AgentTool, ...] = (
    AgentTool("run_shell_command", "shell", ("files", "network", "process")),
    AgentTool("read_file", "read_file", ("files",), "free"),
    AgentTool("write_file", "write_file", ("files",)),
    AgentTool("edit", "edit_file", ("files",)),
    AgentTool("notebook_edit", "edit_file", ("files",)),
    AgentTool("grep_search", "search_content", ("files",), "free"),
    AgentTool("glob", "find_files", ("files",), "free"),
    AgentTool("list_directory", "find_files", ("files",), "free"),
    AgentTool("web_fetch", "web_fetch", ("network",)),
    AgentTool("agent", "task"),
    AgentTool("list_agents", "other", control="free", also=("task",)),
    AgentTool("send_message", "other", also=("task",)),
    AgentTool("task_stop", "other", also=("task", "shell")),
    AgentTool("monitor", "other", ("files", "network", "process"), also=("shell",)),
    AgentTool("skill", "other", ("files",)),
    AgentTool("todo_write", "plan", control="free"),
    AgentTool("get_goal", "other", control="free", also=("plan",)),
    AgentTool("update_goal", "other", control="free", also=("plan",)),
    AgentTool("enter_plan_mode", "other", also=("plan",)),
    AgentTool("exit_plan_mode", "other", also=("plan",)),
    AgentTool("ask_user_question", "question"),
    AgentTool("read_mcp_resource", "mcp", ("network", "process")),
    AgentTool("cron_create", "other", control="withheld"),
    AgentTool("cron_delete", "other", control="withheld"),
    AgentTool("cron_list", "other", control="withheld"),
    AgentTool("loop_wakeup", "other", control="withheld"),
    AgentTool("enter_worktree", "other", ("files", "process"), "withheld"),
    AgentTool("exit_worktree", "other", ("files", "process"), "withheld"),
    AgentTool("record_artifact", "other", ("files",), "withheld"),
    AgentTool("report_findings", "other", control="free"),
    AgentTool("zoom_image", "other", ("files",), "free", also=("read_file",)),
    AgentTool("tool_search", "other", control="plumbing"),
    AgentTool("tool_call", "other", control="plumbing"),
)
"""Those that are offered, and those behind ``tool_search``, which ``tool_call`` reaches. Without ``tool_search`` the
hidden ones are offered like the others."""
NAMES: dict[str, ToolName] = {tool.name: tool.kind for tool in OWN_TOOLS}
MCP = "mcp__"


class QwenToolNames(Mapping[str, ToolName]):
    """:data:`NAMES`, and every tool of an MCP server."""

    def __getitem__(self, native: str) -> ToolName:
        return "mcp" if native.startswith(MCP) else NAMES[native]

    def __iter__(self) -> Iterator[str]:
        return iter(NAMES)

    def __len__(self) -> int:
        return len(NAMES)


TOOLS = QwenToolNames()
