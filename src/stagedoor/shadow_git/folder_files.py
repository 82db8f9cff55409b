"""The files of a folder as they stand, and how they are put back: never through a link, never outside the folder.

Whatever lies in the folder was written by somebody else, perhaps while we look. So it is only walked with ``lstat``,
and written with every step of the way opened by itself (``O_NOFOLLOW``): a link put in the place of a folder stops us.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import stat
import time
from collections.abc import Callable, Collection, Generator
from pathlib import Path
from typing import Literal, TypeVar

import msgspec

from ..machine.beneath import regular_file
from ..secret_files import is_secret, secret_identities
from .repository import GitFailed, locate
from .shadow import Shadow

Kind = Literal["file", "link", "folder"]
Value = TypeVar("Value")
PASSED_OVER = frozenset({"node_modules", "__pycache__", ".hg", ".svn", ".venv", "venv", ".tox", ".mypy_cache"})
"""Where no repository says what is ignored."""
MOST_NESTED = 32
"""Repositories in the folder whose own rules of what is ignored are asked for."""


class FolderEntry(msgspec.Struct, frozen=True):
    """``mode``: its permission bits. ``content`` is git's name for what a file holds, or a link leads to."""

    kind: Kind
    mode: int
    size: int = 0
    content: str = ""


class FolderListing(msgspec.Struct, frozen=True):
    """Paths are as seen from the folder. ``left_out`` says why; what git ignores is in ``ignored``, folders whole."""

    entries: dict[str, FolderEntry]
    left_out: dict[str, str]
    ignored: frozenset[str]


class FolderTooLarge(GitFailed):
    """It holds more than can be looked at before a turn."""


def list_folder(
    root: Path,
    *,
    apart: Collection[Path] = (),
    also: Collection[str] = (),
    largest: int,
    most: int,
    deadline: float,
) -> FolderListing:
    """Everything in ``root`` but git's own folders, what is ignored and what lies in ``apart``.

    ``also``: paths that count though they are ignored now. Files above ``largest`` bytes, devices and the like, and
    what cannot be read are left out. Raises ``FolderTooLarge`` above ``most`` entries, or after ``deadline``.
    """
    entries: dict[str, FolderEntry] = {}
    left_out: dict[str, str] = {}
    ignored: set[str] = set()
    in_repository, unseen = _ignored(root)
    nested = 0
    place = str(root).rstrip("/")
    elsewhere = frozenset(map(str, apart))
    identities: dict[str, tuple[int, int]] = {}
    waiting = [""]
    while waiting:
        inner = waiting.pop()
        try:
            with os.scandir(f"{place}/{inner}") as scanned:
                listed = list(scanned)
        except OSError as fault:
            left_out[inner.rstrip("/")] = f"cannot be listed ({fault.strerror})"
            continue
        names = {entry.name for entry in listed}
        if inner and ".git" in names and nested < MOST_NESTED:
            nested += 1
            unseen = unseen | {f"{inner}{path}" for path in _ignored(root / inner, nested=True)[1]}
        alone = not in_repository and ".gitignore" in names and inner and _ignores_itself(root / inner)
        for entry in listed:
            path = f"{inner}{entry.name}"
            if entry.name.lower() == ".git":
                continue
            passed_over = alone or (not in_repository and entry.name in PASSED_OVER)
            if path in unseen or passed_over or f"{place}/{path}" in elsewhere:
                ignored.add(path)
                continue
            mark = entry.stat(follow_symlinks=False)
            identities[path] = (mark.st_dev, mark.st_ino)
            _enter(path, mark, place, entries, left_out, largest)
            if stat.S_ISDIR(mark.st_mode):
                waiting.append(f"{path}/")
        if len(entries) + len(left_out) + len(ignored) > most:
            raise FolderTooLarge(f"it holds more than {most:,} files")
        if time.monotonic() > deadline:
            raise FolderTooLarge("looking at its files takes too long")
    for path in sorted(also):
        if path not in entries and path not in left_out and _is_plain_way(root, path):
            with contextlib.suppress(OSError):
                mark = (root / path).lstat()
                identities[path] = (mark.st_dev, mark.st_ino)
                _enter(path, mark, place, entries, left_out, largest)
                ignored.discard(path)
    ours = secret_identities()  # last: one of them may have come while we looked
    for path, identity in identities.items() if ours else ():
        if identity in ours and entries.pop(path, None) is not None:
            left_out[path] = "is one of Stagedoor's own files"
    return FolderListing(entries, left_out, frozenset(ignored))


def _enter(
    path: str,
    mark: os.stat_result,
    root: str,
    entries: dict[str, FolderEntry],
    left_out: dict[str, str],
    largest: int,
) -> None:
    mode = stat.S_IMODE(mark.st_mode)
    if stat.S_ISDIR(mark.st_mode):
        entries[path] = FolderEntry("folder", mode)
    elif stat.S_ISLNK(mark.st_mode):
        entries[path] = FolderEntry("link", 0, mark.st_size)
    elif not stat.S_ISREG(mark.st_mode):
        left_out[path] = "is not a file"
    elif mark.st_size > largest:
        left_out[path] = f"is too large ({mark.st_size:,} bytes)"
    elif not os.access(f"{root}/{path}", os.R_OK):
        left_out[path] = "cannot be read"
    else:
        entries[path] = FolderEntry("file", mode, mark.st_size)


