"""Letting devices in: one-time codes, the list of devices, revoking. The answers hold secrets and are never kept.

The code travels in the fragment of the link (``/#pair=CODE``), which browsers do not send: no log can have it.
"""

from __future__ import annotations

import io
import logging
import uuid
from collections.abc import Awaitable, Callable
from typing import Annotated, Any

import msgspec
from msgspec import Meta
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from stagedoor.engine import milliseconds
from stagedoor.service.service import Service
from stagedoor.service.views import Device, Scope

from ..address import public_url
from ..codes import SECONDS, Codes
from ..reading import as_type, read_body, read_query
from .auth import COOKIE, caller_of, demand
from .devices import LOCAL, Devices

_log = logging.getLogger("stagedoor.server")
COOKIE_SECONDS = 400 * 24 * 3600
SMALL = 10_000
"""Bytes: nothing said here is long, and ``/api/pair`` is open to everybody."""


class PairingWanted(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What the new device may do, and what it is called until it says so itself."""

    scope: Scope = "run"
    name: Annotated[str, Meta(max_length=80)] = ""


class Pairing(msgspec.Struct, frozen=True, rename="camel"):
    code: str
    url: str
    """Open it on the new device; it pairs itself."""
    scope: Scope
    expires_at: int
    qr: str
    """The ``url`` as an SVG image."""


class Newcomer(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    code: Annotated[str, Meta(max_length=40)]
    name: Annotated[str, Meta(max_length=80)] = ""
    cookie: bool = False
    """For a browser: the token comes as a cookie that no script can read, and not in the answer."""


class Paired(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    device_id: str
    name: str
    scopes: tuple[Scope, ...]
    token: str | None = None


class DeviceView(msgspec.Struct, frozen=True, rename="camel"):
    id: str
    name: str
    scopes: tuple[Scope, ...]
    created_at: int
    seen_at: int | None
    current: bool
    """The one that asks."""


class DeviceList(msgspec.Struct, frozen=True):
    devices: list[DeviceView]


class Me(msgspec.Struct, frozen=True, rename="camel"):
    device_id: str
    name: str
    scopes: tuple[Scope, ...]


def routes(service: Service, devices: Devices, codes: Codes) -> list[BaseRoute]:
    desk = _Desk(service, devices, codes)
    table: list[tuple[str, str, Callable[[Request], Awaitable[Response]]]] = [
        ("POST", "/api/pairing", desk.invite),
        ("POST", "/api/pair", desk.pair),
        ("GET", "/api/devices", desk.list),
        ("DELETE", "/api/devices/{id}", desk.revoke),
        ("GET", "/api/me", desk.me),
    ]
    return [Route(path, answer, methods=[method]) for method, path, answer in table]


class _Desk:
    def __init__(self, service: Service, devices: Devices, codes: Codes) -> None:
        self._settings = service.settings
        self._devices = devices
        self._codes = codes

    async def invite(self, request: Request) -> Response:
        caller = caller_of(request)
        demand(caller, "admin")
        body = await _body(request)
        wanted: PairingWanted = as_type({} if body is msgspec.UNSET else body, PairingWanted)
        code = self._codes.new(wanted.scope, wanted.name, by=caller.device_id)
        url = f"{public_url(self._settings, request.scope)}/#pair={code.shown}"
        return _json(
            Pairing(
                code=code.shown,
                url=url,
                scope=code.scope,
                expires_at=milliseconds() + int(SECONDS * 1000),
                qr=_qr(url),
            ),
            201,
        )

    async def pair(self, request: Request) -> Response:
        newcomer: Newcomer = as_type(await _body(request), Newcomer)
        code = self._codes.use(newcomer.code, request.client.host if request.client else "")
        name = code.name or newcomer.name.strip() or "a device"
        device, token = await self._devices.add(str(uuid.uuid4()), name, code.scope)
        paired = Paired(device.id, device.name, device.scopes, None if newcomer.cookie else token)
        _log.info("a device was let in", extra={"device": device.id, "called": device.name, "scope": code.scope})
        response = _json(paired, 201)
        if newcomer.cookie:
            secure = request.scope["scheme"] == "https"
            response.set_cookie(
                COOKIE, token, max_age=COOKIE_SECONDS, path="/", secure=secure, httponly=True, samesite="strict"
            )
        return response

    async def list(self, request: Request) -> Response:
        caller = caller_of(request)
        demand(caller, "admin")
        read_query(request.scope["query_string"], None)
        return _json(DeviceList([_shown(device, caller.device_id) for device in self._devices.all()]))

    async def revoke(self, request: Request) -> Response:
        """Somebody else's takes ``admin``; one's own takes nothing."""
        caller, device_id = caller_of(request), request.path_params["id"]
        if device_id != caller.device_id or device_id == LOCAL:
            demand(caller, "admin")
        await self._devices.revoke(device_id)
        self._codes.void(device_id)
        _log.info("a device was revoked", extra={"device": device_id, "by": caller.device_id})
        response = Response(status_code=204)
        if device_id == caller.device_id:
            response.delete_cookie(COOKIE, path="/", httponly=True, samesite="strict")
        return response

    async def me(self, request: Request) -> Response:
        caller = caller_of(request)
        return _json(Me(caller.device_id, caller.name, caller.scopes))


async def _body(request: Request) -> Any:
    read_query(request.scope["query_string"], None)
    return await read_body(request, limit=SMALL, optional=request.url.path == "/api/pairing")


def _json(value: msgspec.Struct, status: int = 200) -> Response:
    return Response(msgspec.json.encode(value), status, {"cache-control": "no-store"}, "application/json")


def _shown(device: Device, current: str) -> DeviceView:
    return DeviceView(
        id=device.id,
        name=device.name,
        scopes=device.scopes,
        created_at=device.created_at,
        seen_at=device.seen_at or None,
        current=device.id == current,
    )


def _qr(url: str) -> str:
    import segno  # only this needs it

    drawn = io.BytesIO()
    code = segno.make(url, error="m", micro=False)
    code.save(drawn, kind="svg", xmldecl=False, nl=False, scale=6, border=4, omitsize=True, light="#fff")
    return drawn.getvalue().decode()
