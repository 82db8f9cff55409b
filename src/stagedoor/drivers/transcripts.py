"""An agent's own record of a session as files that can be taken to another machine, and put there."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from ..errors import BadRequest
from ..machine.beneath import open_beneath, regular_file
from ..whole_file import replace_file

_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,127}")
MOST_FILES = 10_000


class TranscriptTooLarge(BadRequest):
    """It is larger than what is carried."""


class TranscriptFile(msgspec.Struct, frozen=True):
    """``name``: below the folder in which the agent keeps the session."""

    name: str
    content: bytes


@dataclass(frozen=True)
class Transcript:
    """Where an agent keeps what it needs to go on with a session: files that it reads again wherever they are put."""

    folder: Callable[[str, Mapping[str, str]], Path]
    """``folder(cwd, env)``: below it are all of them."""
    patterns: tuple[str, ...]
    """``{id}`` is the session, ``*`` anything in one name, and ``/**`` at the end all that is in a folder."""

    def collect(self, native_id: str, cwd: str, env: Mapping[str, str], *, most: int) -> tuple[TranscriptFile, ...]:
        """As they are now; empty when there are none. Links are not followed."""
        self._check(native_id)
        root = self.folder(cwd, env)
        found: list[TranscriptFile] = []
        size = 0
        for pattern in self.patterns:
            named = pattern.replace("{id}", native_id)
            paths = (root / named.removesuffix("/**")).rglob("*") if named.endswith("/**") else root.glob(named)
            for path in sorted(paths):
                content = _read(root, path, most - size)
                if content is not None:
                    size += len(content)
                    found.append(TranscriptFile(path.relative_to(root).as_posix(), content))
                if len(found) > MOST_FILES:
                    raise TranscriptTooLarge(f"the agent's transcript has more than {MOST_FILES} files")
        return tuple(found)

    def restore(
        self, native_id: str, cwd: str, env: Mapping[str, str], files: Sequence[TranscriptFile], *, most: int
    ) -> None:
        """Put them where the agent looks for them when it runs in ``cwd``; none of them unless all may be there."""
        self._check(native_id)
        if len(files) > MOST_FILES or sum(len(file.content) for file in files) > most:
            raise TranscriptTooLarge("the transcript that was kept is larger than what is carried")
        root = self.folder(cwd, env)
        allowed = [_matching(pattern, native_id) for pattern in self.patterns]
        for file in files:
            known = any(one.fullmatch(file.name) for one in allowed)
            if not known or ".." in file.name.split("/") or "\0" in file.name:
                raise BadRequest(f"{file.name!r} is no part of a transcript of this agent")
        for file in files:
            path = root / file.name
            if not Path(os.path.realpath(path.parent)).is_relative_to(os.path.realpath(root)):
                raise BadRequest(f"{path.parent} is a link to another place; nothing is written there")
            replace_file(path, file.content)

    def _check(self, native_id: str) -> None:
        if not _ID.fullmatch(native_id):
            raise BadRequest(f"{native_id!r} is no id of a session")


def _matching(pattern: str, native_id: str) -> re.Pattern[str]:
    whole_folder = pattern.endswith("/**")
    named = pattern.removesuffix("/**").replace("{id}", native_id)
    words = "[^/]*".join(re.escape(part) for part in named.split("*"))
    return re.compile(words + ("/.+" if whole_folder else ""), re.DOTALL)


def _read(root: Path, path: Path, most: int) -> bytes | None:
    try:
        descriptor = open_beneath(root, path, os.O_RDONLY | os.O_NONBLOCK)
    except OSError:
        return None
    file = regular_file(descriptor)
    if file is None:
        return None
    with file:
        if os.fstat(descriptor).st_size > most:
            raise TranscriptTooLarge("the agent's transcript is larger than what is carried")
        return file.read(most)
