"""What a tool's result means: what became of the call, which file it changed, and how it changed the to-do list."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Literal, TypeVar, cast

import msgspec

from ...agents.claude.blocks import ImageBlock, TextBlock, ToolResultBlock
from ...unified.diffs import change_of, diff_of
from ...unified.events import FileChange, Plan, PlanItem, ShownImage, ToolStatus
from ...unified.images import image_in, marks_of
from ...wire.shapes import decode_or_reason

# ------------------------------------------------------------------------- status, exit code and output of a call

EXIT_CODE = re.compile(r"Exit code (\d+)(?:\n|$)")
_WRAPPED = re.compile(r"\A<tool_use_error>(.*)</tool_use_error>\Z", re.DOTALL)
_DENIED = re.compile(
    r"Claude requested permissions? to |Permission to use .{0,80}(?:has been )?denied"
    r"|This command requires approval|Tool permission request failed: "
    r"|.{0,300} was blocked\. For security, Claude Code may only ",
    re.DOTALL,
)
"""How Claude Code words a refusal that no other line reports. A refusal of ours is recognized by its call.

"The user doesn't want to proceed" is not among them: a command that was interrupted gets the same words.
"""
_INTERRUPTED = "The user doesn't want to "
_WORDED = frozenset({"Bash", "Write", "Edit", "MultiEdit", "NotebookEdit"})
"""Tools that wrap their own failures: what fails without the wrapping never ran."""
_SILENT = "(Bash completed with no output)"


class _CommandReport(msgspec.Struct, gc=False, rename="camel"):
    """What a command's report adds to the block, which holds the output as well."""

    background_task_id: Any = None
    interrupted: Any = None
    return_code_interpretation: Any = None


class _ReportBlock(msgspec.Struct):
    text: str = ""


class _SubagentReport(msgspec.Struct):
    content: list[_ReportBlock]


class _DurationReport(msgspec.Struct, rename="camel"):
    total_duration_ms: Any = None


OBJECT = ord("{")
_COMMAND = msgspec.json.Decoder(_CommandReport)
_SUBAGENT = msgspec.json.Decoder(_SubagentReport)
_DURATION = msgspec.json.Decoder(_DurationReport)
_WHOLE: msgspec.json.Decoder[dict[str, Any]] = msgspec.json.Decoder(dict[str, Any])


Shape = TypeVar("Shape")


def _read(decoder: msgspec.json.Decoder[Shape], report: msgspec.Raw) -> Shape | None:
    """``None`` for a report that is not there, and for one that is a text: it says why there is none."""
    if memoryview(report)[0] != OBJECT:
        return None
    decoded = decode_or_reason(decoder, report)
    return None if isinstance(decoded, str) else decoded


class CallOutcome(msgspec.Struct, frozen=True, gc=False):
    status: ToolStatus
    output: str
    exit_code: int | None = None
    duration_ms: float | None = None


def images_of(result: ToolResultBlock) -> list[ShownImage]:
    if isinstance(result.content, str):
        return []
    return [image for block in result.blocks() if isinstance(block, ImageBlock) for image in shown_in(block)]


def shown_in(block: ImageBlock) -> list[ShownImage]:
    image = image_in({"type": "image", "source": block.source})
    return [] if image is None else [image]


def _words_of(result: ToolResultBlock) -> str:
    """Its text, with the images named in their places."""
    if isinstance(result.content, str):
        return result.content
    words: list[str] = []
    for block in result.blocks():
        match block:
            case TextBlock(text=text):
                words.append(text)
            case ImageBlock():
                words += marks_of(shown_in(block))
            case _:
                pass
    return "\n".join(words)


def outcome_of(
    tool: str,
    result: ToolResultBlock,
    report: msgspec.Raw,
    *,
    denied: bool,
    questioned: bool = False,
    recorded: bool = False,
) -> CallOutcome:
    """``report``: what the tool itself says of a success, ``"Error: …"`` of a failure, ``null`` in a sub-agent.

    It repeats the output, in another form for every tool: only what is needed of it is decoded.

    ``denied``: we know that it was refused. ``questioned``: there was a question whose answer we do not know (a
    recording), so a failure that no running tool words is the refusal. ``recorded``: this is a recording, in which
    there may have been a question that it does not show (a permission tool of an MCP server).
    """
    output = _words_of(result)
    failed = bool(result.is_error)
    if failed:
        wrapped = _WRAPPED.match(output)
        if wrapped is not None:
            output = wrapped[1]
        unworded = wrapped is None and not EXIT_CODE.match(output)
        unseen = recorded and tool in _WORDED and not output.startswith(_INTERRUPTED)
        if denied or _DENIED.match(output) or (unworded and (questioned or unseen)):
            return CallOutcome("denied", output)
    if tool == "Bash":
        return _command(output, report, failed=failed)
    if tool in ("Agent", "Task") and not failed:
        output = _answer(report) or output
    return CallOutcome("error" if failed else "success", output, duration_ms=_duration(report))


