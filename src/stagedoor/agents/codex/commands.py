"""What a caller can send to a Codex app-server. (``codex exec`` takes nothing after its prompt.)"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypeAlias

import msgspec

DECLINED = "The user declined."


class Accept(msgspec.Struct, frozen=True):
    """Yes, this once.

    Treat it as full access. Under the approval policy ``untrusted`` the command first runs in the sandbox, but when the
    sandbox stops it and it exits with an error, Codex silently runs it again *without* a sandbox and asks no second
    time. A command that asked for escalation runs without a sandbox at once.

    ``content`` fills the form of an MCP server's question.
    """

    content: Mapping[str, Any] | None = None


class AcceptForSession(msgspec.Struct, frozen=True):
    """Yes, and do not ask again in this thread for the same command, path, tool or permission. See ``Accept``."""


class AcceptWithExecpolicyAmendment(msgspec.Struct, frozen=True):
    """Yes, and for ever: Codex writes a rule for commands that start so into ``rules/default.rules`` of its home."""

    execpolicy_amendment: Sequence[str]


class ApplyNetworkPolicyAmendment(msgspec.Struct, frozen=True):
    """Remember this host as allowed or denied."""

    host: str
    action: Literal["allow", "deny"]


class Decline(msgspec.Struct, frozen=True):
    """No; the turn continues. Codex tells the model ``rejected by user``, not the message (except to client tools)."""

    message: str = DECLINED


class CancelTurn(msgspec.Struct, frozen=True):
    """No, and end the turn."""


class Answers(msgspec.Struct, frozen=True):
    """The user's words, by question id."""

    answers: Mapping[str, Sequence[str]]


class ToolOutput(msgspec.Struct, frozen=True):
    """What a tool of the client's own returned."""

    text: str
    success: bool = True


class CurrentTime(msgspec.Struct, frozen=True):
    seconds: int


Decision: TypeAlias = (
    Accept
    | AcceptForSession
    | AcceptWithExecpolicyAmendment
    | ApplyNetworkPolicyAmendment
    | Decline
    | CancelTurn
    | Answers
    | ToolOutput
    | CurrentTime
)


class AnswerQuestion(msgspec.Struct, frozen=True):
    """Close the open question ``request_id``."""

    request_id: int | str
    decision: Decision


class StartThread(msgspec.Struct, frozen=True):
    params: Mapping[str, Any] = {}


class ResumeThread(msgspec.Struct, frozen=True):
    thread_id: str
    params: Mapping[str, Any] = {}


class ForkThread(msgspec.Struct, frozen=True):
    """``last_turn_id`` is the last turn the fork keeps; all of them without it."""

    thread_id: str
    params: Mapping[str, Any] = {}
    last_turn_id: str | None = None


class StartTurn(msgspec.Struct, frozen=True):
    """While a turn runs, Codex steers the text into it instead. Overrides in ``params`` stick to later turns."""

    thread_id: str
    text: str
    images: Sequence[str] = ()
    params: Mapping[str, Any] = {}


class Steer(msgspec.Struct, frozen=True):
    """Add text to the running turn; it is delivered after the running tool call."""

    thread_id: str
    text: str
    images: Sequence[str] = ()


class InterruptTurn(msgspec.Struct, frozen=True):
    """End the running turn of the thread and of its sub-agents, and the commands that Codex would leave running."""

    thread_id: str


class CleanBackgroundTerminals(msgspec.Struct, frozen=True):
    thread_id: str


class UnsubscribeThread(msgspec.Struct, frozen=True):
    """Stop following a thread; its recording stays."""

    thread_id: str


class CallMethod(msgspec.Struct, frozen=True):
    """Any other method of the server, by its own name."""

    method: str
    params: Mapping[str, Any] = {}


ServerCall: TypeAlias = (
    StartThread
    | ResumeThread
    | ForkThread
    | StartTurn
    | Steer
    | CleanBackgroundTerminals
    | UnsubscribeThread
    | CallMethod
)
Command: TypeAlias = ServerCall | InterruptTurn | AnswerQuestion


def user_input(text: str, images: Sequence[str]) -> list[dict[str, str]]:
    """The ``input`` of a turn: the text, then local images."""
    return [{"type": "text", "text": text}, *({"type": "localImage", "path": path} for path in images)]
