"""What git says of a folder: where it stands, what has changed. Takes no lock and runs nothing of the repository's."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import tempfile
from pathlib import Path
from typing import Literal, TypeAlias

import msgspec

from stagedoor.errors import BadRequest
from stagedoor.worktrees import LIST_SETTINGS, GitFailed, configured, git, without_filters

MOST_DIFF = 2 * 1024 * 1024
MOST_STATUS = 4 * 1024 * 1024
MOST_FILES = 2_000
MOST_KEPT = 32 * 1024 * 1024
EMPTY = "4b825dc642cb6eb9a060e54bf8d69288fbee4904"
"""git's name for a tree without files."""
# An agent may have written the repository's settings: none of them gets to run a program here.
_CONFIG = {"core.quotepath": "off", "core.fsmonitor": "false", "core.hooksPath": "/dev/null"}
_SAFE = {"GIT_OPTIONAL_LOCKS": "0", "GIT_LITERAL_PATHSPECS": "1"}

GitChange: TypeAlias = Literal["added", "modified", "deleted", "renamed", "untracked", "conflicted", "other"]
_CHANGES: dict[str, GitChange] = {
    "A": "added",
    "M": "modified",
    "D": "deleted",
    "R": "renamed",
    "C": "added",
    "T": "other",
}


class ChangedFile(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """``staged``: (part of) the change is in the index. ``old_path``: what it was called before."""

    path: str
    change: GitChange
    staged: bool = False
    old_path: str | None = None


class GitStatus(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """``repository`` false: the folder is in none, and the rest says nothing. Paths are as seen from the folder."""

    repository: bool = False
    branch: str = ""
    """Empty where no branch is checked out."""
    commit: str = ""
    upstream: str = ""
    ahead: int = 0
    behind: int = 0
    clean: bool = True
    files: tuple[ChangedFile, ...] = ()
    cut: bool = False
    """There are more files than are told."""


class WorkspaceDiff(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A unified diff against ``base``, new files included."""

    base: str
    diff: str = ""
    files: int = 0
    insertions: int = 0
    deletions: int = 0
    cut: bool = False
    """``diff`` is too long and ends early; the numbers are of everything."""


async def standing(folder: Path, keep: Path | None = None) -> tuple[str, str]:
    """Branch and state of the folder now; empty where there is none.

    The state is the commit. Where something is not committed it is a tree of everything, whose objects are put into
    ``keep`` so that the repository stays as it is; too much of it, and it is the commit all the same.
    """
    try:
        commit = await _git(folder, "rev-parse", "--verify", "--quiet", "HEAD")
        branch = await _git(folder, "branch", "--show-current")
        if keep is None or not await _is_worth_keeping(folder):
            return branch, commit
        return branch, await _tree(folder, keep) or commit
    except (GitFailed, BadRequest):
        return "", ""


async def status(folder: Path) -> GitStatus:
    try:
        prefix = await _git(folder, "rev-parse", "--show-prefix")
        output = await _git(
            folder, "status", "--porcelain=v2", "--branch", "-z", "--untracked-files=all", "--", ".", most=MOST_STATUS
        )
    except GitFailed as fault:
        if "not a git repository" in str(fault):
            return GitStatus()
        raise BadRequest(str(fault)) from fault
    return _status(output, prefix, cut=len(output.encode()) >= MOST_STATUS)


async def diff(
    folder: Path, base: str = "", *, path: str = "", keep: Path | None = None, most: int = MOST_DIFF
) -> WorkspaceDiff:
    """Everything that differs from ``base`` (empty: from the last commit), committed since or not, untracked too.

    ``keep``: where ``standing`` has put the objects of ``base``.
    """
    with tempfile.TemporaryDirectory(prefix="stagedoor-diff-") as scratch:
        index = Path(scratch) / "index"
        try:
            real = Path(await _git(folder, "rev-parse", "--path-format=absolute", "--git-path", "index"))
            await asyncio.to_thread(_copied, real, index)
            against = base or await _head(folder)
            await asyncio.to_thread((Path(scratch) / "objects").mkdir)
            own = await _git(folder, "rev-parse", "--path-format=absolute", "--git-path", "objects")
            env = _aside(index, Path(scratch) / "objects", own, *([] if keep is None else [str(keep)]))
            # In a copy of the index new files are announced, so that git tells of them as of all others.
            await _git(folder, "add", "--intent-to-add", "--", ".", env=env)
            where = ["--", path or "."]
            how = ["diff", "--no-ext-diff", "--no-textconv", "--no-color", "--relative", "--find-renames", against]
            numbers = await _git(folder, *how, "--numstat", "-z", *where, env=env)
            text = await _git(folder, *how, *where, env=env, most=most)
        except GitFailed as fault:
            if "not a git repository" in str(fault):
                raise BadRequest(f"{folder} is not in a git repository; git init there to see what changes") from fault
            raise BadRequest(f"{fault}; the session's first commit may no longer exist") from fault
    files, insertions, deletions = _counted(numbers)
    cut = len(text.encode("utf-8", "replace")) >= most
    if cut:
        text = text[: text.rfind("\n") + 1]
    elif text:
        text += "\n"
    return WorkspaceDiff(base=against, diff=text, files=files, insertions=insertions, deletions=deletions, cut=cut)


async def git_folder(folder: Path) -> Path | None:
    """Where git keeps what belongs to this working tree."""
    try:
        return Path(await _git(folder, "rev-parse", "--absolute-git-dir"))
    except GitFailed:
        return None


async def _is_worth_keeping(folder: Path) -> bool:
    listed = await _git(folder, "status", "--porcelain", "-z", "--untracked-files=all", "--", ".", most=MOST_STATUS)
    prefix = await _git(folder, "rev-parse", "--show-prefix")
    paths = [folder / entry[3:].removeprefix(prefix) for entry in listed.split("\0") if entry[2:3] == " "]
    return 0 < len(paths) <= MOST_FILES and await asyncio.to_thread(_size, paths) <= MOST_KEPT


async def _tree(folder: Path, keep: Path) -> str:
    with tempfile.TemporaryDirectory(prefix="stagedoor-tree-") as scratch:
        index = Path(scratch) / "index"
        where = ("rev-parse", "--path-format=absolute", "--git-path")
        await asyncio.to_thread(_copied, Path(await _git(folder, *where, "index")), index)
        await asyncio.to_thread(keep.mkdir, parents=True, exist_ok=True)
        env = _aside(index, keep, await _git(folder, *where, "objects"))
        try:
            await _git(folder, "add", "--all", "--", ".", env=env)
            return await _git(folder, "write-tree", env=env)
        except GitFailed:  # in the middle of a merge there is no tree
            return ""


def _aside(index: Path, objects: Path, *object_folders: str) -> dict[str, str]:
    """git writes to these instead of to the repository, and still finds what is in ``object_folders``."""
    quoted = (one.replace("\\", "\\\\").replace('"', '\\"') for one in object_folders)
    return {
        "GIT_INDEX_FILE": str(index),
        "GIT_OBJECT_DIRECTORY": str(objects),
        "GIT_ALTERNATE_OBJECT_DIRECTORIES": ":".join(f'"{one}"' for one in quoted),
    }


def _size(paths: list[Path]) -> int:
    total = 0
    for path in paths:
        with contextlib.suppress(OSError):
            total += path.lstat().st_size
    return total


async def _head(folder: Path) -> str:
    try:
        return await _git(folder, "rev-parse", "--verify", "--quiet", "HEAD")
    except GitFailed:
        return EMPTY


async def _git(folder: Path, *words: str, env: dict[str, str] | None = None, most: int | None = None) -> str:
    try:
        safe = {**_SAFE, **configured(_CONFIG)}
        if words[0] in ("add", "diff", "status"):
            safe |= configured(_CONFIG | without_filters(await git(folder, *LIST_SETTINGS, env=safe)))
        return await git(folder, *words, env={**safe, **(env or {})}, most=most)
    except (FileNotFoundError, NotADirectoryError) as fault:
        raise BadRequest(f"{folder} no longer exists") from fault


def _copied(source: Path, to: Path) -> None:
    if source.exists():
        shutil.copyfile(source, to)


def _status(output: str, prefix: str, *, cut: bool) -> GitStatus:
    head: dict[str, str] = {}
    files: list[ChangedFile] = []
    entries = iter(output.split("\0"))
    for entry in entries:
        match entry[:2]:
            case "# ":
                name, _, value = entry[2:].partition(" ")
                head[name] = value
            case "1 ":
                _, state, *_, path = entry.split(" ", 8)
                files.append(_changed(state, path, prefix))
            case "2 ":
                _, state, *_, path = entry.split(" ", 9)
                files.append(_changed(state, path, prefix, old=next(entries, "")))
            case "u ":
                path = entry.split(" ", 10)[-1]
                files.append(ChangedFile(path=path.removeprefix(prefix), change="conflicted"))
            case "? ":
                files.append(ChangedFile(path=entry[2:].removeprefix(prefix), change="untracked"))
            case _:
                continue
    ahead, _, behind = head.get("branch.ab", "+0 -0").partition(" ")
    branch, commit = head.get("branch.head", ""), head.get("branch.oid", "")
    return GitStatus(
        repository=True,
        branch="" if branch == "(detached)" else branch,
        commit="" if commit == "(initial)" else commit,
        upstream=head.get("branch.upstream", ""),
        ahead=abs(int(ahead)),
        behind=abs(int(behind)),
        clean=not files,
        files=tuple(files[:MOST_FILES]),
        cut=cut or len(files) > MOST_FILES,
    )


def _changed(state: str, path: str, prefix: str, *, old: str | None = None) -> ChangedFile:
    staged, unstaged = state[0], state[1]
    letter = unstaged if unstaged == "D" or staged == "." else staged
    return ChangedFile(
        path=path.removeprefix(prefix),
        change=_CHANGES.get(letter, "other"),
        staged=staged != ".",
        old_path=None if old is None else old.removeprefix(prefix),
    )


def _counted(numbers: str) -> tuple[int, int, int]:
    files = insertions = deletions = 0
    for entry in numbers.split("\0"):
        added, tab, rest = entry.partition("\t")
        if not tab:
            continue  # the names of a renamed file stand apart
        removed = rest.partition("\t")[0]
        files += 1
        insertions += int(added) if added.isdigit() else 0
        deletions += int(removed) if removed.isdigit() else 0
    return files, insertions, deletions
