"""The order of unified events, the same for every agent, whatever its program did.

``init`` comes first. A turn starts before anything happens in it and completes once. Every ``tool_use`` is closed by
one ``tool_result``, every ``permission_request`` by one ``permission_resolved``. ``done`` comes once, last.

Dictionaries say what happened; the grammar puts in what the agent left out, and keeps out what it said twice. What
happens outside a turn opens one (an agent woken by a background task speaks without having been asked).
"""

from __future__ import annotations

import msgspec
from msgspec.structs import replace

from .events import (
    Done,
    Error,
    Event,
    FileChange,
    Init,
    Notice,
    PermissionRequest,
    PermissionResolved,
    Plan,
    Retry,
    Status,
    Text,
    TextDelta,
    Thinking,
    ThinkingDelta,
    ToolProgress,
    ToolResult,
    ToolUse,
    TurnCompleted,
    TurnStarted,
    Unrecognized,
    Usage,
    UsageReport,
    session_changed,
)


class _OpenTool(msgspec.Struct):
    use: ToolUse
    since: int
    denied: str | None = None


class Grammar:
    """Feed it what the dictionary says; it returns what the reader may see, in order.

    ``now`` is in milliseconds and only used for durations the agent does not tell.
    """

    def __init__(self, *, cwd: str = "", resumed: bool = False) -> None:
        self._fallback_init = Init(cwd=cwd, resumed=resumed)
        self._held: list[tuple[Event, int]] = []
        self._native_session = ""
        self._begun = False
        self._done = False
        self._in_turn = False
        self._turn_since = 0
        self._since = 0
        self._tools: dict[str, _OpenTool] = {}
        self._closed_tools: set[str] = set()  # of this turn and the one before: results can be late by one
        self._closed_before: set[str] = set()
        self._denied_early: dict[str, str] = {}
        self._questions: dict[str, PermissionRequest] = {}
        self._turn_usage = Usage()
        self._turn_text = ""
        self._earlier = Usage()
        self._tool_uses = 0
        self._last: TurnCompleted | None = None
        self._errors: list[Error] = []  # of this turn, or since the last
        self.turn = 0

    @property
    def in_turn(self) -> bool:
        return self._in_turn

    @property
    def is_done(self) -> bool:
        return self._done

    @property
    def open_tools(self) -> list[ToolUse]:
        return [tool.use for tool in self._tools.values()]

    def knows_tool(self, tool_use_id: str) -> bool:
        return tool_use_id in self._tools or tool_use_id in self._closed_tools

    def accept(self, event: Event, now: int = 0) -> list[Event]:
        """What may now be delivered because of ``event``."""
        if self._done:
            return []
        if not self._begun:
            if not isinstance(event, Init):
                self._held.append((event, now))
                return []
            return self._begin(event, now)
        return self._ordered(event, now)

    def end(self, status: Status | None = None, error: Error | None = None, now: int = 0) -> list[Event]:
        """The session is over: close what is open and say ``done``.

        ``status`` is what became of a turn that is still running, and of a session that never had one.
        """
        if self._done:
            return []
        out: list[Event] = []
        if not self._begun:
            out += self._begin(self._fallback_init, now)
        if error is not None:
            out += self._ordered(error, now)
        if self._in_turn:
            out += self._ordered(TurnCompleted(status=status or "interrupted"), now)
        elif status is not None and status != "success" and (self._last is None or error is not None):
            self._last = TurnCompleted(status=status)
        last = self._last or TurnCompleted(status="success")
        usage = self._earlier
        self._done = True
        out.append(
            Done(
                status=last.status,
                result=last.result,
                usage=usage,
                cost_usd=usage.cost_usd,
                duration_ms=float(now - self._since) if now else None,
                tool_uses=self._tool_uses,
            )
        )
        return out

    def denied(self, tool_use_id: str, message: str) -> None:
        """The caller refused this call: whatever the agent says of it, or leaves out, it was denied."""
        if tool_use_id in self._tools:
            self._tools[tool_use_id].denied = message
        elif tool_use_id:
            self._denied_early[tool_use_id] = message

    def start_turn(self, prompt: str, now: int = 0) -> list[Event]:
        """The caller has sent ``prompt``."""
        return self.accept(TurnStarted(prompt=prompt), now)

    def _begin(self, init: Init, now: int) -> list[Event]:
        self._begun = True
        self._native_session = init.native_session_id
        self._since = now
        out: list[Event] = [init]
        held, self._held = self._held, []
        for event, at in held:
            out += self._ordered(event, at)
        return out

    def _ordered(self, event: Event, now: int) -> list[Event]:
        match event:
            case Init():
                return self._repeated(event)
            case TurnStarted():
                return [*self._close_turn(now), *self._open_turn(event, now)]
            case TurnCompleted():
                return self._complete(event, now)
            case ToolUse():
                return self._in(now, self._tool_started(event, now))
            case ToolProgress():
                return self._in(now, [event] if event.tool_use_id in self._tools else [])
            case ToolResult():
                return self._tool_finished(event, now)
            case PermissionRequest():
                return self._in(now, self._asked(event))
            case PermissionResolved():
                return [event] if self._questions.pop(event.request_id, None) else []
            case UsageReport():
                return self._used(event)
            case Text():
                out = self._in(now, [event])
                self._turn_text = event.text if event.parent_tool_use_id is None else self._turn_text
                return out
            case TextDelta() | ThinkingDelta() | Thinking() | FileChange() | Plan() | Retry():
                return self._in(now, [event])
            case Error():
                self._errors.append(event)
                return [event]
            case Notice(code="stalled") if self._questions or not self._in_turn:
                return []  # it rests, or waits for an answer: of those nobody expects a sign of life
            case Notice() | Unrecognized():
                return [event]
            case Done():
                return []  # only ``end`` says it

    def _repeated(self, init: Init) -> list[Event]:
        """One agent says it every turn; it is news only when the agent has left its session for another one."""
        named, known = init.native_session_id, self._native_session
        self._native_session = named or known
        return [session_changed(named)] if named and named != known else []

    def _in(self, now: int, events: list[Event]) -> list[Event]:
        """``events`` inside a turn, opened if there is none."""
        if not events or self._in_turn:
            return events
        return [*self._open_turn(TurnStarted(), now), *events]

    def _open_turn(self, event: TurnStarted, now: int) -> list[Event]:
        self.turn += 1
        self._in_turn = True
        self._turn_since = now
        self._turn_usage = Usage()
        self._turn_text = ""
        self._closed_before, self._closed_tools = self._closed_tools, set()
        self._errors = []
        return [event]

    def _close_turn(self, now: int) -> list[Event]:
        return self._complete(TurnCompleted(status="interrupted"), now) if self._in_turn else []

    def _complete(self, event: TurnCompleted, now: int) -> list[Event]:
        out: list[Event] = []
        if not self._in_turn:
            failed = event.status != "success" and self._fatal_error()
            if self.turn and not failed:
                return []  # said twice
            errors = self._errors  # a turn that was nothing but these
            out += self._open_turn(TurnStarted(), now)
            self._errors = errors
        out += self._close_questions(event.status)
        out += self._close_tools(event.status, now)
        usage = event.usage if event.usage != Usage() else self._turn_usage
        completed = replace(
            event,
            usage=usage,
            cost_usd=usage.cost_usd if event.cost_usd is None else event.cost_usd,
            result=event.result or ("" if event.status == "success" else self._fatal_error()) or self._turn_text,
            duration_ms=event.duration_ms
            if event.duration_ms is not None or not now
            else float(now - self._turn_since),
        )
        self._earlier = self._earlier + usage
        self._turn_usage = Usage()
        self._errors = []
        self._in_turn = False
        self._last = completed
        return [*out, completed]

    def _fatal_error(self) -> str:
        return next((error.message for error in self._errors if error.fatal), "")

    def _close_questions(self, status: Status) -> list[Event]:
        questions, self._questions = self._questions, {}
        message = f"the turn ended ({status})"
        for question in questions.values():
            if (tool := self._tools.get(question.tool_use_id)) is not None:
                tool.denied = message  # a call that nobody allowed did not run
        return [
            PermissionResolved(request_id=request_id, decision="deny", by="interrupt", message=message)
            for request_id in questions
        ]

    def _close_tools(self, status: Status, now: int) -> list[Event]:
        tools, self._tools = self._tools, {}
        self._closed_tools.update(tools)
        note = f"the turn ended ({status}) before a result was told"  # whether the call ended too, nobody knows
        return [
            ToolResult(
                tool_use_id=tool_use_id,
                name=tool.use.name,
                status="error" if tool.denied is None else "denied",
                output=tool.denied or note,
                parent_tool_use_id=tool.use.parent_tool_use_id,
                duration_ms=float(now - tool.since) if now else None,
            )
            for tool_use_id, tool in tools.items()
        ]

    def _tool_started(self, event: ToolUse, now: int) -> list[Event]:
        if event.tool_use_id in self._tools:
            return []
        refusal = self._denied_early.pop(event.tool_use_id, None)
        self._tools[event.tool_use_id] = _OpenTool(event, now, refusal)
        self._closed_tools.discard(event.tool_use_id)
        self._tool_uses += 1
        return [event]

    def _tool_finished(self, event: ToolResult, now: int) -> list[Event]:
        out: list[Event] = []
        if event.tool_use_id not in self._tools:
            if event.tool_use_id in self._closed_tools or event.tool_use_id in self._closed_before:
                # It was closed with its turn, or the agent says it twice.
                words = f"{event.tool_use_id} ({event.status}): {event.output}"
                return [Notice(level="info", code="late_tool_result", message=words)]
            made_up = ToolUse(
                tool_use_id=event.tool_use_id, name=event.name, parent_tool_use_id=event.parent_tool_use_id
            )
            out += self._in(now, self._tool_started(made_up, now))
        tool = self._tools.pop(event.tool_use_id)
        self._closed_tools.add(event.tool_use_id)
        if tool.denied is not None and event.status == "error":
            event = replace(event, status="denied")
        if event.duration_ms is None and now:
            event = replace(event, duration_ms=float(now - tool.since))
        return [*out, event]

    def _asked(self, event: PermissionRequest) -> list[Event]:
        if event.request_id in self._questions:
            return []
        self._questions[event.request_id] = event
        return [event]

    def _used(self, event: UsageReport) -> list[Event]:
        self._turn_usage = Usage(
            input_tokens=event.input_tokens,
            output_tokens=event.output_tokens,
            cached_tokens=event.cached_tokens,
            reasoning_tokens=event.reasoning_tokens,
            total_tokens=event.total_tokens,
            cost_usd=event.cost_usd,
        )
        return [replace(event, session=self._earlier + self._turn_usage)]
