"""A message and its answer. Whatever comes in, the answer is a result or a clear error; never an exception."""

from __future__ import annotations

import difflib
import json
import logging
import math
from collections.abc import Callable
from typing import Any, TypeVar, cast

import msgspec
from msgspec.structs import replace

from stagedoor.errors import SessionNotFound, StagedoorError
from stagedoor.wire.jsonrpc import INVALID_REQUEST, METHOD_NOT_FOUND, PARSE_ERROR
from stagedoor.wire.shapes import repaired

from ..access.devices import demand
from ..problems import InvalidField, Problem, RefusedRequest, rpc_error
from ..reading import as_type, read_json
from .client import RpcCall, RpcClient
from .methods import METHODS, RpcMethod
from .params import RpcParams, RpcRunOptions

MAX_BATCH = 100
"""Calls in one batch."""
_NULL = msgspec.Raw(b"null")
_NESTED: dict[str, type[RpcParams]] = {"options": RpcRunOptions}
_ALIASES = {"toolUseID": "toolUseId", "sessionID": "sessionId", "agent_type": "agent", "agentType": "agent"}
_LOG = logging.getLogger("stagedoor.server.jsonrpc")
Shape = TypeVar("Shape", bound=RpcParams)


class RpcReply(msgspec.Struct, frozen=True):
    """``body`` is ``None`` when there is no answer: notifications get none."""

    body: bytes | None
    afterwards: list[Callable[[], None]] = []


