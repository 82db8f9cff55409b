"""OpenAPI 3.1, generated from the table of operations. Public: it shows nothing that is stored."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any, cast

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

import stagedoor
from stagedoor import catalog
from stagedoor.dialects.session_request import RequestedConfig, SessionRequest
from stagedoor.service.views import SessionSpec
from stagedoor.unified.events import Event

from ..access.pairing import DeviceBody, DeviceList, DeviceView, InviteBody, Me, PairBody, Paired, Pairing
from ..problems import KINDS, MEDIA_TYPE, REFUSALS, UNEXPECTED, Problem
from ..streams.exporting import ExportQuery
from ..streams.polling import PollAnswer, PollQuery
from ..streams.sse import SseQuery
from .create_bodies import BoardBody
from .event_pages import EventPage
from .idempotency import HEADER
from .operations import ANY_AGENT, Operation

STREAM = "text/event-stream"
_REF = "#/components/schemas/{name}"
_ALWAYS = (400, 401, 403, 405, 408, 413, 421, 429, 431, 503)
_WITH_BODY = (415,)
_WITH_KEY = (409, 422)
_ABOUT = (
    "Sessions of coding agents: start them, watch them, answer their questions, steer them. "
    "Every POST takes an Idempotency-Key: the same key with the same request runs once and gets the same answer. "
    "Errors are problems (RFC 9457). Live events come over WebSocket (/ws/sessions/{sessionId}), Server-Sent Events "
    "(/api/sessions/{sessionId}/stream) and long polling (/api/sessions/{sessionId}/poll)."
)
_TITLES = {kind.status: kind.title for kind in (*KINDS.values(), UNEXPECTED, *REFUSALS.values())}

OTHER_DOORS: tuple[Operation, ...] = (
    Operation(
        name="streamEvents", method="GET", path="/api/sessions/{id}/stream", tag="sessions", scope="watch",
        summary="The events of a session as they come, as server-sent events", query=SseQuery, answer=str,
        media=("text/event-stream",), faults=(404,),
    ),
    Operation(
        name="pollEvents", method="GET", path="/api/sessions/{id}/poll", tag="sessions", scope="watch",
        summary="The next events of a session, as soon as there are any", query=PollQuery, answer=PollAnswer,
        faults=(404,),
    ),
    Operation(
        name="exportSession", method="GET", path="/api/sessions/{sessionId}/export", tag="sessions", scope="watch",
        summary="A whole session as one document", query=ExportQuery, answer=str, faults=(404,),
        media=("text/markdown", "application/x-ndjson"),
    ),
    Operation(
        name="invite", method="POST", path="/api/pairing", tag="devices", scope="admin", status=201,
        summary="Create a one-time code to pair a new device", bodies=(InviteBody,), body_optional=True,
        answer=Pairing, keyed=False,
    ),
    Operation(
        name="pair", method="POST", path="/api/pair", tag="devices", scope=None, status=201,
        summary="Pair this device with a one-time code", bodies=(PairBody,), answer=Paired, keyed=False,
    ),
    Operation(
        name="listDevices", method="GET", path="/api/devices", tag="devices", scope="admin",
        summary="The paired devices", answer=DeviceList,
    ),
    Operation(
        name="changeDevice", method="PATCH", path="/api/devices/{id}", tag="devices", scope="admin",
        summary="Choose what the streams of a device speak where a request does not say", bodies=(DeviceBody,),
        answer=DeviceView, faults=(404,),
    ),
    Operation(
        name="revokeDevice", method="DELETE", path="/api/devices/{id}", tag="devices", scope="admin", status=204,
        summary="Revoke a device", faults=(404,),
    ),
    Operation(
        name="whoAmI", method="GET", path="/api/me", tag="devices", scope="watch",
        summary="The device that sends this request", answer=Me,
    ),
)  # fmt: skip
"""What other doors answer under ``/api``, for the description alone."""


def openapi(operations: Sequence[Operation]) -> Any:
    kinds = [shape for operation in operations for shape in (*operation.bodies, operation.answer) if shape is not None]
    described, components = msgspec.json.schema_components([*kinds, Event, Problem], ref_template=_REF)
    schemas = dict(zip(map(id, kinds), described, strict=False))
    components["Event"] = described[-2] | {"description": "One event in the dialect `stagedoor`."}
    _sharpen(components)
    for name in (EventPage.__name__, PollAnswer.__name__):
        event_schema = {"anyOf": [{"$ref": _REF.format(name="Event")}, {"type": "object"}]}
        components[name]["properties"]["events"]["items"] = event_schema
    paths: dict[str, dict[str, Any]] = {}
    for operation in operations:
        paths.setdefault(operation.path, {})[operation.method.lower()] = _operation(operation, schemas)
    return _naming_agents(
        {
            "openapi": "3.1.0",
            "info": {"title": "Stagedoor", "version": stagedoor.__version__, "description": _ABOUT},
            "servers": [{"url": "/"}],
            "security": [{"token": []}, {"cookie": []}],
            "tags": [{"name": tag} for tag in dict.fromkeys(operation.tag for operation in operations)],
            "paths": paths,
            "components": {
                "securitySchemes": {
                    "token": {"type": "http", "scheme": "bearer"},
                    "cookie": {"type": "apiKey", "in": "cookie", "name": "stagedoor"},
                },
                "schemas": components,
            },
        }
    )


def _sharpen(components: dict[str, Any]) -> None:
    """Add what is checked beyond the types."""
    components[SessionSpec.__name__]["properties"]["agent"]["enum"] = ["", *_agent_names()]
    del components[BoardBody.__name__]["properties"]["agent"]
    components[BoardBody.__name__]["properties"]["agentId"] |= {"enum": _agent_names()}
    components[SessionRequest.__name__]["properties"]["agentType"] |= {"enum": [*catalog.names()]}
    for name in (SessionRequest.__name__, RequestedConfig.__name__):  # their own schema has no null
        properties = components[name]["properties"]
        components[name]["properties"] = {key: _without_null(schema) for key, schema in properties.items()}


def _naming_agents(tree: Any) -> Any:
    """The document with the names where a schema says that an agent's is meant."""
    match tree:
        case {**members} if members.pop(ANY_AGENT, False):
            return members | {"enum": ["", *_agent_names()]}
        case dict():
            return {name: _naming_agents(value) for name, value in cast("dict[str, Any]", tree).items()}
        case list():
            return [_naming_agents(value) for value in cast("list[object]", tree)]
        case _:
            return tree


