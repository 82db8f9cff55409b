"""Requests in, answers and notifications out, whatever carries them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeAlias

import msgspec

from stagedoor.transports.tasks import TaskOwner
from stagedoor.wire.jsonrpc import (
    INTERNAL_ERROR,
    INVALID_PARAMS,
    INVALID_REQUEST,
    METHOD_NOT_FOUND,
    PARSE_ERROR,
    Id,
    Notification,
    Peer,
    Request,
    Response,
    parse,
)
from stagedoor.wire.shapes import UnknownMessage, repaired

from .params import SessionIdParams

REQUEST_CANCELLED = -32800
NOT_FOUND = -32002
AUTH_REQUIRED = -32000
MOST_REQUESTS = 256
"""Requests of the client that are carried out at once."""


class Answered(msgspec.Struct, frozen=True):
    """The result of a method, and what is done when it is on its way to the client."""

    result: dict[str, Any]
    afterwards: Callable[[], None]


Method: TypeAlias = tuple[type[Any], Callable[[Any], Awaitable[dict[str, Any] | Answered]]]
"""The shape of a method's parameters, and what carries it out."""


class MethodRefused(Exception):
    """The client's request ends with this JSON-RPC error."""

    def __init__(self, code: int, message: str, details: object = None) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.details = details


class ClientRefused(Exception):
    """The client answered a request of ours with an error."""

    def __init__(self, message: str, code: int = INTERNAL_ERROR) -> None:
        super().__init__(message)
        self.code = code


class AgentLink:
    """``receive`` takes whole messages and never waits: every request is carried out in its own task.

    ``methods`` and ``cancel`` (of the turn of a session) are set by the agent before the first message comes.
    """

    def __init__(self, write: Callable[[bytes], None]) -> None:
        self.methods: Mapping[str, Method] = {}
        self.cancel: Callable[[str], None] = lambda session_id: None
        self.client_capabilities: dict[str, Any] = {}
        self._write: Callable[[bytes], None] = write
        self._peer = Peer()
        self._tasks = TaskOwner()
        self._waiting: dict[Id, asyncio.Future[Any]] = {}

    def receive(self, message: bytes) -> None:
        match parse(message):
            case Request() as request:
                self._start(request)
            case Notification(method="session/cancel", params=params):
                # Behind the requests that came before it: the turn it is for may not have started yet.
                asyncio.get_running_loop().call_soon(self._cancel_turn, bytes(params))
            case Notification(method="$/cancel_request", params=params):
                asyncio.get_running_loop().call_soon(self._cancel_request, bytes(params))
            case Response() as response:
                self._receive_answer(response)
            case Notification():
                pass
            case UnknownMessage():
                self.refuse_message(message)

    def refuse_message(self, message: bytes) -> None:
        """Answer something that is no message of JSON-RPC. A blank line is not answered."""
        if not message.strip():
            return
        try:
            msgspec.json.decode(repaired(message))
        except (msgspec.DecodeError, ValueError, RecursionError):
            self.refuse(None, PARSE_ERROR, "this is not JSON: send one JSON-RPC message per line")
            return
        why = "send one object with jsonrpc, method, params and id; batches are not part of the protocol"
        self.refuse(None, INVALID_REQUEST, f"this is not a message of JSON-RPC 2.0: {why}")

    def notify(self, method: str, params: object) -> None:
        self._peer.notify(method, params)
        self._flush()

    async def ask(self, method: str, params: object) -> Any:
        """Raises :class:`ClientRefused`. Cancelled, it withdraws the question; a late answer is passed over."""
        number = self._peer.call(method, params)
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._waiting[number] = future
        self._flush()
        try:
            return await future
        except asyncio.CancelledError:
            self.notify("$/cancel_request", {"requestId": number})
            raise
        finally:
            self._waiting.pop(number, None)

    def refuse(self, request_id: Id, code: int, message: str, details: object = None) -> None:
        self._peer.refuse(request_id, code, message, details)
        self._flush()

    def half_a_message(self) -> None:
        """What a connection that breaks leaves behind."""
        self._write(b'{"jsonrpc":"2.0","method":"session/upd')

    async def close(self) -> None:
        """The client has left: nothing is answered any more, and nothing of it runs on."""
        self._write = _drop
        await self._tasks.close()

    def _start(self, request: Request) -> None:
        if request.method not in self.methods:
            self.refuse(request.id, METHOD_NOT_FOUND, f"Method not found: {request.method}")
        elif request.id in self._tasks:
            self.refuse(request.id, INVALID_REQUEST, f"a request with the id {request.id!r} is running already")
        elif len(self._tasks) >= MOST_REQUESTS:
            self.refuse(
                request.id, INVALID_REQUEST, f"{MOST_REQUESTS} requests are running; wait until some are answered"
            )
        else:
            self._tasks.start(self._serve(request), key=request.id)

    async def _serve(self, request: Request) -> None:
        shape, method = self.methods[request.method]
        try:
            params = _params(bytes(request.params), shape)
        except (msgspec.MsgspecError, ValueError) as error:
            self.refuse(request.id, INVALID_PARAMS, f"Invalid params: {error}")
            return
        try:
            answer = await method(params)
            afterwards = answer.afterwards if isinstance(answer, Answered) else None
            self._peer.answer(request.id, answer.result if isinstance(answer, Answered) else answer)
            self._flush()
            if afterwards is not None:
                afterwards()
        except asyncio.CancelledError:
            self.refuse(request.id, REQUEST_CANCELLED, "the request was cancelled")
            raise
        except MethodRefused as refused:
            self.refuse(request.id, refused.code, refused.message, refused.details)
        except Exception as error:  # whatever goes wrong here, the client is not left waiting
            self.refuse(request.id, INTERNAL_ERROR, f"{type(error).__name__}: {error}")

    def _receive_answer(self, response: Response) -> None:
        self._peer.settle(response)
        future = self._waiting.get(response.id)
        if future is None or future.done():
            return
        if response.fault is not None:
            future.set_exception(ClientRefused(response.fault.message, response.fault.code))
        else:
            future.set_result(msgspec.json.decode(bytes(response.result or b"null")))

    def _cancel_turn(self, params: bytes) -> None:
        try:
            self.cancel(msgspec.json.decode(params, type=SessionIdParams).session_id)
        except msgspec.MsgspecError:
            return

    def _cancel_request(self, params: bytes) -> None:
        try:
            withdrawn = msgspec.json.decode(params, type=_WithdrawnRequest).request_id
        except msgspec.MsgspecError:
            return
        self._tasks.cancel(withdrawn)

    def _flush(self) -> None:
        for message in self._peer.outgoing():
            self._write(message + b"\n")


def _drop(message: bytes) -> None:
    """What is said to a client that has left."""


class _WithdrawnRequest(msgspec.Struct, frozen=True, rename="camel"):
    request_id: int | str


def _params(raw: bytes, shape: type[Any]) -> Any:
    try:
        return msgspec.json.decode(raw, type=shape)
    except (UnicodeDecodeError, msgspec.DecodeError) as error:
        if isinstance(error, msgspec.ValidationError):
            raise
        return msgspec.json.decode(repaired(raw), type=shape)
