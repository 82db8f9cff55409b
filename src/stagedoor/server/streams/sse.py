"""``GET /api/sessions/{id}/stream``: the same as the WebSocket, as server-sent events.

``event: verdict`` first, then one message per event with ``id: <seq>``, comments as heartbeats, ``event: end`` last. A
browser that comes back by itself sends ``Last-Event-ID``; when nothing is left to tell it is answered 204, which tells
it to stay away. Where a dialect says several messages for one event, all but the last have the id ``<seq - 1>.<n>``:
the event before it, and how many messages of the next were heard.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route
from starlette.types import Receive, Scope, Send

from stagedoor.errors import EventsRemoved
from stagedoor.service.service import Service
from stagedoor.service.views import State

from ..access.auth import caller_of, demand
from ..connections import line_of
from ..problems import InvalidField
from ..reading import read_query
from .dialect_cursor import CANONICAL, Telling, Tellings, known_dialect
from .following import STALLED, Begun, Patience, Place, Ready, Seconds, begin, first_of, joined, telling_from

HEARTBEAT = 15.0
COMEBACK = 1000
"""Milliseconds after which a browser comes back when the connection was lost."""


class Asked(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    after: Place = 0
    dialect: str = CANONICAL
    heartbeat: Seconds = HEARTBEAT


class End(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    session_id: str
    state: State
    last_seq: int


def routes(service: Service) -> list[BaseRoute]:
    return [Route("/api/sessions/{id}/stream", SessionStream(service), methods=["GET"])]


class SessionStream:
    def __init__(self, service: Service, *, stalled: float = STALLED) -> None:
        self._service = service
        self._tellings = Tellings(service.events)
        self._ready = Ready(_message)
        self._stalled = stalled

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        demand(caller_of(scope), "watch")
        request = Request(scope)
        asked: Asked = read_query(scope["query_string"], Asked)
        known_dialect(asked.dialect)
        comes_back = request.headers.get("last-event-id")
        after, heard = (asked.after, 0) if comes_back is None else _place(comes_back)
        begun = await begin(self._service, scope["path_params"]["id"], after)
        if comes_back is not None and begun.view.ended and begun.after >= begun.view.last_seq:
            await Response(status_code=204)(scope, receive, send)
            return
        telling = await telling_from(self._tellings, begun, asked.dialect)
        await send({"type": "http.response.start", "status": 200, "headers": _HEADERS})
        if request.method == "HEAD":
            await send({"type": "http.response.body"})
            return
        line = line_of(scope)
        with Patience(line.abort, self._stalled) as patience:
            client = _Client(send, patience)
            with contextlib.suppress(OSError):  # other servers than ours raise it when the client has gone
                await first_of(
                    asyncio.create_task(self._tell(client, begun, telling, heard)),
                    asyncio.create_task(client.beat(asked.heartbeat)),
                    asyncio.create_task(_gone(receive)),
                    asyncio.create_task(line.leaving.wait()),
                )
                await send({"type": "http.response.body"})

    async def _tell(self, client: _Client, begun: Begun, telling: Telling | None, heard: int) -> None:
        await client.give(b"retry: %d\nevent: verdict\ndata: %b\n\n" % (COMEBACK, msgspec.json.encode(begun.verdict)))
        try:
            async with contextlib.aclosing(self._pieces(begun, telling, heard)) as following:
                async for pieces in following:
                    for _, piece in pieces:
                        await client.give(piece)
        except EventsRemoved:
            return  # since the verdict: the client comes back, and is given another
        view = await self._service.sessions.find(begun.view.id) or begun.view
        end = End(session_id=view.id, state=view.state, last_seq=view.last_seq)
        await client.give(b"event: end\ndata: %b\n\n" % msgspec.json.encode(end))

    async def _pieces(
        self, begun: Begun, telling: Telling | None, heard: int
    ) -> AsyncGenerator[list[tuple[int, bytes]]]:
        async with contextlib.aclosing(self._service.events.follow(begun.view.id, begun.after)) as following:
            async for records in following:
                if telling is None:
                    yield self._ready.pieces(begun.view.id, records)
                    continue
                said: list[tuple[int, bytes]] = []
                for record in records:
                    messages = telling.tell(record)
                    for number, message in enumerate(messages, 1):
                        place = b"%d" % record.seq if number == len(messages) else b"%d.%d" % (record.seq - 1, number)
                        if number > heard:
                            said.append((record.seq, b"id: %b\ndata: %b\n\n" % (place, message)))
                    heard = 0
                yield joined(said)


class _Client:
    def __init__(self, send: Send, patience: Patience) -> None:
        self._send = send
        self._patience = patience
        self._gave = 0

    async def give(self, chunk: bytes) -> None:
        self._patience.begin()
        await self._send({"type": "http.response.body", "body": chunk, "more_body": True})
        self._patience.end()
        self._gave += 1

    async def beat(self, every: float) -> None:
        while True:
            gave = self._gave
            await asyncio.sleep(every)
            if gave == self._gave:
                await self._send({"type": "http.response.body", "body": b":\n\n", "more_body": True})


_HEADERS: list[Any] = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-store"),
    (b"x-accel-buffering", b"no"),
]


def _message(seq: int, body: bytes) -> bytes:
    return b"id: %d\ndata: %b\n\n" % (seq, body)


def _place(text: str) -> tuple[int, int]:
    """``Last-Event-ID``: a ``seq``, or one and how many messages of the next event were heard."""
    seq, _, heard = text.strip().partition(".")
    for part in (seq, heard or "0"):
        if not (part.isascii() and part.isdigit() and len(part) < 19):
            raise InvalidField(
                f"Last-Event-ID is {text[:40]!r}; send the last id of this stream", field="Last-Event-ID"
            )
    return int(seq), int(heard or 0)


async def _gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
