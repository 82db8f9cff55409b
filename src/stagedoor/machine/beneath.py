"""Open a file that surely lies below a folder, whoever changes what in between. POSIX only: each part of the way is
opened in the one before, and none of them may be a link. So nobody has to ask afterwards where the opened file is."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import BinaryIO

WAY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def open_beneath(root: Path, path: Path, flags: int) -> int:
    """``path`` is below ``root``, with all links resolved; what has become a link since is ``ELOOP`` or ``ENOTDIR``.

    Raises ``ValueError`` when ``path`` is not below ``root``.
    """
    *folders, name = path.relative_to(root).parts or (".",)
    if ".." in (*folders, name):
        raise ValueError(f"{path} is not resolved")
    place = os.open(root, WAY & ~os.O_NOFOLLOW)
    try:
        for folder in folders:
            inner = os.open(folder, WAY, dir_fd=place)
            os.close(place)
            place = inner
        return os.open(name, flags | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=place)
    finally:
        os.close(place)


def regular_file(descriptor: int) -> BinaryIO | None:
    """What was opened, to be read; ``None`` unless it is a regular file, and then it is closed.

    ``open`` itself raises for a folder, and leaves the descriptor open.
    """
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        return None
    return open(descriptor, "rb")
