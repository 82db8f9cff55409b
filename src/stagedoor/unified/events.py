"""What happened, in words that fit every agent.

Wire names are camelCase, attributes snake_case. A dictionary makes events without a header; the session stamps it
(``agent``, ``session_id``, ``seq``, ``timestamp``, ``turn``), so replays of one transcript compare equal.
"""

from __future__ import annotations

from typing import Any, ClassVar, Literal, TypeAlias, TypeVar

import msgspec
from msgspec.structs import force_setattr

Status = Literal["success", "error", "interrupted", "max_turns", "max_budget"]
ToolStatus = Literal["success", "error", "denied"]
Operation = Literal["read", "write", "execute", "network", "other"]
Risk = Literal["low", "medium", "high"]
Remember = Literal["once", "session", "always"]
By = Literal["callback", "policy", "client", "timeout", "interrupt"]
ToolName = Literal[
    "shell", "read_file", "write_file", "edit_file", "search_content", "find_files", "web_fetch", "web_search",
    "task", "plan", "mcp", "question", "other",
]  # fmt: skip
ErrorKind = Literal[
    "connection_failed", "authentication_failed", "session_not_found", "permission_denied", "tool_execution_failed",
    "timeout", "protocol_error", "rate_limited", "quota_exceeded", "context_overflow", "model_not_found", "unknown",
]  # fmt: skip


Value = TypeVar("Value")


def always_sent(value: Value) -> Value:
    """A default that is written out all the same: readers of the wire need not know our defaults.

    (Fields left at an ordinary default are omitted: they say nothing.)
    """
    return msgspec.field(default_factory=lambda: value)


def dollars(amount: float) -> float:
    """A sum or difference of money, without what binary fractions leave behind (0.30000000000000004)."""
    return round(amount, 10)


