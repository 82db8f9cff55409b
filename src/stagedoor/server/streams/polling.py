"""``GET /api/sessions/{id}/poll?after&wait``: the same as the WebSocket, one answer at a time.

The answer comes as soon as there is something after ``after``, or the session has ended, or ``wait`` seconds are over.
Go on with ``after=<lastSeq>`` until ``ended``.
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

from ..access.auth import caller_of, demand
from ..connections import line_of
from ..reading import read_query
from .dialect_cursor import CANONICAL, Telling, Tellings, known_dialect
from .following import Begun, Place, begin, first_of

LIMIT = 512


class Asked(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    after: Place = 0
    wait: Annotated[float, msgspec.Meta(ge=0, le=60)] = 25.0
    limit: Annotated[int, msgspec.Meta(ge=1, le=LIMIT)] = LIMIT
    dialect: str = CANONICAL


class Polled(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    verdict: FollowVerdict
    events: list[msgspec.Raw]
    last_seq: int
    """Ask again with ``after`` this."""
    ended: bool
    """The session is over and this is the last of it."""


def routes(service: Service) -> list[BaseRoute]:
    tellings = Tellings(service.events)

    async def poll(request: Request) -> Response:
        demand(caller_of(request), "watch")
        asked: Asked = read_query(request.scope["query_string"], Asked)
        known_dialect(asked.dialect)
        begun = await begin(service, request.path_params["id"], asked.after)
        told = _Told(service, begun, await tellings.at(begun.view.id, asked.dialect, begun.after), asked.limit)
        if not await told.read_on() and asked.wait:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(asked.wait):
                    await first_of(
                        asyncio.create_task(told.wait()),
                        asyncio.create_task(_gone(request)),
                        asyncio.create_task(line_of(request.scope).leaving.wait()),
                    )
        tellings.keep(begun.view.id, told.telling)
        answer = Polled(
            verdict=await service.events.verdict(begun.view.id, asked.after),
            events=[msgspec.Raw(message) for message in told.messages],
            last_seq=told.telling.after,
            ended=told.ended,
        )
        return Response(
            msgspec.json.encode(answer), headers={"cache-control": "no-store"}, media_type="application/json"
        )

    return [Route("/api/sessions/{id}/poll", poll, methods=["GET"])]


class _Told:
    """What this answer will say."""

    def __init__(self, service: Service, begun: Begun, telling: Telling, limit: int) -> None:
        self._service = service
        self._id = begun.view.id
        self._limit = limit
        self.telling = telling
        self.messages: list[bytes] = []
        self.ended = False

    async def read_on(self) -> bool:
        """Read what there is; True when that is worth an answer."""
        while not self.messages:
            records = await self._service.events.read(self._id, self.telling.after, self._limit)
            if not records:
                break
            self.messages = self.telling.tell_all(records)
        view = await self._service.sessions.find(self._id)
        self.ended = view is None or (view.ended and self.telling.after >= view.last_seq)
        return bool(self.messages) or self.ended

    async def wait(self) -> None:
        bell = self._service.events.bell(self._id)
        try:
            while not await self.read_on():
                await bell.rung()
        finally:
            bell.close()


async def _gone(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass
