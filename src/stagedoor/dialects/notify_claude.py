"""The old ``claude_*`` notifications, for clients from before there was more than one agent.

A ``claude_log`` line is Claude Code's own where the log has it, once for each line, whatever events were made of it.
Where it has not (an imported session, or an old one), it is written as Claude Code would have printed it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, assert_never, cast

import msgspec

from stagedoor.unified import events as canonical
from stagedoor.unified.events import Event

from .event_parts import whole_ms

LEGACY_AGENT = "claude"
NotifyState = Literal["idle", "running", "waiting", "error", "stopped"]


class NotifyClaudeBlock(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    type: Literal["text", "thinking", "tool_use", "tool_result"]
    text: str = ""
    tool_name: str = ""
    tool_id: str = ""
    tool_input: str = ""


class NotifyClaudeMessage(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    type: Literal["assistant", "user", "result", "system"]
    session_id: str = ""
    content: list[NotifyClaudeBlock] = []
    stop_reason: str = ""
    cost_usd: float | None = None
    duration_ms: int | None = None
    output_tokens: int = 0
    is_thinking: bool = False


class NotifyClaudeLog(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    line: str
    stream: Literal["stdout", "stderr"]
    parsed: NotifyClaudeMessage | None = None


class NotifyClaudeStatus(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    state: NotifyState
    prompt: str = ""
    error: str = ""


class NotifyClaudeWaiting(msgspec.Struct, frozen=True, kw_only=True):
    """``input`` is JSON in a string, as it always was."""

    tool_use_id: str
    tool_name: str
    input: str


class ClaudeLines:
    """The lines of one session. ``own``: the log has the program's lines, so none is made up."""

    def __init__(self) -> None:
        self._own = False

    def of(self, event: Event) -> list[NotifyClaudeLog]:
        if event.agent != LEGACY_AGENT:
            return []
        native: object = event.native
        if isinstance(native, Mapping):
            self._own = True
            fields = cast("Mapping[str, Any]", native)
            return [NotifyClaudeLog(line=_json(fields), stream="stdout", parsed=_parsed(fields))]
        log = None if self._own and not isinstance(event, canonical.Unrecognized) else _written(event)
        return [] if log is None else [log]


def _parsed(fields: Mapping[str, Any]) -> NotifyClaudeMessage | None:
    """A line of the program's as old clients read it; ``None`` for one they did not know."""
    kind = fields.get("type")
    session_id = str(fields.get("session_id") or "")
    match kind:
        case "system":
            return NotifyClaudeMessage(type="system", session_id=session_id)
        case "result":
            usage = _table(fields.get("usage"))
            return NotifyClaudeMessage(
                type="result",
                session_id=session_id,
                stop_reason=str(fields.get("stop_reason") or ("" if fields.get("is_error") else "end_turn")),
                cost_usd=_number(fields.get("total_cost_usd")),
                duration_ms=whole_ms(_number(fields.get("duration_ms"))),
                output_tokens=int(_number(usage.get("output_tokens")) or 0),
            )
        case "assistant" | "user":
            message = _table(fields.get("message"))
            content: object = message.get("content")
            if isinstance(content, str):
                content = [{"type": "text", "text": content}]
            listed = cast("list[object]", content) if isinstance(content, list) else []
            blocks = [block for one in listed if (block := _block(_table(one))) is not None]
            stop = str(message.get("stop_reason") or "")
            if not stop and any(block.type == "tool_use" for block in blocks):
                stop = "tool_use"
            return NotifyClaudeMessage(
                type="user" if kind == "user" else "assistant",
                session_id=session_id,
                content=blocks,
                stop_reason=stop,
                is_thinking=any(block.type == "thinking" for block in blocks),
            )
        case _:
            return None


def _block(block: Mapping[str, Any]) -> NotifyClaudeBlock | None:
    match block.get("type"):
        case "text":
            return NotifyClaudeBlock(type="text", text=str(block.get("text") or ""))
        case "thinking":
            return NotifyClaudeBlock(type="thinking", text=str(block.get("thinking") or ""))
        case "tool_use":
            return NotifyClaudeBlock(
                type="tool_use",
                tool_name=str(block.get("name") or ""),
                tool_id=str(block.get("id") or ""),
                tool_input=_json(block.get("input")),
            )
        case "tool_result":
            content: object = block.get("content")
            text = content if isinstance(content, str) else _text_of(content)
            return NotifyClaudeBlock(type="tool_result", text=text, tool_id=str(block.get("tool_use_id") or ""))
        case _:
            return None