class _ErrorObject(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    code: int
    message: str
    data: Problem | None = None


class _ErrorReply(msgspec.Struct, frozen=True, kw_only=True):
    jsonrpc: str = "2.0"
    id: msgspec.Raw
    error: _ErrorObject


class _ResultReply(msgspec.Struct, frozen=True, kw_only=True):
    jsonrpc: str = "2.0"
    id: msgspec.Raw
    result: Any


class _IncomingCall(msgspec.Struct, frozen=True):
    """The id stays as it was written: it goes back byte by byte, even a number too large to compute with."""

    jsonrpc: Any = None
    id: msgspec.Raw = msgspec.Raw(b"")
    method: Any = None
    params: msgspec.Raw = msgspec.Raw(b"{}")
    result: msgspec.Raw = msgspec.Raw(b"")
    error: msgspec.Raw = msgspec.Raw(b"")


_CALL: msgspec.json.Decoder[_IncomingCall] = msgspec.json.Decoder(_IncomingCall)
_BATCH: msgspec.json.Decoder[list[msgspec.Raw]] = msgspec.json.Decoder(list[msgspec.Raw])


async def reply_to(client: RpcClient, message: bytes) -> RpcReply:
    """The answer to one message: a call, a notification or a batch of them."""
    try:
        strict = _strict(message)
    except (msgspec.DecodeError, ValueError, RecursionError) as fault:
        return RpcReply(_error_reply(_NULL, PARSE_ERROR, f"this is not JSON: {_why(fault)}"))
    if strict.lstrip()[:1] != b"[":
        return await _reply_to_one(client, strict)
    calls = _BATCH.decode(strict)
    if not calls:
        return RpcReply(_error_reply(_NULL, INVALID_REQUEST, "the batch is empty; put calls into it"))
    if len(calls) > MAX_BATCH:
        return RpcReply(
            _error_reply(_NULL, INVALID_REQUEST, f"the batch has {len(calls)} calls; the limit is {MAX_BATCH}")
        )
    replies = [await _reply_to_one(client, bytes(call)) for call in calls]
    bodies = [reply.body for reply in replies if reply.body is not None]
    afterwards = [work for reply in replies for work in reply.afterwards]
    return RpcReply(b"[" + b",".join(bodies) + b"]" if bodies else None, afterwards)


async def _reply_to_one(client: RpcClient, message: bytes) -> RpcReply:
    try:
        incoming = _CALL.decode(message)
    except msgspec.ValidationError:
        return RpcReply(
            _error_reply(_NULL, INVALID_REQUEST, "a call must be an object with jsonrpc, method, params and id")
        )
    call_id = _id(incoming)
    if call_id is None:
        return RpcReply(_error_reply(_NULL, INVALID_REQUEST, "the id must be a string, a number or null"))
    if not isinstance(incoming.method, str):
        if incoming.method is None and (bytes(incoming.result) or bytes(incoming.error)):
            why = "this server sends no calls to its clients, so there is nothing to answer"
        else:
            why = "the method must be a string"
        return RpcReply(_error_reply(call_id or _NULL, INVALID_REQUEST, why))
    if incoming.jsonrpc != "2.0":
        return RpcReply(
            _error_reply(call_id or _NULL, INVALID_REQUEST, 'this is a JSON-RPC 2.0 server: send "jsonrpc": "2.0"')
        )
    call = RpcCall(client)
    body = await _carry_out(call, incoming.method, incoming.params, call_id or _NULL)
    return RpcReply(body if call_id else None, call.afterwards)


async def _carry_out(call: RpcCall, name: str, params: msgspec.Raw, call_id: msgspec.Raw) -> bytes:
    method = METHODS.get(name)
    if method is None:
        near = difflib.get_close_matches(name, METHODS, 1)
        hint = f": did you mean {near[0]!r}?" if near else f"; use one of {', '.join(METHODS)}"
        return _error_reply(call_id, METHOD_NOT_FOUND, f"unknown method {name[:100]!r}{hint}")
    try:
        demand(call.caller, method.scope)
        result = await _result(method, call, _read(params, method.params))
        return msgspec.json.encode(_ResultReply(id=call_id, result=result))
    except StagedoorError as fault:
        call.afterwards.clear()
        code, message, detail = rpc_error(fault)
        return _error_reply(call_id, code, message, detail)
    except Exception as fault:
        call.afterwards.clear()
        _LOG.exception("%s failed", name)
        code, message, detail = rpc_error(fault)
        return _error_reply(call_id, code, message, detail)


async def _result(method: RpcMethod, call: RpcCall, params: RpcParams) -> Any:
    """A session may be named as the agent's own program names it."""
    try:
        return await method.call(call, params)
    except SessionNotFound:
        named: str = getattr(params, "session_id", "")
        view = await call.service.stored.find(named, take_in=call.caller.may("run")) if named else None
        if view is None:
            raise
        call.afterwards.clear()
        return await method.call(call, replace(params, session_id=view.id))


def too_large(max_bytes: int) -> bytes:
    """The answer to a message that was not read."""
    code, message, detail = rpc_error(
        RefusedRequest("too-large", f"the message is larger than {max_bytes:,} bytes, the limit of this server")
    )
    return _error_reply(_NULL, code, message, detail)


def _strict(message: bytes) -> bytes:
    """The message as strict JSON, half an emoji of a JavaScript client repaired. Raises when it is not JSON at all."""
    try:
        msgspec.json.decode(message)
        return message
    except (msgspec.DecodeError, UnicodeDecodeError):
        text = message.decode("utf-8-sig", "replace")
        json.loads(text, strict=False, parse_constant=_finite, parse_float=_finite)  # ``repaired`` forgives these
        repaired_message = repaired(message)
        msgspec.json.decode(repaired_message)
        return repaired_message


def _finite(number: str) -> float:
    if not math.isfinite(float(number)):
        raise ValueError(f"{number} is no number of JSON")
    return float(number)


def _why(fault: BaseException) -> str:
    return "it is nested too deeply" if isinstance(fault, RecursionError) else str(fault)


def _id(incoming: _IncomingCall) -> msgspec.Raw | None:
    """As it was written; empty for a notification, ``None`` for an id that is not valid."""
    first = bytes(incoming.id)[:1]
    return incoming.id if first in b'"-0123456789n' else None


def _error_reply(call_id: msgspec.Raw, code: int, message: str, detail: Problem | None = None) -> bytes:
    return msgspec.json.encode(_ErrorReply(id=call_id, error=_ErrorObject(code=code, message=message, data=detail)))


def _read(params: msgspec.Raw, shape: type[Shape]) -> Shape:
    raw = read_json(bytes(params))
    if raw is None or raw == []:
        raw = {}
    if isinstance(raw, list):
        names = ", ".join(shape.__struct_encode_fields__)
        raise InvalidField(f"send params by name, as an object: {names or 'this method has none'}", field="$")
    if not isinstance(raw, dict):
        raise InvalidField("params must be an object", field="$")
    params_: Shape = as_type(_by_field_name(cast("dict[str, Any]", raw), shape), shape, kind="param")
    return params_


def _by_field_name(raw: dict[str, Any], shape: type[RpcParams]) -> dict[str, Any]:
    """The same params by the field names of the shape: ``session_id`` is ``sessionId`` too."""
    fields = shape.__struct_encode_fields__
    names = dict(zip(shape.__struct_fields__, fields, strict=True))
    names |= {alias: name for alias, name in _ALIASES.items() if name in fields}
    values: dict[str, Any] = {}
    for key, value in raw.items():
        name = names.get(key, key) if key not in fields else key
        if name in values:
            raise InvalidField(f"{name} was sent twice, once as {key}", field=f"$.{name}")
        nested = _NESTED.get(name) if name in fields else None
        values[name] = (
            _by_field_name(cast("dict[str, Any]", value), nested) if nested and isinstance(value, dict) else value
        )
    return values
