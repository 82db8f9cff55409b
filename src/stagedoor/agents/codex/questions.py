"""What the app-server asks its client, and how each question is answered on the wire.

The ids of questions count from 0 in a space of their own. An unanswered question waits for ever; interrupting the turn
closes it.
"""

from __future__ import annotations

from typing import Any, TypeAlias, cast

import msgspec

from ...errors import LocalProtocolError
from ...wire.shapes import UnknownMessage, decode_or_reason, decode_question
from ...wire.stamps import Stamped
from .commands import (
    Accept,
    AcceptForSession,
    AcceptWithExecpolicyAmendment,
    Answers,
    ApplyNetworkPolicyAmendment,
    CancelTurn,
    CurrentTime,
    Decision,
    Decline,
    ToolOutput,
)
from .threads import FileUpdateChange, McpToolCallThreadItem

RequestId: TypeAlias = int | str


class CommandExecutionRequestApproval(Stamped, frozen=True, rename="camel", kw_only=True):
    """May this command run? Read the warning on :class:`~.commands.Accept`."""

    request_id: RequestId
    thread_id: str
    native_turn_id: str = msgspec.field(default="", name="turnId")
    item_id: str = ""
    kind: str = "command"
    reason: str | None = None
    command: str | None = None
    cwd: str | None = None
    command_actions: list[Any] | None = None
    proposed_execpolicy_amendment: list[str] | None = None
    network_approval_context: dict[str, Any] | None = None
    additional_permissions: Any = None
    available_decisions: list[Any] | None = None


class FileChangeRequestApproval(Stamped, frozen=True, rename="camel", kw_only=True):
    """May these files change? The wire has no diff; ``changes`` comes from the item that started before."""

    request_id: RequestId
    thread_id: str
    native_turn_id: str = msgspec.field(default="", name="turnId")
    item_id: str = ""
    reason: str | None = None
    grant_root: str | None = None
    changes: list[FileUpdateChange] = []


class PermissionsRequestApproval(Stamped, frozen=True, rename="camel", kw_only=True):
    """May the sandbox be widened by ``permissions`` (``fileSystem``, ``network``)?"""

    request_id: RequestId
    thread_id: str
    native_turn_id: str = msgspec.field(default="", name="turnId")
    item_id: str = ""
    cwd: str = ""
    reason: str | None = None
    permissions: dict[str, Any] = {}


class McpServerElicitationRequest(Stamped, frozen=True, rename="camel", kw_only=True):
    """An MCP server asks the user, or (``is_tool_approval``) Codex asks whether one of its tools may be called."""

    request_id: RequestId
    thread_id: str
    native_turn_id: str | None = msgspec.field(default=None, name="turnId")
    server_name: str = ""
    mode: str = ""
    message: str = ""
    requested_schema: Any = None
    url: str | None = None
    meta: Any = msgspec.field(default=None, name="_meta")
    call: McpToolCallThreadItem | None = None
    """The tool call that waits for the answer, as its item started; the wire does not name the tool."""

    @property
    def is_tool_approval(self) -> bool:
        return bool(self._meta("codex_approval_kind") == "mcp_tool_call")

    @property
    def tool_params(self) -> Any:
        return self._meta("tool_params")

    @property
    def item_id(self) -> str:
        return self.call.id if self.call else ""

    def _meta(self, key: str) -> Any:
        meta: Any = self.meta
        return cast("dict[str, Any]", meta).get(key) if isinstance(meta, dict) else None


class UserInputOption(msgspec.Struct, frozen=True):
    label: str = ""
    description: str = ""


class UserInputQuestion(msgspec.Struct, frozen=True, rename="camel"):
    """``is_other``: a free answer is welcome too."""

    id: str
    question: str = ""
    header: str = ""
    is_other: bool = False
    is_secret: bool = False
    options: list[UserInputOption] | None = None


class ToolRequestUserInput(Stamped, frozen=True, rename="camel", kw_only=True):
    """The model asks the user (plan mode only)."""

    request_id: RequestId
    thread_id: str
    native_turn_id: str = msgspec.field(default="", name="turnId")
    item_id: str = ""
    questions: list[UserInputQuestion] = []
    is_blocking: bool = True


class DynamicToolCall(Stamped, frozen=True, rename="camel", kw_only=True):
    """The model calls a tool that the client offered in ``thread/start``."""

    request_id: RequestId
    thread_id: str
    native_turn_id: str = msgspec.field(default="", name="turnId")
    call_id: str = ""
    tool: str = ""
    namespace: str | None = None
    arguments: Any = None

    @property
    def item_id(self) -> str:
        return self.call_id


class CurrentTimeRead(Stamped, frozen=True, rename="camel", kw_only=True):
    """What time is it, in seconds?"""

    request_id: RequestId
    thread_id: str
    native_turn_id: str = msgspec.field(default="", name="turnId")
    item_id: str = ""


class ExecCommandApproval(Stamped, frozen=True, rename="camel", kw_only=True):
    """How older servers asked about a command."""

    request_id: RequestId
    thread_id: str = msgspec.field(default="", name="conversationId")
    item_id: str = msgspec.field(default="", name="callId")
    native_turn_id: str = msgspec.field(default="", name="turnId")
    command: list[str] = []
    cwd: str = ""
    reason: str | None = None


class ApplyPatchApproval(Stamped, frozen=True, rename="camel", kw_only=True):
    """How older servers asked about files; ``file_changes`` maps a path to its change."""

    request_id: RequestId
    thread_id: str = msgspec.field(default="", name="conversationId")
    item_id: str = msgspec.field(default="", name="callId")
    native_turn_id: str = msgspec.field(default="", name="turnId")
    file_changes: dict[str, Any] = {}
    grant_root: str | None = None
    reason: str | None = None


