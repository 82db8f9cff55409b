"""The ``claude_log`` lines of old clients, written as Claude Code's own stream would have said it."""

from __future__ import annotations

from typing import Any, assert_never

import msgspec

from stagedoor.unified import events as canonical
from stagedoor.unified.events import Event

from .moments import whole_ms
from .notify_payloads import ClaudeLog, ClaudeWaiting, ParsedBlock, ParsedMessage


def claude_log(event: Event) -> ClaudeLog | None:
    """The line for ``event``, or ``None`` where the old stream had none."""
    match event:
        case canonical.Init():
            said: dict[str, Any] = {"type": "system", "subtype": "init", "cwd": event.cwd, "tools": event.tools}
            said |= {"model": event.model, "claude_code_version": event.agent_version}
            return _line(event, said, ParsedMessage(type="system", session_id=event.session_id))
        case canonical.Text(text=text):
            block: dict[str, Any] = {"type": "text", "text": text}
            return _message(event, "assistant", block, ParsedBlock(type="text", text=text))
        case canonical.Thinking(text=text):
            block = {"type": "thinking", "thinking": text}
            return _message(event, "assistant", block, ParsedBlock(type="thinking", text=text))
        case canonical.ToolUse(tool_use_id=tool_id, input=arguments):
            name = event.native_name or event.name
            block = {"type": "tool_use", "id": tool_id, "name": name, "input": arguments}
            parsed = ParsedBlock(type="tool_use", tool_name=name, tool_id=tool_id, tool_input=_json(arguments))
            return _message(event, "assistant", block, parsed)
        case canonical.ToolResult(tool_use_id=tool_id, output=output, status=status):
            block = {"type": "tool_result", "tool_use_id": tool_id, "content": output, "is_error": status != "success"}
            return _message(event, "user", block, ParsedBlock(type="tool_result", text=output, tool_id=tool_id))
        case canonical.TurnCompleted():
            return _result(event)
        case canonical.Unrecognized(raw=raw):
            return ClaudeLog(line=raw, stream="stdout")
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
            | canonical.Error()
            | canonical.Done()
        ):
            return None
        case _:
            assert_never(event)


def claude_waiting(event: canonical.PermissionRequest) -> ClaudeWaiting:
    return ClaudeWaiting(
        tool_use_id=event.tool_use_id or event.request_id,
        tool_name=event.native_name or event.tool_name,
        input=_json(event.input),
    )


def _message(event: Event, role: str, block: dict[str, Any], parsed: ParsedBlock) -> ClaudeLog:
    said = {"type": role, "message": {"role": role, "content": [block]}}
    stop = "tool_use" if parsed.type == "tool_use" else ""
    return _line(
        event,
        said,
        ParsedMessage(
            type="user" if role == "user" else "assistant",
            session_id=event.session_id,
            content=[parsed],
            stop_reason=stop,
            is_thinking=parsed.type == "thinking",
        ),
    )


def _result(event: canonical.TurnCompleted) -> ClaudeLog:
    subtypes = {"success": "success", "max_turns": "error_max_turns", "max_budget": "error_max_budget_usd"}
    said = {
        "type": "result",
        "subtype": subtypes.get(event.status, "error_during_execution"),
        "is_error": event.status != "success",
        "duration_ms": whole_ms(event.duration_ms),
        "result": event.result,
        "total_cost_usd": event.cost_usd,
        "usage": {"input_tokens": event.usage.input_tokens, "output_tokens": event.usage.output_tokens},
    }
    parsed = ParsedMessage(
        type="result",
        session_id=event.session_id,
        stop_reason="end_turn" if event.status == "success" else "",
        cost_usd=event.cost_usd,
        duration_ms=whole_ms(event.duration_ms),
        output_tokens=event.usage.output_tokens,
    )
    return _line(event, said, parsed)


def _line(event: Event, said: dict[str, Any], parsed: ParsedMessage) -> ClaudeLog:
    return ClaudeLog(line=_json(said | {"session_id": event.session_id}), stream="stdout", parsed=parsed)


def _json(value: object) -> str:
    return msgspec.json.encode(value).decode()
