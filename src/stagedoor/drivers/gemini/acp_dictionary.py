"""``gemini --acp``: the protocol's dictionary, with what this CLI leaves out added and what it gets wrong corrected.

It sends neither a tool's name nor its arguments, calls a failing command a success, never mentions a call again that
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
    DiffContent,
    SessionUpdate,
    TextContent,
    ToolCallUpdate,
)
from ...agents.gemini.config import PROFILE
from ...agents.gemini.events import Paused
from ...agents.gemini.launch import error_line
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
from ...unified.settings import AgentReport
from ..acp.dictionary import AcpDictionary, Manner
from .corrections import MESSAGE, Repeats, call_ended, error_of, is_denied, repeated_text
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
REFUSED = "the user refused it"
NO_ANSWER = "the model gave no answer: its stream was empty or broke off, also when asked again"


class GeminiAcpDictionary:
    def __init__(self) -> None:
        self._protocol = AcpDictionary(MANNER)
        self._ending: list[ToolUse | FileChange | ToolResult] = []
        self._answers_known = False
        self._questions: dict[str, None] = {}  # the calls that were asked about and have not been heard of since
        self._refused: dict[str, str] = {}
        self._thinking = False
        self._pieces: list[str] = []  # of the present message
        self._repeats = Repeats()
        self._paused = False
        self._repeated = False
        self._acted = False

    @property
    def report(self) -> AgentReport:
        """Its commands are left out: a prompt is sent so that none of them is run."""
        return replace(self._protocol.report, commands=())

    def translate(self, native: NativeEvent) -> list[Event]:
        match native:
            case ToolDetails():
                return self._close_call(native)
            case Paused():
                self._paused = True
                return []
            case SessionUpdate(update=AgentMessageChunk() as chunk, replayed=False) if chunk.text.startswith(MODE):
                return self._protocol.translate(native)  # a mode that changes is no sign that the agent continues
            case SessionUpdate(update=AgentMessageChunk() as chunk, replayed=False, late=False):
                self._thinking = False
                return [*self._close_call(None), *self._refusals(native), *self._text(chunk)]
            case (
                SessionUpdate(replayed=True)
                | SessionUpdate(late=True)
                | SessionUpdate(update=AvailableCommandsUpdate())
            ):
                return self._protocol.translate(native)
            case SessionUpdate(update=AgentThoughtChunk() as chunk):
                return [*self._close_call(None), *self._refusals(native), *self._thought(native, chunk)]
            case _:
                self._thinking = False
                return [*self._close_call(None), *self._refusals(native), *self._held_text(), *self._translated(native)]

    def _translated(self, native: acp_events.Event) -> list[Event]:
        match native:
            case SessionUpdate(update=AcpToolCall() | ToolCallUpdate() as call):
                return self._called(replace(native, update=_plain(call)))
            case RequestPermission():
                self._questions[native.tool_call.tool_call_id] = None
                self._acted = True
                self._pieces.clear()
                return self._protocol.translate(replace(native, tool_call=_plain(native.tool_call)))
            case PromptResponse():
                return self._turn_ended(native)
            case Exited():
                reason = error_line(native.stderr) if native.code > 0 else ""  # a signal was ours; or just chatter
                message = f"Gemini CLI ended with code {native.code}: {reason}"
                return [Notice(level="warning", code="exited", message=message)] if reason else []
            case RequestFailed():
                self._reset_turn()
                return [self._corrected(native, event) for event in self._protocol.translate(native)]
            case _:
                return self._protocol.translate(native)

    def request(self, question: RequestPermission) -> PermissionRequest:
        return self._protocol.request(replace(question, tool_call=_plain(question.tool_call)))

    def expect_answers(self) -> None:
        """``allow`` and ``refuse`` will be called. Of a recording of one side nobody can say what was answered."""
        self._answers_known = True

    def refuse(self, tool_call_id: str, message: str) -> None:
        """The caller's message with a refusal. The CLI does not pass it on, and never mentions the call again."""
        self._refused[tool_call_id] = message or REFUSED

    def allow(self, tool_call_id: str) -> None:
        """The call was allowed: it runs, and tells how it ends."""
        self._refused.pop(tool_call_id, None)

    def _text(self, chunk: AgentMessageChunk) -> list[Event]:
        paused, self._paused = self._paused, False
        new, repeated = self._repeats.feed(chunk.text, paused=paused)
        out: list[Event] = []
        if repeated:
            self._repeated = True
            out.append(Notice(level="warning", code="text_repeated", message=MESSAGE))
        return [*out, *self._translated_text(new)] if new else out

    def _thought(self, native: SessionUpdate, chunk: AgentThoughtChunk) -> list[Event]:
        """Each is a whole thought. The text before it is not forgotten: a new attempt thinks before it repeats."""
        again, self._thinking = self._thinking, True
        content = msgspec.Raw(msgspec.json.encode(TextContent(f"\n\n{chunk.text}" if again else chunk.text)))
        return self._protocol.translate(replace(native, update=replace(chunk, content=content)))

    def _held_text(self) -> list[Event]:
        return self._translated_text(text) if (text := self._repeats.finish()) else []

    def _translated_text(self, text: str) -> list[Event]:
        self._pieces.append(text)
        content = msgspec.Raw(msgspec.json.encode(TextContent(text)))
        return self._protocol.translate(SessionUpdate("", AgentMessageChunk(content)))

    def _called(self, native: SessionUpdate) -> list[Event]:
        self._acted = True
        self._pieces.clear()
        events = self._protocol.translate(native)
        if not any(isinstance(event, ToolResult) for event in events):
            return events
        # Its details come next, where there is a session file. A call that was refused at once appears only now.
        self._ending = [event for event in events if isinstance(event, ToolUse | FileChange | ToolResult)]
        return [event for event in events if not isinstance(event, ToolUse | FileChange | ToolResult)]

    def _close_call(self, details: ToolDetails | None) -> list[Event]:
        """The call that has just ended."""
        ending, self._ending = self._ending, []
        changes = [event for event in ending if isinstance(event, FileChange)]
        out: list[Event] = []
        for event in ending:
            match event:
                case ToolUse():
                    out.append(_detailed_use(event, details))
                case ToolResult():
                    about = details if details is not None and details.tool_id == event.tool_use_id else None
                    denied = event.status == "error" and is_denied(event.output)
                    out += call_ended(replace(event, status="denied") if denied else event, changes, about)
                case FileChange():
                    pass
        return out

    def _refusals(self, native: acp_events.Event) -> list[Event]:
        """The end of calls that were refused: they are not mentioned again. Others may go on while a question is open,
        so that only what was answered tells which they are; where that is not known, that the model goes on does."""
        match native:
            case SessionUpdate(update=AcpToolCall() | ToolCallUpdate() as call):
                self._questions.pop(call.tool_call_id, None)
                over = self._answers_known
            case RequestPermission():
                over = self._answers_known
            case (
                SessionUpdate(update=AgentMessageChunk() | AgentThoughtChunk()) | PromptResponse(stop_reason="end_turn")
            ):
                over = True
            case _:
                return []
        if not over or not self._questions:
            return []
        refused = [call_id for call_id in self._questions if call_id in self._refused or not self._answers_known]
        for call_id in refused:
            del self._questions[call_id]
        return [
            ToolResult(
                tool_use_id=call_id,
                name=TOOLS.get(PROFILE.tool_name(call_id) or "", "other"),
                status="denied",
                output=self._refused.pop(call_id, REFUSED),
            )
            for call_id in refused
        ]

    def _reset_turn(self) -> None:
        self._pieces, self._acted, self._repeated = [], False, False
        self._questions.clear()
        self._refused.clear()

    def _turn_ended(self, native: PromptResponse) -> list[Event]:
        pieces, silent, repeated = self._pieces, not self._pieces and not self._acted, self._repeated
        self._reset_turn()
        events = self._protocol.translate(native)
        completed = next((event for event in events if isinstance(event, TurnCompleted)), None)
        if native.stop_reason != "end_turn" or completed is None:
            return events
        attempt = repeated_text(pieces) if completed.usage == Usage() else None  # of a recording, which has no pauses
        broken = completed.usage == Usage() and (repeated or attempt is not None)
        if not silent and not broken:
            return events
        out: list[Event] = []
        for event in events:
            match event:
                case Text() if attempt is not None:
                    out += [
                        Notice(level="warning", code="text_repeated", message=MESSAGE),
                        replace(event, text=attempt),
                    ]
                case Notice(code="no_answer"):
                    pass  # the error below says more
                case TurnCompleted():
                    out += [
                        Notice(level="warning", code="no_answer", message="the CLI calls this turn a finished one"),
                        Error(kind="connection_failed" if broken else "unknown", message=NO_ANSWER, fatal=True),
                        replace(event, status="error"),
                    ]
                case _:
                    out.append(event)
        return out

    def _corrected(self, native: RequestFailed, event: Event) -> Event:
        if not isinstance(event, Error):
            return event
        return error_of(event.message, fatal=event.fatal, status=native.code if 400 <= native.code < 600 else None)


