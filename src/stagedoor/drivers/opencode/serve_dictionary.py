"""``opencode serve``: what the server's event stream says, translated."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, assert_never, cast

import msgspec

from ...agents.opencode import events, parts
from ...agents.opencode.events import PermissionAsked, QuestionAsked, TurnEnded
from ...agents.opencode.launch import GUARD_MARK
from ...agents.opencode.parts import OpenCodeMessage, ReasoningPart, SessionRecord, TextPart, ToolPart
from ...agents.opencode.protocol import ABORTED, OVERFLOW
from ...transports.launch import Exited, Stalled
from ...unified.events import (
    Error,
    Event,
    Init,
    Notice,
    PermissionRequest,
    Retry,
    Status,
    Text,
    TextDelta,
    Thinking,
    ThinkingDelta,
    TurnCompleted,
    Unrecognized,
    Usage,
    report_of,
    stalled,
)
from ...unified.faults import no_answer
from ...unified.tools import described, operation_of
from ...wire import shapes
from .calls import Calls, as_written, below
from .endings import REASONS, TurnSpending, error_of, runaway_error, usage_of
from .tools import name_of, target_of

UNGUARDED = "OpenCode did not load our plugin: it does not ask about commands that are only redirections"
COMPACTING = "compaction"
"""The agent whose text is the summary of a conversation that grew too long, and no answer."""


class ServeDictionary:
    def __init__(self) -> None:
        self._has_init = False
        self._record: SessionRecord | None = None
        self._model = ""
        self._parents: dict[str, str] = {}  # a sub-agent's session → the session that started it
        self._tasks: dict[str, str] = {}  # a sub-agent's session → the call that started it
        self._running_task: dict[str, str] = {}
        self._messages: set[str] = set()
        self._copied: set[str] = set()  # messages of another session's past, repeated by its fork
        self._silent: set[str] = set()  # messages whose text is not the agent's answer
        self._calls = Calls()
        self._speech = Speech()
        self._spending = TurnSpending()
        self._rejected = False
        self._runaway: Error | None = None
        self._exhausted = False
        self._structured: Any = None
        self._answered = False  # whether the last step of the agent itself had any text
        self.guarded = False
        """Whether OpenCode was started with the plugin that makes it ask about every command."""
        self.tools: tuple[str, ...] = ()
        """What the model is offered, as OpenCode told it."""
        self.on_call: Callable[[], None] = lambda: None
        """Called whenever a call's input becomes known: questions come before that."""

    # ------------------------------------------------------------------------------------------------ questions

    def request(self, question: PermissionAsked | QuestionAsked) -> PermissionRequest:
        tool_use_id, parent = self._id_of(question), self._parent(question.session_id)
        if isinstance(question, QuestionAsked):
            return question_request(question, tool_use_id, parent)
        return permission_request(question, self._calls.part(tool_use_id), tool_use_id, parent)

    def has_call_of(self, question: PermissionAsked | QuestionAsked) -> bool:
        """Whether the input of the call it is about is known."""
        return question.tool is None or self._calls.has_input(self._id_of(question))

    def _id_of(self, question: PermissionAsked | QuestionAsked) -> str:
        return self._calls.id_of(question.tool.message_id, question.tool.call_id) if question.tool is not None else ""

    # ---------------------------------------------------------------------------------------------- translation

    def translate(self, native: events.ServerEvent) -> list[Event]:
        translated = self._translated(native)
        if self._has_init or not (translated or self._knows_model(native)):
            return translated
        self._has_init = True
        return [self._init(), *translated]

    def _translated(self, native: events.ServerEvent) -> list[Event]:
        match native:
            case events.MessagePartDelta():
                if native.field != "text" or native.message_id in self._silent:
                    return []
                parent = self._parent(native.session_id)
                return self._speech.delta(native.part_id, native.message_id, native.delta, parent)
            case events.MessagePartUpdated():
                return self._part(native)
            case events.MessageUpdated():
                return self._message(native.info)
            case events.SessionCreated() | events.SessionUpdated():
                self._session(native.info)
                return []
            case events.SessionStatus():
                return self._status(native)
            case events.SessionError():
                return self._session_error(native)
            case events.SessionCompacted():
                message = "the conversation grew too long and was summarized"
                return below([Notice(level="info", code="compacted", message=message)], self._parent(native.session_id))
            case PermissionAsked():
                return self._permission_asked(native)
            case events.PermissionReplied():
                self._rejected = self._rejected or native.reply == "reject"
                return []
            case events.QuestionRejected():
                self._rejected = True
                return []
            case TurnEnded():
                return self._end_turn(native)
            case events.Runaway():
                self._runaway = runaway_error(native)
                return []
            case events.StepsExhausted():
                self._exhausted = True
                return []
            case events.ServerRefusal():
                if native.status == 404:  # an answer that came too late
                    return []
                message = f"OpenCode refused {native.call}: {native.message or native.status}"
                return [Notice(level="warning", code="request_refused", message=message)]
            case Stalled():
                return [stalled(native.seconds)]
            case Exited():
                return _exited(native)
            case shapes.UnknownMessage():
                return [Unrecognized(raw=native.raw.decode("utf-8", "replace"), why=native.why)]
            case (
                events.ServerConnected()
                | events.ServerHeartbeat()
                | events.SessionDeleted()
                | events.SessionIdle()
                | events.SessionDiff()
                | events.MessageRemoved()
                | events.MessagePartRemoved()
                | QuestionAsked()
                | events.QuestionReplied()
                | events.TodoUpdated()  # the call that wrote them has the same
                | events.FileEdited()
                | events.CommandExecuted()
                | events.ServerNotice()
                | events.ServerListening()
                | events.ServerOutput()
                | events.ServerAnswer()
            ):
                return []
            case _:
                assert_never(native)

    def _permission_asked(self, question: PermissionAsked) -> list[Event]:
        if diff := diff_in(question):
            self._calls.set_diff(self._id_of(question), diff)
        if not self.guarded or question.permission != "bash":
            return []
        if str(question.metadata.get("command")).startswith(GUARD_MARK):
            return []
        self.guarded = False
        return [Notice(level="warning", code="guard_missing", message=UNGUARDED)]

    # ------------------------------------------------------------------------------------------------- sessions

    def _session(self, info: SessionRecord) -> None:
        if info.parent_id is not None:
            self._parents[info.id] = info.parent_id
            return
        self._record = info
        match info.model:
            case {"id": str(model), "providerID": str(provider)}:
                self._model = f"{provider}/{model}"
            case _:
                pass

    def _knows_model(self, native: events.ServerEvent) -> bool:
        return bool(self._model) and isinstance(native, events.SessionUpdated | events.MessageUpdated)

    def _init(self) -> Init:
        record = self._record
        return Init(
            model=self._model,
            cwd=record.directory if record is not None else "",
            agent_version=record.version if record is not None else "",
            native_session_id=record.id if record is not None else "",
            tools=list(self.tools),
        )

    def _parent(self, session_id: str) -> str | None:
        """The call that started the sub-agent of this session; ``None`` for the agent itself."""
        if session_id in self._tasks:
            return self._tasks[session_id]
        started_by = self._parents.get(session_id)
        return None if started_by is None else self._running_task.get(started_by, session_id)

    # -------------------------------------------------------------------------------------------------- messages

    def _message(self, info: OpenCodeMessage) -> list[Event]:
        if info.id not in self._messages and info.time.completed is not None:
            self._copied.add(info.id)
        self._messages.add(info.id)
        if info.role == "user" or info.agent == COMPACTING:
            self._silent.add(info.id)
        elif info.model_id and info.session_id not in self._parents:
            self._model = f"{info.provider_id}/{info.model_id}"
        if info.structured is not None and info.session_id not in self._parents:
            self._structured = info.structured
        return []

    def _part(self, native: events.MessagePartUpdated) -> list[Event]:
        part = native.typed()
        parent = self._parent(native.session_id)
        if type(part) is ToolPart:  # the most frequent
            return [] if part.message_id in self._copied else self._call(part, parent)
        if not isinstance(part, shapes.UnknownMessage) and part.message_id in self._copied:
            return []
        match part:
            case ToolPart():
                return self._call(part, parent)
            case parts.TextPart():
                if part.message_id in self._silent or part.synthetic or part.ignored:
                    return []
                self._answered = self._answered or (parent is None and bool(part.text))
                return self._speech.part(part, parent)
            case parts.ReasoningPart():
                return [] if part.message_id in self._silent else self._speech.part(part, parent)
            case parts.StepFinishPart():
                return [*self._spending.step(part)]  # sub-agents spend for the turn
            case shapes.UnknownMessage():
                return [Unrecognized(raw=part.raw.decode("utf-8", "replace"), why=part.why)]
            case parts.StepStartPart():
                self._answered = self._answered and parent is not None
                return []
            case (
                parts.FilePart()
                | parts.SubtaskPart()
                | parts.SnapshotPart()
                | parts.PatchPart()
                | parts.AgentPart()
                | parts.RetryPart()
                | parts.CompactionPart()
            ):
                return []
            case _:
                assert_never(part)

    def _call(self, part: ToolPart, parent: str | None) -> list[Event]:
        if part.tool == "task":
            self._follow_task(part)
        translated = below(self._calls.update(part), parent)
        if part.state.status == "running":
            self.on_call()
        return translated

    def _follow_task(self, part: ToolPart) -> None:
        tool_use_id = self._calls.id_of(part.message_id, part.call_id)
        self._running_task[part.session_id] = tool_use_id
        match part.state.metadata:
            case {"sessionId": str(child)}:
                self._tasks[child] = tool_use_id
            case _:
                pass

    def _status(self, native: events.SessionStatus) -> list[Event]:
        status = native.status
        if status.type != "retry":
            return []
        retry = Retry(attempt=status.attempt or 1, reason=status.message or "")
        return [*self._speech.end(), *below([retry], self._parent(native.session_id))]

    def _session_error(self, native: events.SessionError) -> list[Event]:
        """An error that ends the turn is reported at its end; here are the others."""
        parent = self._parent(native.session_id)
        if native.error.name == ABORTED or (parent is None and native.error.name != OVERFLOW):
            return []
        code = "context_overflow" if native.error.name == OVERFLOW else "subagent_failed"
        return below([Notice(level="warning", code=code, message=native.error.message)], parent)

    # ----------------------------------------------------------------------------------------------------- turns

    def _end_turn(self, ended: TurnEnded) -> list[Event]:
        out = self._speech.end()
        usage = self._spending.end()
        if usage == Usage() and (counted := usage_of(ended.tokens, ended.cost)) != Usage():
            usage = counted
            out.append(report_of(usage))
        status, error = self._judge(ended)
        structured, self._structured = self._structured, None
        if status == "success" and ended.finish is not None and structured is None and not self._answered:
            out.append(no_answer())
        self._answered = False
        self._rejected, self._runaway, self._exhausted = False, None, False
        self._running_task.clear()
        if error is not None:
            out.append(error)
        return [*out, TurnCompleted(status=status, usage=usage, structured=structured)]

    def _judge(self, ended: TurnEnded) -> tuple[Status, Error | None]:
        if self._runaway is not None:
            return "error", self._runaway
        if self._exhausted:
            return "max_turns", None
        if ended.outcome == "aborted":
            return "interrupted", None
        if ended.error is not None:
            return "error", error_of(ended.error)
        if ended.finish in REASONS:
            return "error", Error(kind="unknown", message=REASONS[ended.finish], fatal=True)
        if ended.finish == "tool-calls" and self._rejected and self._calls.last_denied:
            return "interrupted", None  # a refusal without a reason ends the turn
        return "success", None


