"""``codex app-server`` in unified events: the thread of the session, and its sub-agents as threads beside it. Pure.

``ThreadStream`` translates the items of one thread, ``AppServerDictionary`` all events.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, assert_never, cast

from msgspec.structs import replace

from ...agents.codex import notifications, questions, threads
from ...agents.codex.notifications import AppEvent
from ...agents.codex.questions import Question, RequestId
from ...agents.codex.threads import FileUpdateChange, ThreadItem
from ...transports.launch import Exited, Stalled
from ...unified.events import (
    Error,
    Event,
    Init,
    Notice,
    PermissionRequest,
    Plan,
    PlanItem,
    ShownImage,
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
    Usage,
    report_of,
    stalled,
)
from ...unified.faults import no_answer
from ...unified.images import image_of_content, images_in, marks_of, that_fit
from ...unified.settings import AgentReport, QuotaWindow
from ...wire import shapes
from ...wire.fitting import whole_number
from .endings import REPEATED, error_of, exit_error, retry_of, structured, unrecognized, usage_of
from .tools import (
    agent_use,
    call_of,
    changes_of,
    file_use,
    has_item,
    mcp_text,
    mcp_use,
    other_use,
    patch_use,
    request_of,
    search_use,
    shell_use,
    status_of,
    text_of,
)

_VERSION = re.compile(r"/(\d+\.\d+\.\d+\S*)")
_STEPS = {"completed": "completed", "inProgress": "in_progress", "in_progress": "in_progress"}
_OPENING_METHODS = ("thread/start", "thread/resume", "thread/fork", "")

CallItem = (
    threads.CommandExecutionThreadItem
    | threads.FileChangeThreadItem
    | threads.McpToolCallThreadItem
    | threads.DynamicToolCallThreadItem
    | threads.CollabAgentToolCallThreadItem
    | threads.WebSearchThreadItem
    | threads.ImageViewThreadItem
    | threads.ImageGenerationThreadItem
)


class ThreadStream:
    """The items of one thread: messages, thoughts and calls, under way and whole."""

    def __init__(self) -> None:
        self._open: dict[str, ToolUse] = {}
        self._outlasting: dict[str, ToolUse] = {}  # still running when their turn ended; some end later
        self._texts: dict[str, list[str]] = {}  # messages under way, by item
        self._thoughts: dict[str, list[str]] = {}
        self._patches: dict[str, list[FileUpdateChange]] = {}
        self._agents: dict[str, str] = {}  # the threads of sub-agents → the calls that started them
        self._rested: set[str] = set()  # the threads of sub-agents whose turn has ended well
        self._compacted = False
        self.refused: dict[str, str] = {}
        self.retries = 0
        self.answer: str | None = None
        """The last message since the turn began or a tool was called."""

    # ------------------------------------------------------------------------------------------------------ pieces

    def text_delta(self, item_id: str, delta: str) -> list[Event]:
        if not delta:
            return []
        self._texts.setdefault(item_id, []).append(delta)
        return [TextDelta(text=delta, message_id=item_id)]

    def thinking_delta(self, item_id: str, delta: str) -> list[Event]:
        if not delta:
            return []
        self._thoughts.setdefault(item_id, []).append(delta)
        return [ThinkingDelta(text=delta)]

    def next_thought(self, item_id: str) -> list[Event]:
        """A new part of a summary begins; the parts are lines of one thought."""
        return self.thinking_delta(item_id, "\n") if item_id in self._thoughts else []

    def progress(self, item_id: str, output: str) -> list[Event]:
        return [ToolProgress(tool_use_id=item_id, output=output)] if output and item_id in self._open else []

    def update_patch(self, item_id: str, changes: list[FileUpdateChange]) -> None:
        self._patches[item_id] = changes

    def unfinished(self) -> list[Event]:
        """The messages and thoughts under way, which will not be finished, as far as they came."""
        thoughts, texts = list(self._thoughts.values()), list(self._texts.items())
        self._thoughts.clear()
        self._texts.clear()
        return [
            *(Thinking(text="".join(pieces)) for pieces in thoughts),
            *(Text(text="".join(pieces), message_id=item_id) for item_id, pieces in texts),
        ]

    def end_turn(self) -> list[Event]:
        out = [*self.unfinished(), *(event for thread in sorted(self._rested) for event in self._agent_ended(thread))]
        self._outlasting.update(self._open)
        self._open.clear()
        self._patches.clear()
        self._compacted = False
        self.refused.clear()
        self.retries = 0
        self.answer = None
        return out

    def compacted(self) -> list[Event]:
        """Reported as an item, and again as a notification."""
        if self._compacted:
            return []
        self._compacted = True
        return [Notice(level="info", code="compacted", message="the conversation so far was summarized")]

    # ------------------------------------------------------------------------------------------------------- items

    def item(self, item: ThreadItem | shapes.UnknownMessage, *, done: bool) -> list[Event]:
        match item:
            case threads.AgentMessageThreadItem() | threads.PlanThreadItem():
                return self._message(item.id, item.text) if done else []
            case threads.ReasoningThreadItem():
                return self._thought(item) if done else []
            case threads.ContextCompactionThreadItem():
                return self.compacted() if done else []
            case threads.EnteredReviewModeThreadItem():
                return [Notice(level="info", code="review_started", message=item.review)] if done else []
            case threads.ExitedReviewModeThreadItem():
                return [Notice(level="info", code="review_ended", message=item.review)] if done else []
            case threads.SubAgentActivityThreadItem():
                return self._sub_agent(item) if done else []
            case (
                threads.UserMessageThreadItem()
                | threads.HookPromptThreadItem()
                | threads.FunctionCallOutputThreadItem()
                | threads.SleepThreadItem()
            ):
                return []
            case shapes.UnknownMessage():
                return [unrecognized(item)]
            case _:
                return self._finish(item) if done else self.announce(self.use(item))

    def _sub_agent(self, item: threads.SubAgentActivityThreadItem) -> list[Event]:
        """A sub-agent of the second kind: the call that started it is over when the sub-agent is."""
        name = item.agent_path or item.agent_thread_id
        match item.kind:
            case "started":
                self._agents[item.agent_thread_id] = item.id
                return self.announce(agent_use(item.id, "spawn_agent", None, [name]))
            case "completed":
                return self._agent_ended(item.agent_thread_id)
            case _:
                return [Notice(level="info", code="sub_agent", message=f"sub-agent {name}: {item.kind}")]

    def agent_rests(self, thread_id: str) -> None:
        """A sub-agent's turn has ended well. Before 0.149 that is all that is said of its end."""
        if thread_id in self._agents:
            self._rested.add(thread_id)

    def _agent_ended(self, thread_id: str) -> list[Event]:
        self._rested.discard(thread_id)
        return self.close(self._agents.pop(thread_id, ""), denied=False)

    def announce(self, use: ToolUse) -> list[Event]:
        """``tool_use``, once: a question may have reported the call before its item did."""
        self.answer = None
        if use.tool_use_id in self._open:
            return []
        self._open[use.tool_use_id] = use
        return [*self.unfinished(), use]

    def close(self, tool_use_id: str, *, denied: bool, output: str = "") -> list[Event]:
        """The end of a call that has no item of its own."""
        use = self._open.pop(tool_use_id, None)
        if use is None:
            return []
        return [
            ToolResult(tool_use_id=tool_use_id, name=use.name, status="denied" if denied else "success", output=output)
        ]

    def use(self, item: CallItem) -> ToolUse:
        match item:
            case threads.CommandExecutionThreadItem():
                return shell_use(item.id, item.command, cwd=item.cwd)
            case threads.FileChangeThreadItem():
                return patch_use(item.id, item.changes)
            case threads.McpToolCallThreadItem():
                return mcp_use(item.id, item.server, item.tool, item.arguments)
            case threads.DynamicToolCallThreadItem():
                return other_use(item.id, item.tool, item.arguments)
            case threads.CollabAgentToolCallThreadItem():
                return agent_use(item.id, item.tool, item.prompt, item.receiver_thread_ids)
            case threads.WebSearchThreadItem():
                return search_use(item.id, item.query, item.action)
            case threads.ImageViewThreadItem():
                return file_use(item.id, item.path, name="read_file", native="view_image")
            case threads.ImageGenerationThreadItem():
                return other_use(item.id, "image_generation", None)
            case _:
                assert_never(item)

    def _message(self, item_id: str, text: str) -> list[Event]:
        whole = text or "".join(self._texts.get(item_id, ()))
        self._texts.pop(item_id, None)
        if not whole:
            return []
        self.answer = whole
        return [Text(text=whole, message_id=item_id)]

    def _thought(self, item: threads.ReasoningThreadItem) -> list[Event]:
        words = "".join(self._thoughts.pop(item.id, ())) or item.words
        return [Thinking(text=words)] if words else []

    def _finish(self, item: CallItem) -> list[Event]:
        late = self._outlasting.pop(item.id, None)
        if late is not None:
            return [_result(late, item)]
        out = self.announce(self.use(item))
        result = _result(self._open.pop(item.id), item)
        refusal = self.refused.pop(item.id, "")
        if result.status == "denied" and not result.output:
            result = replace(result, output=refusal)
        if isinstance(item, threads.FileChangeThreadItem):
            changes = item.changes or self._patches.pop(item.id, [])
            out += changes_of(changes, item.id) if result.status == "success" else []
        return [*out, result]


