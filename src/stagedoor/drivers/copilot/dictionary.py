"""``copilot --acp``: the protocol's dictionary, with what this CLI leaves out added.

It names no tool, replaces the arguments of a call in the question about it, counts usage over the whole session, and
calls every failure a success; what its records say comes in as events of our own.
"""

from __future__ import annotations

from typing import Any, TypeVar, cast

import msgspec
from msgspec.structs import replace

from ...agents.acp.requests import RequestPermission
from ...agents.acp.responses import AcpUsage, PromptResponse
from ...agents.acp.updates import (
    AcpToolCall,
    AgentMessageChunk,
    AgentThoughtChunk,
    DiffContent,
    SessionUpdate,
    TextContent,
    ToolCallUpdate,
)
from ...unified.diffs import lines_of
from ...unified.events import Error, Event, FileChange, Notice, PermissionRequest, Retry, TurnCompleted
from ...unified.faults import kind_of
from ...wire.fitting import whole_number
from ..acp.dictionary import AcpDictionary, Manner
from ..acp.held_calls import Call
from .records import CopilotFailure, CopilotLine
from .session import NativeEvent, line_of
from .tools import EXIT_LINE, TOOLS, name_of

Chunk = TypeVar("Chunk", AgentMessageChunk, AgentThoughtChunk)
NAME, PARENT = "toolName", "parentToolCallId"
"""What we put beside a call for the protocol's dictionary."""


def _exit_code(raw_output: Any) -> int | None:
    match raw_output:
        case {"contents": [{"type": "shell_exit", "exitCode": code}, *_]}:
            return whole_number(code)
        case _:
            return None


MANNER = Manner(
    tools=TOOLS,
    exit_code=_exit_code,
    name=lambda meta: "" if meta is None else str(meta.get(NAME) or ""),
    parent=lambda meta: None if meta is None else meta.get(PARENT),
)


