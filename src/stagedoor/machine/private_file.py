"""Read a file that nobody else can have read or put there: keys and tokens of ours."""

from __future__ import annotations

import os
from pathlib import Path

from .beneath import regular_file

_OPEN = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK  # a pipe would keep us waiting for its other end


class NotPrivate(OSError):
    """Somebody else may have read it, or put it there."""


def read_private(path: Path, *, one_name: bool = True) -> bytes:
    """Raises ``NotPrivate`` for what is no regular file of ours that only we can read; ``one_name``: also where it
    has a second name, by which somebody may have it. Raises ``OSError`` when it cannot be opened."""
    file = regular_file(os.open(path, _OPEN))
    if file is None:
        raise NotPrivate(f"{path} is not a regular file")
    with file:
        status = os.fstat(file.fileno())
        if status.st_mode & 0o077 or status.st_uid != os.getuid() or (one_name and status.st_nlink > 1):
            raise NotPrivate(f"{path} is not private")
        return file.read()
