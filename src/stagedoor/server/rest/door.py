"""REST: a request is read into typed values, one verb is called, its answer is written. Nothing is decided here."""

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
from stagedoor.service.service import Service

from ..access.auth import caller_of, demand
from ..docs_page import docs_routes
from ..problems import MEDIA_TYPE, Refused, problem, problem_response
from ..reading import as_type, read_body, read_query
from . import described
from . import page as rest_page
from . import permissions as rest_permissions
from . import server as rest_surroundings
from . import sessions as rest_sessions
from .event_pages import Pages
from .idempotency import HEADER, Once, Reply, checked_key, fingerprint
from .openapi import openapi_route
from .operations import Call, Operation

_log = logging.getLogger("stagedoor.server")

OPERATIONS: tuple[Operation, ...] = (
    *rest_sessions.OPERATIONS,
    *rest_permissions.OPERATIONS,
    *rest_surroundings.OPERATIONS,
    *rest_page.OPERATIONS,
    *described.OPERATIONS,
)
_MAY_HOLD_SLASHES = ("questionId", "requestId")
"""An agent chooses the ids of its questions."""


def routes(service: Service) -> list[BaseRoute]:
    pages, once = Pages(service.events), Once(service.replies, milliseconds)
    by_path: dict[str, dict[str, Operation]] = defaultdict(dict)
    for operation in OPERATIONS:
        if operation.verb is not None:
            by_path[operation.path][operation.method] = operation
    found: list[BaseRoute] = [
        Route(_pattern(path), Path(service, pages, once, operations)) for path, operations in by_path.items()
    ]
    return [*found, openapi_route(OPERATIONS), *docs_routes()]


def _pattern(path: str) -> str:
    for name in _MAY_HOLD_SLASHES:
        path = path.replace(f"{{{name}}}", f"{{{name}:path}}")
    return path


class Path:
    """Everything that can be done at one path."""

    def __init__(self, service: Service, pages: Pages, once: Once, operations: Mapping[str, Operation]) -> None:
        self._service = service
        self._pages = pages
        self._once = once
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
            said = f"{request.method} is not possible here; {allowed} is"
            raise Refused("method-not-allowed", said, headers={"allow": allowed})
        caller = caller_of(request)
        if operation.scope is not None:
            demand(caller, operation.scope)
        call: Call[Any, Any] = Call(
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
            plain = await read_body(request, limit=limit, optional=not operation.bodies)
        call = replace(call, body=_typed(operation, plain))
        reply = await self._carry_out(request, operation, call, plain)
        return _response(reply)

    async def _carry_out(self, request: Request, operation: Operation, call: Call[Any, Any], plain: Any) -> Reply:
        given = request.headers.getlist(HEADER)
        if not given or operation.method != "POST" or not operation.keyed:
            return await _verb(operation, call)
        key = f"{call.caller.device_id}:{checked_key(given)}"

        async def work() -> Reply:
            try:
                return await _verb(operation, call)
            except Exception as fault:
                return _told(fault, request)

        async def recall() -> Reply | None:
            found = await operation.recall(call) if operation.recall is not None else None
            return None if found is None else _reply(operation, found)

        path = request.url.path.encode()
        query: bytes = request.scope["query_string"]
        return await self._once.carry_out(
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
            raise Refused("bad-request", "this takes no body; leave it out")
        return None
    read: Callable[[Any], Any] | None = operation.read
    return as_type(plain, operation.bodies[0]) if read is None else read(plain)


async def _verb(operation: Operation, call: Call[Any, Any]) -> Reply:
    assert operation.verb is not None
    return _reply(operation, await operation.verb(call))


def _reply(operation: Operation, answer: Any) -> Reply:
    return Reply(operation.status, b"" if operation.answer is None else msgspec.json.encode(answer))


def _told(fault: Exception, request: Request) -> Reply:
    said = problem(fault, instance=request.url.path)
    if said.status == 500:
        _log.error("%s %s failed", request.method, request.url.path, exc_info=fault)
    return Reply(said.status, msgspec.json.encode(said))


def _failed(fault: Exception, request: Request) -> Response:
    response = problem_response(fault, instance=request.url.path)
    if response.status_code == 500:
        _log.error("%s %s failed", request.method, request.url.path, exc_info=fault)
    return response


def _response(reply: Reply) -> Response:
    headers = {"cache-control": "no-store"}
    if reply.replayed:
        headers["idempotent-replayed"] = "true"
    if reply.status == 204:
        return Response(status_code=204, headers=headers)
    media = "application/json" if reply.status < 400 else MEDIA_TYPE
    return Response(reply.body, reply.status, headers, media)