def _agent_names() -> list[str]:
    return [*catalog.names(), *catalog.ALIASES]


def openapi_route(operations: Sequence[Operation]) -> Route:
    written: list[bytes] = []

    async def answer(request: Request) -> Response:
        if not written:
            written.append(msgspec.json.encode(openapi(operations)))
        return Response(written[0], media_type="application/json", headers={"cache-control": "no-cache"})

    return Route("/openapi.json", answer, methods=["GET"])


def _operation(operation: Operation, schemas: dict[int, dict[str, Any]]) -> dict[str, Any]:
    described_operation: dict[str, Any] = {
        "operationId": operation.name,
        "summary": operation.summary,
        "description": "Needs no token." if operation.scope is None else f"Needs the scope `{operation.scope}`.",
        "tags": [operation.tag],
        "parameters": [*_in_path(operation.path), *_in_query(operation.query), *_in_header(operation)],
        "responses": _responses(operation, schemas),
    }
    bodies = [schemas[id(shape)] for shape in operation.bodies]
    if bodies:
        schema = bodies[0] if len(bodies) == 1 else {"anyOf": bodies}
        described_operation["requestBody"] = {
            "required": not operation.body_optional,
            "content": {"application/json": {"schema": schema}},
        }
    if operation.scope is None:
        described_operation["security"] = []
    return described_operation


def _responses(operation: Operation, schemas: dict[int, dict[str, Any]]) -> dict[str, Any]:
    success: dict[str, Any] = {"description": operation.summary}
    if operation.answer is not None:
        success["content"] = {media: {"schema": schemas[id(operation.answer)]} for media in operation.media}
    failures = {*_ALWAYS, *operation.faults}
    if operation.bodies or operation.method != "GET":
        failures |= {*_WITH_BODY}
    if operation.method == "POST" and operation.keyed:
        failures |= {*_WITH_KEY}
    problem = {MEDIA_TYPE: {"schema": {"$ref": _REF.format(name="Problem")}}}
    return {
        str(operation.status): success,
        **{str(status): {"description": _TITLES[status], "content": problem} for status in sorted(failures)},
        **({"204": {"description": "There are no more events"}} if operation.media == (STREAM,) else {}),
    }


def _in_path(path: str) -> Iterable[dict[str, Any]]:
    for name in re.findall(r"\{(\w+)\}", path):
        yield {"name": name, "in": "path", "required": True, "schema": {"type": "string", "minLength": 1}}


def _in_query(shape: Any) -> Iterable[dict[str, Any]]:
    if shape is None:
        return
    _, components = msgspec.json.schema_components([shape], ref_template=_REF)
    described = components[shape.__name__]
    for name, schema in described["properties"].items():
        yield {
            "name": name,
            "in": "query",
            "required": name in described.get("required", ()),
            "schema": _without_null(schema),
        }


def _without_null(schema: dict[str, Any]) -> dict[str, Any]:
    """A value that is not needed is left out of a query; it has no ``null``."""
    rest = {name: value for name, value in schema.items() if value is not None}
    if "anyOf" in rest:
        kinds = [kind for kind in rest.pop("anyOf") if kind != {"type": "null"}]
        return rest | (kinds[0] if len(kinds) == 1 else {"anyOf": kinds})
    if "enum" in rest:
        return rest | {"enum": [value for value in rest["enum"] if value is not None]}
    return rest


def _in_header(operation: Operation) -> Iterable[dict[str, Any]]:
    if operation.method == "POST" and operation.keyed:
        schema = {"type": "string", "minLength": 1, "maxLength": 255, "pattern": "^[!-~]+$"}
        yield {"name": HEADER, "in": "header", "required": False, "schema": schema}
