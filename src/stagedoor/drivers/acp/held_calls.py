"""Tool calls that are announced before it is known what they do."""

from __future__ import annotations

from typing import TypeVar

from msgspec.structs import replace

from ...agents.acp.updates import AcpToolCall, ToolCallUpdate

Call = TypeVar("Call", bound=AcpToolCall | ToolCallUpdate)


class HeldCalls:
    """Announcements without arguments are kept back until the update, or the question, that brings them."""

    def __init__(self) -> None:
        self._calls: dict[str, AcpToolCall | ToolCallUpdate] = {}

    def hold(self, call: AcpToolCall | ToolCallUpdate) -> None:
        self._calls[call.tool_call_id] = self.merged(call)

    def release(self, call: Call) -> Call:
        """``call`` with what was kept back of it."""
        merged = self.merged(call)
        self._calls.pop(call.tool_call_id, None)
        return merged

    def merged(self, call: Call) -> Call:
        before = self._calls.get(call.tool_call_id)
        if before is None:
            return call
        return replace(
            call,
            title=call.title or before.title,
            kind=call.kind or before.kind,
            content=before.content if call.content is None else call.content,
            locations=call.locations or before.locations,
            raw_input=call.raw_input or before.raw_input,
            meta={**(before.meta or {}), **(call.meta or {})} or None,
        )

    def __contains__(self, call_id: str) -> bool:
        return call_id in self._calls

    def clear(self) -> None:
        self._calls.clear()