def _exited(native: Exited) -> list[Event]:
    if native.code <= 0 or not native.stderr.strip():
        return []
    last = native.stderr.strip().splitlines()[-1]
    return [Notice(level="warning", code="exited", message=f"opencode ended with code {native.code}: {last}")]


# --------------------------------------------------------------------------------------------------- text and thinking


class _OpenPart(msgspec.Struct):
    is_text: bool
    message_id: str
    parent: str | None
    pieces: list[str]


class Speech:
    """Text and thinking as the server streams them: a part starts empty, grows, and comes whole at its end."""

    def __init__(self) -> None:
        self._parts: dict[str, _OpenPart] = {}
        self._finished: set[str] = set()

    def part(self, part: TextPart | ReasoningPart, parent: str | None) -> list[Event]:
        if part.id in self._finished:
            return []
        is_text = isinstance(part, TextPart)
        current = self._parts.setdefault(part.id, _OpenPart(is_text, part.message_id, parent, []))
        if part.time is None or part.time.end is None:
            return []
        del self._parts[part.id]
        self._finished.add(part.id)
        joined = "".join(current.pieces)
        # It drops blanks at the end; but the whole is what was streamed.
        return _whole(current, joined if joined.rstrip() == part.text.rstrip() else part.text)

    def delta(self, part_id: str, message_id: str, delta: str, parent: str | None) -> list[Event]:
        if part_id in self._finished or not delta:
            return []
        current = self._parts.get(part_id)
        if current is None:
            current = self._parts[part_id] = _OpenPart(True, message_id, parent, [])
        current.pieces.append(delta)
        if current.is_text:
            return [TextDelta(text=delta, message_id=current.message_id, parent_tool_use_id=parent)]
        return [ThinkingDelta(text=delta, parent_tool_use_id=parent)]

    def end(self) -> list[Event]:
        """The open parts grow no further: the turn is over, or the attempt has failed."""
        open_parts, self._parts = self._parts, {}
        self._finished.update(open_parts)
        return [event for part in open_parts.values() for event in _whole(part, "".join(part.pieces))]