def _ignored(folder: Path, *, nested: bool = False) -> tuple[bool, set[str]]:
    """Whether a repository says what is ignored here, and what that is. One that cannot be read says nothing."""
    try:
        repository = locate(folder)
        if repository is None or (nested and repository.top != Path(os.path.realpath(folder))):
            return False, set()
        prefix = os.path.relpath(os.path.realpath(folder), repository.top)
        prefix = "" if prefix == "." else f"{prefix}/"
        with Shadow(repository) as shadow:
            out = shadow.git(
                "ls-files", "-z", "--others", "--ignored", "--exclude-standard", "--directory", "--", prefix or "."
            )
    except (GitFailed, OSError):
        return False, set()
    names = (os.fsdecode(name) for name in out.split(b"\0") if name)
    return True, {name.removeprefix(prefix).rstrip("/") for name in names}


def _ignores_itself(folder: Path) -> bool:
    """Caches and environments say so, and Stagedoor's own folder."""
    try:
        descriptor = os.open(folder / ".gitignore", os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return False
    file = regular_file(descriptor)
    if file is None:
        return False
    with file:
        return file.read(3).strip() == b"*"


def _is_plain_way(root: Path, path: str) -> bool:
    """No link stands on the way to ``path``."""
    parent = os.path.dirname(path)  # noqa: PTH120
    return os.path.realpath(root / parent) == os.path.normpath(Path(os.path.realpath(root)) / parent)


class FolderWriter:
    """Puts entries of a folder back. Every verb raises ``OSError`` where it cannot, and has then done nothing."""

    def __init__(self, root: Path) -> None:
        self._root = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)

    def __enter__(self) -> FolderWriter:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._root)

    def remove(self, path: str, kind: Kind) -> None:
        with self._parent(path) as (parent, name):
            if kind == "folder":
                self._permitted(parent, lambda: os.rmdir(name, dir_fd=parent))
            else:
                self._permitted(parent, lambda: os.unlink(name, dir_fd=parent))

    def make_folder(self, path: str) -> None:
        with self._parent(path) as (parent, name):
            self._permitted(parent, lambda: os.mkdir(name, 0o700, dir_fd=parent))

    def write_file(self, path: str, content: bytes, mode: int) -> None:
        """In one step: nobody sees half of it. A link that stands there is replaced, not followed."""
        with self._parent(path) as (parent, name):
            own = f".stagedoor-{secrets.token_hex(8)}"
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
            descriptor = self._permitted(parent, lambda: os.open(own, flags, 0o600, dir_fd=parent))
            try:
                with open(descriptor, "wb") as file:  # noqa: PTH123 (a descriptor)
                    file.write(content)
                    file.flush()
                    os.fchmod(descriptor, mode)
                os.rename(own, name, src_dir_fd=parent, dst_dir_fd=parent)
            except BaseException:
                os.unlink(own, dir_fd=parent)
                raise

    def write_link(self, path: str, target: bytes) -> None:
        with self._parent(path) as (parent, name):
            own = os.fsencode(f".stagedoor-{secrets.token_hex(8)}")
            self._permitted(parent, lambda: os.symlink(target, own, dir_fd=parent))
            try:
                os.rename(own, os.fsencode(name), src_dir_fd=parent, dst_dir_fd=parent)
            except BaseException:
                os.unlink(own, dir_fd=parent)
                raise

    def set_mode(self, path: str, kind: Kind, mode: int) -> None:
        """Of a file or folder that stands there itself."""
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC | (os.O_DIRECTORY if kind == "folder" else 0)
        with self._parent(path) as (parent, name):
            descriptor = os.open(name, flags, dir_fd=parent)
            try:
                wrong = kind == "file" and not stat.S_ISREG(os.fstat(descriptor).st_mode)
                if wrong or is_secret(os.fstat(descriptor)):
                    raise PermissionError(1, "something else stands there now", path)
                os.fchmod(descriptor, mode)
            finally:
                os.close(descriptor)

    @contextlib.contextmanager
    def _parent(self, path: str) -> Generator[tuple[int, str]]:
        """The folder that holds ``path``, opened step by step, and the last name."""
        *folders, name = path.split("/")
        if not name or any(part in ("", ".", "..") or part.lower() == ".git" for part in (*folders, name)):
            raise PermissionError(1, "it is no path of the folder", path)
        here = os.dup(self._root)
        try:
            for part in folders:
                flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
                there = os.open(part, flags, dir_fd=here)
                os.close(here)
                here = there
            yield here, name
        finally:
            os.close(here)

    def _permitted(self, parent: int, deed: Callable[[], Value]) -> Value:
        """A folder that its owner has closed to writing is opened for it; the caller sets the modes of folders last."""
        try:
            return deed()
        except PermissionError:
            os.fchmod(parent, stat.S_IMODE(os.fstat(parent).st_mode) | 0o700)
            return deed()
