"""Codex's calls in unified words: the names of its tools, what patches change, what questions are about. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Literal, assert_never, cast

import msgspec

from ...agents.codex import questions
from ...agents.codex.events import FileChangeItem
from ...agents.codex.questions import Question
from ...agents.codex.threads import FileUpdateChange, PatchChangeKind
from ...unified.diffs import change_of
from ...unified.events import FileChange, Operation, PermissionRequest, ToolName, ToolStatus, ToolUse
from ...unified.images import image_in, marks_of
from ...unified.tools import operation_of

NAMES: dict[str, ToolName] = {
    "exec_command": "shell", "shell": "shell", "shell_command": "shell", "local_shell": "shell",
    "local_shell_call": "shell", "write_stdin": "shell", "apply_patch": "edit_file", "view_image": "read_file",
    "web_search": "web_search", "update_plan": "plan", "request_user_input": "question", "spawn_agent": "task",
    "spawnAgent": "task", "run_command": "shell", "read": "read_file", "write": "write_file", "edit": "edit_file",
    "grep": "search_content", "find": "find_files", "fetch_url": "web_fetch", "search_web": "web_search",
}  # fmt: skip
"""What its items and older versions call tools. Every ``mcp__…`` is ``mcp``; talking to a sub-agent, waiting for it and
closing it are ``other``: only starting one is a ``task``."""

_PAGE_ACTIONS = {"open_page", "openPage", "find_in_page", "findInPage"}
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
    return NAMES.get(native) or ("mcp" if native.startswith("mcp__") else "other")


def mcp_name(server: str, tool: str) -> str:
    """The name the model calls an MCP tool by."""
    return f"mcp__{server}__{tool}"


def status_of(status: str, *, exit_code: int | None = None, error: str = "") -> ToolStatus:
    if error and _REFUSED.search(error):
        return "denied"
    reported = _STATUSES.get(status, "success")
    return "error" if reported == "success" and (exit_code or error) else reported


def plain_command(command: str) -> str:
    """The command itself, without the login shell that Codex puts around every entry."""
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
    fields = record(action)
    url = fields.get("url")
    name: ToolName = "web_fetch" if fields.get("type") in _PAGE_ACTIONS else "web_search"
    target = url if name == "web_fetch" and isinstance(url, str) else query
    arguments: dict[str, Any] = {"query": query, **{key: value for key, value in fields.items() if value is not None}}
    return ToolUse(
        tool_use_id=tool_use_id,
        name=name,
        native_name="web_search",
        input=arguments,
        operation=operation_of(name),
        target=target,
    )


def agent_use(tool_use_id: str, tool: str, prompt: str | None, receivers: list[str]) -> ToolUse:
    arguments = {key: value for key, value in (("prompt", prompt), ("agents", receivers)) if value}
    return ToolUse(
        tool_use_id=tool_use_id,
        name=name_of(tool),
        native_name=tool,
        input=arguments,
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


def text_of(content: object) -> str:
    """The text of a tool's content blocks; an image is named, what else is not text becomes JSON."""
    if content is None or isinstance(content, str):
        return content or ""
    blocks = cast("list[object]", content) if isinstance(content, list) else [content]
    return "\n".join(_block(block) for block in blocks)


def mcp_text(content: object, structured: object) -> str:
    """What an MCP tool returned: its blocks, or the object it returned instead of any."""
    return text_of(content) or ("" if structured is None else msgspec.json.encode(structured).decode())


def _block(block: object) -> str:
    match block:
        case str():
            return block
        case {"text": str(text)}:
            return text
        case _:
            image = image_in(block)
            return msgspec.json.encode(block).decode() if image is None else marks_of([image])[0]


# -------------------------------------------------------------------------------------------------------------- patches


_MOVED = re.compile(r"\n*Moved to: .*\Z")
_KINDS: dict[str, Literal["created", "modified", "deleted"]] = {
    "add": "created",
    "delete": "deleted",
    "update": "modified",
}


def paths_of(changes: Sequence[FileUpdateChange]) -> list[str]:
    """Every file that is touched, the target of a move too."""
    named = [path for change in changes for path in (change.path, change.kind.move_path or "") if path]
    return list(dict.fromkeys(named))


def patch_use(tool_use_id: str, changes: Sequence[FileUpdateChange], *, description: str = "") -> ToolUse:
    paths = paths_of(changes)
    details: list[dict[str, Any]] = [
        {
            "path": change.path,
            "kind": change.kind.type,
            **({"movePath": change.kind.move_path} if change.kind.move_path else {}),
            "diff": diff_of_change(change),
        }
        for change in changes
    ]
    return _patch_use(
        tool_use_id, paths, details, description, is_new=all(change.kind.type == "add" for change in changes)
    )


def exec_patch_use(tool_use_id: str, item: FileChangeItem) -> ToolUse:
    """The same from ``exec``, which has no diff."""
    paths = [change.path for change in item.changes] or [item.path]
    details = [{"path": change.path, "kind": change.kind} for change in item.changes]
    new = bool(item.changes) and all(change.kind == "add" for change in item.changes)
    return _patch_use(tool_use_id, [path for path in paths if path], details, "", is_new=new)


def _patch_use(
    tool_use_id: str, paths: list[str], details: list[dict[str, Any]], description: str, *, is_new: bool
) -> ToolUse:
    name: ToolName = "write_file" if is_new and paths else "edit_file"
    return ToolUse(
        tool_use_id=tool_use_id,
        name=name,
        native_name="apply_patch",
        input={"paths": paths, "changes": details},
        operation="write",
        target=", ".join(paths),
        description=description,
    )


def changes_of(changes: Sequence[FileUpdateChange], tool_use_id: str) -> list[FileChange]:
    return [_change(change, tool_use_id) for change in changes]


