"""What can go wrong, in one table: for HTTP a status and a problem (RFC 9457), for JSON-RPC a code.

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


class Kind(msgspec.Struct, frozen=True):
    """One way to fail. ``slug`` ends the problem's ``type``; ``code`` is JSON-RPC's."""

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


class Refused(errors.ServiceError):
    """A request that no verb has seen: refused at the door for one of ``REFUSALS``."""

    def __init__(self, slug: str, detail: str, *, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(detail)
        self.kind = REFUSALS[slug]
        self.headers = dict(headers or {})


class InvalidField(errors.BadRequest):
    """A part of the request is not what it may be."""

    def __init__(self, message: str, *, field: str = "") -> None:
        super().__init__(message)
        self.field = field


REFUSALS: dict[str, Kind] = {
    kind.slug: kind
    for kind in (
        Kind(400, "bad-request", "The request makes no sense", -32600),
        Kind(401, "not-signed-in", "A token is needed", -32010),
        Kind(404, "not-found", "There is nothing here", -32601),
        Kind(405, "method-not-allowed", "This cannot be done here", -32601),
        Kind(408, "request-timeout", "The request came too slowly", -32600),
        Kind(409, "unknown-outcome", "Nobody knows whether this was carried out", -32011),
        Kind(413, "too-large", "The request is too large", -32012),
        Kind(415, "unsupported-media-type", "The body is not JSON", -32600),
        Kind(421, "wrong-host", "This server does not answer to that name", -32013),
        Kind(422, "key-reused", "The idempotency key belongs to another request", -32014),
        Kind(429, "too-many", "A limit is reached", -32005),
        Kind(431, "header-too-large", "The header is too large", -32600),
        Kind(503, "unavailable", "The server takes no work now", -32006),
    )
}

KINDS: dict[type[Exception], Kind] = {
    errors.SessionNotFound: Kind(404, "not-found", "There is nothing here", -32001),
    errors.SessionEnded: Kind(409, "session-ended", "The session has ended", -32002),
    errors.SessionRunning: Kind(409, "session-running", "The session is still running", -32017),
    errors.AlreadyAnswered: Kind(409, "already-answered", "The question is no longer open", -32003),
    errors.EventsRemoved: Kind(410, "events-removed", "Some events are no longer kept", -32018),
    errors.NotAllowed: Kind(403, "not-allowed", "That is not allowed", -32004),
    errors.BadRequest: Kind(400, "bad-request", "The request makes no sense", -32602),
    errors.TooMany: Kind(429, "too-many", "A limit is reached", -32005),
    errors.StoreError: Kind(503, "log-broken", "The log cannot be used", -32006),
    errors.NotSupported: Kind(400, "not-supported", "The agent cannot do that", -32007),
    errors.PolicyError: Kind(503, "policy-broken", "The policy file is wrong", -32008),
    errors.LaunchError: Kind(503, "agent-unavailable", "The agent could not be started", -32009),
    errors.LocalProtocolError: Kind(400, "bad-request", "The request makes no sense", -32602),
    errors.MessageTooLarge: REFUSALS["too-large"],
    errors.TransportError: Kind(502, "agent-lost", "The connection to the agent broke", -32015),
    errors.ProtocolError: Kind(502, "agent-lost", "The connection to the agent broke", -32015),
    errors.AgentRefused: Kind(502, "agent-refused", "The agent refused", -32016),
}
"""A subclass counts as its nearest entry."""

UNEXPECTED = Kind(500, "fault", "Stagedoor made a mistake", -32603)
_SAID = "something went wrong in Stagedoor itself; the server's log says what"


def kind_of(fault: BaseException) -> Kind:
    if isinstance(fault, Refused):
        return fault.kind
    return next((KINDS[cls] for cls in type(fault).__mro__ if cls in KINDS), UNEXPECTED)


def problem(fault: BaseException, *, instance: str = "") -> Problem:
    """What a client is told. Of our own mistakes it learns nothing but that there was one."""
    kind = kind_of(fault)
    return Problem(
        type=_URN + kind.slug,
        title=kind.title,
        status=kind.status,
        detail=_SAID if kind is UNEXPECTED else str(fault) or kind.title,
        instance=instance,
        field=fault.field if isinstance(fault, InvalidField) else "",
    )


def problem_response(fault: BaseException, *, instance: str = "") -> Response:
    said = problem(_ours(fault), instance=instance)
    headers = {"cache-control": "no-store"}
    if isinstance(fault, Refused):
        headers |= fault.headers
    elif isinstance(fault, HTTPException) and fault.headers:
        headers |= {name.lower(): value for name, value in fault.headers.items()}
    if said.status == 401:
        headers.setdefault("www-authenticate", 'Bearer realm="stagedoor"')
    elif said.status in (429, 503):
        headers.setdefault("retry-after", "5")
    return Response(msgspec.json.encode(said), said.status, headers, MEDIA_TYPE)


def rpc_error(fault: BaseException) -> tuple[int, str, Problem]:
    """JSON-RPC's ``code``, ``message`` and ``data``."""
    said = problem(fault)
    return kind_of(fault).code, said.detail, said


def _ours(fault: BaseException) -> BaseException:
    """What Starlette itself raises (no such path, a method a path does not take) in our words."""
    if not isinstance(fault, HTTPException):
        return fault
    slug = next((kind.slug for kind in REFUSALS.values() if kind.status == fault.status_code), "bad-request")
    return Refused(slug, fault.detail or REFUSALS[slug].title)
