"""``ues``: the nine event types of the Unified Event Stream; everything else as ``<agent>:<type>``.

What the nine payloads have no field for stands in ``metadata``, so nothing is lost.
"""

from __future__ import annotations

from typing import Any, Literal, TypeAlias, assert_never

import msgspec

from stagedoor.unified import events as canonical
from stagedoor.unified.events import Event

from .fields import own_fields, type_of

SILENT: dict[str, str] = {}

_AGENT_IDS = {"claude": "claude-code"}


class InitPayload(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    model: str
    cwd: str
    tools: list[str]
    capabilities: dict[str, Any] = {}


class TextPayload(msgspec.Struct, frozen=True):
    content: str


class TextDeltaPayload(msgspec.Struct, frozen=True):
    delta: str


class ThinkingPayload(msgspec.Struct, frozen=True):
    summary: str


class ToolUsePayload(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    tool_name: str
    tool_use_id: str
    input: dict[str, Any]
    description: str = ""


class ToolResultPayload(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    tool_use_id: str
    tool_name: str
    status: Literal["success", "error", "denied"]
    output: Any
    duration_ms: float | None = None


class ErrorPayload(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    code: str = ""
    message: str
    recoverable: bool


class PermissionRequestPayload(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    tool_name: str
    tool_use_id: str
    input: dict[str, Any]
    reason: str = ""


class DoneUsage(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    input_tokens: int
    output_tokens: int
    tool_uses: int
    total_cost_usd: float | None = None


class DonePayload(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    status: Literal["success", "error", "interrupted", "max_turns", "max_budget"]
    result: str = ""
    usage: DoneUsage
    duration_ms: float


class Header(msgspec.Struct, frozen=True, kw_only=True, rename="camel", tag_field="type", omit_defaults=True):
    """What every event carries. Never made on its own."""

    agent: str
    timestamp: int
    session_id: str
    metadata: dict[str, Any] = {}


class Init(Header, frozen=True, kw_only=True, tag="init"):
    payload: InitPayload


class Text(Header, frozen=True, kw_only=True, tag="text"):
    payload: TextPayload


class TextDelta(Header, frozen=True, kw_only=True, tag="text_delta"):
    payload: TextDeltaPayload


class ToolUse(Header, frozen=True, kw_only=True, tag="tool_use"):
    payload: ToolUsePayload


class ToolResult(Header, frozen=True, kw_only=True, tag="tool_result"):
    payload: ToolResultPayload


class Thinking(Header, frozen=True, kw_only=True, tag="thinking"):
    payload: ThinkingPayload


class Error(Header, frozen=True, kw_only=True, tag="error"):
    payload: ErrorPayload


class PermissionRequest(Header, frozen=True, kw_only=True, tag="permission_request"):
    payload: PermissionRequestPayload


class Done(Header, frozen=True, kw_only=True, tag="done"):
    payload: DonePayload


class Namespaced(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """An extension: ``type`` is ``<agent>:<type>``. Consumers ignore those they do not know."""

    type: str
    agent: str
    timestamp: int
    session_id: str
    metadata: dict[str, Any] = {}
    payload: dict[str, Any]


NineEvent: TypeAlias = (
    Init | Text | TextDelta | ToolUse | ToolResult | Thinking | Error | PermissionRequest | Done
)  # fmt: skip
UesEvent: TypeAlias = NineEvent | Namespaced


class _Type(msgspec.Struct, frozen=True):
    type: str


_TYPE = msgspec.json.Decoder(_Type)
_NINE: msgspec.json.Decoder[NineEvent] = msgspec.json.Decoder(NineEvent)
_NAMESPACED = msgspec.json.Decoder(Namespaced)


def decode(line: bytes) -> UesEvent:
    """One event of the stream. Raises ``msgspec.ValidationError`` when it is none."""
    return _NAMESPACED.decode(line) if ":" in _TYPE.decode(line).type else _NINE.decode(line)


class UesProjection:
    def project(self, event: Event) -> list[UesEvent]:
        return [_said(event)]


def _said(event: Event) -> UesEvent:
    match event:
        case canonical.Init(model=model, cwd=cwd, tools=tools, capabilities=capabilities):
            payload = InitPayload(model=model, cwd=cwd, tools=tools, capabilities=capabilities)
            return Init(**_header(event, "agentVersion", "nativeSessionId", "resumed"), payload=payload)
        case canonical.Text(text=text):
            return Text(**_header(event, "messageId"), payload=TextPayload(text))
        case canonical.TextDelta(text=text):
            return TextDelta(**_header(event, "messageId"), payload=TextDeltaPayload(text))
        case canonical.Thinking(text=text):
            return Thinking(**_header(event), payload=ThinkingPayload(text))
        case canonical.ToolUse():
            return ToolUse(
                **_header(event, "nativeName", "operation", "target", "risk"),
                payload=ToolUsePayload(
                    tool_name=event.name,
                    tool_use_id=event.tool_use_id,
                    input=event.input,
                    description=event.description,
                ),
            )
        case canonical.ToolResult():
            return ToolResult(
                **_header(event, "exitCode"),
                payload=ToolResultPayload(
                    tool_use_id=event.tool_use_id,
                    tool_name=event.name,
                    status=event.status,
                    output=event.output,
                    duration_ms=event.duration_ms,
                ),
            )
        case canonical.Error(kind=kind, message=message, fatal=fatal):
            return Error(**_header(event), payload=ErrorPayload(code=kind, message=message, recoverable=not fatal))
        case canonical.PermissionRequest():
            return PermissionRequest(
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
                ),
                payload=PermissionRequestPayload(
                    tool_name=event.tool_name,
                    tool_use_id=event.tool_use_id or event.request_id,
                    input=event.input,
                    reason=event.description,
                ),
            )
        case canonical.Done():
            return Done(**_header(event, "usage"), payload=_done(event))
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
            | canonical.TurnCompleted()
            | canonical.Unrecognized()
        ):
            header = _header(event)
            return Namespaced(type=f"{header['agent']}:{type_of(event)}", **header, payload=own_fields(event))
        case _:
            assert_never(event)


def _done(event: canonical.Done) -> DonePayload:
    return DonePayload(
        status=event.status,
        result=event.result,
        usage=DoneUsage(
            input_tokens=event.usage.input_tokens,
            output_tokens=event.usage.output_tokens,
            tool_uses=event.tool_uses,
            total_cost_usd=event.usage.cost_usd if event.cost_usd is None else event.cost_usd,
        ),
        duration_ms=event.duration_ms or 0.0,
    )


def _header(event: Event, *beside: str) -> dict[str, Any]:
    """The base event; ``beside`` names the fields that have no place in the payload."""
    metadata: dict[str, Any] = {"seq": event.seq, "turn": event.turn}
    if event.parent_tool_use_id is not None:
        metadata["parentToolUseId"] = event.parent_tool_use_id
    if beside:
        own = own_fields(event)
        metadata |= {name: own[name] for name in beside if own.get(name) not in (None, "", [])}
    if event.native is not None:
        metadata["native"] = event.native
    return {
        "agent": _AGENT_IDS.get(event.agent, event.agent),
        "timestamp": event.timestamp,
        "session_id": event.session_id,
        "metadata": metadata,
    }
