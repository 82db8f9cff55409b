"""The app-server's threads, their turns and items, and its replies to our calls (camelCase on the wire)."""

from __future__ import annotations

from typing import Any, TypeAlias, cast

import msgspec

from ...wire.shapes import Shapes, UnknownMessage, decode_or_reason
from ...wire.stamps import Stamped
from .events import CodexUsage

# ---------------------------------------------------------------------------------------------------------------- items


class UserMessageThreadItem(msgspec.Struct, frozen=True, rename="camel"):
    id: str = ""
    content: list[msgspec.Raw] = []
    client_id: str | None = None

    @property
    def text(self) -> str:
        parts = [part for raw in self.content if isinstance(part := USER_INPUT.decode(bytes(raw)), TextUserInput)]
        return "\n".join(part.text for part in parts)


class TextUserInput(msgspec.Struct, frozen=True):
    text: str = ""


class ImageUserInput(msgspec.Struct, frozen=True):
    url: str = ""


class LocalImageUserInput(msgspec.Struct, frozen=True):
    path: str = ""


UserInput: TypeAlias = TextUserInput | ImageUserInput | LocalImageUserInput

USER_INPUT: Shapes[UserInput] = Shapes(
    {"text": TextUserInput, "image": ImageUserInput, "localImage": LocalImageUserInput}
)


class HookPromptThreadItem(msgspec.Struct, frozen=True, rename="camel"):
    id: str = ""
    fragments: list[Any] = []


class AgentMessageThreadItem(msgspec.Struct, frozen=True, rename="camel"):
    """``phase``: commentary, or none for the answer. ``text`` is empty in ``item/started``."""

    id: str = ""
    text: str = ""
    phase: str | None = None
    questions: list[Any] | None = None


class PlanThreadItem(msgspec.Struct, frozen=True, rename="camel"):
    """The plan proposed in plan mode (steps of a running turn come as ``turn/plan/updated``)."""

    id: str = ""
    text: str = ""


class ReasoningThreadItem(msgspec.Struct, frozen=True, rename="camel"):
    id: str = ""
    summary: list[str] = []
    content: list[str] = []

    @property
    def words(self) -> str:
        return "\n".join(self.summary or self.content)


class CommandExecutionThreadItem(msgspec.Struct, frozen=True, rename="camel"):
    """``status``: inProgress, completed, failed, declined. Trust ``aggregated_output``, not the deltas."""

    id: str = ""
    command: str = ""
    cwd: str = ""
    status: str = ""
    source: str = ""
    process_id: str | None = None
    command_actions: list[Any] = []
    aggregated_output: str | None = None
    exit_code: int | None = None
    duration_ms: float | None = None


class PatchChangeKind(msgspec.Struct, frozen=True):
    """``type``: add, delete, update. ``move_path`` (snake_case on the wire too) is set for a rename."""

    type: str = ""
    move_path: str | None = None


class FileUpdateChange(msgspec.Struct, frozen=True):
    """``diff`` is the whole content for an added or deleted file, unified hunks for an updated one."""

    path: str = ""
    kind: PatchChangeKind = PatchChangeKind()
    diff: str = ""


class FileChangeThreadItem(msgspec.Struct, frozen=True, rename="camel"):
    id: str = ""
    changes: list[FileUpdateChange] = []
    status: str = ""


class McpToolCallError(msgspec.Struct, frozen=True):
    message: str = ""


class McpToolCallResult(msgspec.Struct, frozen=True, rename="camel"):
    content: list[Any] = []
    structured_content: Any = None


class McpToolCallThreadItem(msgspec.Struct, frozen=True, rename="camel"):
    id: str = ""
    server: str = ""
    tool: str = ""
    status: str = ""
    arguments: Any = None
    result: McpToolCallResult | None = None
    error: McpToolCallError | None = None
    read_only_hint: bool | None = None
    duration_ms: float | None = None


class DynamicToolCallThreadItem(msgspec.Struct, frozen=True, rename="camel"):
    """A call of a tool that the client itself offered."""

    id: str = ""
    tool: str = ""
    namespace: str | None = None
    arguments: Any = None
    status: str = ""
    content_items: list[Any] | None = None
    success: bool | None = None
    duration_ms: float | None = None


