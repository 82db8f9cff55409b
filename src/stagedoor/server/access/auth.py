"""Who comes in, and what they may do.

A caller shows a token: in ``Authorization: Bearer``, in the cookie ``stagedoor`` (browsers), or as a WebSocket
subprotocol ``bearer.TOKEN`` beside ``stagedoor``; never in a URL. Every path needs one unless it is in ``PUBLIC``. What
is behind this door sees ``scope["state"]["caller"]`` and no token. A revoked device loses its open streams at once.
"""

from __future__ import annotations

import asyncio
import contextlib
from http.cookies import CookieError, SimpleCookie
from typing import Any

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from stagedoor.errors import NotAllowed

from ..problems import Refused, problem_response
from .devices import LOCAL, RIGHTS, Caller, Devices, Visit, demand

__all__ = ["COOKIE", "LOCAL", "RIGHTS", "Authentication", "Caller", "caller_of", "demand"]

COOKIE = "stagedoor"
SUBPROTOCOL = "stagedoor"
PUBLIC = frozenset({"/", "/sw.js", "/healthz", "/readyz", "/api/pair", "/openapi.json", "/docs"})
"""Nothing that was said or done by anybody is told here."""
PUBLIC_UNDER = ("/static/", "/docs/")
CLOSE_CODES = {"revoked": 4401, "stopping": 1012}
SAID = {
    "revoked": "this device was revoked; pair it again",
    "stopping": "the server is stopping; come back when it is up again",
}
NOBODY = Caller("", "nobody", ())


def caller_of(connection: Any) -> Caller:
    """The caller of a request, a WebSocket or a scope. Raises ``Refused`` when there is none."""
    caller: Caller | None = getattr(connection, "scope", connection).get("state", {}).get("caller")
    if caller is None or caller is NOBODY:
        raise Refused("not-signed-in", "show a token: Authorization: Bearer TOKEN")
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
            caller = self._enter(scope)
        except (Refused, NotAllowed) as fault:
            await problem_response(fault, instance=scope["path"])(scope, receive, send)
            return
        scope.setdefault("state", {})["caller"] = caller
        if scope["type"] == "websocket":
            await self._converse(caller, scope, receive, send)
        elif scope["method"] == "GET":
            await self._answer(caller, scope, receive, send)
        else:  # what changes something is never cut short
            await self._app(scope, receive, send)

    def _enter(self, scope: Scope) -> Caller:
        if self._devices.stopping:
            raise Refused("unavailable", SAID["stopping"])
        token, by_cookie = _take_token(scope)
        caller = None if token is None else self._devices.caller(token)
        if caller is not None:
            if by_cookie:
                _own_page(scope)
            return caller
        if scope["path"] in PUBLIC or scope["path"].startswith(PUBLIC_UNDER):
            return NOBODY
        if token is None:
            raise Refused("not-signed-in", "show a token: Authorization: Bearer TOKEN, or pair this device first")
        raise Refused("not-signed-in", "this token is not known here, or was revoked; pair the device again")

    async def _converse(self, caller: Caller, scope: Scope, receive: Receive, send: Send) -> None:
        named = _with_subprotocol(send) if SUBPROTOCOL in scope["subprotocols"] else send
        with self._devices.visit(caller) as visit:
            try:
                await self._app(scope, receive, named)
            except asyncio.CancelledError:
                why = _ended_by(visit)
                with contextlib.suppress(Exception):  # it may have been closed before
                    async with asyncio.timeout(1):
                        await send({"type": "websocket.close", "code": CLOSE_CODES[why], "reason": SAID[why]})

    async def _answer(self, caller: Caller, scope: Scope, receive: Receive, send: Send) -> None:
        begun = over = False

        async def watched(message: Message) -> None:
            nonlocal begun, over
            begun = True
            over = message["type"] == "http.response.body" and not message.get("more_body", False)
            await send(message)

        with self._devices.visit(caller) as visit:
            try:
                await self._app(scope, receive, watched)
            except asyncio.CancelledError:
                why = _ended_by(visit)
                with contextlib.suppress(Exception):
                    async with asyncio.timeout(1):
                        if not begun:
                            fault = Refused("not-signed-in" if why == "revoked" else "unavailable", SAID[why])
                            await problem_response(fault, instance=scope["path"])(scope, receive, send)
                        elif not over:
                            await send({"type": "http.response.body", "body": b"", "more_body": False})


def _ended_by(visit: Visit) -> str:
    if visit.ended_by is None:
        raise asyncio.CancelledError
    visit.take_back()
    return visit.ended_by


def _take_token(scope: Scope) -> tuple[str | None, bool]:
    """The token that is shown and whether a browser's cookie shows it; both are taken out of ``scope``."""
    token: str | None = None
    by_cookie = False
    kept: list[tuple[bytes, bytes]] = []
    for name, value in scope["headers"]:
        if name == b"authorization":
            scheme, _, shown = value.decode("latin-1").partition(" ")
            if scheme.lower() == "bearer":
                token, by_cookie = shown.strip(), False
        elif name == b"cookie":
            found = _cookie(value.decode("latin-1"))
            if found is not None and token is None:
                token, by_cookie = found, True
        elif name == b"sec-websocket-protocol":
            for word in value.decode("latin-1").split(","):
                if word.strip().startswith("bearer."):
                    token, by_cookie = word.strip().removeprefix("bearer."), False
        else:
            kept.append((name, value))
    scope["headers"] = kept
    if scope["type"] == "websocket":
        offered: list[str] = scope.get("subprotocols", [])
        scope["subprotocols"] = [word for word in offered if not word.startswith("bearer.")]
    return token, by_cookie


def _cookie(header: str) -> str | None:
    try:
        found = SimpleCookie(header).get(COOKIE)
    except CookieError:
        return None
    return None if found is None else found.value


def _own_page(scope: Scope) -> None:
    """A cookie comes along by itself: it counts only when our own page sends it.

    Browsers send it to and from every port of this machine, so the page of another local server is not to be trusted.
    """
    headers = {name: value for name, value in scope["headers"] if name in (b"origin", b"sec-fetch-site")}
    site = headers.get(b"sec-fetch-site")
    changes = scope["type"] == "websocket" or scope["method"] not in ("GET", "HEAD", "OPTIONS")
    if site is not None and site not in (b"same-origin", b"none"):
        raise NotAllowed("this browser request comes from another page; open Stagedoor's own page")
    if changes and b"origin" not in headers and site != b"same-origin":
        raise NotAllowed("a request with a cookie needs an Origin; use Authorization: Bearer TOKEN outside a browser")


def _with_subprotocol(send: Send) -> Send:
    async def accepting(message: Message) -> None:
        if message["type"] == "websocket.accept" and message.get("subprotocol") is None:
            message = {**message, "subprotocol": SUBPROTOCOL}
        await send(message)

    return accepting
