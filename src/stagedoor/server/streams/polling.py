"""``GET /api/sessions/{id}/poll?after&wait``: the same as the WebSocket, one answer at a time.

The answer comes as soon as there is something after ``after``, or the session has ended, or ``wait`` seconds are over.
Continue with ``after=<lastSeq>`` until ``ended``.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import Annotated

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from stagedoor.service.service import Service
from stagedoor.service.views import FollowVerdict

from ..access.auth import caller_of
from ..access.devices import demand
from ..connections import connection_of
from .dialect_cursor import DialectCursor, DialectCursors
from .following import StreamQuery, StreamStart, first_of, read_stream_query, start_at

LIMIT = 512


class PollQuery(StreamQuery, frozen=True, forbid_unknown_fields=True):
    wait: Annotated[float, msgspec.Meta(ge=0, le=60)] = 25.0
    limit: Annotated[int, msgspec.Meta(ge=1, le=LIMIT)] = LIMIT


class PollAnswer(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    verdict: FollowVerdict
    events: list[msgspec.Raw]
    last_seq: int
    """Send it as ``after`` with the next request."""
    ended: bool
    """The session has ended and these are its last events."""


def routes(service: Service) -> list[BaseRoute]:
    cursors = DialectCursors(service.events)

    async def poll(request: Request) -> Response:
        caller = caller_of(request)
        demand(caller, "watch")
        query = read_stream_query(request.scope, service, PollQuery)
        start = await start_at(service, request.path_params["id"], query.after, caller=caller)
        reader = _PollReader(service, start, await cursors.at(start.view.id, query.dialect, start.after), query.limit)
        if not await reader.read_on() and query.wait:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(query.wait):
                    await first_of(
                        reader.wait(),
                        _disconnected(request),
                        connection_of(request.scope).stopping.wait(),
                    )
        cursors.store(start.view.id, reader.cursor)
        answer = PollAnswer(
            verdict=await service.events.verdict(start.view.id, query.after),
            events=[msgspec.Raw(message) for message in reader.messages],
            last_seq=reader.cursor.after,
            ended=reader.ended,
        )
        return Response(
            msgspec.json.encode(answer), headers={"cache-control": "no-store"}, media_type="application/json"
        )

    return [Route("/api/sessions/{id}/poll", poll, methods=["GET"])]


class _PollReader:
    """Reads what one answer will hold."""

    def __init__(self, service: Service, start: StreamStart, cursor: DialectCursor, limit: int) -> None:
        self._service = service
        self._id = start.view.id
        self._limit = limit
        self.cursor = cursor
        self.messages: list[bytes] = []
        self.ended = False

    async def read_on(self) -> bool:
        """Read what is stored; True when that is worth an answer."""
        while not self.messages:
            records = await self._service.events.read(self._id, self.cursor.after, self._limit)
            if not records:
                break
            self.messages = self.cursor.project_all(records)
        view = await self._service.sessions.find(self._id)
        self.ended = view is None or (view.ended and self.cursor.after >= view.last_seq)
        return bool(self.messages) or self.ended

    async def wait(self) -> None:
        bell = self._service.events.bell(self._id)
        try:
            while not await self.read_on():
                await bell.rung()
        finally:
            bell.close()


async def _disconnected(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass
