"""``gemini --acp``: the protocol's dictionary, with what this CLI leaves out put in and what it says wrongly corrected.

It tells neither a tool's name nor its arguments, calls a failing command a success, never mentions a call again that
was refused, and ends a turn without any answer as if it were a good one.
"""

from __future__ import annotations

import re
from typing import Any, TypeAlias, TypeVar, cast

import msgspec
from msgspec.structs import replace

from ...agents.acp import events as acp_events
from ...agents.acp.content import Content, Diff
from ...agents.acp.requests import RequestPermission
from ...agents.acp.responses import PromptResponse
from ...agents.acp.updates import AgentMessageChunk, SessionUpdate, ToolCall, ToolCallUpdate
from ...agents.gemini.acp import PROFILE
from ...agents.gemini.records import ToolDetails
from ..acp import AcpDictionary, Manner
from ..events import (
    Error,
    Event,
    FileChange,
    Notice,
    PermissionRequest,
    Text,
    ToolResult,
    ToolUse,
    TurnCompleted,
    Usage,
)
from ..tools import target_of
from .endings import ended, is_denied
from .repeats import once
from .tools import MCP, TOOLS

NativeEvent: TypeAlias = acp_events.Event | ToolDetails
Call = TypeVar("Call", bound=ToolCall | ToolCallUpdate)
MANNER = Manner(tools=TOOLS, profile=PROFILE)
_EXPLANATION = re.compile(r"(?:\[[^\]]*\] ?)?\((.+)\)", re.DOTALL)
NO_ANSWER = "the model gave no answer: its stream was empty or broke off, also when asked again"


class GeminiAcpDictionary:
    def __init__(self) -> None:
        self._protocol = AcpDictionary(MANNER)
        self._ending: list[ToolUse | FileChange | ToolResult] = []
        self._refused: dict[str, str] = {}
        self._pieces: list[str] = []  # of the message that is being said
        self._acted = False

    def translate(self, native: NativeEvent) -> list[Event]:
        if isinstance(native, ToolDetails):
            return self._closed(native)
        out = [*self._closed(None), *self._refusals(native)]
        match native:
            case SessionUpdate(update=ToolCall() | ToolCallUpdate() as call, replayed=False):
                return [*out, *self._called(replace(native, update=_plain(call)))]
            case SessionUpdate(update=AgentMessageChunk() as chunk, replayed=False):
                self._pieces.append(chunk.text)
                return [*out, *self._protocol.translate(native)]
            case RequestPermission():
                self._acted = True
                self._pieces.clear()
                return [*out, *self._protocol.translate(replace(native, tool_call=_plain(native.tool_call)))]
            case PromptResponse():
                return [*out, *self._over(native)]
            case _:
                return [*out, *self._protocol.translate(native)]

    def request(self, asked: RequestPermission) -> PermissionRequest:
        return self._protocol.request(replace(asked, tool_call=_plain(asked.tool_call)))

    def refuse(self, tool_call_id: str, message: str) -> None:
        """The call was denied: the CLI will never mention it again, so its end is told with whatever comes next."""
        self._refused[tool_call_id] = message or "denied"

    def _called(self, native: SessionUpdate) -> list[Event]:
        self._acted = True
        self._pieces.clear()
        made = self._protocol.translate(native)
        if not any(isinstance(event, ToolResult) for event in made):
            return made
        # Its details come next, where there is a session file. A call that was refused at once is only now heard of.
        self._ending = [event for event in made if isinstance(event, ToolUse | FileChange | ToolResult)]
        return [event for event in made if not isinstance(event, ToolUse | FileChange | ToolResult)]

    def _closed(self, details: ToolDetails | None) -> list[Event]:
        """The call that has just ended."""
        ending, self._ending = self._ending, []
        changes = [event for event in ending if isinstance(event, FileChange)]
        out: list[Event] = []
        for event in ending:
            match event:
                case ToolUse():
                    out.append(_told(event, details))
                case ToolResult():
                    about = details if details is not None and details.tool_id == event.tool_use_id else None
                    denied = event.status == "error" and is_denied(event.output)
                    out += ended(replace(event, status="denied") if denied else event, changes, about)
                case FileChange():
                    pass
        return out

    def _refusals(self, native: NativeEvent) -> list[Event]:
        about = native.tool_call.tool_call_id if isinstance(native, RequestPermission) else ""
        over = {call: message for call, message in self._refused.items() if call != about}
        for call in over:
            del self._refused[call]
        return [
            ToolResult(
                tool_use_id=call,
                name=TOOLS.get(PROFILE.tool_name(call) or "", "other"),
                status="denied",
                output=message,
            )
            for call, message in over.items()
        ]

    def _over(self, native: PromptResponse) -> list[Event]:
        pieces, self._pieces = self._pieces, []
        silent, self._acted = not pieces and not self._acted, False
        made = self._protocol.translate(native)
        if native.stop_reason != "end_turn":
            return made
        completed = next((event for event in made if isinstance(event, TurnCompleted)), TurnCompleted(status="success"))
        attempt = once(pieces) if completed.usage == Usage() else None
        if not silent and attempt is None:
            return made
        out: list[Event] = []
        for event in made:
            match event:
                case Text() if attempt is not None:
                    message = "the answer broke off and was asked for again; the whole text has it once"
                    out += [
                        Notice(level="warning", code="text_repeated", message=message),
                        replace(event, text=attempt),
                    ]
                case TurnCompleted():
                    notice = "the CLI calls the turn finished, but the model did not finish its answer"
                    out += [
                        Notice(level="warning", code="no_answer", message=notice),
                        Error(kind="connection_failed", message=NO_ANSWER, fatal=True),
                        replace(event, status="error"),
                    ]
                case _:
                    out.append(event)
        return out


def _told(use: ToolUse, details: ToolDetails | None) -> ToolUse:
    if details is None or details.tool_id != use.tool_use_id:
        return use
    target = target_of(use.name, details.args) or use.target
    return replace(use, input=details.args or use.input, target=target)


def _plain(call: Call) -> Call:
    """``call`` as other agents say it: the explanation it shows before it runs is no output, a new file had no text."""
    explained: list[str] = []
    kept: list[msgspec.Raw] = []
    finished = call.status in ("completed", "failed")
    for raw, content in zip(call.content or [], call.contents(), strict=True):
        match content:
            case Content() if not finished:
                explained.append(content.text)
            case Diff(old_text="", meta={"kind": "add"}):
                kept.append(msgspec.Raw(msgspec.json.encode(replace(content, old_text=None))))
            case _:
                kept.append(raw)
    raw_input = call.raw_input if finished else _arguments(call, "\n".join(explained))
    return replace(call, content=None if call.content is None else kept, raw_input=raw_input)


def _arguments(call: ToolCall | ToolCallUpdate, explanation: str) -> Any:
    """What can be known of a call's arguments: a command is its title, an MCP call explains itself as JSON."""
    tool = PROFILE.tool_name(call.tool_call_id) or ""
    if tool == "run_shell_command":
        described = _EXPLANATION.fullmatch(explanation)
        return {"command": call.title or "", **({"description": described[1]} if described else {})}
    if tool.startswith(MCP):
        try:
            given: object = msgspec.json.decode(explanation)
        except (msgspec.DecodeError, ValueError):
            return None
        return cast("dict[str, Any]", given) if isinstance(given, dict) else None
    return None
