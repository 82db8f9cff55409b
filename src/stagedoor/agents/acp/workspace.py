"""Text files served to an agent that was offered them, confined to the session's folders."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path


class OutsideWorkspace(Exception):
    """The path, with links followed, is in none of the session's folders."""


class Workspace:
    def __init__(self, roots: Sequence[str]) -> None:
        self._roots = [Path(root).resolve() for root in roots]

    def locate(self, path: str) -> Path:
        """The real file behind ``path``. Raises :class:`OutsideWorkspace`."""
        place = Path(os.path.join(self._roots[0], path)).resolve()  # noqa: PTH118 (an absolute path replaces the root)
        if not any(place == root or root in place.parents for root in self._roots):
            raise OutsideWorkspace(f"{path} is outside the workspace {self._roots[0]}")
        return place

    def read(self, path: str, line: int | None = None, limit: int | None = None) -> str:
        """The text from ``line`` (counted from 1), at most ``limit`` lines of it."""
        text = self.locate(path).read_bytes().decode("utf-8", "replace")
        if line is None and limit is None:
            return text
        first = max(0, (line or 1) - 1)
        lines = text.splitlines(keepends=True)
        return "".join(lines[first:] if limit is None else lines[first : first + limit])

    def write(self, path: str, content: str) -> None:
        place = self.locate(path)
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(content.encode("utf-8", "replace"))
