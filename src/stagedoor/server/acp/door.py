"""``WS /acp``, and the same on standard input and output, here or through a running server."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

import msgspec
from starlette.routing import BaseRoute, WebSocketRoute
from starlette.websockets import WebSocket

from stagedoor.errors import ConnectionLost, StagedoorError
from stagedoor.service.service import Service
from stagedoor.transports.tasks import TaskOwner
from stagedoor.transports.websocket import WebSocket as ServerSocket
from stagedoor.wire.jsonrpc import Id, Request, Response, parse
from stagedoor.wire.shapes import UnknownMessage

from ..access.auth import caller_of
from ..access.devices import LOCAL, Caller
from ..connections import connection_of
from ..jsonrpc.stdio import StdioLines
from ..problems import kind_of, problem, rpc_error
from ..reading import read_query
from ..streams.following import first_of
from .client import ENVIRONMENT, EditorConnection

CALLER = Caller(LOCAL, "editor", ("admin",))
"""Whoever started us could as well run the agents themselves."""


class EditorQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """``agent``: the one that sessions begin with. ``alone``: nobody else answers, and what it started ends with it.
    ``same_machine``: it runs on this machine, so that files and terminals of the editor are those of the folder."""

    agent: str = ""
    alone: bool = False
    same_machine: bool = False


def routes(service: Service) -> list[BaseRoute]:
    async def connect(websocket: WebSocket) -> None:
        async def send(message: bytes) -> None:
            await websocket.send_text(message.decode().rstrip("\n"))

        offered = websocket.scope.get("subprotocols") or ()
        await websocket.accept(subprotocol="stagedoor" if "stagedoor" in offered else None)
        try:
            query: EditorQuery = read_query(websocket.scope["query_string"], EditorQuery)
            client = EditorConnection(
                service,
                caller_of(websocket),
                send,
                agent=query.agent,
                alone=query.alone,
                same_machine=query.same_machine,
            )
        except StagedoorError as fault:
            await websocket.close(4000 + kind_of(fault).status, problem(fault).detail[:120])
            return

        try:
            await first_of(_read(websocket, client), client.outbox.closed.wait())
            if client.outbox.closed.is_set():
                connection_of(websocket.scope).abort()  # closing in order would wait for a client that reads nothing
        finally:
            await client.close()

    return [WebSocketRoute("/acp", connect)]


async def _read(websocket: WebSocket, client: EditorConnection) -> None:
    while True:
        received = await websocket.receive()
        if received["type"] == "websocket.disconnect":
            return
        text, raw = received.get("text"), received.get("bytes")
        client.receive(text.encode() if text is not None else raw or b"")


async def serve_editor(service: Service, lines: StdioLines, agent: str = "") -> None:
    """Serve the editor that started us, until it closes our input or reads no more."""
    client = EditorConnection(
        service, CALLER, lambda message: lines.write(message.rstrip(b"\n")), agent=agent, alone=True, same_machine=True
    )

    async def read() -> None:
        async for message in lines.messages():
            client.receive(message)

    try:
        await first_of(read(), client.outbox.closed.wait())
    finally:
        await client.close()


async def bridge_editor(
    socket: ServerSocket, url: str, lines: StdioLines, environment: Mapping[str, str] | None = None
) -> None:
    """Pass everything to the server and back, until the editor leaves. Where the server leaves first, what it has not
    answered is answered with the reason. ``environment``: in which the agents are to run."""
    waiting: dict[Id, None] = {}

    async def forward() -> None:
        if environment is not None:
            bringing = {"jsonrpc": "2.0", "id": ENVIRONMENT, "method": ENVIRONMENT, "params": {"env": environment}}
            await socket.send(msgspec.json.encode(bringing))
        async for message in lines.messages():
            match parse(message):
                case Request(id=number):
                    waiting[number] = None
                case _:
                    pass
            await socket.send(message)

    async def backward() -> None:
        async for batch in socket.batches():
            for message in batch:
                if isinstance(message, UnknownMessage):
                    continue
                match parse(message):
                    case Response(id=number) if number == ENVIRONMENT:
                        continue  # an older server does not know it, and the agents have that server's
                    case Response(id=number):
                        waiting.pop(number, None)
                    case _:
                        pass
                await lines.write(message)

    owner = TaskOwner()
    forwarding, returning = owner.start(forward()), owner.start(backward())
    try:
        await asyncio.wait([forwarding, returning], return_when=asyncio.FIRST_COMPLETED)
        why = "it was closed"
        try:
            if forwarding.done() and forwarding.exception() is None:
                return
            (forwarding if forwarding.done() else returning).result()
        except ConnectionLost as fault:
            why = str(fault)
        lost = ConnectionLost(f"the connection to {url} has ended ({why}); its sessions can be loaded again")
        for number in waiting:
            error = {"code": rpc_error(lost)[0], "message": str(lost)}
            await lines.write(msgspec.json.encode({"jsonrpc": "2.0", "id": number, "error": error}))
        raise lost
    finally:
        await owner.close()
