"""``opencode acp``: the protocol's dictionary, with what OpenCode reports differently corrected.

It announces a call before its input is known, renames it later, calls a failing command completed, and shows the
strings of an edit in place of the file. Its raw output holds what the other drivers report.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar, cast

from msgspec.structs import replace

from ...agents.acp import events as acp_events
from ...agents.acp.events import RequestFailed
from ...agents.acp.requests import RequestPermission
from ...agents.acp.responses import (
    ForkSessionResponse,
    LoadSessionResponse,
    NewSessionResponse,
    PromptResponse,
    ResumeSessionResponse,
)
from ...agents.acp.updates import (
    AcpToolCall,
    AgentMessageChunk,
    AgentThoughtChunk,
    SessionUpdate,
    ToolCallUpdate,
    UsageUpdate,
)
from ...agents.opencode.config import ACP_PROFILE
from ...unified.events import (
    Error,
    Event,
    FileChange,
    Init,
    Notice,
    PermissionRequest,
    ToolResult,
    ToolUse,
    TurnCompleted,
    UsageReport,
    dollars,
)
from ...unified.faults import kind_of
from ...unified.images import with_marks
from ...unified.tools import described
from ..acp.dictionary import AcpDictionary, Manner
from .calls import REJECTED, as_written, changes_of, judge_call, plan_of
from .tools import INVALID, TOOLS, name_of, target_of

Call = TypeVar("Call", bound=AcpToolCall | ToolCallUpdate)
MANNER = Manner(tools=TOOLS, profile=ACP_PROFILE)
INTERNAL = "Internal error: "
LAST_STEP = "OpenCode tells the tokens of the last step only over ACP; the cost is the whole turn's"
_PIECES = frozenset({AgentMessageChunk, AgentThoughtChunk})


class _AnnouncedCall:
    def __init__(self, tool: str) -> None:
        self.tool = tool
        self.input: dict[str, Any] = {}
        self.raw_input: dict[str, Any] | None = None
        """Of which ``input`` and ``diff`` were read."""
        self.diff = ""
        self.has_started = False
        """Until it has, its input is not known: the announcement leaves it empty."""
        self.last: AcpToolCall | ToolCallUpdate | None = None
        """What was said of it last: OpenCode repeats itself."""


class OpenCodeAcpDictionary:
    def __init__(self) -> None:
        self._protocol = AcpDictionary(MANNER)
        self._calls: dict[str, _AnnouncedCall] = {}
        self._spent_before = 0.0
        self._spent: float | None = None
        self._steps = 0
        self._interrupted = False
        self._rejected = False  # whether a call was refused and nothing has followed
        self.continues_after_refusal = False
        """Whether OpenCode is set to continue after a refusal; else that ends the turn."""
        self.on_call: Callable[[], None] = lambda: None
        """Called whenever more of a call is known: a question may overtake that."""

    def has_call_of(self, question: RequestPermission) -> bool:
        """Whether the input of the call it is about is known: a question may hold none, and not even the tool."""
        call = self._calls.get(question.tool_call.tool_call_id)
        return call is not None and call.has_started

    def request(self, question: RequestPermission) -> PermissionRequest:
        """A question shows a diff in place of the call's own input; the request has both."""
        request = self._protocol.request(replace(question, tool_call=self._plain(question.tool_call)))
        call = self._calls.get(request.tool_use_id)
        if call is None:
            return request
        name = name_of(call.tool)
        arguments = {**call.input, **({"diff": call.diff} if call.diff else {})} or request.input
        return replace(
            request,
            tool_name=name,
            native_name=call.tool,
            input=arguments,
            target=target_of(name, call.tool, arguments) or question.tool_call.title or request.target,
            description=described(arguments),
        )

    def interrupt(self) -> None:
        """The caller refused a call and with it the turn, which OpenCode then ends like any other."""
        self._interrupted = True

    def translate(self, native: acp_events.Event) -> list[Event]:
        if type(native) is SessionUpdate:
            return self._updated(native)
        match native:
            case RequestPermission():
                return self._question(native)
            case (
                NewSessionResponse() | ForkSessionResponse() | LoadSessionResponse() | ResumeSessionResponse()
            ) as opened:
                model = _model(opened.config_options)
                translated = self._protocol.translate(opened)
                return [replace(event, model=model) if isinstance(event, Init) else event for event in translated]
            case PromptResponse():
                return self._end_turn(native)
            case RequestFailed():
                self._end()
                return [_without_prefix(event) for event in self._protocol.translate(native)]
            case _:
                return self._protocol.translate(native)

    def _updated(self, native: SessionUpdate) -> list[Event]:
        update, is_of_turn = native.update, not native.replayed and not native.late
        if is_of_turn and (type(update) is ToolCallUpdate or type(update) is AcpToolCall):
            return self._call_update(update)
        if type(update) is UsageUpdate:
            self._spent = self._spent if update.cost is None else update.cost.amount
            if native.replayed and self._spent is not None:
                self._spent_before = self._spent
            return []
        if type(update) in _PIECES and not native.replayed:
            self._rejected = False
        return self._protocol.update(update) if is_of_turn else self._protocol.translate(native)

    # ------------------------------------------------------------------------------------------------ tool calls

    def _question(self, native: RequestPermission) -> list[Event]:
        """A question about a call that was not announced announces it; else the call itself holds more."""
        is_announced = native.tool_call.tool_call_id in self._calls
        plain = self._plain(native.tool_call)
        return [] if is_announced else self._protocol.translate(replace(native, tool_call=plain))

    def _call_update(self, call: AcpToolCall | ToolCallUpdate) -> list[Event]:
        announced = self._calls.get(call.tool_call_id)
        if announced is not None and announced.last == call:
            return []
        plain = self._plain(call)
        announced = self._calls[call.tool_call_id]
        announced.last = call
        if type(call) is AcpToolCall:
            self._rejected = False
            if call.title in TOOLS:
                announced.tool = call.title  # it may have been guessed from a question
        announced.has_started = announced.has_started or call.status != "pending"
        self.on_call()
        if call.status == "pending":
            return []  # its input comes with the next update
        self._steps += 1
        return [
            completed
            for event in self._protocol.update(plain)
            if type(event) is not FileChange
            for completed in self._completed(event, call, announced)
        ]

    def _completed(self, event: Event, call: AcpToolCall | ToolCallUpdate, announced: _AnnouncedCall) -> list[Event]:
        """``event`` with what only OpenCode's own input and output hold."""
        if type(event) is ToolResult:
            return self._ended(event, call, announced)
        if type(event) is not ToolUse:
            return [event]
        name = name_of(announced.tool)
        title = "" if event.target == announced.tool else event.target  # else it is only the tool's name
        target = target_of(name, announced.tool, announced.input) or title
        return [
            replace(
                event,
                name=name,
                native_name=announced.tool,
                input=announced.input,
                target=target,
                description=described(announced.input),
            )
        ]

    def _ended(self, result: ToolResult, call: AcpToolCall | ToolCallUpdate, announced: _AnnouncedCall) -> list[Event]:
        self._calls.pop(call.tool_call_id, None)
        metadata: Mapping[str, Any] = {}
        output, error = result.output, ""
        match call.raw_output:
            case {"output": str(text), "metadata": dict()}:
                output = with_marks(text, result.images) if result.images else text
                metadata = cast("dict[str, Any]", call.raw_output["metadata"])
            case {"error": str(text)}:
                output = error = text
            case _:
                pass
        match announced.input:
            case {"tool": str(tool), "error": str(text)} if announced.tool == INVALID:
                announced.tool, error = tool, text
            case _:
                pass
        status, code = judge_call(announced.tool, "error" if call.status == "failed" else "completed", error, metadata)
        self._rejected = self._rejected or error == REJECTED
        ended = replace(result, name=name_of(announced.tool, error), status=status, output=output, exit_code=code)
        if status != "success":
            return [ended]
        changes = changes_of(announced.tool, announced.input, metadata, call.tool_call_id, announced.diff)
        return [*changes, *(plan_of(announced.input) if announced.tool == "todowrite" else []), ended]

    def _plain(self, call: Call) -> Call:
        """``call`` under the name it started with; its input is kept for its own events."""
        announced = self._calls.get(call.tool_call_id)
        if announced is None:
            announced = self._calls[call.tool_call_id] = _AnnouncedCall(_tool_of(call))
        raw_input: object = call.raw_input
        if isinstance(raw_input, dict) and raw_input != announced.raw_input:
            arguments = as_written(cast("dict[str, Any]", raw_input))
            diff: object = arguments.get("diff")
            if isinstance(diff, str):
                announced.diff = diff
            if call.status != "pending" or not announced.input:
                own = {key: value for key, value in arguments.items() if key not in ("cwd", "diff")}
                announced.input = own or announced.input
                announced.raw_input = cast("dict[str, Any]", raw_input)
        return call if call.title == announced.tool else replace(call, title=announced.tool)

    # ----------------------------------------------------------------------------------------------------- turns

    def _end_turn(self, native: PromptResponse) -> list[Event]:
        spent = None if self._spent is None else dollars(self._spent - self._spent_before) or None
        self._spent_before = self._spent or self._spent_before
        several = self._steps > 0
        gave_up = native.stop_reason == "end_turn" and self._rejected and not self.continues_after_refusal
        interrupted = self._interrupted or gave_up
        self._end()
        out: list[Event] = []
        for event in self._protocol.translate(native):
            match event:
                case UsageReport():
                    out.append(replace(event, cost_usd=spent))
                    if several:
                        out.append(Notice(level="info", code="usage_of_last_step", message=LAST_STEP))
                case TurnCompleted():
                    usage = replace(event.usage, cost_usd=spent)
                    status = "interrupted" if interrupted else event.status
                    out.append(replace(event, usage=usage, status=status))
                case Notice(code="no_answer") if interrupted:
                    pass
                case _:
                    out.append(event)
        return out

    def _end(self) -> None:
        self._calls.clear()
        self._steps, self._interrupted, self._rejected = 0, False, False


def _tool_of(call: AcpToolCall | ToolCallUpdate) -> str:
    """The first title of a call is its tool's name; that of a question about an unknown one is not."""
    title = call.title or ""
    if title in TOOLS:
        return title
    match call.kind:
        case "execute":
            return "bash"
        case "edit":
            return "edit"
        case "fetch":
            return "webfetch"
        case _:
            return _by_input(call.raw_input) or title


def _by_input(raw_input: object) -> str:
    """For a question about an unknown call: the most that it can be."""
    match raw_input:
        case {"command": str()}:
            return "bash"
        case {"filePath": str()} | {"filepath": str()}:
            return "edit"
        case _:
            return ""


def _model(options: Any) -> str:
    """The protocol has no other place for it."""
    for option in options or ():
        if getattr(option, "id", "") == "model":
            return str(getattr(option, "current_value", ""))
    return ""


def _without_prefix(event: Event) -> Event:
    if not isinstance(event, Error) or not event.message.startswith(INTERNAL):
        return event
    message = event.message.removeprefix(INTERNAL)
    return replace(event, message=message, kind=kind_of(message))
