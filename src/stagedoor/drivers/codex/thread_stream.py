"""The items of one thread of the app-server: messages, thoughts and calls, on the way and whole."""

from __future__ import annotations

from typing import assert_never

from msgspec.structs import replace

from ...agents.codex import thread_items as native_items
from ...agents.codex.thread_items import FileUpdateChange, ThreadItem
from ...unified.events import (
    Event,
    Notice,
    Text,
    TextDelta,
    Thinking,
    ThinkingDelta,
    ToolProgress,
    ToolResult,
    ToolUse,
    Unrecognized,
)
from ...wire import shapes
from .patches import changes_of, patch_use
from .tools import agent_use, file_use, mcp_use, mcp_words, other_use, search_use, shell_use, status_of, words_of

CallItem = (
    native_items.CommandExecutionThreadItem
    | native_items.FileChangeThreadItem
    | native_items.McpToolCallThreadItem
    | native_items.DynamicToolCallThreadItem
    | native_items.CollabAgentToolCallThreadItem
    | native_items.WebSearchThreadItem
    | native_items.ImageViewThreadItem
    | native_items.ImageGenerationThreadItem
)


class ThreadStream:
    def __init__(self) -> None:
        self._open: dict[str, ToolUse] = {}
        self._left: dict[str, ToolUse] = {}  # still running when their turn ended; some are heard of later
        self._texts: dict[str, list[str]] = {}  # messages under way, by item
        self._thoughts: dict[str, list[str]] = {}
        self._patches: dict[str, list[FileUpdateChange]] = {}
        self._agents: dict[str, str] = {}  # the threads of sub-agents → the calls that started them
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

    def patched(self, item_id: str, changes: list[FileUpdateChange]) -> None:
        self._patches[item_id] = changes

    def broken_off(self) -> list[Event]:
        """What was being said is not going to be finished."""
        thoughts, texts = list(self._thoughts.values()), list(self._texts.items())
        self._thoughts.clear()
        self._texts.clear()
        return [
            *(Thinking(text="".join(pieces)) for pieces in thoughts),
            *(Text(text="".join(pieces), message_id=item_id) for item_id, pieces in texts),
        ]

    def end_turn(self) -> list[Event]:
        out = self.broken_off()
        self._left.update(self._open)
        self._open.clear()
        self._patches.clear()
        self._compacted = False
        self.refused.clear()
        self.retries = 0
        self.answer = None
        return out

    def compacted(self) -> list[Event]:
        """Said as an item, and again as a notification."""
        if self._compacted:
            return []
        self._compacted = True
        return [Notice(level="info", code="compacted", message="the conversation so far was summarized")]

    # ------------------------------------------------------------------------------------------------------- items

    def item(self, item: ThreadItem | shapes.Unrecognized, *, done: bool) -> list[Event]:
        match item:
            case native_items.AgentMessageThreadItem() | native_items.PlanThreadItem():
                return self._message(item.id, item.text) if done else []
            case native_items.ReasoningThreadItem():
                return self._thought(item) if done else []
            case native_items.ContextCompactionThreadItem():
                return self.compacted() if done else []
            case native_items.EnteredReviewModeThreadItem():
                return [Notice(level="info", code="review_started", message=item.review)] if done else []
            case native_items.ExitedReviewModeThreadItem():
                return [Notice(level="info", code="review_ended", message=item.review)] if done else []
            case native_items.SubAgentActivityThreadItem():
                return self._sub_agent(item) if done else []
            case (
                native_items.UserMessageThreadItem()
                | native_items.HookPromptThreadItem()
                | native_items.FunctionCallOutputThreadItem()
                | native_items.SleepThreadItem()
            ):
                return []
            case shapes.Unrecognized():
                return [unrecognized(item)]
            case _:
                return self._finished(item) if done else self.announce(self.use(item))

    def _sub_agent(self, item: native_items.SubAgentActivityThreadItem) -> list[Event]:
        """A sub-agent of the second kind: the call that started it is over when the sub-agent is."""
        name = item.agent_path or item.agent_thread_id
        match item.kind:
            case "started":
                self._agents[item.agent_thread_id] = item.id
                return self.announce(agent_use(item.id, "spawn_agent", None, [name]))
            case "completed":
                return self.close(self._agents.pop(item.agent_thread_id, ""), denied=False)
            case _:
                return [Notice(level="info", code="sub_agent", message=f"sub-agent {name}: {item.kind}")]

    def announce(self, use: ToolUse) -> list[Event]:
        """``tool_use``, once: a question may have told of the call before its item did."""
        self.answer = None
        if use.tool_use_id in self._open:
            return []
        self._open[use.tool_use_id] = use
        return [*self.broken_off(), use]

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
            case native_items.CommandExecutionThreadItem():
                return shell_use(item.id, item.command, cwd=item.cwd)
            case native_items.FileChangeThreadItem():
                return patch_use(item.id, item.changes)
            case native_items.McpToolCallThreadItem():
                return mcp_use(item.id, item.server, item.tool, item.arguments)
            case native_items.DynamicToolCallThreadItem():
                return other_use(item.id, item.tool, item.arguments)
            case native_items.CollabAgentToolCallThreadItem():
                return agent_use(item.id, item.tool, item.prompt, item.receiver_thread_ids)
            case native_items.WebSearchThreadItem():
                return search_use(item.id, item.query, item.action)
            case native_items.ImageViewThreadItem():
                return file_use(item.id, item.path, name="read_file", native="view_image")
            case native_items.ImageGenerationThreadItem():
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

    def _thought(self, item: native_items.ReasoningThreadItem) -> list[Event]:
        words = "".join(self._thoughts.pop(item.id, ())) or item.words
        return [Thinking(text=words)] if words else []

    def _finished(self, item: CallItem) -> list[Event]:
        late = self._left.pop(item.id, None)
        if late is not None:
            return [_result(late, item)]
        out = self.announce(self.use(item))
        result = _result(self._open.pop(item.id), item)
        refusal = self.refused.pop(item.id, "")
        if result.status == "denied" and not result.output:
            result = replace(result, output=refusal)
        if isinstance(item, native_items.FileChangeThreadItem):
            changes = item.changes or self._patches.pop(item.id, [])
            out += changes_of(changes, item.id) if result.status == "success" else []
        return [*out, result]