class FunctionCallOutputThreadItem(msgspec.Struct, frozen=True, rename="camel"):
    id: str = ""
    name: str = ""
    namespace: str | None = None
    output: Any = None


class CollabAgentState(msgspec.Struct, frozen=True):
    """``status``: pendingInit, running, completed, errored, shutdown, notFound."""

    status: str = ""
    message: str | None = None


class CollabAgentToolCallThreadItem(msgspec.Struct, frozen=True, rename="camel"):
    """``tool``: spawnAgent, sendInput, wait, closeAgent. The receivers are threads on the same pipe."""

    id: str = ""
    tool: str = ""
    status: str = ""
    sender_thread_id: str = ""
    receiver_thread_ids: list[str] = []
    prompt: str | None = None
    model: str | None = None
    agents_states: dict[str, CollabAgentState] = {}


class SubAgentActivityThreadItem(msgspec.Struct, frozen=True, rename="camel"):
    """A sub-agent of the second kind. ``kind``: started, interacted, interrupted, completed."""

    id: str = ""
    kind: str = ""
    agent_path: str = ""
    agent_thread_id: str = ""
    model: str | None = None


class WebSearchThreadItem(msgspec.Struct, frozen=True, rename="camel"):
    id: str = ""
    query: str = ""
    action: Any = None
    results: list[Any] | None = None


class ImageViewThreadItem(msgspec.Struct, frozen=True, rename="camel"):
    id: str = ""
    path: str = ""


class ImageGenerationThreadItem(msgspec.Struct, frozen=True, rename="camel"):
    id: str = ""
    status: str = ""
    result: str = ""
    saved_path: str | None = None


class SleepThreadItem(msgspec.Struct, frozen=True, rename="camel"):
    id: str = ""
    duration_ms: float = 0


class EnteredReviewModeThreadItem(msgspec.Struct, frozen=True, rename="camel"):
    id: str = ""
    review: str = ""


class ExitedReviewModeThreadItem(msgspec.Struct, frozen=True, rename="camel"):
    id: str = ""
    review: str = ""


class ContextCompactionThreadItem(msgspec.Struct, frozen=True, rename="camel"):
    id: str = ""


ThreadItem: TypeAlias = (
    UserMessageThreadItem
    | HookPromptThreadItem
    | AgentMessageThreadItem
    | PlanThreadItem
    | ReasoningThreadItem
    | CommandExecutionThreadItem
    | FileChangeThreadItem
    | McpToolCallThreadItem
    | DynamicToolCallThreadItem
    | FunctionCallOutputThreadItem
    | CollabAgentToolCallThreadItem
    | SubAgentActivityThreadItem
    | WebSearchThreadItem
    | ImageViewThreadItem
    | ImageGenerationThreadItem
    | SleepThreadItem
    | EnteredReviewModeThreadItem
    | ExitedReviewModeThreadItem
    | ContextCompactionThreadItem
)

ITEM_SHAPES: Shapes[ThreadItem] = Shapes(
    {
        "userMessage": UserMessageThreadItem,
        "hookPrompt": HookPromptThreadItem,
        "agentMessage": AgentMessageThreadItem,
        "plan": PlanThreadItem,
        "reasoning": ReasoningThreadItem,
        "commandExecution": CommandExecutionThreadItem,
        "fileChange": FileChangeThreadItem,
        "mcpToolCall": McpToolCallThreadItem,
        "dynamicToolCall": DynamicToolCallThreadItem,
        "functionCallOutput": FunctionCallOutputThreadItem,
        "collabAgentToolCall": CollabAgentToolCallThreadItem,
        "subAgentActivity": SubAgentActivityThreadItem,
        "webSearch": WebSearchThreadItem,
        "imageView": ImageViewThreadItem,
        "imageGeneration": ImageGenerationThreadItem,
        "sleep": SleepThreadItem,
        "enteredReviewMode": EnteredReviewModeThreadItem,
        "exitedReviewMode": ExitedReviewModeThreadItem,
        "contextCompaction": ContextCompactionThreadItem,
    },
    exact=frozenset({"fileChange"}),  # a question about these files shows what the item said
)


