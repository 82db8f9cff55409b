"""What Copilot CLI writes of a session while it runs: there, and only there, a failed turn is called one.

Over the protocol every turn ends well, and the reason of a failure is one more piece of text.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import msgspec

from ...wire.fitting import whole_number
from ..stored import NewLines, table, text
from .state import user_folder


class CopilotFailure(msgspec.Struct, frozen=True, kw_only=True):
    """The turn failed."""

    message: str
    error_type: str = ""
    status: int | None = None


class CopilotLine(msgspec.Struct, frozen=True):
    """A line of the CLI itself among the model's text."""

    level: str
    text: str


class NewRecords(msgspec.Struct):
    """What came since the last look."""

    texts: list[str] = []
    failures: list[CopilotFailure] = []
    turn_ended: bool = False


def records_file(session_id: str, env: Mapping[str, str]) -> Path:
    return user_folder(env) / "session-state" / session_id / "events.jsonl"


class CopilotRecords:
    """The file of one session, read from ``start`` on."""

    def __init__(self, path: Path, start: int) -> None:
        self._lines = NewLines(lambda: path, start)

    def new(self) -> NewRecords:
        new = NewRecords()
        for record in self._lines.read():
            _add(new, text(record.get("type")), table(record.get("data")))
        return new


def _add(new: NewRecords, kind: str, content: dict[str, object]) -> None:
    match kind:
        case "assistant.message":
            new.texts.append(text(content.get("content")))
        case "assistant.turn_end" | "abort":
            new.turn_ended = True
        case "session.error":
            status = content.get("statusCode")
            new.failures.append(
                CopilotFailure(
                    message=text(content.get("message")),
                    error_type=text(content.get("errorType")),
                    status=whole_number(status),
                )
            )
        case _:
            pass