def _command(output: str, report: msgspec.Raw, *, failed: bool) -> CallOutcome:
    code = EXIT_CODE.match(output) if failed else None
    if code is not None:
        return CallOutcome("error", output[code.end() :], int(code[1]))
    if failed:
        return CallOutcome("error", output)
    account = _read(_COMMAND, report)
    if account is not None:
        if isinstance(account.background_task_id, str):
            return CallOutcome("success", output)  # it still runs
        if account.interrupted is True:
            return CallOutcome("error", output)
        if account.return_code_interpretation and isinstance(account.return_code_interpretation, str):
            return CallOutcome("success", output)  # not zero, but Claude Code knows that it is no failure
    return CallOutcome("success", "" if output == _SILENT else output, 0)


def _answer(report: msgspec.Raw) -> str:
    """What a sub-agent answered, without what Claude Code adds for the model."""
    match _read(_SUBAGENT, report):
        case _SubagentReport(content=content):
            return "\n".join(block.text for block in content if block.text)
        case _:
            return ""


def _duration(report: msgspec.Raw) -> float | None:
    match _read(_DURATION, report):
        case _DurationReport(total_duration_ms=int() | float() as duration):
            return float(duration)
        case _:
            return None


# --------------------------------------- what an edit changed: the file before and after, or at least the change

EDITORS = frozenset({"Write", "Edit", "MultiEdit", "NotebookEdit"})


class _PatchHunk(msgspec.Struct, rename="camel"):
    old_start: int
    old_lines: int
    new_start: int
    new_lines: int
    lines: list[str]


def change_in(
    tool: str, arguments: Mapping[str, Any], report: msgspec.Raw, output: str, tool_use_id: str
) -> FileChange | None:
    """The change that a successful call of an editing tool made. ``None`` when nothing changed.

    ``report`` is the tool's own account, which a sub-agent's call lacks: then the call's arguments have to do, with
    its ``output``.
    """
    account = _read(_WHOLE, report) or {}
    path = _text(account, "filePath", "notebook_path") or _text(arguments, "file_path", "notebook_path")
    if not path:
        return None
    if not account:
        return _from_arguments(tool, arguments, path, output, tool_use_id)
    before = _text(account, "originalFile", "originalFileContents", "original_file")
    after = _after(tool, arguments, account, before)
    if after is None:
        diff = _patch(path, account.get("structuredPatch"))
        return FileChange(path=path, change="modified", diff=diff, before=before, tool_use_id=tool_use_id)
    if before == after:
        return None
    created = tool == "Write" and account.get("type") == "create"
    if before is None and not created and tool == "Write":
        diff = _patch(path, account.get("structuredPatch"))
        return FileChange(path=path, change="modified", diff=diff, after=after, tool_use_id=tool_use_id)
    return change_of(path, None if created else before, after, tool_use_id=tool_use_id)


def _after(tool: str, arguments: Mapping[str, Any], account: Mapping[str, Any], before: str | None) -> str | None:
    match tool:
        case "Write":
            return _text(account, "content") or _text(arguments, "content") or ""
        case "Edit" | "MultiEdit":
            if before is None:
                # A file that did not exist: an edit of nothing is the whole file.
                content = _text(account, "newString")
                return content if not _text(account, "oldString") else None
            for old, new, everywhere in _replacements(arguments, account):
                before = before.replace(old, new) if everywhere else before.replace(old, new, 1)
            return before
        case _:
            return _text(account, "updated_file")


def _replacements(arguments: Mapping[str, Any], account: Mapping[str, Any]) -> list[tuple[str, str, bool]]:
    many: object = account.get("edits") or arguments.get("edits")
    edits: list[object] = cast("list[object]", many) if isinstance(many, list) else [{**arguments, **account}]
    replacements: list[tuple[str, str, bool]] = []
    for edit in edits:
        match edit:
            case {"oldString": str(old), "newString": str(new)} | {"old_string": str(old), "new_string": str(new)}:
                rest = cast("Mapping[str, Any]", edit)
                replacements.append((old, new, bool(rest.get("replaceAll") or rest.get("replace_all"))))
            case _:
                continue
    return replacements