def exec_changes(item: FileChangeItem, tool_use_id: str) -> list[FileChange]:
    """What ``exec`` reports: today's has no diff, an older one had everything."""
    if item.path:
        return [change_of(item.path, item.before, item.after, tool_use_id=tool_use_id, diff=item.diff)]
    return [
        change_of(change.path, change.before, change.after, tool_use_id=tool_use_id)
        if change.before is not None or change.after is not None
        else FileChange(path=change.path, change=_KINDS.get(change.kind, "modified"), tool_use_id=tool_use_id)
        for change in item.changes
    ]


def diff_of_change(change: FileUpdateChange) -> str:
    return _change(change, "").diff


def _change(change: FileUpdateChange, tool_use_id: str) -> FileChange:
    match change.kind.type:
        case "add":
            return change_of(change.path, None, change.diff, tool_use_id=tool_use_id)
        case "delete":
            return change_of(change.path, change.diff, None, tool_use_id=tool_use_id)
        case _:
            target = change.kind.move_path or change.path
            hunks = _MOVED.sub("\n", change.diff) if change.kind.move_path else change.diff
            old, new = change.path.lstrip("/"), target.lstrip("/")
            diff = f"--- a/{old}\n+++ b/{new}\n{hunks}" if hunks.strip() else ""
            kind: Literal["moved", "modified"] = "moved" if target != change.path else "modified"
            return FileChange(path=target, change=kind, diff=diff, tool_use_id=tool_use_id)


# ------------------------------------------------------------------------------------------------------------ questions


CHOICES = ("allow_once", "allow_session", "reject_once", "reject_and_stop")


def call_of(question: Question) -> ToolUse | None:
    """The call a question is about; ``None`` where it asks for no permission (the time, a client's own tool)."""
    match question:
        case questions.CommandExecutionRequestApproval():
            return _command(question)
        case questions.FileChangeRequestApproval():
            return patch_use(_id(question), question.changes, description=question.reason or "")
        case questions.ExecCommandApproval():
            words = question.command  # bash -lc COMMAND
            command = words[-1] if len(words) == 3 else " ".join(words)
            return shell_use(_id(question), command, cwd=question.cwd, description=question.reason or "")
        case questions.ApplyPatchApproval():
            changes = [FileUpdateChange(path, PatchChangeKind("update")) for path in question.file_changes]
            return patch_use(_id(question), changes, description=question.reason or "")
        case questions.PermissionsRequestApproval():
            use = other_use(_id(question), "request_permissions", question.permissions)
            return ToolUse(
                tool_use_id=use.tool_use_id,
                name="other",
                native_name=use.native_name,
                input=use.input,
                target=question.cwd,
                description=question.reason or "wider permissions",
            )
        case questions.McpServerElicitationRequest():
            return _elicitation(question)
        case questions.ToolRequestUserInput():
            return _user_input(question)
        case questions.DynamicToolCall() | questions.CurrentTimeRead():
            return None
        case _:
            assert_never(question)


def request_of(question: Question, use: ToolUse, parent: str | None) -> PermissionRequest:
    return PermissionRequest(
        request_id=f"{question.thread_id}:{question.request_id}",
        tool_use_id=use.tool_use_id,
        tool_name=use.name,
        native_name=use.native_name,
        operation=use.operation,
        target=use.target,
        input=use.input,
        description=use.description,
        choices=list(CHOICES),
        parent_tool_use_id=parent,
    )


def has_item(question: Question) -> bool:
    """Whether the call will be closed by an item of its own."""
    match question:
        case questions.McpServerElicitationRequest():
            return question.call is not None
        case questions.PermissionsRequestApproval() | questions.ToolRequestUserInput():
            return False
        case _:
            return True


def _command(question: questions.CommandExecutionRequestApproval) -> ToolUse:
    use = shell_use(_id(question), question.command or "", cwd=question.cwd or "", description=question.reason or "")
    context = question.network_approval_context
    if context is None:
        return use
    host = str(context.get("host") or "")
    return ToolUse(
        tool_use_id=use.tool_use_id,
        name="shell",
        native_name=use.native_name,
        input={**use.input, "network": record(context)},
        operation="network",
        target=host or use.target,
        description=question.reason or f"network access to {host}",
    )


def _elicitation(question: questions.McpServerElicitationRequest) -> ToolUse:
    if question.is_tool_approval:
        call = question.call
        params: Any = question.tool_params
        arguments: Any = call.arguments if params is None and call is not None else params
        tool = "" if call is None else call.tool
        return mcp_use(_id(question), question.server_name, tool, arguments, description=question.message)
    form = {"message": question.message, "schema": question.requested_schema, "url": question.url}
    return ToolUse(
        tool_use_id=_id(question),
        name="question",
        native_name=f"mcp__{question.server_name}",
        input={key: value for key, value in form.items() if value},
        target=question.message or question.url or question.server_name,
        description=f"{question.server_name}: {question.message}",
    )


def _user_input(question: questions.ToolRequestUserInput) -> ToolUse:
    entries = [
        {
            "id": entry.id,
            "header": entry.header,
            "question": entry.question,
            "options": [{"label": option.label, "description": option.description} for option in entry.options or []],
            "isOther": entry.is_other,
            "isSecret": entry.is_secret,
        }
        for entry in question.questions
    ]
    words = "\n".join(entry.question for entry in question.questions)
    return ToolUse(
        tool_use_id=_id(question),
        name="question",
        native_name="request_user_input",
        input={"questions": entries},
        target=words,
        description=words,
    )


def _id(question: Question) -> str:
    return question.item_id or f"question-{question.thread_id}-{question.request_id}"