def decode_item(raw: bytes) -> ThreadItem | UnknownMessage:
    return ITEM_SHAPES.decode(raw)


# --------------------------------------------------------------------------------------------------------- token counts


class TokenUsageBreakdown(msgspec.Struct, frozen=True, rename="camel"):
    """The app-server's spelling of the same counts."""

    total_tokens: int = 0
    input_tokens: int = 0
    cached_input_tokens: int = 0
    cache_write_input_tokens: int = 0
    output_tokens: int = 0
    reasoning_output_tokens: int = 0

    def usage(self) -> CodexUsage:
        return CodexUsage(
            self.input_tokens,
            self.cached_input_tokens,
            self.cache_write_input_tokens,
            self.output_tokens,
            self.reasoning_output_tokens,
        )


class ThreadTokenUsage(msgspec.Struct, frozen=True, rename="camel"):
    """``total`` is the thread so far, ``last`` the newest model call."""

    total: TokenUsageBreakdown = TokenUsageBreakdown()
    last: TokenUsageBreakdown = TokenUsageBreakdown()
    model_context_window: int | None = None


# ---------------------------------------------------------------------------------------------------- threads and turns


class TurnErrorDetails(msgspec.Struct, frozen=True, rename="camel"):
    """``codex_error_info`` is a word (``"modelNotFound"``), or a word with details, or nothing."""

    message: str = ""
    codex_error_info: Any = None
    additional_details: str | None = None

    @property
    def kind(self) -> str:
        """The word alone; empty when there is none."""
        if isinstance(self.codex_error_info, str):
            return self.codex_error_info
        return next(iter(self._detailed()), "")

    @property
    def http_status(self) -> int | None:
        for details in self._detailed().values():
            if isinstance(details, dict):
                status = cast("dict[str, Any]", details).get("httpStatusCode")
                return status if isinstance(status, int) else None
        return None

    def _detailed(self) -> dict[str, Any]:
        details: Any = self.codex_error_info
        return cast("dict[str, Any]", details) if isinstance(details, dict) else {}


class CodexTurn(msgspec.Struct, frozen=True, rename="camel"):
    """``status``: inProgress, completed, interrupted, failed. ``items`` is empty or a summary, never the whole turn."""

    id: str = ""
    status: str = ""
    error: TurnErrorDetails | None = None
    items: list[msgspec.Raw] = []
    started_at: float | None = None
    completed_at: float | None = None
    duration_ms: float | None = None
    root_turn_id: str | None = None

    def thread_items(self) -> list[ThreadItem | UnknownMessage]:
        return [decode_item(bytes(raw)) for raw in self.items]


class ThreadStatus(msgspec.Struct, frozen=True, rename="camel"):
    """``type``: notLoaded, idle, active, systemError. Flags of an active one: waitingOnApproval, waitingOnUserInput."""

    type: str = ""
    active_flags: list[str] = []


class GitInfo(msgspec.Struct, frozen=True, rename="camel"):
    sha: str | None = None
    branch: str | None = None
    origin_url: str | None = None


class Thread(msgspec.Struct, frozen=True, rename="camel"):
    """``created_at`` and ``updated_at`` are seconds. ``source`` is a word, or an object for sub-agents."""

    id: str
    preview: str = ""
    name: str | None = None
    cwd: str = ""
    path: str | None = None
    model: str | None = None
    model_provider: str = ""
    cli_version: str = ""
    originator: str | None = None
    source: Any = None
    created_at: float = 0
    updated_at: float = 0
    ephemeral: bool = False
    status: ThreadStatus = ThreadStatus()
    git_info: GitInfo | None = None
    forked_from_id: str | None = None
    parent_thread_id: str | None = None
    agent_nickname: str | None = None
    agent_role: str | None = None
    turns: list[CodexTurn] = []


class CodexInitializeResponse(msgspec.Struct, frozen=True, rename="camel"):
    user_agent: str
    codex_home: str = ""
    platform_family: str = ""
    platform_os: str = ""


