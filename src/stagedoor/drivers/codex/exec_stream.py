"""``codex exec --json``: a process for each turn."""

from __future__ import annotations

from typing import assert_never

from ...agents.codex import events as native_events
from ...agents.codex import items
from ...agents.codex.events import ExecEvent
from ...agents.codex.items import Item
from ...transports.launch import Exited, Stalled
from ...unified.events import (
    Error,
    Event,
    Init,
    Notice,
    Plan,
    PlanItem,
    Text,
    Thinking,
    ToolProgress,
    ToolResult,
    ToolUse,
    TurnCompleted,
    TurnStarted,
    Unrecognized,
    Usage,
    report_of,
    stalled,
)
from ...unified.faults import no_answer
from ...wire import shapes
from .endings import broken_off, failed, retry_of, structured, usage_of
from .patches import told_changes, told_use
from .tools import agent_use, mcp_use, mcp_words, other_use, record, search_use, shell_use, status_of, words_of

REPEATED = "the answer broke off and is asked for again: what was said of it so far is not the answer"
CUMULATIVE = "Codex counts the tokens of the whole thread ({} in all); this turn's are the difference"
OF_THREAD = (
    "Codex tells the tokens of the whole thread, and a recording does not say whether it had earlier turns: if the "
    "thread was resumed, these are counted here too"
)
UNKNOWN_USAGE = "Codex only told the tokens of the whole thread, and what it had used before is not known"


class ExecDictionary:
    """``prompted``: somebody else says when a turn starts; else (a recording) Codex does.

    ``resumed`` and ``wants_structure`` are what the driver knows and Codex does not say.
    """

    def __init__(self, *, prompted: bool = False, resumed: bool = False, wants_structure: bool = False) -> None:
        self.prompted = prompted
        self.resumed = resumed
        self.wants_structure = wants_structure
        self._process = 0
        self._thread = ""
        self._counted = ""  # the thread whose total was told in this recording
        self._in_turn = False
        self._open: dict[str, ToolUse] = {}
        self._shown: dict[str, int] = {}
        self._plan: list[PlanItem] = []
        self._last_text: str | None = None
        self._complaint = ""
        self._retries = 0

    def translate(self, native: ExecEvent) -> list[Event]:
        match native:
            case native_events.ThreadError():
                return self._complained(native.message)
            case native_events.TurnFailed():
                return self._over("error", [failed(native.error.message or self._complaint)])
            case Exited():
                return self._exited(native)
            case _:
                return [*self._forgiven(), *self._translate(native)]

    def _translate(
        self,
        native: native_events.ThreadStarted
        | native_events.TurnStarted
        | native_events.TurnCompleted
        | native_events.ItemEvent
        | Stalled
        | shapes.Unrecognized,
    ) -> list[Event]:
        match native:
            case native_events.ThreadStarted():
                self._process += 1
                self._thread = native.thread_id
                self._in_turn = True
                return [Init(native_session_id=native.thread_id, resumed=self.resumed)]
            case native_events.TurnStarted():
                return [] if self.prompted else [TurnStarted()]
            case native_events.TurnCompleted():
                return self._completed(native)
            case native_events.ItemStarted():
                return self._item(native.item, done=False)
            case native_events.ItemUpdated():
                return [*self._item(native.item, done=False), *self._progress(native.item)]
            case native_events.ItemCompleted():
                return self._item(native.item, done=True, status=native.status)
            case Stalled():
                return [stalled(native.seconds)]
            case shapes.Unrecognized():
                return [_unrecognized(native)]
            case _:
                assert_never(native)

    # ------------------------------------------------------------------------------------------------------- items

    def _item(self, item: Item | shapes.Unrecognized, *, done: bool, status: str = "") -> list[Event]:
        match item:
            case items.AgentMessage():
                if not done or not item.text:
                    return []
                self._last_text = item.text
                return [Text(text=item.text, message_id=self._id(item.id))]
            case items.Reasoning():
                return [Thinking(text=item.words)] if done and item.words else []
            case items.TodoList():
                return self._planned(item)
            case items.ErrorItem():
                code = "model_unknown" if "fallback metadata" in item.message else "warning"
                return [Notice(level="warning", code=code, message=item.message)] if done else []
            case shapes.Unrecognized():
                return [_unrecognized(item)]
            case _:
                self._last_text = None
                if done:
                    return self._finished(item, status)
                return self._announce(_use(self._id(item.id), item)) if _says_something(item) else []

    def _progress(self, item: Item | shapes.Unrecognized) -> list[Event]:
        """What an older version's command has put out since it was last heard of."""
        if not isinstance(item, items.CommandExecution) or self._id(item.id) not in self._open:
            return []
        tool_use_id = self._id(item.id)
        output = item.aggregated_output[self._shown.get(tool_use_id, 0) :]
        self._shown[tool_use_id] = len(item.aggregated_output)
        return [ToolProgress(tool_use_id=tool_use_id, output=output)] if output else []

    def _announce(self, use: ToolUse) -> list[Event]:
        if use.tool_use_id in self._open:
            return []
        self._open[use.tool_use_id] = use
        return [use]

    def _finished(
        self,
        item: items.CommandExecution
        | items.ToolCall
        | items.FileChange
        | items.McpToolCall
        | items.WebSearch
        | items.CollabToolCall,
        status: str,
    ) -> list[Event]:
        tool_use_id = self._id(item.id)
        out = self._announce(_use(tool_use_id, item))
        result = _result(self._open.pop(tool_use_id), item, status)
        self._shown.pop(tool_use_id, None)
        if isinstance(item, items.FileChange) and result.status == "success":
            out += told_changes(item, tool_use_id)
        return [*out, result]

    def _planned(self, item: items.TodoList) -> list[Event]:
        steps = [PlanItem(todo.text, "completed" if todo.completed else "pending") for todo in item.items]
        if steps == self._plan:
            return []  # it is said again at the end of the turn
        self._plan = steps
        return [Plan(items=steps)]

    def _id(self, item_id: str) -> str:
        """Codex counts from zero in every process."""
        return f"{self._process}.{item_id}"

    # ------------------------------------------------------------------------------------------------------- turns

    def _complained(self, message: str) -> list[Event]:
        out = self._forgiven()
        retry = retry_of(message, earlier=self._retries)
        if retry is None:
            self._complaint = message  # fatal if the turn ends with it
            return out
        self._retries = retry.attempt
        if self._last_text is not None:
            self._last_text = None
            out.append(Notice(level="warning", code="text_repeated", message=REPEATED))
        return [*out, retry]

    def _forgiven(self) -> list[Event]:
        """What sounded like an error did not end the turn."""
        complaint, self._complaint = self._complaint, ""
        return [Notice(level="warning", code="error", message=complaint)] if complaint else []

    def _completed(self, native: native_events.TurnCompleted) -> list[Event]:
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
        self._rest()
        value = structured(answer) if self.wants_structure and answer else None
        return [*out, TurnCompleted(status="success", usage=usage, structured=value)]

    def _over(self, status: str, errors: list[Error]) -> list[Event]:
        self._rest()
        return [*errors, TurnCompleted(status="error")]

    def _exited(self, native: Exited) -> list[Event]:
        """Without an end event, whatever the exit code, the turn did not end well."""
        if not self._in_turn:
            return []
        return self._over("error", [broken_off(native, self._complaint)])

    def _rest(self) -> None:
        self._in_turn = False
        self._open.clear()
        self._shown.clear()
        self._plan = []
        self._last_text = None
        self._complaint = ""
        self._retries = 0


