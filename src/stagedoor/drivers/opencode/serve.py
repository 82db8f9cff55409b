"""``opencode serve``: what the server's event stream says, translated."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, assert_never

from ...agents.opencode import events, parts
from ...agents.opencode.events import PermissionAsked, QuestionAsked, SessionRecord, TurnEnded
from ...agents.opencode.guard import MARK
from ...agents.opencode.runaway import STAYS_TOO_LONG
from ...transports.launch import Exited, Stalled
from ...unified.events import (
    Error,
    ErrorKind,
    Event,
    Init,
    Notice,
    PermissionRequest,
    Retry,
    Status,
    TurnCompleted,
    Unrecognized,
    Usage,
    report_of,
    stalled,
)
from ...unified.faults import no_answer
from ...wire import shapes
from .calls import Calls, below
from .failures import ABORTED, REASONS, error_of
from .questions import diff_in, permission_request, question_request
from .speech import Speech
from .spending import Spending, usage_of

OVERFLOW = "ContextOverflowError"
UNGUARDED = "OpenCode did not load our plugin: commands that are nothing but redirections are not asked about"
COMPACTING = "compaction"
"""The agent whose text is the summary of a conversation that grew too long, and no answer."""


class ServeDictionary:
    def __init__(self) -> None:
        self._begun = False
        self._record: SessionRecord | None = None
        self._model = ""
        self._parents: dict[str, str] = {}  # a sub-agent's session → the session that started it
        self._tasks: dict[str, str] = {}  # a sub-agent's session → the call that started it
        self._running_task: dict[str, str] = {}
        self._messages: set[str] = set()
        self._copied: set[str] = set()  # messages of another session's past, told again by its fork
        self._silent: set[str] = set()  # messages whose text is not the agent's answer
        self._calls = Calls()
        self._speech = Speech()
        self._spending = Spending()
        self._rejected = False
        self._runaway = ""
        self._exhausted = False
        self._structured: Any = None
        self._answered = False  # whether the last step of the agent itself said anything
        self.guarded = False
        """Whether OpenCode was started with the plugin that makes it ask about every command."""
        self.on_call: Callable[[], None] = lambda: None
        """Told whenever a call's input becomes known: questions come before that."""

    # ------------------------------------------------------------------------------------------------ questions

    def request(self, asked: PermissionAsked | QuestionAsked) -> PermissionRequest:
        tool_use_id, parent = self._id_of(asked), self._parent(asked.session_id)
        if isinstance(asked, QuestionAsked):
            return question_request(asked, tool_use_id, parent)
        return permission_request(asked, self._calls.part(tool_use_id), tool_use_id, parent)

    def knows(self, asked: PermissionAsked | QuestionAsked) -> bool:
        """Whether the input of the call it is about has been heard."""
        return asked.tool is None or self._calls.part(self._id_of(asked)) is not None

    def _id_of(self, asked: PermissionAsked | QuestionAsked) -> str:
        return self._calls.id_of(asked.tool.message_id, asked.tool.call_id) if asked.tool is not None else ""

    # ---------------------------------------------------------------------------------------------- translation

    def translate(self, native: events.ServerEvent) -> list[Event]:
        made = self._translated(native)
        if self._begun or not (made or self._knows_itself(native)):
            return made
        self._begun = True
        return [self._init(), *made]

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
                return self._complaint(native)
            case events.SessionCompacted():
                message = "the conversation grew too long and was summarized"
                return below([Notice(level="info", code="compacted", message=message)], self._parent(native.session_id))
            case PermissionAsked():
                return self._asked(native)
            case events.PermissionReplied():
                self._rejected = self._rejected or native.reply == "reject"
                return []
            case events.QuestionRejected():
                self._rejected = True
                return []
            case TurnEnded():
                return self._over(native)
            case events.Runaway():
                self._runaway = f"{native.why}; ended after {native.steps} tries"
                return []
            case events.StepsExhausted():
                self._exhausted = True
                return []
            case events.Refused():
                if native.status == 404:  # an answer that came too late
                    return []
                message = f"OpenCode refused {native.call}: {native.message or native.status}"
                return [Notice(level="warning", code="request_refused", message=message)]
            case Stalled():
                return [stalled(native.seconds)]
            case Exited():
                return _exited(native)
            case shapes.Unrecognized():
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
                | events.TodoUpdated()  # the call that wrote them says the same
                | events.FileEdited()
                | events.CommandExecuted()
                | events.ServerNotice()
                | events.ServerListening()
                | events.ServerSaid()
                | events.Answered()
            ):
                return []
            case _:
                assert_never(native)

    def _asked(self, asked: PermissionAsked) -> list[Event]:
        if diff := diff_in(asked):
            self._calls.asked(self._id_of(asked), diff)
        if not self.guarded or asked.permission != "bash" or str(asked.metadata.get("command")).startswith(MARK):
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

    def _knows_itself(self, native: events.ServerEvent) -> bool:
        return bool(self._model) and isinstance(native, events.SessionUpdated | events.MessageUpdated)

    def _init(self) -> Init:
        record = self._record
        return Init(
            model=self._model,
            cwd=record.directory if record is not None else "",
            agent_version=record.version if record is not None else "",
            native_session_id=record.id if record is not None else "",
        )

    def _parent(self, session_id: str) -> str | None:
        """The call that started the sub-agent of this session; ``None`` for the agent itself."""
        if session_id in self._tasks:
            return self._tasks[session_id]
        started_by = self._parents.get(session_id)
        return None if started_by is None else self._running_task.get(started_by, session_id)

    # -------------------------------------------------------------------------------------------------- messages

    def _message(self, info: events.Message) -> list[Event]:
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
        if not isinstance(part, shapes.Unrecognized) and part.message_id in self._copied:
            return []
        match part:
            case parts.TextPart():
                if part.message_id in self._silent or part.synthetic or part.ignored:
                    return []
                self._answered = self._answered or (parent is None and bool(part.text))
                return self._speech.part(part, parent)
            case parts.ReasoningPart():
                return [] if part.message_id in self._silent else self._speech.part(part, parent)
            case parts.ToolPart():
                self._started(part)
                made = below(self._calls.update(part), parent)
                if part.state.status == "running":
                    self.on_call()
                return made
            case parts.StepFinishPart():
                return [*self._spending.step(part)]  # sub-agents spend for the turn
            case shapes.Unrecognized():
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

    def _started(self, part: parts.ToolPart) -> None:
        if part.tool != "task":
            return
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

    def _complaint(self, native: events.SessionError) -> list[Event]:
        """An error is the turn's when it ends with it; here only what would else go unsaid."""
        parent = self._parent(native.session_id)
        if native.error.name == ABORTED or (parent is None and native.error.name != OVERFLOW):
            return []
        code = "context_overflow" if native.error.name == OVERFLOW else "subagent_failed"
        return below([Notice(level="warning", code=code, message=native.error.message)], parent)

    # ----------------------------------------------------------------------------------------------------- turns

    def _over(self, ended: TurnEnded) -> list[Event]:
        out = self._speech.end()
        usage = self._spending.end()
        if usage == Usage() and (told := usage_of(ended.tokens, ended.cost)) != Usage():
            usage = told
            out.append(report_of(usage))
        status, error = self._judged(ended)
        structured, self._structured = self._structured, None
        if status == "success" and ended.finish is not None and structured is None and not self._answered:
            out.append(no_answer())
        self._answered = False
        self._rejected, self._runaway, self._exhausted = False, "", False
        self._running_task.clear()
        if error is not None:
            out.append(error)
        return [*out, TurnCompleted(status=status, usage=usage, structured=structured)]

    def _judged(self, ended: TurnEnded) -> tuple[Status, Error | None]:
        if self._runaway:
            kind: ErrorKind = "context_overflow" if STAYS_TOO_LONG in self._runaway else "connection_failed"
            return "error", Error(kind=kind, message=self._runaway, fatal=True)
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
