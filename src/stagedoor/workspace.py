"""What a turn changed in its workspace, seen from outside: also what a shell command did and no tool tells.

In a git repository, git says what differs and what was there before. Elsewhere the files are looked at before and
after, within bounds; where the bounds are too small, nothing is claimed.
"""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

from msgspec.structs import replace

from .unified.diffs import change_of
from .unified.events import FileChange
from .worktrees import LIST_SETTINGS, configured, without_filters

KEPT_OF_A_FILE = 512 * 1024
KEPT_IN_ALL = 32 * 2**20
MOST_FILES = 20_000
SECONDS = 1.0
PASSED_OVER = frozenset({".git", ".hg", ".svn", "node_modules", "__pycache__", ".venv", "venv", ".tox", ".mypy_cache"})


class WorkspaceChanges:
    """``begin`` before a turn, ``changes`` after it. Both block: call them in a thread."""

    def __init__(self, cwd: str) -> None:
        self._cwd = cwd
        self._before: _GitSnapshot | _FolderSnapshot | None = None

    def begin(self) -> bool:
        """Remember how things stand. False when the workspace is too large to be watched."""
        try:
            self._before = _GitSnapshot.of(self._cwd) or _FolderSnapshot.of(self._cwd)
        except (OSError, subprocess.SubprocessError):
            self._before = None
        return self._before is not None

    def changes(self, reported: Iterable[FileChange] = ()) -> list[FileChange]:
        """What differs from ``begin`` and is not in ``reported`` already, by path."""
        if self._before is None:
            return []
        reported_after = {change.path: change.after for change in reported}
        try:
            differing = sorted(self._before.differing())
        except (OSError, subprocess.SubprocessError):
            return []
        missed: list[FileChange] = []
        for path in differing:
            after = _text(Path(self._cwd) / path)
            if path in reported_after:
                before = reported_after[path]
                if before is None or before == after:
                    continue  # a tool has reported it
            else:
                before = self._before.content(path)
            if before != after:
                missed.append(change_of(path, before, after))
        return missed

    def detailed(self, change: FileChange, earlier: FileChange | None = None) -> FileChange:
        """``change`` with what the file held before and holds now, where its agent only told the name.

        ``earlier`` is what was told of the same file in this turn.
        """
        if self._before is None or change.diff or change.before is not None or change.after is not None:
            return change
        try:
            before = self._before.content(change.path) if earlier is None else earlier.after
        except (OSError, subprocess.SubprocessError):
            return change
        after = _text(Path(self._cwd) / change.path)
        if (before is None) != (change.change == "created") or (after is None) != (change.change == "deleted"):
            return change  # too large to be kept, or changed again meanwhile
        marks = change_of(change.path, before, after, tool_use_id=change.tool_use_id)
        return replace(marks, parent_tool_use_id=change.parent_tool_use_id)


class _GitSnapshot:
    def __init__(self, cwd: str, head: str, dirty: dict[str, str | None]) -> None:
        self._cwd = cwd
        self._head = head
        self._dirty = dirty

    @classmethod
    def of(cls, cwd: str) -> _GitSnapshot | None:
        if _git(cwd, "rev-parse", "--is-inside-work-tree") != b"true\n":
            return None
        head = _git(cwd, "rev-parse", "--verify", "-q", "HEAD")
        dirty = {path: _text(Path(cwd) / path) for path in _status(cwd)}
        return cls(cwd, head.decode().strip() if head else "", dirty)

    def differing(self) -> set[str]:
        paths = {*self._dirty, *_status(self._cwd)}
        head = (_git(self._cwd, "rev-parse", "--verify", "-q", "HEAD") or b"").decode().strip()
        if head != self._head and head:
            since = self._head or "4b825dc642cb6eb9a060e54bf8d69288fbee4904"  # git's name for the empty tree
            named = _git(self._cwd, "diff", "--name-only", "--no-renames", "--relative", "-z", since, head) or b""
            paths.update(os.fsdecode(name) for name in named.split(b"\0") if name)
        return paths

    def content(self, path: str) -> str | None:
        if path in self._dirty:
            return self._dirty[path]
        shown = _git(self._cwd, "show", f"{self._head}:./{path}") if self._head else None
        return None if shown is None or len(shown) > KEPT_OF_A_FILE else shown.decode("utf-8", "replace")


