"""What Kimi Code writes of a session while it runs: there, and only there, a failed turn is called one.

Over the protocol it ends well, without a word.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TypeAlias

import msgspec

from ...agents.acp.events import Event as AcpEvent
from ...agents.acp.responses import AcpUsage
from ...wire.fitting import whole_number
from ..acp.retries import FailedCall
from ..stored import Json, NewLines, table, text
from .state import user_folder


class KimiTurn(msgspec.Struct, kw_only=True):
    """What the records tell of one turn."""

    ended: bool = False
    failed: bool = False
    message: str = ""
    status: int | None = None
    usage: AcpUsage = AcpUsage()


NativeEvent: TypeAlias = AcpEvent | KimiTurn


def records_file(session_id: str, env: Mapping[str, str]) -> Path | None:
    """The CLI files sessions by a name that it makes of their folder; ``None``: not there yet."""
    places = (user_folder(env) / "sessions").glob(f"*/{session_id}/agents/main/wire.jsonl")
    return next(places, None)


def failed_call(record: Json) -> FailedCall | None:
    """An attempt at the model that failed, and will be repeated without a word."""
    if record.get("type") != "turn.step.retrying":
        return None
    status = record.get("statusCode")
    return FailedCall(text(record.get("errorMessage")), whole_number(status))


class KimiRecords:
    """The file of one session, read from ``start`` on."""

    def __init__(self, session_id: str, env: Mapping[str, str], start: int) -> None:
        self._lines = NewLines(lambda: records_file(session_id, env), start)

    def add_to(self, turn: KimiTurn) -> None:
        """What came since the last look."""
        for record in self._lines.read():
            _add(turn, record)


def _add(turn: KimiTurn, record: Json) -> None:
    match record.get("type"):
        case "turn.ended":
            error = table(record.get("error"))
            status = table(error.get("details")).get("statusCode")
            turn.ended = True
            turn.failed = record.get("reason") == "failed"
            turn.message = text(error.get("message")) or turn.message
            turn.status = whole_number(status) or turn.status
        case "turn.step.interrupted" if record.get("reason") == "error":
            turn.message = text(record.get("message")) or turn.message
        case "usage.record":
            turn.usage = _sum(turn.usage, table(record.get("usage")) or record)
        case _:
            pass


def _sum(so_far: AcpUsage, used: Mapping[str, object]) -> AcpUsage:
    def count(name: str) -> int:
        value = used.get(name)
        return whole_number(value) or 0

    other, output, cached = count("inputOther"), count("output"), count("inputCacheRead")
    created = count("inputCacheCreation")
    return AcpUsage(
        input_tokens=so_far.input_tokens + other + created,
        output_tokens=so_far.output_tokens + output,
        total_tokens=so_far.total_tokens + other + created + cached + output,
        cached_read_tokens=(so_far.cached_read_tokens or 0) + cached,
    )
