"""A server's problems (RFC 9457) as the exceptions that the same mistake raises without a server."""

from __future__ import annotations

import msgspec

from .. import errors

_URN = "urn:stagedoor:problem:"

FAULTS: dict[str, type[errors.StagedoorError]] = {
    "bad-request": errors.BadRequest,
    "not-supported": errors.NotSupported,
    "not-signed-in": errors.NotSignedIn,
    "not-allowed": errors.NotAllowed,
    "not-found": errors.SessionNotFound,
    "method-not-allowed": errors.LocalProtocolError,
    "request-timeout": errors.ConnectionLost,
    "already-answered": errors.AlreadyAnswered,
    "events-removed": errors.EventsRemoved,
    "session-ended": errors.SessionEnded,
    "session-running": errors.SessionRunning,
    "unknown-outcome": errors.UnknownOutcome,
    "too-large": errors.MessageTooLarge,
    "unsupported-media-type": errors.LocalProtocolError,
    "wrong-host": errors.NotAllowed,
    "key-reused": errors.LocalProtocolError,
    "too-many": errors.TooMany,
    "header-too-large": errors.LocalProtocolError,
    "fault": errors.ServiceError,
    "agent-lost": errors.TransportError,
    "agent-refused": errors.AgentRefused,
    "agent-unavailable": errors.LaunchError,
    "log-away": errors.StoreAway,
    "session-moved": errors.Fenced,
    "worker-away": errors.WorkerAway,
    "log-broken": errors.StoreError,
    "policy-broken": errors.PolicyError,
    "unavailable": errors.TooMany,
}
"""The end of a problem's ``type`` → what is raised. A test holds it to the server's table."""
TEMPORARY = frozenset({"request-timeout", "unavailable", "log-away", "worker-away"})
"""Worth another try: the server is starting or stopping, or waits for its database."""
_BY_STATUS: dict[int, type[errors.StagedoorError]] = {
    400: errors.BadRequest,
    401: errors.NotSignedIn,
    403: errors.NotAllowed,
    404: errors.SessionNotFound,
    413: errors.MessageTooLarge,
    429: errors.TooMany,
}


class RemoteProblem(msgspec.Struct, frozen=True, kw_only=True):
    type: str = ""
    detail: str = ""
    field: str = ""

    @property
    def slug(self) -> str:
        return self.type.removeprefix(_URN)

    @property
    def ours(self) -> bool:
        return self.type.startswith(_URN)

    @property
    def temporary(self) -> bool:
        return self.ours and self.slug in TEMPORARY


def read_problem(body: bytes) -> RemoteProblem:
    """The problem in an answer; an empty one when no Stagedoor server answered."""
    try:
        return msgspec.json.decode(body, type=RemoteProblem)
    except msgspec.MsgspecError:
        return RemoteProblem()


def fault_of(status: int, problem: RemoteProblem) -> errors.StagedoorError:
    if not problem.ours:
        kind = _BY_STATUS.get(status, errors.RemoteProtocolError)
        return kind(f"status {status} from something that is not a Stagedoor server; check the address")
    kind = FAULTS.get(problem.slug, _BY_STATUS.get(status, errors.ServiceError))
    return kind(problem.detail or problem.slug)


def close_fault(code: int, reason: str) -> errors.StagedoorError | None:
    """The exception for a WebSocket close code; ``None`` when it is worth coming back."""
    status = code - 4000
    if status not in (400, 401, 403, 404):
        return None
    return _BY_STATUS[status](reason or f"the server closed the stream with code {code}")
