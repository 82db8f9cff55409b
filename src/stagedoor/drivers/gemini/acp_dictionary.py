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
from ...agents.acp.events import RequestFailed
from ...agents.acp.requests import RequestPermission
from ...agents.acp.responses import PromptResponse
from ...agents.acp.updates import (
    AcpToolCall,
    AgentMessageChunk,
    AgentThoughtChunk,
    AvailableCommandsUpdate,
    Content,
    Diff,
    SessionUpdate,
    TextContent,
    ToolCallUpdate,
)
from ...agents.gemini.config import PROFILE
from ...agents.gemini.events import Paused
from ...agents.gemini.launch import words
from ...agents.gemini.records import ToolDetails
from ...transports.launch import Exited
from ...unified.events import (
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
from ..acp.dictionary import AcpDictionary, Manner
from .corrections import MESSAGE, Repeats, ended, error_of, is_denied, once
from .tools import MCP, TOOLS, target_of

NativeEvent: TypeAlias = acp_events.Event | ToolDetails | Paused
Call = TypeVar("Call", bound=AcpToolCall | ToolCallUpdate)
MANNER = Manner(tools=TOOLS, profile=PROFILE)
_EXPLANATION = re.compile(r"(?:\[[^\]]*\] ?)?\((.+)\)", re.DOTALL)
_TITLES = {
    "google_web_search": re.compile(r'Searching the web for: "(?P<query>.*)"', re.DOTALL),
    "web_fetch": re.compile(r'Fetching content from: (?P<url>.*)|Processing .* prompt: "(?P<prompt>.*)"', re.DOTALL),
}
MODE = "[MODE_UPDATE]"
NO_ANSWER = "the model gave no answer: its stream was empty or broke off, also when asked again"


class GeminiAcpDictionary:
    def __init__(self) -> None:
        self._protocol = AcpDictionary(MANNER)
        self._ending: list[ToolUse | FileChange | ToolResult] = []
        self._asked: str | None = None
        self._refused: dict[str, str] = {}
        self._thinking = False
        self._pieces: list[str] = []  # of the message that is being said
        self._repeats = Repeats()
        self._paused = False
        self._repeated = False
        self._acted = False

    def translate(self, native: NativeEvent) -> list[Event]:
        match native:
            case ToolDetails():
                return self._closed(native)
            case Paused():
                self._paused = True
                return []
            case SessionUpdate(update=AgentMessageChunk() as chunk, replayed=False) if chunk.text.startswith(MODE):
                return self._protocol.translate(native)  # a mode that changes is no sign that the agent goes on
            case SessionUpdate(update=AgentMessageChunk() as chunk, replayed=False):
                self._thinking = False
                return [*self._closed(None), *self._refusals(native), *self._said(chunk)]
            case SessionUpdate(replayed=True) | SessionUpdate(update=AvailableCommandsUpdate()):
                return self._protocol.translate(native)
            case SessionUpdate(update=AgentThoughtChunk() as chunk):
                return [*self._closed(None), *self._refusals(native), *self._thought(native, chunk)]
            case _:
                self._thinking = False
                return [*self._closed(None), *self._refusals(native), *self._held(), *self._translated(native)]

    def _translated(self, native: acp_events.Event) -> list[Event]:
        match native:
            case SessionUpdate(update=AcpToolCall() | ToolCallUpdate() as call):
                return self._called(replace(native, update=_plain(call)))
            case RequestPermission():
                self._asked = native.tool_call.tool_call_id
                self._acted = True
                self._pieces.clear()
                return self._protocol.translate(replace(native, tool_call=_plain(native.tool_call)))
            case PromptResponse():
                return self._over(native)
            case Exited():
                said = words(native.stderr) if native.code > 0 else ""  # a signal was ours; the rest is mostly chatter
                message = f"Gemini CLI ended with code {native.code}: {said}"
                return [Notice(level="warning", code="exited", message=message)] if said else []
            case RequestFailed():
                self._ended()
                return [self._plainly(native, event) for event in self._protocol.translate(native)]
            case _:
                return self._protocol.translate(native)

    def request(self, asked: RequestPermission) -> PermissionRequest:
        return self._protocol.request(replace(asked, tool_call=_plain(asked.tool_call)))

    def refuse(self, tool_call_id: str, message: str) -> None:
        """What the caller said to refuse this call. The CLI does not pass it on, and never mentions the call again."""
        if message:
            self._refused[tool_call_id] = message

    def _said(self, chunk: AgentMessageChunk) -> list[Event]:
        paused, self._paused = self._paused, False
        new, repeated = self._repeats.feed(chunk.text, paused=paused)
        out: list[Event] = []
        if repeated:
            self._repeated = True
            out.append(Notice(level="warning", code="text_repeated", message=MESSAGE))
        return [*out, *self._spoken(new)] if new else out

    def _thought(self, native: SessionUpdate, chunk: AgentThoughtChunk) -> list[Event]:
        """Each is a whole thought. What was said before it is not forgotten: a new attempt thinks before it repeats."""
        again, self._thinking = self._thinking, True
        content = msgspec.Raw(msgspec.json.encode(TextContent(f"\n\n{chunk.text}" if again else chunk.text)))
        return self._protocol.translate(replace(native, update=replace(chunk, content=content)))

    def _held(self) -> list[Event]:
        return self._spoken(held) if (held := self._repeats.finish()) else []

    def _spoken(self, text: str) -> list[Event]:
        self._pieces.append(text)
        content = msgspec.Raw(msgspec.json.encode(TextContent(text)))
        return self._protocol.translate(SessionUpdate("", AgentMessageChunk(content)))

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

    def _refusals(self, native: acp_events.Event) -> list[Event]:
        """A call that was asked about ends with an update, unless it was refused: then something else comes next."""
        asked = self._asked
        if asked is None:
            return []
        match native:
            case SessionUpdate(update=AcpToolCall() | ToolCallUpdate() as call) if call.tool_call_id == asked:
                self._asked = None
                return []
            case RequestPermission() if native.tool_call.tool_call_id == asked:
                return []
            case SessionUpdate(update=AgentMessageChunk() | AgentThoughtChunk() | AcpToolCall() | ToolCallUpdate()):
                self._asked = None
            case RequestPermission() | PromptResponse(stop_reason="end_turn"):
                self._asked = None
            case _:
                return []
        return [
            ToolResult(
                tool_use_id=asked,
                name=TOOLS.get(PROFILE.tool_name(asked) or "", "other"),
                status="denied",
                output=self._refused.pop(asked, "the user refused it"),
            )
        ]

    def _ended(self) -> None:
        self._pieces, self._acted, self._repeated, self._asked = [], False, False, None

    def _over(self, native: PromptResponse) -> list[Event]:
        pieces, silent, repeated = self._pieces, not self._pieces and not self._acted, self._repeated
        self._ended()
        made = self._protocol.translate(native)
        completed = next((event for event in made if isinstance(event, TurnCompleted)), None)
        if native.stop_reason != "end_turn" or completed is None:
            return made
        attempt = once(pieces) if completed.usage == Usage() else None  # of a recording, which tells no pauses
        broken = completed.usage == Usage() and (repeated or attempt is not None)
        if not silent and not broken:
            return made
        out: list[Event] = []
        for event in made:
            match event:
                case Text() if attempt is not None:
                    out += [
                        Notice(level="warning", code="text_repeated", message=MESSAGE),
                        replace(event, text=attempt),
                    ]
                case Notice(code="no_answer"):
                    pass  # said with what is wrong about it
                case TurnCompleted():
                    out += [
                        Notice(level="warning", code="no_answer", message="the CLI calls this turn a finished one"),
                        Error(kind="connection_failed" if broken else "unknown", message=NO_ANSWER, fatal=True),
                        replace(event, status="error"),
                    ]
                case _:
                    out.append(event)
        return out

    def _plainly(self, native: RequestFailed, event: Event) -> Event:
        if not isinstance(event, Error):
            return event
        return error_of(event.message, fatal=event.fatal, status=native.code if 400 <= native.code < 600 else None)


def _told(use: ToolUse, details: ToolDetails | None) -> ToolUse:
    if details is None or details.tool_id != use.tool_use_id:
        return use
    target = target_of(use.name, use.native_name, details.args) or use.target
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


def _arguments(call: AcpToolCall | ToolCallUpdate, explanation: str) -> Any:
    """What can be known of a call's arguments: most have a telling title, an MCP call explains itself as JSON."""
    tool = PROFILE.tool_name(call.tool_call_id) or ""
    if tool == "run_shell_command":
        described = _EXPLANATION.fullmatch(explanation)
        return {"command": call.title or "", **({"description": described[1]} if described else {})}
    if tool in _TITLES and (told := _TITLES[tool].match(call.title or "")):
        known = {key: value for key, value in told.groupdict().items() if value is not None}
        address = target_of("web_fetch", tool, known) if tool == "web_fetch" else ""
        return {**known, "url": address} if address else known
    if tool.startswith(MCP):
        try:
            given: object = msgspec.json.decode(explanation)
        except (msgspec.DecodeError, ValueError):
            return None
        return cast("dict[str, Any]", given) if isinstance(given, dict) else None
    return None
