"""``kimi acp``: the protocol's dictionary, with this CLI's manners.

It sends a call's arguments piece by piece where others send output, asks about a call without them, tells how much of
the context is used but not what a turn cost, and calls every failure but a wrong key a success; what its records say
comes in as events of our own.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, cast

import msgspec
from msgspec.structs import replace

from ...agents.acp.config import ServedRequest
from ...agents.acp.requests import CreateTerminal, ReadTextFile, RequestPermission
from ...agents.acp.responses import AcpUsage, PromptResponse
from ...agents.acp.updates import (
    AcpToolCall,
    Content,
    DiffContent,
    SessionUpdate,
    TerminalContent,
    TextContent,
    ToolCallUpdate,
)
from ...unified.events import Error, Event, FileChange, Notice, PermissionRequest, ToolResult, TurnCompleted
from ...unified.faults import kind_of
from ...wire.fitting import whole_number
from ..acp.dictionary import OURS, AcpDictionary, Manner
from ..acp.held_calls import Call, HeldCalls
from .records import KimiTurn, NativeEvent
from .tools import TOOLS

NAME, PARENT = "toolName", "parentToolCallId"
UNREPORTED = "Kimi Code does not tell what became of a call of its sub-agents"
"""What we put beside a call for the protocol's dictionary."""
_EXIT_LINE = re.compile(r"\n?Command failed with exit code: (-?\d+)\.?\s*$")
_PREVIEW = re.compile(r"Requesting approval to (?:Running|Starting background): (.*)", re.DOTALL)
NO_ROOM = "Compaction failed"
"""It shortens a conversation that is too long until it gives up."""
CUT_SHORT = "…"


def _exit_code(raw_output: Any) -> int | None:
    match raw_output:
        case {"exitCode": code}:
            return whole_number(code)
        case _:
            return None


MANNER = Manner(
    tools=TOOLS,
    exit_code=_exit_code,
    name=lambda meta: "" if meta is None else str(meta.get(NAME) or ""),
    parent=lambda meta: None if meta is None else meta.get(PARENT),
)


