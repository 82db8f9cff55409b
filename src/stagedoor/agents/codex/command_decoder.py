"""A client's own lines in a recording, read back into the commands that would have written them. Pure."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from ...wire.jsonrpc import Request, Response
from ...wire.shapes import decode_or_reason, decode_strictly
from .commands import (
    Accept,
    AcceptForSession,
    AcceptWithExecpolicyAmendment,
    AnswerQuestion,
    Answers,
    ApplyNetworkPolicyAmendment,
    CallMethod,
    CancelTurn,
    Command,
    CurrentTime,
    Decision,
    Decline,
    ForkThread,
    InterruptTurn,
    ResumeThread,
    StartThread,
    StartTurn,
    Steer,
    ToolOutput,
)
from .questions import (
    CurrentTimeRead,
    DynamicToolCall,
    McpServerElicitationRequest,
    PermissionsRequestApproval,
    Question,
    ToolRequestUserInput,
)

UNREADABLE = "the answer could not be read, so the call did not run"
"""Codex calls the item failed then, and its turn continues."""


class _InputText(msgspec.Struct):
    type: str = ""
    text: str = ""


class _Input(msgspec.Struct):
    input: list[_InputText] = []


class _CommandPrefix(msgspec.Struct):
    execpolicy_amendment: list[str]


class _NetworkRule(msgspec.Struct):
    host: str
    action: Literal["allow", "deny"]


class _NetworkAmendment(msgspec.Struct):
    network_policy_amendment: _NetworkRule


class _ReviewDenial(msgspec.Struct):
    rejection: str = ""


class _Amendment(msgspec.Struct, rename="camel"):
    accept_with_execpolicy_amendment: _CommandPrefix | None = None
    apply_network_policy_amendment: _NetworkAmendment | None = None
    denied: _ReviewDenial | None = None


class _DecisionResult(msgspec.Struct):
    decision: str | _Amendment


class _PermissionsResult(msgspec.Struct):
    permissions: dict[str, Any]
    scope: str = "turn"


class _ElicitationResult(msgspec.Struct):
    action: str
    content: dict[str, Any] | None = None
    meta: dict[str, Any] | None = msgspec.field(default=None, name="_meta")


class _Words(msgspec.Struct):
    answers: list[str] = []


class _UserInputResult(msgspec.Struct):
    answers: dict[str, _Words]


class _ToolCallResult(msgspec.Struct):
    success: bool


class _CurrentTimeResult(msgspec.Struct, rename="camel"):
    current_time_at: int


_PARAMS = msgspec.json.Decoder(dict[str, Any])
_INPUT = msgspec.json.Decoder(_Input)
_DECISION = msgspec.json.Decoder(_DecisionResult)
_PERMISSIONS = msgspec.json.Decoder(_PermissionsResult)
_ELICITATION = msgspec.json.Decoder(_ElicitationResult)
_USER_INPUT = msgspec.json.Decoder(_UserInputResult)
_TOOL_CALL = msgspec.json.Decoder(_ToolCallResult)
_CURRENT_TIME = msgspec.json.Decoder(_CurrentTimeResult)
_WORDS: dict[str, Decision] = {
    "accept": Accept(),
    "acceptForSession": AcceptForSession(),
    "decline": Decline(""),
    "cancel": CancelTurn(),
    "approved": Accept(),
    "approved_for_session": AcceptForSession(),
    "denied": Decline(""),
    "abort": CancelTurn(),
}


def decode_request(request: Request, *, running: bool) -> Command:
    """``running``: a turn of the thread runs, which a prompt then steers."""
    value = decode_or_reason(_PARAMS, request.params)
    params: dict[str, Any] = {} if isinstance(value, str) else value
    thread_id = str(params.get("threadId") or "")
    match request.method:
        case "thread/start":
            return StartThread(params)
        case "thread/resume":
            return ResumeThread(thread_id, params)
        case "thread/fork":
            return ForkThread(thread_id, params)
        case "turn/start" | "turn/steer" as method:
            turn = decode_or_reason(_INPUT, request.params)
            texts = [] if isinstance(turn, str) else [part.text for part in turn.input if part.type == "text"]
            begins = method == "turn/start" and not running
            return (StartTurn if begins else Steer)(thread_id, "\n".join(texts))
        case "turn/interrupt":
            return InterruptTurn(thread_id)
        case method:
            return CallMethod(method, params)


def decode_answer(question: Question, response: Response) -> AnswerQuestion:
    """The inverse of ``questions.result``. What it cannot have written is a refusal, as it is for Codex."""
    decision = None if response.result is None else _decision(question, response.result)
    fault = response.fault.message if response.fault is not None else ""
    return AnswerQuestion(question.request_id, decision or Decline(fault or UNREADABLE))


def _decision(question: Question, result: msgspec.Raw) -> Decision | None:
    match question:
        case PermissionsRequestApproval():
            permissions = decode_strictly(_PERMISSIONS, result)
            return None if isinstance(permissions, str) else _from_permissions(permissions)
        case McpServerElicitationRequest():
            elicitation = decode_strictly(_ELICITATION, result)
            return None if isinstance(elicitation, str) else _from_elicitation(elicitation)
        case ToolRequestUserInput():
            user_input = decode_strictly(_USER_INPUT, result)
            return None if isinstance(user_input, str) else _from_user_input(user_input)
        case DynamicToolCall():
            output = decode_strictly(_TOOL_CALL, result)
            return None if isinstance(output, str) else ToolOutput("", output.success)
        case CurrentTimeRead():
            time = decode_strictly(_CURRENT_TIME, result)
            return None if isinstance(time, str) else CurrentTime(time.current_time_at)
        case _:
            approval = decode_strictly(_DECISION, result)
            return None if isinstance(approval, str) else _from_decision(approval.decision)


def _from_decision(decision: str | _Amendment) -> Decision | None:
    match decision:
        case str():
            return _WORDS.get(decision)
        case _Amendment(accept_with_execpolicy_amendment=_CommandPrefix(words)):
            return AcceptWithExecpolicyAmendment(words)
        case _Amendment(apply_network_policy_amendment=_NetworkAmendment(_NetworkRule(host, action))):
            return ApplyNetworkPolicyAmendment(host, action)
        case _Amendment(denied=_ReviewDenial(message)):
            return Decline(message)
        case _:
            return None


def _from_permissions(result: _PermissionsResult) -> Decision:
    if not result.permissions:
        return Decline("")
    return AcceptForSession() if result.scope == "session" else Accept()


def _from_elicitation(result: _ElicitationResult) -> Decision | None:
    if result.action != "accept":
        return _WORDS.get(result.action)
    persists = result.meta is not None and result.meta.get("persist") == "session"
    return AcceptForSession() if persists else Accept(result.content or None)


def _from_user_input(result: _UserInputResult) -> Decision:
    answers = {key: words.answers for key, words in result.answers.items() if words.answers}
    return Answers(answers) if answers else Decline("")
