"""All doors on one app: who may come in, from where, how much at once, and how errors are told."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator
from importlib import import_module

import msgspec
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute

from podium.errors import PodiumError
from podium.service.service import Service

from .auth import Authentication

DOORS = ("rest", "websocket", "sse", "polling", "jsonrpc")


def create_app(service: Service, *, token: str) -> Starlette:
    """The app; its lifespan starts and stops ``service``."""

    @contextlib.asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncGenerator[None]:
        async with service:
            yield

    return Starlette(
        routes=_routes(service),
        middleware=[Middleware(Authentication, token=token)],
        exception_handlers={PodiumError: _told},
        lifespan=lifespan,
    )


def _routes(service: Service) -> list[BaseRoute]:
    found: list[BaseRoute] = []
    for name in DOORS:
        with contextlib.suppress(ImportError):  # while the doors are being built
            found += import_module(f"podium.server.{name}").routes(service)
    return found


async def _told(request: Request, fault: Exception) -> Response:
    body = msgspec.json.encode({"title": type(fault).__name__, "status": 400, "detail": str(fault)})
    return Response(body, 400, media_type="application/problem+json")