def _whole(part: _OpenPart, text: str) -> list[Event]:
    if not text:
        return []
    whole: Event = Text(text=text, message_id=part.message_id) if part.is_text else Thinking(text=text)
    return below([whole], part.parent)


# ----------------------------------------------------------------------------------------------------------- questions


CHOICES = ["allow_once", "allow_always", "reject_once"]


def permission_request(
    question: PermissionAsked, part: ToolPart | None, tool_use_id: str, parent: str | None
) -> PermissionRequest:
    """``part`` is the call it is about, where that is known already: the question itself holds less."""
    native = part.tool if part is not None else _tool_behind(question)
    name = name_of(native)
    arguments = {**part.state.input} if part is not None else _arguments_in(question)
    diff = diff_in(question)
    if diff:
        arguments["diff"] = diff
    return PermissionRequest(
        request_id=question.id,
        tool_use_id=tool_use_id,
        tool_name=name,
        native_name=native,
        operation=operation_of(name),
        target=target_of(name, native, arguments) or ", ".join(question.patterns),
        input=arguments,
        description=_reason(question) or described(arguments),
        choices=[*CHOICES],
        parent_tool_use_id=parent,
    )


def question_request(question: QuestionAsked, tool_use_id: str, parent: str | None) -> PermissionRequest:
    """A question to the person. Allowed with ``updated_input={"answers": …}``, it is answered."""
    first = question.questions[0] if question.questions else None
    arguments: dict[str, Any] = {"questions": msgspec.to_builtins(question.questions)}
    return PermissionRequest(
        request_id=question.id,
        tool_use_id=tool_use_id,
        tool_name="question",
        native_name="question",
        target=target_of("question", "question", arguments),
        input=arguments,
        description=first.header if first is not None else "",
        choices=[choice.label for choice in first.options] if first is not None else [],
        parent_tool_use_id=parent,
    )


