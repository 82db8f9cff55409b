"""``POST /mcp`` (streamable HTTP with a token), and the same on standard input and output."""

from __future__ import annotations

import asyncio
from pathlib import Path
from urllib.parse import unquote

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from stagedoor import __version__
from stagedoor.errors import BadRequest
from stagedoor.mcp.bridge import FAREWELL_SECONDS
from stagedoor.mcp.protocol import ToolServer, http_status
from stagedoor.service.service import Service
from stagedoor.transports.tasks import TaskOwner
from stagedoor.unified.options import Tier

from ..access.auth import caller_of
from ..access.devices import LOCAL, Caller
from ..jsonrpc.stdio import StdioLines
from ..problems import RefusedRequest
from ..reading import read_bytes
from .tools import TIERS, ModelCaller, run_tool, server_for

SESSION_HEADER = "stagedoor-session"
"""The session that the caller's program runs in."""
TIER_HEADER = "stagedoor-tier"
"""The most that this caller may ask for. Like the other one it can only take rights away."""


ROOTS_HEADER = "stagedoor-roots"
"""The folders below which this caller may start sessions, each percent-encoded, with colons between them; the first is
where one runs that names no folder. It can only take rights away too."""


def routes(service: Service) -> list[BaseRoute]:
    async def answer(request: Request) -> Response:
        if request.method != "POST":
            return Response("this server takes POST only: it begins no messages of its own", 405, {"allow": "POST"})
        media = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        if media != "application/json":
            raise RefusedRequest("unsupported-media-type", "send the message with Content-Type: application/json")
        model = ModelCaller(
            caller=caller_of(request),
            parent=request.headers.get(SESSION_HEADER, ""),
            most=_tier(request.headers.get(TIER_HEADER)),
            roots=_roots(request.headers.get(ROOTS_HEADER)),
        )
        body = await read_bytes(request, service.settings.limits.body)
        reply = await server_for(service, model, __version__).respond(body, run_tool)
        if reply is None:
            return Response(status_code=202)
        message = _decoded(body)
        return Response(
            msgspec.json.encode(reply), http_status(message, reply), {"cache-control": "no-store"}, "application/json"
        )

    return [Route("/mcp", answer, methods=["GET", "POST", "DELETE"])]


def _tier(named: str | None) -> Tier | None:
    if named is None:
        return None
    for tier in TIERS:
        if tier == named:
            return tier
    raise BadRequest(f"{TIER_HEADER}: choose from {', '.join(TIERS)}")


def _roots(named: str | None) -> tuple[str, ...]:
    roots = () if named is None else tuple(unquote(root) for root in named.split(":"))
    if not all(Path(root).is_absolute() for root in roots):
        raise BadRequest(f"{ROOTS_HEADER}: name absolute folders, percent-encoded, with colons between them")
    return roots


def _decoded(body: bytes) -> dict[str, object]:
    try:
        return msgspec.json.decode(body, type=dict[str, object])
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return {}


async def serve_model(service: Service, lines: StdioLines, *, most: Tier | None, parent: str = "") -> None:
    """Serve the program that started us until it closes our input; what is answered soon after that is still told."""
    model = ModelCaller(caller=Caller(LOCAL, "mcp", ("run",)), parent=parent, most=most)
    server = server_for(service, model, __version__)
    tasks = TaskOwner()
    answering: set[asyncio.Task[None]] = set()
    try:
        async for message in lines.messages():
            if message.strip():
                answer = tasks.start(_respond(server, message, lines))
                answering.add(answer)
                answer.add_done_callback(answering.discard)
        if answering:
            await asyncio.wait(answering, timeout=FAREWELL_SECONDS)
    finally:
        await tasks.close()


async def _respond(server: ToolServer, message: bytes, lines: StdioLines) -> None:
    reply = await server.respond(message, run_tool)
    if reply is not None:
        await lines.write(msgspec.json.encode(reply))
