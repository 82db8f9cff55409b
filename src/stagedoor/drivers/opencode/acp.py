"""``opencode acp``: the protocol's dictionary, with what OpenCode says differently put right.

It announces a call before its input is known, renames it as it goes on, calls a failing command completed, and shows
the strings of an edit in place of the file. Its raw output holds what the other drivers say.
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
from ...agents.opencode.acp import PROFILE
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
from ...unified.tools import described
from ..acp.dictionary import AcpDictionary, Manner
from .calls import REJECTED, as_written, judged
from .changes import changes_of, plan_of
from .tools import TOOLS, name_of, target_of

Call = TypeVar("Call", bound=AcpToolCall | ToolCallUpdate)
MANNER = Manner(tools=TOOLS, profile=PROFILE)
INTERNAL = "Internal error: "
LAST_STEP = "OpenCode tells the tokens of the last step only over ACP; the cost is the whole turn's"


class _Call:
    def __init__(self, tool: str) -> None:
        self.tool = tool
        self.input: dict[str, Any] = {}
        self.diff = ""


class OpenCodeAcpDictionary:
    def __init__(self) -> None:
        self._protocol = AcpDictionary(MANNER)
        self._calls: dict[str, _Call] = {}
        self._spent_before = 0.0
        self._spent: float | None = None
        self._steps = 0
        self._interrupted = False
        self._rejected = False  # whether a call was refused and nothing has followed
        self.goes_on = False
        """Whether OpenCode was told to go on after a refusal; else that ends the turn."""
        self.on_call: Callable[[], None] = lambda: None
        """Told whenever a call is announced: a question may overtake that."""

    def knows(self, asked: RequestPermission) -> bool:
        """Whether the call it is about has been announced. A question about leaving the project names no tool."""
        return asked.tool_call.tool_call_id in self._calls

    def request(self, asked: RequestPermission) -> PermissionRequest:
        """A question shows a diff in place of the call's own input; both are told."""
        made = self._protocol.request(replace(asked, tool_call=self._plain(asked.tool_call)))
        call = self._calls.get(made.tool_use_id)
        if call is None:
            return made
        name = name_of(call.tool)
        given = {**call.input, **({"diff": call.diff} if call.diff else {})} or made.input
        target = target_of(name, call.tool, given) or asked.tool_call.title or made.target
        return replace(
            made, tool_name=name, native_name=call.tool, input=given, target=target, description=described(given)
        )

    def interrupt(self) -> None:
        """The caller refused a call and with it the turn, which ends as if nothing had happened."""
        self._interrupted = True

    def translate(self, native: acp_events.Event) -> list[Event]:
        match native:
            case SessionUpdate(update=UsageUpdate() as spent):
                self._spent = self._spent if spent.cost is None else spent.cost.amount
                if native.replayed and self._spent is not None:
                    self._spent_before = self._spent
                return []
            case SessionUpdate(update=AcpToolCall() | ToolCallUpdate() as call, replayed=False):
                return self._called(native, call)
            case SessionUpdate(update=AgentMessageChunk() | AgentThoughtChunk(), replayed=False):
                self._rejected = False
                return self._protocol.translate(native)
            case RequestPermission():
                return self._announced(native)
            case (
                NewSessionResponse() | ForkSessionResponse() | LoadSessionResponse() | ResumeSessionResponse()
            ) as opened:
                model = _model(opened.config_options)
                made = self._protocol.translate(opened)
                return [replace(event, model=model) if isinstance(event, Init) else event for event in made]
            case PromptResponse():
                return self._over(native)
            case RequestFailed():
                self._end()
                return [_plainly(event) for event in self._protocol.translate(native)]
            case _:
                return self._protocol.translate(native)

    # ------------------------------------------------------------------------------------------------ tool calls

    def _announced(self, native: RequestPermission) -> list[Event]:
        """A question about a call that nobody has announced does so; else the call itself tells more."""
        is_known = native.tool_call.tool_call_id in self._calls
        plain = self._plain(native.tool_call)
        return [] if is_known else self._protocol.translate(replace(native, tool_call=plain))

    def _called(self, native: SessionUpdate, call: AcpToolCall | ToolCallUpdate) -> list[Event]:
        plain = self._plain(call)
        known = self._calls[call.tool_call_id]
        if isinstance(call, AcpToolCall):
            self._rejected = False
            known.tool = call.title if call.title in TOOLS else known.tool  # it may have been guessed from a question
        self.on_call()
        if call.status == "pending":
            return []  # its input comes with the next update
        self._steps += 1
        made = self._protocol.translate(replace(native, update=plain))
        return [told for event in made if not isinstance(event, FileChange) for told in self._told(event, call, known)]

    def _told(self, event: Event, call: AcpToolCall | ToolCallUpdate, known: _Call) -> list[Event]:
        match event:
            case ToolUse():
                name = name_of(known.tool)
                shown = "" if event.target == known.tool else event.target  # its title is only the tool's name
                target = target_of(name, known.tool, known.input) or shown
                return [
                    replace(
                        event,
                        name=name,
                        native_name=known.tool,
                        input=known.input,
                        target=target,
                        description=described(known.input),
                    )
                ]
            case ToolResult():
                return self._ended(event, call, known)
            case _:
                return [event]

    def _ended(self, result: ToolResult, call: AcpToolCall | ToolCallUpdate, known: _Call) -> list[Event]:
        self._calls.pop(call.tool_call_id, None)
        metadata: Mapping[str, Any] = {}
        output, error = result.output, ""
        match call.raw_output:
            case {"output": str(said), "metadata": dict()}:
                output, metadata = said, cast("dict[str, Any]", call.raw_output["metadata"])
            case {"error": str(said)}:
                output = error = said
            case _:
                pass
        match known.tool, known.input:
            case "invalid", {"tool": str(meant), "error": str(said)}:
                known.tool, error = meant, said
            case _:
                pass
        status, code = judged(known.tool, "error" if call.status == "failed" else "completed", error, metadata)
        self._rejected = self._rejected or error == REJECTED
        ended = replace(result, name=name_of(known.tool, error), status=status, output=output, exit_code=code)
        if status != "success":
            return [ended]
        changes = changes_of(known.tool, known.input, metadata, call.tool_call_id, known.diff)
        return [*changes, *(plan_of(known.input) if known.tool == "todowrite" else []), ended]

    def _plain(self, call: Call) -> Call:
        """``call`` under the name it began with, and without what is told better elsewhere."""
        known = self._calls.get(call.tool_call_id)
        if known is None:
            known = self._calls[call.tool_call_id] = _Call(_tool(call))
        given: object = call.raw_input
        if isinstance(given, dict):
            said = as_written(cast("dict[str, Any]", given))
            diff: object = said.get("diff")
            if isinstance(diff, str):
                known.diff = diff
            if call.status != "pending" or not known.input:
                listed = {key: value for key, value in said.items() if key not in ("cwd", "diff")}
                known.input = listed or known.input
        return replace(call, title=known.tool)

    # ----------------------------------------------------------------------------------------------------- turns

    def _over(self, native: PromptResponse) -> list[Event]:
        spent = None if self._spent is None else dollars(self._spent - self._spent_before) or None
        self._spent_before = self._spent or self._spent_before
        several = self._steps > 0
        gave_up = native.stop_reason == "end_turn" and self._rejected and not self.goes_on
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


def _tool(call: AcpToolCall | ToolCallUpdate) -> str:
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


def _by_input(given: object) -> str:
    """For a question about a call that is not known: the most that it can be."""
    match given:
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


def _plainly(event: Event) -> Event:
    if not isinstance(event, Error) or not event.message.startswith(INTERNAL):
        return event
    message = event.message.removeprefix(INTERNAL)
    return replace(event, message=message, kind=kind_of(message))
