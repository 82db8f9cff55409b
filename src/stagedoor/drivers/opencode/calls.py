"""Tool calls as ``serve`` and ``run`` report them, one part sent again whenever its state changes; and what an edit did
to files."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Literal, cast

import msgspec
from msgspec.structs import replace

from ...agents.opencode.launch import GUARD_MARK
from ...agents.opencode.parts import ToolPart
from ...unified.diffs import diff_of
from ...unified.events import (
    Event,
    FileChange,
    Plan,
    PlanItem,
    ShownImage,
    ToolProgress,
    ToolResult,
    ToolStatus,
    ToolUse,
)
from ...unified.images import images_in, that_fit, with_marks
from ...unified.tools import described, operation_of
from ...wire.fitting import whole_number
from .tools import INVALID, NAMES, name_of, target_of

_REFUSED = re.compile(
    r"^The user rejected permission|^The user has specified a rule which prevents|^The user dismissed this question"
)
_UNAVAILABLE = re.compile(r"unavailable tool '([^']+)'")
REJECTED = "The user rejected permission to use this specific tool call."
"""How OpenCode reports a refusal without a reason, after which it stops."""


def is_denied(tool: str, error: str) -> bool:
    """Whether a call that failed was refused. Where OpenCode lacks a tool of its own, a rule has removed it."""
    if _REFUSED.match(error):
        return True
    lacking = _UNAVAILABLE.search(error)
    return lacking is not None and (tool if lacking[1] == INVALID else lacking[1]) in NAMES


def judge_call(tool: str, status: str, error: str, metadata: Mapping[str, Any]) -> tuple[ToolStatus, int | None]:
    """How a call ended, and a command's exit code. OpenCode completes failed commands, too."""
    if status == "error" or error:
        return ("denied" if is_denied(tool, error) else "error"), None
    if tool != "bash" or "exit" not in metadata:
        return "success", None
    code = whole_number(metadata["exit"])
    if code is not None:
        return ("error" if code else "success"), code
    return "error", None  # stopped: by its time limit, or with its turn


class Calls:
    """The calls of one session and its sub-agents. Ids of calls are the model's own and may be repeated."""

    def __init__(self) -> None:
        self._first: dict[str, str] = {}  # an id → the message that had it first
        self._repeated: dict[tuple[str, str], str] = {}
        self._parts: dict[str, ToolPart] = {}
        self._ended: set[str] = set()
        self._output: dict[str, str] = {}
        self._diffs: dict[str, str] = {}
        self.last_denied = ""
        """The reason of the last call, if it was refused."""

    def id_of(self, message_id: str, call_id: str) -> str:
        if call_id and self._first.setdefault(call_id, message_id) == message_id:
            return call_id
        key = message_id, call_id
        if key not in self._repeated:
            self._repeated[key] = f"{call_id}:{message_id}"
            self._first[self._repeated[key]] = message_id
        return self._repeated[key]

    def part(self, tool_use_id: str) -> ToolPart | None:
        """The last part of a call that runs, once its input is known."""
        return self._parts.get(tool_use_id)

    def has_input(self, tool_use_id: str) -> bool:
        return tool_use_id in self._parts or tool_use_id in self._ended

    def set_diff(self, tool_use_id: str, diff: str) -> None:
        """A question showed what this call will change."""
        self._diffs[tool_use_id] = diff

    def update(self, part: ToolPart) -> list[Event]:
        part = _without_guard(part)
        tool_use_id = self.id_of(part.message_id, part.call_id)
        if part.state.status not in ("running", "completed", "error") or tool_use_id in self._ended:
            return []
        out: list[Event] = [] if tool_use_id in self._parts else [_use(part, tool_use_id)]
        self._parts[tool_use_id] = part
        out += self._progress(part, tool_use_id) if part.state.status == "running" else self._end(part, tool_use_id)
        return out

    def _progress(self, part: ToolPart, tool_use_id: str) -> list[Event]:
        output: object = part.state.metadata.get("output")
        before = self._output.get(tool_use_id, "")
        # Of long output only the end is kept: what was cut off at its beginning cannot be continued.
        if not isinstance(output, str) or not output.startswith(before) or output == before:
            return []
        self._output[tool_use_id] = output
        return [ToolProgress(tool_use_id=tool_use_id, output=output.removeprefix(before))]

    def _end(self, part: ToolPart, tool_use_id: str) -> list[Event]:
        self._ended.add(tool_use_id)
        self._output.pop(tool_use_id, None)
        del self._parts[tool_use_id]  # its output may be large, and nobody asks about a call that is over
        state, diff = part.state, self._diffs.pop(tool_use_id, "")
        native, mistake = _tool_of(part)
        error = state.error or mistake
        status, code = judge_call(native, state.status, error, state.metadata)
        self.last_denied = error if status == "denied" else ""
        out: list[Event] = []
        if status == "success":
            out += changes_of(native, state.input, state.metadata, tool_use_id, diff)
            out += plan_of(state.input) if native == "todowrite" else []
        time, images = state.time, list[ShownImage]()
        if state.attachments:
            images = images_in([msgspec.json.decode(attached) for attached in state.attachments])
        result = ToolResult(
            tool_use_id=tool_use_id,
            name=name_of(native, mistake),
            status=status,
            output=error or (with_marks(state.output, images) if images else state.output),
            exit_code=code,
            duration_ms=time.end - time.start if time is not None and time.end is not None else None,
            images=that_fit(images) if images else [],
        )
        return [*out, result]