def _detailed_use(use: ToolUse, details: ToolDetails | None) -> ToolUse:
    if details is None or details.tool_id != use.tool_use_id:
        return use
    target = target_of(use.name, use.native_name, details.args) or use.target
    return replace(use, input=details.args or use.input, target=target)


def _plain(call: Call) -> Call:
    """``call`` as other agents send it: its explanation before it runs is no output, a new file had no text."""
    explained: list[str] = []
    contents: list[msgspec.Raw] = []
    finished = call.status in ("completed", "failed")
    for raw, content in zip(call.content or [], call.contents(), strict=True):
        match content:
            case Content() if not finished:
                explained.append(content.text)
            case DiffContent(old_text="", meta={"kind": "add"}):
                contents.append(msgspec.Raw(msgspec.json.encode(replace(content, old_text=None))))
            case _:
                contents.append(raw)
    raw_input = call.raw_input if finished else _arguments(call, "\n".join(explained))
    return replace(call, content=None if call.content is None else contents, raw_input=raw_input)


def _arguments(call: AcpToolCall | ToolCallUpdate, explanation: str) -> Any:
    """What the update reveals of a call's arguments: most have a telling title, an MCP call explains itself as JSON."""
    tool = PROFILE.tool_name(call.tool_call_id) or ""
    if tool == "run_shell_command":
        described = _EXPLANATION.fullmatch(explanation)
        return {"command": call.title or "", **({"description": described[1]} if described else {})}
    if tool in _TITLES and (title := _TITLES[tool].match(call.title or "")):
        arguments = {key: value for key, value in title.groupdict().items() if value is not None}
        address = target_of("web_fetch", tool, arguments) if tool == "web_fetch" else ""
        return {**arguments, "url": address} if address else arguments
    if tool.startswith(MCP):
        try:
            explained: object = msgspec.json.decode(explanation)
        except (msgspec.DecodeError, ValueError):
            return None
        return cast("dict[str, Any]", explained) if isinstance(explained, dict) else None
    return None
