"""GitHub Copilot CLI's own tools: by our names, and what each of them reaches."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from ...unified.events import ToolName
from ...unified.tool_lists import AgentTool

TITLE = "GitHub Copilot CLI"
MCP_NAME = "{server}-{tool}"
OWN_TOOLS: tuple[AgentTool, ...] = (
    AgentTool("bash", "shell", ("files", "network", "process")),
    AgentTool("read_bash", "other", control="free", also=("shell",)),
    AgentTool("stop_bash", "other", control="free", also=("shell",)),
    AgentTool("list_bash", "other", control="free", also=("shell",)),
    AgentTool("view", "read_file", ("files",), "free"),
    AgentTool("create", "write_file", ("files",)),
    AgentTool("edit", "edit_file", ("files",)),
    AgentTool("grep", "search_content", ("files",), "free"),
    AgentTool("glob", "find_files", ("files",), "free"),
    AgentTool("web_fetch", "web_fetch", ("network",)),
    AgentTool("web_search", "web_search", ("network",)),
    AgentTool("task", "task", control="free"),
    AgentTool("read_agent", "other", control="free", also=("task",)),
    AgentTool("list_agents", "other", control="free", also=("task",)),
    AgentTool("write_agent", "other", control="free", also=("task",)),
    AgentTool("sql", "other", control="free", also=("plan",)),
    AgentTool("skill", "other", ("files",), "withheld"),
    AgentTool("lsp", "other", ("files", "process"), "withheld"),
    AgentTool("ask_user", "question"),
    AgentTool("fetch_copilot_cli_documentation", "other", control="free"),
)
"""``sql`` is a database of its own for notes. What a sub-agent does is asked about like the rest."""
NAMES: dict[str, ToolName] = {tool.name: tool.kind for tool in OWN_TOOLS}
EXIT_LINE = re.compile(r"\n?<shellId: \S+ completed with exit code (-?\d+)>\s*$")
"""What it adds to the output of a command."""
READING = ("view", "grep", "glob")


class CopilotToolNames(Mapping[str, ToolName]):
    """:data:`NAMES`, and every tool of an MCP server: ``<server>-<tool>``."""

    def __getitem__(self, native: str) -> ToolName:
        if native in NAMES:
            return NAMES[native]
        if "-" in native and " " not in native:
            return "mcp"
        raise KeyError(native)

    def __iter__(self) -> Iterator[str]:
        return iter(NAMES)

    def __len__(self) -> int:
        return len(NAMES)


TOOLS = CopilotToolNames()


def name_of(title: str, kind: str, arguments: Mapping[str, Any]) -> str:
    """The tool's name, which the CLI never tells: each is known by its arguments, or by the words of its title."""
    keys = arguments.keys()
    match kind:
        case "execute" if "command" in keys:
            return "bash"
        case "edit" if "file_text" in keys:
            return "create"
        case "edit":
            return "edit"
        case "read" if "path" in keys and "pattern" not in keys:
            return "view"
        case "read" if title.startswith("Searching for"):
            return "grep"
        case "read" if title.startswith("Finding files"):
            return "glob"
        case "read" if "shellId" in keys:
            return "read_bash"
        case "fetch":
            return "web_fetch"
        case "other" if "agent_type" in keys:
            return "task"
        case "other" if "query" in keys and " " in title:
            return "sql"
        case _:
            return title if title and " " not in title else ""
