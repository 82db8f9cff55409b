"""The understudy's hands: files of one workspace, and never one outside it."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

MOST_FOUND = 200
SKIPPED = {".git", ".hg", ".svn", "node_modules", "__pycache__", ".venv"}


class ToolFailed(Exception):
    """The tool did not do it; the sentence goes to the agent and the user."""


class Workspace:
    def __init__(self, root: str, more: tuple[str, ...] = ()) -> None:
        self.root = Path(root).resolve()
        self._roots = [self.root, *(Path(one).resolve() for one in more)]

    def locate(self, path: str) -> Path:
        """The real place of ``path``, links followed. Raises ``ToolFailed`` outside the workspace."""
        place = Path(os.path.join(self.root, path)).resolve()  # noqa: PTH118 (an absolute path replaces the root)
        if not any(place == root or root in place.parents for root in self._roots):
            raise ToolFailed(f"{path} is outside the workspace.")
        return place

    def read(self, path: str) -> str:
        place = self.locate(path)
        try:
            return place.read_bytes().decode("utf-8", "replace")
        except OSError as error:
            raise ToolFailed(f"{path}: {error.strerror}") from None

    def before(self, path: str) -> str | None:
        """What is there now; None for nothing."""
        place = self.locate(path)
        return place.read_bytes().decode("utf-8", "replace") if place.is_file() else None

    def write(self, path: str, content: str) -> None:
        place = self.locate(path)
        try:
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes(content.encode("utf-8", "replace"))
        except OSError as error:
            raise ToolFailed(f"{path}: {error.strerror}") from None

    def edited(self, path: str, old: str, new: str) -> tuple[str, str]:
        """The file before and after the edit, which is not made yet."""
        before = self.read(path)
        found = before.count(old) if old else 0
        if found != 1:
            raise ToolFailed(f"{path}: the text to replace occurs {found} times; it must occur once.")
        return before, before.replace(old, new)

    def delete(self, path: str) -> None:
        place = self.locate(path)
        try:
            place.unlink()
        except OSError as error:
            raise ToolFailed(f"{path}: {error.strerror}") from None

    def search(self, pattern: str, path: str) -> str:
        """Lines that match, as ``file:line: text``."""
        try:
            wanted = re.compile(pattern)
        except re.error as error:
            raise ToolFailed(f"{pattern!r} is no regular expression: {error}") from None
        found: list[str] = []
        for place in self._files(path):
            try:
                text = place.read_bytes()
            except OSError:
                continue
            if b"\0" in text[:1024]:
                continue
            for number, line in enumerate(text.decode("utf-8", "replace").splitlines(), 1):
                if wanted.search(line):
                    found.append(f"{place.relative_to(self.root)}:{number}: {line[:300]}")
                    if len(found) == MOST_FOUND:
                        return "\n".join(found)
        return "\n".join(found)

    def find(self, pattern: str, path: str) -> str:
        found: list[str] = []
        for place in self._files(path):
            name = place.relative_to(self.root)
            if name.match(pattern) or pattern in ("**", "**/*"):
                found.append(str(name))
                if len(found) == MOST_FOUND:
                    break
        return "\n".join(found)

    def _files(self, path: str) -> Iterator[Path]:
        start = self.locate(path)
        if start.is_file():
            yield start
            return
        for folder, folders, names in os.walk(start):
            folders[:] = sorted(name for name in folders if name not in SKIPPED)
            for name in sorted(names):
                place = Path(folder) / name
                if not place.is_symlink() and self.root in place.parents:
                    yield place
