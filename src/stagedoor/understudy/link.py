"""The understudy's line to its client: JSON-RPC messages in and out, and the answers it waits for."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import msgspec

from stagedoor.wire.jsonrpc import Id, Peer, Response


class Refused(Exception):
    """The client answered a request of ours with an error."""


class Link:
    def __init__(self, write: Callable[[bytes], None]) -> None:
        self._write = write
        self._peer = Peer()
        self._waiting: dict[Id, asyncio.Future[Any]] = {}
        self.client_capabilities: dict[str, Any] = {}

    def notify(self, method: str, params: object) -> None:
        self._peer.notify(method, params)
        self._flush()

    def answer(self, request_id: Id, result: object) -> None:
        self._peer.answer(request_id, result)
        self._flush()

    def refuse(self, request_id: Id, code: int, message: str, details: object = None) -> None:
        self._peer.refuse(request_id, code, message, details)
        self._flush()

    async def ask(self, method: str, params: object) -> Any:
        """Raises :class:`Refused`. Cancelled, it forgets the question; a late answer is passed over."""
        number = self._peer.call(method, params)
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._waiting[number] = future
        self._flush()
        try:
            return await future
        finally:
            self._waiting.pop(number, None)

    def answered(self, response: Response) -> None:
        self._peer.settle(response)
        future = self._waiting.get(response.id)
        if future is None or future.done():
            return
        if response.fault is not None:
            future.set_exception(Refused(response.fault.message))
        else:
            future.set_result(msgspec.json.decode(bytes(response.result or b"null")))

    def half_a_message(self) -> None:
        """What a connection that breaks leaves behind."""
        self._write(b'{"jsonrpc":"2.0","method":"session/upd')

    def _flush(self) -> None:
        for message in self._peer.outgoing():
            self._write(message + b"\n")
