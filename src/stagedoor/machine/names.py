"""One folder by several names: a disk that ignores case, a Mac's ``/tmp`` that is ``/private/tmp``, a mount."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

SYSTEM_LINKS = re.compile(r"^/private(?=/(?:tmp|var|etc)(?:/|$))") if sys.platform == "darwin" else None
"""What the system itself has put there on every Mac: nobody else can change where these lead."""


def short_name(path: str) -> str:
    """``/tmp/x`` for ``/private/tmp/x`` on a Mac: the name that everybody writes."""
    return path if SYSTEM_LINKS is None else SYSTEM_LINKS.sub("", path)


def is_beneath(path: str | Path, folder: str | Path) -> bool:
    """Whether ``path`` is ``folder`` or lies in it, links followed, whatever the names are. What is refused for lying
    somewhere is asked for here; what is *allowed* for it, by its text: then a strange name costs a refusal."""
    real, root = os.path.realpath(path), os.path.realpath(folder)
    if real == root or real.startswith(root.rstrip("/") + "/"):
        return True
    try:
        goal = os.stat(root)  # noqa: PTH116
    except OSError:
        return False
    for place in (real, *map(str, Path(real).parents)):
        try:
            if os.path.samestat(os.stat(place), goal):  # noqa: PTH116
                return True
        except OSError:
            continue
    return False