class _FolderSnapshot:
    def __init__(self, cwd: str, marks: dict[str, tuple[int, int]], contents: dict[str, str | None]) -> None:
        self._cwd = cwd
        self._marks = marks
        self._contents = contents

    @classmethod
    def of(cls, cwd: str) -> _FolderSnapshot | None:
        marks: dict[str, tuple[int, int]] = {}
        contents: dict[str, str | None] = {}
        kept, deadline = 0, time.monotonic() + SECONDS
        for path, mark in _walk(cwd):
            marks[path] = mark
            if len(marks) > MOST_FILES or time.monotonic() > deadline:
                return None
            if mark[1] <= KEPT_OF_A_FILE and kept + mark[1] <= KEPT_IN_ALL:
                contents[path] = _text(Path(cwd) / path)
                kept += mark[1]
        return cls(cwd, marks, contents)

    def differing(self) -> set[str]:
        now = dict(_walk(self._cwd))
        return {path for path in {*self._marks, *now} if self._marks.get(path) != now.get(path)}

    def content(self, path: str) -> str | None:
        return self._contents.get(path)


def _walk(cwd: str) -> Iterator[tuple[str, tuple[int, int]]]:
    for folder, folders, names in os.walk(cwd):
        if ".gitignore" in names and folder != cwd and _ignores_itself(Path(folder)):
            folders[:] = []
            continue
        folders[:] = [name for name in folders if name not in PASSED_OVER]
        for name in names:
            path = Path(folder) / name
            try:
                stat = path.lstat()
            except OSError:
                continue
            yield str(path.relative_to(cwd)), (stat.st_mtime_ns, stat.st_size)


def _ignores_itself(folder: Path) -> bool:
    """Nothing in it is work: caches and environments say so, and Stagedoor's own folder, which holds secrets."""
    try:
        return (folder / ".gitignore").read_bytes()[:3].strip() == b"*"
    except OSError:
        return False


def _status(cwd: str) -> list[str]:
    off = without_filters(os.fsdecode(_git(cwd, *LIST_SETTINGS) or b""))
    env = {**os.environ, **configured(off)} if off else None
    listed = _git(cwd, "status", "--porcelain=v1", "-z", "-uall", "--no-renames", "--", ".", env=env) or b""
    prefix = (_git(cwd, "rev-parse", "--show-prefix") or b"").decode().strip()
    paths = [os.fsdecode(entry[3:]) for entry in listed.split(b"\0") if len(entry) > 3]
    return [path.removeprefix(prefix) for path in paths if path.startswith(prefix)]


def _git(cwd: str, *words: str, env: dict[str, str] | None = None) -> bytes | None:
    """git's answer, or ``None`` when it has none. Takes no lock: the agent may be using git itself."""
    try:
        done = subprocess.run(
            ["git", "--no-optional-locks", "-c", "core.quotepath=off", "-c", "core.fsmonitor=false", *words],
            cwd=cwd,
            env=env,
            capture_output=True,
            check=False,
        )
    except FileNotFoundError:
        return None
    return done.stdout if done.returncode == 0 else None


def _text(path: Path) -> str | None:
    """A file's text; ``None`` when there is no such file. What is too large stands for itself by its size."""
    try:
        if path.is_symlink():
            return str(path.readlink())  # as git does: what it leads to may be none of the workspace's business
        if not path.is_file():
            return None
        size = path.stat().st_size
        if size > KEPT_OF_A_FILE:
            return f"({size} bytes)\n"
        if not size:
            return ""  # and not to be read: those of the kernel claim it, and some give nothing until something happens
        return path.read_bytes().decode("utf-8", "replace")
    except OSError:
        return None


def inside(change: FileChange, cwd: str) -> FileChange:
    """Paths below the working directory are told from there."""
    prefix = cwd.rstrip("/") + "/"
    if not change.path.startswith(prefix):
        return change
    near = change.path.removeprefix(prefix)
    diff = change.diff.replace(f"--- a{prefix}", "--- a/", 1).replace(f"+++ b{prefix}", "+++ b/", 1)
    return replace(change, path=near, diff=diff)
