"""``WS /ws/sessions/{id}``: a verdict, everything after ``after``, then what comes, until the session ends.

Each message is one JSON event in the wanted dialect. Close codes: 1000 the session has ended, 1012 the server stops
(come back with the last ``seq``), 4400 the query is wrong, 4401 no or a revoked token, 4403 not allowed, 4404 no such
session, 4410 events are gone and the client did not ask for verdicts, 1008 the client talks too much.
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

from ..access.auth import caller_of, demand
from ..connections import FRAMES, line_of, text_frame
from ..problems import kind_of, problem
from ..reading import read_query
from .dialect_cursor import CANONICAL, Telling, Tellings, known_dialect
from .following import STALLED, Begun, Patience, Place, Ready, Seconds, begin, joined, numbered, telling_from

ENDED = 1000
TALKS_TOO_MUCH = 1008
GAP = 4410
HEARD = 120
"""Messages a client may send in a minute. They mean nothing here; some clients send pings of their own."""


class Asked(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    after: Place = 0
    dialect: str = CANONICAL
    verdict: bool | None = None
    """Whether the first message is the verdict. Not said: in the canonical dialect only."""
    heartbeat: Seconds | None = None
    seq: bool = False
    """Wrap every message as ``{"seq", "more", "event"}``, for dialects whose events do not carry our ``seq``."""


def routes(service: Service) -> list[BaseRoute]:
    return [WebSocketRoute("/ws/sessions/{id}", SessionSocket(service))]


class SessionSocket:
    """The ASGI app of the path. Starlette's own WebSocket class is left out: it costs more than the sending."""

    def __init__(self, service: Service, *, stalled: float = STALLED) -> None:
        self._service = service
        self._tellings = Tellings(service.events)
        self._ready = Ready(lambda _, body: text_frame(body))
        self._stalled = stalled

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if (await receive())["type"] != "websocket.connect":
            return
        with contextlib.suppress(ClientDisconnected):
            await send({"type": "websocket.accept"})
            try:
                demand(caller_of(scope), "watch")
                asked: Asked = read_query(scope["query_string"], Asked)
                known_dialect(asked.dialect)
                begun = await begin(self._service, scope["path_params"]["id"], asked.after)
                telling = await telling_from(self._tellings, begun, asked.dialect)
            except StagedoorError as fault:
                await _close(send, 4000 + kind_of(fault).status, problem(fault).detail)
                return
            with Patience(line_of(scope).abort, self._stalled) as patience:
                extensions: dict[str, Any] = scope.get("extensions") or {}
                write = extensions.get(FRAMES, {}).get("write")
                client = _Client(send, write, patience, begun, asked)
                await self._serve(client, telling, receive)

    async def _serve(self, client: _Client, telling: Telling | None, receive: Receive) -> None:
        tasks = [asyncio.create_task(self._tell(client, telling))]
        if client.asked.heartbeat is not None:
            tasks.append(asyncio.create_task(client.beat(client.asked.heartbeat)))
        try:
            if await _silent(receive):
                await client.leave(TALKS_TOO_MUCH, "this socket only tells; send messages by POST")
        finally:
            for task in tasks:
                task.cancel()
            for outcome in await asyncio.gather(*tasks, return_exceptions=True):
                if isinstance(outcome, Exception) and not isinstance(outcome, ClientDisconnected):
                    raise outcome

    async def _tell(self, client: _Client, telling: Telling | None) -> None:
        begun, asked = client.begun, client.asked
        try:
            wants = asked.dialect == CANONICAL if asked.verdict is None else asked.verdict
            if wants:
                await client.give(msgspec.json.encode(begun.verdict))
            elif begun.verdict.verdict == "gap":
                missing = f"events {begun.verdict.missing_from} to {begun.verdict.missing_to} are no longer kept"
                await client.leave(GAP, f"{missing}; ask with verdict=true to go on without them")
                return
            async with contextlib.aclosing(self._service.events.follow(begun.view.id, begun.after)) as following:
                async for records in following:
                    for seq, piece in self._pieces(client, telling, records):
                        if not client.takes(piece):
                            await client.give(piece, framed=client.framed)
                        client.gave += 1
                        client.at = seq
            await client.leave(ENDED, "the session has ended")
        except ClientDisconnected:
            raise
        except StagedoorError as fault:
            await client.leave(4000 + kind_of(fault).status, problem(fault).detail)
        except Exception:
            await client.leave(1011, "something went wrong in Stagedoor itself; the server's log says what")
            raise

    def _pieces(
        self, client: _Client, telling: Telling | None, records: Sequence[Record]
    ) -> Sequence[tuple[int, bytes]]:
        with_seq = client.asked.seq
        if telling is None and client.framed and not with_seq:
            return self._ready.pieces(client.begun.view.id, records)
        said: list[tuple[int, bytes]] = []
        for record in records:
            messages = [record.body] if telling is None else telling.tell(record)
            for number, message in enumerate(messages, 1):
                more = number < len(messages)
                text = numbered(record.seq, message, more=more) if with_seq else message
                said.append((record.seq - more, text))
        return joined([(seq, text_frame(text)) for seq, text in said]) if client.framed else said


class _Client:
    """One client's end of the socket. ``at`` is the last record it was given whole."""

    __slots__ = ("_patience", "asked", "at", "begun", "framed", "gave", "send", "takes")

    def __init__(
        self, send: Send, write: Callable[[bytes], bool] | None, patience: Patience, begun: Begun, asked: Asked
    ) -> None:
        self.send = send
        self.takes = _nothing if write is None else write
        """Hand it over if the client keeps up, without a wait."""
        self.begun = begun
        self.asked = asked
        self.at = begun.after
        self.framed = write is not None
        self.gave = 0
        self._patience = patience

    async def give(self, message: bytes, *, framed: bool = False) -> None:
        self._patience.begin()
        if framed:
            await self.send({"type": "websocket.send", "frames": message})
        else:
            await self.send({"type": "websocket.send", "text": message.decode()})
        self._patience.end()

    async def leave(self, code: int, reason: str) -> None:
        self._patience.begin()
        await _close(self.send, code, reason)
        self._patience.end()

    async def beat(self, every: float) -> None:
        while True:
            gave = self.gave
            await asyncio.sleep(every)
            if gave == self.gave:
                await self.send({"type": "websocket.send", "text": f'{{"type":"heartbeat","seq":{self.at}}}'})


def _nothing(_: bytes) -> bool:
    return False


async def _silent(receive: Receive) -> bool:
    """Listen until the client is gone (False), or has said more than is borne (True)."""
    loop = asyncio.get_running_loop()
    since, heard = loop.time(), 0
    while (await receive())["type"] != "websocket.disconnect":
        if loop.time() - since > 60:
            since, heard = loop.time(), 0
        heard += 1
        if heard > HEARD:
            return True
    return False


async def _close(send: Send, code: int, reason: str) -> None:
    said: dict[str, Any] = {"type": "websocket.close", "code": code}
    await send(said | {"reason": reason.encode()[:120].decode(errors="ignore")})  # a close frame holds 125 bytes
