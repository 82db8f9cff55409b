"""Items as older versions of ``codex exec`` printed them: flat on the line, without an id, in pieces. Pure."""

from __future__ import annotations

from typing import Any, cast

import msgspec

_TODAY = {"content": "text", "command_line": "command"}
_LINE = msgspec.json.Decoder(dict[str, Any])


class OlderItems:
    """Gives each of them an id, and to each line what the lines before it have told of its item."""

    def __init__(self) -> None:
        self._open: dict[str, dict[str, Any]] = {}
        self._count = 0

    def whole(self, message: bytes) -> bytes:
        """The line with all that is known of its item; every other line as it is."""
        if b'"item_type"' not in message:
            return message
        try:
            line = _LINE.decode(message)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return message
        kind, name = line.get("type"), line.get("item_type")
        if "item" in line or not isinstance(kind, str) or not isinstance(name, str) or not kind.startswith("item."):
            return message
        told = {_TODAY.get(key, key): value for key, value in line.items() if value is not None}
        place = cast("str", told["id"]) if isinstance(told.get("id"), str) else f"\0{name}"
        if kind == "item.started" or place not in self._open:
            self._count += 1
            self._open[place] = {"id": f"older_{self._count}"}
        item = {**self._open[place], **told}
        if kind == "item.completed":
            del self._open[place]
        else:
            self._open[place] = item
        return msgspec.json.encode(item)