def _text_of(content: object) -> str:
    parts = cast("list[object]", content) if isinstance(content, list) else []
    return "".join(str(_table(part).get("text") or "") for part in parts)


def _table(value: object) -> Mapping[str, Any]:
    return cast("Mapping[str, Any]", value) if isinstance(value, Mapping) else {}


def _number(value: object) -> float | None:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def _written(event: Event) -> NotifyClaudeLog | None:
    """The line for ``event``, or ``None`` where the old stream had none."""
    match event:
        case canonical.Init():
            message: dict[str, Any] = {"type": "system", "subtype": "init", "cwd": event.cwd, "tools": event.tools}
            message |= {"model": event.model, "claude_code_version": event.agent_version}
            return _claude_line(event, message, NotifyClaudeMessage(type="system", session_id=event.session_id))
        case canonical.Text(text=text):
            block: dict[str, Any] = {"type": "text", "text": text}
            return _claude_message(event, "assistant", block, NotifyClaudeBlock(type="text", text=text))
        case canonical.Thinking(text=text):
            block = {"type": "thinking", "thinking": text}
            return _claude_message(event, "assistant", block, NotifyClaudeBlock(type="thinking", text=text))
        case canonical.ToolUse(tool_use_id=tool_id, input=arguments):
            name = event.native_name or event.name
            block = {"type": "tool_use", "id": tool_id, "name": name, "input": arguments}
            parsed = NotifyClaudeBlock(type="tool_use", tool_name=name, tool_id=tool_id, tool_input=_json(arguments))
            return _claude_message(event, "assistant", block, parsed)
        case canonical.ToolResult(tool_use_id=tool_id, output=output, status=status):
            block = {"type": "tool_result", "tool_use_id": tool_id, "content": output, "is_error": status != "success"}
            return _claude_message(
                event, "user", block, NotifyClaudeBlock(type="tool_result", text=output, tool_id=tool_id)
            )
        case canonical.TurnCompleted():
            return _claude_result(event)
        case canonical.Unrecognized(raw=raw):
            return NotifyClaudeLog(line=raw, stream="stdout")
        case (
            canonical.TurnStarted()
            | canonical.TextDelta()
            | canonical.ThinkingDelta()
            | canonical.ToolProgress()
            | canonical.FileChange()
            | canonical.Plan()
            | canonical.PermissionRequest()
            | canonical.PermissionResolved()
            | canonical.UsageReport()
            | canonical.Retry()
            | canonical.Notice()
            | canonical.FilesRestored()
            | canonical.Error()
            | canonical.Done()
        ):
            return None
        case _:
            assert_never(event)


def claude_waiting(event: canonical.PermissionRequest) -> NotifyClaudeWaiting:
    return NotifyClaudeWaiting(
        tool_use_id=event.tool_use_id or event.request_id,
        tool_name=event.native_name or event.tool_name,
        input=_json(event.input),
    )


def _claude_message(event: Event, role: str, block: dict[str, Any], parsed: NotifyClaudeBlock) -> NotifyClaudeLog:
    message = {"type": role, "message": {"role": role, "content": [block]}}
    stop = "tool_use" if parsed.type == "tool_use" else ""
    return _claude_line(
        event,
        message,
        NotifyClaudeMessage(
            type="user" if role == "user" else "assistant",
            session_id=event.session_id,
            content=[parsed],
            stop_reason=stop,
            is_thinking=parsed.type == "thinking",
        ),
    )


def _claude_result(event: canonical.TurnCompleted) -> NotifyClaudeLog:
    subtypes = {"success": "success", "max_turns": "error_max_turns", "max_budget": "error_max_budget_usd"}
    message = {
        "type": "result",
        "subtype": subtypes.get(event.status, "error_during_execution"),
        "is_error": event.status != "success",
        "duration_ms": whole_ms(event.duration_ms),
        "result": event.result,
        "total_cost_usd": event.cost_usd,
        "usage": {"input_tokens": event.usage.input_tokens, "output_tokens": event.usage.output_tokens},
    }
    parsed = NotifyClaudeMessage(
        type="result",
        session_id=event.session_id,
        stop_reason="end_turn" if event.status == "success" else "",
        cost_usd=event.cost_usd,
        duration_ms=whole_ms(event.duration_ms),
        output_tokens=event.usage.output_tokens,
    )
    return _claude_line(event, message, parsed)


def _claude_line(event: Event, message: dict[str, Any], parsed: NotifyClaudeMessage) -> NotifyClaudeLog:
    return NotifyClaudeLog(line=_json(message | {"session_id": event.session_id}), stream="stdout", parsed=parsed)


def _json(value: object) -> str:
    return msgspec.json.encode(value).decode()
