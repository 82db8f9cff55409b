"""Gemini CLI's own tools: by our names, and what each of them reaches."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from ...unified import tools
from ...unified.events import ToolName
from ...unified.tool_lists import AgentTool

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
TITLE = "Gemini CLI"
OWN_TOOLS: tuple[AgentTool, ...] = (
    AgentTool("run_shell_command", "shell", ("files", "network", "process")),
    AgentTool("list_background_processes", "other", control="free", also=("shell",)),
    AgentTool("read_background_output", "other", control="free", also=("shell",)),
    AgentTool("read_file", "read_file", ("files",), "free"),
    AgentTool("read_many_files", "read_file", ("files",), "free"),
    AgentTool("get_internal_docs", "read_file", control="free"),
    AgentTool("write_file", "write_file", ("files",)),
    AgentTool("replace", "edit_file", ("files",)),
    AgentTool("save_memory", "other", ("files",)),
    AgentTool("grep_search", "search_content", ("files",), "free"),
    AgentTool("search_file_content", "search_content", ("files",), "free"),
    AgentTool("glob", "find_files", ("files",), "free"),
    AgentTool("list_directory", "find_files", ("files",), "free"),
    AgentTool("web_fetch", "web_fetch", ("network",)),
    AgentTool("google_web_search", "web_search", ("network",)),
    AgentTool("invoke_agent", "task"),
    AgentTool("codebase_investigator", "task"),
    AgentTool("cli_help", "task"),
    AgentTool("activate_skill", "other", ("files",)),
    AgentTool("write_todos", "plan", control="free"),
    AgentTool("tracker_add_dependency", "other", control="free", also=("plan",)),
    AgentTool("tracker_create_task", "other", control="free", also=("plan",)),
    AgentTool("tracker_get_task", "other", control="free", also=("plan",)),
    AgentTool("tracker_list_tasks", "other", control="free", also=("plan",)),
    AgentTool("tracker_update_task", "other", control="free", also=("plan",)),
    AgentTool("tracker_visualize", "other", control="free", also=("plan",)),
    AgentTool("enter_plan_mode", "other", also=("plan",)),
    AgentTool("exit_plan_mode", "other", also=("plan",)),
    AgentTool("ask_user", "question"),
    AgentTool("read_mcp_resource", "mcp", ("network", "process")),
    AgentTool("list_mcp_resources", "mcp", ("network", "process")),
    AgentTool("update_topic", "other", control="plumbing"),
    AgentTool("complete_task", "other", control="plumbing"),
)
"""Its own tools, those of other models and modes too. ``update_topic`` names the topic of the conversation and
``complete_task`` is how a sub-agent answers: neither reaches anything."""
MCP = "mcp_"
"""How the name of a server's tool begins: ``mcp_<server>_<tool>``."""
MCP_NAME = MCP + "{server}_{tool}"

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