class KimiDictionary:
    def __init__(self) -> None:
        self.protocol = AcpDictionary(MANNER)
        self._early = HeldCalls()
        self._names: dict[str, str] = {}
        self._arguments: dict[str, dict[str, Any]] = {}
        self._turn: KimiTurn | None = None
        self._tasks: list[str] = []  # the calls that run a sub-agent now
        self._below: dict[str, tuple[str, bool | None]] = {}  # a call of a sub-agent → its name, and whether it may run

    def translate(self, native: NativeEvent) -> list[Event]:
        match native:
            case KimiTurn():
                self._turn = native
                return []
            case SessionUpdate(replayed=True) | SessionUpdate(late=True):
                return self.protocol.translate(native)
            case SessionUpdate(update=AcpToolCall() as call):
                self._names[call.tool_call_id] = call.title  # its first title is its name
                self._early.hold(replace(call, content=None))
                return []
            case SessionUpdate(update=ToolCallUpdate() as call) if self._is_streaming(call):
                self._learn(call)
                return []
            case SessionUpdate(update=ToolCallUpdate() as call):
                return self._called(native, call)
            case RequestPermission():
                call = self._asked_about(native)
                if native.tool_call.tool_call_id not in self._names:
                    self._below.setdefault(call.tool_call_id, (call.title or "", None))
                return self.protocol.translate(replace(native, tool_call=call))
            case PromptResponse():
                return self._turn_ended(native)
            case _:
                return self.protocol.translate(native)

    # ------------------------------------------------------------------------------------------------- questions

    def request(self, question: RequestPermission) -> PermissionRequest:
        return self.protocol.request(replace(question, tool_call=self._asked_about(question)))

    def is_known(self, question: RequestPermission) -> bool:
        """What its sub-agents ask about was never announced."""
        call_id = question.tool_call.tool_call_id
        return call_id in self._arguments or (call_id not in self._names and _preview(question) is not None)

    def hides_command(self, question: RequestPermission) -> bool:
        """Whether it asks about a command of which it shows only the beginning."""
        known = self._arguments.get(question.tool_call.tool_call_id)
        if known is not None:
            return question.tool_call.title == "Bash" and not isinstance(known.get("command"), str)
        preview = _preview(question)
        return question.tool_call.title == "Bash" and (preview is None or preview.endswith(CUT_SHORT))

    def answered(self, call_id: str, *, allowed: bool) -> None:
        """What was decided about a call. Of a sub-agent's it tells nothing more."""
        self._below[call_id] = (self._below.get(call_id, ("", None))[0], allowed)

    def call_of(self, request: ServedRequest, place_of: Callable[[str], str]) -> str:
        """The call that this is done for now; empty: nobody announced one. ``place_of``: where a path leads to."""
        if isinstance(request, CreateTerminal):
            call_id = self.protocol.served_call(request)
            return "" if call_id.startswith(OURS) else call_id
        names = ("Read", "Write", "Edit") if isinstance(request, ReadTextFile) else ("Write", "Edit")
        calls = (
            call_id
            for call_id, arguments in self._arguments.items()
            if self._names.get(call_id) in names and place_of(str(arguments.get("path", ""))) == request.path
        )
        return next(calls, "")

    def _asked_about(self, question: RequestPermission) -> ToolCallUpdate:
        call = question.tool_call
        arguments = self._arguments.get(call.tool_call_id)
        name = self._names.get(call.tool_call_id) or call.title or ""
        if arguments is None and name == "Bash":
            arguments = {"command": _preview(question) or ""}
        beside = {NAME: name, PARENT: None if call.tool_call_id in self._names else self._parent}
        diffs = [raw for raw, one in _pairs(call) if isinstance(one, DiffContent)]
        kind = call.kind or ("execute" if name == "Bash" else None)
        return replace(self._early.merged(call), raw_input=arguments, kind=kind, content=diffs, title=name, meta=beside)

    # ----------------------------------------------------------------------------------------------------- calls

    def _is_streaming(self, call: ToolCallUpdate) -> bool:
        return call.status == "in_progress" and call.raw_input is None and call.tool_call_id in self._names

    def _learn(self, call: ToolCallUpdate) -> None:
        """The arguments as far as they have come; only the whole of them can be read."""
        written = "".join(one.text for _, one in _pairs(call) if isinstance(one, Content))
        try:
            arguments: object = msgspec.json.decode(written)
        except (msgspec.DecodeError, UnicodeDecodeError):
            return
        if isinstance(arguments, dict):
            self._arguments[call.tool_call_id] = arguments

    def _called(self, native: SessionUpdate, call: ToolCallUpdate) -> list[Event]:
        call_id = call.tool_call_id
        raw_input: object = call.raw_input
        if isinstance(raw_input, dict):
            self._arguments[call_id] = cast("dict[str, Any]", raw_input)
        finished = call.status in ("completed", "failed")
        plain = self._plain(self._early.release(call), finished=finished)
        events = self.protocol.translate(replace(native, update=plain))
        if finished:
            self._arguments.pop(call_id, None)
            self._names.pop(call_id, None)
            self._below.pop(call_id, None)
            if call_id in self._tasks:
                self._tasks.remove(call_id)
                events = [*self._closed(), *events]
        elif self._names.get(call_id) == "Agent" and call_id not in self._tasks:
            self._tasks.append(call_id)
        return [_whole_change(event) if isinstance(event, FileChange) else event for event in events]

    def _closed(self) -> list[Event]:
        """The end of a sub-agent's calls: only what was asked about is known of them."""
        below, self._below = self._below, {}
        return [
            ToolResult(
                tool_use_id=call_id,
                name=TOOLS.get(name, "other"),
                status="success" if allowed else "error",
                output=UNREPORTED,
                parent_tool_use_id=self._parent,
            )
            for call_id, (name, allowed) in below.items()
            if name
        ]

    @property
    def _parent(self) -> str | None:
        return self._tasks[-1] if self._tasks else None

    def _plain(self, call: Call, *, finished: bool) -> Call:
        """``call`` as other agents send it: what it shows while it runs are its arguments, not output."""
        name, arguments = self._names.get(call.tool_call_id, ""), self._arguments.get(call.tool_call_id)
        content = [raw for raw, one in _pairs(call) if finished or isinstance(one, DiffContent | TerminalContent)]
        raw_output: Any = call.raw_output
        match raw_output:
            case str(output) if name == "Bash" and finished:
                failed = _EXIT_LINE.search(output)
                raw_output = (
                    {"exitCode": int(failed[1]) if failed else 0} if failed or call.status == "completed" else None
                )
                content = [_text(_EXIT_LINE.sub("", output))]
            case _:
                pass
        return replace(
            call,
            title=call.title or name,
            raw_input=arguments,
            raw_output=raw_output,
            content=content,
            meta={NAME: name},
        )

    # ----------------------------------------------------------------------------------------------------- turns

    def _turn_ended(self, native: PromptResponse) -> list[Event]:
        turn, self._turn = self._turn, None
        for known in (self._early, self._names, self._arguments, self._tasks, self._below):
            known.clear()
        usage = turn.usage if turn is not None and turn.usage != AcpUsage() else native.usage
        events = self.protocol.translate(replace(native, usage=usage))
        silent = any(isinstance(event, Notice) and event.code == "no_answer" for event in events)
        turn = turn or KimiTurn()
        # Of a turn that went well there is an answer, or a record that says so: else it is a failure without a word.
        failed = turn.failed or (silent and not turn.ended)
        if not failed or native.stop_reason != "end_turn":
            return events
        message = turn.message or "the turn ended without an answer: this is how Kimi Code ends one that failed"
        out: list[Event] = []
        for event in events:
            match event:
                case Notice(code="no_answer"):
                    pass
                case TurnCompleted():
                    kind = "context_overflow" if message.startswith(NO_ROOM) else kind_of(message, turn.status)
                    out.append(Error(kind=kind, message=message, fatal=True))
                    out.append(replace(event, status="error"))
                case _:
                    out.append(event)
        return out


def _whole_change(change: FileChange) -> FileChange:
    """What it shows of an edit is the piece that was replaced, not the file."""
    return replace(change, before=None, after=None)


def _preview(question: RequestPermission) -> str | None:
    for _, content in _pairs(question.tool_call):
        if isinstance(content, Content) and (match := _PREVIEW.fullmatch(content.text)):
            return match[1]
    return None


def _pairs(call: AcpToolCall | ToolCallUpdate) -> list[tuple[msgspec.Raw, Any]]:
    return list(zip(call.content or [], call.contents(), strict=True))


def _text(text: str) -> msgspec.Raw:
    return msgspec.Raw(msgspec.json.encode({"type": "content", "content": msgspec.to_builtins(TextContent(text))}))
