"""REST: a request is read into typed values, one verb is called, its answer is sent. Nothing is decided here."""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Callable, Mapping
from typing import Any

import msgspec
from msgspec.structs import replace
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route
from starlette.types import Receive, Scope, Send

from stagedoor.engine import milliseconds
from stagedoor.errors import UnknownOutcome
from stagedoor.service.service import Service
from stagedoor.service.stored import LAST

from ..access.auth import caller_of
from ..access.devices import demand
from ..problems import MEDIA_TYPE, RefusedRequest, problem, problem_response
from ..reading import as_type, read_body, read_query
from . import git, machines, notifying, permissions, rendering, server, sessions, workspaces
from .event_pages import EventPages
from .idempotency import HEADER, IdempotencyKeys, RestReply, checked_key, fingerprint
from .openapi import OTHER_DOORS, openapi_route
from .operations import Operation, RestCall

_log = logging.getLogger("stagedoor.server")

OPERATIONS: tuple[Operation, ...] = (
    *sessions.OPERATIONS,
    *permissions.OPERATIONS,
    *workspaces.OPERATIONS,
    *git.OPERATIONS,
    *server.OPERATIONS,
    *notifying.OPERATIONS,
    *machines.OPERATIONS,
    *rendering.OPERATIONS,
    *OTHER_DOORS,
)
_MAY_HOLD_SLASHES = ("questionId", "requestId")
"""An agent chooses the ids of its questions."""


def routes(service: Service) -> list[BaseRoute]:
    pages, keys = EventPages(service.events), IdempotencyKeys(service.replies, milliseconds)
    by_path: dict[str, dict[str, Operation]] = defaultdict(dict)
    for operation in OPERATIONS:
        if operation.verb is not None:
            by_path[operation.path][operation.method] = operation
    paths: list[BaseRoute] = [
        Route(_pattern(path), RestPath(service, pages, keys, operations)) for path, operations in by_path.items()
    ]
    return [*paths, openapi_route(OPERATIONS)]


def _pattern(path: str) -> str:
    for name in _MAY_HOLD_SLASHES:
        path = path.replace(f"{{{name}}}", f"{{{name}:path}}")
    return path


class RestPath:
    """Everything that can be done at one path."""

    def __init__(
        self, service: Service, pages: EventPages, keys: IdempotencyKeys, operations: Mapping[str, Operation]
    ) -> None:
        self._service = service
        self._pages = pages
        self._keys = keys
        self._operations = operations

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        try:
            response = await self._answer(request)
        except Exception as fault:
            response = _failed(fault, request)
        await response(scope, receive, send)

    async def _answer(self, request: Request) -> Response:
        method = "GET" if request.method == "HEAD" else request.method
        operation = self._operations.get(method)
        if operation is None:
            allowed = ", ".join([*self._operations, *(["HEAD"] if "GET" in self._operations else [])])
            raise RefusedRequest(
                "method-not-allowed", f"{request.method} is not allowed here; use {allowed}", headers={"allow": allowed}
            )
        caller = caller_of(request)
        if operation.scope is not None:
            demand(caller, operation.scope)
        call: RestCall[Any, Any] = RestCall(
            service=self._service,
            pages=self._pages,
            caller=caller,
            path=request.path_params,
            query=read_query(request.scope["query_string"], operation.query),
            body=None,
        )
        plain: Any = msgspec.UNSET
        if operation.bodies or method != "GET":
            limit = self._service.settings.limits.body
            plain = await read_body(request, limit=limit, optional=not operation.bodies or operation.body_optional)
        call = replace(call, body=_typed(operation, plain))
        call = replace(call, path=await self._named(call))
        reply = await self._carry_out(request, operation, call, plain)
        return _response(reply)

    async def _named(self, call: RestCall[Any, Any]) -> Mapping[str, str]:
        """A session may be named as the agent's own program names it."""
        session_id = call.path.get("sessionId", "")
        if session_id in ("", LAST) or await self._service.sessions.find(session_id) is not None:
            return call.path
        view = await self._service.stored.find(session_id, take_in=call.caller.may("run"))
        return call.path if view is None else {**call.path, "sessionId": view.id}

    async def _carry_out(
        self, request: Request, operation: Operation, call: RestCall[Any, Any], plain: Any
    ) -> RestReply:
        values = request.headers.getlist(HEADER)
        if not values or operation.method != "POST" or not operation.keyed:
            return await _verb(operation, call)
        key = f"{call.caller.device_id}:{checked_key(values)}"

        async def work() -> RestReply:
            try:
                return await _verb(operation, call)
            except UnknownOutcome as fault:  # what it made, if anything, is in the log by now
                return (None if operation.recall is None else await recall()) or _fault_reply(fault, request)
            except Exception as fault:
                return _fault_reply(fault, request)

        async def recall() -> RestReply | None:
            earlier = await operation.recall(call) if operation.recall is not None else None
            return None if earlier is None else _reply(operation, earlier)

        path = request.url.path.encode()
        query: bytes = request.scope["query_string"]
        return await self._keys.carry_out(
            key,
            fingerprint(b"POST", path, query, _sorted(plain)),
            work,
            None if operation.recall is None else recall,
        )


def _sorted(plain: Any) -> bytes:
    return b"" if plain is msgspec.UNSET else msgspec.json.encode(plain, order="sorted")


def _typed(operation: Operation, plain: Any) -> Any:
    if not operation.bodies:
        if plain is not msgspec.UNSET and plain != {}:
            raise RefusedRequest("bad-request", "this request has no body; leave it out")
        return None
    if plain is msgspec.UNSET:
        plain = {}
    read: Callable[[Any], Any] | None = operation.read
    return as_type(plain, operation.bodies[0]) if read is None else read(plain)


async def _verb(operation: Operation, call: RestCall[Any, Any]) -> RestReply:
    assert operation.verb is not None
    return _reply(operation, await operation.verb(call))


def _reply(operation: Operation, answer: Any) -> RestReply:
    return RestReply(operation.status, b"" if operation.answer is None else msgspec.json.encode(answer))


def _fault_reply(fault: Exception, request: Request) -> RestReply:
    body = problem(fault, instance=request.url.path)
    if body.status == 500:
        _log.error("%s %s failed", request.method, request.url.path, exc_info=fault)
    return RestReply(body.status, msgspec.json.encode(body))


def _failed(fault: Exception, request: Request) -> Response:
    response = problem_response(fault, instance=request.url.path)
    if response.status_code == 500:
        _log.error("%s %s failed", request.method, request.url.path, exc_info=fault)
    return response


def _response(reply: RestReply) -> Response:
    headers = {"cache-control": "no-store"}
    if reply.replayed:
        headers["idempotent-replayed"] = "true"
    if reply.status == 204:
        return Response(status_code=204, headers=headers)
    media = "application/json" if reply.status < 400 else MEDIA_TYPE
    return Response(reply.body, reply.status, headers, media)
