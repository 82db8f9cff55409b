"""What ``chat`` suggests while a word is typed: files of the workspace after ``@``, commands after ``/``."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

SKIPPED = frozenset({".git", ".hg", ".svn", "node_modules", "__pycache__", ".venv", "venv", ".mypy_cache", ".tox"})
MOST_FILES = 20_000
FRESH = 10.0  # seconds


class FilesToName:
    """The files below ``folder``, looked up again after some seconds. It runs in a thread of the line editor."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._files: list[str] = []
        self._until = float("-inf")

    def matching(self, words: str) -> list[str]:
        """Files with ``words`` in their path; those whose name begins with it first, then the short ones."""
        wanted_text = words.lower()
        hits = [path for path in self._listed() if wanted_text in path.lower()]
        return sorted(
            hits, key=lambda path: (not _name(path).startswith(wanted_text), path.count("/"), len(path), path)
        )

    def _listed(self) -> list[str]:
        if time.monotonic() >= self._until:
            self._files = list(_walk(self._folder))
            self._until = time.monotonic() + FRESH
        return self._files


def _name(path: str) -> str:
    return path.rpartition("/")[2].lower()


def _walk(folder: Path) -> Iterator[str]:
    count = 0
    for place, folders, files in os.walk(folder):
        folders[:] = sorted(name for name in folders if name not in SKIPPED)
        inner = os.path.relpath(place, folder)
        for name in sorted(files):
            yield name if inner == "." else f"{inner}/{name}"
            count += 1
            if count >= MOST_FILES:
                return


class Suggestions:
    def __init__(self, files: FilesToName, commands: Callable[[], Mapping[str, str]]) -> None:
        self._files = files
        self._commands = commands

    def __call__(self, word: str) -> Iterator[tuple[str, str]]:
        """The beginning of a word → (the whole word, what it is)."""
        if word.startswith("/"):
            for name, about in self._commands().items():
                if name.startswith(word[1:]):
                    yield f"/{name}", about
            return
        for path in self._files.matching(word[1:]):
            yield f"@{path}", ""