def _says_something(item: Item) -> bool:
    """Older versions announce an item before they say what it is about."""
    match item:
        case items.CommandExecution():
            return bool(item.command)
        case items.FileChange():
            return bool(item.changes or item.path)
        case items.McpToolCall():
            return bool(item.tool or item.tool_name)
        case _:
            return True


def _use(
    tool_use_id: str,
    item: items.CommandExecution
    | items.ToolCall
    | items.FileChange
    | items.McpToolCall
    | items.WebSearch
    | items.CollabToolCall,
) -> ToolUse:
    match item:
        case items.CommandExecution():
            return shell_use(tool_use_id, item.command)
        case items.ToolCall():
            return other_use(tool_use_id, item.name or "shell", item.arguments)
        case items.FileChange():
            return told_use(tool_use_id, item)
        case items.McpToolCall():
            given = item.arguments if item.arguments is not None else item.tool_input
            return mcp_use(tool_use_id, item.server, item.tool or item.tool_name, given)
        case items.WebSearch():
            return search_use(tool_use_id, item.query, item.action)
        case items.CollabToolCall():
            return agent_use(tool_use_id, item.tool, item.prompt, item.receiver_thread_ids)
        case _:
            assert_never(item)


def _result(
    use: ToolUse,
    item: items.CommandExecution
    | items.ToolCall
    | items.FileChange
    | items.McpToolCall
    | items.WebSearch
    | items.CollabToolCall,
    status: str,
) -> ToolResult:
    code: int | None = None
    fault = ""
    match item:
        case items.CommandExecution():
            output, code, status = item.aggregated_output, item.exit_code, item.status or status
        case items.ToolCall():
            output, code, status = item.output or "", item.exit_code, item.status or status
        case items.FileChange():
            output, status = "", item.status or status
        case items.McpToolCall():
            fault = item.error.message if item.error is not None else ""
            given = item.result if item.result is not None else item.tool_result
            output, status = fault or _content(given), item.status or status
        case items.WebSearch():
            output = words_of(item.results) if item.results else ""
        case items.CollabToolCall():
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
    )


def _content(given: object) -> str:
    known = record(given)
    return mcp_words(known.get("content", given), known.get("structured_content"))


def _unrecognized(native: shapes.Unrecognized) -> Unrecognized:
    return Unrecognized(raw=native.raw.decode("utf-8", "replace"), why=native.why)
