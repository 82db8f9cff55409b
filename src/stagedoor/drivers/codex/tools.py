"""Codex's tools by our names, and what its calls say they are about."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, cast

import msgspec

from ...unified.events import Operation, ToolName, ToolStatus, ToolUse
from ...unified.tools import operation_of

NAMES: dict[str, ToolName] = {
    "exec_command": "shell",
    "shell": "shell",
    "shell_command": "shell",
    "local_shell": "shell",
    "write_stdin": "shell",
    "apply_patch": "edit_file",
    "view_image": "read_file",
    "web_search": "web_search",
    "update_plan": "plan",
    "request_user_input": "question",
    "spawn_agent": "task",
    "spawnAgent": "task",
    "run_command": "shell",
    "read": "read_file",
    "write": "write_file",
    "edit": "edit_file",
    "grep": "search_content",
    "find": "find_files",
    "fetch_url": "web_fetch",
    "search_web": "web_search",
}
"""What its items and older versions call tools. Every ``mcp__…`` is ``mcp``; talking to a sub-agent, waiting for it and
closing it are ``other``: only starting one is a ``task``."""

_OPENED = {"open_page", "openPage", "find_in_page", "findInPage"}
_STATUSES: dict[str, ToolStatus] = {
    "completed": "success",
    "success": "success",
    "failed": "error",
    "error": "error",
    "declined": "denied",
}
_REFUSED = re.compile(
    r"user rejected|requires approval, but approval policy|rejected by user|approval request (was )?den"
)
_SHELL = re.compile(r"(?:\S*/)?(?:bash|zsh|sh|dash) -l?c (?=['\"\S])")
_QUOTED = re.compile(r"'([^']*)'|\"((?:[^\"\\]|\\.)*)\"|\\(.)|([^\s'\"\\]+)", re.DOTALL)


def name_of(native: str) -> ToolName:
    known = NAMES.get(native)
    if known is not None:
        return known
    return "mcp" if native.startswith("mcp__") else "other"


def mcp_name(server: str, tool: str) -> str:
    """The name the model calls an MCP tool by."""
    return f"mcp__{server}__{tool}"


def status_of(status: str, *, exit_code: int | None = None, error: str = "") -> ToolStatus:
    if error and _REFUSED.search(error):
        return "denied"
    known = _STATUSES.get(status, "success")
    return "error" if known == "success" and (exit_code or error) else known


def plain_command(command: str) -> str:
    """The command itself, without the login shell that Codex puts around every one."""
    wrapped = _SHELL.match(command)
    if wrapped is None:
        return command
    at, words = wrapped.end(), ""
    while at < len(command):
        piece = _QUOTED.match(command, at)
        if piece is None:
            return command  # more words than one, or a quote that does not end: not Codex's own doing
        single, double, escaped, bare = piece.groups()
        if single is not None:
            words += single
        elif double is not None:
            words += re.sub(r'\\([$`"\\])', r"\1", double)
        else:
            words += escaped or bare or ""
        at = piece.end()
    return words


def shell_use(tool_use_id: str, command: str, *, cwd: str = "", description: str = "") -> ToolUse:
    plain = plain_command(command)
    return ToolUse(
        tool_use_id=tool_use_id,
        name="shell",
        native_name="exec_command",
        input={"command": plain, "cwd": cwd} if cwd else {"command": plain},
        operation="execute",
        target=plain,
        description=description,
    )


def mcp_use(tool_use_id: str, server: str, tool: str, arguments: Any, *, description: str = "") -> ToolUse:
    return ToolUse(
        tool_use_id=tool_use_id,
        name="mcp",
        native_name=mcp_name(server, tool),
        input=record(arguments),
        operation="other",
        target=f"{server}.{tool}",
        description=description,
    )


def search_use(tool_use_id: str, query: str, action: Any) -> ToolUse:
    """A search, or a page that was opened: one native tool does both."""
    given = record(action)
    url = given.get("url")
    name: ToolName = "web_fetch" if given.get("type") in _OPENED else "web_search"
    target = url if name == "web_fetch" and isinstance(url, str) else query
    shown: dict[str, Any] = {"query": query, **{key: value for key, value in given.items() if value is not None}}
    return ToolUse(
        tool_use_id=tool_use_id,
        name=name,
        native_name="web_search",
        input=shown,
        operation=operation_of(name),
        target=target,
    )


def agent_use(tool_use_id: str, tool: str, prompt: str | None, receivers: list[str]) -> ToolUse:
    given = {key: value for key, value in (("prompt", prompt), ("agents", receivers)) if value}
    return ToolUse(
        tool_use_id=tool_use_id,
        name=name_of(tool),
        native_name=tool,
        input=given,
        target=prompt or ", ".join(receivers),
        description=prompt or "",
    )


def other_use(tool_use_id: str, tool: str, arguments: Any) -> ToolUse:
    name = name_of(tool)
    return ToolUse(
        tool_use_id=tool_use_id, name=name, native_name=tool, input=record(arguments), operation=operation_of(name)
    )


def file_use(tool_use_id: str, path: str, *, name: ToolName, native: str) -> ToolUse:
    operation: Operation = operation_of(name)
    return ToolUse(
        tool_use_id=tool_use_id, name=name, native_name=native, input={"path": path}, operation=operation, target=path
    )


def record(value: object) -> dict[str, Any]:
    """Arguments as an object, whatever the model made of them."""
    if isinstance(value, Mapping):
        return {str(key): item for key, item in cast("Mapping[object, Any]", value).items()}
    return {} if value is None else {"input": value}


def words_of(content: object) -> str:
    """The text of a tool's content blocks; what is no text is shown as JSON."""
    if content is None or isinstance(content, str):
        return content or ""
    blocks = cast("list[object]", content) if isinstance(content, list) else [content]
    return "\n".join(_block(block) for block in blocks)


def mcp_words(content: object, structured: object) -> str:
    """What an MCP tool answered: its blocks, or the object it gave instead of any."""
    return words_of(content) or ("" if structured is None else msgspec.json.encode(structured).decode())


def _block(block: object) -> str:
    match block:
        case str():
            return block
        case {"text": str(text)}:
            return text
        case _:
            return msgspec.json.encode(block).decode()
