"""The order of unified events, the same for every agent, whatever its program did.

``init`` comes first. A turn starts before anything happens in it and completes once. Every ``tool_use`` is closed by
one ``tool_result``, every ``permission_request`` by one ``permission_resolved``, and is about a call that was told.
``done`` comes once, last.

Dictionaries say what happened; the grammar puts in what the agent left out, and keeps out what it said twice. What
happens outside a turn opens one (an agent woken by a background task speaks without having been asked).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import msgspec
from msgspec.structs import replace

from .events import (
    Done,
    Error,
    Event,
    FileChange,
    FilesRestored,
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

    ``known`` is what is known of the session before the agent says a word; its own ``init`` is completed with it.
    ``now`` is in milliseconds and only used for durations the agent does not tell.
    """

    def __init__(self, default_init: Init | None = None) -> None:
        self.default_init = default_init or Init()
        self._early: list[Event] = []  # what was said before the agent's ``init``
        self._native_session = ""
        self._started = False
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
        self._prompts: list[str] = []  # said while a turn ran: the agent may take them up in it, or in the next
        self.turn = 0

    @property
    def in_turn(self) -> bool:
        return self._in_turn

    @property
    def flows(self) -> bool:
        """Whether a piece of text would go out as it is."""
        return self._in_turn and self._started

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
        if self._started:
            return self._ordered(event, now)
        if isinstance(event, Init):
            return self._begin(event, now)
        self._early += self._ordered(event, now)
        return []

    def end(self, status: Status | None = None, error: Error | None = None, now: int = 0) -> list[Event]:
        """The session is over: close what is open and say ``done``.

        ``status`` is what became of a turn that is still running, and of a session that never had one.
        """
        if self._done:
            return []
        out: list[Event] = []
        if not self._started:
            out += self._begin(self.default_init, now)
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
        elif tool_use_id and tool_use_id not in self._closed_tools and tool_use_id not in self._closed_before:
            self._denied_early[tool_use_id] = message

    def start_turn(self, prompt: str, now: int = 0) -> list[Event]:
        """The caller has sent ``prompt``. While a turn runs, it waits for the next, unless that never comes."""
        if self._in_turn:
            self._prompts.append(prompt)
            return []
        self._prompts.clear()  # the agent rests: it has taken them up
        return self.accept(TurnStarted(prompt=prompt), now)

    def _begin(self, init: Init, now: int) -> list[Event]:
        self._started = True
        self._native_session = init.native_session_id
        self._since = now
        default_init = self.default_init
        init = replace(
            init,
            cwd=init.cwd or default_init.cwd,
            resumed=init.resumed or default_init.resumed,
            capabilities=init.capabilities or default_init.capabilities,
        )
        early, self._early = self._early, []
        return [init, *early]

    def _ordered(self, event: Event, now: int) -> list[Event]:
        return RULES[type(event)](self, event, now)

    def _alone(self, event: Event, now: int) -> list[Event]:
        return [event]

    def _inside(self, event: Event, now: int) -> list[Event]:
        return self._in(now, [event])

    def _started_turn(self, event: TurnStarted, now: int) -> list[Event]:
        return [*self._close_turn(now), *self._open_turn(event, now)]

    def _call(self, event: ToolUse, now: int) -> list[Event]:
        return self._in(now, self._tool_started(event, now))

    def _progress(self, event: ToolProgress, now: int) -> list[Event]:
        return self._in(now, [event] if event.tool_use_id in self._tools else [])

    def _question(self, event: PermissionRequest, now: int) -> list[Event]:
        return self._in(now, self._on_request(event, now))

    def _reported(self, event: UsageReport, now: int) -> list[Event]:
        return [*self._taken_up(now), *self._used(event)]

    def _text(self, event: Text, now: int) -> list[Event]:
        out = self._in(now, [event])
        if event.parent_tool_use_id is None:
            self._turn_text = event.text
        return out

    def _failure(self, event: Error, now: int) -> list[Event]:
        out = self._taken_up(now) if event.fatal else []
        self._errors.append(event)
        return [*out, event]

    def _noticed(self, event: Notice, now: int) -> list[Event]:
        if event.code == "stalled" and (self._questions or not self._in_turn):
            return []  # it rests, or waits for an answer: of those nobody expects a sign of life
        return [event]

    def _only_by_end(self, event: Done, now: int) -> list[Event]:
        return []

    def _repeated(self, init: Init, now: int) -> list[Event]:
        """One agent says it every turn; it is news only when the agent has left its session for another one."""
        named, default_init = init.native_session_id, self._native_session
        self._native_session = named or default_init
        return [session_changed(named)] if named and named != default_init else []

    def _in(self, now: int, events: list[Event]) -> list[Event]:
        """``events`` inside a turn, opened if there is none."""
        if not events or self._in_turn:
            return events
        return [*self._open_turn(TurnStarted(), now), *events]

    def _taken_up(self, now: int) -> list[Event]:
        """The turn of a prompt that has waited, when the agent says anything that can only be about it."""
        return self._open_turn(TurnStarted(), now) if self._prompts and not self._in_turn else []

    def _open_turn(self, event: TurnStarted, now: int) -> list[Event]:
        if self._prompts and not event.prompt:
            event = replace(event, prompt=self._prompts.pop(0))
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
            if self.turn and not failed and not self._prompts:
                return []  # said twice
            errors = self._errors  # a turn that was nothing but these
            out += self._open_turn(TurnStarted(), now)
            self._errors = errors
        out += self._close_questions(event.status, now)
        out += self._close_tools(event.status, now)
        usage = _sane(event.usage) if event.usage != Usage() else self._turn_usage
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

    def _close_questions(self, status: Status, now: int) -> list[Event]:
        message = f"the turn ended ({status})"
        closed = [
            PermissionResolved(request_id=request_id, decision="deny", by="interrupt", message=message)
            for request_id in self._questions
        ]
        return [event for refusal in closed for event in self._answered(refusal, now)]

    def _close_tools(self, status: Status, now: int) -> list[Event]:
        tools, self._tools = self._tools, {}
        self._closed_tools.update(tools)
        note = f"the turn ended ({status}) before a result was reported"  # whether the call ended too, nobody knows
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
        # A question that nobody wants to answer is a text for the model, and to some agents a success.
        if tool.denied is not None and (event.status == "error" or tool.use.name == "question"):
            event = replace(event, status="denied", output=event.output or tool.denied)
        elif tool.denied is not None and event.status == "success":
            # What the agent says it did is told as it is, but never as if somebody had allowed it.
            message = f"the agent says that {event.tool_use_id} ({tool.use.target}) ran, although it was denied"
            out.append(Notice(level="warning", code="ran_though_denied", message=message))
        if event.duration_ms is None and now:
            event = replace(event, duration_ms=float(now - tool.since))
        return [*out, event]

    def _on_request(self, event: PermissionRequest, now: int) -> list[Event]:
        if event.request_id in self._questions:
            return []
        self._questions[event.request_id] = event
        if (tool := self._tools.get(call_of(event).tool_use_id)) is not None:
            tool.denied = None  # the agent tries it again: it is this question's answer that counts now
        return [*self._tool_started(call_of(event), now), event]  # some agents do not tell a call they ask about

    def _answered(self, event: PermissionResolved, now: int) -> list[Event]:
        question = self._questions.pop(event.request_id, None)
        if question is None:
            return []
        if (tool := self._tools.get(call_of(question).tool_use_id)) is not None:
            tool.since = now  # how long somebody took to answer is not how long it ran
        if event.decision == "deny":
            self.denied(call_of(question).tool_use_id, event.message)
        if question.tool_name == "question" and question.request_id in self._tools:
            # It belongs to no call that the agent tells of, so nobody else says that it is over.
            status: Literal["success", "denied"] = "success" if event.decision == "allow" else "denied"
            over = ToolResult(tool_use_id=question.request_id, name="question", status=status, output=event.message)
            return [event, *self._tool_finished(over, now)]
        return [event]

    def _used(self, event: UsageReport) -> list[Event]:
        self._turn_usage = usage = _sane(
            Usage(
                input_tokens=event.input_tokens,
                output_tokens=event.output_tokens,
                cached_tokens=event.cached_tokens,
                reasoning_tokens=event.reasoning_tokens,
                total_tokens=event.total_tokens,
                cost_usd=event.cost_usd,
            )
        )
        return [replace(event, **msgspec.structs.asdict(usage), session=self._earlier + usage)]


