"""What a patch does to files: the app-server tells whole contents and hunks, ``exec`` only the paths."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Literal

from ...agents.codex.items import FileChange as ExecFileChange
from ...agents.codex.thread_items import FileUpdateChange
from ...unified.diffs import change_of
from ...unified.events import FileChange, ToolName, ToolUse

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
    shown: list[dict[str, Any]] = [
        {
            "path": change.path,
            "kind": change.kind.type,
            **({"movePath": change.kind.move_path} if change.kind.move_path else {}),
            "diff": diff_of_change(change),
        }
        for change in changes
    ]
    return _use(tool_use_id, paths, shown, description, is_new=all(change.kind.type == "add" for change in changes))


def told_use(tool_use_id: str, item: ExecFileChange) -> ToolUse:
    """The same from ``exec``, which knows no diff."""
    paths = [change.path for change in item.changes] or [item.path]
    shown = [{"path": change.path, "kind": change.kind} for change in item.changes]
    new = bool(item.changes) and all(change.kind == "add" for change in item.changes)
    return _use(tool_use_id, [path for path in paths if path], shown, "", is_new=new)


def _use(tool_use_id: str, paths: list[str], shown: list[dict[str, Any]], description: str, *, is_new: bool) -> ToolUse:
    name: ToolName = "write_file" if is_new and paths else "edit_file"
    given: dict[str, Any] = {"paths": paths, "changes": shown}
    return ToolUse(
        tool_use_id=tool_use_id,
        name=name,
        native_name="apply_patch",
        input=given,
        operation="write",
        target=", ".join(paths),
        description=description,
    )


def changes_of(changes: Sequence[FileUpdateChange], tool_use_id: str) -> list[FileChange]:
    return [_change(change, tool_use_id) for change in changes]


def told_changes(item: ExecFileChange, tool_use_id: str) -> list[FileChange]:
    """What ``exec`` tells; today's has no diff, an older one had everything."""
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