def _result(use: ToolUse, item: CallItem) -> ToolResult:
    code: int | None = None
    duration: float | None = None
    output = fault = status = ""
    images: list[ShownImage] = []
    match item:
        case threads.CommandExecutionThreadItem():
            output, code, status, duration = item.aggregated_output or "", item.exit_code, item.status, item.duration_ms
        case threads.FileChangeThreadItem():
            status = item.status
        case threads.McpToolCallThreadItem():
            fault = item.error.message if item.error is not None else ""
            result = item.result
            output = fault or ("" if result is None else mcp_text(result.content, result.structured_content))
            images = [] if result is None else images_in(result.content)
            status, duration = item.status, item.duration_ms
        case threads.DynamicToolCallThreadItem():
            output, images = text_of(item.content_items), images_in(item.content_items)
            status, duration = item.status if item.success is not False else "failed", item.duration_ms
        case threads.CollabAgentToolCallThreadItem():
            output = "\n".join(state.message for state in item.agents_states.values() if state.message)
            status = item.status
        case threads.WebSearchThreadItem():
            output = text_of(item.results) if item.results else ""
        case threads.ImageViewThreadItem():
            output = item.path
        case threads.ImageGenerationThreadItem():
            output, status = item.saved_path or "", item.status
            generated = image_of_content(item.result)
            images = [] if generated is None else [generated]
            output = output or "\n".join(marks_of(images))
        case _:
            assert_never(item)
    return ToolResult(
        tool_use_id=use.tool_use_id,
        name=use.name,
        status=status_of(status, exit_code=code, error=fault),
        output=output,
        exit_code=code,
        duration_ms=duration or None,  # 0 is what it says of a command that was asked about
        images=that_fit(images),
    )