RULES: dict[type[Event], Callable[[Grammar, Any, int], list[Event]]] = {
    Init: Grammar._repeated,
    TurnStarted: Grammar._started_turn,
    TextDelta: Grammar._inside,
    Text: Grammar._text,
    ThinkingDelta: Grammar._inside,
    Thinking: Grammar._inside,
    ToolUse: Grammar._call,
    ToolProgress: Grammar._progress,
    ToolResult: Grammar._tool_finished,
    FileChange: Grammar._inside,
    Plan: Grammar._inside,
    Retry: Grammar._inside,
    PermissionRequest: Grammar._question,
    PermissionResolved: Grammar._answered,
    UsageReport: Grammar._reported,
    Error: Grammar._failure,
    Notice: Grammar._noticed,
    Unrecognized: Grammar._alone,
    FilesRestored: Grammar._alone,
    TurnCompleted: Grammar._complete,
    Done: Grammar._only_by_end,
}
"""A table and not a ``match``: asking a struct for its class costs as much as decoding a short line, and the last of
twenty would ask twenty times."""


def _sane(usage: Usage) -> Usage:
    """Agents have reported fewer than no tokens; a sum must not shrink for it."""
    counts = (
        usage.input_tokens,
        usage.output_tokens,
        usage.cached_tokens,
        usage.reasoning_tokens,
        usage.total_tokens,
        usage.cost_usd or 0.0,
    )
    if min(counts) >= 0:
        return usage
    return Usage(
        input_tokens=max(0, usage.input_tokens),
        output_tokens=max(0, usage.output_tokens),
        cached_tokens=max(0, usage.cached_tokens),
        reasoning_tokens=max(0, usage.reasoning_tokens),
        total_tokens=max(0, usage.total_tokens, usage.input_tokens + usage.output_tokens),
        cost_usd=None if usage.cost_usd is None else max(0.0, usage.cost_usd),
    )


def call_of(request: PermissionRequest) -> ToolUse:
    """The call a question is about, as far as the question tells it."""
    return ToolUse(
        tool_use_id=request.tool_use_id or request.request_id,
        name=request.tool_name,
        native_name=request.native_name,
        input=request.input,
        operation=request.operation,
        target=request.target,
        risk=request.risk,
        description=request.description,
        parent_tool_use_id=request.parent_tool_use_id,
    )
