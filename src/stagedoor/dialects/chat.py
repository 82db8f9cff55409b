"""``chat``: what a chat window shows. Text, thoughts that start and end, tools that start and end, tokens."""

from __future__ import annotations

from typing import Any, Literal, TypeAlias, assert_never

import msgspec

from stagedoor.unified import events as canonical
from stagedoor.unified.events import Event, Status, Usage

from .event_parts import Drafts

SILENT: dict[str, str] = {
    "turn_started": "the window has shown the prompt already", "tool_progress": "a tool only starts and ends here",
    "file_change": "covered by the `ToolStart` and `ToolEnd` of the tool that did it",
    "plan": "the dialect has no event for plans", "retry": "the dialect has no event for it",
    "notice": "only a notice of level `error` has an event, `Error`",
    "done": "the last turn's `Complete` or `Error` covers it; sent only when there was no turn",
    "unrecognized": "nothing a chat could show", "files_restored": "the dialect has no event for it",
}  # fmt: skip


class ChatHeader(msgspec.Struct, frozen=True, kw_only=True, rename="camel", tag_field="type", omit_defaults=True):
    """What every event may carry. Never made on its own."""

    parent_tool_use_id: str | None = None
    native: Any = None


class ChatSessionInit(ChatHeader, frozen=True, kw_only=True, tag="SessionInit"):
    session_id: str
    agent: str
    model: str
    cwd: str
    tools: list[str] = []


class ChatText(ChatHeader, frozen=True, kw_only=True, tag="Text"):
    """A piece of text, to be appended."""

    content: str


class ChatThinkingStart(ChatHeader, frozen=True, kw_only=True, tag="ThinkingStart"):
    """``content`` is the first piece of the thought."""

    thinking_id: str
    content: str


class ChatThinkingEnd(ChatHeader, frozen=True, kw_only=True, tag="ThinkingEnd"):
    """``content`` is the whole thought."""

    thinking_id: str
    content: str


class ChatToolStart(ChatHeader, frozen=True, kw_only=True, tag="ToolStart"):
    tool_use_id: str
    tool_type: str
    target: str
    status: Literal["pending", "running"]
    input: dict[str, Any]


class ChatToolStatusUpdate(ChatHeader, frozen=True, kw_only=True, tag="ToolStatusUpdate"):
    """Between start and end: the tool waits for a decision, or got one."""

    tool_use_id: str
    status: Literal["awaiting_permission", "running", "denied"]
    permission_request_id: str


class ChatToolEnd(ChatHeader, frozen=True, kw_only=True, tag="ToolEnd"):
    id: str
    status: Literal["completed", "error", "denied"]
    output: str


class ChatTokenUsage(ChatHeader, frozen=True, kw_only=True, tag="TokenUsage"):
    """The running turn so far."""

    total_tokens: int
    input_tokens: int
    output_tokens: int
    cached_tokens: int = 0
    reasoning_tokens: int = 0
    cost_usd: float | None = None


class ChatComplete(ChatHeader, frozen=True, kw_only=True, tag="Complete"):
    """The turn has ended, well or because it was interrupted."""

    status: Literal["success", "interrupted"]
    result: str = ""
    duration_ms: float | None = None


class ChatError(ChatHeader, frozen=True, kw_only=True, tag="Error"):
    """With ``status``, the turn has ended with it; without, the turn continues or its end follows."""

    message: str
    kind: str = ""
    status: Status | None = None


ChatEvent: TypeAlias = (
    ChatSessionInit
    | ChatText
    | ChatThinkingStart
    | ChatThinkingEnd
    | ChatToolStart
    | ChatToolStatusUpdate
    | ChatToolEnd
    | ChatTokenUsage
    | ChatComplete
    | ChatError
)

_DECODER: msgspec.json.Decoder[ChatEvent] = msgspec.json.Decoder(ChatEvent)


def decode(line: bytes) -> ChatEvent:
    """One event of the dialect. Raises ``msgspec.ValidationError`` when it is none."""
    return _DECODER.decode(line)


class _ChatThought(msgspec.Struct):
    id: str
    pieces: list[str]