class ThreadResponse(msgspec.Struct, frozen=True, rename="camel"):
    """The answer to ``thread/start``, ``thread/resume``, ``thread/fork`` and ``thread/read``, with what is in force."""

    thread: Thread
    model: str = ""
    model_provider: str = ""
    cwd: str = ""
    approval_policy: Any = None
    sandbox: Any = None
    reasoning_effort: str | None = None


class TurnStartResponse(msgspec.Struct, frozen=True):
    turn: CodexTurn


class TurnSteerResponse(msgspec.Struct, frozen=True, rename="camel"):
    turn_id: str


class ThreadListResponse(msgspec.Struct, frozen=True, rename="camel"):
    data: list[Thread]
    next_cursor: str | None = None


class ReasoningEffortOption(msgspec.Struct, frozen=True, rename="camel"):
    reasoning_effort: str = ""
    description: str = ""


class CodexModel(msgspec.Struct, frozen=True, rename="camel"):
    id: str
    display_name: str = ""
    description: str = ""
    hidden: bool = False
    is_default: bool = False
    default_reasoning_effort: str | None = None
    supported_reasoning_efforts: list[ReasoningEffortOption] = []
    input_modalities: list[str] = []


class ModelListResponse(msgspec.Struct, frozen=True, rename="camel"):
    data: list[CodexModel]
    next_cursor: str | None = None


class CodexAccount(msgspec.Struct, frozen=True, rename="camel"):
    """``type``: apiKey, chatgpt, amazonBedrock, gcp."""

    type: str = ""
    email: str | None = None
    plan_type: str | None = None


class GetAccountResponse(msgspec.Struct, frozen=True, rename="camel"):
    """Nobody is signed in when ``account`` is none although ``requires_openai_auth``."""

    requires_openai_auth: bool
    account: CodexAccount | None = None


class BackgroundTerminal(msgspec.Struct, frozen=True, rename="camel"):
    item_id: str = ""
    process_id: str = ""
    command: str = ""
    cwd: str = ""


class BackgroundTerminalsResponse(msgspec.Struct, frozen=True, rename="camel"):
    data: list[BackgroundTerminal]
    next_cursor: str | None = None


Result: TypeAlias = (
    CodexInitializeResponse
    | ThreadResponse
    | TurnStartResponse
    | TurnSteerResponse
    | ThreadListResponse
    | ModelListResponse
    | GetAccountResponse
    | BackgroundTerminalsResponse
    | msgspec.Raw
)

RESULTS: dict[str, type[Any]] = {
    "initialize": CodexInitializeResponse,
    "thread/start": ThreadResponse,
    "thread/resume": ThreadResponse,
    "thread/fork": ThreadResponse,
    "thread/read": ThreadResponse,
    "turn/start": TurnStartResponse,
    "turn/steer": TurnSteerResponse,
    "thread/list": ThreadListResponse,
    "model/list": ModelListResponse,
    "account/read": GetAccountResponse,
    "thread/backgroundTerminals/list": BackgroundTerminalsResponse,
}
"""What each call is answered with; the answers of other calls are kept raw."""


class CallReply(Stamped, frozen=True):
    """An answer to a call of ours. ``method`` is empty when we did not make that call (a replayed recording).

    ``thread_id`` is the thread the call was about, empty when it was about none.
    """

    request_id: int | str | None
    method: str
    result: Result
    thread_id: str = ""


class CallRefusal(Stamped, frozen=True):
    """A call of ours was answered with an error. Codex uses code -32600 for nearly everything."""

    request_id: int | str | None
    method: str
    code: int
    message: str
    thread_id: str = ""


_DECODERS = {method: msgspec.json.Decoder(shape) for method, shape in RESULTS.items()}
_BY_SHAPE = ("initialize", "thread/start", "turn/start")


def decode_result(method: str, raw: msgspec.Raw) -> Result:
    """The typed result of ``method``; raw when it has no type or not the expected shape."""
    for candidate in (method,) if method else _BY_SHAPE:
        if decoder := _DECODERS.get(candidate):
            value = decode_or_reason(decoder, raw)
            if not isinstance(value, str):
                return cast("Result", value)
    return raw
