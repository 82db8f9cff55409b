"""``GET /api/sessions/{id}/export``: a whole session as one document, streamed from the log."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from typing import Annotated, Literal

import msgspec
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import BaseRoute, Route

from stagedoor.drivers.agent import StoredSession
from stagedoor.service.service import Service
from stagedoor.service.views import SessionView
from stagedoor.unified.events import Event, decode

from ..access.auth import caller_of
from ..access.devices import demand
from ..reading import read_query

MAX_EVENTS = 200_000
"""Events in a Markdown document; it is built in memory."""


class ExportQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    format: Annotated[Literal["json", "markdown"], msgspec.Meta(description="One event per line, or a document")] = (
        "markdown"
    )


def routes(service: Service) -> list[BaseRoute]:
    async def export(request: Request) -> Response:
        caller = caller_of(request)
        demand(caller, "watch")
        query: ExportQuery = read_query(request.scope["query_string"], ExportQuery)
        view = await service.stored.named(request.path_params["sessionId"], take_in=caller.may("run"))
        ending = "jsonl" if query.format == "json" else "md"
        headers = {
            "content-disposition": f'attachment; filename="session-{view.id[:8]}.{ending}"',
            "cache-control": "no-store",
            "x-content-type-options": "nosniff",
        }
        if query.format == "json":
            return StreamingResponse(_lines(service, view), media_type="application/x-ndjson", headers=headers)
        from stagedoor.transcript import markdown

        events = [event async for event in _events(service, view)]
        document = await asyncio.to_thread(markdown, _stored_session(view), events)  # a long one takes seconds
        return Response(document, media_type="text/markdown", headers=headers)

    return [Route("/api/sessions/{sessionId}/export", export, methods=["GET"])]


async def _lines(service: Service, view: SessionView) -> AsyncGenerator[bytes]:
    after = view.first_seq - 1
    while after < view.last_seq:
        records = await service.events.read(view.id, after, 512)
        if not records:
            return
        after = records[-1].seq
        yield b"".join(record.body + b"\n" for record in records)


async def _events(service: Service, view: SessionView) -> AsyncGenerator[Event]:
    count = 0
    async for lines in _lines(service, view):
        for line in lines.splitlines():
            yield decode(line)
            count += 1
        if count >= MAX_EVENTS:
            return


def _stored_session(view: SessionView) -> StoredSession:
    return StoredSession(
        agent=view.agent,
        session_id=view.id,
        cwd=view.cwd,
        title=view.title,
        first_prompt=view.prompt,
        model=view.model,
        branch=view.branch,
        started_ms=view.created_at,
        updated_ms=view.updated_at,
    )
