"""The audit log in pages, newest first: read as it grows, never held in memory."""

from __future__ import annotations

import threading
from array import array
from pathlib import Path
from typing import BinaryIO

import msgspec

from .audit import AuditRecord, record_of


class _Session(msgspec.Struct):
    session: str = ""


class _Line(msgspec.Struct):
    entry: _Session


class AuditIndex:
    """Where each entry stands in the file, and which are whose."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._mutex = threading.Lock()
        self._forget()

    def page(
        self, *, offset: int = 0, limit: int = 100, session_id: str | None = None
    ) -> tuple[list[AuditRecord], int]:
        """The entries and how many there are in all. It reads the disk: call it in a thread."""
        with self._mutex:
            try:
                file = self._path.open("rb")
            except FileNotFoundError:
                self._forget()
                return [], 0
            with file:
                self._read_on(file.seek(0, 2), file)
                places = self._places if session_id is None else self._by_session.get(session_id, array("Q"))
                chosen = places[max(len(places) - offset - limit, 0) : max(len(places) - offset, 0)]
                records: list[AuditRecord] = []
                for place in reversed(chosen):
                    file.seek(place)
                    record = record_of(file.readline())
                    if record is not None:
                        records.append(record)
                return records, len(places)

    def _forget(self) -> None:
        self._size = 0
        self._places = array("Q")
        self._by_session: dict[str, array[int]] = {}

    def _read_on(self, size: int, stream: BinaryIO) -> None:
        if size < self._size:
            self._forget()  # somebody cut it: `verify` tells
        stream.seek(self._size)
        for line in stream:
            if not line.endswith(b"\n"):
                break  # it is being written
            try:
                session = msgspec.json.decode(line, type=_Line).entry.session
            except msgspec.MsgspecError:
                self._size += len(line)
                continue
            self._places.append(self._size)
            self._by_session.setdefault(session, array("Q")).append(self._size)
            self._size += len(line)
