"""Pairing devices: one-time codes, the list of devices, revoking. The answers hold secrets and are never stored.

The code travels in the fragment of the link (``/#pair=CODE``), which browsers do not send: no log can have it.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import io
import logging
import secrets
import uuid
from collections import deque
from collections.abc import Awaitable, Callable
from time import monotonic
from typing import Annotated, Any, TypeAlias

import msgspec
from msgspec import Meta
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from stagedoor.dialects import DIALECTS
from stagedoor.engine import milliseconds
from stagedoor.service.machines import LETTERS
from stagedoor.service.service import Service
from stagedoor.service.store import Admission
from stagedoor.service.views import Device, OneTimeCode, Scope

from ..certificate import own_fingerprint
from ..problems import RefusedRequest
from ..reading import as_type, read_body, read_query
from ..running import can_be_reached, public_url
from ..streams.dialect_cursor import CANONICAL, check_dialect
from .auth import COOKIE, caller_of
from .devices import LOCAL, Devices, demand

_log = logging.getLogger("stagedoor.server")
COOKIE_SECONDS = 400 * 24 * 3600
SMALL = 10_000
"""Bytes: no body here is long, and ``/api/pair`` is open to everybody."""
LENGTH = 8
CODE_SECONDS = 300.0
MAX_CODES = 16
WINDOW = 300.0
WRONG_FROM_ONE = 10
WRONG_FROM_ALL = 60
_LATER = {"retry-after": str(int(WINDOW))}


class PairingCode(msgspec.Struct, frozen=True):
    text: str
    scope: Scope
    name: str
    until: float
    by: str = ""
    dialect: str = ""

    @property
    def display(self) -> str:
        """In two halves, as people read it."""
        return f"{self.text[:4]}-{self.text[4:]}"


class PairingCodes:
    """One-time codes: short, for minutes, once, and not to be guessed.

    A code has nearly 40 bits and lives for five minutes. Wrong ones are counted, for each address and for all: with at
    most ``WRONG_FROM_ALL`` of them in ``WINDOW`` seconds, guessing one takes longer than a human life. They are in
    memory only: a restart voids them all. Where several doors share a log, those of ``invite`` are kept there instead
    (``shared``), as digests that no worker can read or write, and count at each of them.
    """

    def __init__(self, clock: Callable[[], float] = monotonic, shared: Admission | None = None) -> None:
        self._clock = clock
        self._shared = shared
        self._codes: list[PairingCode] = []
        self._wrong: deque[tuple[float, str]] = deque(maxlen=WRONG_FROM_ALL)

    def new(self, scope: Scope, name: str = "", *, by: str = "", dialect: str = "") -> PairingCode:
        """One that counts at this door."""
        self._drop_old()
        code = self._fresh(scope, name, by, dialect)
        self._codes = [*self._codes, code][-MAX_CODES:]
        return code

    async def invite(self, scope: Scope, name: str = "", *, by: str = "", dialect: str = "") -> PairingCode:
        """One that counts at every door."""
        if self._shared is None:
            return self.new(scope, name, by=by, dialect=dialect)
        code = self._fresh(scope, name, by, dialect)
        row = OneTimeCode(digest=_digest(code.text), scope=scope, name=name, by=by, dialect=dialect)
        await self._shared.put_code(row, CODE_SECONDS)
        return code

    def _fresh(self, scope: Scope, name: str, by: str, dialect: str) -> PairingCode:
        text = "".join(secrets.choice(LETTERS) for _ in range(LENGTH))
        return PairingCode(text, scope, name, self._clock() + CODE_SECONDS, by, dialect)

    async def use(self, text: str, address: str) -> PairingCode:
        """The code, which cannot be used again. Raises ``RefusedRequest``."""
        self._drop_old()
        if len(self._wrong) >= WRONG_FROM_ALL or sum(sender == address for _, sender in self._wrong) >= WRONG_FROM_ONE:
            raise RefusedRequest(
                "too-many",
                "too many wrong codes; wait five minutes, then run stagedoor pair for a new one",
                headers=_LATER,
            )
        entered = "".join(text.upper().split()).replace("-", "")
        wrong = (self._clock(), address)
        self._wrong.append(wrong)  # until it is known: many at once are counted, too
        try:
            match = self._own(entered) or await self._of_all_doors(entered)
        except BaseException:  # the log is away: that is no guess
            self._right(wrong)
            raise
        if match is None:
            raise RefusedRequest(
                "not-signed-in", "this code is wrong, used or older than five minutes; run stagedoor pair for a new one"
            )
        self._right(wrong)
        return match

    def _right(self, attempt: tuple[float, str]) -> None:
        with contextlib.suppress(ValueError):  # others may have pushed it out meanwhile
            self._wrong.remove(attempt)

    def _own(self, entered: str) -> PairingCode | None:
        match: PairingCode | None = None
        for code in self._codes:
            if hmac.compare_digest(code.text.encode(), entered.encode(errors="replace")):
                match = code
        if match is not None:
            self._codes.remove(match)
        return match

    async def _of_all_doors(self, entered: str) -> PairingCode | None:
        row = None if self._shared is None else await self._shared.take_code(_digest(entered))
        if row is None or row.scope == "worker":
            return None
        return PairingCode(entered, row.scope, row.name, self._clock(), row.by, row.dialect)

    async def void(self, by: str) -> None:
        """Drop the codes that a device created; it was revoked."""
        self._codes = [code for code in self._codes if code.by != by]
        if self._shared is not None:
            await self._shared.void_codes(by)

    def _drop_old(self) -> None:
        now = self._clock()
        self._codes = [code for code in self._codes if code.until > now]
        while self._wrong and self._wrong[0][0] + WINDOW <= now:
            self._wrong.popleft()


def _digest(text: str) -> bytes:
    return hashlib.sha256(text.encode(errors="replace")).digest()


DeviceDialect: TypeAlias = Annotated[str, Meta(max_length=80, extra_json_schema={"enum": ["", *DIALECTS]})]


class InviteBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What the new device may do, and its name unless it sends one itself."""

    scope: Scope = "run"
    name: Annotated[str, Meta(max_length=80)] = ""
    dialect: DeviceDialect = ""
    """What its streams speak where a request does not say; empty: what the server speaks."""


class DeviceBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What its streams speak where a request does not say; empty: what the server speaks."""

    dialect: DeviceDialect


class Pairing(msgspec.Struct, frozen=True, rename="camel"):
    code: str
    url: str
    """Open it on the new device; it pairs itself."""
    scope: Scope
    expires_at: int
    qr: str
    """The ``url`` as an SVG image; empty where a phone could not open it."""
    reachable: bool
    """Whether other machines can reach this server by ``url``."""
    fingerprint: str
    """SHA-256 of a certificate that the server made itself, in hex; also in ``url``."""


class PairBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
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
    dialect: str
    current: bool
    """The one that sends this request."""


class DeviceList(msgspec.Struct, frozen=True):
    devices: list[DeviceView]


class Me(msgspec.Struct, frozen=True, rename="camel"):
    device_id: str
    name: str
    scopes: tuple[Scope, ...]


def routes(service: Service, devices: Devices, codes: PairingCodes) -> list[BaseRoute]:
    door = _PairingDoor(service, devices, codes)
    table: list[tuple[str, str, Callable[[Request], Awaitable[Response]]]] = [
        ("POST", "/api/pairing", door.invite),
        ("POST", "/api/pair", door.pair),
        ("GET", "/api/devices", door.list),
        ("PATCH", "/api/devices/{id}", door.change),
        ("DELETE", "/api/devices/{id}", door.revoke),
        ("GET", "/api/me", door.me),
    ]
    return [Route(path, answer, methods=[method]) for method, path, answer in table]


class _PairingDoor:
    def __init__(self, service: Service, devices: Devices, codes: PairingCodes) -> None:
        self._settings = service.settings
        self._home = service.home
        self._devices = devices
        self._codes = codes

    async def invite(self, request: Request) -> Response:
        caller = caller_of(request)
        demand(caller, "admin")
        body = await _body(request)
        invite: InviteBody = as_type({} if body is msgspec.UNSET else body, InviteBody)
        check_dialect(invite.dialect or CANONICAL)
        code = await self._codes.invite(invite.scope, invite.name, by=caller.device_id, dialect=invite.dialect)
        page = public_url(self._settings, request.scope)
        digest = own_fingerprint(self._settings, self._home)
        url = pairing_link(page, code.display, digest)
        reachable = can_be_reached(page)
        return _json(
            Pairing(
                code=code.display,
                url=url,
                scope=code.scope,
                expires_at=milliseconds() + int(CODE_SECONDS * 1000),
                qr=_qr(url) if reachable else "",
                reachable=reachable,
                fingerprint=digest,
            ),
            201,
        )

    async def pair(self, request: Request) -> Response:
        body: PairBody = as_type(await _body(request), PairBody)
        code = await self._codes.use(body.code, request.client.host if request.client else "")
        name = code.name or body.name.strip() or "a device"
        device, token = await self._devices.add(str(uuid.uuid4()), name, code.scope, code.dialect)
        paired = Paired(device.id, device.name, device.scopes, None if body.cookie else token)
        _log.info("a device was paired", extra={"device": device.id, "called": device.name, "scope": code.scope})
        response = _json(paired, 201)
        if body.cookie:
            # Its origin was checked: where that is https, a proxy does TLS for us.
            secure = request.scope["scheme"] == "https" or request.headers.get("origin", "").startswith("https://")
            response.set_cookie(
                COOKIE, token, max_age=COOKIE_SECONDS, path="/", secure=secure, httponly=True, samesite="strict"
            )
        return response

    async def list(self, request: Request) -> Response:
        caller = caller_of(request)
        demand(caller, "admin")
        read_query(request.scope["query_string"], None)
        return _json(DeviceList([_view(device, caller.device_id) for device in self._devices.all()]))

    async def change(self, request: Request) -> Response:
        """Changing another device needs ``admin``; changing oneself needs nothing."""
        caller, device_id = caller_of(request), request.path_params["id"]
        if device_id != caller.device_id or device_id == LOCAL:
            demand(caller, "admin")
        body: DeviceBody = as_type(await _body(request), DeviceBody)
        check_dialect(body.dialect or CANONICAL)
        return _json(_view(await self._devices.speak(device_id, body.dialect), caller.device_id))

    async def revoke(self, request: Request) -> Response:
        """Revoking another device needs ``admin``; revoking oneself needs nothing."""
        caller, device_id = caller_of(request), request.path_params["id"]
        if device_id != caller.device_id or device_id == LOCAL:
            demand(caller, "admin")
        await self._devices.revoke(device_id)
        await self._codes.void(device_id)
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


def _view(device: Device, current: str) -> DeviceView:
    return DeviceView(
        id=device.id,
        name=device.name,
        scopes=device.scopes,
        created_at=device.created_at,
        seen_at=device.seen_at or None,
        dialect=device.dialect,
        current=device.id == current,
    )


def pairing_link(page: str, code: str, fingerprint: str = "") -> str:
    """All of it stands behind ``#``, which browsers do not send. Apps that read it can pin the certificate."""
    return f"{page}/#pair={code}" + (f"&sha256={fingerprint}" if fingerprint else "")


def _qr(url: str) -> str:
    import segno  # only this needs it

    drawn = io.BytesIO()
    code = segno.make(url, error="m", micro=False)
    code.save(drawn, kind="svg", xmldecl=False, nl=False, scale=6, border=4, omitsize=True, light="#fff")
    return drawn.getvalue().decode()
