"""A message and what it is answered with. Whatever comes in, a clear error goes out; never an exception."""

from __future__ import annotations

import difflib
import logging
from collections.abc import Callable
from typing import Any, TypeVar, cast

import msgspec

from stagedoor.errors import StagedoorError
from stagedoor.wire.jsonrpc import INVALID_REQUEST, METHOD_NOT_FOUND, PARSE_ERROR
from stagedoor.wire.shapes import repaired

from ..access.auth import demand
from ..problems import InvalidField, Problem, Refused, rpc_error
from ..reading import as_type, read_json
from .methods import METHODS
from .params import Params, RunOptions
from .peer import Call, Peer

BATCH = 100
"""Calls in one batch."""
_NULL = msgspec.Raw(b"null")
_NESTED: dict[str, type[Params]] = {"options": RunOptions}
_ALIASES = {"toolUseID": "toolUseId", "sessionID": "sessionId", "agent_type": "agent", "agentType": "agent"}
_LOG = logging.getLogger("stagedoor.server.jsonrpc")
Shape = TypeVar("Shape", bound=Params)


class Reply(msgspec.Struct, frozen=True):
    """``body`` is ``None`` when there is nothing to say: notifications are not answered."""

    body: bytes | None
    afterwards: list[Callable[[], None]] = []


class _Error(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    code: int
    message: str
    data: Problem | None = None


class _Refusal(msgspec.Struct, frozen=True, kw_only=True):
    jsonrpc: str = "2.0"
    id: msgspec.Raw
    error: _Error


class _Success(msgspec.Struct, frozen=True, kw_only=True):
    jsonrpc: str = "2.0"
    id: msgspec.Raw
    result: Any


class _Wire(msgspec.Struct, frozen=True):
    """The id stays as it was written: it goes back letter by letter, be it a number no computer holds."""

    jsonrpc: Any = None
    id: msgspec.Raw = msgspec.Raw(b"")
    method: Any = None
    params: msgspec.Raw = msgspec.Raw(b"{}")
    result: msgspec.Raw = msgspec.Raw(b"")
    error: msgspec.Raw = msgspec.Raw(b"")


_ONE: msgspec.json.Decoder[_Wire] = msgspec.json.Decoder(_Wire)
_MANY: msgspec.json.Decoder[list[msgspec.Raw]] = msgspec.json.Decoder(list[msgspec.Raw])


async def reply_to(peer: Peer, message: bytes) -> Reply:
    """The answer to one message: a call, a notification or a batch of them."""
    try:
        sound = _sound(message)
    except (msgspec.DecodeError, ValueError, RecursionError) as fault:
        return Reply(_refusal(_NULL, PARSE_ERROR, f"this is not JSON: {_why(fault)}"))
    if sound.lstrip()[:1] != b"[":
        return await _reply_to_one(peer, sound)
    calls = _MANY.decode(sound)
    if not calls:
        return Reply(_refusal(_NULL, INVALID_REQUEST, "the batch is empty; put calls into it"))
    if len(calls) > BATCH:
        return Reply(_refusal(_NULL, INVALID_REQUEST, f"the batch has {len(calls)} calls; this server takes {BATCH}"))
    replies = [await _reply_to_one(peer, bytes(call)) for call in calls]
    bodies = [reply.body for reply in replies if reply.body is not None]
    afterwards = [work for reply in replies for work in reply.afterwards]
    return Reply(b"[" + b",".join(bodies) + b"]" if bodies else None, afterwards)


async def _reply_to_one(peer: Peer, message: bytes) -> Reply:
    try:
        wire = _ONE.decode(message)
    except msgspec.ValidationError:
        return Reply(_refusal(_NULL, INVALID_REQUEST, "a call is an object with jsonrpc, method, params and id"))
    told = _id(wire)
    if told is None:
        return Reply(_refusal(_NULL, INVALID_REQUEST, "an id is a string, a number or null"))
    if not isinstance(wire.method, str):
        if wire.method is None and (bytes(wire.result) or bytes(wire.error)):
            why = "this server asks its clients nothing, so there is nothing to answer"
        else:
            why = "a call names its method, a string"
        return Reply(_refusal(told or _NULL, INVALID_REQUEST, why))
    if wire.jsonrpc != "2.0":
        return Reply(_refusal(told or _NULL, INVALID_REQUEST, 'this server speaks JSON-RPC 2.0: say "jsonrpc": "2.0"'))
    call = Call(peer)
    body = await _carried_out(call, wire.method, wire.params, told or _NULL)
    return Reply(body if told else None, call.afterwards)


async def _carried_out(call: Call, name: str, params: msgspec.Raw, told: msgspec.Raw) -> bytes:
    method = METHODS.get(name)
    if method is None:
        near = difflib.get_close_matches(name, METHODS, 1)
        hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(METHODS)}"
        return _refusal(told, METHOD_NOT_FOUND, f"there is no method {name[:100]!r}; {hint}")
    try:
        demand(call.caller, method.scope)
        result = await method.call(call, _read(params, method.params))
        return msgspec.json.encode(_Success(id=told, result=result))
    except StagedoorError as fault:
        call.afterwards.clear()
        code, message, detail = rpc_error(fault)
        return _refusal(told, code, message, detail)
    except Exception as fault:
        call.afterwards.clear()
        _LOG.exception("%s failed", name)
        code, message, detail = rpc_error(fault)
        return _refusal(told, code, message, detail)


