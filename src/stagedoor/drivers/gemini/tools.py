"""Gemini CLI's own tool names and ours, in both directions."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from ...unified import tools
from ...unified.events import ToolName

OLDER: dict[str, ToolName] = {
    "shell": "shell",
    "edit_file": "edit_file",
    "search_code": "search_content",
    "find_files": "find_files",
    "web_search": "web_search",
}
"""Names of older descriptions of the CLI: understood, never said."""
NAMES: dict[str, ToolName] = {
    "run_shell_command": "shell", "read_file": "read_file", "read_many_files": "read_file",
    "get_internal_docs": "read_file", "write_file": "write_file", "replace": "edit_file",
    "grep_search": "search_content", "search_file_content": "search_content", "glob": "find_files",
    "list_directory": "find_files", "web_fetch": "web_fetch", "google_web_search": "web_search", "invoke_agent": "task",
    "codebase_investigator": "task", "cli_help": "task", "write_todos": "plan", "ask_user": "question",
    "read_mcp_resource": "mcp", "list_mcp_resources": "mcp", "activate_skill": "other", "complete_task": "other",
    "enter_plan_mode": "other", "exit_plan_mode": "other", "list_background_processes": "other",
    "read_background_output": "other", "save_memory": "other", "tracker_add_dependency": "other",
    "tracker_create_task": "other", "tracker_get_task": "other", "tracker_list_tasks": "other",
    "tracker_update_task": "other", "tracker_visualize": "other", "update_topic": "other",
}  # fmt: skip
MCP = "mcp_"
"""How the name of a server's tool begins: ``mcp_<server>_<tool>``."""

_ADDRESS = re.compile(r"https?://[^\s\"'<>]+")


class GeminiToolNames(Mapping[str, ToolName]):
    """:data:`NAMES`, and every tool of an MCP server."""

    def __getitem__(self, native: str) -> ToolName:
        return "mcp" if native.startswith(MCP) else NAMES.get(native) or OLDER[native]

    def __iter__(self) -> Iterator[str]:
        return iter(NAMES)

    def __len__(self) -> int:
        return len(NAMES)


TOOLS = GeminiToolNames()


def target_of(name: ToolName, native: str, arguments: Mapping[str, Any]) -> str:
    """What a call is about: of a fetch the address in its prompt, of an MCP call the tool."""
    prompt: object = arguments.get("prompt")
    if name == "web_fetch" and isinstance(prompt, str) and (address := _ADDRESS.search(prompt)):
        return address[0]
    return native if name == "mcp" else tools.target_of(name, arguments)


def natives_of(name: str) -> tuple[str, ...]:
    """The CLI's tools that ``name``, ours or its own, stands for; empty for one it does not have."""
    if name in NAMES or name.startswith(MCP):
        return (name,)
    return tuple(native for native, normalized in NAMES.items() if normalized == name)
