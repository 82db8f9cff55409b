"""Tool calls as ``serve`` and ``run`` tell them: one part, said again whenever its state changes."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from msgspec.structs import replace

from ...agents.opencode.guard import MARK, without_mark
from ...agents.opencode.parts import ToolPart
from ...unified.events import Event, ToolProgress, ToolResult, ToolStatus, ToolUse
from ...unified.tools import described, operation_of
from .changes import changes_of, plan_of
from .tools import INVALID, NAMES, name_of, target_of

_REFUSED = re.compile(
    r"^The user rejected permission|^The user has specified a rule which prevents|^The user dismissed this question"
)
_UNAVAILABLE = re.compile(r"unavailable tool '([^']+)'")
REJECTED = "The user rejected permission to use this specific tool call."
"""How OpenCode tells of a refusal without a reason, after which it does not go on."""


def is_denied(tool: str, error: str) -> bool:
    """Whether a call that came to nothing was refused. A tool of its own that OpenCode lacks, a rule has taken away."""
    if _REFUSED.match(error):
        return True
    lacking = _UNAVAILABLE.search(error)
    return lacking is not None and (tool if lacking[1] == INVALID else lacking[1]) in NAMES


def judged(tool: str, status: str, error: str, metadata: Mapping[str, Any]) -> tuple[ToolStatus, int | None]:
    """How a call ended, and a command's exit code. OpenCode completes what it says failed, too."""
    if status == "error" or error:
        return ("denied" if is_denied(tool, error) else "error"), None
    if tool != "bash" or "exit" not in metadata:
        return "success", None
    code: object = metadata["exit"]
    if isinstance(code, int):
        return ("error" if code else "success"), code
    return "error", None  # stopped: by its time limit, or with its turn


class Calls:
    """The calls of one session and its sub-agents. Ids of calls are the model's own and may come again."""

    def __init__(self) -> None:
        self._ids: dict[tuple[str, str], str] = {}
        self._taken: set[str] = set()
        self._parts: dict[str, ToolPart] = {}
        self._ended: set[str] = set()
        self._output: dict[str, str] = {}
        self._diffs: dict[str, str] = {}
        self.last_denied = ""
        """What was said of the last call, if it was refused."""

    def id_of(self, message_id: str, call_id: str) -> str:
        key = message_id, call_id
        if key not in self._ids:
            self._ids[key] = call_id if call_id and call_id not in self._taken else f"{call_id}:{message_id}"
            self._taken.add(self._ids[key])
        return self._ids[key]

    def part(self, tool_use_id: str) -> ToolPart | None:
        """What was told of a call, once its input is known."""
        return self._parts.get(tool_use_id)

    def is_over(self, tool_use_id: str) -> bool:
        return tool_use_id in self._ended

    def asked(self, tool_use_id: str, diff: str) -> None:
        """A question showed what this call will change."""
        self._diffs[tool_use_id] = diff

    def update(self, part: ToolPart) -> list[Event]:
        part = _plain(part)
        tool_use_id = self.id_of(part.message_id, part.call_id)
        if part.state.status not in ("running", "completed", "error") or tool_use_id in self._ended:
            return []
        out: list[Event] = [] if tool_use_id in self._parts else [_use(part, tool_use_id)]
        self._parts[tool_use_id] = part
        if part.state.status == "running":
            return [*out, *self._progress(part, tool_use_id)]
        return [*out, *self._end(part, tool_use_id)]

    def _progress(self, part: ToolPart, tool_use_id: str) -> list[Event]:
        output: object = part.state.metadata.get("output")
        before = self._output.get(tool_use_id, "")
        # Of long output only the end is kept: what was cut off at its beginning cannot be continued.
        if not isinstance(output, str) or not output.startswith(before) or output == before:
            return []
        self._output[tool_use_id] = output
        return [ToolProgress(tool_use_id=tool_use_id, output=output.removeprefix(before))]

    def _end(self, part: ToolPart, tool_use_id: str) -> list[Event]:
        self._ended.add(tool_use_id)
        self._output.pop(tool_use_id, None)
        state, asked = part.state, self._diffs.pop(tool_use_id, "")
        native, failed = _called(part)
        error = state.error or failed
        status, code = judged(native, state.status, error, state.metadata)
        self.last_denied = error if status == "denied" else ""
        out: list[Event] = []
        if status == "success":
            out += changes_of(native, state.input, state.metadata, tool_use_id, asked)
            out += plan_of(state.input) if native == "todowrite" else []
        time = state.time
        result = ToolResult(
            tool_use_id=tool_use_id,
            name=name_of(native, failed),
            status=status,
            output=error or state.output,
            exit_code=code,
            duration_ms=time.end - time.start if time is not None and time.end is not None else None,
        )
        return [*out, result]


def _plain(part: ToolPart) -> ToolPart:
    given = as_written(part.state.input) if part.tool == "bash" else part.state.input
    return part if given is part.state.input else replace(part, state=replace(part.state, input=given))


def as_written(given: dict[str, Any]) -> dict[str, Any]:
    """A command's input without what our guard put before it."""
    match given:
        case {"command": str(command)} if command.startswith(MARK):
            return {**given, "command": without_mark(command)}
        case _:
            return given


def _called(part: ToolPart) -> tuple[str, str]:
    """The tool the model meant, and what was wrong with the call."""
    match part.tool, part.state.input:
        case "invalid", {"tool": str(meant), "error": str(error)}:
            return meant, error
        case _:
            return part.tool, ""


def _use(part: ToolPart, tool_use_id: str) -> ToolUse:
    meant, error = _called(part)
    name = name_of(meant, error)
    given: dict[str, Any] = {} if error else part.state.input
    return ToolUse(
        tool_use_id=tool_use_id,
        name=name,
        native_name=meant,
        input=given,
        operation=operation_of(name),
        target=target_of(name, meant, given),
        description=described(given),
    )


def below(events: list[Event], parent: str | None) -> list[Event]:
    """``events`` as those of a sub-agent."""
    return events if parent is None else [replace(event, parent_tool_use_id=parent) for event in events]