_PIECES: dict[type, Callable[[ThreadStream, Any], list[Event]]] = {
    notifications.AgentMessageDeltaNotification: lambda stream, piece: stream.text_delta(piece.item_id, piece.delta),
    notifications.PlanDeltaNotification: lambda stream, piece: stream.text_delta(piece.item_id, piece.delta),
    notifications.ReasoningSummaryPartAddedNotification: lambda stream, piece: stream.next_thought(piece.item_id),
    notifications.ReasoningSummaryTextDeltaNotification: lambda stream, piece: stream.thinking_delta(
        piece.item_id, piece.delta
    ),
    notifications.ReasoningTextDeltaNotification: lambda stream, piece: stream.thinking_delta(
        piece.item_id, piece.delta
    ),
    notifications.CommandExecutionOutputDeltaNotification: lambda stream, piece: stream.progress(
        piece.item_id, piece.delta
    ),
    notifications.FileChangeOutputDeltaNotification: lambda stream, piece: stream.progress(piece.item_id, piece.delta),
    notifications.McpToolCallProgressNotification: lambda stream, piece: stream.progress(piece.item_id, piece.message),
}
"""The bulk of a stream."""


class AppServerDictionary:
    """``prompted``: the driver knows when a turn starts, and the thread stays the same.

    Else (a recording) Codex reports it, and its client may continue in another thread.
    """

    def __init__(self, *, prompted: bool = False, wants_structure: bool = False) -> None:
        self.prompted = prompted
        self.report = AgentReport()
        self.wants_structure = wants_structure
        self._main = ""
        self._version = ""
        self._streams: dict[str, ThreadStream] = {}
        self._parents: dict[str, str | None] = {}  # a sub-agent's thread → the call that started it, if reported
        self._last_spawn: str | None = None
        self._own_threads: set[str] = set()  # the threads the client itself has opened
        self._in_turn = False
        self._error: Error | None = None
        self._sub_agent_usage = Usage()  # what sub-agents have used in this turn
        self._highest = Usage()  # the turn so far; a compaction makes Codex's own count go back
        self._reported = Usage()
        self._waiting: dict[RequestId, tuple[str, str]] = {}  # questions without an item: their thread and call
        self._refused: dict[RequestId, str] = {}

    # ---------------------------------------------------------------------------------------------- for the driver

    def request(self, question: Question) -> PermissionRequest | None:
        """A question of Codex's in unified words; ``None`` when it is not a question of permission."""
        use = call_of(question)
        return None if use is None else request_of(question, use, self._parent(question.thread_id))

    def refuse(self, question: Question, message: str) -> None:
        """It was denied. Codex will not report why, and for a question without an item not even that."""
        self._refused[question.request_id] = message
        self._stream(question.thread_id).refused[question.item_id] = message

    # --------------------------------------------------------------------------------------------- native → unified

    def translate(self, native: AppEvent) -> list[Event]:
        piece = _PIECES.get(type(native))
        if piece is not None:
            events = piece(self._stream(cast("notifications.Piece", native).thread_id), native)
            return self._with_parent(cast("notifications.Piece", native).thread_id, events)
        match native:
            case threads.CallReply():
                return self._reply(native)
            case threads.CallRefusal():
                return self._refusal(native)
            case Stalled():
                return [stalled(native.seconds)]
            case Exited():
                return self._exited(native)
            case shapes.UnknownMessage():
                return [unrecognized(native)]
            case (
                notifications.ItemStartedNotification()
                | notifications.ItemCompletedNotification()
                | notifications.FileChangePatchUpdatedNotification()
                | notifications.TurnPlanUpdatedNotification()
                | notifications.ContextCompactedNotification()
                | notifications.ErrorNotification()
            ):
                return self._with_parent(native.thread_id, self._in_thread(native))
            case notifications.TurnStartedNotification():
                return self._turn_started(native)
            case notifications.TurnCompletedNotification():
                return self._turn_completed(native)
            case notifications.ThreadStartedNotification():
                return self._thread_started(native.thread)
            case notifications.AccountRateLimitsUpdatedNotification():
                return self._limits(native)
            case notifications.ThreadTokenUsageUpdatedNotification():
                return self._token_usage(native)
            case notifications.ServerRequestResolvedNotification():
                return self._question_resolved(native)
            case notifications.McpServerStatusUpdatedNotification():
                words = f"MCP server {native.name} {native.status}: {native.error}"
                broken = native.status == "failed"
                return [Notice(level="warning", code="mcp_server_failed", message=words)] if broken else []
            case notifications.ModelReroutedNotification():
                words = f"{native.from_model} → {native.to_model}"
                return self._with_parent(
                    native.thread_id, [Notice(level="warning", code="model_fallback", message=words)]
                )
            case notifications.WarningNotification():
                code = "model_unknown" if "fallback metadata" in native.message else "warning"
                notice = Notice(level="warning", code=code, message=native.message)
                return self._with_parent(native.thread_id or self._main, [notice])
            case notifications.ConfigWarningNotification():
                return [_advice("config_warning", native.summary, native.details)]
            case notifications.DeprecationNoticeNotification():
                return [_advice("deprecated", native.summary, native.details)]
            case (
                notifications.ThreadStatusChangedNotification()
                | notifications.ThreadNameUpdatedNotification()
                | notifications.ThreadSettingsUpdatedNotification()
                | notifications.ThreadGoalUpdatedNotification()
                | notifications.ThreadChangedNotification()
                | notifications.TurnDiffUpdatedNotification()  # the same as the file changes, once more
                | notifications.TerminalInteractionNotification()
                | notifications.AutoApprovalReviewNotification()
                | notifications.HookNotification()
                | notifications.AccountUpdatedNotification()
                | notifications.RemoteControlStatusChangedNotification()
                | notifications.OtherNotification()
            ):
                return []
            case notifications.ModelProviderNotification():
                begins = native.method.endswith("Started")
                return [Notice(level="warning" if begins else "info", code="auth_recovery", message=native.message)]
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
                return self._question(native)
            case (
                notifications.AgentMessageDeltaNotification()
                | notifications.PlanDeltaNotification()
                | notifications.ReasoningSummaryPartAddedNotification()
                | notifications.ReasoningSummaryTextDeltaNotification()
                | notifications.ReasoningTextDeltaNotification()
                | notifications.CommandExecutionOutputDeltaNotification()
                | notifications.FileChangeOutputDeltaNotification()
                | notifications.McpToolCallProgressNotification()
            ):
                return []  # they have their table
            case _:
                assert_never(native)

    def _in_thread(
        self,
        native: notifications.ItemStartedNotification
        | notifications.ItemCompletedNotification
        | notifications.FileChangePatchUpdatedNotification
        | notifications.TurnPlanUpdatedNotification
        | notifications.ContextCompactedNotification
        | notifications.ErrorNotification,
    ) -> list[Event]:
        stream = self._stream(native.thread_id)
        match native:
            case notifications.ItemStartedNotification(item=item):
                self._learn_sub_agents(item)
                return stream.item(item, done=False)
            case notifications.ItemCompletedNotification(item=item):
                self._learn_sub_agents(item)
                return stream.item(item, done=True)
            case notifications.FileChangePatchUpdatedNotification():
                stream.update_patch(native.item_id, native.changes)
                return []
            case notifications.TurnPlanUpdatedNotification():
                return [_plan(native)]
            case notifications.ContextCompactedNotification():
                return stream.compacted()
            case notifications.ErrorNotification():
                return self._error_notification(native, stream)
            case _:
                assert_never(native)

    # ------------------------------------------------------------------------------------------- threads and turns

    def _reply(self, native: threads.CallReply) -> list[Event]:
        if isinstance(native.result, threads.ThreadResponse) and not native.result.thread.parent_thread_id:
            self._own_threads.add(native.result.thread.id)
        match native.result:
            case threads.CodexInitializeResponse(user_agent):
                version = _VERSION.search(user_agent)
                self._version = version[1] if version else ""
                return []
            case threads.ThreadResponse() as opened if not self._main and native.method in _OPENING_METHODS:
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

    def _refusal(self, native: threads.CallRefusal) -> list[Event]:
        elsewhere = self._in_turn and not self.prompted  # a turn that runs is not ended by a refusal for another one
        if native.method != "turn/start" or elsewhere:
            words = f"{native.method or 'a request'}: {native.message}"
            return [Notice(level="warning", code="request_refused", message=words)]
        details = threads.TurnErrorDetails(native.message)
        return [error_of(details), *self._end("error")]

    def _turn_started(self, native: notifications.TurnStartedNotification) -> list[Event]:
        moved = self._moves(native)
        self._main = native.thread_id if moved else self._main or native.thread_id
        if native.thread_id != self._main:
            return []
        self._in_turn = True
        renamed = [Init(native_session_id=self._main)] if moved else []
        return [*renamed, *([] if self.prompted else [TurnStarted()])]

    def _moves(self, native: notifications.TurnStartedNotification) -> bool:
        """Whether the client continues in another thread of its own: a fork, mostly; a sub-agent's turn has a root."""
        if self.prompted or self._in_turn or native.thread_id in ("", self._main) or not self._main:
            return False
        rooted = native.turn.root_turn_id in ("", None, native.turn.id) and native.thread_id not in self._parents
        return rooted or native.thread_id in self._own_threads

    def _turn_completed(self, native: notifications.TurnCompletedNotification) -> list[Event]:
        turn = native.turn
        used = Usage() if native.turn_usage is None else usage_of(native.turn_usage)
        stream = self._stream(native.thread_id)
        if native.thread_id != self._main:
            self._sub_agent_usage = self._sub_agent_usage + used
            failed = turn.error if turn.status == "failed" else None
            if turn.status == "completed":
                for parent in self._streams.values():
                    parent.agent_rests(native.thread_id)
            errors = [] if failed is None else [error_of(failed, fatal=False)]
            return self._with_parent(native.thread_id, [*stream.end_turn(), *errors])
        out: list[Event] = []
        status: Status = {"completed": "success", "interrupted": "interrupted"}.get(turn.status, "error")  # type: ignore[assignment]
        if status == "error" and self._error is None:
            out.append(error_of(turn.error or threads.TurnErrorDetails(f"the turn ended with status {turn.status!r}")))
        answer = stream.answer
        if status == "success" and answer is None:
            out.append(no_answer())
        value = structured(answer) if self.wants_structure and answer and status == "success" else None
        usage = self._count(used)
        return [*stream.unfinished(), *out, *self._end(status, usage, turn.duration_ms, value)]

    def _end(
        self, status: Status, usage: Usage | None = None, duration: float | None = None, value: object = None
    ) -> list[Event]:
        out = self._stream(self._main).end_turn()
        self._in_turn = False
        self._error = None
        self._sub_agent_usage = self._highest = self._reported = Usage()
        self._waiting.clear()
        self._refused.clear()
        return [
            *out,
            TurnCompleted(status=status, usage=usage or Usage(), duration_ms=duration, structured=value),
        ]

    def _exited(self, native: Exited) -> list[Event]:
        if self._in_turn:
            errors = [] if self._error is not None else [exit_error(native)]
            return [*errors, *self._end("error")]
        if not native.code:
            return []
        return [Notice(level="warning", code="exited", message=exit_error(native).message)]

    def _error_notification(self, native: notifications.ErrorNotification, stream: ThreadStream) -> list[Event]:
        details, main = native.error, native.thread_id == self._main
        retry = (
            retry_of(details.message, details.additional_details, earlier=stream.retries) if native.will_retry else None
        )
        if retry is not None:
            unfinished = stream.unfinished()
            repeated = [Notice(level="warning", code="text_repeated", message=REPEATED)]
            notice = repeated if unfinished or stream.answer else []
            stream.answer, stream.retries = None, retry.attempt
            return [*unfinished, *notice, retry]
        if native.will_retry:
            return [Notice(level="warning", code="error", message=details.message)]
        error = error_of(details, fatal=main)
        if main:
            self._error = error
        return [*stream.unfinished(), error]

    def _limits(self, native: notifications.AccountRateLimitsUpdatedNotification) -> list[Event]:
        windows = [native.rate_limits.get(name) for name in ("primary", "secondary")]
        quotas = [quota_of(cast("dict[str, Any]", window)) for window in windows if isinstance(window, dict)]
        self.report = replace(self.report, quotas=tuple(quota for quota in quotas if quota is not None))
        return []

    def _token_usage(self, native: notifications.ThreadTokenUsageUpdatedNotification) -> list[Event]:
        if native.thread_id == self._main and native.token_usage.model_context_window:
            used, size = native.token_usage.last.total_tokens, native.token_usage.model_context_window
            self.report = replace(self.report, context_used=used, context_size=size)
        if native.thread_id != self._main or native.turn_usage is None:
            return []
        before, usage = self._reported, self._count(usage_of(native.turn_usage))
        self._reported = usage
        return [report_of(usage)] if usage != before else []

    def _count(self, used: Usage) -> Usage:
        self._highest = max(self._highest, used, key=lambda usage: usage.total_tokens)
        return self._highest + self._sub_agent_usage

    # -------------------------------------------------------------------------------------------------- questions

    def _question(self, question: Question) -> list[Event]:
        use = call_of(question)
        if use is None:
            return []
        if not has_item(question):
            self._waiting[question.request_id] = (question.thread_id, use.tool_use_id)
        return self._with_parent(question.thread_id, self._stream(question.thread_id).announce(use))

    def _question_resolved(self, native: notifications.ServerRequestResolvedNotification) -> list[Event]:
        refusal = self._refused.pop(native.request_id, None)
        waiting = self._waiting.pop(native.request_id, None)
        if waiting is None:
            return []
        thread_id, tool_use_id = waiting
        closed = self._stream(thread_id).close(tool_use_id, denied=refusal is not None, output=refusal or "")
        return self._with_parent(thread_id, closed)

    # ------------------------------------------------------------------------------------------------- sub-agents

    def _learn_sub_agents(self, item: object) -> None:
        if isinstance(item, threads.CollabAgentToolCallThreadItem) and item.tool in ("spawnAgent", "spawn_agent"):
            self._last_spawn = item.id
            for thread_id in item.receiver_thread_ids:
                self._parents[thread_id] = item.id
        elif isinstance(item, threads.SubAgentActivityThreadItem) and item.kind == "started":
            self._parents[item.agent_thread_id] = item.id

    def _parent(self, thread_id: str) -> str | None:
        if thread_id in ("", self._main) or thread_id in self._own_threads or not self._main:
            return None
        if thread_id not in self._parents:  # its events come before the call that started it is over
            self._parents[thread_id] = self._last_spawn
        return self._parents[thread_id]

    def _with_parent(self, thread_id: str, events: list[Event]) -> list[Event]:
        parent = None if thread_id == self._main else self._parent(thread_id)
        if parent is None:
            return events
        return [replace(event, parent_tool_use_id=parent) for event in events]

    def _stream(self, thread_id: str) -> ThreadStream:
        stream = self._streams.get(thread_id)
        if stream is None:
            stream = self._streams[thread_id] = ThreadStream()
        return stream


def _plan(native: notifications.TurnPlanUpdatedNotification) -> Plan:
    return Plan(items=[PlanItem(step.step, _STEPS.get(step.status, "pending")) for step in native.plan])  # type: ignore[arg-type]


def _advice(code: str, summary: str, details: str | None) -> Notice:
    return Notice(level="info", code=code, message=f"{summary} {details}" if details else summary)


def quota_of(window: Mapping[str, Any]) -> QuotaWindow | None:
    """A window of the account's limits, if it says how much is used."""
    used = window.get("usedPercent")
    minutes, resets = (whole_number(window.get(name)) for name in ("windowDurationMins", "resetsAt"))
    if not isinstance(used, int | float):
        return None
    hours = (minutes or 0) // 60
    name = f"{hours // 24} days" if hours >= 48 else f"{hours} hours" if hours else "limit"
    return QuotaWindow(name=name, used_percent=used, resets_at=None if resets is None else resets * 1000)
