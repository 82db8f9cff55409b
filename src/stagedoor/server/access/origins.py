"""From where: which names this server answers to, and which pages may send requests to it.

A page of somebody else can make a browser connect here by a name that it lets point to this machine (DNS rebinding):
so ``Host`` must be a name we know, or the very address the connection came in at, which no DNS can forge. And it can
send requests across sites: so ``Origin``, where one is sent, must be this server's own: scheme, name and port. Where a
proxy does TLS for us, the page's scheme is not the connection's; only a configured ``https://NAME`` allows that.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Collection, Iterable
from typing import TypeAlias
from urllib.parse import urlsplit

from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from stagedoor.errors import NotAllowed
from stagedoor.service.config.settings import Settings

from ..problems import RefusedRequest, problem_response

Origin: TypeAlias = tuple[str, str, int]
"""Scheme, name, port."""
PROXIED = "https://"
PORTS = {"http": 80, "https": 443}
_ORIGIN = re.compile(r"(https?)://(\[[0-9a-f:.]+\]|[a-z0-9_.-]+)(?::([0-9]{1,5}))?", re.IGNORECASE | re.ASCII)
LOCAL_NAMES = ("localhost", "127.0.0.1", "::1")
SAFE = ("GET", "HEAD", "OPTIONS")
POLICY = "; ".join(
    (
        "default-src 'none'", "script-src 'self'", "style-src 'self'", "img-src 'self' data:", "connect-src 'self'",
        "manifest-src 'self'", "worker-src 'self'", "base-uri 'none'", "form-action 'none'", "frame-ancestors 'none'",
    )
)  # fmt: skip
HEADERS = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-resource-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=()",
    "cache-control": "no-store",
}
"""Sent with every answer that does not set them itself."""


def own_names(settings: Settings) -> frozenset[str]:
    """The names this server is reached by. All addresses (``0.0.0.0``) is not a name."""
    configured = (host_of(name.removeprefix(PROXIED)) for name in (settings.host, *settings.hosts))
    return frozenset({*LOCAL_NAMES, *(name for name in configured if name and not _unspecified(name))})


def host_of(netloc: str) -> str:
    """The name in ``name:port`` or ``[address]:port``; empty when it is neither."""
    if "@" in netloc:
        return ""
    try:
        host = urlsplit(f"//{netloc.strip()}").hostname or ""
    except ValueError:
        return ""
    return host.removesuffix(".")


def proxied_origins(settings: Settings) -> frozenset[Origin]:
    """The pages that reach us through a proxy with TLS: those configured with their scheme."""
    parsed = (origin_of(name) for name in settings.hosts if name.startswith(PROXIED))
    return frozenset(origin for origin in parsed if origin is not None)


def origin_of(text: str) -> Origin | None:
    """An origin as browsers write it; ``None`` for ``null``, and for anything with a user, a path or a space in it."""
    match = _ORIGIN.fullmatch(text)
    if match is None:
        return None
    scheme, name, port = match[1].lower(), match[2].lower(), int(match[3] or 0)
    return (scheme, name, port or PORTS[scheme]) if port < 65_536 else None


def own_page(origin: str, host: str, scheme: str, proxied: Collection[Origin] = ()) -> bool:
    """Whether a page of ``origin`` may send requests to ``host`` over ``scheme``; never from ``null``."""
    page = origin_of(origin)
    if page is None:
        return False
    own = {"ws": "http", "wss": "https"}.get(scheme, scheme)
    return page == origin_of(f"{own}://{host}") or (page in proxied and page == origin_of(f"{page[0]}://{host}"))


class Origins:
    def __init__(self, app: ASGIApp, names: Iterable[str], proxied: Collection[Origin] = ()) -> None:
        self._app = app
        self._names = frozenset(names)
        self._proxied = proxied

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket"):
            await self._app(scope, receive, send)
            return
        send = _with_headers(send) if scope["type"] == "http" else send
        try:
            self._check(scope)
        except (RefusedRequest, NotAllowed) as fault:
            await problem_response(fault, instance=scope["path"])(scope, receive, send)
            return
        await self._app(scope, receive, send)

    def _check(self, scope: Scope) -> None:
        hosts = [value.decode("latin-1") for name, value in scope["headers"] if name == b"host"]
        if len(hosts) != 1 or not self._is_own(host_of(hosts[0]), scope):
            raise RefusedRequest(
                "wrong-host",
                "this server does not answer to that name; to allow it, add it to server.hosts in its configuration",
            )
        if scope["type"] == "http" and scope["method"] in SAFE:
            return
        for name, value in scope["headers"]:
            if name == b"origin" and not self._is_own_page(value, hosts[0], scope["scheme"]):
                raise NotAllowed(
                    "this request comes from the page of another site; use Stagedoor's own page (where a proxy does "
                    "TLS for this server, write its name with https:// into server.hosts)"
                )

    def _is_own_page(self, origin: bytes, host: str, scheme: str) -> bool:
        return own_page(origin.decode("latin-1"), host, scheme, self._proxied)

    def _is_own(self, name: str, scope: Scope) -> bool:
        return name in self._names or (bool(name) and name == _address(scope))


def _address(scope: Scope) -> str:
    """Where the connection came in; an IPv4 one at an IPv6 socket is written with a prefix."""
    server = scope.get("server")
    return "" if server is None else str(server[0]).partition("%")[0].removeprefix("::ffff:")


def _unspecified(name: str) -> bool:
    try:
        return ipaddress.ip_address(name).is_unspecified
    except ValueError:
        return False


def _with_headers(send: Send) -> Send:
    async def send_with_headers(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(scope=message)
            for name, value in HEADERS.items():
                headers.setdefault(name, value)
        await send(message)

    return send_with_headers