def _without_guard(part: ToolPart) -> ToolPart:
    if part.tool != "bash":
        return part
    arguments = as_written(part.state.input)
    return part if arguments is part.state.input else replace(part, state=replace(part.state, input=arguments))


def as_written(arguments: dict[str, Any]) -> dict[str, Any]:
    """A command's input without what our guard put before it."""
    command: object = arguments.get("command")
    if not isinstance(command, str) or not command.startswith(GUARD_MARK):
        return arguments
    return {**arguments, "command": command.removeprefix(GUARD_MARK)}


def _tool_of(part: ToolPart) -> tuple[str, str]:
    """The tool the model meant, and what was wrong with the call."""
    if part.tool != INVALID:
        return part.tool, ""
    match part.state.input:
        case {"tool": str(tool), "error": str(error)}:
            return tool, error
        case _:
            return part.tool, ""


def _use(part: ToolPart, tool_use_id: str) -> ToolUse:
    native, error = _tool_of(part)
    name = name_of(native, error)
    arguments: dict[str, Any] = {} if error else part.state.input
    return ToolUse(
        tool_use_id=tool_use_id,
        name=name,
        native_name=native,
        input=arguments,
        operation=operation_of(name),
        target=target_of(name, native, arguments),
        description=described(arguments),
    )


def below(events: list[Event], parent: str | None) -> list[Event]:
    """``events`` as those of a sub-agent."""
    return events if parent is None else [replace(event, parent_tool_use_id=parent) for event in events]


# ---------------------------------------------------------------------------------------------------- changes of files


_CHANGES: dict[str, Literal["created", "modified", "deleted", "moved"]] = {
    "add": "created",
    "update": "modified",
    "delete": "deleted",
    "move": "moved",
}
_STATUSES: dict[str, Literal["in_progress", "completed"]] = {"in_progress": "in_progress", "completed": "completed"}


def plain_diff(patch: str, path: str, *, is_new: bool = False, is_deleted: bool = False) -> str:
    """OpenCode's diff with the names that everybody else's have."""
    start = patch.find("@@")
    if start < 0:
        return ""
    name = path.lstrip("/")
    old, new = "/dev/null" if is_new else f"a/{name}", "/dev/null" if is_deleted else f"b/{name}"
    return f"--- {old}\n+++ {new}\n{patch[start:]}"


def changes_of(
    tool: str, arguments: Mapping[str, Any], metadata: Mapping[str, Any], tool_use_id: str, diff: str = ""
) -> list[Event]:
    """The files a finished call has changed. ``diff`` is that of the question about it, where one was asked."""
    if tool != "write" and "files" not in metadata and "filediff" not in metadata:
        return []
    match tool, metadata:
        case "write", {"filepath": str(path), "exists": bool(existed)}:
            if existed and diff and "@@" not in diff:
                return []  # it has the same content as before
            return [_written(path, arguments.get("content"), tool_use_id, diff, existed=existed)]
        case _, {"files": list()}:
            files = cast("list[object]", metadata["files"])
            patched = [cast("dict[str, Any]", file) for file in files if isinstance(file, dict)]
            return [change for file in patched for change in _patched(file, tool_use_id)]
        case _, {"filediff": {"file": str(path), "patch": str(patch)}} if patch:
            is_new = arguments.get("oldString") == "" and "@@ -0,0 " in patch
            change: Literal["created", "modified"] = "created" if is_new else "modified"
            plain = plain_diff(patch, path, is_new=is_new)
            return [FileChange(path=path, change=change, diff=plain, tool_use_id=tool_use_id)]
        case _:
            return []


def _written(path: str, content: object, tool_use_id: str, diff: str, *, existed: bool) -> FileChange:
    after = content if isinstance(content, str) else None
    diff = plain_diff(diff, path, is_new=not existed) or ("" if existed else diff_of(path, None, after))
    if existed and not diff:
        after = None  # its old content is unknown: a reader of the workspace has both
    return FileChange(
        path=path, change="modified" if existed else "created", diff=diff, after=after, tool_use_id=tool_use_id
    )


def _patched(file: Mapping[str, Any], tool_use_id: str) -> list[Event]:
    match file:
        case {"filePath": str(path), "type": str(kind)}:
            change = _CHANGES.get(kind, "modified")
        case _:
            return []
    moved, patch = file.get("movePath"), file.get("patch") or file.get("diff")
    after = moved if change == "moved" and isinstance(moved, str) else path
    diff = patch if isinstance(patch, str) else ""
    return [
        FileChange(
            path=after,
            change=change,
            diff=plain_diff(diff, after, is_new=change == "created", is_deleted=change == "deleted"),
            tool_use_id=tool_use_id,
        )
    ]


def plan_of(arguments: Mapping[str, Any]) -> list[Event]:
    """``todowrite`` gives the whole list each time."""
    todos: object = arguments.get("todos")
    if not isinstance(todos, list):
        return []
    items = [cast("dict[str, object]", todo) for todo in cast("list[object]", todos) if isinstance(todo, dict)]
    return [
        Plan(
            items=[
                PlanItem(str(todo.get("content", "")), _STATUSES.get(str(todo.get("status")), "pending"))
                for todo in items
                if todo.get("status") != "cancelled"
            ]
        )
    ]
