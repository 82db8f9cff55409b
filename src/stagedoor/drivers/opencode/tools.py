"""OpenCode's own tool names and ours, in both directions, and the permissions that stand before each."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from ...unified import tools
from ...unified.events import ToolName

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

    def __iter__(self) -> Iterator[str]:
        return iter(NAMES)

    def __len__(self) -> int:
        return len(NAMES)


TOOLS = OpenCodeToolNames()

# OpenCode guards tools by permissions; these three of our names share the one for everything that writes.
_PERMISSIONS: dict[str, tuple[str, ...]] = {
    "shell": ("bash",),
    "read_file": ("read",),
    "write_file": ("edit",),
    "edit_file": ("edit",),
    "search_content": ("grep",),
    "find_files": ("glob", "list"),
    "web_fetch": ("webfetch",),
    "web_search": ("websearch",),
    "task": ("task",),
    "plan": ("todowrite",),
    "question": ("question",),
}
_WRITING = ("write", "multiedit", "patch", "apply_patch")


def name_of(native: str, error: str = "") -> ToolName:
    """``error``: why the call could not be made. A tool that OpenCode does not have is no server's either."""
    return "other" if "unavailable tool" in error and native not in NAMES else TOOLS.get(native, "other")


def target_of(name: ToolName, native: str, arguments: Mapping[str, Any]) -> str:
    """What a call is about; of an MCP call the tool."""
    if name == "mcp":
        return native
    return tools.target_of(name, arguments) or (native if name == "other" else "")


def permissions_of(name: str) -> tuple[str, ...]:
    """The permissions that ``name``, our name of a tool or OpenCode's own, stands for."""
    if name in _PERMISSIONS:
        return _PERMISSIONS[name]
    return ("edit",) if name in _WRITING else (name,)