class CopilotDictionary:
    def __init__(self) -> None:
        self.protocol = AcpDictionary(MANNER)
        self._inputs: dict[str, Any] = {}  # of the calls that run
        self._names: dict[str, str] = {}
        self._tasks: list[str] = []  # the calls that run a sub-agent now
        self._subagents: dict[str, str] = {}  # its id → its call
        self._diffs: dict[str, str] = {}
        self._usage = AcpUsage()
        self._failure: CopilotFailure | None = None
        self._retries = 0
        self._message = ""  # of the present message
        self._repeating = ""  # what of it a new attempt has still to repeat
        self._has_records = False

    def expect_records(self) -> None:
        """What the CLI says itself comes as events of ours. Of a recording only its words can tell it."""
        self._has_records = True

    def translate(self, native: NativeEvent) -> list[Event]:
        match native:
            case SessionUpdate(update=AgentMessageChunk() as chunk, replayed=False) if not self._has_records:
                line = line_of(chunk.text)
                if line is not None and line.level == "error":
                    self._failure = CopilotFailure(message=line.text)
                return self._message_text(native, chunk) if line is None else self._line(line)
            case _:
                return self._translated(native)

    def _translated(self, native: NativeEvent) -> list[Event]:
        match native:
            case CopilotFailure():
                self._failure = native
                return []
            case CopilotLine():
                return self._line(native)
            case SessionUpdate(replayed=True) | SessionUpdate(late=True):
                return self.protocol.translate(native)
            case SessionUpdate(update=AgentThoughtChunk() as chunk) if self._tasks:
                return self.protocol.translate(replace(native, update=self._below(chunk)))
            case SessionUpdate(update=AgentMessageChunk() as chunk):
                return self._message_text(native, chunk)
            case SessionUpdate(update=AcpToolCall() | ToolCallUpdate() as call):
                self._message = self._repeating = ""
                return self._called(native, self._plain(call))
            case RequestPermission():
                return self.protocol.translate(replace(native, tool_call=self._plain(native.tool_call)))
            case PromptResponse():
                return self._turn_ended(native)
            case _:
                return self.protocol.translate(native)

    def _message_text(self, native: SessionUpdate, chunk: AgentMessageChunk) -> list[Event]:
        if self._tasks:
            return self.protocol.translate(replace(native, update=self._below(chunk)))
        new = self._unrepeated(chunk.text)
        content = msgspec.Raw(msgspec.json.encode(TextContent(new)))
        return self.protocol.translate(replace(native, update=replace(chunk, content=content))) if new else []

    def _below(self, chunk: Chunk) -> Chunk:
        """While a sub-agent runs, its agent waits for it: what is said now is said by the sub-agent."""
        return replace(chunk, meta={**(chunk.meta or {}), PARENT: self._tasks[-1]})

    def request(self, question: RequestPermission) -> PermissionRequest:
        return self.protocol.request(replace(question, tool_call=self._plain(question.tool_call)))

    def is_known(self, question: RequestPermission) -> bool:
        return question.tool_call.tool_call_id in self._inputs

    # ------------------------------------------------------------------------------------------------------ calls

    def _called(self, native: SessionUpdate, call: AcpToolCall | ToolCallUpdate) -> list[Event]:
        events = self.protocol.translate(replace(native, update=call))
        if call.status in ("completed", "failed"):
            self._inputs.pop(call.tool_call_id, None)
            self._names.pop(call.tool_call_id, None)
            if call.tool_call_id in self._tasks:
                self._tasks.remove(call.tool_call_id)
        diff = self._diffs.pop(call.tool_call_id, "")
        return [_whole_change(event, diff) if isinstance(event, FileChange) else event for event in events]

    def _plain(self, call: Call) -> Call:
        """``call`` with its name, the arguments it was announced with, and the sub-agent it belongs to."""
        call_id, raw_input = call.tool_call_id, cast("object", call.raw_input)
        if call_id not in self._inputs and isinstance(raw_input, dict):
            arguments = cast("dict[str, Any]", raw_input)
            self._inputs[call_id] = _our_input(arguments)
            self._names[call_id] = name_of(call.title or "", call.kind or "", arguments)
            if self._names[call_id] == "task" and isinstance(call, AcpToolCall):
                self._tasks.append(call_id)
        own: dict[str, Any] = {NAME: self._names.get(call_id, "")}
        match call.meta:
            case {"github.com/copilot": {"agentId": str(agent_id)}} if self._tasks:
                own[PARENT] = self._subagents.setdefault(agent_id, self._tasks[-1])
            case _:
                pass
        content = None if call.content is None else [_plain_content(raw, one) for raw, one in _pairs(call)]
        match call.raw_output:
            case {"detailedContent": str(diff)} if diff.lstrip().startswith("diff --git"):
                self._diffs[call_id] = diff.lstrip()
            case _:
                pass
        raw_output = call.raw_output
        match raw_output:
            case {"message": str(message)}:
                raw_output = message
            case {"content": str(output)} if "contents" not in raw_output:
                raw_output = output
            case _:
                pass
        raw_input = self._inputs.get(call_id) if raw_input is not None else None
        return replace(
            call, raw_input=raw_input, raw_output=raw_output, content=content, meta={**(call.meta or {}), **own}
        )

    # ------------------------------------------------------------------------------------------------------ turns

    def _line(self, line: CopilotLine) -> list[Event]:
        if line.level == "error":
            return []  # the failure that follows says the same
        if "Retrying" in line.text:
            self._retries += 1
            self._repeating = self._message
            return [Retry(attempt=self._retries, reason=line.text)]
        if line.text.startswith("/") or line.text == "Operation cancelled by user":
            return []  # the path of a file that was created, told again with the call; and what we said ourselves
        return [Notice(level="warning" if line.level == "warning" else "info", code="agent", message=line.text)]

    def _turn_ended(self, native: PromptResponse) -> list[Event]:
        failure, self._failure, self._retries = self._failure, None, 0
        self._message = self._repeating = ""
        self._inputs.clear()
        self._names.clear()
        self._tasks.clear()
        self._subagents.clear()
        events = self.protocol.translate(replace(native, usage=self._usage_of_turn(native.usage)))
        if failure is None or native.stop_reason != "end_turn":
            return events
        message = failure.message or "the turn failed, and Copilot CLI does not say why"
        out: list[Event] = []
        for event in events:
            match event:
                case Notice(code="no_answer"):
                    pass
                case TurnCompleted():
                    out.append(Error(kind=kind_of(message, failure.status), message=message, fatal=True))
                    out.append(replace(event, status="error"))
                case _:
                    out.append(event)
        return out

    def _unrepeated(self, words: str) -> str:
        """A new attempt begins the message again: what was shown of it before is not shown twice."""
        same = next((n for n, pair in enumerate(zip(words, self._repeating, strict=False)) if pair[0] != pair[1]), None)
        same = min(len(words), len(self._repeating)) if same is None else same
        self._repeating = self._repeating[same:] if same == len(words) else ""
        new = words[same:]
        self._message += new
        return new

    def _usage_of_turn(self, total: AcpUsage | None) -> AcpUsage | None:
        """It counts all turns together, and what was read from a cache among the input."""
        if total is None:
            return None
        before, self._usage = self._usage, total
        cached = max(0, (total.cached_read_tokens or 0) - (before.cached_read_tokens or 0))
        sent = max(0, total.input_tokens - before.input_tokens)
        return AcpUsage(
            input_tokens=max(0, sent - cached),
            output_tokens=max(0, total.output_tokens - before.output_tokens),
            total_tokens=max(0, total.total_tokens - before.total_tokens),
            thought_tokens=max(0, (total.thought_tokens or 0) - (before.thought_tokens or 0)),
            cached_read_tokens=cached,
        )


def _our_input(arguments: dict[str, Any]) -> dict[str, Any]:
    """A question about an edit that was never announced names its file differently."""
    return {**arguments, "path": arguments["fileName"]} if "fileName" in arguments else arguments


def _pairs(call: AcpToolCall | ToolCallUpdate) -> list[tuple[msgspec.Raw, Any]]:
    return list(zip(call.content or [], call.contents(), strict=True))


def _plain_content(raw: msgspec.Raw, content: Any) -> msgspec.Raw:
    """A new file had no text; and the exit code is no output."""
    match content:
        case DiffContent(old_text=""):
            return msgspec.Raw(msgspec.json.encode(replace(content, old_text=None)))
        case DiffContent():
            return raw
        case _:
            text = getattr(content, "text", "")
            if not EXIT_LINE.search(text):
                return raw
            block = {"type": "content", "content": msgspec.to_builtins(TextContent(EXIT_LINE.sub("", text)))}
            return msgspec.Raw(msgspec.json.encode(block))


def _whole_change(change: FileChange, diff: str) -> FileChange:
    """What it shows of an edit is the piece that was replaced; its records of the call have the change in its place."""
    if change.change == "created":
        return change
    lines = lines_of(diff)
    hunks = next((number for number, line in enumerate(lines) if line.startswith("@@")), len(lines))
    header = lines_of(change.diff)[:2]
    shown = "".join((*header, *lines[hunks:])) if hunks < len(lines) else change.diff
    return replace(change, diff=shown, before=None, after=None)