def too_large(most: int) -> bytes:
    """The answer to a message that was not read."""
    code, message, detail = rpc_error(Refused("too-large", f"a message may have {most} bytes; send less at once"))
    return _refusal(_NULL, code, message, detail)


def _sound(message: bytes) -> bytes:
    """The message as strict JSON, half an emoji of a JavaScript client mended. Raises when it is no JSON at all."""
    try:
        msgspec.json.decode(message)
        return message
    except (msgspec.DecodeError, UnicodeDecodeError):
        whole = repaired(message)
        msgspec.json.decode(whole)
        return whole


def _why(fault: BaseException) -> str:
    return "it is nested too deeply" if isinstance(fault, RecursionError) else str(fault)


def _id(wire: _Wire) -> msgspec.Raw | None:
    """As it was written; empty for a notification, ``None`` for what no id may be."""
    first = bytes(wire.id)[:1]
    return wire.id if first in b'"-0123456789n' else None


def _refusal(told: msgspec.Raw, code: int, message: str, detail: Problem | None = None) -> bytes:
    return msgspec.json.encode(_Refusal(id=told, error=_Error(code=code, message=message, data=detail)))


def _read(params: msgspec.Raw, shape: type[Shape]) -> Shape:
    given = read_json(bytes(params))
    if given is None or given == []:
        given = {}
    if isinstance(given, list):
        names = ", ".join(shape.__struct_encode_fields__)
        raise InvalidField(f"params are given by name, as an object: {names or 'this method takes none'}", field="$")
    if not isinstance(given, dict):
        raise InvalidField("params are an object", field="$")
    read: Shape = as_type(_named(cast("dict[str, Any]", given), shape), shape, kind="param")
    return read


def _named(given: dict[str, Any], shape: type[Params]) -> dict[str, Any]:
    """The same params by the names the shape has: ``session_id`` is ``sessionId`` too."""
    fields = shape.__struct_encode_fields__
    ours = dict(zip(shape.__struct_fields__, fields, strict=True))
    ours |= {alias: name for alias, name in _ALIASES.items() if name in fields}
    named: dict[str, Any] = {}
    for key, value in given.items():
        name = ours.get(key, key) if key not in fields else key
        if name in named:
            raise InvalidField(f"{name} is given twice, once as {key}", field=f"$.{name}")
        nested = _NESTED.get(name) if name in fields else None
        named[name] = _named(cast("dict[str, Any]", value), nested) if nested and isinstance(value, dict) else value
    return named
