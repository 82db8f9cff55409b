"""What both dictionaries correct: how a call ended, what an error is about, text that comes twice. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Literal, cast

import msgspec
from msgspec.structs import replace

from ...agents.gemini.records import FileDiff, ToolDetails
from ...unified.diffs import change_of, diff_of
from ...unified.events import Error, Event, FileChange, Notice, Plan, PlanItem, ToolResult
from ...unified.faults import kind_of
from ...unified.images import images_in, that_fit
from .tools import NAMES

_DENIED = re.compile(
    r"(denied|blocked) by policy|was canceled by the user|requires user confirmation"
    r"|^Tool execution blocked|^Access denied: plan"
)
_DENIALS = ("policy_violation", "stop_execution")
_MISSING = re.compile(r'Tool "([^"]+)" not found')
_EXITED = re.compile(r"Command exited with code: (\d+)")
_UNTRUSTED = re.compile(r"\A<untrusted_context>\n(.*)\n</untrusted_context>\s*\Z", re.DOTALL)
_STATUSES: dict[str, Literal["in_progress", "completed"]] = {"in_progress": "in_progress", "completed": "completed"}
_NOT_ALWAYS_THERE = ("write_todos", "ask_user", "complete_task", "tracker_")
CANCELLED = "Command cancelled by user."


def is_denied(message: str, kind: str = "") -> bool:
    """Whether a failed call was refused. A tool of its own that the CLI does not find, its mode has taken away, unless
    it is one that not every model or front end has."""
    missing = _MISSING.match(message)
    taken = missing is not None and missing[1] in NAMES and not missing[1].startswith(_NOT_ALWAYS_THERE)
    return kind in _DENIALS or bool(_DENIED.search(message)) or taken


def call_ended(result: ToolResult, changes: list[FileChange], details: ToolDetails | None) -> list[Event]:
    """The events that end a call. ``changes`` are what the CLI itself reported of an edit, perhaps nothing."""
    if details is not None:
        result, changes = _detailed(result, changes, details)
    elif result.name == "shell" and (exited := _EXITED.fullmatch(result.output)):
        result = replace(result, exit_code=int(exited[1]))
    real = [change for change in changes if change.before is None or change.before != change.after]
    out: list[Event] = [*real] if result.status == "success" else []
    if result.name == "plan" and result.status == "success" and details is not None:
        out += plan_of(details.args)
    if result.name != "shell" or result.status != "success":
        return [*out, result]
    if result.exit_code:
        message = f"the CLI calls it a success, but the command ended with code {result.exit_code}"
        return [*out, replace(result, status="error"), Notice(level="info", code="failed_command", message=message)]
    if result.output.startswith(CANCELLED):
        return [*out, replace(result, status="error")]
    return [*out, result]


def _detailed(
    result: ToolResult, changes: list[FileChange], details: ToolDetails
) -> tuple[ToolResult, list[FileChange]]:
    if details.diff is not None:
        changes = [_change(details.diff, result.tool_use_id)]
    output: object = details.response.get("output")
    # What is shown of most tools is a summary ("Found 2 files"); the model got the whole. A command is shown whole.
    if isinstance(output, str) and result.status == "success" and result.name != "shell":
        result = replace(result, output=_UNTRUSTED.sub(r"\1", output))
    images = that_fit(images_in(details.parts)) or result.images
    return replace(result, exit_code=details.exit_code, images=images), changes


def _change(diff: FileDiff, tool_use_id: str) -> FileChange:
    path = diff.file_path or diff.file_name
    before, after = None if diff.is_new_file else diff.original_content, diff.new_content
    if after is None or (before is None and not diff.is_new_file):  # only the CLI's own diff tells what changed
        change: Literal["created", "modified"] = "created" if diff.is_new_file else "modified"
        return FileChange(path=path, change=change, diff=diff.file_diff, after=after, tool_use_id=tool_use_id)
    return change_of(path, before, after, tool_use_id=tool_use_id)


def requested_change(tool: str, arguments: Mapping[str, Any], tool_use_id: str) -> list[FileChange]:
    """What an edit must have done, judged by its arguments alone: for recordings without a session file."""
    path: object = arguments.get("file_path")
    if not isinstance(path, str):
        return []
    match tool, arguments:
        case "write_file", {"content": str(content)}:  # whether the file was there before, nobody says
            return [FileChange(path=path, change="modified", after=content, tool_use_id=tool_use_id)]
        case "replace", {"old_string": str(old), "new_string": str(new)}:
            diff = diff_of(path, _whole_lines(old), _whole_lines(new))
            return [FileChange(path=path, change="modified", diff=diff, tool_use_id=tool_use_id)]
        case _:
            return []


def _whole_lines(piece: str) -> str:
    """A piece of a file says nothing about whether the file ends with a newline."""
    return piece if piece.endswith("\n") or not piece else f"{piece}\n"


def plan_of(arguments: Mapping[str, Any]) -> list[Event]:
    """``write_todos`` gives the whole list each time."""
    raw: object = arguments.get("todos")
    if not isinstance(raw, list):
        return []
    todos = [cast("dict[str, object]", todo) for todo in cast("list[object]", raw) if isinstance(todo, dict)]
    return [
        Plan(
            items=[
                PlanItem(str(todo.get("description", "")), _STATUSES.get(str(todo.get("status")), "pending"))
                for todo in todos
                if todo.get("status") != "cancelled"
            ]
        )
    ]


class _ApiError(msgspec.Struct):
    code: int = 0
    message: str = ""
    status: str = ""


class _ApiAnswer(msgspec.Struct):
    error: _ApiError


_API_ERROR = re.compile(r"\[API Error: (.*)\]\Z", re.DOTALL)


def error_of(message: str, *, fatal: bool, status: int | None = None) -> Error:
    """``status`` is what the CLI calls the HTTP status: over ACP it says 500 for whatever had none."""
    # Only the first line is about what happened; the advice behind it speaks of quotas whatever it was.
    first = message.partition("\n")[0]
    status = None if status == 500 and kind_of(first) != "unknown" else status
    wrapped = _API_ERROR.match(first)
    answer = wrapped[1] if wrapped else first
    try:
        fault = msgspec.json.decode(answer, type=_ApiAnswer).error
    except (msgspec.MsgspecError, UnicodeError):
        return Error(kind=kind_of(first, status), message=message, fatal=fatal)
    code = " ".join(str(part) for part in (fault.code or "", fault.status) if part)
    kind = kind_of(answer, fault.code or status)
    return Error(kind=kind, message=f"{fault.message} ({code})" if code else fault.message, fatal=fatal)


SHORTEST = 8
"""Characters; a model may well write a shorter piece twice."""
MESSAGE = "the answer broke off and was requested again; repeated text is left out"


class Repeats:
    """Holds back text that repeats all the text before it, after a pause (the CLI waits before it asks again)."""

    def __init__(self) -> None:
        self._text = ""
        self._held_back = ""

    def feed(self, text: str, *, paused: bool) -> tuple[str, bool]:
        """What is new in ``text``, and whether it completed a repetition."""
        again = self._held_back + text
        if not self._held_back and not (paused and len(self._text) >= SHORTEST):
            return self._pass_on(text), False
        if again.startswith(self._text):
            return self._pass_on(again.removeprefix(self._text)), True
        if self._text.startswith(again):
            self._held_back = again
            return "", False
        return self._pass_on(again), False

    def finish(self) -> str:
        """Something else happens now: what was kept back was no repetition."""
        text, self._text, self._held_back = self._held_back, "", ""
        return text

    def _pass_on(self, text: str) -> str:
        self._text += text
        self._held_back = ""
        return text


def repeated_text(pieces: list[str]) -> str | None:
    """The text that ``pieces`` repeat, one attempt after the other; ``None`` when they do not."""
    for length in range(1, len(pieces) // 2 + 1):
        attempt = pieces[:length]
        if len(pieces) % length == 0 and attempt * (len(pieces) // length) == pieces:
            text = "".join(attempt)
            return text if len(text) >= SHORTEST else None
    return None
