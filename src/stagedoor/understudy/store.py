"""Sessions on disk: one JSON Lines file each, a header first, then the updates and how far the script is."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec

from stagedoor.machine.folders import user_folder
from stagedoor.wire.shapes import repaired

Update = dict[str, Any]


class StoredHeader(msgspec.Struct, frozen=True, rename="camel"):
    session_id: str
    cwd: str
    created_ms: int
    forked_from: str | None = None


class StoredEntry(msgspec.Struct, frozen=True, omit_defaults=True):
    """One line after the header: an update, or how far the script is."""

    update: Update | None = None
    step: int | None = None
    calls: int | None = None
    mode: str | None = None
    title: str | None = None
    route: str | None = None


class UnderstudyRecord(msgspec.Struct, frozen=True):
    """A session as the file has it."""

    header: StoredHeader
    entries: tuple[StoredEntry, ...] = ()

    @property
    def updates(self) -> list[Update]:
        return [entry.update for entry in self.entries if entry.update is not None]

    def last(self, name: str, default: Any) -> Any:
        values = [value for entry in self.entries if (value := getattr(entry, name)) is not None]
        return values[-1] if values else default


class ListedSession(msgspec.Struct, frozen=True):
    header: StoredHeader
    title: str
    updated: datetime


def default_home(env: Mapping[str, str] = os.environ) -> Path:
    """``$STAGEDOOR_UNDERSTUDY_HOME``, else ``stagedoor/understudy`` in the user's state folder."""
    if home := env.get("STAGEDOOR_UNDERSTUDY_HOME"):
        return Path(home)
    return user_folder("state", env) / "stagedoor" / "understudy"


class UnderstudyStore:
    def __init__(self, home: Path) -> None:
        self._home = home

    def create(self, header: StoredHeader, entries: tuple[StoredEntry, ...] = ()) -> None:
        self._home.mkdir(parents=True, exist_ok=True)
        lines = [msgspec.json.encode(header), *map(_line, entries)]
        self._path(header.session_id).write_bytes(b"\n".join(lines) + b"\n")

    def append(self, session_id: str, *entries: StoredEntry) -> None:
        with self._path(session_id).open("ab") as file:
            file.write(b"".join(_line(entry) + b"\n" for entry in entries))

    def load(self, session_id: str) -> UnderstudyRecord | None:
        """None for an unknown session. A line that was cut short by a crash is passed over."""
        path = self._path(session_id)
        if not session_id or path.parent != self._home or not path.is_file():
            return None
        head, *lines = path.read_bytes().split(b"\n")
        try:
            header = msgspec.json.decode(head, type=StoredHeader)
        except msgspec.MsgspecError:
            return None
        entries: list[StoredEntry] = []
        for line in lines:
            with contextlib.suppress(msgspec.MsgspecError):
                entries.append(msgspec.json.decode(line, type=StoredEntry))
        return UnderstudyRecord(header, tuple(entries))

    def delete(self, session_id: str) -> bool:
        path = self._path(session_id)
        if path.parent != self._home or not path.is_file():
            return False
        path.unlink()
        return True

    def list(self) -> Iterator[ListedSession]:
        """Newest first."""
        for path in sorted(self._home.glob("*.jsonl"), key=lambda path: path.stat().st_mtime_ns, reverse=True):
            stored = self.load(path.stem)
            if stored is not None:
                updated = datetime.fromtimestamp(path.stat().st_mtime, UTC)
                yield ListedSession(stored.header, stored.last("title", ""), updated)

    def _path(self, session_id: str) -> Path:
        return self._home / f"{session_id}.jsonl"


def _line(entry: StoredEntry) -> bytes:
    try:
        return msgspec.json.encode(entry)
    except UnicodeEncodeError:  # half of a surrogate pair, which JSON can escape and UTF-8 cannot hold
        return repaired(json.dumps(msgspec.to_builtins(entry)).encode())
