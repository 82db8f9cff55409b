"""``codex app-server``: one process, the thread of the session, and its sub-agents as threads beside it."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import assert_never

from msgspec.structs import replace

from ...agents.codex import notifications as said
from ...agents.codex import questions, threads
from ...agents.codex.notifications import AppEvent
from ...agents.codex.questions import Question, RequestId
from ...agents.codex.thread_items import CollabAgentToolCallThreadItem, SubAgentActivityThreadItem
from ...transports.launch import Exited, Stalled
from ...unified.events import (
    Error,
    Event,
    Init,
    Notice,
    PermissionRequest,
    Plan,
    PlanItem,
    Status,
    TurnCompleted,
    TurnStarted,
    Usage,
    report_of,
    stalled,
)
from ...unified.faults import no_answer
from ...wire import shapes
from .endings import broken_off, error_of, retry_of, structured, usage_of
from .questions import call_of, has_item, request_of
from .thread_stream import ThreadStream, unrecognized

_VERSION = re.compile(r"/(\d+\.\d+\.\d+\S*)")
_STEPS = {"completed": "completed", "inProgress": "in_progress", "in_progress": "in_progress"}
_OPENED = ("thread/start", "thread/resume", "thread/fork", "")
REPEATED = "the answer broke off and is asked for again: what was said of it so far is not the answer"


class AppServerDictionary:
    """``prompted``: somebody else says when a turn starts, and the thread stays the same.

    Else (a recording) Codex says so, and its client may go on in another thread.
    """

    def __init__(self, *, prompted: bool = False, wants_structure: bool = False) -> None:
        self.prompted = prompted
        self.wants_structure = wants_structure
        self._main = ""
        self._version = ""
        self._streams: dict[str, ThreadStream] = {}
        self._parents: dict[str, str | None] = {}  # a sub-agent's thread → the call that started it, where it is told
        self._last_spawn: str | None = None
        self._own: set[str] = set()  # the threads the client itself has opened
        self._in_turn = False
        self._error: Error | None = None
        self._below = Usage()  # what sub-agents have used in this turn
        self._most = Usage()  # the turn so far; a compaction makes Codex's own count go back
        self._reported = Usage()
        self._waiting: dict[RequestId, tuple[str, str]] = {}  # questions without an item: their thread and call
        self._refused: dict[RequestId, str] = {}

    # -------------------------------------------------------------------------------------- what the driver asks

    def request(self, question: Question) -> PermissionRequest | None:
        """A question of Codex's in our words; ``None`` when it is none that anybody could answer."""
        use = call_of(question)
        return None if use is None else request_of(question, use, self._parent(question.thread_id))

    def refuse(self, question: Question, message: str) -> None:
        """It was denied; why, Codex will not say, and of a question that has no item not even that."""
        self._refused[question.request_id] = message
        self._stream(question.thread_id).refused[question.item_id] = message

    # ------------------------------------------------------------------------------------------------ what is heard

    def translate(self, native: AppEvent) -> list[Event]:
        match native:
            case threads.Replied():
                return self._replied(native)
            case threads.Refused():
                return self._refusal(native)
            case Stalled():
                return [stalled(native.seconds)]
            case Exited():
                return self._exited(native)
            case shapes.Unrecognized():
                return [unrecognized(native)]
            case (
                said.ItemStartedNotification()
                | said.ItemCompletedNotification()
                | said.AgentMessageDeltaNotification()
                | said.PlanDeltaNotification()
                | said.ReasoningSummaryPartAddedNotification()
                | said.ReasoningSummaryTextDeltaNotification()
                | said.ReasoningTextDeltaNotification()
                | said.CommandExecutionOutputDeltaNotification()
                | said.FileChangeOutputDeltaNotification()
                | said.McpToolCallProgressNotification()
                | said.FileChangePatchUpdatedNotification()
                | said.TurnPlanUpdatedNotification()
                | said.ContextCompactedNotification()
                | said.ErrorNotification()
            ):
                return self._under(native.thread_id, self._in_thread(native))
            case said.TurnStartedNotification():
                return self._turn_started(native)
            case said.TurnCompletedNotification():
                return self._turn_completed(native)
            case said.ThreadStartedNotification():
                return self._thread_started(native.thread)
            case said.ThreadTokenUsageUpdatedNotification():
                return self._used(native)
            case said.ServerRequestResolvedNotification():
                return self._resolved(native)
            case said.McpServerStatusUpdatedNotification():
                words = f"MCP server {native.name} {native.status}: {native.error}"
                broken = native.status == "failed"
                return [Notice(level="warning", code="mcp_server_failed", message=words)] if broken else []
            case said.ModelReroutedNotification():
                words = f"{native.from_model} → {native.to_model}"
                return self._under(native.thread_id, [Notice(level="warning", code="model_fallback", message=words)])
            case said.WarningNotification():
                code = "model_unknown" if "fallback metadata" in native.message else "warning"
                notice = Notice(level="warning", code=code, message=native.message)
                return self._under(native.thread_id or self._main, [notice])
            case said.ConfigWarningNotification():
                return [_advice("config_warning", native.summary, native.details)]
            case said.DeprecationNoticeNotification():
                return [_advice("deprecated", native.summary, native.details)]
            case (
                said.ThreadStatusChangedNotification()
                | said.ThreadNameUpdatedNotification()
                | said.ThreadSettingsUpdatedNotification()
                | said.ThreadGoalUpdatedNotification()
                | said.ThreadChangedNotification()
                | said.TurnDiffUpdatedNotification()  # the same as the file changes, once more
                | said.TerminalInteractionNotification()
                | said.AutoApprovalReviewNotification()
                | said.HookNotification()
                | said.AccountRateLimitsUpdatedNotification()
                | said.AccountUpdatedNotification()
                | said.RemoteControlStatusChangedNotification()
            ):
                return []
            case (
                questions.CommandExecutionRequestApproval()
                | questions.FileChangeRequestApproval()
                | questions.PermissionsRequestApproval()
                | questions.McpServerElicitationRequest()
                | questions.ToolRequestUserInput()
                | questions.DynamicToolCall()
                | questions.CurrentTimeRead()
                | questions.ExecCommandApproval()
                | questions.ApplyPatchApproval()
            ):
                return self._asked(native)
            case _:
                assert_never(native)

    def _in_thread(
        self,
        native: said.ItemStartedNotification
        | said.ItemCompletedNotification
        | said.AgentMessageDeltaNotification
        | said.PlanDeltaNotification
        | said.ReasoningSummaryPartAddedNotification
        | said.ReasoningSummaryTextDeltaNotification
        | said.ReasoningTextDeltaNotification
        | said.CommandExecutionOutputDeltaNotification
        | said.FileChangeOutputDeltaNotification
        | said.McpToolCallProgressNotification
        | said.FileChangePatchUpdatedNotification
        | said.TurnPlanUpdatedNotification
        | said.ContextCompactedNotification
        | said.ErrorNotification,
    ) -> list[Event]:
        stream = self._stream(native.thread_id)
        match native:
            case said.ItemStartedNotification(item=item):
                self._spawned(item)
                return stream.item(item, done=False)
            case said.ItemCompletedNotification(item=item):
                self._spawned(item)
                return stream.item(item, done=True)
            case said.AgentMessageDeltaNotification() | said.PlanDeltaNotification():
                return stream.text_delta(native.item_id, native.delta)
            case said.ReasoningSummaryPartAddedNotification():
                return stream.next_thought(native.item_id)
            case said.ReasoningSummaryTextDeltaNotification() | said.ReasoningTextDeltaNotification():
                return stream.thinking_delta(native.item_id, native.delta)
            case said.CommandExecutionOutputDeltaNotification() | said.FileChangeOutputDeltaNotification():
                return stream.progress(native.item_id, native.delta)
            case said.McpToolCallProgressNotification():
                return stream.progress(native.item_id, native.message)
            case said.FileChangePatchUpdatedNotification():
                stream.patched(native.item_id, native.changes)
                return []
            case said.TurnPlanUpdatedNotification():
                return [_plan(native)]
            case said.ContextCompactedNotification():
                return stream.compacted()
            case said.ErrorNotification():
                return self._failing(native, stream)
            case _:
                assert_never(native)

    # ------------------------------------------------------------------------------------------- threads and turns

    def _replied(self, native: threads.Replied) -> list[Event]:
        if isinstance(native.result, threads.ThreadResponse) and not native.result.thread.parent_thread_id:
            self._own.add(native.result.thread.id)
        match native.result:
            case threads.InitializeResponse(user_agent):
                found = _VERSION.search(user_agent)
                self._version = found[1] if found else ""
                return []
            case threads.ThreadResponse() as opened if not self._main and native.method in _OPENED:
                resumed = native.method == "thread/resume" or (not native.method and bool(opened.thread.preview))
                return [self._init(opened.thread, opened.model, opened.cwd, resumed=resumed)]
            case _:
                return []

    def _thread_started(self, thread: threads.Thread) -> list[Event]:
        if self._main or thread.parent_thread_id:
            return []
        return [self._init(thread, thread.model or "", thread.cwd, resumed=bool(thread.preview))]

    def _init(self, thread: threads.Thread, model: str, cwd: str, *, resumed: bool) -> Init:
        self._main = thread.id
        self._in_turn = self.prompted  # its first prompt is on its way
        return Init(
            model=model,
            cwd=cwd or thread.cwd,
            agent_version=self._version or thread.cli_version,
            native_session_id=thread.id,
            resumed=resumed,
        )

    def _refusal(self, native: threads.Refused) -> list[Event]:
        elsewhere = self._in_turn and not self.prompted  # a turn that runs is not ended by what another one is told
        if native.method != "turn/start" or elsewhere:
            words = f"{native.method or 'a request'}: {native.message}"
            return [Notice(level="warning", code="request_refused", message=words)]
        details = threads.TurnErrorDetails(native.message)
        return [error_of(details), *self._end("error")]

    def _turn_started(self, native: said.TurnStartedNotification) -> list[Event]:
        moved = self._moves(native)
        self._main = native.thread_id if moved else self._main or native.thread_id
        if native.thread_id != self._main:
            return []
        self._in_turn = True
        renamed = [Init(native_session_id=self._main)] if moved else []
        return [*renamed, *([] if self.prompted else [TurnStarted()])]

    def _moves(self, native: said.TurnStartedNotification) -> bool:
        """Whether the client goes on in another thread of its own: a fork, mostly; a sub-agent's turn has a root."""
        if self.prompted or self._in_turn or native.thread_id in ("", self._main) or not self._main:
            return False
        rooted = native.turn.root_turn_id in ("", None, native.turn.id) and native.thread_id not in self._parents
        return rooted or native.thread_id in self._own

    def _turn_completed(self, native: said.TurnCompletedNotification) -> list[Event]:
        turn = native.turn
        used = Usage() if native.turn_usage is None else usage_of(native.turn_usage)
        stream = self._stream(native.thread_id)
        if native.thread_id != self._main:
            self._below = self._below + used
            failed = turn.error if turn.status == "failed" else None
            errors = [] if failed is None else [error_of(failed, fatal=False)]
            return self._under(native.thread_id, [*stream.end_turn(), *errors])
        out: list[Event] = []
        status: Status = {"completed": "success", "interrupted": "interrupted"}.get(turn.status, "error")  # type: ignore[assignment]
        if status == "error" and self._error is None:
            out.append(error_of(turn.error or threads.TurnErrorDetails(f"the turn ended as {turn.status!r}")))
        answer = stream.answer
        if status == "success" and answer is None:
            out.append(no_answer())
        value = structured(answer) if self.wants_structure and answer and status == "success" else None
        usage = self._counted(used)
        return [*stream.broken_off(), *out, *self._end(status, usage, turn.duration_ms, value)]

    def _end(
        self, status: Status, usage: Usage | None = None, duration: float | None = None, value: object = None
    ) -> list[Event]:
        out = self._stream(self._main).end_turn()
        self._in_turn = False
        self._error = None
        self._below = self._most = self._reported = Usage()
        self._waiting.clear()
        self._refused.clear()
        return [
            *out,
            TurnCompleted(status=status, usage=usage or Usage(), duration_ms=duration, structured=value),
        ]

    def _exited(self, native: Exited) -> list[Event]:
        if self._in_turn:
            errors = [] if self._error is not None else [broken_off(native)]
            return [*errors, *self._end("error")]
        if not native.code:
            return []
        return [Notice(level="warning", code="exited", message=broken_off(native).message)]

    def _failing(self, native: said.ErrorNotification, stream: ThreadStream) -> list[Event]:
        details, main = native.error, native.thread_id == self._main
        retry = (
            retry_of(details.message, details.additional_details, earlier=stream.retries) if native.will_retry else None
        )
        if retry is not None:
            spoken = stream.broken_off() or stream.answer
            stream.answer, stream.retries = None, retry.attempt
            notice = [Notice(level="warning", code="text_repeated", message=REPEATED)] if spoken else []
            return [*(spoken if isinstance(spoken, list) else []), *notice, retry]
        if native.will_retry:
            return [Notice(level="warning", code="error", message=details.message)]
        error = error_of(details, fatal=main)
        if main:
            self._error = error
        return [*stream.broken_off(), error]

    def _used(self, native: said.ThreadTokenUsageUpdatedNotification) -> list[Event]:
        if native.thread_id != self._main or native.turn_usage is None:
            return []
        before, usage = self._reported, self._counted(usage_of(native.turn_usage))
        self._reported = usage
        return [report_of(usage)] if usage != before else []

    def _counted(self, used: Usage) -> Usage:
        self._most = max(self._most, used, key=lambda usage: usage.total_tokens)
        return self._most + self._below

    # -------------------------------------------------------------------------------------------------- questions

    def _asked(self, question: Question) -> list[Event]:
        use = call_of(question)
        if use is None:
            return []
        if not has_item(question):
            self._waiting[question.request_id] = (question.thread_id, use.tool_use_id)
        return self._under(question.thread_id, self._stream(question.thread_id).announce(use))

    def _resolved(self, native: said.ServerRequestResolvedNotification) -> list[Event]:
        refusal = self._refused.pop(native.request_id, None)
        waiting = self._waiting.pop(native.request_id, None)
        if waiting is None:
            return []
        thread_id, tool_use_id = waiting
        closed = self._stream(thread_id).close(tool_use_id, denied=refusal is not None, output=refusal or "")
        return self._under(thread_id, closed)

    # ------------------------------------------------------------------------------------------------- sub-agents

    def _spawned(self, item: object) -> None:
        if isinstance(item, CollabAgentToolCallThreadItem) and item.tool in ("spawnAgent", "spawn_agent"):
            self._last_spawn = item.id
            for thread_id in item.receiver_thread_ids:
                self._parents[thread_id] = item.id
        elif isinstance(item, SubAgentActivityThreadItem) and item.kind == "started":
            self._parents[item.agent_thread_id] = item.id

    def _parent(self, thread_id: str) -> str | None:
        if thread_id in ("", self._main) or thread_id in self._own or not self._main:
            return None
        if thread_id not in self._parents:  # it speaks before the call that started it is over
            self._parents[thread_id] = self._last_spawn
        return self._parents[thread_id]

    def _under(self, thread_id: str, events: Iterable[Event]) -> list[Event]:
        parent = self._parent(thread_id)
        if parent is None:
            return list(events)
        return [replace(event, parent_tool_use_id=parent) for event in events]

    def _stream(self, thread_id: str) -> ThreadStream:
        return self._streams.setdefault(thread_id, ThreadStream())


def _plan(native: said.TurnPlanUpdatedNotification) -> Plan:
    return Plan(items=[PlanItem(step.step, _STEPS.get(step.status, "pending")) for step in native.plan])  # type: ignore[arg-type]


def _advice(code: str, summary: str, details: str | None) -> Notice:
    return Notice(level="info", code=code, message=f"{summary} {details}" if details else summary)
