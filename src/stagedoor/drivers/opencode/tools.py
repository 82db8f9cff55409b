"""OpenCode's own tool names and ours, in both directions, and the permissions that stand before each."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from ...unified import tools
from ...unified.events import ToolName
from ...unified.tool_lists import AgentTool

NAMES: dict[str, ToolName] = {
    "bash": "shell", "read": "read_file", "write": "write_file", "edit": "edit_file", "multiedit": "edit_file",
    "patch": "edit_file", "apply_patch": "edit_file", "grep": "search_content", "codesearch": "search_content",
    "glob": "find_files", "list": "find_files", "webfetch": "web_fetch", "websearch": "web_search", "task": "task",
    "todowrite": "plan", "todoread": "plan", "question": "question", "plan_enter": "other", "plan_exit": "other",
    "skill": "other", "lsp": "other", "batch": "other", "StructuredOutput": "other",
}  # fmt: skip
INVALID = "invalid"
"""What OpenCode runs in place of a tool it does not have, or whose arguments it cannot read."""


class OpenCodeToolNames(Mapping[str, ToolName]):
    """:data:`NAMES`, and every tool of an MCP server: those are called ``<server>_<tool>``."""

    def __getitem__(self, native: str) -> ToolName:
        if native not in NAMES and "_" in native:
            return "mcp"
        return NAMES[native]

    def __contains__(self, native: object) -> bool:
        return native in NAMES or (isinstance(native, str) and "_" in native)

    def __iter__(self) -> Iterator[str]:
        return iter(NAMES)

    def __len__(self) -> int:
        return len(NAMES)


TOOLS = OpenCodeToolNames()
TITLE = "OpenCode"
MCP_NAME = "{server}_{tool}"
OWN_TOOLS: tuple[AgentTool, ...] = (
    AgentTool("bash", "shell", ("files", "network", "process")),
    AgentTool("read", "read_file", ("files",), "free"),
    AgentTool("write", "write_file", ("files",)),
    AgentTool("edit", "edit_file", ("files",)),
    AgentTool("multiedit", "edit_file", ("files",)),
    AgentTool("patch", "edit_file", ("files",), also=("write_file",)),
    AgentTool("apply_patch", "edit_file", ("files",), also=("write_file",)),
    AgentTool("grep", "search_content", ("files",), "free"),
    AgentTool("codesearch", "search_content", ("network",)),
    AgentTool("glob", "find_files", ("files",), "free"),
    AgentTool("list", "find_files", ("files",), "free"),
    AgentTool("lsp", "other", ("files", "process"), "free"),
    AgentTool("webfetch", "web_fetch", ("network",)),
    AgentTool("websearch", "web_search", ("network",)),
    AgentTool("task", "task", control="free"),
    AgentTool("skill", "other", ("files",), "free"),
    AgentTool("todowrite", "plan", control="free"),
    AgentTool("todoread", "plan", control="free"),
    AgentTool("plan_enter", "other", also=("plan",)),
    AgentTool("plan_exit", "other", also=("plan",)),
    AgentTool("question", "question"),
    AgentTool("batch", "other"),
    AgentTool("StructuredOutput", "other", control="plumbing"),
    AgentTool("invalid", "other", control="plumbing"),
)
"""Its own tools, those of other models and settings too. A sub-agent is only started unasked: each of its calls is
asked about. A skill is a text that is read."""

_WRITING = frozenset({"write", "edit", "multiedit", "patch", "apply_patch"})


def name_of(native: str, error: str = "") -> ToolName:
    """``error``: why the call could not be made. A tool that OpenCode does not have is no server's either."""
    known = NAMES.get(native)
    if known is not None:
        return known
    return "mcp" if "_" in native and "unavailable tool" not in error else "other"


def target_of(name: ToolName, native: str, arguments: Mapping[str, Any]) -> str:
    """What a call is about; of an MCP call the tool."""
    if name == "mcp":
        return native
    return tools.target_of(name, arguments) or (native if name == "other" else "")


def permission_of(tool: str) -> str:
    """The permission that stands before a tool: one for all that write."""
    return "edit" if tool in _WRITING else tool
