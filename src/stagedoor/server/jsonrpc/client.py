"""One client: its defaults, what it follows, and its calls that run.

Nothing is queued for a client. Each of its subscriptions reads the log and writes to the client, one message after the
other; a client that reads slowly is sent slowly, and slows nobody else.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Generator
from functools import partial
from typing import TypeAlias

import msgspec

from stagedoor import catalog
from stagedoor.errors import BadRequest, StagedoorError, TooMany
from stagedoor.service.service import Service
from stagedoor.service.views import SessionView
from stagedoor.transports.tasks import TaskOwner

from ..access.devices import Caller
from ..problems import InvalidField
from ..streams.dialect_cursor import DialectCursors
from ..streams.following import STALL_SECONDS
from .notifications import Overview, Send, follow, notification, send_changes, watch
from .params import Dialect, Watched
from .results import AgentConfiguration

CALLS = 32
"""Calls of one client that run at once; further ones wait in its connection."""
MAX_DEVICES = 1000
"""Devices whose choices are in memory; those of the one not used for longest are read again."""
EVERYTHING = ""
"""The name of the subscription to all sessions."""
Work: TypeAlias = Callable[[Send], Awaitable[None]]
_LOG = logging.getLogger("stagedoor.server.jsonrpc")


class ClientGone(Exception):
    """The client has left."""


class SharedReaders:
    """What all clients of a service read with."""

    def __init__(self, service: Service) -> None:
        self.cursors = DialectCursors(service.events)
        self.overview = Overview(service)


class DeviceChoices(msgspec.Struct, frozen=True):
    """What a device has chosen, as it is stored."""

    agent: str = ""
    configured: dict[str, AgentConfiguration] = {}
    session_id: str = ""


class ClientDefaults:
    """The agent a client has selected, how it has configured each, the session it ran last.

    ``device``: what the next connection of the same device begins with. Two that are open at once do not share theirs.
    ``save``: where a device's own are stored; what changes them is over when they are.
    """

    def __init__(
        self,
        device: ClientDefaults | None = None,
        *,
        choices: DeviceChoices | None = None,
        save: Callable[[bytes], Awaitable[None]] | None = None,
    ) -> None:
        self._device = device
        self._save = save
        if choices is None:
            choices = DeviceChoices() if device is None else device.choices
        self.agent: str = choices.agent
        self.configured: dict[str, AgentConfiguration] = dict(choices.configured)
        self.session_id: str = choices.session_id

    @property
    def choices(self) -> DeviceChoices:
        return DeviceChoices(self.agent, self.configured, self.session_id)

    async def select(self, agent: str) -> None:
        self.agent = agent
        await self._stored()
        if self._device is not None:
            await self._device.select(agent)

    async def configure(self, configured: AgentConfiguration) -> None:
        self.configured[configured.type] = configured
        await self._stored()
        if self._device is not None:
            await self._device.configure(configured)

    async def ran(self, session_id: str) -> None:
        self.session_id = session_id
        await self._stored()
        if self._device is not None:
            await self._device.ran(session_id)

    async def _stored(self) -> None:
        if self._save is not None:
            await self._save(msgspec.json.encode(self.choices))


class DefaultsByDevice:
    """What each device has chosen: by POST, where no connection holds it, and for its next connection, also when the
    server has been started again meanwhile."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._by_device: OrderedDict[str, ClientDefaults] = OrderedDict()

    async def of(self, caller: Caller) -> ClientDefaults:
        device_id = caller.device_id
        if device_id not in self._by_device:
            stored = _read_choices(self._service, await self._service.devices.choices(device_id))
            save = partial(self._service.devices.save_choices, device_id)
            self._by_device.setdefault(device_id, ClientDefaults(choices=stored, save=save))
        self._by_device.move_to_end(device_id)
        while len(self._by_device) > MAX_DEVICES:
            self._by_device.popitem(last=False)
        return self._by_device[device_id]


def _read_choices(service: Service, stored: bytes | None) -> DeviceChoices:
    """Without agents that are no longer there: the configuration may have changed since."""
    try:
        choices = DeviceChoices() if stored is None else msgspec.json.decode(stored, type=DeviceChoices)
    except msgspec.MsgspecError:  # another version's
        return DeviceChoices()
    present = {name for name in catalog.names() if service.agents.enabled(name)}
    return DeviceChoices(
        choices.agent if choices.agent in present else "",
        {name: configured for name, configured in choices.configured.items() if name in present},
        choices.session_id,
    )


