"""Claude Code's tools: by our names, and what each of them reaches."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...unified import tools
from ...unified.events import ToolName
from ...unified.tool_lists import AgentTool

TITLE = "Claude Code"
NAMES: dict[str, ToolName] = {
    "Bash": "shell", "Monitor": "shell", "Read": "read_file", "NotebookRead": "read_file", "Write": "write_file",
    "Edit": "edit_file",
    "MultiEdit": "edit_file", "NotebookEdit": "edit_file", "Grep": "search_content", "Glob": "find_files",
    "LS": "find_files", "WebFetch": "web_fetch", "WebSearch": "web_search", "web_fetch": "web_fetch",
    "web_search": "web_search", "Agent": "task", "Task": "task", "TodoWrite": "plan", "TaskCreate": "plan",
    "TaskUpdate": "plan", "TaskList": "plan", "TaskGet": "plan", "EnterPlanMode": "plan", "ExitPlanMode": "plan",
    "AskUserQuestion": "question", "ListMcpResourcesTool": "mcp", "ReadMcpResourceTool": "mcp",
}  # fmt: skip
"""Every other tool of Claude Code's own is ``other``, every ``mcp__…`` is ``mcp``."""

RENAMED = {"Task": "Agent"}
"""What its list of tools calls otherwise than its model and its calls do."""

TOOLS: tuple[AgentTool, ...] = (
    AgentTool("Bash", "shell", ("files", "network", "process")),
    AgentTool("Monitor", "shell", ("files", "network", "process")),
    AgentTool("BashOutput", "other", control="free", also=("shell",)),
    AgentTool("TaskOutput", "other", control="free", also=("shell", "task")),
    AgentTool("KillShell", "other", ("process",), also=("shell",)),
    AgentTool("TaskStop", "other", ("process",), also=("shell", "task")),
    AgentTool("Read", "read_file", ("files",), "free"),
    AgentTool("NotebookRead", "read_file", ("files",), "free"),
    AgentTool("Write", "write_file", ("files",)),
    AgentTool("Edit", "edit_file", ("files",)),
    AgentTool("MultiEdit", "edit_file", ("files",)),
    AgentTool("NotebookEdit", "edit_file", ("files",)),
    AgentTool("Grep", "search_content", ("files",), "free"),
    AgentTool("Glob", "find_files", ("files",), "free"),
    AgentTool("LS", "find_files", ("files",), "free"),
    AgentTool("WebFetch", "web_fetch", ("network",)),
    AgentTool("WebSearch", "web_search", ("network",)),
    AgentTool("Agent", "task", control="free"),
    AgentTool("Task", "task", control="free"),
    AgentTool("Workflow", "other", ("process",), also=("task",)),
    AgentTool("SendMessage", "other", also=("task",)),
    AgentTool("ListAgents", "other", also=("task",)),
    AgentTool("Skill", "other", ("process",)),
    AgentTool("SlashCommand", "other", ("process",)),
    AgentTool("CronCreate", "other", ("process",)),
    AgentTool("CronDelete", "other", ("process",)),
    AgentTool("CronList", "other", control="free"),
    AgentTool("ScheduleWakeup", "other", ("process",)),
    AgentTool("EnterWorktree", "other", ("files", "process")),
    AgentTool("ExitWorktree", "other", ("files", "process")),
    AgentTool("TodoWrite", "plan", control="free"),
    AgentTool("TaskCreate", "plan", control="free"),
    AgentTool("TaskUpdate", "plan", control="free"),
    AgentTool("TaskList", "plan", control="free"),
    AgentTool("TaskGet", "plan", control="free"),
    AgentTool("EnterPlanMode", "plan", control="free"),
    AgentTool("ExitPlanMode", "plan", control="free"),
    AgentTool("AskUserQuestion", "question"),
    AgentTool("ReportFindings", "other", control="free"),
    AgentTool("ListMcpResourcesTool", "mcp", ("network", "process")),
    AgentTool("ReadMcpResourceTool", "mcp", ("network", "process")),
    AgentTool("SandboxNetworkAccess", "other", ("network",), also=("shell",)),
    AgentTool("StructuredOutput", "other", control="plumbing"),
    AgentTool("ToolSearch", "other", control="plumbing"),
    AgentTool("DeferredToolPlaceholder", "other", control="plumbing"),
)
"""Its own tools, those of other versions too. A sub-agent is only started unasked: each of its calls is asked about. A
background task is a call of ``Bash`` or ``Agent``; a scheduled one is asked about when it is made. ``ToolSearch``
brings no tool that the session does not have; ``SandboxNetworkAccess`` is its sandbox asking about a command."""


def name_of(native: str) -> ToolName:
    return NAMES.get(native) or ("mcp" if native.startswith("mcp__") else "other")


def target_of(name: ToolName, native: str, arguments: Mapping[str, Any]) -> str:
    """What a call is about; for a tool of an MCP server, which one it is; of an answer in JSON, nothing."""
    if name == "mcp" and native.count("__") > 1:
        return native.removeprefix("mcp__").replace("__", ".", 1)
    if native == "StructuredOutput":
        return ""
    if native == "SandboxNetworkAccess":  # its own sandbox asks whether a command may reach a host
        return str(arguments.get("host", ""))
    return tools.target_of(name, arguments)
