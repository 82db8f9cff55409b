"""JSON-RPC 2.0 messages, and the peer state both sides of a conversation need. Framing belongs to the transport."""

from __future__ import annotations

import json
from typing import Any, TypeAlias

import msgspec

from .shapes import UnknownMessage, repaired

Id: TypeAlias = int | str | None

PARSE_ERROR, INVALID_REQUEST, METHOD_NOT_FOUND, INVALID_PARAMS, INTERNAL_ERROR = -32700, -32600, -32601, -32602, -32603


class Fault(msgspec.Struct, frozen=True):
    """The ``error`` member of a response."""

    code: int
    message: str = ""
    data: msgspec.Raw = msgspec.Raw(b"null")  # msgspec does not know a Raw that may also be None


class Request(msgspec.Struct, frozen=True):
    """The peer asks and waits for an answer under ``id`` (ids of the two directions are separate spaces)."""

    id: Id
    method: str
    params: msgspec.Raw


class Notification(msgspec.Struct, frozen=True):
    method: str
    params: msgspec.Raw


class Response(msgspec.Struct, frozen=True):
    id: Id
    result: msgspec.Raw | None = None
    fault: Fault | None = None


Message: TypeAlias = Request | Notification | Response


class _Wire(msgspec.Struct, frozen=True):
    id: Id | msgspec.UnsetType = msgspec.UNSET
    method: str | msgspec.UnsetType = msgspec.UNSET
    params: msgspec.Raw = msgspec.Raw(b"{}")
    result: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    error: Fault | msgspec.UnsetType | None = msgspec.UNSET


_DECODER = msgspec.json.Decoder(_Wire)
_MEMBERS = msgspec.json.Decoder(dict[str, Any])
_BATCH = msgspec.json.Decoder(list[msgspec.Raw])


def parse(message: bytes) -> Message | UnknownMessage:
    """One JSON-RPC message, with or without the ``jsonrpc`` member. Never raises on content."""
    try:
        return _classified(message, _DECODER.decode(message))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        pass
    try:
        members = _MEMBERS.decode(repaired(message))
        return _classified(message, _DECODER.decode(msgspec.json.encode(_mended(members))))
    except (msgspec.DecodeError, ValueError, RecursionError) as error:
        return UnknownMessage(message, str(error) or type(error).__name__)


def messages_in(line: bytes) -> list[bytes]:
    """The messages of a line: one, or those of a batch. A list that holds none is itself one, that nobody can read."""
    if line.lstrip()[:1] != b"[":
        return [line]
    try:
        return [bytes(one) for one in _BATCH.decode(line)] or [line]
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return [line]


def _mended(members: dict[str, Any]) -> dict[str, Any]:
    """Whoever waits for an answer must learn that it came, whatever its error looks like, and an id may be ``5.0``."""
    if isinstance(number := members.get("id"), float) and number.is_integer():
        members["id"] = int(number)
    match members.get("error"):
        case None:
            pass
        case {"code": float() | int() | str() as code, **rest} if str(code).removesuffix(".0").lstrip("-").isdigit():
            members["error"] = {**rest, "code": int(float(code)), "message": _text(rest.get("message", ""))}
        case {**rest}:
            members["error"] = {"code": INTERNAL_ERROR, "message": _text(rest.get("message", rest)), "data": rest}
        case other:
            members["error"] = {"code": INTERNAL_ERROR, "message": _text(other)}
    return members


def _text(value: object) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def _classified(raw: bytes, wire: _Wire) -> Message | UnknownMessage:
    if isinstance(wire.method, str):
        if isinstance(wire.id, msgspec.UnsetType):
            return Notification(wire.method, wire.params)
        return Request(wire.id, wire.method, wire.params)
    if isinstance(wire.id, msgspec.UnsetType):
        return UnknownMessage(raw, "neither a method nor an id")
    if isinstance(wire.error, Fault):
        return Response(wire.id, fault=wire.error)
    if isinstance(wire.result, msgspec.UnsetType):
        if wire.id is None:
            return UnknownMessage(raw, "neither a method nor an id")
        return Response(wire.id, fault=Fault(INTERNAL_ERROR, "the answer has neither a result nor an error"))
    return Response(wire.id, result=wire.result)


class Peer:
    """The outgoing half of a conversation: numbers our requests, remembers which method each answer belongs to.

    ``version`` is false for peers that leave the ``jsonrpc`` member out.
    """

    def __init__(self, *, version: bool = True) -> None:
        self._head: dict[str, Any] = {"jsonrpc": "2.0"} if version else {}
        self._next = 0
        self._open: dict[Id, str] = {}
        self._outgoing: list[bytes] = []

    def call(self, method: str, params: object = None) -> int:
        """Queue a request and return its id."""
        number, self._next = self._next, self._next + 1
        self._open[number] = method
        self._write({"id": number, "method": method, "params": {} if params is None else params})
        return number

    def notify(self, method: str, params: object = None) -> None:
        self._write({"method": method} if params is None else {"method": method, "params": params})

    def answer(self, request_id: Id, result: object) -> None:
        self._write({"id": request_id, "result": result})

    def refuse(self, request_id: Id, code: int, message: str, details: object = None) -> None:
        more = {} if details is None else {"data": details}
        self._write({"id": request_id, "error": {"code": code, "message": message, **more}})

    def settle(self, response: Response) -> str | None:
        """The method this response answers, or ``None`` when nothing of ours is waiting under its id."""
        return self._open.pop(response.id, None)

    def abandoned(self) -> dict[Id, str]:
        """The stream ended: the calls that will never be answered. Clears them."""
        calls, self._open = self._open, {}
        return calls

    def outgoing(self) -> list[bytes]:
        """What must now be written; drains."""
        messages, self._outgoing = self._outgoing, []
        return messages

    def _write(self, members: dict[str, Any]) -> None:
        try:
            message = msgspec.json.encode(self._head | members)
        except UnicodeEncodeError:  # half of a surrogate pair, which JSON can escape and UTF-8 cannot hold
            message = json.dumps(msgspec.to_builtins(self._head | members), separators=(",", ":")).encode()
        self._outgoing.append(message)