class Subscription:
    """What a client follows under one name. Nothing is sent before ``released``: the answer to the call goes first."""

    def __init__(self) -> None:
        self.released = asyncio.Event()
        self.owner = TaskOwner()
        self.tasks: list[asyncio.Task[None]] = []


class RpcCall:
    """One call while it is carried out. What is in ``afterwards`` is done when its answer has been sent."""

    def __init__(self, client: RpcClient) -> None:
        self.client = client
        self.service = client.service
        self.caller = client.caller
        self.defaults = client.defaults
        self.afterwards: list[Callable[[], None]] = []

    def session(self, session_id: str) -> str:
        """The session of a call: the one it names, else the one this client ran last."""
        if not session_id and not self.defaults.session_id:
            raise InvalidField("this client has run no session yet: send the sessionId", field="$.sessionId")
        return session_id or self.defaults.session_id

    async def active(self, name: str = "") -> str:
        """The agent of a call: the one it names, else the selected one, else the server's default."""
        return catalog.canonical_name(name or self.defaults.agent or await self.service.agents.default())

    def subscribe(self, session_id: str, after: int, dialect: Dialect, *more: Work) -> Subscription:
        """Follow a session; its events come after the answer. It replaces an earlier subscription to the session."""
        service, cursors = self.service, self.client.readers.cursors

        async def send_events(send: Send) -> None:
            await follow(service, cursors, send, session_id, after, dialect)

        return self._start(session_id, send_events, *more)

    async def subscribe_and_watch(
        self, session_id: str, after: int, dialect: Dialect, watched: tuple[Watched, ...]
    ) -> None:
        """And its workspace: from the answer on, nothing that changes there is missed."""
        started: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        async def send_touches(send: Send) -> None:
            with _reporting(started):
                await watch(self.service, send, session_id, watched, started)

        subscription = self.subscribe(session_id, after, dialect, send_touches)
        await self._wait_until(started, session_id, subscription)

    async def subscribe_to_everything(self) -> None:
        started: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        overview = self.client.readers.overview

        async def send_everything(send: Send) -> None:
            with _reporting(started):
                await send_changes(overview, send, started)

        await self._wait_until(started, EVERYTHING, self._start(EVERYTHING, send_everything))

    def _start(self, session_id: str, *works: Work) -> Subscription:
        subscription = self.client.start(session_id, *works)
        self.afterwards.append(subscription.released.set)
        return subscription

    async def _wait_until(self, started: asyncio.Future[None], session_id: str, subscription: Subscription) -> None:
        """Wait until a subscription misses nothing; raise what prevents it."""
        await asyncio.wait([started, *subscription.tasks], return_when=asyncio.FIRST_COMPLETED)
        if started.done() and (fault := started.exception()) is not None:
            self.client.end(session_id)
            raise fault


@contextlib.contextmanager
def _reporting(started: asyncio.Future[None]) -> Generator[None]:
    """Report a failure to whoever waits for ``started``."""
    try:
        yield
    except Exception as fault:
        if not started.done():
            started.set_exception(fault)
        raise


