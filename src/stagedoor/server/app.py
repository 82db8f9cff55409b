"""All doors on one app: from where, how much, who, and then to the verbs; errors are answered from one table."""

from __future__ import annotations

import contextlib
import time
from collections.abc import AsyncGenerator, Callable, Sequence
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.routing import BaseRoute
from starlette.websockets import WebSocket, WebSocketState

from stagedoor.errors import StagedoorError
from stagedoor.service.service import Service

from . import page, status
from .access import pairing
from .access.auth import Authentication
from .access.devices import Devices
from .access.origins import Origins, own_names, proxied_origins
from .access.pairing import PairingCodes
from .access.sizes import SizeLimits
from .access.tokens import private_folder, server_token
from .acp import door as acp
from .jsonrpc import doors as jsonrpc
from .logs import RequestLog
from .mcp import door as mcp
from .problems import kind_of, problem, problem_response
from .rest import door as rest
from .streams import exporting, polling, sse, websocket

DOORS: tuple[Callable[[Service], Sequence[BaseRoute]], ...] = (
    exporting.routes,
    rest.routes,
    websocket.routes,
    sse.routes,
    polling.routes,
    jsonrpc.routes,
    acp.routes,
    mcp.routes,
    page.routes,
)


def create_app(service: Service, *, token: str | None = None) -> Starlette:
    """The app; its lifespan starts and stops ``service``. ``token`` is the administrator's, else that of the home."""
    private_folder(service.home)
    devices = Devices(service.devices, server_token(service.home) if token is None else token)
    codes = PairingCodes(shared=service.admission)

    @contextlib.asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncGenerator[None]:
        async with service:
            await devices.open()
            try:
                yield
            finally:
                await devices.close()

    app = Starlette(
        routes=[
            *status.routes(service, devices, started=time.time()),
            *pairing.routes(service, devices, codes),
            *_doors(service),
        ],
        middleware=[
            Middleware(RequestLog),
            Middleware(Origins, names=own_names(service.settings), proxied=proxied_origins(service.settings)),
            Middleware(Authentication, devices=devices),
            Middleware(SizeLimits, max_body=service.settings.limits.body),
            Middleware(status.LogGate, service=service),
        ],
        exception_handlers=dict.fromkeys((StagedoorError, HTTPException, Exception), _answer_fault),
        lifespan=lifespan,
    )
    app.state.devices = devices
    app.state.codes = codes
    return app


def _doors(service: Service) -> list[BaseRoute]:
    return [route for door in DOORS for route in door(service)]


async def _answer_fault(connection: Any, fault: Exception) -> Any:
    """The answer to an error that no door has answered."""
    answer = problem_response(fault, instance=connection.url.path)
    if not isinstance(connection, WebSocket):
        return answer
    with contextlib.suppress(Exception):  # the client may have left
        if connection.application_state is WebSocketState.CONNECTING:
            await connection.send_denial_response(answer)
        else:
            code = 4000 + kind_of(fault).status if isinstance(fault, StagedoorError) else 1011
            await connection.close(code, problem(fault).detail[:100])
    return None
