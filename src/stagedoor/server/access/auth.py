"""Who sends a request, and what they may do.

A caller sends a token: in ``Authorization: Bearer``, in the cookie ``stagedoor`` (browsers), or as a WebSocket
subprotocol ``bearer.TOKEN`` beside ``stagedoor``; never in a URL. Every path needs one unless it is in ``PUBLIC``.
Behind this middleware there is ``scope["state"]["caller"]`` and no token. A revoked device loses its open streams at
once.
"""

from __future__ import annotations

import asyncio
import contextlib
from http.cookies import CookieError, SimpleCookie
from typing import Any

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from stagedoor.errors import NotAllowed
from stagedoor.service.identity import note_caller

from ..connections import connection_of
from ..problems import RefusedRequest, problem_response
from .devices import Caller, Devices, Visit

COOKIE = "stagedoor"
SUBPROTOCOL = "stagedoor"
PUBLIC = frozenset({"/", "/sw.js", "/healthz", "/readyz", "/api/pair", "/openapi.json", "/docs"})
"""These paths show nothing of any session."""
PUBLIC_UNDER = ("/static/", "/docs/")
CLOSE_CODES = {"revoked": 4401, "stopping": 1012}
END_MESSAGES = {
    "revoked": "this device was revoked; pair it again",
    "stopping": "the server is stopping; connect again when it is back",
}
NOBODY = Caller("", "nobody", ())


def caller_of(connection: Any) -> Caller:
    """The caller of a request, a WebSocket or a scope. Raises ``RefusedRequest`` when nobody is signed in."""
    caller: Caller | None = getattr(connection, "scope", connection).get("state", {}).get("caller")
    if caller is None or caller is NOBODY:
        raise RefusedRequest("not-signed-in", "send a token: Authorization: Bearer TOKEN")
    return caller


class Authentication:
    def __init__(self, app: ASGIApp, devices: Devices) -> None:
        self._app = app
        self._devices = devices

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket"):
            await self._app(scope, receive, send)
            return
        try:
            caller = self._identify(scope)
        except (RefusedRequest, NotAllowed) as fault:
            await problem_response(fault, instance=scope["path"])(scope, receive, send)
            return
        scope.setdefault("state", {})["caller"] = caller
        if caller is not NOBODY:
            note_caller(caller.name)
            connection_of(scope).admit()
        if scope["type"] == "websocket":
            await self._serve_socket(caller, scope, receive, send)
        elif scope["method"] == "GET":
            await self._serve_get(caller, scope, receive, send)
        else:  # a request that changes something is never cut short
            await self._app(scope, receive, send)

    def _identify(self, scope: Scope) -> Caller:
        if self._devices.stopping:
            raise RefusedRequest("unavailable", END_MESSAGES["stopping"])
        token, by_cookie = _take_token(scope)
        caller = None if token is None else self._devices.caller(token)
        if caller is not None:
            if by_cookie:
                _check_own_page(scope)
            return caller
        if scope["path"] in PUBLIC or scope["path"].startswith(PUBLIC_UNDER):
            return NOBODY
        if token is None:
            raise RefusedRequest(
                "not-signed-in", "send a token: Authorization: Bearer TOKEN, or pair this device first"
            )
        raise RefusedRequest("not-signed-in", "unknown or revoked token; pair the device again")

    async def _serve_socket(self, caller: Caller, scope: Scope, receive: Receive, send: Send) -> None:
        accepting = _with_subprotocol(send) if SUBPROTOCOL in scope["subprotocols"] else send
        with self._devices.visit(caller) as visit:
            try:
                await self._app(scope, receive, accepting)
            except asyncio.CancelledError:
                reason = _end_reason(visit)
                with contextlib.suppress(Exception):  # it may have been closed before
                    async with asyncio.timeout(1):
                        await send(
                            {"type": "websocket.close", "code": CLOSE_CODES[reason], "reason": END_MESSAGES[reason]}
                        )

    async def _serve_get(self, caller: Caller, scope: Scope, receive: Receive, send: Send) -> None:
        started = finished = False

        async def watched(message: Message) -> None:
            nonlocal started, finished
            started = True
            finished = message["type"] == "http.response.body" and not message.get("more_body", False)
            await send(message)

        with self._devices.visit(caller) as visit:
            try:
                await self._app(scope, receive, watched)
            except asyncio.CancelledError:
                reason = _end_reason(visit)
                with contextlib.suppress(Exception):
                    async with asyncio.timeout(1):
                        if not started:
                            fault = RefusedRequest(
                                "not-signed-in" if reason == "revoked" else "unavailable", END_MESSAGES[reason]
                            )
                            await problem_response(fault, instance=scope["path"])(scope, receive, send)
                        elif not finished:
                            await send({"type": "http.response.body", "body": b"", "more_body": False})


def _end_reason(visit: Visit) -> str:
    """Why our own side cancelled the request; any other cancellation is raised again."""
    if visit.ended_by is None:
        raise asyncio.CancelledError
    visit.absorb()
    return visit.ended_by


def _take_token(scope: Scope) -> tuple[str | None, bool]:
    """The token that was sent and whether it came as a cookie; it is removed from ``scope``."""
    token: str | None = None
    by_cookie = False
    headers: list[tuple[bytes, bytes]] = []
    for name, value in scope["headers"]:
        if name == b"authorization":
            scheme, _, credentials = value.decode("latin-1").partition(" ")
            if scheme.lower() == "bearer":
                token, by_cookie = credentials.strip(), False
        elif name == b"cookie":
            cookie = _cookie(value.decode("latin-1"))
            if cookie is not None and token is None:
                token, by_cookie = cookie, True
        elif name == b"sec-websocket-protocol":
            for word in value.decode("latin-1").split(","):
                if word.strip().startswith("bearer."):
                    token, by_cookie = word.strip().removeprefix("bearer."), False
        else:
            headers.append((name, value))
    scope["headers"] = headers
    if scope["type"] == "websocket":
        offered: list[str] = scope.get("subprotocols", [])
        scope["subprotocols"] = [word for word in offered if not word.startswith("bearer.")]
    return token, by_cookie


def _cookie(header: str) -> str | None:
    try:
        morsel = SimpleCookie(header).get(COOKIE)
    except CookieError:
        return None
    return None if morsel is None else morsel.value


def _check_own_page(scope: Scope) -> None:
    """A cookie comes along by itself: it counts only when our own page sends it.

    Browsers send it to and from every port of this machine, so the page of another local server is not to be trusted.
    """
    headers = {name: value for name, value in scope["headers"] if name in (b"origin", b"sec-fetch-site")}
    site = headers.get(b"sec-fetch-site")
    changes = scope["type"] == "websocket" or scope["method"] not in ("GET", "HEAD", "OPTIONS")
    if site is not None and site not in (b"same-origin", b"none"):
        raise NotAllowed("this request comes from the page of another site; use Stagedoor's own page")
    if changes and b"origin" not in headers and site != b"same-origin":
        raise NotAllowed(
            "a request with a cookie needs an Origin header; outside a browser send Authorization: Bearer TOKEN"
        )


def _with_subprotocol(send: Send) -> Send:
    async def send_accept(message: Message) -> None:
        if message["type"] == "websocket.accept" and message.get("subprotocol") is None:
            message = {**message, "subprotocol": SUBPROTOCOL}
        await send(message)

    return send_accept
