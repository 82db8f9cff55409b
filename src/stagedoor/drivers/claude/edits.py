"""What an edit changed, from what Claude Code tells of it: the file before and after, or at least the change."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, cast

import msgspec

from ...unified.diffs import change_of, diff_of
from ...unified.events import FileChange


class _Hunk(msgspec.Struct, rename="camel"):
    old_start: int
    old_lines: int
    new_start: int
    new_lines: int
    lines: list[str]


EDITORS = frozenset({"Write", "Edit", "MultiEdit", "NotebookEdit"})


def change_in(tool: str, given: Mapping[str, Any], outcome: Any, said: str, tool_use_id: str) -> FileChange | None:
    """The change that a successful call of an editing tool made.

    ``outcome`` is the tool's own account, which a sub-agent's call lacks: then the call's input has to do, with what
    it ``said``. ``None`` when nothing changed.
    """
    account: Mapping[str, Any] = cast("Mapping[str, Any]", outcome) if isinstance(outcome, dict) else {}
    path = _text(account, "filePath", "notebook_path") or _text(given, "file_path", "notebook_path")
    if not path:
        return None
    if not account:
        return _from_input(tool, given, path, said, tool_use_id)
    before = _text(account, "originalFile", "originalFileContents", "original_file")
    after = _after(tool, given, account, before)
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


def _after(tool: str, given: Mapping[str, Any], account: Mapping[str, Any], before: str | None) -> str | None:
    match tool:
        case "Write":
            return _text(account, "content") or _text(given, "content") or ""
        case "Edit" | "MultiEdit":
            if before is None:
                # A file that did not exist: an edit of nothing is the whole file.
                made = _text(account, "newString")
                return made if not _text(account, "oldString") else None
            for old, new, everywhere in _replacements(given, account):
                before = before.replace(old, new) if everywhere else before.replace(old, new, 1)
            return before
        case _:
            return _text(account, "updated_file")


def _replacements(given: Mapping[str, Any], account: Mapping[str, Any]) -> list[tuple[str, str, bool]]:
    many: object = account.get("edits") or given.get("edits")
    edits: list[object] = cast("list[object]", many) if isinstance(many, list) else [{**given, **account}]
    found: list[tuple[str, str, bool]] = []
    for edit in edits:
        match edit:
            case {"oldString": str(old), "newString": str(new)} | {"old_string": str(old), "new_string": str(new)}:
                rest = cast("Mapping[str, Any]", edit)
                found.append((old, new, bool(rest.get("replaceAll") or rest.get("replace_all"))))
            case _:
                continue
    return found


def _from_input(tool: str, given: Mapping[str, Any], path: str, said: str, tool_use_id: str) -> FileChange:
    change: Literal["created", "modified"] = "created" if "created" in said[:60] else "modified"
    after = _text(given, "content") if tool == "Write" else None
    if change == "created" and after is not None:
        return change_of(path, None, after, tool_use_id=tool_use_id)
    pieces = [diff_of(path, old, new) for old, new, _ in _replacements(given, {})]
    return FileChange(path=path, change=change, diff="".join(pieces), after=after, tool_use_id=tool_use_id)


def _patch(path: str, hunks: object) -> str:
    """Claude Code's own hunks as a unified diff."""
    try:
        read = msgspec.convert(hunks, list[_Hunk])
    except msgspec.ValidationError:
        return ""
    if not read:
        return ""
    name = path.lstrip("/")
    lines = [f"--- a/{name}\n", f"+++ b/{name}\n"]
    for hunk in read:
        lines.append(f"@@ -{hunk.old_start},{hunk.old_lines} +{hunk.new_start},{hunk.new_lines} @@\n")
        lines += [f"{line}\n" for line in hunk.lines]
    return "".join(lines)


def _text(given: Mapping[str, Any], *names: str) -> str | None:
    return next((value for name in names if isinstance(value := given.get(name), str)), None)
