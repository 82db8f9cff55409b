"""A client's own lines in a recording, read back into the commands that would have written them. Pure."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from ...wire.jsonrpc import Request, Response
from .commands import (
    Accept,
    AcceptForSession,
    AcceptWithExecpolicyAmendment,
    Answer,
    Answers,
    ApplyNetworkPolicyAmendment,
    Call,
    Cancel,
    Command,
    CurrentTime,
    Decision,
    Decline,
    ForkThread,
    Interrupt,
    ResumeThread,
    StartThread,
    StartTurn,
    Steer,
    ToolOutput,
)
from .lenient import decoded
from .questions import (
    CurrentTimeRead,
    DynamicToolCall,
    McpServerElicitationRequest,
    PermissionsRequestApproval,
    Question,
    ToolRequestUserInput,
)

UNREADABLE = "the answer could not be read, so the call did not run"
"""Codex calls the item failed then, and its turn goes on."""


class _Text(msgspec.Struct):
    type: str = ""
    text: str = ""


class _Input(msgspec.Struct):
    input: list[_Text] = []


class _Prefix(msgspec.Struct):
    execpolicy_amendment: list[str]


class _Host(msgspec.Struct):
    host: str
    action: Literal["allow", "deny"]


class _Network(msgspec.Struct):
    network_policy_amendment: _Host


class _Denied(msgspec.Struct):
    rejection: str = ""


class _Amended(msgspec.Struct, rename="camel"):
    accept_with_execpolicy_amendment: _Prefix | None = None
    apply_network_policy_amendment: _Network | None = None
    denied: _Denied | None = None


class _Decided(msgspec.Struct):
    decision: str | _Amended


class _Granted(msgspec.Struct):
    permissions: dict[str, Any]
    scope: str = "turn"


class _Elicited(msgspec.Struct):
    action: str
    content: dict[str, Any] | None = None
    meta: dict[str, Any] | None = msgspec.field(default=None, name="_meta")


class _Words(msgspec.Struct):
    answers: list[str] = []


class _Answered(msgspec.Struct):
    answers: dict[str, _Words]


class _Outcome(msgspec.Struct):
    success: bool


class _Time(msgspec.Struct, rename="camel"):
    current_time_at: int


_PARAMS = msgspec.json.Decoder(dict[str, Any])
_INPUT = msgspec.json.Decoder(_Input)
_DECIDED = msgspec.json.Decoder(_Decided)
_GRANTED = msgspec.json.Decoder(_Granted)
_ELICITED = msgspec.json.Decoder(_Elicited)
_ANSWERED = msgspec.json.Decoder(_Answered)
_OUTCOME = msgspec.json.Decoder(_Outcome)
_TIME = msgspec.json.Decoder(_Time)
_WORDS: dict[str, Decision] = {
    "accept": Accept(),
    "acceptForSession": AcceptForSession(),
    "decline": Decline(""),
    "cancel": Cancel(),
    "approved": Accept(),
    "approved_for_session": AcceptForSession(),
    "denied": Decline(""),
    "abort": Cancel(),
}


def request_in(request: Request, *, running: bool) -> Command:
    """``running``: a turn of the thread runs, which a prompt then steers."""
    value = decoded(_PARAMS, request.params)
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
            said = decoded(_INPUT, request.params)
            texts = [] if isinstance(said, str) else [part.text for part in said.input if part.type == "text"]
            begins = method == "turn/start" and not running
            return (StartTurn if begins else Steer)(thread_id, "\n".join(texts))
        case "turn/interrupt":
            return Interrupt(thread_id)
        case method:
            return Call(method, params)


def answer_in(question: Question, response: Response) -> Answer:
    """The inverse of ``questions.result``. What it cannot have written is a refusal, as it is for Codex."""
    decision = None if response.result is None else _decision(question, response.result)
    fault = response.fault.message if response.fault is not None else ""
    return Answer(question.request_id, decision or Decline(fault or UNREADABLE))


def _decision(question: Question, result: msgspec.Raw) -> Decision | None:
    match question:
        case PermissionsRequestApproval():
            granted = decoded(_GRANTED, result)
            return None if isinstance(granted, str) else _granted(granted)
        case McpServerElicitationRequest():
            elicited = decoded(_ELICITED, result)
            return None if isinstance(elicited, str) else _elicited(elicited)
        case ToolRequestUserInput():
            answered = decoded(_ANSWERED, result)
            return None if isinstance(answered, str) else _answered(answered)
        case DynamicToolCall():
            outcome = decoded(_OUTCOME, result)
            return None if isinstance(outcome, str) else ToolOutput("", outcome.success)
        case CurrentTimeRead():
            time = decoded(_TIME, result)
            return None if isinstance(time, str) else CurrentTime(time.current_time_at)
        case _:
            decided = decoded(_DECIDED, result)
            return None if isinstance(decided, str) else _decided(decided.decision)


def _decided(decision: str | _Amended) -> Decision | None:
    match decision:
        case str():
            return _WORDS.get(decision)
        case _Amended(accept_with_execpolicy_amendment=_Prefix(words)):
            return AcceptWithExecpolicyAmendment(words)
        case _Amended(apply_network_policy_amendment=_Network(_Host(host, action))):
            return ApplyNetworkPolicyAmendment(host, action)
        case _Amended(denied=_Denied(message)):
            return Decline(message)
        case _:
            return None


def _granted(given: _Granted) -> Decision:
    if not given.permissions:
        return Decline("")
    return AcceptForSession() if given.scope == "session" else Accept()


def _elicited(given: _Elicited) -> Decision | None:
    if given.action != "accept":
        return _WORDS.get(given.action)
    persists = given.meta is not None and given.meta.get("persist") == "session"
    return AcceptForSession() if persists else Accept(given.content or None)


def _answered(given: _Answered) -> Decision:
    words = {key: one.answers for key, one in given.answers.items() if one.answers}
    return Answers(words) if words else Decline("")
