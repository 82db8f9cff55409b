"""Who is told: the receivers of the configuration, those that were added on the page, and browsers by Web Push.

Those of the page and the browsers are rows of the log, where every door finds them. Addresses are secrets: nobody is
shown more than their host, and no worker can read them.
"""

from __future__ import annotations

import asyncio
import base64
import ipaddress
import logging
import os
import uuid
from pathlib import Path
from typing import Annotated, Literal, TypeAlias, TypeVar
from urllib.parse import urlsplit

import msgspec
from msgspec import Meta

from stagedoor.errors import BadRequest, NotAllowed, SessionNotFound, StoreError, TooMany
from stagedoor.transports.posting import address_problem, is_public
from stagedoor.transports.tasks import TaskOwner

from ..config.settings import Settings
from ..store import Secret, Store
from .delivery import Destination, LastDelivery, Notifications
from .notices import OCCASIONS, NtfyTarget, Occasion, PushTarget, WebhookTarget
from .signing import SECRET_PREFIX, secret_key
from .webpush import PushKey, browser_keys, key_in, push_key

_log = logging.getLogger("stagedoor.notify")
ROW = "receiver "
"""How the names of rows begin, one for each that was added on the page."""
KEY = "push key"
"""The row of the key that all doors sign with, where there are several."""
MOST_RECEIVERS = 20
LOCAL = "local"
CONTACT = "mailto:stagedoor@example.org"
Url: TypeAlias = Annotated[str, Meta(min_length=1, max_length=2000)]
ReceiverKind: TypeAlias = Literal["webhook", "ntfy", "push"]
ReceiverOrigin: TypeAlias = Literal["config", "page", "device"]
Token: TypeAlias = Annotated[str, Meta(max_length=500)]


class ReceiverBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A new receiver. ``secret``: what a webhook is signed with; without one it is made, and shown in the answer."""

    kind: Literal["webhook", "ntfy"]
    url: Url
    secret: Token = ""
    token: Token = ""
    """Of an ntfy topic that needs one."""
    events: tuple[Occasion, ...] = OCCASIONS
    content: bool = False


class PushKeys(msgspec.Struct, frozen=True):
    p256dh: Annotated[str, Meta(max_length=200)]
    auth: Annotated[str, Meta(max_length=200)]


class SubscriptionBody(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A ``PushSubscription`` as the browser writes it, and what it is told."""

    endpoint: Url
    keys: PushKeys
    events: tuple[Occasion, ...] = OCCASIONS
    content: bool = False


