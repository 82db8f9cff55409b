"""What the readers share: values taken out of somebody else's JSON, and the two events of a call."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any, cast

import msgspec

from ..unified.events import ToolName, ToolResult, ToolStatus, ToolUse
from ..unified.tools import operation_of, target_of
from ..wire.shapes import repaired

Json = dict[str, Any]


def lines_of(path: str) -> Iterator[Json]:
    """The objects of a JSON Lines file; lines that are none are passed over."""
    with Path(path).open("rb") as file:
        for line in file:
            try:
                value = msgspec.json.decode(line)
            except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
                try:
                    value = msgspec.json.decode(repaired(line))
                except (msgspec.DecodeError, ValueError, RecursionError):
                    continue
            if isinstance(value, dict):
                yield cast("Json", value)


class NewLines:
    """The whole lines that were added to a file since the last look, from ``start`` on. ``place``: where it is, as soon
    as there is one."""

    def __init__(self, place: Callable[[], Path | None], start: int) -> None:
        self._place = place
        self._read = start
        self._path: Path | None = None

    def read(self) -> list[Json]:
        self._path = self._path or self._place()
        if self._path is None:
            return []
        try:
            with self._path.open("rb") as file:
                file.seek(self._read)
                whole, newline, _ = file.read().rpartition(b"\n")
        except OSError:
            return []
        self._read += len(whole) + len(newline)
        records: list[Json] = []
        for line in whole.split(b"\n"):
            try:
                records.append(table(msgspec.json.decode(line)))
            except (msgspec.DecodeError, UnicodeDecodeError):
                continue
        return records


def table(value: object) -> Json:
    return cast("Json", value) if isinstance(value, dict) else {}


def tables(value: object) -> list[Json]:
    return [table(one) for one in cast("list[object]", value)] if isinstance(value, list) else []


def text(value: object) -> str:
    return value if isinstance(value, str) else ""


def text_of_blocks(content: object) -> str:
    """A string, or the text of a list of blocks."""
    if isinstance(content, str):
        return content
    return "\n".join(part for block in tables(content) if (part := text(block.get("text"))))


def milliseconds(stamp: object) -> int:
    try:
        return int(datetime.fromisoformat(text(stamp)).timestamp() * 1000)
    except (ValueError, OverflowError):
        return 0


def used(call_id: str, name: ToolName, native: str, arguments: Mapping[str, Any], at: int) -> ToolUse:
    return ToolUse(
        tool_use_id=call_id,
        name=name,
        native_name=native,
        input=dict(arguments),
        operation=operation_of(name),
        target=target_of(name, arguments),
        timestamp=at,
    )


def ended(
    call_id: str, name: ToolName, status: ToolStatus, output: str, at: int, exit_code: int | None = None
) -> ToolResult:
    return ToolResult(tool_use_id=call_id, name=name, status=status, output=output, exit_code=exit_code, timestamp=at)