def _result(use: ToolUse, item: CallItem) -> ToolResult:
    code: int | None = None
    duration: float | None = None
    output = fault = status = ""
    match item:
        case native_items.CommandExecutionThreadItem():
            output, code, status, duration = item.aggregated_output or "", item.exit_code, item.status, item.duration_ms
        case native_items.FileChangeThreadItem():
            status = item.status
        case native_items.McpToolCallThreadItem():
            fault = item.error.message if item.error is not None else ""
            given = item.result
            output = fault or ("" if given is None else mcp_words(given.content, given.structured_content))
            status, duration = item.status, item.duration_ms
        case native_items.DynamicToolCallThreadItem():
            output = words_of(item.content_items)
            status, duration = item.status if item.success is not False else "failed", item.duration_ms
        case native_items.CollabAgentToolCallThreadItem():
            output = "\n".join(state.message for state in item.agents_states.values() if state.message)
            status = item.status
        case native_items.WebSearchThreadItem():
            output = words_of(item.results) if item.results else ""
        case native_items.ImageViewThreadItem():
            output = item.path
        case native_items.ImageGenerationThreadItem():
            output, status = item.saved_path or "", item.status
        case _:
            assert_never(item)
    return ToolResult(
        tool_use_id=use.tool_use_id,
        name=use.name,
        status=status_of(status, exit_code=code, error=fault),
        output=output,
        exit_code=code,
        duration_ms=duration or None,  # 0 is what it says of a command that was asked about
    )


def unrecognized(native: shapes.Unrecognized) -> Unrecognized:
    return Unrecognized(raw=native.raw.decode("utf-8", "replace"), why=native.why)
