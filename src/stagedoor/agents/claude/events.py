"""What Claude Code says on its output, in its own words. Only the fields we use; the rest stays in the raw line."""

from __future__ import annotations

from typing import Any, TypeAlias

import msgspec

from ...transports.launch import Exited, Stalled
from ...wire.shapes import Shapes, Unrecognized
from .blocks import NOTHING, STEPS, KnownStep, Message, Usage
from .notices import NOTICES, Notice
from .requests import Question

# ------------------------------------------------------------------------------------------------------ the turn


class McpServerStatus(msgspec.Struct, frozen=True):
    name: str = ""
    status: str = ""


class SystemInit(msgspec.Struct, frozen=True, kw_only=True):
    """The start of each turn (not once per process). Older versions print it as a plain ``init``."""

    cwd: str = ""
    model: str = ""
    tools: list[str] = []
    mcp_servers: list[McpServerStatus] = []
    permission_mode: str = msgspec.field(name="permissionMode", default="")
    slash_commands: list[str] = []
    api_key_source: str = msgspec.field(name="apiKeySource", default="")
    claude_code_version: str = ""
    output_style: str = ""
    agents: list[str] = []
    skills: list[str] = []
    session_id: str = ""


class Assistant(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One content block of the model's message. ``error`` is the class of an API failure, told as a message."""

    message: Message
    parent_tool_use_id: str | None = None
    error: str | None = None
    request_id: str | None = None
    subagent_type: str | None = None
    task_description: str | None = None
    session_id: str = ""
    uuid: str = ""


class User(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A tool result, a sub-agent's prompt, a note of interruption, or a replayed prompt."""

    message: Message
    parent_tool_use_id: str | None = None
    timestamp: str | None = None
    tool_use_result: msgspec.Raw = NOTHING
    is_replay: bool = msgspec.field(name="isReplay", default=False)
    is_synthetic: bool = msgspec.field(name="isSynthetic", default=False)
    subagent_type: str | None = None
    task_description: str | None = None
    session_id: str = ""
    uuid: str = ""

    def structured_result(self) -> Any:
        """What the tool gave, in the tool's own form; a string ``"Error: …"`` when it failed, ``None`` without one."""
        return msgspec.json.decode(self.tool_use_result)


class StreamEvent(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A piece of the model's stream, as the API sent it (``include_partial_messages``)."""

    event: msgspec.Raw
    parent_tool_use_id: str | None = None
    ttft_ms: float | None = None
    session_id: str = ""

    def step(self) -> KnownStep | Unrecognized:
        return STEPS.decode(bytes(self.event))


class PermissionDenial(msgspec.Struct, frozen=True):
    tool_name: str = ""
    tool_use_id: str = ""
    tool_input: dict[str, Any] = {}


class ModelUsage(msgspec.Struct, frozen=True):
    """What one model used, over the whole process."""

    input_tokens: int = msgspec.field(name="inputTokens", default=0)
    output_tokens: int = msgspec.field(name="outputTokens", default=0)
    cache_read_input_tokens: int = msgspec.field(name="cacheReadInputTokens", default=0)
    cache_creation_input_tokens: int = msgspec.field(name="cacheCreationInputTokens", default=0)
    web_search_requests: int = msgspec.field(name="webSearchRequests", default=0)
    cost_usd: float = msgspec.field(name="costUSD", default=0.0)
    context_window: int = msgspec.field(name="contextWindow", default=0)
    max_output_tokens: int = msgspec.field(name="maxOutputTokens", default=0)


class Origin(msgspec.Struct, frozen=True):
    kind: str = ""


class Result(msgspec.Struct, frozen=True, kw_only=True):
    """The end of one run of the model. Judge by ``is_error``: every API failure has the subtype ``success``.

    ``usage``, ``num_turns`` and ``duration_ms`` are of this turn; ``total_cost_usd`` and ``model_usage`` are cumulative
    over the process. A background task that ends wakes the model again, which gives one more result; ``TurnSettled``
    tells when the turn is really over.
    """

    subtype: str = ""
    is_error: bool = False
    result: str | None = None
    errors: list[str] = []
    terminal_reason: str | None = None
    api_error_status: int | None = None
    stop_reason: str | None = None
    num_turns: int = 0
    duration_ms: float = 0.0
    duration_api_ms: float = 0.0
    total_cost_usd: float | None = None
    usage: Usage | None = None
    model_usage: dict[str, ModelUsage] = msgspec.field(
        name="modelUsage", default_factory=lambda: dict[str, ModelUsage]()
    )
    permission_denials: list[PermissionDenial] = []
    structured_output: Any = None
    origin: Origin | None = None
    cost_usd: float | None = None
    error: str | None = None
    session_id: str = ""
    uuid: str = ""

    @property
    def interrupted(self) -> bool:
        return self.terminal_reason in ("aborted_streaming", "aborted_tools")

    @property
    def failed(self) -> bool:
        """Also true for the older plain subtypes ``error`` and ``cancelled``, which come without ``is_error``."""
        return self.is_error or self.subtype not in ("success", "")


class TurnSettled(msgspec.Struct, frozen=True, kw_only=True):
    """Not a line of Claude Code's but our judgement: the turn is really over, its background tasks included."""

    result: Result | None = None
    unfinished: tuple[str, ...] = ()


# ---------------------------------------------------------------------------------------- the control channel


class ControlRequest(msgspec.Struct, frozen=True):
    """The envelope of a question to us; the protocol hands out the question itself."""

    request: msgspec.Raw
    request_id: str = ""


class ControlReply(msgspec.Struct, frozen=True):
    subtype: str = ""
    request_id: str = ""
    response: msgspec.Raw = NOTHING
    error: str = ""


class ControlResponse(msgspec.Struct, frozen=True):
    """The answer to a request of ours."""

    response: ControlReply

    @property
    def request_id(self) -> str:
        return self.response.request_id

    @property
    def ok(self) -> bool:
        return self.response.subtype == "success"

    def value(self) -> Any:
        return msgspec.json.decode(self.response.response)


class ControlCancelRequest(msgspec.Struct, frozen=True):
    """A question to us is void: it needs no answer any more."""

    request_id: str


Line: TypeAlias = SystemInit | Assistant | User | StreamEvent | Result | ControlResponse | ControlCancelRequest | Notice
Event: TypeAlias = Line | Question | TurnSettled | Unrecognized | Exited | Stalled

SHAPES: Shapes[Line | ControlRequest] = Shapes(
    {
        "system/init": SystemInit,
        "init": SystemInit,
        "assistant": Assistant,
        "user": User,
        "stream_event": StreamEvent,
        "result": Result,
        "control_request": ControlRequest,
        "control_response": ControlResponse,
        "control_cancel_request": ControlCancelRequest,
        **NOTICES,
    },
    fields=("type", "subtype"),
)
