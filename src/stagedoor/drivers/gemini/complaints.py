"""What the CLI says of a failed request: the API's answer as JSON, wrapped in words."""

from __future__ import annotations

import re

import msgspec

from ...unified.events import Error
from ...unified.faults import kind_of


class _Fault(msgspec.Struct):
    code: int = 0
    message: str = ""
    status: str = ""


class _Answer(msgspec.Struct):
    error: _Fault


_WRAPPED = re.compile(r"\[API Error: (.*)\]\Z", re.DOTALL)


def error_of(message: str, *, fatal: bool, status: int | None = None) -> Error:
    """``status`` is what the CLI calls the HTTP status: over ACP it says 500 for whatever had none."""
    # Only the first line is about what happened; the advice behind it speaks of quotas whatever it was.
    first = message.partition("\n")[0]
    status = None if status == 500 and kind_of(first) != "unknown" else status
    wrapped = _WRAPPED.match(first)
    answer = wrapped[1] if wrapped else first
    try:
        fault = msgspec.json.decode(answer, type=_Answer).error
    except (msgspec.MsgspecError, UnicodeError):
        return Error(kind=kind_of(first, status), message=message, fatal=fatal)
    told = " ".join(str(part) for part in (fault.code or "", fault.status) if part)
    kind = kind_of(answer, fault.code or status)
    return Error(kind=kind, message=f"{fault.message} ({told})" if told else fault.message, fatal=fatal)
