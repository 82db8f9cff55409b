"""What git says of a folder: where it stands, what has changed. Takes no lock and runs nothing of the repository's."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Literal, TypeAlias

import msgspec

from stagedoor.errors import BadRequest
from stagedoor.shadow_git import pushing
from stagedoor.shadow_git.reading import LARGEST_NEW_FILE, Entry, ahead_behind, changed, prefix_of, take_snapshot
from stagedoor.shadow_git.repository import GitFailed, Repository, checked_out, locate
from stagedoor.shadow_git.shadow import Shadow
from stagedoor.transports.programs import in_thread

from .files import OtherBranch

MOST_DIFF = 2 * 1024 * 1024
MOST_FILES = 2_000
MOST_BRANCHES = 500
MOST_SNAPSHOT_FILES = 20_000
MOST_KEPT = 256 * 1024 * 1024
"""What may have been changed before a session begins, so that it is told apart from what the session changes."""

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
    remote: str = ""
    """The address the branch would be pushed to."""
    push_problem: str = ""
    """Why nothing is pushed there; empty: it may be."""
    pull_request: str = ""
    """Where a pull request of the branch is opened, for forges that are known."""


class WorkspaceDiff(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A unified diff against ``base``, new files included."""

    base: str
    diff: str = ""
    files: int = 0
    insertions: int = 0
    deletions: int = 0
    cut: bool = False
    """``diff`` is too long and ends early (the numbers are of everything), or a new file is too large to be in it."""


async def standing(folder: Path, keep: Path | None = None) -> tuple[str, str]:
    """Branch and state of the folder now; empty where there is none.

    The state is the commit. Where something is not committed it is a tree of everything (a new file that is too large
    is not in it, as it is in no diff), whose objects are put into ``keep`` so that the repository stays as it is; too
    much of it, and it is the commit all the same.
    """
    try:
        return await in_thread(_standing, folder, keep)
    except (GitFailed, OSError):
        return "", ""


async def branches_of(folder: Path, allowed: Callable[[Path], bool]) -> tuple[str, tuple[OtherBranch, ...]]:
    """What is checked out in the folder, and the other branches of its repository: with the same folder of another
    working tree, where one has that branch and it is ``allowed``."""
    try:
        return await in_thread(_branches, folder, allowed)
    except (GitFailed, OSError):
        return "", ()


async def status(folder: Path, push_to: Sequence[str] = ()) -> GitStatus:
    """``push_to``: the addresses that may be pushed to."""
    try:
        return await in_thread(_status, folder, push_to)
    except (GitFailed, OSError) as fault:
        raise BadRequest(str(fault)) from fault


async def diff(
    folder: Path, base: str = "", *, path: str = "", keep: Path | None = None, most: int = MOST_DIFF
) -> WorkspaceDiff:
    """Everything that differs from ``base`` (empty: from the last commit), committed since or not, untracked too.

    ``keep``: where ``standing`` has put the objects of ``base``.
    """
    try:
        return await in_thread(_diff, folder, base, path, keep, most)
    except GitFailed as fault:
        raise BadRequest(f"{fault}; the session's first commit may no longer exist" if base else str(fault)) from fault
    except OSError as fault:
        raise BadRequest(str(fault)) from fault


async def git_folder(folder: Path) -> Path | None:
    """Where git keeps what belongs to this working tree."""
    try:
        repository = await asyncio.to_thread(locate, folder)
    except (GitFailed, OSError):
        return None
    return None if repository is None else repository.git_dir


def _branches(folder: Path, allowed: Callable[[Path], bool]) -> tuple[str, tuple[OtherBranch, ...]]:
    repository = locate(folder)
    if repository is None:
        return "", ()
    here, prefix = repository.head().branch, prefix_of(repository, folder)
    places = {branch: top / prefix for branch, top in checked_out(repository).items()}
    names = [name for name in repository.branches() if name != here and name.isprintable()]
    paths = ((name, places.get(name)) for name in names[:MOST_BRANCHES])
    return here, tuple(
        OtherBranch(name=name, path=str(path) if path is not None and path.is_dir() and allowed(path.resolve()) else "")
        for name, path in paths
    )


def _standing(folder: Path, keep: Path | None) -> tuple[str, str]:
    repository = locate(folder)
    if repository is None:
        return "", ""
    head = repository.head()
    if keep is None:
        return head.branch, head.commit
    # Where nothing was committed yet there is no commit to compare with, when the first one is made.
    commit = head.commit or repository.empty_tree
    try:
        return head.branch, _tree(repository, folder, keep) or commit
    except GitFailed:  # in the middle of a merge there is no tree
        return head.branch, commit


