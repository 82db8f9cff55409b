"""All errors in one table: for HTTP a status and a problem (RFC 9457), for JSON-RPC a code.

return problem_response(fault, instance=request.url.path)      # HTTP
code, message, detail = rpc_error(fault)                       # JSON-RPC
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
from starlette.exceptions import HTTPException
from starlette.responses import Response

from stagedoor import errors

MEDIA_TYPE = "application/problem+json"
_URN = "urn:stagedoor:problem:"


class ProblemKind(msgspec.Struct, frozen=True):
    """One kind of error. ``slug`` ends the problem's ``type``; ``code`` is JSON-RPC's."""

    status: int
    slug: str
    title: str
    code: int


class Problem(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """RFC 9457. ``field`` is the part of the request that is wrong, where one is: ``$.config.maxTurns``."""

    type: str
    title: str
    status: int
    detail: str
    instance: str = ""
    field: str = ""


class RefusedRequest(errors.ServiceError):
    """A request that reached no verb: refused at the door for one of ``REFUSALS``."""

    def __init__(self, slug: str, detail: str, *, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(detail)
        self.kind = REFUSALS[slug]
        self.headers = dict(headers or {})


class InvalidField(errors.BadRequest):
    """A part of the request is not valid."""

    def __init__(self, message: str, *, field: str = "") -> None:
        super().__init__(message)
        self.field = field


REFUSALS: dict[str, ProblemKind] = {
    kind.slug: kind
    for kind in (
        ProblemKind(400, "bad-request", "The request is not valid", -32600),
        ProblemKind(401, "not-signed-in", "A valid token is needed", -32010),
        ProblemKind(404, "not-found", "Not found", -32601),
        ProblemKind(405, "method-not-allowed", "The method is not allowed here", -32601),
        ProblemKind(408, "request-timeout", "The request took too long", -32600),
        ProblemKind(409, "unknown-outcome", "It is unknown whether the request was carried out", -32011),
        ProblemKind(413, "too-large", "The request is too large", -32012),
        ProblemKind(415, "unsupported-media-type", "The body is not JSON", -32600),
        ProblemKind(421, "wrong-host", "This server does not answer to that name", -32013),
        ProblemKind(422, "key-reused", "The idempotency key belongs to another request", -32014),
        ProblemKind(429, "too-many", "A limit is reached", -32005),
        ProblemKind(431, "header-too-large", "The header is too large", -32600),
        ProblemKind(503, "unavailable", "The server accepts no work now", -32006),
    )
}

SESSION_MOVED = ProblemKind(503, "session-moved", "The session changes hands; try again", -32020)

KINDS: dict[type[Exception], ProblemKind] = {
    errors.SessionNotFound: ProblemKind(404, "not-found", "Not found", -32001),
    errors.SessionEnded: ProblemKind(409, "session-ended", "The session has ended", -32002),
    errors.SessionRunning: ProblemKind(409, "session-running", "The session is still running", -32017),
    errors.AlreadyAnswered: ProblemKind(409, "already-answered", "The question is no longer open", -32003),
    errors.EventsRemoved: ProblemKind(410, "events-removed", "Some events are no longer stored", -32018),
    errors.NotAllowed: ProblemKind(403, "not-allowed", "Not allowed", -32004),
    errors.BadRequest: ProblemKind(400, "bad-request", "The request is not valid", -32602),
    errors.UnknownOutcome: REFUSALS["unknown-outcome"],
    errors.WorkerAway: ProblemKind(503, "worker-away", "The machine cannot be reached just now", -32021),
    errors.TooMany: ProblemKind(429, "too-many", "A limit is reached", -32005),
    errors.Fenced: SESSION_MOVED,
    errors.SequenceConflict: SESSION_MOVED,
    errors.StoreError: ProblemKind(503, "log-broken", "The log cannot be used", -32006),
    errors.StoreAway: ProblemKind(503, "log-away", "The log cannot be reached just now", -32019),
    errors.NotSupported: ProblemKind(400, "not-supported", "The agent cannot do that", -32007),
    errors.PolicyError: ProblemKind(503, "policy-broken", "The policy file is wrong", -32008),
    errors.LaunchError: ProblemKind(503, "agent-unavailable", "The agent could not be started", -32009),
    errors.LocalProtocolError: ProblemKind(400, "bad-request", "The request is not valid", -32602),
    errors.MessageTooLarge: REFUSALS["too-large"],
    errors.TransportError: ProblemKind(502, "agent-lost", "The connection to the agent broke", -32015),
    errors.ProtocolError: ProblemKind(502, "agent-lost", "The connection to the agent broke", -32015),
    errors.AgentRefused: ProblemKind(502, "agent-refused", "The agent refused", -32016),
}
"""A subclass counts as its nearest entry."""

UNEXPECTED = ProblemKind(500, "fault", "Internal error", -32603)
INTERNAL_ERROR = "internal error of Stagedoor; see the server's log"


def kind_of(fault: BaseException) -> ProblemKind:
    if isinstance(fault, RefusedRequest):
        return fault.kind
    return next((KINDS[cls] for cls in type(fault).__mro__ if cls in KINDS), UNEXPECTED)


def problem(fault: BaseException, *, instance: str = "") -> Problem:
    """What a client sees. Of an internal error it sees nothing but that there was one."""
    kind = kind_of(fault)
    return Problem(
        type=_URN + kind.slug,
        title=kind.title,
        status=kind.status,
        detail=INTERNAL_ERROR if kind is UNEXPECTED else str(fault) or kind.title,
        instance=instance,
        field=fault.field if isinstance(fault, InvalidField) else "",
    )


def problem_response(fault: BaseException, *, instance: str = "") -> Response:
    body = problem(_translated(fault), instance=instance)
    headers = {"cache-control": "no-store"}
    if isinstance(fault, RefusedRequest):
        headers |= fault.headers
    elif isinstance(fault, HTTPException) and fault.headers:
        headers |= {name.lower(): value for name, value in fault.headers.items()}
    if body.status == 401:
        headers.setdefault("www-authenticate", 'Bearer realm="stagedoor"')
    elif body.status in (429, 503):
        headers.setdefault("retry-after", "5")
    return Response(msgspec.json.encode(body), body.status, headers, MEDIA_TYPE)


def rpc_error(fault: BaseException) -> tuple[int, str, Problem]:
    """JSON-RPC's ``code``, ``message`` and ``data``."""
    detail = problem(fault)
    return kind_of(fault).code, detail.detail, detail


def _translated(fault: BaseException) -> BaseException:
    """What Starlette itself raises (unknown path, method not allowed) as one of our refusals."""
    if not isinstance(fault, HTTPException):
        return fault
    slug = next((kind.slug for kind in REFUSALS.values() if kind.status == fault.status_code), "bad-request")
    return RefusedRequest(slug, fault.detail or REFUSALS[slug].title)
