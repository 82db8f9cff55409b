"""Stagedoor's own files, whatever name they are reached by: a hard link to the token, or a mount of its folder, is it.

A server says once where its own files are. Whatever shows files of a workspace asks here, with the status of the file
it has *opened*: a name may lead elsewhere a moment later.
"""

from __future__ import annotations

import contextlib
import os
import stat
import threading
import time
from pathlib import Path

CLOCK_TICK = 100_000_000
"""Nanoseconds: two changes so close together may leave the same time."""
_MUTEX = threading.Lock()
_FOLDERS: dict[str, tuple[int, frozenset[tuple[int, int]]]] = {}
"""Folder → when it last changed, and the files directly in it."""
_FILES: set[str] = set()


def keep_secret(folder: Path, *files: str) -> None:
    """From now on every file directly in ``folder``, and each of ``files``, is ours alone."""
    with _MUTEX:
        _FOLDERS.setdefault(str(folder.absolute()), (-1, frozenset()))
        _FILES.update(str(Path(file).expanduser().absolute()) for file in files if file)


def is_secret(status: os.stat_result) -> bool:
    """Whether this is one of our own files."""
    if not stat.S_ISREG(status.st_mode) or not _FOLDERS:
        return False
    own = (status.st_dev, status.st_ino)
    with _MUTEX:
        return any(own in _members(folder) for folder in _FOLDERS) or any(own == _identity(file) for file in _FILES)


def secret_identities() -> frozenset[tuple[int, int]]:
    """Device and number of all our own files as they are now, for whoever looks at many files at once."""
    with _MUTEX:
        found = {identity for folder in _FOLDERS for identity in _members(folder)}
        return frozenset(found | {identity for file in _FILES if (identity := _identity(file)) is not None})


def _members(folder: str) -> frozenset[tuple[int, int]]:
    """Looked up again whenever a name was added or taken away."""
    try:
        changed = os.stat(folder).st_mtime_ns  # noqa: PTH116 (asked for every file that is shown)
    except OSError:
        return frozenset()
    known_since, members = _FOLDERS[folder]
    if known_since != changed or time.time_ns() - changed < CLOCK_TICK:
        found: set[tuple[int, int]] = set()
        with contextlib.suppress(OSError), os.scandir(folder) as entries:
            for entry in entries:
                with contextlib.suppress(OSError):
                    # Not the entry's own: that of a folder that is mounted elsewhere may name another device.
                    mark = os.stat(entry.path, follow_symlinks=False)  # noqa: PTH116
                    if stat.S_ISREG(mark.st_mode):
                        found.add((mark.st_dev, mark.st_ino))
        members = frozenset(found)
        _FOLDERS[folder] = (changed, members)
    return members


def _identity(file: str) -> tuple[int, int] | None:
    try:
        mark = os.stat(file)  # noqa: PTH116
    except OSError:
        return None
    return mark.st_dev, mark.st_ino