class RpcClient:
    """``send`` is ``None`` where only answers can be sent (HTTP)."""

    def __init__(
        self,
        service: Service,
        readers: SharedReaders,
        caller: Caller,
        *,
        send: Send | None = None,
        defaults: ClientDefaults | None = None,
    ) -> None:
        self.service = service
        self.readers = readers
        self.caller = caller
        self.defaults = defaults or ClientDefaults()
        self._send = send
        self._sending = asyncio.Lock()
        self._free = asyncio.Semaphore(CALLS)
        self._calls = TaskOwner()
        self._subscriptions: dict[str, Subscription] = {}
        self._broadcast = Broadcast(self)
        self.disconnected = asyncio.Event()

    @property
    def listens(self) -> bool:
        return self._send is not None

    @property
    def broadcast(self) -> Broadcast:
        return self._broadcast

    def follows(self, session_id: str) -> bool:
        return session_id in self._subscriptions

    async def receive(self, message: bytes) -> None:
        """Start one message. When too many are running it waits, and so does the client."""
        await self._free.acquire()
        self._calls.start(self._carry_out(message))

    async def send(self, message: bytes) -> None:
        """Send to the client, in order. Raises ``ClientGone``."""
        if self._send is None or self.disconnected.is_set():
            raise ClientGone
        try:
            async with self._sending, asyncio.timeout(STALL_SECONDS):
                await self._send(message)
        except Exception as fault:
            self.disconnected.set()
            raise ClientGone from fault

    def start(self, session_id: str, *works: Work) -> Subscription:
        """Follow ``session_id``."""
        if self._send is None:
            raise BadRequest(
                "notifications need an open connection: subscribe over WebSocket /ws or with stagedoor rpc"
            )
        limit = self.service.settings.limits.subscriptions
        if session_id not in self._subscriptions and len(self._subscriptions) >= limit:
            raise TooMany(f"this client follows {limit} sessions, the limit of this server; unsubscribe from one")
        self.end(session_id)
        self._broadcast.leave_out(session_id)
        subscription = self._subscriptions[session_id] = Subscription()

        async def send(message: bytes) -> None:
            await subscription.released.wait()
            await self.send(message)

        subscription.tasks = [
            subscription.owner.start(self._carry(session_id, subscription, work, send)) for work in works
        ]
        return subscription

    def end(self, session_id: str) -> bool:
        """Stop following a session. False: it was not followed."""
        subscription = self._subscriptions.pop(session_id, None)
        if subscription is not None:
            subscription.owner.cancel_all()
        return subscription is not None

    async def finish(self) -> None:
        """Wait for the calls that run."""
        await self._calls.finish()

    async def close(self) -> None:
        self.disconnected.set()
        subscriptions = list(self._subscriptions.values())
        self._subscriptions.clear()
        await self._calls.close()
        await self._broadcast.close()
        for subscription in subscriptions:
            await subscription.owner.close()

    async def _carry_out(self, message: bytes) -> None:
        from .dispatch import reply_to

        try:
            reply = await reply_to(self, message)
            with contextlib.suppress(ClientGone):
                if reply.body is not None:
                    await self.send(reply.body)
                for work in reply.afterwards:
                    work()
        finally:
            self._free.release()

    async def _carry(self, session_id: str, subscription: Subscription, work: Work, send: Send) -> None:
        """One work of a subscription. When the last one ends by itself, the subscription makes room for another."""
        try:
            await work(send)
        except ClientGone:
            pass
        except StagedoorError as fault:
            await _send_end(send, session_id, str(fault))
        except Exception:
            _LOG.exception("a subscription failed", extra={"session": session_id})
            await _send_end(send, session_id, "internal error of Stagedoor; subscribe again")
        finally:
            if self._subscriptions.get(session_id) is subscription and len(subscription.owner) == 1:
                del self._subscriptions[session_id]


class Broadcast:
    """What runs, sent to a client that has subscribed to nothing: the events of every session from now on.

    A session that the client subscribes to by itself, or unsubscribes from, is left out from then on.
    """

    def __init__(self, client: RpcClient) -> None:
        self._client = client
        self._following = TaskOwner()
        self._left_out: set[str] = set()
        self._stop: Callable[[], None] | None = None
        self._creating = 0
        self._waiting: list[SessionView] = []

    @property
    def on(self) -> bool:
        return self._stop is not None

    def start(self) -> None:
        if self._stop is None and self._client.listens:
            self._stop = self._client.service.sessions.watch_openings(self._on_open)
            for view in self._client.service.sessions.open_sessions():
                self._on_open(view)

    def stop(self) -> None:
        if self._stop is not None:
            self._stop()
        self._stop = None
        self._waiting.clear()
        self._following.cancel_all()

    async def close(self) -> None:
        self.stop()
        await self._following.close()

    def leave_out(self, session_id: str) -> None:
        """The client has its own wish for this session."""
        self._left_out.add(session_id)
        self._following.cancel(session_id)

    @contextlib.contextmanager
    def pause(self) -> Generator[None]:
        """While a call of this client creates a session: its answer comes before the first event."""
        self._creating += 1
        try:
            yield
        finally:
            self._creating -= 1
            if not self._creating:
                waiting, self._waiting = self._waiting, []
                for view in waiting:
                    self._on_open(view)

    def _on_open(self, view: SessionView) -> None:
        if self._creating:
            self._waiting.append(view)
        elif view.id not in self._left_out and self._stop is not None and view.id not in self._following:
            self._following.start(self._follow(view.id, view.last_seq), key=view.id)

    async def _follow(self, session_id: str, after: int) -> None:
        client = self._client
        try:
            await follow(client.service, client.readers.cursors, client.send, session_id, after, "notify", end=False)
        except (ClientGone, StagedoorError):
            pass  # the connection ends, or what comes next is no longer stored
        except Exception:
            _LOG.exception("a session could not be followed", extra={"session": session_id})


async def _send_end(send: Send, session_id: str, why: str) -> None:
    message = notification("subscription_ended", {"session_id": session_id, "reason": "fault", "message": why})
    with contextlib.suppress(ClientGone):
        await send(message)
