"""What a turn changed in its workspace, seen from outside: also what a shell command did and no tool tells.

In a git repository, git says what differs and what was there before. Elsewhere the files are looked at before and
after, within bounds; where the bounds are too small, nothing is claimed.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from msgspec.structs import replace

from .errors import NotSupported
from .secret_files import is_secret
from .shadow_git.checkpoints import Checkpoint, Checkpoints, UndoResult
from .shadow_git.reading import changed, changed_between, contents, prefix_of
from .shadow_git.repository import GitFailed, Repository, locate
from .shadow_git.shadow import Shadow
from .unified.diffs import change_of
from .unified.events import FileChange, FilesRestored, Notice
from .unified.options import SANDBOXES, Options

KEPT_OF_A_FILE = 512 * 1024
KEPT_IN_ALL = 32 * 2**20
MOST_FILES = 20_000
SECONDS = 1.0
MOST_NAMED = 200
"""Of the paths that an undo has restored."""
PASSED_OVER = frozenset({".git", ".hg", ".svn", "node_modules", "__pycache__", ".venv", "venv", ".tox", ".mypy_cache"})


class SessionCheckpoints:
    """Of a session without a server, where ``checkpoints=True`` asks for them. All verbs block."""

    def __init__(self, options: Options, session_id: str, home: Path) -> None:
        read_only = options.confine == "read-only" or (options.sandbox or SANDBOXES[options.tier]) == "readOnly"
        self.on = options.checkpoints and not read_only
        self._cwd = options.cwd
        self._session_id = session_id
        self._home = home

    def take(self, turn: int, at: int) -> Notice | None:
        """Before a turn. What is worth a word is returned; the turn begins whatever came of it."""
        if not self.on:
            return None
        try:
            made = self._store().take(self._session_id, turn, at=at)
        except (GitFailed, OSError) as fault:
            return no_checkpoint(turn, str(fault))
        return incomplete_checkpoint(made) if made.left_out and turn == 1 else None

    def listed(self) -> list[Checkpoint]:
        return self._store().of_session(self._session_id)

    def restore(self, turn: int | None, checkpoint: str, paths: Sequence[str], at: int) -> UndoResult:
        if not self.on:
            raise NotSupported("this session keeps no checkpoints: open it with checkpoints=True, and not read-only")
        return self._store().restore(self._session_id, turn=turn, checkpoint=checkpoint, paths=paths, at=at)

    def _store(self) -> Checkpoints:
        return Checkpoints(self._home, Path(self._cwd))


def no_checkpoint(turn: int, why: str) -> Notice:
    message = f"no checkpoint was made before turn {turn}, so it cannot be undone: {why}"
    return Notice(level="warning", code="no_checkpoint", message=message)


def incomplete_checkpoint(checkpoint: Checkpoint) -> Notice:
    many = "1 file is" if checkpoint.left_out == 1 else f"{checkpoint.left_out} files are"
    message = f"{many} not in the checkpoints of this session: {'; '.join(checkpoint.left_out_paths[:3])}"
    return Notice(level="info", code="checkpoint_incomplete", message=message)


def restored(result: UndoResult, *, who: str = "") -> FilesRestored:
    """How an undo is told."""
    return FilesRestored(
        before_turn=result.checkpoint.turn,
        checkpoint=result.checkpoint.id,
        redo=result.redo,
        files=len(result.paths),
        paths=list(result.paths[:MOST_NAMED]),
        not_restored=list(result.not_restored[:MOST_NAMED]),
        who=who,
    )


class WorkspaceChanges:
    """``begin`` before a turn, ``changes`` after it. Both block: call them in a thread."""

    def __init__(self, cwd: str) -> None:
        self._cwd = cwd
        self._before: _GitSnapshot | _FolderSnapshot | None = None
        self.failure = ""
        """Why the last ``changes`` could not tell what has changed."""

    def begin(self) -> bool:
        """Remember how things stand. False when the workspace is too large to be watched."""
        try:
            self._before = self._git_snapshot() or _FolderSnapshot.of(self._cwd)
        except OSError:
            self._before = None
        return self._before is not None

    def _git_snapshot(self) -> _GitSnapshot | None:
        try:
            return _GitSnapshot.of(self._cwd)
        except GitFailed:  # not installed, or not to be read: the files can be looked at without it
            return None

    def changes(self, reported: Iterable[FileChange] = ()) -> list[FileChange]:
        """What differs from ``begin`` and is not in ``reported`` already, by path."""
        self.failure = ""
        if self._before is None:
            return []
        reported_of = {change.path: change for change in reported}
        try:
            differing = sorted(self._before.differing())
            before_of = self._before.contents([path for path in differing if path not in reported_of])
        except (OSError, GitFailed) as fault:
            self.failure = str(fault)
            return []
        missed: list[FileChange] = []
        for path in differing:
            after = _text(Path(self._cwd) / path)
            if (last := reported_of.get(path)) is None:
                before = before_of[path]
            elif last.after is None and last.change != "deleted":
                continue  # a tool has reported it, and not what it holds
            else:
                before = last.after
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
            before = self._before.contents([change.path])[change.path] if earlier is None else earlier.after
        except (OSError, GitFailed):
            return change
        after = _text(Path(self._cwd) / change.path)
        if (before is None) != (change.change == "created") or (after is None) != (change.change == "deleted"):
            return change  # too large to be kept, or changed again meanwhile
        marks = change_of(change.path, before, after, tool_use_id=change.tool_use_id)
        return replace(marks, parent_tool_use_id=change.parent_tool_use_id)


class _GitSnapshot:
    def __init__(self, cwd: str, repository: Repository, commit: str, dirty: dict[str, str | None]) -> None:
        self._cwd = cwd
        self._repository = repository
        self._commit = commit
        self._dirty = dirty

    @classmethod
    def of(cls, cwd: str) -> _GitSnapshot | None:
        repository = locate(Path(cwd))
        if repository is None:
            return None
        with Shadow(repository) as shadow:
            paths = _changed_paths(shadow, cwd)
            dirty = {path: _text(Path(cwd) / path) for path in paths}
            return cls(cwd, repository, shadow.head.commit, dirty)

    def differing(self) -> set[str]:
        repository = locate(Path(self._cwd))
        if repository is None:
            raise GitFailed(f"{self._cwd} is no longer in a git repository")
        # Another may have been put in its place: what the first one held is still looked for where it was.
        with Shadow(repository, more_objects=(self._repository.objects,)) as shadow:
            paths = {*self._dirty, *_changed_paths(shadow, self._cwd)}
            if shadow.head.commit not in ("", self._commit):
                prefix = prefix_of(repository, Path(self._cwd))
                since = self._commit or repository.empty_tree
                names = changed_between(shadow, since, shadow.head.commit, prefix)
                paths.update(name.removeprefix(prefix) for name in names)
            return paths

    def contents(self, paths: list[str]) -> dict[str, str | None]:
        held = {path: self._dirty[path] for path in paths if path in self._dirty}
        others = [path for path in paths if path not in self._dirty and not path.startswith("/")]
        if not others or not self._commit:
            return {**dict.fromkeys(paths), **held}
        prefix = prefix_of(self._repository, Path(self._cwd))
        with Shadow(self._repository) as shadow:
            blobs = contents(shadow, self._commit, [f"{prefix}{path}" for path in others], most=KEPT_OF_A_FILE)
        texts = {
            name.removeprefix(prefix): None if blob is None else blob.decode("utf-8", "replace")
            for name, blob in blobs.items()
        }
        return {**dict.fromkeys(paths), **texts, **held}


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

    def contents(self, paths: list[str]) -> dict[str, str | None]:
        return {path: self._contents.get(path) for path in paths}


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


def _changed_paths(shadow: Shadow, cwd: str) -> list[str]:
    prefix = prefix_of(shadow.repository, Path(cwd))
    return [entry.path.removeprefix(prefix) for entry in changed(shadow, prefix).entries]


def _text(path: Path) -> str | None:
    """A file's text; ``None`` when there is no such file. What is too large stands for itself by its size."""
    try:
        if path.is_symlink():
            return str(path.readlink())  # as git does: what it leads to may be none of the workspace's business
        if not path.is_file():
            return None
        status = path.stat()
        if is_secret(status):
            return None
        if status.st_size > KEPT_OF_A_FILE:
            return f"({status.st_size} bytes)\n"
        if not status.st_size:
            return ""  # and not to be read: those of the kernel claim it, and some give nothing until something happens
        with path.open("rb") as file:
            if is_secret(os.fstat(file.fileno())):  # put in its place meanwhile
                return None
            return file.read(KEPT_OF_A_FILE + 1).decode("utf-8", "replace")
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
