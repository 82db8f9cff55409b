"""``ues``: the nine event types of the Unified Event Stream; everything else as ``<agent>:<type>``.

What the nine payloads have no field for stands in ``metadata``, so nothing is lost.
"""

from __future__ import annotations

from typing import Any, Literal, TypeAlias, assert_never

import msgspec

from stagedoor.unified import events as canonical
from stagedoor.unified.events import Event

from .event_parts import own_fields, type_of

SILENT: dict[str, str] = {}

_AGENT_IDS = {"claude": "claude-code"}


_OPENED = (
    "agentVersion", "nativeSessionId", "resumed", "tier", "approval", "sandbox", "allowedTools", "disallowedTools",
    "maxTurns", "projectId",
)  # fmt: skip


class UesInitPayload(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    model: str
    cwd: str
    tools: list[str]
    capabilities: dict[str, Any] = {}


class UesTextPayload(msgspec.Struct, frozen=True):
    content: str


class UesTextDeltaPayload(msgspec.Struct, frozen=True):
    delta: str


class UesThinkingPayload(msgspec.Struct, frozen=True):
    summary: str


class UesToolUsePayload(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    tool_name: str
    tool_use_id: str
    input: dict[str, Any]
    description: str = ""


class UesToolResultPayload(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    tool_use_id: str
    tool_name: str
    status: Literal["success", "error", "denied"]
    output: Any
    duration_ms: float | None = None


class UesErrorPayload(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    code: str = ""
    message: str
    recoverable: bool


class UesPermissionRequestPayload(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    tool_name: str
    tool_use_id: str
    input: dict[str, Any]
    reason: str = ""


class UesDoneUsage(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    input_tokens: int
    output_tokens: int
    tool_uses: int
    total_cost_usd: float | None = None


class UesDonePayload(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    status: Literal["success", "error", "interrupted", "max_turns", "max_budget"]
    result: str = ""
    usage: UesDoneUsage
    duration_ms: float


class UesHeader(msgspec.Struct, frozen=True, kw_only=True, rename="camel", tag_field="type", omit_defaults=True):
    """What every event carries. Never made on its own."""

    agent: str
    timestamp: int
    session_id: str
    metadata: dict[str, Any] = {}


class UesInit(UesHeader, frozen=True, kw_only=True, tag="init"):
    payload: UesInitPayload


class UesText(UesHeader, frozen=True, kw_only=True, tag="text"):
    payload: UesTextPayload


class UesTextDelta(UesHeader, frozen=True, kw_only=True, tag="text_delta"):
    payload: UesTextDeltaPayload


class UesToolUse(UesHeader, frozen=True, kw_only=True, tag="tool_use"):
    payload: UesToolUsePayload


class UesToolResult(UesHeader, frozen=True, kw_only=True, tag="tool_result"):
    payload: UesToolResultPayload


class UesThinking(UesHeader, frozen=True, kw_only=True, tag="thinking"):
    payload: UesThinkingPayload


class UesError(UesHeader, frozen=True, kw_only=True, tag="error"):
    payload: UesErrorPayload


class UesPermissionRequest(UesHeader, frozen=True, kw_only=True, tag="permission_request"):
    payload: UesPermissionRequestPayload


class UesDone(UesHeader, frozen=True, kw_only=True, tag="done"):
    payload: UesDonePayload


class UesExtension(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """An extension: ``type`` is ``<agent>:<type>``. Consumers ignore those they do not know."""

    type: str
    agent: str
    timestamp: int
    session_id: str
    metadata: dict[str, Any] = {}
    payload: dict[str, Any]


UesCoreEvent: TypeAlias = (
    UesInit
    | UesText
    | UesTextDelta
    | UesToolUse
    | UesToolResult
    | UesThinking
    | UesError
    | UesPermissionRequest
    | UesDone
)
UesEvent: TypeAlias = UesCoreEvent | UesExtension


class _UesType(msgspec.Struct, frozen=True):
    type: str


_TYPE = msgspec.json.Decoder(_UesType)
_CORE: msgspec.json.Decoder[UesCoreEvent] = msgspec.json.Decoder(UesCoreEvent)
_EXTENSION = msgspec.json.Decoder(UesExtension)


def decode(line: bytes) -> UesEvent:
    """One event of the stream. Raises ``msgspec.ValidationError`` when it is none."""
    return _EXTENSION.decode(line) if ":" in _TYPE.decode(line).type else _CORE.decode(line)


class UesProjection:
    def project(self, event: Event) -> list[UesEvent]:
        return [_event(event)]


def _event(event: Event) -> UesEvent:
    match event:
        case canonical.Init(model=model, cwd=cwd, tools=tools, capabilities=capabilities):
            payload = UesInitPayload(model=model, cwd=cwd, tools=tools, capabilities=capabilities)
            return UesInit(**_header(event, *_OPENED), payload=payload)
        case canonical.Text(text=text):
            return UesText(**_header(event, "messageId"), payload=UesTextPayload(text))
        case canonical.TextDelta(text=text):
            return UesTextDelta(**_header(event, "messageId"), payload=UesTextDeltaPayload(text))
        case canonical.Thinking(text=text):
            return UesThinking(**_header(event), payload=UesThinkingPayload(text))
        case canonical.ToolUse():
            return UesToolUse(
                **_header(event, "nativeName", "operation", "target", "risk"),
                payload=UesToolUsePayload(
                    tool_name=event.name,
                    tool_use_id=event.tool_use_id,
                    input=event.input,
                    description=event.description,
                ),
            )
        case canonical.ToolResult():
            return UesToolResult(
                **_header(event, "exitCode", "images"),
                payload=UesToolResultPayload(
                    tool_use_id=event.tool_use_id,
                    tool_name=event.name,
                    status=event.status,
                    output=event.output,
                    duration_ms=event.duration_ms,
                ),
            )
        case canonical.Error(kind=kind, message=message, fatal=fatal):
            return UesError(
                **_header(event), payload=UesErrorPayload(code=kind, message=message, recoverable=not fatal)
            )
        case canonical.PermissionRequest():
            return UesPermissionRequest(
                **_header(
                    event,
                    "requestId",
                    "nativeName",
                    "operation",
                    "target",
                    "risk",
                    "riskReasons",
                    "choices",
                    "expiresAt",
                    "automatic",
                    "rememberedAs",
                ),
                payload=UesPermissionRequestPayload(
                    tool_name=event.tool_name,
                    tool_use_id=event.tool_use_id or event.request_id,
                    input=event.input,
                    reason=event.description,
                ),
            )
        case canonical.Done():
            return UesDone(**_header(event, "usage"), payload=_done(event))
        case (
            canonical.TurnStarted()
            | canonical.ThinkingDelta()
            | canonical.ToolProgress()
            | canonical.FileChange()
            | canonical.Plan()
            | canonical.PermissionResolved()
            | canonical.UsageReport()
            | canonical.Retry()
            | canonical.Notice()
            | canonical.FilesRestored()
            | canonical.TurnCompleted()
            | canonical.Unrecognized()
        ):
            header = _header(event)
            return UesExtension(type=f"{header['agent']}:{type_of(event)}", **header, payload=own_fields(event))
        case _:
            assert_never(event)


def _done(event: canonical.Done) -> UesDonePayload:
    return UesDonePayload(
        status=event.status,
        result=event.result,
        usage=UesDoneUsage(
            input_tokens=event.usage.input_tokens,
            output_tokens=event.usage.output_tokens,
            tool_uses=event.tool_uses,
            total_cost_usd=event.usage.cost_usd if event.cost_usd is None else event.cost_usd,
        ),
        duration_ms=event.duration_ms or 0.0,
    )


def _header(event: Event, *metadata_fields: str) -> dict[str, Any]:
    """The base event; ``beside`` names the fields that have no place in the payload."""
    metadata: dict[str, Any] = {"seq": event.seq, "turn": event.turn}
    if event.parent_tool_use_id is not None:
        metadata["parentToolUseId"] = event.parent_tool_use_id
    if metadata_fields:
        own = own_fields(event)
        metadata |= {name: own[name] for name in metadata_fields if own.get(name) not in (None, "", [])}
    if event.native is not None:
        metadata["native"] = event.native
    return {
        "agent": _AGENT_IDS.get(event.agent, event.agent),
        "timestamp": event.timestamp,
        "session_id": event.session_id,
        "metadata": metadata,
    }