class Usage(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Tokens and money. ``input_tokens`` includes the cached ones; ``total_tokens`` is input + output + reasoning
    where the agent counts reasoning apart, else input + output."""

    input_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0
    reasoning_tokens: int = 0
    total_tokens: int = 0
    cost_usd: float | None = None

    def __add__(self, other: Usage) -> Usage:
        cost = (
            None
            if self.cost_usd is None and other.cost_usd is None
            else dollars((self.cost_usd or 0.0) + (other.cost_usd or 0.0))
        )
        return Usage(
            input_tokens=self.input_tokens + other.input_tokens,
            output_tokens=self.output_tokens + other.output_tokens,
            cached_tokens=self.cached_tokens + other.cached_tokens,
            reasoning_tokens=self.reasoning_tokens + other.reasoning_tokens,
            total_tokens=self.total_tokens + other.total_tokens,
            cost_usd=cost,
        )


class PlanItem(msgspec.Struct, frozen=True, rename="camel"):
    text: str
    status: Literal["pending", "in_progress", "completed"] = "pending"


class ShownImage(msgspec.Struct, frozen=True, rename="camel"):
    """An image that the agent shows. ``content`` is base64."""

    media_type: str
    content: str


class Header(msgspec.Struct, frozen=True, kw_only=True, rename="camel", tag_field="type", omit_defaults=True):
    """What every event carries. Never made on its own."""

    agent: str = ""
    session_id: str = ""
    seq: int = 0
    timestamp: int = 0
    turn: int = 0
    parent_tool_use_id: str | None = None
    native: Any = None
    """The agent's own message, as raw JSON, when ``raw`` was asked for."""


class Init(Header, frozen=True, kw_only=True, tag="init"):
    type: ClassVar[Literal["init"]] = "init"
    model: str = ""
    cwd: str = ""
    tools: list[str] = []
    capabilities: dict[str, Any] = {}
    agent_version: str = ""
    native_session_id: str = ""
    resumed: bool = always_sent(False)
    tier: str = ""
    """What it may do, as the session was opened; empty in a recording, which does not say."""
    approval: str = ""
    sandbox: str = ""
    """What holds it: the one asked for, else what its tier and its confinement amount to."""
    allowed_tools: list[str] | None = None
    disallowed_tools: list[str] = []
    max_turns: int | None = None
    project_id: str = ""
    """The project of a server that it was opened for, where it was named."""


class TurnStarted(Header, frozen=True, kw_only=True, tag="turn_started"):
    type: ClassVar[Literal["turn_started"]] = "turn_started"
    prompt: str = always_sent("")


class TextDelta(Header, frozen=True, kw_only=True, tag="text_delta", gc=False):
    type: ClassVar[Literal["text_delta"]] = "text_delta"
    text: str
    message_id: str = ""


class Text(Header, frozen=True, kw_only=True, tag="text", gc=False):
    """A whole message of the agent. Where deltas came before it, it repeats them joined."""

    type: ClassVar[Literal["text"]] = "text"
    text: str
    message_id: str = ""


class ThinkingDelta(Header, frozen=True, kw_only=True, tag="thinking_delta", gc=False):
    type: ClassVar[Literal["thinking_delta"]] = "thinking_delta"
    text: str


class Thinking(Header, frozen=True, kw_only=True, tag="thinking", gc=False):
    type: ClassVar[Literal["thinking"]] = "thinking"
    text: str


class ToolUse(Header, frozen=True, kw_only=True, tag="tool_use", gc=False):
    type: ClassVar[Literal["tool_use"]] = "tool_use"
    tool_use_id: str
    name: ToolName
    native_name: str = ""
    input: dict[str, Any] = {}
    operation: Operation = always_sent("other")
    target: str = ""
    risk: Risk = always_sent("medium")
    description: str = ""


class ToolProgress(Header, frozen=True, kw_only=True, tag="tool_progress", gc=False):
    type: ClassVar[Literal["tool_progress"]] = "tool_progress"
    tool_use_id: str
    output: str


class ToolResult(Header, frozen=True, kw_only=True, tag="tool_result", gc=False):
    type: ClassVar[Literal["tool_result"]] = "tool_result"
    tool_use_id: str
    name: ToolName
    status: ToolStatus
    output: str = always_sent("")
    exit_code: int | None = None
    duration_ms: float | None = None
    images: list[ShownImage] = []
    """Those that the call gave and that are not too large; ``output`` names all of them in their places."""


class FileChange(Header, frozen=True, kw_only=True, tag="file_change"):
    type: ClassVar[Literal["file_change"]] = "file_change"
    path: str
    change: Literal["created", "modified", "deleted", "moved"]
    diff: str = ""
    before: str | None = None
    after: str | None = None
    tool_use_id: str = ""


class Plan(Header, frozen=True, kw_only=True, tag="plan"):
    type: ClassVar[Literal["plan"]] = "plan"
    items: list[PlanItem]


class PermissionRequest(Header, frozen=True, kw_only=True, tag="permission_request"):
    """A question that waits for a decision; also what a ``can_use_tool`` callback is given."""

    type: ClassVar[Literal["permission_request"]] = "permission_request"
    request_id: str
    tool_name: ToolName
    tool_use_id: str = ""
    native_name: str = ""
    operation: Operation = always_sent("other")
    target: str = ""
    risk: Risk = always_sent("medium")
    risk_reasons: list[str] = []
    """Why the risk is what it is, what weighs most first."""
    input: dict[str, Any] = {}
    description: str = ""
    choices: list[str] = []
    expires_at: int | None = None
    automatic: bool = False
    """A rule, a list of tools or an earlier answer decides it as it is asked: nobody is waited for."""
    remembered_as: list[dict[str, Any]] = []
    """The rules that an answer with ``remember`` makes, as a policy file has them. None: it cannot be remembered."""


class PermissionResolved(Header, frozen=True, kw_only=True, tag="permission_resolved"):
    type: ClassVar[Literal["permission_resolved"]] = "permission_resolved"
    request_id: str
    decision: Literal["allow", "deny"]
    remember: Remember = always_sent("once")
    by: By = always_sent("callback")
    message: str = ""


class UsageReport(Header, frozen=True, kw_only=True, tag="usage"):
    """The running turn so far, and the whole session so far. Never the agent's own cumulative figure."""

    type: ClassVar[Literal["usage"]] = "usage"
    input_tokens: int = always_sent(0)
    output_tokens: int = always_sent(0)
    cached_tokens: int = always_sent(0)
    reasoning_tokens: int = always_sent(0)
    total_tokens: int = always_sent(0)
    cost_usd: float | None = None
    session: Usage = always_sent(Usage())


class Retry(Header, frozen=True, kw_only=True, tag="retry"):
    type: ClassVar[Literal["retry"]] = "retry"
    attempt: int
    max_attempts: int | None = None
    delay_ms: float | None = None
    reason: str = ""


class ProjectFile(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """Something of a project that an agent would load by itself. ``kind``: what it holds."""

    path: str
    kind: str
    is_text: bool = False
    """It is read to the model and runs nothing."""


class Notice(Header, frozen=True, kw_only=True, tag="notice"):
    type: ClassVar[Literal["notice"]] = "notice"
    level: Literal["info", "warning", "error"]
    code: str
    message: str
    native_session_id: str | None = None
    """With the code ``session_changed``: the id that the agent continues under."""
    trusted: bool | None = None
    """With the codes ``project_trusted`` and ``project_untrusted``: whether the project takes part."""
    project_files: list[ProjectFile] = []
    """With these: what the agent may load, or what is switched off."""
    images: list[ShownImage] = []
    """With the code ``attachment``: what the agent shows in its answer, where it is an image and not too large."""
    attachments: list[str] = []
    """With the code ``attached``: the pictures that go with the next prompt, by the names a server gives them out."""


class FilesRestored(Header, frozen=True, kw_only=True, tag="files_restored"):
    """Somebody has put files of the workspace back as they were before a turn. The agent is not told."""

    type: ClassVar[Literal["files_restored"]] = "files_restored"
    before_turn: int
    checkpoint: str
    """What they were restored from."""
    redo: str
    """The checkpoint of how they stood: restored, it undoes this."""
    files: int = always_sent(0)
    """How many have changed by it."""
    paths: list[str] = []
    """The first of them."""
    not_restored: list[str] = []
    """Those that stayed as they were, each with the reason."""
    who: str = ""
    """The device or person, where a server knows."""


def restored_words(event: FilesRestored) -> str:
    """One sentence for readers that have no place for the fields."""
    many = "1 file" if event.files == 1 else f"{event.files} files"
    left = f"; {len(event.not_restored)} could not be restored" if event.not_restored else ""
    return f"Restored {many} to before turn {event.before_turn}{left}"


class Error(Header, frozen=True, kw_only=True, tag="error"):
    type: ClassVar[Literal["error"]] = "error"
    kind: ErrorKind
    message: str
    fatal: bool = always_sent(False)


class TurnCompleted(Header, frozen=True, kw_only=True, tag="turn_completed"):
    type: ClassVar[Literal["turn_completed"]] = "turn_completed"
    status: Status
    usage: Usage = always_sent(Usage())
    cost_usd: float | None = None
    duration_ms: float | None = None
    result: str = ""
    structured: Any = None


class Done(Header, frozen=True, kw_only=True, tag="done"):
    type: ClassVar[Literal["done"]] = "done"
    status: Status
    result: str = ""
    usage: Usage = always_sent(Usage())
    cost_usd: float | None = None
    duration_ms: float | None = None
    tool_uses: int = always_sent(0)


class Unrecognized(Header, frozen=True, kw_only=True, tag="unrecognized"):
    """Something the agent said that we cannot translate, kept whole."""

    type: ClassVar[Literal["unrecognized"]] = "unrecognized"
    raw: str
    why: str


def session_changed(native_session_id: str) -> Notice:
    """The agent has left its session for another one (it was cleared, or forked): the next ``resume`` wants this id."""
    message = f"the agent continues as session {native_session_id}"
    return Notice(level="info", code="session_changed", message=message, native_session_id=native_session_id)


def report_of(usage: Usage) -> UsageReport:
    """``usage`` of the running turn, as an event; what the session used so far, the grammar adds."""
    return UsageReport(
        input_tokens=usage.input_tokens,
        output_tokens=usage.output_tokens,
        cached_tokens=usage.cached_tokens,
        reasoning_tokens=usage.reasoning_tokens,
        total_tokens=usage.total_tokens,
        cost_usd=usage.cost_usd,
    )


def stalled(seconds: float) -> Notice:
    """Nothing was heard of the agent for so long; the grammar knows when that is news."""
    return Notice(level="warning", code="stalled", message=f"the agent has been silent for {seconds:g} s")


def steered(text: str) -> Notice:
    """Something was said into the running turn."""
    return Notice(level="info", code="steered", message=text)


Event: TypeAlias = (
    Init | TurnStarted | TextDelta | Text | ThinkingDelta | Thinking | ToolUse | ToolProgress | ToolResult | FileChange
    | Plan | PermissionRequest | PermissionResolved | UsageReport | Retry | Notice | Error | TurnCompleted | Done
    | Unrecognized | FilesRestored
)  # fmt: skip

_ENCODER = msgspec.json.Encoder()
_DECODER: msgspec.json.Decoder[Event] = msgspec.json.Decoder(Event)


def stamp(event: Event, agent: str, session_id: str, seq: int, timestamp: int, turn: int) -> Event:
    """Write the header into an event that nobody else has seen yet."""
    # Frozen for everyone else; here the event is still ours, and a copy per event would cost more than its decoding.
    force_setattr(event, "agent", agent)
    force_setattr(event, "session_id", session_id)
    force_setattr(event, "seq", seq)
    force_setattr(event, "timestamp", timestamp)
    force_setattr(event, "turn", turn)
    return event


def encode(event: Event) -> bytes:
    """One event as canonical JSON."""
    return _ENCODER.encode(event)


def decode(line: bytes) -> Event:
    """The inverse of :func:`encode`."""
    return _DECODER.decode(line)
