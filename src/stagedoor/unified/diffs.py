"""Unified diffs from a before and an after."""

from __future__ import annotations

import difflib
import re
from typing import Literal

from .events import FileChange

BIGGEST = 512 * 1024
"""Above this the lines are not compared: the change is reported, its diff says how large it is."""


def lines_of(text: str) -> list[str]:
    """The lines with their ends, as git and editors count them: only a line feed ends one. A carriage return, a form
    feed or U+2028 is a character of its line; a reader of the diff would take what follows for a line of its own."""
    return re.findall(r"[^\n]*\n|[^\n]+", text)


def diff_of(path: str, before: str | None, after: str | None) -> str:
    """A unified diff with ``a/`` and ``b/`` names; ``None`` is a file that does not exist."""
    if before == after:
        return ""
    if len(before or "") + len(after or "") > BIGGEST:
        sizes = f"{len(before or '')} → {len(after or '')} characters"
        return f"--- a/{path}\n+++ b/{path}\n@@ too large to compare: {sizes} @@\n"
    name = path.lstrip("/")
    lines = difflib.unified_diff(
        lines_of(before or ""),
        lines_of(after or ""),
        "/dev/null" if before is None else f"a/{name}",
        "/dev/null" if after is None else f"b/{name}",
    )
    return "".join(line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n" for line in lines)


def change_of(
    path: str, before: str | None, after: str | None, *, tool_use_id: str = "", diff: str | None = None
) -> FileChange:
    """One file's change as an event. The agent's own ``diff`` is kept where it gave one."""
    change: Literal["created", "modified", "deleted"]
    change = "created" if before is None else "deleted" if after is None else "modified"
    text = diff_of(path, before, after) if diff is None else diff
    return FileChange(path=path, change=change, diff=text, before=before, after=after, tool_use_id=tool_use_id)
