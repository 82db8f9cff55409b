"""``codex exec --json`` in unified events: a process for each turn. Pure."""

from __future__ import annotations

from typing import TypeAlias, assert_never

from ...agents.codex import events
from ...agents.codex.events import ExecEvent, Item
from ...transports.launch import Exited, Stalled
from ...unified.events import (
    Error,
    Event,
    Init,
    Notice,
    Plan,
    PlanItem,
    ShownImage,
    Text,
    Thinking,
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
from ...unified.images import images_in, that_fit
from ...wire import shapes
from .endings import REPEATED, exit_error, retry_of, structured, turn_error, unrecognized, usage_of
from .tools import (
    agent_use,
    exec_changes,
    exec_patch_use,
    mcp_text,
    mcp_use,
    other_use,
    record,
    search_use,
    shell_use,
    status_of,
    text_of,
)

ExecCallItem: TypeAlias = (
    events.CommandExecutionItem
    | events.ToolCallItem
    | events.FileChangeItem
    | events.McpToolCallItem
    | events.WebSearchItem
    | events.CollabToolCallItem
)
CUMULATIVE = "Codex reports the tokens of the whole thread ({} so far): this turn's tokens are the difference"
OF_THREAD = (
    "Codex tells the tokens of the whole thread, and a recording does not say whether it had earlier turns: if the "
    "thread was resumed, these are counted here too"
)
UNKNOWN_USAGE = "the tokens of this turn are unknown: Codex reported only those of the whole thread"


class ExecDictionary:
    """``prompted``: the driver knows when a turn starts; else (a recording) Codex reports it.

    ``resumed`` and ``wants_structure`` are what the driver knows and Codex does not report.
    """

    def __init__(self, *, prompted: bool = False, resumed: bool = False, wants_structure: bool = False) -> None:
        self.prompted = prompted
        self.resumed = resumed
        self.wants_structure = wants_structure
        self._process = 0
        self._thread = ""
        self._counted = ""  # the thread whose total was reported in this recording
        self._in_turn = False
        self._ended = False  # whether a turn has ended
        self._open: dict[str, ToolUse] = {}
        self._reported_output: dict[str, int] = {}
        self._plan: list[PlanItem] = []
        self._last_text: str | None = None
        self._last_error = ""
        self._retries = 0

    def translate(self, native: ExecEvent) -> list[Event]:
        match native:
            case events.ThreadError():
                return self._stream_error(native.message)
            case events.CodexTurnFailed():
                return self._end_failed([turn_error(native.error.message or self._last_error)])
            case Exited():
                return self._exited(native)
            case events.StreamEnded():
                return self._stream_ended()
            case _:
                return [*self._harmless_error(), *self._translate(native)]

    def _translate(
        self,
        native: events.ThreadStarted
        | events.CodexTurnStarted
        | events.CodexTurnCompleted
        | events.ItemEvent
        | Stalled
        | shapes.UnknownMessage,
    ) -> list[Event]:
        match native:
            case events.ThreadStarted():
                self._process += 1
                self._thread = native.thread_id
                self._in_turn = True
                return [Init(native_session_id=native.thread_id, resumed=self.resumed)]
            case events.CodexTurnStarted():
                return [] if self.prompted else [TurnStarted()]
            case events.CodexTurnCompleted():
                return self._turn_completed(native)
            case events.ItemStarted():
                return self._item(native.item, done=False)
            case events.ItemUpdated():
                return [*self._item(native.item, done=False), *self._progress(native.item)]
            case events.ItemCompleted():
                return self._item(native.item, done=True, status=native.status)
            case Stalled():
                return [stalled(native.seconds)]
            case shapes.UnknownMessage():
                return [unrecognized(native)]
            case _:
                assert_never(native)

    # ------------------------------------------------------------------------------------------------------- items

    def _item(self, item: Item | shapes.UnknownMessage, *, done: bool, status: str = "") -> list[Event]:
        match item:
            case events.AgentMessageItem():
                if not done or not item.text:
                    return []
                self._last_text = item.text
                return [Text(text=item.text, message_id=self._id(item.id))]
            case events.ReasoningItem():
                return [Thinking(text=item.words)] if done and item.words else []
            case events.TodoListItem():
                return self._plan_update(item)
            case events.ErrorItem():
                code = "model_unknown" if "fallback metadata" in item.message else "warning"
                return [Notice(level="warning", code=code, message=item.message)] if done else []
            case shapes.UnknownMessage():
                return [unrecognized(item)]
            case _:
                self._last_text = None
                if done:
                    return self._finish(item, status)
                return self._announce(_use(self._id(item.id), item)) if _has_subject(item) else []

    def _progress(self, item: Item | shapes.UnknownMessage) -> list[Event]:
        """The output of an older version's command since its last update."""
        if not isinstance(item, events.CommandExecutionItem) or self._id(item.id) not in self._open:
            return []
        tool_use_id = self._id(item.id)
        output = item.aggregated_output[self._reported_output.get(tool_use_id, 0) :]
        self._reported_output[tool_use_id] = len(item.aggregated_output)
        return [ToolProgress(tool_use_id=tool_use_id, output=output)] if output else []

    def _announce(self, use: ToolUse) -> list[Event]:
        if use.tool_use_id in self._open:
            return []
        self._open[use.tool_use_id] = use
        return [use]

    def _finish(
        self,
        item: ExecCallItem,
        status: str,
    ) -> list[Event]:
        tool_use_id = self._id(item.id)
        out = self._announce(_use(tool_use_id, item))
        result = _result(self._open.pop(tool_use_id), item, status)
        self._reported_output.pop(tool_use_id, None)
        if isinstance(item, events.FileChangeItem) and result.status == "success":
            out += exec_changes(item, tool_use_id)
        return [*out, result]

    def _plan_update(self, item: events.TodoListItem) -> list[Event]:
        steps = [PlanItem(todo.text, "completed" if todo.completed else "pending") for todo in item.items]
        if steps == self._plan:
            return []  # it is repeated at the end of the turn
        self._plan = steps
        return [Plan(items=steps)]

    def _id(self, item_id: str) -> str:
        """Codex counts from zero in every process."""
        return f"{self._process}.{item_id}"

    # ------------------------------------------------------------------------------------------------------- turns

    def _stream_error(self, message: str) -> list[Event]:
        out = self._harmless_error()
        retry = retry_of(message, earlier=self._retries)
        if retry is None:
            self._last_error = message  # fatal if the turn ends with it
            return out
        self._retries = retry.attempt
        if self._last_text is not None:
            self._last_text = None
            out.append(Notice(level="warning", code="text_repeated", message=REPEATED))
        return [*out, retry]

    def _harmless_error(self) -> list[Event]:
        """What sounded like an error did not end the turn."""
        message, self._last_error = self._last_error, ""
        return [Notice(level="warning", code="error", message=message)] if message else []

    def _turn_completed(self, native: events.CodexTurnCompleted) -> list[Event]:
        out: list[Event] = []
        usage = Usage()
        if native.turn_usage is not None:
            usage = usage_of(native.turn_usage)
            if not self.prompted and self._counted != self._thread:
                self._counted = self._thread
                out.append(Notice(level="info", code="usage_of_thread", message=OF_THREAD))
            if native.usage is not None and native.usage != native.turn_usage:
                words = CUMULATIVE.format(native.usage.total_tokens)
                out.append(Notice(level="info", code="cumulative_usage", message=words))
            out.append(report_of(usage))
        elif native.usage is not None:
            out.append(Notice(level="warning", code="usage_unknown", message=UNKNOWN_USAGE))
        answer = self._last_text
        if answer is None:
            out.append(no_answer())
        self._reset()
        value = structured(answer) if self.wants_structure and answer else None
        return [*out, TurnCompleted(status="success", usage=usage, structured=value)]

    def _end_failed(self, errors: list[Error]) -> list[Event]:
        self._reset()
        return [*errors, TurnCompleted(status="error")]

    def _stream_ended(self) -> list[Event]:
        """Its last word was an error: that ended the turn, or was all that there was."""
        if self._last_error and (self._in_turn or not self._ended):
            return self._end_failed([turn_error(self._last_error)])
        return self._harmless_error()

    def _exited(self, native: Exited) -> list[Event]:
        """Without an end event, whatever the exit code, the turn did not end well."""
        if not self._in_turn:
            return []
        return self._end_failed([exit_error(native, self._last_error)])

    def _reset(self) -> None:
        self._in_turn = False
        self._ended = True
        self._open.clear()
        self._reported_output.clear()
        self._plan = []
        self._last_text = None
        self._last_error = ""
        self._retries = 0


def _has_subject(item: Item) -> bool:
    """Older versions announce an item before they name what it is about."""
    match item:
        case events.CommandExecutionItem():
            return bool(item.command)
        case events.FileChangeItem():
            return bool(item.changes or item.path)
        case events.McpToolCallItem():
            return bool(item.tool or item.tool_name)
        case _:
            return True


def _use(
    tool_use_id: str,
    item: ExecCallItem,
) -> ToolUse:
    match item:
        case events.CommandExecutionItem():
            return shell_use(tool_use_id, item.command)
        case events.ToolCallItem():
            return other_use(tool_use_id, item.name or "shell", item.arguments)
        case events.FileChangeItem():
            return exec_patch_use(tool_use_id, item)
        case events.McpToolCallItem():
            arguments = item.arguments if item.arguments is not None else item.tool_input
            return mcp_use(tool_use_id, item.server, item.tool or item.tool_name, arguments)
        case events.WebSearchItem():
            return search_use(tool_use_id, item.query, item.action)
        case events.CollabToolCallItem():
            return agent_use(tool_use_id, item.tool, item.prompt, item.receiver_thread_ids)
        case _:
            assert_never(item)


def _result(
    use: ToolUse,
    item: ExecCallItem,
    status: str,
) -> ToolResult:
    code: int | None = None
    fault = ""
    images: list[ShownImage] = []
    match item:
        case events.CommandExecutionItem():
            output, code, status = item.aggregated_output, item.exit_code, item.status or status
        case events.ToolCallItem():
            output, code, status = item.output or "", item.exit_code, item.status or status
        case events.FileChangeItem():
            output, status = "", item.status or status
        case events.McpToolCallItem():
            fault = item.error.message if item.error is not None else ""
            result = item.result if item.result is not None else item.tool_result
            output, status = fault or _content(result), item.status or status
            images = images_in(record(result).get("content", result))
        case events.WebSearchItem():
            output = text_of(item.results) if item.results else ""
        case events.CollabToolCallItem():
            output = "\n".join(state.message for state in item.agents_states.values() if state.message)
            status = item.status or status
        case _:
            assert_never(item)
    return ToolResult(
        tool_use_id=use.tool_use_id,
        name=use.name,
        status=status_of(status, exit_code=code, error=fault),
        output=output,
        exit_code=code,
        images=that_fit(images),
    )


def _content(result: object) -> str:
    fields = record(result)
    return mcp_text(fields.get("content", result), fields.get("structured_content"))
