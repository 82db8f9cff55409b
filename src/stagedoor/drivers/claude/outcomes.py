"""What became of a call: its status, its exit code, and its output without Claude Code's wrapping."""

from __future__ import annotations

import re
from typing import Any, cast

import msgspec

from ...agents.claude.blocks import ToolResult as NativeResult
from ...unified.events import ToolStatus

EXIT_CODE = re.compile(r"Exit code (\d+)(?:\n|$)")
_WRAPPED = re.compile(r"\A<tool_use_error>(.*)</tool_use_error>\Z", re.DOTALL)
_DENIED = re.compile(
    r"Claude requested permissions? to |Permission to use .{0,80}(?:has been )?denied"
    r"|This command requires approval|Tool permission request failed: "
    r"|.{0,300} was blocked\. For security, Claude Code may only ",
    re.DOTALL,
)
"""How Claude Code words a refusal that nobody else tells of. A refusal of ours is known by its call.

"The user doesn't want to proceed" is not among them: a command that was interrupted gets the same words.
"""


_INTERRUPTED = "The user doesn't want to "
_WORDED = frozenset({"Bash", "Write", "Edit", "MultiEdit", "NotebookEdit"})
"""Tools whose own failures are known by their wrapping: what fails without it was never begun."""
_SILENT = "(Bash completed with no output)"


class _Piece(msgspec.Struct):
    text: str = ""


class _Answer(msgspec.Struct):
    content: list[_Piece]


class Outcome(msgspec.Struct, frozen=True):
    status: ToolStatus
    output: str
    exit_code: int | None = None
    duration_ms: float | None = None


def outcome_of(
    tool: str, result: NativeResult, account: Any, *, denied: bool, asked: bool = False, overheard: bool = False
) -> Outcome:
    """``account``: what the tool itself says of a success, ``"Error: …"`` of a failure, ``None`` in a sub-agent.

    ``denied``: we know that it was refused. ``asked``: somebody was asked whose answer we do not know (a recording),
    so a failure that no running tool words is the refusal. ``overheard``: a recording, in which somebody else may have
    been asked unseen (a permission tool of an MCP server).
    """
    output = result.content if isinstance(result.content, str) else result.text
    failed = bool(result.is_error)
    wrapped = _WRAPPED.match(output) if failed else None
    if wrapped is not None:
        output = wrapped[1]
    unworded = wrapped is None and not EXIT_CODE.match(output)
    unseen = overheard and tool in _WORDED and not output.startswith(_INTERRUPTED)
    if failed and (denied or _DENIED.match(output) or (unworded and (asked or unseen))):
        return Outcome("denied", output)
    if tool == "Bash":
        return _command(output, account, failed=failed)
    if tool in ("Agent", "Task") and not failed:
        output = _report(account) or output
    return Outcome("error" if failed else "success", output, duration_ms=_duration(account))


def _command(output: str, account: Any, *, failed: bool) -> Outcome:
    told = EXIT_CODE.match(output) if failed else None
    if told is not None:
        return Outcome("error", output[told.end() :], int(told[1]))
    if failed:
        return Outcome("error", output)
    match account:
        case {"backgroundTaskId": str()}:
            return Outcome("success", output)  # it still runs
        case {"interrupted": True}:
            return Outcome("error", output)
        case {"returnCodeInterpretation": str(reading)} if reading:
            return Outcome("success", output)  # not zero, but Claude Code knows that it is no failure
        case _:
            return Outcome("success", "" if output == _SILENT else output, 0)


def _report(account: Any) -> str:
    """What a sub-agent answered, without what Claude Code tells the model about it."""
    try:
        return "\n".join(piece.text for piece in msgspec.convert(account, _Answer).content if piece.text)
    except msgspec.ValidationError:
        return ""


def _duration(account: Any) -> float | None:
    if not isinstance(account, dict):
        return None
    told = cast("dict[str, Any]", account).get("totalDurationMs")
    return float(told) if isinstance(told, int | float) else None
