"""The agent's side of the Agent Client Protocol: requests in, answers and notifications out. It knows no script."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeAlias

import msgspec

from stagedoor.transports.tasks import TaskOwner
from stagedoor.wire.jsonrpc import (
    INTERNAL_ERROR,
    INVALID_PARAMS,
    METHOD_NOT_FOUND,
    Id,
    Notification,
    Peer,
    Request,
    Response,
    parse,
)
from stagedoor.wire.shapes import UnknownMessage, repaired

Method: TypeAlias = tuple[type[Any], Callable[[Any], Awaitable[dict[str, Any]]]]
"""The shape of a method's parameters, and what carries it out."""


class MethodRefused(Exception):
    """The client's request ends with this JSON-RPC error."""

    def __init__(self, code: int, message: str, details: dict[str, Any] | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.details = details


class ClientRefused(Exception):
    """The client answered a request of ours with an error."""


# ------------------------------------------------------------------------------------------------- parameters


class InitializeParams(msgspec.Struct, frozen=True, rename="camel"):
    protocol_version: int
    client_capabilities: dict[str, Any] | None = None


class McpVariable(msgspec.Struct, frozen=True):
    name: str
    value: str


class McpServerParams(msgspec.Struct, frozen=True):
    """A server as ``session/new`` describes it. One without a command is not started by us."""

    name: str
    command: str = ""
    args: list[str] = []
    env: list[McpVariable] = []


class OpenSessionParams(msgspec.Struct, frozen=True, rename="camel"):
    """``session/new``, ``load``, ``resume`` and ``fork``."""

    cwd: str
    session_id: str = ""
    additional_directories: list[str] | None = None
    mcp_servers: list[McpServerParams] | None = None


class ListSessionsParams(msgspec.Struct, frozen=True):
    cwd: str | None = None


class SessionIdParams(msgspec.Struct, frozen=True, rename="camel"):
    session_id: str


class SetModeParams(msgspec.Struct, frozen=True, rename="camel"):
    session_id: str
    mode_id: str


class SetConfigOptionParams(msgspec.Struct, frozen=True, rename="camel"):
    session_id: str
    config_id: str
    value: Any


class PromptParams(msgspec.Struct, frozen=True, rename="camel"):
    session_id: str
    prompt: list[dict[str, Any]]

    @property
    def text(self) -> str:
        pieces: list[str] = []
        for block in self.prompt:
            match block:
                case {"type": "text", "text": str(text)} | {"type": "resource", "resource": {"text": str(text)}}:
                    pieces.append(text)
                case _:
                    pass
        return "\n".join(pieces)


# ------------------------------------------------------------------------------------------------- the link


class AgentLink:
    """``receive`` takes whole messages and never waits: every request is carried out in its own task.

    ``methods`` and ``cancel`` (of the turn of a session) are set by the agent before the first message comes.
    """

    def __init__(self, write: Callable[[bytes], None]) -> None:
        self.methods: Mapping[str, Method] = {}
        self.cancel: Callable[[str], None] = lambda session_id: None
        self.client_capabilities: dict[str, Any] = {}
        self._write = write
        self._peer = Peer()
        self._tasks = TaskOwner()
        self._waiting: dict[Id, asyncio.Future[Any]] = {}

    def receive(self, message: bytes) -> None:
        match parse(message):
            case Request() as request:
                self._tasks.start(self._serve(request))
            case Notification(method="session/cancel", params=params):
                # Behind the requests that came before it: the turn it is for may not have started yet.
                asyncio.get_running_loop().call_soon(self._cancel, bytes(params))
            case Response() as response:
                self._receive_answer(response)
            case Notification() | UnknownMessage():
                pass

    def notify(self, method: str, params: object) -> None:
        self._peer.notify(method, params)
        self._flush()

    async def ask(self, method: str, params: object) -> Any:
        """Raises :class:`ClientRefused`. Cancelled, it forgets the question; a late answer is passed over."""
        number = self._peer.call(method, params)
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._waiting[number] = future
        self._flush()
        try:
            return await future
        finally:
            self._waiting.pop(number, None)

    def half_a_message(self) -> None:
        """What a connection that breaks leaves behind."""
        self._write(b'{"jsonrpc":"2.0","method":"session/upd')

    async def _serve(self, request: Request) -> None:
        if request.method not in self.methods:
            self._refuse(request.id, METHOD_NOT_FOUND, f"Method not found: {request.method}")
            return
        shape, method = self.methods[request.method]
        try:
            self._peer.answer(request.id, await method(_params(bytes(request.params), shape)))
            self._flush()
        except (msgspec.MsgspecError, UnicodeDecodeError, ValueError) as error:
            self._refuse(request.id, INVALID_PARAMS, f"Invalid params: {error}")
        except MethodRefused as refused:
            self._refuse(request.id, refused.code, refused.message, refused.details)
        except Exception as error:  # whatever goes wrong here, the client is not left waiting
            self._refuse(request.id, INTERNAL_ERROR, f"{type(error).__name__}: {error}")

    def _refuse(self, request_id: Id, code: int, message: str, details: object = None) -> None:
        self._peer.refuse(request_id, code, message, details)
        self._flush()

    def _receive_answer(self, response: Response) -> None:
        self._peer.settle(response)
        future = self._waiting.get(response.id)
        if future is None or future.done():
            return
        if response.fault is not None:
            future.set_exception(ClientRefused(response.fault.message))
        else:
            future.set_result(msgspec.json.decode(bytes(response.result or b"null")))

    def _cancel(self, params: bytes) -> None:
        try:
            self.cancel(msgspec.json.decode(params, type=SessionIdParams).session_id)
        except msgspec.MsgspecError:
            return

    def _flush(self) -> None:
        for message in self._peer.outgoing():
            self._write(message + b"\n")


def _params(raw: bytes, shape: type[Any]) -> Any:
    try:
        return msgspec.json.decode(raw, type=shape)
    except (UnicodeDecodeError, msgspec.DecodeError) as error:
        if isinstance(error, msgspec.ValidationError):
            raise
        return msgspec.json.decode(repaired(raw), type=shape)
