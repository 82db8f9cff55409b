"""``WS /ws`` and ``POST /rpc``."""

from __future__ import annotations

from typing import Literal

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route, WebSocketRoute
from starlette.websockets import WebSocket

from stagedoor.errors import StagedoorError
from stagedoor.service.service import Service

from ..access.auth import caller_of
from ..connections import connection_of
from ..problems import RefusedRequest, kind_of, problem
from ..reading import read_bytes, read_query
from ..streams.following import first_of
from .client import ClientDefaults, DefaultsByDevice, RpcClient, SharedReaders
from .dispatch import reply_to


class SocketListening(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """``listen=subscribed``: only the events of sessions that the client subscribes to; else those of all that run."""

    listen: Literal["all", "subscribed"] = "all"


def routes(service: Service) -> list[BaseRoute]:
    readers = SharedReaders(service)
    defaults_by_device = DefaultsByDevice(service)

    async def post(request: Request) -> Response:
        media = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        if media != "application/json":
            raise RefusedRequest("unsupported-media-type", "send the body as Content-Type: application/json")
        caller = caller_of(request)
        client = RpcClient(service, readers, caller, defaults=await defaults_by_device.of(caller))
        reply = await reply_to(client, await read_bytes(request, service.settings.limits.body))
        if reply.body is None:
            return Response(status_code=204)
        return Response(reply.body, media_type="application/json", headers={"cache-control": "no-store"})

    async def connect(websocket: WebSocket) -> None:
        offered = websocket.scope.get("subprotocols") or ()
        await websocket.accept(subprotocol="stagedoor" if "stagedoor" in offered else None)
        try:
            query: SocketListening = read_query(websocket.scope["query_string"], SocketListening)
        except StagedoorError as fault:
            await websocket.close(4000 + kind_of(fault).status, problem(fault).detail[:120])
            return
        caller = caller_of(websocket)
        defaults = ClientDefaults(await defaults_by_device.of(caller))
        await _serve_socket(websocket, service, readers, defaults, listen=query.listen == "all")

    return [Route("/rpc", post, methods=["POST"]), WebSocketRoute("/ws", connect)]


async def _serve_socket(
    websocket: WebSocket, service: Service, readers: SharedReaders, defaults: ClientDefaults, *, listen: bool
) -> None:
    async def send(message: bytes) -> None:
        await websocket.send_text(message.decode())

    client = RpcClient(service, readers, caller_of(websocket), send=send, defaults=defaults)
    if listen:
        client.broadcast.start()
    try:
        await first_of(_read(websocket, client), client.disconnected.wait())
        if client.disconnected.is_set():
            connection_of(websocket.scope).abort()  # closing in order would wait for a client that reads nothing
    finally:
        await client.close()


async def _read(websocket: WebSocket, client: RpcClient) -> None:
    while True:
        received = await websocket.receive()
        if received["type"] == "websocket.disconnect":
            return
        text, raw = received.get("text"), received.get("bytes")
        await client.receive(text.encode() if text is not None else raw or b"")