class PushState(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """``publicKey`` is what the browser subscribes with (``applicationServerKey``). The rest is of the caller."""

    public_key: str
    subscribed: bool = False
    events: tuple[Occasion, ...] = OCCASIONS
    content: bool = False
    last: LastDelivery | None = None


class ReceiverView(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """``origin``: where it can be changed. ``secret`` is shown once, when it was made."""

    id: str
    kind: ReceiverKind
    origin: ReceiverOrigin
    name: str
    events: tuple[Occasion, ...]
    content: bool = False
    last: LastDelivery | None = None
    secret: str = ""


class StoredReceiver(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    body: ReceiverBody
    at: int = 0
    """Since when: milliseconds since 1970."""


class StoredSubscription(msgspec.Struct, frozen=True, kw_only=True):
    server_key: str
    """The one that the browser gave it to."""
    body: SubscriptionBody
    at: int = 0


Stored = TypeVar("Stored", StoredReceiver, StoredSubscription)


class Receivers:
    """``service.receivers``. ``is_door``: whether those of the page and browsers are told from here."""

    def __init__(
        self, store: Store, settings: Settings, home: Path, notifications: Notifications, *, is_door: bool = True
    ) -> None:
        self._is_door = is_door
        if store.shared and is_door:
            notifications.refresh = self.refresh
        self._store = store
        self._settings = settings
        self._home = home
        self._out = notifications
        self._key: PushKey | None = None
        self._rows: dict[str, StoredReceiver] = {}
        self._subscriptions: dict[str, StoredSubscription] = {}
        self._names: dict[str, str] = {}
        self._unreadable: dict[str, bytes] = {}
        """Rows that were complained of."""
        self._writing = asyncio.Lock()
        self._tasks = TaskOwner()

    async def load(self) -> None:
        """From the log, as it stands now. A worker may not read it."""
        if not self._is_door:
            return
        async with self._writing:
            await self._load(await self._store.secrets())

    async def refresh(self) -> None:
        """Where other doors may have changed it."""
        if self._store.shared:
            await self.load()

    async def _load(self, secrets: dict[str, bytes]) -> None:
        stored = [self._read(name, StoredReceiver, secrets) for name in secrets if name.startswith(ROW)]
        rows = {row.id: row for row in stored if row is not None}
        for gone in [name for name in self._rows if name not in rows]:
            self._rows.pop(gone)
            self._out.remove(gone)
        for row in rows.values():
            if self._rows.get(row.id) != row:
                self._put_row(row)
        subscribed: set[str] = set()
        for device in await self._store.devices():
            name = push_row(device.id)
            subscription = None if device.revoked_at is not None else self._read(name, StoredSubscription, secrets)
            if subscription is None:
                continue
            key = await self._server_key()
            # One for a key that is no more, or not allowed any more: the page subscribes again when it is opened.
            if subscription.server_key == key.public and not self._endpoint_problem(subscription.body.endpoint):
                subscribed.add(device.id)
                self._names[device.id] = device.name
                if self._subscriptions.get(device.id) != subscription:
                    target = await self._target(device.id, subscription.body, key)
                    self._put_subscription(device.id, subscription, target, secrets[name])
        for gone in [name for name in self._subscriptions if name not in subscribed]:
            self.forget(gone)

    def _read(self, name: str, kind: type[Stored], secrets: dict[str, bytes]) -> Stored | None:
        """A row that a newer version wrote may say what this one does not know: others tell that receiver."""
        if (value := secrets.get(name)) is None:
            return None
        try:
            return msgspec.json.decode(value, type=kind)
        except msgspec.DecodeError as fault:
            if self._unreadable.get(name) != value:  # once, and not at every look
                self._unreadable[name] = value
                _log.warning("a receiver of notifications cannot be read and is told nothing from here: %s", fault)
            return None

    async def close(self) -> None:
        await self._tasks.finish()

    def list(self) -> list[ReceiverView]:
        return [self._view(destination, last) for destination, last in self._out.destinations()]

    async def add(self, body: ReceiverBody) -> ReceiverView:
        if problem := address_problem(body.url):
            raise BadRequest(f"this address cannot be used: {problem}")
        if not body.events:
            raise BadRequest("say what it is told: events is empty")
        fresh = ""
        if body.kind == "webhook":
            fresh = "" if body.secret else SECRET_PREFIX + base64.b64encode(os.urandom(32)).decode()
            body = msgspec.structs.replace(body, secret=body.secret or fresh)
            try:
                secret_key(body.secret)
            except ValueError:
                raise BadRequest("the secret must be whsec_ and the base64 of 24 to 64 random bytes") from None
        if not all(" " <= letter <= "~" for letter in body.token):
            raise BadRequest("the token holds characters that cannot be sent")
        await self.refresh()
        async with self._writing:
            if len(self._rows) >= MOST_RECEIVERS:
                raise TooMany(f"there are {MOST_RECEIVERS} receivers, which is the limit; remove one first")
            row = StoredReceiver(id=uuid.uuid4().hex, body=body, at=self._out.now())
            await self._store.write(Secret(f"{ROW}{row.id}", msgspec.json.encode(row)))
            self._put_row(row)
        return msgspec.structs.replace(self._view_of(row.id), secret=fresh)

    async def remove(self, receiver_id: str) -> None:
        """One of the page, or a device's subscription."""
        await self.refresh()
        view = self._view_of(receiver_id)
        if view.origin == "config":
            raise NotAllowed("this receiver is in the configuration: remove it there (stagedoor config edit)")
        if view.origin == "device":
            await self.unsubscribe(receiver_id)
            return
        async with self._writing:
            await self._store.write(Secret(f"{ROW}{receiver_id}", None))
            self._rows.pop(receiver_id, None)
            self._out.remove(receiver_id)

    async def test(self, receiver_id: str) -> LastDelivery:
        """One try, now: whether it arrived."""
        await self.refresh()
        try:
            return await self._out.test(receiver_id)
        except KeyError:
            raise _unknown(receiver_id) from None

    # -- browsers

    async def push_state(self, device_id: str) -> PushState:
        await self.refresh()
        public = (await self._server_key()).public
        row = self._subscriptions.get(device_id)
        if row is None:
            return PushState(public_key=public)
        last = next((last for destination, last in self._out.destinations() if destination.id == device_id), None)
        return PushState(
            public_key=public, subscribed=True, events=row.body.events, content=row.body.content, last=last
        )

    async def subscribe(self, device_id: str, name: str, body: SubscriptionBody) -> PushState:
        """The device's one subscription, in place of the one before."""
        if device_id == LOCAL:
            raise BadRequest("only a paired device can be notified; pair this browser first (stagedoor pair)")
        if problem := self._endpoint_problem(body.endpoint):
            raise BadRequest(f"the address of this push service cannot be used: {problem}")
        key = await self._server_key()
        row = StoredSubscription(server_key=key.public, body=body, at=self._out.now())
        target = await self._target(device_id, body, key)
        async with self._writing:
            stored = msgspec.json.encode(row)
            await self._store.write(Secret(push_row(device_id), stored))
            self._names[device_id] = name
            self._put_subscription(device_id, row, target, stored)  # at once: a device that is revoked now is not told
        return await self.push_state(device_id)

    async def unsubscribe(self, device_id: str) -> None:
        async with self._writing:
            self.forget(device_id)
            await self._store.write(Secret(push_row(device_id), None))

    def forget(self, device_id: str) -> None:
        """The device was revoked, or has unsubscribed: it is told nothing any more."""
        self._subscriptions.pop(device_id, None)
        self._names.pop(device_id, None)
        self._out.remove(device_id)

    # -- inside

    def _put_row(self, row: StoredReceiver) -> None:
        self._rows[row.id] = row
        body = row.body
        name = f"{body.kind} {row.id[:4]}"
        target = (
            WebhookTarget(name, body.url, body.secret)
            if body.kind == "webhook"
            else NtfyTarget(name, body.url, body.token)
        )
        on = frozenset(body.events)
        self._out.add(Destination(id=row.id, target=target, on=on, content=body.content, since=row.at))

    async def _target(self, device_id: str, body: SubscriptionBody, key: PushKey) -> PushTarget:
        public, secret = await asyncio.to_thread(browser_keys, body.keys.p256dh, body.keys.auth)
        name, own = f"push {device_id[:8]}", self._is_own(body.endpoint)
        return PushTarget(name, body.endpoint, public, secret, key, self._contact, public_only=not own)

    def _put_subscription(self, device_id: str, row: StoredSubscription, target: PushTarget, stored: bytes) -> None:
        self._subscriptions[device_id] = row
        on = frozenset(row.body.events)
        destination = Destination(id=device_id, target=target, on=on, content=row.body.content, since=row.at)
        self._out.add(destination, lambda: self._unsubscribed(device_id, row, stored))

    def _unsubscribed(self, device_id: str, row: StoredSubscription, stored: bytes) -> None:
        if self._subscriptions.get(device_id) is row:
            _log.info("a browser has unsubscribed from notifications", extra={"device": device_id})
            self.forget(device_id)
            self._tasks.start(self._erase(device_id, stored))

    async def _erase(self, device_id: str, stored: bytes) -> None:
        """Only the one that is no more: the browser may have subscribed anew meanwhile, at another door."""
        try:
            await self._store.write(Secret(push_row(device_id), None, stored=stored))
        except StoreError:
            _log.warning("a subscription that is no more could not be removed", extra={"device": device_id})

    async def _server_key(self) -> PushKey:
        if self._key is None:
            self._key = await (self._common_key() if self._store.shared else asyncio.to_thread(push_key, self._home))
        return self._key

    async def _common_key(self) -> PushKey:
        """That of the first door: what a browser gave to one door, every door may use."""
        if (stored := (await self._store.secrets()).get(KEY)) is None:
            own = await asyncio.to_thread(push_key, self._home)
            await self._store.write(Secret(KEY, own.text, first=True))
            stored = (await self._store.secrets())[KEY]
        return await asyncio.to_thread(key_in, stored)

    def _contact(self) -> str:
        page = self._out.page
        return self._settings.push_contact or (page if page.startswith("https://") else CONTACT)

    def _is_own(self, endpoint: str) -> bool:
        parts = urlsplit(endpoint)
        return parts.netloc in self._settings.push_hosts or parts.hostname in self._settings.push_hosts

    def _endpoint_problem(self, endpoint: str) -> str:
        if problem := address_problem(endpoint):
            return problem
        parts = urlsplit(endpoint)
        if self._is_own(endpoint):
            return ""
        if parts.scheme != "https":
            return "it must begin with https://"
        host = parts.hostname or ""
        if "." not in host and ":" not in host:
            return _INNER
        try:
            ipaddress.ip_address(host)
        except ValueError:
            return ""
        return "" if is_public(host) else _INNER

    def _view_of(self, receiver_id: str) -> ReceiverView:
        for view in self.list():
            if view.id == receiver_id:
                return view
        raise _unknown(receiver_id)

    def _view(self, destination: Destination, last: LastDelivery | None) -> ReceiverView:
        target = destination.target
        kind: ReceiverKind = "webhook" if isinstance(target, WebhookTarget) else "ntfy"
        origin: ReceiverOrigin = "page" if destination.id in self._rows else "config"
        if isinstance(target, PushTarget):
            kind, origin, name = "push", "device", self._names.get(destination.id, "")
        else:
            name = urlsplit(target.url).netloc
        events: tuple[Occasion, ...] = tuple(one for one in OCCASIONS if one in destination.on)
        return ReceiverView(
            id=destination.id,
            kind=kind,
            origin=origin,
            name=name,
            events=events,
            content=destination.content,
            last=last,
        )


_INNER = "it is in this machine's own network; where that is meant, name its host in notify.push_hosts"


def push_row(device_id: str) -> str:
    return f"push to {device_id}"


def _unknown(receiver_id: str) -> SessionNotFound:
    return SessionNotFound(f"receiver {receiver_id!r} not found; GET /api/receivers lists them")
