"""``board``: a log for human readers. Seven types, ``plan log diff action toolResult error cancelled``.

An event without a type of its own is a line of the log; its payload names the canonical type in ``kind`` and keeps the
fields, so a board can filter and nothing is lost.
"""

from __future__ import annotations

from typing import Any, Literal, assert_never

import msgspec

from stagedoor.unified import events as canonical
from stagedoor.unified.events import Event, Status

from .event_parts import Drafts, checklist, iso_time, own_fields, type_of, unfinished_parts

SILENT: dict[str, str] = {
    "text_delta": "not sent: `text` repeats it; what is not repeated comes as a `log` when the turn ends",
    "thinking_delta": "not sent: `thinking` repeats it; what is not repeated comes as a `plan` when the turn ends",
}

BoardState = Literal["running", "done", "failed", "cancelled"]
BoardType = Literal["plan", "log", "diff", "action", "toolResult", "error", "cancelled"]


class BoardEvent(msgspec.Struct, frozen=True, rename="camel"):
    id: str
    session_id: str
    type: BoardType
    payload: dict[str, Any]
    timestamp: str


def session_state(status: Status | None) -> BoardState:
    """The state of a session that is ``done`` with ``status``, or that still runs (``None``)."""
    match status:
        case None:
            return "running"
        case "success":
            return "done"
        case "interrupted":
            return "cancelled"
        case "error" | "max_turns" | "max_budget":
            return "failed"
        case _:
            assert_never(status)


class BoardProjection:
    def __init__(self) -> None:
        self._texts = Drafts()
        self._thoughts = Drafts()
        self._tools: dict[str, str] = {}
        self._failure = ""

    def project(self, event: Event) -> list[BoardEvent]:
        events = [*unfinished_parts(event, self._thoughts, self._texts), event]
        entries = [(each, entry) for each in events for entry in self._entries(each)]
        return [_board_event(each, number, *entry) for number, (each, entry) in enumerate(entries)]

    def _entries(self, event: Event) -> list[tuple[BoardType, dict[str, Any]]]:
        parent = event.parent_tool_use_id
        match event:
            case canonical.Init():
                return [_log(event, _introduction(event))]
            case canonical.TurnStarted(prompt=prompt):
                self._failure = ""
                return [_log(event, f"> {prompt}")]
            case canonical.TextDelta(text=text, message_id=message_id):
                self._texts.add((parent, message_id), text)
                return []
            case canonical.Text(text=text, message_id=message_id):
                self._texts.rest((parent, message_id), text)
                return [("log", {"line": text, "kind": "text"})]
            case canonical.ThinkingDelta(text=text):
                self._thoughts.add((parent, ""), text)
                return []
            case canonical.Thinking(text=text):
                self._thoughts.rest((parent, ""), text)
                return [("plan", {"message": text, "kind": "thinking"})]
            case canonical.Plan(items=items):
                return [("plan", {"message": checklist(event), "kind": "plan", "items": items})]
            case canonical.ToolUse():
                tool = self._tools[event.tool_use_id] = event.native_name or event.name
                return [("action", {"tool": tool, "args": event.input, **_other_fields(event, "nativeName", "input")})]
            case canonical.ToolProgress(output=output):
                return [("log", {"line": output, "kind": "tool_progress", **_other_fields(event, "output")})]
            case canonical.ToolResult(tool_use_id=tool_use_id, status=status, output=output):
                tool = self._tools.pop(tool_use_id, event.name)
                result = {"tool": tool, "success": status == "success", "output": output}
                return [("toolResult", {**result, **_other_fields(event, "output")})]
            case canonical.FileChange(path=path, diff=diff):
                return [("diff", {"file": path, "diff": diff, **_other_fields(event, "path", "diff")})]
            case canonical.PermissionRequest():
                state = "Decided by a rule" if event.automatic else "Waiting for permission"
                return [_log(event, f"{state}: {_permission_line(event)}")]
            case canonical.PermissionResolved(decision=decision, by=by, message=message):
                line = f"Permission {'granted' if decision == 'allow' else 'refused'} ({by})"
                return [_log(event, f"{line}: {message}" if message else line)]
            case canonical.UsageReport():
                return [_log(event, f"Tokens: {event.input_tokens} in, {event.output_tokens} out")]
            case canonical.Retry(attempt=attempt, max_attempts=most, reason=reason):
                count = f"{attempt} of {most}" if most is not None else f"{attempt}"
                return [_log(event, f"Retry {count}: {reason}" if reason else f"Retry {count}")]
            case canonical.Notice(level=level, message=message):
                return [_log(event, message if level == "info" else f"{level.capitalize()}: {message}")]
            case canonical.FilesRestored():
                return [_log(event, canonical.restored_words(event))]
            case canonical.Error(message=message, fatal=fatal):
                self._failure = message if fatal else self._failure
                return [("error", own_fields(event))]
            case canonical.TurnCompleted(turn=turn, status=status):
                return [_log(event, f"Turn {turn} ended: {status}")]
            case canonical.Done():
                return [self._end(event)]
            case canonical.Unrecognized(raw=raw):
                return [("log", {"line": raw, "kind": "unrecognized", **_other_fields(event, "raw")})]
            case _:
                assert_never(event)

    def _end(self, event: canonical.Done) -> tuple[BoardType, dict[str, Any]]:
        match event.status:
            case "success":
                return _log(event, "Session done")
            case "interrupted":
                return "cancelled", {"message": "Session cancelled", **own_fields(event)}
            case "max_turns":
                why = "the limit of turns was reached"
            case "max_budget":
                why = "the budget was spent"
            case "error":
                why = self._failure or event.result or "the agent gave no reason"
            case _:
                assert_never(event.status)
        return "error", {"message": f"Session failed: {why}", **own_fields(event)}


def _board_event(event: Event, number: int, kind: BoardType, payload: dict[str, Any]) -> BoardEvent:
    if event.parent_tool_use_id is not None:
        payload = payload | {"parentToolUseId": event.parent_tool_use_id}
    if event.native is not None:
        payload = payload | {"native": event.native}
    return BoardEvent(
        id=f"evt-{event.session_id}-{event.seq}" + (f"-{number}" if number else ""),
        session_id=event.session_id,
        type=kind,
        payload=payload,
        timestamp=iso_time(event.timestamp),
    )


def _log(event: Event, line: str) -> tuple[BoardType, dict[str, Any]]:
    return "log", {"line": line, "kind": type_of(event), **own_fields(event)}


def _other_fields(event: Event, *excluded: str) -> dict[str, Any]:
    """The event's fields except ``excluded``, which the payload already has under another name."""
    return {name: value for name, value in own_fields(event).items() if name not in excluded and value != ""}


def _introduction(event: canonical.Init) -> str:
    words = [event.agent, event.agent_version, "resumed" if event.resumed else "started"]
    line = " ".join(word for word in words if word)
    line += f", {event.model}" if event.model else ""
    return line + (f", in {event.cwd}" if event.cwd else "")


def _permission_line(event: canonical.PermissionRequest) -> str:
    return f"{event.native_name or event.tool_name} {event.target}".strip() + f" ({event.risk} risk)"
