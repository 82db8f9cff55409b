"""Every native event of an agent that speaks the Agent Client Protocol, version 1.

The tables are in the neighbours: ``updates.UPDATES`` (what ``session/update`` can say), ``requests.REQUESTS`` (what the
agent asks of us) and ``responses.RESPONSES`` (what it answers to us).
"""

from __future__ import annotations

# A session that the CLI names itself takes the place of the one we know:
# pyright: reportIncompatibleMethodOverride=false
from typing import Any, TypeAlias

import msgspec

from stagedoor.transports.launch import Exited, Stalled
from stagedoor.wire.jsonrpc import Id
from stagedoor.wire.shapes import UnknownMessage
from stagedoor.wire.stamps import Stamped

from .requests import AgentRequest, CreateTerminal, FileRequest
from .responses import AgentResponse, UntypedResponse
from .updates import SessionUpdate


class RequestFailed(Stamped, frozen=True):
    """The agent answered our request with an error. ``method`` is empty when the request is not known."""

    method: str
    code: int
    message: str = ""
    details: Any = None
    session_id: str = ""
    request_id: Id = None


class Unanswered(Stamped, frozen=True):
    """The stream ended before the agent answered this request."""

    method: str
    session_id: str = ""
    request_id: Id = None


class RequestWithdrawn(Stamped, frozen=True):
    """A request of the agent needs no answer any more: its turn was cancelled or ended, or the agent took it back."""

    request: AgentRequest
    why: str


class RequestDeclined(Stamped, frozen=True):
    """The agent asked for something we never offered, and was refused."""

    request: AgentRequest
    why: str


class FileServed(Stamped, frozen=True):
    """We have read or written a file for the agent, or not: ``refusal`` says why. ``failed``: it was allowed, and could
    not be done."""

    request: FileRequest
    refusal: str = ""
    failed: bool = False

    @property
    def session_id(self) -> str:
        return self.request.session_id


class ModelFailed(Stamped, frozen=True):
    """A call of the model failed and the agent tries again: it does not say so, its own records do."""

    session_id: str
    attempt: int
    message: str = ""
    code: int | None = None


class TerminalServed(Stamped, frozen=True):
    """A command that we ran for the agent has ended (``code`` is negative for a signal), or did not begin: ``refusal``
    says why. ``failed``: it was allowed, and could not be started."""

    request: CreateTerminal
    terminal_id: str = ""
    output: str = ""
    code: int | None = None
    refusal: str = ""
    failed: bool = False

    @property
    def session_id(self) -> str:
        return self.request.session_id


class CompleteElicitation(Stamped, frozen=True, rename="camel"):
    """A page opened by an elicitation has done its work."""

    elicitation_id: str


class ExtensionNotification(Stamped, frozen=True):
    """A notification outside the protocol (its method begins with an underscore)."""

    method: str
    params: msgspec.Raw


KnownEvent: TypeAlias = (
    SessionUpdate
    | AgentRequest
    | AgentResponse
    | UntypedResponse
    | RequestFailed
    | Unanswered
    | RequestWithdrawn
    | RequestDeclined
    | FileServed
    | TerminalServed
    | ModelFailed
    | CompleteElicitation
    | ExtensionNotification
)
Event: TypeAlias = KnownEvent | UnknownMessage | Exited | Stalled


def session_of(event: Event) -> str:
    """The id of the session an event belongs to; empty when it concerns the whole connection."""
    match event:
        case RequestWithdrawn(request=request) | RequestDeclined(request=request):
            return request.session_id
        case UnknownMessage(raw=raw):
            return _addressee(raw)
        case _:
            session_id = getattr(event, "session_id", "")
            return session_id if isinstance(session_id, str) else ""


class SessionAddress(msgspec.Struct, frozen=True, rename="camel"):
    """The session a message names, if any."""

    session_id: str = ""


class _SessionMessage(msgspec.Struct, frozen=True):
    params: SessionAddress = SessionAddress()


def _addressee(raw: bytes) -> str:
    try:
        return msgspec.json.decode(raw, type=_SessionMessage).params.session_id
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return ""
