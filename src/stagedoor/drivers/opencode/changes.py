"""What an edit did to files, from what OpenCode tells of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, cast

from ...unified.diffs import diff_of
from ...unified.events import Event, FileChange, Plan, PlanItem

_CHANGES: dict[str, Literal["created", "modified", "deleted", "moved"]] = {
    "add": "created",
    "update": "modified",
    "delete": "deleted",
    "move": "moved",
}
_STATUSES: dict[str, Literal["in_progress", "completed"]] = {"in_progress": "in_progress", "completed": "completed"}


def plain_diff(patch: str, path: str, *, is_new: bool = False, is_gone: bool = False) -> str:
    """OpenCode's diff with the names that everybody else's have."""
    start = patch.find("@@")
    if start < 0:
        return ""
    name = path.lstrip("/")
    old, new = "/dev/null" if is_new else f"a/{name}", "/dev/null" if is_gone else f"b/{name}"
    return f"--- {old}\n+++ {new}\n{patch[start:]}"


def changes_of(
    tool: str, given: Mapping[str, Any], metadata: Mapping[str, Any], tool_use_id: str, asked: str = ""
) -> list[Event]:
    """The files a finished call has changed. ``asked`` is the diff of the question about it, where one was asked."""
    match tool, metadata:
        case "write", {"filepath": str(path), "exists": bool(existed)}:
            if existed and asked and "@@" not in asked:
                return []  # it has the same words as before
            return [_written(path, given.get("content"), tool_use_id, asked, existed=existed)]
        case _, {"files": list()}:
            files = cast("list[object]", metadata["files"])
            listed = [cast("dict[str, Any]", one) for one in files if isinstance(one, dict)]
            return [change for one in listed for change in _patched(one, tool_use_id)]
        case _, {"filediff": {"file": str(path), "patch": str(patch)}} if patch:
            is_new = given.get("oldString") == "" and "@@ -0,0 " in patch
            diff = plain_diff(patch, path, is_new=is_new)
            change: Literal["created", "modified"] = "created" if is_new else "modified"
            return [FileChange(path=path, change=change, diff=diff, tool_use_id=tool_use_id)]
        case _:
            return []


def _written(path: str, content: object, tool_use_id: str, asked: str, *, existed: bool) -> FileChange:
    after = content if isinstance(content, str) else None
    diff = plain_diff(asked, path, is_new=not existed) or ("" if existed else diff_of(path, None, after))
    if existed and not diff:
        after = None  # nobody said what was there: a reader of the workspace can tell both
    return FileChange(
        path=path, change="modified" if existed else "created", diff=diff, after=after, tool_use_id=tool_use_id
    )


def _patched(one: Mapping[str, Any], tool_use_id: str) -> list[Event]:
    match one:
        case {"filePath": str(path), "type": str(kind)}:
            change = _CHANGES.get(kind, "modified")
        case _:
            return []
    moved, patch = one.get("movePath"), one.get("patch") or one.get("diff")
    after = moved if change == "moved" and isinstance(moved, str) else path
    diff = patch if isinstance(patch, str) else ""
    return [
        FileChange(
            path=after,
            change=change,
            diff=plain_diff(diff, after, is_new=change == "created", is_gone=change == "deleted"),
            tool_use_id=tool_use_id,
        )
    ]


def plan_of(given: Mapping[str, Any]) -> list[Event]:
    """``todowrite`` gives the whole list each time."""
    todos: object = given.get("todos")
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
