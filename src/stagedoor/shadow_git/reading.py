"""What git says of a working tree: what has changed in it, what it held, and how it stands. Nothing is written."""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Iterable, Sequence
from pathlib import Path

import msgspec

from ..secret_files import is_secret
from .repository import GitFailed, Repository
from .shadow import Shadow

MOST_STATUS = 4 * 1024 * 1024
LARGEST_NEW_FILE = 32 * 1024 * 1024
"""A new file above this is not read."""


class Entry(msgspec.Struct, frozen=True):
    """A path that differs. ``staged`` and ``unstaged`` are git's letters (``.`` for none); ``?`` is not tracked."""

    path: str
    staged: str
    unstaged: str
    old_path: str | None = None


class Entries(msgspec.Struct, frozen=True):
    """``cut``: there are more than are listed."""

    entries: tuple[Entry, ...]
    cut: bool = False


class Snapshot(msgspec.Struct, frozen=True):
    """The shadow's index now holds everything. ``left_out``: files that were too large, or that git cannot hold."""

    left_out: tuple[str, ...] = ()


def prefix_of(repository: Repository, folder: Path) -> str:
    """How paths below ``folder`` begin, as seen from the top: empty, or with a slash at its end."""
    inner = os.path.relpath(os.path.realpath(folder), repository.top)
    return "" if inner == "." else f"{inner}/"


def changed(shadow: Shadow, prefix: str = "", *, renames: bool = False, most: int = MOST_STATUS) -> Entries:
    """What differs from the last commit or is not tracked, below ``prefix``. Submodules are not looked into."""
    out = shadow.git(
        "status", "--porcelain=v2", "-z", "-uall", "--ignore-submodules=all",
        "--find-renames" if renames else "--no-renames", "--", prefix or ".", most=most,
    )  # fmt: skip
    cut = len(out) >= most
    lines = iter(os.fsdecode(out[: out.rfind(b"\0")] if out else b"").split("\0"))
    found: list[Entry] = []
    for line in lines:
        match line[:2]:
            case "1 ":
                _, state, *_, path = line.split(" ", 8)
                found.append(Entry(path, state[0], state[1]))
            case "2 ":
                _, state, *_, path = line.split(" ", 9)
                found.append(Entry(path, state[0], state[1], next(lines, "")))
            case "u ":
                found.append(Entry(line.split(" ", 10)[-1], "U", "U"))
            case "? ":
                found.append(Entry(line[2:], "?", "?"))
            case _:
                continue
    return Entries(tuple(found), cut)


def take_snapshot(shadow: Shadow, entries: Iterable[Entry], *, largest: int | None = LARGEST_NEW_FILE) -> Snapshot:
    """Put what has changed into the index that the shadow works on. ``git add`` would run git inside submodules."""
    names: list[bytes] = []
    left_out: list[str] = []
    for entry in entries:
        if entry.path.endswith("/"):  # a repository of its own
            continue
        if _can_be_held(shadow.repository.top / entry.path, None if entry.unstaged != "?" else largest):
            names.append(os.fsencode(entry.path))
        else:
            left_out.append(entry.path)
    if names:
        shadow.git("update-index", "--add", "--remove", "-z", "--stdin", content=b"\0".join(names) + b"\0")
    return Snapshot(tuple(left_out))


def contents(shadow: Shadow, commit: str, paths: Sequence[str], *, most: int) -> dict[str, bytes | None]:
    """What files held in ``commit``; ``None`` for those it does not have, or that are larger than ``most``."""
    found: dict[str, bytes | None] = dict.fromkeys(paths)
    names = [path for path in paths if "\n" not in path]
    if not commit or not names:
        return found
    asked_for = b"".join(os.fsencode(f"{commit}:{path}\n") for path in names)
    checked = shadow.git("cat-file", "--batch-check", content=asked_for).splitlines()
    wanted_ids: dict[str, bytes] = {}
    for path, line in zip(names, checked, strict=False):
        words = line.split(b" ")
        if len(words) == 3 and words[1] == b"blob" and words[2].isdigit() and int(words[2]) <= most:
            wanted_ids[path] = words[0]
    if not wanted_ids:
        return found
    out = shadow.git("cat-file", "--batch", content=b"".join(name + b"\n" for name in wanted_ids.values()))
    at = 0
    for path in wanted_ids:
        end = out.index(b"\n", at)
        words = out[at:end].split(b" ")
        if len(words) != 3:
            at = end + 1
            continue
        size = int(words[2])
        found[path] = out[end + 1 : end + 1 + size]
        at = end + 1 + size + 1
    return found


def changed_between(shadow: Shadow, before: str, after: str, prefix: str = "") -> list[str]:
    """The paths that two commits or trees differ in."""
    out = shadow.git(
        "diff-tree", "-r", "--name-only", "--no-renames", "--ignore-submodules=all", "-z", before, after, "--",
        prefix or ".",
    )  # fmt: skip
    return [os.fsdecode(name) for name in out.split(b"\0") if name]


def shortstat(shadow: Shadow, before: str, after: str) -> str:
    """git's sentence about how much two commits differ."""
    out = shadow.git(
        "diff-tree",
        "-r",
        "-M",
        "--shortstat",
        "--no-ext-diff",
        "--no-textconv",
        "--ignore-submodules=all",
        before,
        after,
    )
    return out.decode("utf-8", "replace")


def ahead_behind(shadow: Shadow, commit: str, other: str) -> tuple[int, int]:
    """How many commits each of the two has that the other has not."""
    if commit == other or not commit or not other:
        return 0, 0
    with contextlib.suppress(GitFailed, ValueError):
        mine, others = shadow.git("rev-list", "--left-right", "--count", f"{commit}...{other}", "--").split()
        return int(mine), int(others)
    return 0, 0


def _can_be_held(path: Path, largest: int | None) -> bool:
    """Whether git can take it: it is gone, a link, or a file that can be read and is none of our own."""
    try:
        mark = path.lstat()
    except OSError:
        return True
    if stat.S_ISLNK(mark.st_mode):
        return True
    if not stat.S_ISREG(mark.st_mode):
        # A folder where a file was: the file is gone. Anything else would stop git, or make it wait.
        return stat.S_ISDIR(mark.st_mode)
    if is_secret(mark):
        return False
    return (largest is None or mark.st_size <= largest) and os.access(path, os.R_OK)
