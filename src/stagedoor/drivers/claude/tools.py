"""Claude Code's tools by our names, in both directions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...unified import tools
from ...unified.events import ToolName

NAMES: dict[str, ToolName] = {
    "Bash": "shell", "Read": "read_file", "NotebookRead": "read_file", "Write": "write_file", "Edit": "edit_file",
    "MultiEdit": "edit_file", "NotebookEdit": "edit_file", "Grep": "search_content", "Glob": "find_files",
    "LS": "find_files", "WebFetch": "web_fetch", "WebSearch": "web_search", "web_fetch": "web_fetch",
    "web_search": "web_search", "Agent": "task", "Task": "task", "TodoWrite": "plan", "TaskCreate": "plan",
    "TaskUpdate": "plan", "TaskList": "plan", "TaskGet": "plan", "EnterPlanMode": "plan", "ExitPlanMode": "plan",
    "AskUserQuestion": "question", "ListMcpResourcesTool": "mcp", "ReadMcpResourceTool": "mcp",
}  # fmt: skip
"""Every other tool of Claude Code's own is ``other``, every ``mcp__…`` is ``mcp``."""

_NATIVES: dict[ToolName, tuple[str, ...]] = {
    "shell": ("Bash",),
    "read_file": ("Read",),
    "write_file": ("Write",),
    "edit_file": ("Edit", "NotebookEdit"),
    "search_content": ("Grep",),
    "find_files": ("Glob",),
    "web_fetch": ("WebFetch",),
    "web_search": ("WebSearch",),
    "task": ("Agent", "Task"),
    "plan": ("TaskCreate", "TaskUpdate", "TaskList", "TaskGet"),
    "question": ("AskUserQuestion",),
}


def name_of(native: str) -> ToolName:
    return NAMES.get(native) or ("mcp" if native.startswith("mcp__") else "other")


def target_of(name: ToolName, native: str, arguments: Mapping[str, Any]) -> str:
    """What a call is about; for a tool of an MCP server, which one it is; of an answer in JSON, nothing."""
    match native.split("__", 2):
        case ["mcp", server, tool]:
            return f"{server}.{tool}"
        case ["StructuredOutput"]:
            return ""
        case _:
            return tools.target_of(name, arguments)


def natives_of(name: str) -> tuple[str, ...]:
    """Claude Code's tools behind one of our names. Its own names and rules (``Bash(git status:*)``) stay themselves."""
    for ours, natives in _NATIVES.items():
        if ours == name:
            return natives
    return (name,)