def _from_arguments(tool: str, arguments: Mapping[str, Any], path: str, output: str, tool_use_id: str) -> FileChange:
    change: Literal["created", "modified"] = "created" if "created" in output[:60] else "modified"
    after = _text(arguments, "content") if tool == "Write" else None
    if change == "created" and after is not None:
        return change_of(path, None, after, tool_use_id=tool_use_id)
    pieces = [diff_of(path, old, new) for old, new, _ in _replacements(arguments, {})]
    return FileChange(path=path, change=change, diff="".join(pieces), after=after, tool_use_id=tool_use_id)


def _patch(path: str, hunks: object) -> str:
    """Claude Code's own hunks as a unified diff."""
    try:
        patch = msgspec.convert(hunks, list[_PatchHunk])
    except msgspec.ValidationError:
        return ""
    if not patch:
        return ""
    name = path.lstrip("/")
    lines = [f"--- a/{name}\n", f"+++ b/{name}\n"]
    for hunk in patch:
        lines.append(f"@@ -{hunk.old_start},{hunk.old_lines} +{hunk.new_start},{hunk.new_lines} @@\n")
        lines += [f"{line}\n" for line in hunk.lines]
    return "".join(lines)


def _text(members: Mapping[str, Any], *names: str) -> str | None:
    return next((value for name in names if isinstance(value := members.get(name), str)), None)


# ------------------------- the to-do list: reported in single steps (TaskCreate, TaskUpdate) or whole (TodoWrite)

Step = Literal["pending", "in_progress", "completed"]
_STEPS: dict[str, Step] = {"in_progress": "in_progress", "completed": "completed"}


class _TodoEntry(msgspec.Struct):
    content: str
    status: str = "pending"


class _TodoWriteInput(msgspec.Struct):
    todos: list[_TodoEntry]


class _TaskEntry(msgspec.Struct):
    id: str
    subject: str
    status: str = "pending"


class _TaskCreateReport(msgspec.Struct):
    task: _TaskEntry


class _TaskListReport(msgspec.Struct):
    tasks: list[_TaskEntry]


class _StatusChange(msgspec.Struct):
    to: str


class _TaskUpdateReport(msgspec.Struct, rename="camel"):
    success: bool = True
    status_change: _StatusChange | None = None


class _TaskUpdateInput(msgspec.Struct, rename="camel"):
    task_id: str
    subject: str | None = None
    status: str | None = None


class TodoPlan:
    def __init__(self) -> None:
        self._items: dict[str, PlanItem] = {}

    def after(self, tool: str, arguments: Mapping[str, Any], report: msgspec.Raw) -> Plan | None:
        """The plan after a call that succeeded; ``None`` when the call changed nothing, or we cannot read it."""
        before = dict(self._items)
        try:
            self._apply(tool, arguments, report)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return None
        return Plan(items=list(self._items.values())) if self._items != before else None

    def _apply(self, tool: str, arguments: Mapping[str, Any], report: msgspec.Raw) -> None:
        match tool:
            case "TodoWrite":
                todos = msgspec.convert(arguments, _TodoWriteInput).todos
                self._items = {str(at): PlanItem(todo.content, _step(todo.status)) for at, todo in enumerate(todos)}
            case "TaskCreate":
                task = msgspec.json.decode(report, type=_TaskCreateReport).task
                self._items[task.id] = PlanItem(task.subject)
            case "TaskUpdate":
                update = msgspec.json.decode(report, type=_TaskUpdateReport | None) or _TaskUpdateReport()
                self._update(msgspec.convert(arguments, _TaskUpdateInput), update)
            case "TaskList":
                tasks = msgspec.json.decode(report, type=_TaskListReport).tasks
                self._items = {task.id: PlanItem(task.subject, _step(task.status)) for task in tasks}
            case _:
                pass

    def _update(self, update: _TaskUpdateInput, report: _TaskUpdateReport) -> None:
        if not report.success:
            return
        status = report.status_change.to if report.status_change is not None else update.status
        if status == "deleted":
            self._items.pop(update.task_id, None)
            return
        item = self._items.get(update.task_id, PlanItem(f"Task {update.task_id}"))
        step = item.status if status is None else _step(status)
        self._items[update.task_id] = PlanItem(update.subject or item.text, step)


def _step(status: str) -> Step:
    return _STEPS.get(status, "pending")
