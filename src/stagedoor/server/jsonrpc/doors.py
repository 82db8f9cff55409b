"""``WS /ws`` and ``POST /rpc``."""

from __future__ import annotations

import asyncio
from collections import OrderedDict

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route, WebSocketRoute
from starlette.websockets import WebSocket

from stagedoor.service.service import Service

from ..access.auth import Caller, caller_of
from ..connections import line_of
from ..problems import Refused
from ..reading import whole
from .dispatch import reply_to
from .peer import Choice, Peer, Shared

CLIENTS = 1000
"""Devices whose choices are remembered between two POSTs; the one that was silent longest is forgotten."""


def routes(service: Service) -> list[BaseRoute]:
    shared = Shared(service)
    choices = _Choices()

    async def post(request: Request) -> Response:
        media = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        if media != "application/json":
            raise Refused("unsupported-media-type", "send the body as Content-Type: application/json")
        caller = caller_of(request)
        peer = Peer(service, shared, caller, choice=choices.of(caller))
        reply = await reply_to(peer, await whole(request, service.settings.limits.body))
        if reply.body is None:
            return Response(status_code=204)
        return Response(reply.body, media_type="application/json", headers={"cache-control": "no-store"})

    async def connect(websocket: WebSocket) -> None:
        asked = websocket.scope.get("subprotocols") or ()
        await websocket.accept(subprotocol="stagedoor" if "stagedoor" in asked else None)
        await _converse(websocket, service, shared)

    return [Route("/rpc", post, methods=["POST"]), WebSocketRoute("/ws", connect)]


async def _converse(websocket: WebSocket, service: Service, shared: Shared) -> None:
    async def send(message: bytes) -> None:
        await websocket.send_text(message.decode())

    peer = Peer(service, shared, caller_of(websocket), send=send)
    reading = asyncio.ensure_future(_read(websocket, peer))
    gone = asyncio.ensure_future(peer.gone.wait())
    try:
        await asyncio.wait([reading, gone], return_when=asyncio.FIRST_COMPLETED)
        if peer.gone.is_set():
            line_of(websocket.scope).abort()  # closing in order would wait for a client that reads nothing
    finally:
        reading.cancel()
        gone.cancel()
        await peer.close()
        await asyncio.wait([reading, gone])


async def _read(websocket: WebSocket, peer: Peer) -> None:
    while True:
        received = await websocket.receive()
        if received["type"] == "websocket.disconnect":
            return
        text, raw = received.get("text"), received.get("bytes")
        await peer.receive(text.encode() if text is not None else raw or b"")


class _Choices:
    """What each device has selected by POST, where no connection remembers it."""

    def __init__(self) -> None:
        self._kept: OrderedDict[str, Choice] = OrderedDict()

    def of(self, caller: Caller) -> Choice:
        choice = self._kept.setdefault(caller.device_id, Choice())
        self._kept.move_to_end(caller.device_id)
        while len(self._kept) > CLIENTS:
            self._kept.popitem(last=False)
        return choice
