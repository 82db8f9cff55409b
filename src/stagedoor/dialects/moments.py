"""Times as the dialects write them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_LAST = 253_402_300_799_999  # the end of the year 9999, where ISO 8601 in four digits ends


def iso_time(milliseconds: int) -> str:
    """Milliseconds since 1970 as ``2025-12-03T10:00:01.234Z``; what no calendar holds is moved to its edge."""
    moment = _EPOCH + timedelta(milliseconds=min(max(milliseconds, 0), _LAST))
    return moment.isoformat(timespec="milliseconds").removesuffix("+00:00") + "Z"


def whole_ms(duration: float | None) -> int | None:
    """A duration for a dialect that counts in whole milliseconds."""
    return round(duration) if duration is not None and abs(duration) < _LAST else None