class ChatProjection:
    def __init__(self) -> None:
        self._texts = Drafts()
        self._thoughts: dict[str | None, _ChatThought] = {}
        self._questions: dict[str, str] = {}
        self._last_usage: Usage | None = None
        self._turn_ended = False

    def project(self, event: Event) -> list[ChatEvent]:
        parent = event.parent_tool_use_id
        head: dict[str, Any] = {"parent_tool_use_id": parent, "native": event.native}
        match event:
            case canonical.Init(session_id=session_id, agent=agent, model=model, cwd=cwd, tools=tools):
                return [ChatSessionInit(**head, session_id=session_id, agent=agent, model=model, cwd=cwd, tools=tools)]
            case canonical.TurnStarted():
                self._last_usage = None
                self._turn_ended = False
                return self._end_thoughts(head)
            case canonical.TextDelta(text=text, message_id=message_id):
                self._texts.add((parent, message_id), text)
                return [*self._end_thought(head), ChatText(**head, content=text)]
            case canonical.Text(text=text, message_id=message_id):
                rest = self._texts.rest((parent, message_id), text)
                return [*self._end_thought(head), *([ChatText(**head, content=rest)] if rest else [])]
            case canonical.ThinkingDelta(text=text):
                return self._add_thought(event, text, head)
            case canonical.Thinking(text=text):
                started = [] if parent in self._thoughts else self._add_thought(event, text, head)
                return [*started, *self._end_thought(head, whole=text)]
            case canonical.ToolUse():
                return [*self._end_thought(head), _tool_start(event, head)]
            case canonical.ToolResult(tool_use_id=tool_use_id, status=status, output=output):
                outcome: Literal["completed", "error", "denied"] = "completed" if status == "success" else status
                return [ChatToolEnd(**head, id=tool_use_id, status=outcome, output=output)]
            case canonical.PermissionRequest(request_id=request_id, tool_use_id=tool_use_id):
                tool = self._questions[request_id] = tool_use_id or request_id
                return [] if event.automatic else [_tool_status(head, tool, "awaiting_permission", request_id)]
            case canonical.PermissionResolved(request_id=request_id, decision=decision):
                tool = self._questions.pop(request_id, request_id)
                return [_tool_status(head, tool, "running" if decision == "allow" else "denied", request_id)]
            case canonical.UsageReport():
                return self._report_usage(_usage(event), head)
            case canonical.Notice(level=level, code=code, message=message):
                return [ChatError(**head, message=message, kind=code)] if level == "error" else []
            case canonical.Error(kind=kind, message=message):
                return [ChatError(**head, message=message, kind=kind)]
            case canonical.TurnCompleted(usage=usage):
                self._texts.drain()
                self._turn_ended = True
                events = self._end_thoughts(head)
                if usage != Usage():
                    events += self._report_usage(usage, head)
                return [*events, _turn_end(event, head)]
            case canonical.Done(status=status):
                events = self._end_thoughts(head)
                if not self._turn_ended and status != "success":  # it never came to a turn
                    events.append(_turn_end(event, head))
                return events
            case (
                canonical.ToolProgress()
                | canonical.FileChange()
                | canonical.FilesRestored()
                | canonical.Plan()
                | canonical.Retry()
                | canonical.Unrecognized()
            ):
                return []
            case _:
                assert_never(event)

    def _add_thought(self, event: Event, piece: str, head: dict[str, Any]) -> list[ChatEvent]:
        thought = self._thoughts.get(event.parent_tool_use_id)
        if thought is not None:
            thought.pieces.append(piece)
            return []
        thought = self._thoughts[event.parent_tool_use_id] = _ChatThought(f"thinking-{event.seq}", [piece])
        return [ChatThinkingStart(**head, thinking_id=thought.id, content=piece)]

    def _end_thought(self, head: dict[str, Any], whole: str | None = None) -> list[ChatEvent]:
        """The thinker has started something else."""
        thought = self._thoughts.pop(head["parent_tool_use_id"], None)
        if thought is None:
            return []
        content = "".join(thought.pieces) if whole is None else whole
        return [ChatThinkingEnd(**head, thinking_id=thought.id, content=content)]

    def _end_thoughts(self, head: dict[str, Any]) -> list[ChatEvent]:
        return [
            end for parent in list(self._thoughts) for end in self._end_thought(head | {"parent_tool_use_id": parent})
        ]

    def _report_usage(self, usage: Usage, head: dict[str, Any]) -> list[ChatEvent]:
        """Tokens, unless they were reported already."""
        if usage == self._last_usage:
            return []
        self._last_usage = usage
        return [
            ChatTokenUsage(
                **head,
                total_tokens=usage.total_tokens,
                input_tokens=usage.input_tokens,
                output_tokens=usage.output_tokens,
                cached_tokens=usage.cached_tokens,
                reasoning_tokens=usage.reasoning_tokens,
                cost_usd=usage.cost_usd,
            )
        ]


def _tool_start(event: canonical.ToolUse, head: dict[str, Any]) -> ChatToolStart:
    return ChatToolStart(
        **head,
        tool_use_id=event.tool_use_id,
        tool_type=event.native_name or event.name,
        target=event.target,
        status="running",
        input=event.input,
    )


def _tool_status(
    head: dict[str, Any], tool: str, status: Literal["awaiting_permission", "running", "denied"], request_id: str
) -> ChatToolStatusUpdate:
    return ChatToolStatusUpdate(**head, tool_use_id=tool, status=status, permission_request_id=request_id)


def _usage(event: canonical.UsageReport) -> Usage:
    return Usage(
        input_tokens=event.input_tokens,
        output_tokens=event.output_tokens,
        cached_tokens=event.cached_tokens,
        reasoning_tokens=event.reasoning_tokens,
        total_tokens=event.total_tokens,
        cost_usd=event.cost_usd,
    )


def _turn_end(event: canonical.TurnCompleted | canonical.Done, head: dict[str, Any]) -> ChatComplete | ChatError:
    match event.status:
        case "success" | "interrupted":
            return ChatComplete(**head, status=event.status, result=event.result, duration_ms=event.duration_ms)
        case "max_turns":
            return ChatError(**head, message="the limit of turns was reached", status=event.status)
        case "max_budget":
            return ChatError(**head, message="the budget was spent", status=event.status)
        case "error":
            return ChatError(**head, message=event.result or "the turn failed", status=event.status)
        case _:
            assert_never(event.status)
