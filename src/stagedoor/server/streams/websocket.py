"""``WS /ws/sessions/{id}``: a verdict, everything after ``after``, then what comes, until the session ends.

Each message is one JSON event in the chosen dialect. Close codes: 1000 the session has ended, 1012 the server stops
(come back with the last ``seq``), 4400 the query is not valid, 4401 no or a revoked token, 4403 not allowed, 4404
session not found, 4410 events are no longer stored and the client did not request verdicts, 1008 the client sends too
many messages.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Sequence
from typing import Any

import msgspec
from starlette.routing import BaseRoute, WebSocketRoute
from starlette.types import Receive, Scope, Send
from uvicorn.protocols.utils import ClientDisconnected

from stagedoor.errors import StagedoorError
from stagedoor.service.service import Service
from stagedoor.service.views import Record
from stagedoor.transports.tasks import TaskOwner

from ..access.auth import caller_of
from ..access.devices import demand
from ..connections import FRAMES, connection_of, text_frame
from ..problems import INTERNAL_ERROR, kind_of, problem
from .dialect_cursor import CANONICAL, DialectCursor, DialectCursors
from .following import (
    STALL_SECONDS,
    EncodedRecords,
    Seconds,
    StallTimer,
    StreamQuery,
    StreamStart,
    cursor_from,
    joined,
    numbered,
    read_stream_query,
    start_at,
)

ENDED = 1000
TOO_MANY_MESSAGES = 1008
GAP = 4410
MAX_MESSAGES = 120
"""Messages a client may send in a minute. They have no effect here; some clients send pings of their own."""


class SocketQuery(StreamQuery, frozen=True, forbid_unknown_fields=True):
    verdict: bool | None = None
    """Whether the first message is the verdict. By default in the canonical dialect only."""
    heartbeat: Seconds | None = None
    seq: bool = False
    """Wrap every message as ``{"seq", "more", "event"}``, for dialects whose events do not carry our ``seq``."""


def routes(service: Service) -> list[BaseRoute]:
    return [WebSocketRoute("/ws/sessions/{id}", SessionSocket(service))]


class SessionSocket:
    """The ASGI app of the path. Starlette's own WebSocket class is left out: it costs more than the sending."""

    def __init__(self, service: Service, *, stalled: float = STALL_SECONDS) -> None:
        self._service = service
        self._cursors = DialectCursors(service.events)
        self._encoded = EncodedRecords(lambda _, body: text_frame(body))
        self._stalled = stalled

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if (await receive())["type"] != "websocket.connect":
            return
        with contextlib.suppress(ClientDisconnected):
            await send({"type": "websocket.accept"})
            try:
                caller = caller_of(scope)
                demand(caller, "watch")
                query = read_stream_query(scope, self._service, SocketQuery)
                start = await start_at(self._service, scope["path_params"]["id"], query.after, caller=caller)
                cursor = await cursor_from(self._cursors, start, query.dialect)
            except StagedoorError as fault:
                await _close(send, 4000 + kind_of(fault).status, problem(fault).detail)
                return
            with StallTimer(connection_of(scope).abort, self._stalled) as timer:
                extensions: dict[str, Any] = scope.get("extensions") or {}
                write = extensions.get(FRAMES, {}).get("write")
                client = _SocketClient(send, write, timer, start, query)
                await self._serve(client, cursor, receive)

    async def _serve(self, client: _SocketClient, cursor: DialectCursor | None, receive: Receive) -> None:
        owner = TaskOwner()
        tasks = [owner.start(self._send_events(client, cursor))]
        if client.query.heartbeat is not None:
            tasks.append(owner.start(client.beat(client.query.heartbeat)))
        try:
            if await _talks_too_much(receive):
                await client.close(TOO_MANY_MESSAGES, "this socket only sends events; send messages by POST")
        finally:
            await owner.close()
            for task in tasks:
                fault = None if task.cancelled() else task.exception()
                if fault is not None and not isinstance(fault, ClientDisconnected):
                    raise fault

    async def _send_events(self, client: _SocketClient, cursor: DialectCursor | None) -> None:
        start, query = client.start, client.query
        try:
            if query.dialect == CANONICAL if query.verdict is None else query.verdict:
                await client.send_message(msgspec.json.encode(start.verdict))
            elif start.verdict.verdict == "gap":
                missing = f"events {start.verdict.missing_from} to {start.verdict.missing_to} are no longer stored"
                await client.close(GAP, f"{missing}; add verdict=true to continue without them")
                return
            async with contextlib.aclosing(self._service.events.follow(start.view.id, start.after)) as following:
                async for records in following:
                    for seq, piece in self._pieces(client, cursor, records):
                        if not client.try_write(piece):
                            await client.send_message(piece, framed=client.framed)
                        client.sent_count += 1
                        client.at = seq
            await client.close(ENDED, "the session has ended")
        except ClientDisconnected:
            raise
        except StagedoorError as fault:
            await client.close(4000 + kind_of(fault).status, problem(fault).detail)
        except Exception:
            await client.close(1011, INTERNAL_ERROR)
            raise

    def _pieces(
        self, client: _SocketClient, cursor: DialectCursor | None, records: Sequence[Record]
    ) -> Sequence[tuple[int, bytes]]:
        with_seq = client.query.seq
        if cursor is None and client.framed and not with_seq:
            return self._encoded.pieces(client.start.view.id, records)
        texts: list[tuple[int, bytes]] = []
        for record in records:
            messages = [record.body] if cursor is None else cursor.project(record)
            for number, message in enumerate(messages, 1):
                more = number < len(messages)
                text = numbered(record.seq, message, more=more) if with_seq else message
                texts.append((record.seq - more, text))
        return joined([(seq, text_frame(text)) for seq, text in texts]) if client.framed else texts