def _tree(repository: Repository, folder: Path, keep: Path) -> str:
    with Shadow(repository) as shadow:
        listed = changed(shadow, prefix_of(repository, folder))
        entries = [entry for entry in listed.entries if not entry.path.endswith("/")]
        size = _size(entries, repository.top)
        if not 0 < len(entries) <= MOST_SNAPSHOT_FILES or listed.cut or size > MOST_KEPT:
            return ""
        shadow.keep_objects(keep)
        take_snapshot(shadow, entries)
        return shadow.git("write-tree").decode().strip()


def _status(folder: Path, push_to: Sequence[str]) -> GitStatus:
    repository = locate(folder)
    if repository is None:
        return GitStatus()
    with Shadow(repository) as shadow:
        head = shadow.head
        prefix = prefix_of(repository, folder)
        listed = changed(shadow, prefix, renames=True)
        upstream, ref = repository.upstream(head.branch) if head.ref else ("", "")
        ahead, behind = ahead_behind(shadow, head.commit, repository.commit_of(ref) if ref else "")
    files = tuple(_changed(entry, prefix) for entry in listed.entries)
    remote, problem = "", ""
    if head.ref:
        with contextlib.suppress(GitFailed):
            remote = pushing.address_of(repository, "", head.branch)
        if remote and not pushing.is_allowed(remote, push_to):
            problem = not_pushed(remote)
    return GitStatus(
        repository=True,
        branch=head.branch,
        commit=head.commit,
        upstream=_printable(upstream),
        ahead=ahead,
        behind=behind,
        clean=not files,
        files=files[:MOST_FILES],
        cut=listed.cut or len(files) > MOST_FILES,
        remote=_printable(pushing.shown_address(remote)),
        push_problem=_printable(problem),
        pull_request=pushing.pull_request_link(remote, head.branch, allowed=not problem),
    )


def not_pushed(address: str) -> str:
    return (
        f"this server pushes nothing to {pushing.shown_address(address)}; add it (or how it begins, up to a slash) to "
        "workspaces.push in its configuration"
    )


def _diff(folder: Path, base: str, path: str, keep: Path | None, most: int) -> WorkspaceDiff:
    repository = locate(folder)
    if repository is None:
        raise GitFailed(f"{folder} is not in a git repository; git init there to see what changes")
    with Shadow(repository, more_objects=() if keep is None else (keep,)) as shadow:
        prefix = prefix_of(repository, folder)
        against = base or shadow.head.commit or repository.empty_tree
        where = f"{prefix}{path}" or "."
        listed = changed(shadow, where)
        snapshot = take_snapshot(shadow, listed.entries)
        words = [
            "diff-index", "--cached", "--no-ext-diff", "--no-textconv", "--no-color", "--ignore-submodules=all",
            "--find-renames", *([f"--relative={prefix}"] if prefix else []),
        ]  # fmt: skip
        numbers = os.fsdecode(shadow.git(*words, "--numstat", "-z", against, "--", where))
        shown = shadow.git(*words, "--patch", against, "--", where, most=most)
    files, insertions, deletions = _counted(numbers)
    text = shown.decode("utf-8", "replace")
    cut = len(shown) >= most
    if cut:
        text = text[: text.rfind("\n") + 1]
    return WorkspaceDiff(
        base=against,
        diff=text,
        files=files,
        insertions=insertions,
        deletions=deletions,
        cut=cut or listed.cut or bool(snapshot.left_out),
    )


def _size(entries: Sequence[Entry], top: Path) -> int:
    """Of what a snapshot of them holds."""
    total = 0
    for entry in entries:
        with contextlib.suppress(OSError):
            size = (top / entry.path).lstat().st_size
            total += 0 if entry.unstaged == "?" and size > LARGEST_NEW_FILE else size
    return total


def _changed(entry: Entry, prefix: str) -> ChangedFile:
    path = _printable(entry.path.removeprefix(prefix))
    if entry.staged == "?":
        return ChangedFile(path=path, change="untracked")
    if entry.staged == "U":
        return ChangedFile(path=path, change="conflicted")
    letter = entry.unstaged if entry.unstaged == "D" or entry.staged == "." else entry.staged
    return ChangedFile(
        path=path,
        change=_CHANGES.get(letter, "other"),
        staged=entry.staged != ".",
        old_path=None if entry.old_path is None else _printable(entry.old_path.removeprefix(prefix)),
    )


def _printable(path: str) -> str:
    """A name that is not UTF-8 can be shown, though not as it is."""
    return os.fsencode(path).decode("utf-8", "replace")


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
