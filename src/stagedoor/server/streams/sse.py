"""``GET /api/sessions/{id}/stream``: the same as the WebSocket, as server-sent events.

``event: verdict`` first, then one message per event with ``id: <seq>``, comments as heartbeats, ``event: end`` last. A
browser that reconnects by itself sends ``Last-Event-ID``; when nothing is left it gets 204, which tells it not to come
back. Where a dialect has several messages for one event, all but the last have the id ``<seq - 1>.<n>``: the event
before it, and how many messages of the next were received.
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

from ..access.auth import caller_of
from ..access.devices import demand
from ..connections import connection_of
from ..problems import InvalidField
from .dialect_cursor import DialectCursor, DialectCursors
from .following import (
    STALL_SECONDS,
    EncodedRecords,
    Seconds,
    StallTimer,
    StreamQuery,
    StreamStart,
    cursor_from,
    first_of,
    joined,
    read_stream_query,
    start_at,
)

HEARTBEAT = 15.0
RECONNECT_MS = 1000
"""Milliseconds after which a browser reconnects when the connection was lost."""


class SseQuery(StreamQuery, frozen=True, forbid_unknown_fields=True):
    heartbeat: Seconds = HEARTBEAT


class End(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    session_id: str
    state: State
    last_seq: int


def routes(service: Service) -> list[BaseRoute]:
    return [Route("/api/sessions/{id}/stream", SessionStream(service), methods=["GET"])]


class SessionStream:
    def __init__(self, service: Service, *, stalled: float = STALL_SECONDS) -> None:
        self._service = service
        self._cursors = DialectCursors(service.events)
        self._encoded = EncodedRecords(_message)
        self._stalled = stalled

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        caller = caller_of(scope)
        demand(caller, "watch")
        request = Request(scope)
        query = read_stream_query(scope, self._service, SseQuery)
        last_event_id = request.headers.get("last-event-id")
        after, received = (query.after, 0) if last_event_id is None else _read_event_id(last_event_id)
        start = await start_at(self._service, scope["path_params"]["id"], after, caller=caller)
        if last_event_id is not None and start.view.ended and start.after >= start.view.last_seq:
            await Response(status_code=204)(scope, receive, send)
            return
        cursor = await cursor_from(self._cursors, start, query.dialect)
        await send({"type": "http.response.start", "status": 200, "headers": _HEADERS})
        if request.method == "HEAD":
            await send({"type": "http.response.body"})
            return
        connection = connection_of(scope)
        with StallTimer(connection.abort, self._stalled) as timer:
            client = _SseClient(send, timer)
            with contextlib.suppress(OSError):  # other servers than ours raise it when the client has left
                await first_of(
                    self._send_events(client, start, cursor, received),
                    client.beat(query.heartbeat),
                    _disconnected(receive),
                    connection.stopping.wait(),
                )
                await send({"type": "http.response.body"})

    async def _send_events(
        self, client: _SseClient, start: StreamStart, cursor: DialectCursor | None, received: int
    ) -> None:
        await client.send_chunk(
            b"retry: %d\nevent: verdict\ndata: %b\n\n" % (RECONNECT_MS, msgspec.json.encode(start.verdict))
        )
        try:
            async with contextlib.aclosing(self._pieces(start, cursor, received)) as following:
                async for pieces in following:
                    for _, piece in pieces:
                        await client.send_chunk(piece)
        except EventsRemoved:
            return  # since the verdict: the client comes back, and gets another
        view = await self._service.sessions.find(start.view.id) or start.view
        end = End(session_id=view.id, state=view.state, last_seq=view.last_seq)
        await client.send_chunk(b"event: end\ndata: %b\n\n" % msgspec.json.encode(end))

    async def _pieces(
        self, start: StreamStart, cursor: DialectCursor | None, received: int
    ) -> AsyncGenerator[list[tuple[int, bytes]]]:
        async with contextlib.aclosing(self._service.events.follow(start.view.id, start.after)) as following:
            async for records in following:
                if cursor is None:
                    yield self._encoded.pieces(start.view.id, records)
                    continue
                chunks: list[tuple[int, bytes]] = []
                for record in records:
                    messages = cursor.project(record)
                    for number, message in enumerate(messages, 1):
                        last = number == len(messages)
                        event_id = b"%d" % record.seq if last else b"%d.%d" % (record.seq - 1, number)
                        if number > received:
                            chunks.append((record.seq, b"id: %b\ndata: %b\n\n" % (event_id, message)))
                    received = 0
                yield joined(chunks)


class _SseClient:
    def __init__(self, send: Send, timer: StallTimer) -> None:
        self._send = send
        self._timer = timer
        self._sent_count = 0

    async def send_chunk(self, chunk: bytes) -> None:
        self._timer.begin()
        await self._send({"type": "http.response.body", "body": chunk, "more_body": True})
        self._timer.end()
        self._sent_count += 1

    async def beat(self, every: float) -> None:
        while True:
            sent_count = self._sent_count
            await asyncio.sleep(every)
            if sent_count == self._sent_count:
                await self._send({"type": "http.response.body", "body": b":\n\n", "more_body": True})


_HEADERS: list[Any] = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-store"),
    (b"x-accel-buffering", b"no"),
]


def _message(seq: int, body: bytes) -> bytes:
    return b"id: %d\ndata: %b\n\n" % (seq, body)


def _read_event_id(text: str) -> tuple[int, int]:
    """``Last-Event-ID``: a ``seq``, or one and how many messages of the next event were received."""
    seq, _, received = text.strip().partition(".")
    for part in (seq, received or "0"):
        if not (part.isascii() and part.isdigit() and len(part) < 19):
            raise InvalidField(
                f"Last-Event-ID {text[:40]!r} is not valid; send the last id of this stream", field="Last-Event-ID"
            )
    return int(seq), int(received or 0)


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