Question: TypeAlias = (
    CommandExecutionRequestApproval
    | FileChangeRequestApproval
    | PermissionsRequestApproval
    | McpServerElicitationRequest
    | ToolRequestUserInput
    | DynamicToolCall
    | CurrentTimeRead
    | ExecCommandApproval
    | ApplyPatchApproval
)

QUESTIONS: dict[str, type[Any]] = {
    "item/commandExecution/requestApproval": CommandExecutionRequestApproval,
    "item/fileChange/requestApproval": FileChangeRequestApproval,
    "item/permissions/requestApproval": PermissionsRequestApproval,
    "mcpServer/elicitation/request": McpServerElicitationRequest,
    "item/tool/requestUserInput": ToolRequestUserInput,
    "item/tool/call": DynamicToolCall,
    "currentTime/read": CurrentTimeRead,
    "execCommandApproval": ExecCommandApproval,
    "applyPatchApproval": ApplyPatchApproval,
}

WITHOUT_MEANING = frozenset({"account/chatgptAuthTokens/refresh", "attestation/generate"})
"""Requests of the published schema that only Codex's own apps can answer: they are refused."""

_PARAMS: msgspec.json.Decoder[dict[str, Any]] = msgspec.json.Decoder(dict[str, Any])
_DECODERS = {method: msgspec.json.Decoder(shape) for method, shape in QUESTIONS.items()}


def decode(message: bytes, request_id: RequestId, method: str, params: msgspec.Raw) -> Question | UnknownMessage:
    """Type one server request. Never raises on content."""
    decoder = _DECODERS.get(method)
    if decoder is None:
        return UnknownMessage(message, f"unknown request {method!r}")
    members = decode_or_reason(_PARAMS, params)
    if isinstance(members, str):
        return UnknownMessage(message, f"{method}: {members}")
    question = decode_question(decoder, msgspec.json.encode(members | {"requestId": request_id}))
    return UnknownMessage(message, f"{method}: {question}") if isinstance(question, str) else question


def result(question: Question, decision: Decision) -> dict[str, Any]:
    """The answer as the server expects it. Raises ``LocalProtocolError`` for a decision that does not fit."""
    answer = _result(question, decision)
    if answer is None:
        raise LocalProtocolError(
            f"{type(decision).__name__} does not answer a {type(question).__name__}; use Accept, Decline or CancelTurn"
        )
    return answer


def _result(question: Question, decision: Decision) -> dict[str, Any] | None:
    match question:
        case CommandExecutionRequestApproval():
            return _of_command(decision)
        case FileChangeRequestApproval():
            return {"decision": word} if (word := _WORDS.get(type(decision))) else None
        case ExecCommandApproval() | ApplyPatchApproval():
            return _of_review(decision)
        case PermissionsRequestApproval():
            return _of_permissions(question, decision)
        case McpServerElicitationRequest():
            return _of_elicitation(decision)
        case ToolRequestUserInput():
            return _of_user_input(decision)
        case DynamicToolCall():
            return _of_tool_call(decision)
        case CurrentTimeRead():
            return {"currentTimeAt": decision.seconds} if isinstance(decision, CurrentTime) else None


_WORDS: dict[type, str] = {
    Accept: "accept",
    AcceptForSession: "acceptForSession",
    Decline: "decline",
    CancelTurn: "cancel",
}


def _of_command(decision: Decision) -> dict[str, Any] | None:
    match decision:
        case AcceptWithExecpolicyAmendment(prefix):
            return {"decision": {"acceptWithExecpolicyAmendment": {"execpolicy_amendment": list(prefix)}}}
        case ApplyNetworkPolicyAmendment(host, action):
            amendment = {"host": host, "action": action}
            return {"decision": {"applyNetworkPolicyAmendment": {"network_policy_amendment": amendment}}}
        case _:
            return {"decision": word} if (word := _WORDS.get(type(decision))) else None


def _of_review(decision: Decision) -> dict[str, Any] | None:
    match decision:
        case Accept():
            return {"decision": "approved"}
        case AcceptForSession():
            return {"decision": "approved_for_session"}
        case Decline(message):
            return {"decision": {"denied": {"rejection": message}}}
        case CancelTurn():
            return {"decision": "abort"}
        case _:
            return None


def _of_permissions(question: PermissionsRequestApproval, decision: Decision) -> dict[str, Any] | None:
    match decision:
        case Accept():
            return {"permissions": question.permissions, "scope": "turn"}
        case AcceptForSession():
            return {"permissions": question.permissions, "scope": "session"}
        case Decline() | CancelTurn():
            return {"permissions": {}, "scope": "turn"}
        case _:
            return None


def _of_elicitation(decision: Decision) -> dict[str, Any] | None:
    match decision:
        case Accept(content):
            return {"action": "accept", "content": content or {}}
        case AcceptForSession():
            return {"action": "accept", "content": {}, "_meta": {"persist": "session"}}
        case Decline():
            return {"action": "decline"}
        case CancelTurn():
            return {"action": "cancel"}
        case _:
            return None


def _of_user_input(decision: Decision) -> dict[str, Any] | None:
    match decision:
        case Answers(answers):
            return {"answers": {key: {"answers": list(words)} for key, words in answers.items()}}
        case Decline() | CancelTurn():
            return {"answers": {}}
        case _:
            return None


def _of_tool_call(decision: Decision) -> dict[str, Any] | None:
    match decision:
        case ToolOutput(text, success=success):
            return {"contentItems": [{"type": "inputText", "text": text}], "success": success}
        case Decline(message):
            return {"contentItems": [{"type": "inputText", "text": message}], "success": False}
        case CancelTurn():
            return {"contentItems": [], "success": False}
        case _:
            return None
