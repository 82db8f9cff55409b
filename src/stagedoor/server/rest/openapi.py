"""OpenAPI 3.1, made from the table of operations. Public: it says what could be asked, never what is there."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

import stagedoor
from stagedoor import catalog
from stagedoor.unified.events import Event

from ..problems import KINDS, MEDIA_TYPE, REFUSALS, UNEXPECTED, Problem
from .idempotency import HEADER
from .operations import AGENT_NAMES, Operation

STREAM = "text/event-stream"
_REF = "#/components/schemas/{name}"
_ALWAYS = (400, 401, 403, 405, 408, 413, 421, 429, 431, 503)
_WITH_BODY = (415,)
_WITH_KEY = (409, 422)
_ABOUT = (
    "Sessions of coding agents: begin them, watch them, answer their questions, steer them. "
    "Every POST takes an Idempotency-Key: the same key with the same request is carried out once and answered alike. "
    "Errors are problems (RFC 9457). Live events come over WebSocket (/ws/sessions/{sessionId}), Server-Sent Events "
    "(/api/sessions/{sessionId}/stream) and long polling (/api/sessions/{sessionId}/poll)."
)
_TITLES = {kind.status: kind.title for kind in (*KINDS.values(), UNEXPECTED, *REFUSALS.values())}


def openapi(operations: Sequence[Operation]) -> dict[str, Any]:
    kinds = [one for operation in operations for one in (*operation.bodies, operation.answer) if one is not None]
    described, components = msgspec.json.schema_components([*kinds, Event, Problem], ref_template=_REF)
    schemas = dict(zip(map(id, kinds), described, strict=False))
    components["Event"] = described[-2] | {"description": "One event in the dialect `stagedoor`."}
    _sharpen(components)
    for name in ("EventPage", "Polled"):
        told = {"anyOf": [{"$ref": _REF.format(name="Event")}, {"type": "object"}]}
        components[name]["properties"]["events"]["items"] = told
    paths: dict[str, dict[str, Any]] = {}
    for operation in operations:
        paths.setdefault(operation.path, {})[operation.method.lower()] = _operation(operation, schemas)
    return {
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


def _sharpen(components: dict[str, Any]) -> None:
    """What is checked beyond the types."""
    named = {"enum": [*AGENT_NAMES]}
    components["SessionSpec"]["properties"]["agent"]["enum"] = ["", *AGENT_NAMES]
    del components["BoardWish"]["properties"]["agent"]
    components["BoardWish"]["properties"]["agentId"] |= named
    components["SessionRequest"]["properties"]["agentType"] |= {"enum": [*catalog.names()]}
    for name in ("SessionRequest", "RequestedConfig"):  # their schema knows no null
        properties = components[name]["properties"]
        components[name]["properties"] = {key: _without_null(schema) for key, schema in properties.items()}


def openapi_route(operations: Sequence[Operation]) -> Route:
    written: list[bytes] = []

    async def answer(request: Request) -> Response:
        if not written:
            written.append(msgspec.json.encode(openapi(operations)))
        return Response(written[0], media_type="application/json", headers={"cache-control": "no-cache"})

    return Route("/openapi.json", answer, methods=["GET"])


def _operation(operation: Operation, schemas: dict[int, dict[str, Any]]) -> dict[str, Any]:
    said: dict[str, Any] = {
        "operationId": operation.name,
        "summary": operation.summary,
        "description": "Takes no token." if operation.scope is None else f"Needs the scope `{operation.scope}`.",
        "tags": [operation.tag],
        "parameters": [*_in_path(operation.path), *_in_query(operation.query), *_in_header(operation)],
        "responses": _responses(operation, schemas),
    }
    bodies = [schemas[id(one)] for one in operation.bodies]
    if bodies:
        schema = bodies[0] if len(bodies) == 1 else {"anyOf": bodies}
        said["requestBody"] = {
            "required": not operation.body_optional,
            "content": {"application/json": {"schema": schema}},
        }
    if operation.scope is None:
        said["security"] = []
    return said


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
        **({"204": {"description": "There is nothing more to tell"}} if operation.media == (STREAM,) else {}),
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
    """What is not wanted is left out of a query; there is no ``null`` in it."""
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