class _SocketClient:
    """One client's end of the socket. ``at`` is the last record that was sent to it whole."""

    __slots__ = ("_timer", "at", "framed", "query", "send", "sent_count", "start", "try_write")

    def __init__(
        self,
        send: Send,
        write: Callable[[bytes], bool] | None,
        timer: StallTimer,
        start: StreamStart,
        query: SocketQuery,
    ) -> None:
        self.send = send
        self.try_write = _never if write is None else write
        """Sends whole frames without a wait if the client keeps up; False, and nothing done, when it does not."""
        self.start = start
        self.query = query
        self.at = start.after
        self.framed = write is not None
        self.sent_count = 0
        self._timer = timer

    async def send_message(self, message: bytes, *, framed: bool = False) -> None:
        self._timer.begin()
        if framed:
            await self.send({"type": "websocket.send", "frames": message})
        else:
            await self.send({"type": "websocket.send", "text": message.decode()})
        self._timer.end()

    async def close(self, code: int, reason: str) -> None:
        self._timer.begin()
        await _close(self.send, code, reason)
        self._timer.end()

    async def beat(self, every: float) -> None:
        while True:
            sent_count = self.sent_count
            await asyncio.sleep(every)
            if sent_count == self.sent_count:
                await self.send({"type": "websocket.send", "text": f'{{"type":"heartbeat","seq":{self.at}}}'})


def _never(_: bytes) -> bool:
    return False


async def _talks_too_much(receive: Receive) -> bool:
    """Listen until the client has left (False), or has sent more than is allowed (True)."""
    loop = asyncio.get_running_loop()
    since, count = loop.time(), 0
    while (await receive())["type"] != "websocket.disconnect":
        if loop.time() - since > 60:
            since, count = loop.time(), 0
        count += 1
        if count > MAX_MESSAGES:
            return True
    return False


async def _close(send: Send, code: int, reason: str) -> None:
    shortened = reason.encode()[:120].decode(errors="ignore")  # a close frame holds 125 bytes
    await send({"type": "websocket.close", "code": code, "reason": shortened})