def answers_in(question: QuestionAsked, arguments: Mapping[str, Any] | None) -> list[list[str]] | None:
    """The answers put into a question's input: a list of them, or by the question's words or header."""
    answers: object = (arguments or {}).get("answers")
    if isinstance(answers, dict):
        named = cast("dict[str, object]", answers)
        answers = [named.get(entry.question, named.get(entry.header, [])) for entry in question.questions]
    if not isinstance(answers, list):
        return None
    return [
        [str(label) for label in cast("list[object]", chosen)] if isinstance(chosen, list) else [str(chosen)]
        for chosen in cast("list[object]", answers)
    ]


def diff_in(question: PermissionAsked) -> str:
    diff: object = question.metadata.get("diff")
    return diff if isinstance(diff, str) else ""


def _tool_behind(question: PermissionAsked) -> str:
    """The tool behind a permission; a few permissions are about any."""
    match question.permission, question.metadata:
        case "doom_loop", {"tool": str(tool)}:
            return tool
        case "external_directory", {"command": str()}:
            return "bash"
        case "external_directory", _:
            return "read"
        case permission, _:
            return permission


def _arguments_in(question: PermissionAsked) -> dict[str, Any]:
    match question.permission, question.metadata:
        case "doom_loop", {"input": dict()}:
            return {**cast("dict[str, Any]", question.metadata["input"])}
        case _, {"filepath": str(path)}:
            return {"filePath": path}
        case "read" | "glob" | "grep" | "list", metadata:
            return {**metadata, "path": ", ".join(question.patterns)}
        case _, metadata:
            return as_written({key: value for key, value in metadata.items() if key != "diff"})


def _reason(question: PermissionAsked) -> str:
    match question.permission:
        case "external_directory":
            return f"outside the project: {', '.join(question.patterns)}"
        case "doom_loop":
            return "the same call again and again"
        case _:
            return ""
