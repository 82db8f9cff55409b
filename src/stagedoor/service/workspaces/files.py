"""Folders and files of a workspace, never anything outside it: links are followed first, and judged by where they
lead."""

from __future__ import annotations

import base64
import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Literal

import msgspec

from stagedoor.errors import BadRequest, NotAllowed, SessionNotFound
from stagedoor.machine.beneath import open_beneath
from stagedoor.secret_files import is_secret

MOST_ENTRIES = 2_000
MOST_BYTES = 1024 * 1024
MOST_LOOKED_AT = 50_000
_UNINTERESTING = frozenset(
    {".git", ".hg", ".svn", "node_modules", "__pycache__", ".venv", ".mypy_cache", ".ruff_cache"}
)


class FileEntry(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """``path`` is as seen from the workspace. A link is what it leads to; one that leads outside is only named."""

    name: str
    path: str
    kind: Literal["file", "folder", "link", "other"]
    size: int | None = None
    modified_at: int | None = None


class Listing(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Folders first, each by name."""

    path: str
    entries: tuple[FileEntry, ...] = ()
    cut: bool = False


class FileText(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """``content`` is text, or base64 where it is not (``binary``). Lines count from 1; ``cut``: there is more."""

    path: str
    size: int
    content: str = ""
    encoding: Literal["utf-8", "base64"] = "utf-8"
    binary: bool = False
    first_line: int | None = None
    last_line: int | None = None
    cut: bool = False


def inside(workspace: Path, path: str) -> Path:
    """The real place of ``path`` in the workspace. Raises ``NotAllowed`` when that is outside."""
    if "\0" in path:
        raise BadRequest("a path must not contain a zero byte")
    root = workspace.resolve()
    try:
        place = (root / path).resolve()
    except (OSError, RuntimeError) as fault:
        raise BadRequest(f"{path!r} cannot be resolved: {fault}") from fault
    if not place.is_relative_to(root):
        raise NotAllowed(f"{path!r} is outside the session's workspace; only what is in it can be read")
    return place


class FoundFiles(msgspec.Struct, frozen=True):
    """Those whose name matches best come first; ``cut``: there are more, or the workspace is too large to look at."""

    paths: tuple[str, ...] = ()
    cut: bool = False


class Folder(msgspec.Struct, frozen=True, kw_only=True):
    path: str
    name: str
    repository: bool = False


class OtherBranch(msgspec.Struct, frozen=True, kw_only=True):
    """A branch that is not checked out here. ``path``: the folder that has it, where sessions may run there."""

    name: str
    path: str = ""


class Folders(msgspec.Struct, frozen=True, kw_only=True):
    """The folders in ``path`` (empty: the roots); ``parent`` is null at the top. ``branch``: what is checked out.

    ``branches``: the others of its repository, by name.
    """

    path: str
    parent: str | None = None
    branch: str = ""
    branches: tuple[OtherBranch, ...] = ()
    folders: tuple[Folder, ...] = ()
    cut: bool = False


def find(workspace: Path, words: str, allowed: Callable[[Path], bool], most: int = 30) -> FoundFiles:
    """Files whose path holds the letters of ``words`` in that order. Links are not followed."""
    letters = words.lower()
    matches: list[tuple[int, int, str]] = []
    looked, cut = 0, False
    root = workspace.resolve()
    for folder, names, files in os.walk(root):
        names[:] = sorted(name for name in names if name not in _UNINTERESTING and allowed(Path(folder, name)))
        for name in sorted(files):
            looked += 1
            path = _relative(Path(folder, name), root)
            if (rank := _rank(path.lower(), letters)) is not None:
                matches.append((rank, len(path), path))
        if looked > MOST_LOOKED_AT:
            cut = True
            break
    matches.sort()
    return FoundFiles(tuple(path for _, _, path in matches[:most]), cut or len(matches) > most)


def _rank(path: str, letters: str) -> int | None:
    """0: the name begins so; 1: the name holds it; 2: the path holds it; 3: its letters, with others between."""
    name = path.rpartition("/")[2]
    if name.startswith(letters):
        return 0
    if letters in name:
        return 1
    if letters in path:
        return 2
    rest = iter(path)
    return 3 if all(letter in rest for letter in letters) else None


def folders(folder: Path, allowed: Callable[[Path], bool]) -> tuple[tuple[Folder, ...], bool]:
    """The folders in ``folder`` that may be chosen; those that are hidden are left out."""
    listed: list[Folder] = []
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                if entry.name.startswith(".") or not entry.is_dir():
                    continue
                place = Path(entry.path)
                if not allowed(place.resolve()):
                    continue
                if len(listed) >= MOST_ENTRIES:
                    return tuple(listed), True
                name = entry.name.encode("utf-8", "replace").decode()
                listed.append(Folder(path=str(folder / name), name=name, repository=(place / ".git").exists()))
    except OSError as fault:
        raise BadRequest(f"{str(folder)!r} cannot be listed: {fault.strerror}") from fault
    listed.sort(key=lambda folder: folder.name.lower())
    return tuple(listed), False


def listing(workspace: Path, path: str = "") -> Listing:
    root, folder = workspace.resolve(), inside(workspace, path)
    entries: list[FileEntry] = []
    cut = False
    try:
        with os.scandir(folder) as listed:
            for entry in listed:
                if len(entries) >= MOST_ENTRIES:
                    cut = True
                    break
                entries.append(_entry(entry, root))
    except FileNotFoundError as fault:
        raise SessionNotFound(f"folder {path!r} not found in the workspace") from fault
    except OSError as fault:
        raise BadRequest(f"{path!r} cannot be listed: {fault.strerror}") from fault
    entries.sort(key=lambda entry: (entry.kind != "folder", entry.name))
    return Listing(path=_relative(folder, root), entries=tuple(entries), cut=cut)


def read(
    workspace: Path,
    path: str,
    *,
    first_line: int | None = None,
    last_line: int | None = None,
    most: int = MOST_BYTES,
) -> FileText:
    if first_line is not None and first_line < 1:
        raise BadRequest("line numbers start at 1")
    if first_line is not None and last_line is not None and last_line < first_line:
        raise BadRequest("the last line is before the first; swap them")
    root, place = workspace.resolve(), inside(workspace, path)
    name = _relative(place, root)
    descriptor = _open(place, path, root)
    with os.fdopen(descriptor, "rb") as file:
        size = os.fstat(descriptor).st_size
        if first_line is None and last_line is None:
            content = file.read(most + 1)
            return _file_text(name, size, content[:most], cut=len(content) > most)
        first, kept, length, number = first_line or 1, list[bytes](), 0, 0
        cut = False
        for number, line in enumerate(file, 1):
            if number < first:
                continue
            if last_line is not None and number > last_line:
                break
            if length + len(line) > most:
                cut = True
                kept.append(line[: most - length])
                break
            kept.append(line)
            length += len(line)
        last = first + len(kept) - 1 if kept else None
        text = _file_text(name, size, b"".join(kept), cut=cut)
        return msgspec.structs.replace(text, first_line=first if kept else None, last_line=last)


def _open(place: Path, path: str, root: Path) -> int:
    try:
        # Not blocking: a pipe would wait for a writer. No link: the way was resolved, and may have been changed since.
        descriptor = open_beneath(root, place, os.O_RDONLY | os.O_NONBLOCK)
    except FileNotFoundError as fault:
        raise SessionNotFound(f"file {path!r} not found in the workspace") from fault
    except OSError as fault:
        raise BadRequest(f"{path!r} cannot be read: {fault.strerror}") from fault
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise BadRequest(f"{path!r} is not a file; list it instead if it is a folder")
        if is_secret(status):
            raise NotAllowed(f"{path!r} is one of the server's own files under another name; it is never shown")
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def _file_text(name: str, size: int, content: bytes, *, cut: bool) -> FileText:
    if b"\0" not in content[:8192]:
        for lost in range(4 if cut else 1):  # a cut may go through a character
            try:
                return FileText(path=name, size=size, content=content[: len(content) - lost].decode(), cut=cut)
            except UnicodeDecodeError:
                continue
    return FileText(
        path=name, size=size, content=base64.b64encode(content).decode(), encoding="base64", binary=True, cut=cut
    )


def _entry(entry: os.DirEntry[str], root: Path) -> FileEntry:
    name = entry.name.encode("utf-8", "replace").decode()
    path = _relative(Path(entry.path), root)
    try:
        if entry.is_symlink() and not Path(entry.path).resolve().is_relative_to(root):
            return FileEntry(name=name, path=path, kind="link")
        seen = entry.stat()
    except (OSError, RuntimeError):
        return FileEntry(name=name, path=path, kind="link" if entry.is_symlink() else "other")
    modified = seen.st_mtime_ns // 1_000_000
    if stat.S_ISDIR(seen.st_mode):
        return FileEntry(name=name, path=path, kind="folder", modified_at=modified)
    kind: Literal["file", "other"] = "file" if stat.S_ISREG(seen.st_mode) else "other"
    return FileEntry(name=name, path=path, kind=kind, size=seen.st_size, modified_at=modified)


def _relative(path: Path, root: Path) -> str:
    shown = str(path.relative_to(root)).encode("utf-8", "replace").decode()
    return "" if shown == "." else shown
