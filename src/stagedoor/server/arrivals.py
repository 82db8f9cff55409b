"""Who comes to the socket: connections are few, short and evictable until they have shown a token.

A connection is a *guest* until a request on it was made with a valid token. Guests share a bounded room: where it is
full, the oldest guest of the most crowded address leaves, so that a flood displaces itself and whoever shows a token
gets in at once. A guest that has no request answered within ``GUEST_SECONDS`` is disconnected, whatever it sends or
does not read. Half of the file descriptors are left to what the sessions open.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import ipaddress
import logging
import resource
import socket
import ssl
from collections import Counter
from collections.abc import Callable
from typing import Any

import msgspec

from stagedoor.transports.tasks import TaskOwner

from .logs import RepeatedLine

GUEST_SECONDS = 60.0
"""How long a guest may stay with no request answered: also one that sends its body, or reads, too slowly."""
HANDSHAKE_SECONDS = 10.0
FIRST_MOMENT = 0.2
"""Seconds in which no guest is displaced: its request may be on the way. Nobody is accepted meanwhile."""
PAUSE = 0.2
"""Seconds in which nobody is accepted after the system refused a descriptor."""
BATCH = 16
"""Accepted at once; then those who came before are read."""
BACKLOG = 2048
GUESTS = 256
MOST_DESCRIPTORS = 65_536
"""Some programs look at every number up to the limit when they start, and the agents inherit ours."""
TOO_MANY_CONNECTIONS = (
    b"HTTP/1.1 503 Service Unavailable\r\nconnection: close\r\nretry-after: 5\r\ncontent-type: text/plain\r\n\r\n"
    b"too many connections are open; try again shortly\n"
)
_LOG = logging.getLogger("stagedoor.server")


class Room(msgspec.Struct, frozen=True, kw_only=True):
    """How many connections there may be; of those, guests; of those, from one address when others come too."""

    connections: int
    guests: int
    guests_per_address: int


def room_for(connections: int, descriptors: int) -> Room:
    """Within what was configured, and within half of the file descriptors."""
    most = max(4, min(connections, descriptors // 2))
    most = min(most, connections)
    guests = max(1, min(GUESTS, most if most < 8 else most // 2))
    return Room(connections=most, guests=guests, guests_per_address=max(1, guests // 2))


def raise_descriptor_limit() -> int:
    """Open files up to what the system allows this process (or ``MOST_DESCRIPTORS``); how many that is now."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    for most in (MOST_DESCRIPTORS, 10_240):  # the second is the most that macOS takes
        limit = most if hard == resource.RLIM_INFINITY else min(hard, most)
        if soft != resource.RLIM_INFINITY and limit > soft:
            with contextlib.suppress(OSError, ValueError):
                resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))
                return limit
    return descriptor_limit()


def descriptor_limit() -> int:
    soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return MOST_DESCRIPTORS if soft == resource.RLIM_INFINITY else soft


class Guest:
    """A connection that may yet show a token."""

    def __init__(self, arrivals: Arrivals, address: str) -> None:
        self.address = address
        self.since = 0.0
        self.timer: asyncio.TimerHandle | None = None
        self.transport: asyncio.BaseTransport | None = None
        self._arrivals = arrivals

    def admit(self) -> None:
        """It has shown a token."""
        self._arrivals.admit(self)

    def renew(self) -> None:
        """A request was answered."""
        self._arrivals.renew(self)

    def leave(self) -> None:
        """The connection is closed."""
        self._arrivals.leave(self)


class Arrivals:
    """Accepts at ``listening`` and gives every connection its protocol, made by ``connect``."""

    def __init__(
        self,
        listening: socket.socket,
        connect: Callable[[Guest], asyncio.Protocol],
        *,
        room: Room,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self._socket = listening
        self._connect = connect
        self._room = room
        self._tls = tls
        self._loop = asyncio.get_running_loop()
        self._open: set[Guest] = set()
        self._guests: dict[str, dict[Guest, None]] = {}
        """By address, each oldest first."""
        self._guest_count = 0
        self._connecting = TaskOwner()
        self._resume_timer: asyncio.TimerHandle | None = None
        self._is_closed = False
        self._displaced: Counter[str] = Counter()
        self._displaced_line = RepeatedLine(_LOG, "connections without a token were closed to make room for others")
        self._refused_line = RepeatedLine(_LOG, "connections were refused: as many as there may be are in use")
        self._exhausted_line = RepeatedLine(
            _LOG, "the system has no more file descriptors; raise the limit (ulimit -n) or lower limits.connections"
        )
        listening.setblocking(False)
        listening.listen(BACKLOG)
        self._loop.add_reader(listening, self._accept)

    def close(self) -> None:
        """Nobody is accepted any more; those who are there stay."""
        self._is_closed = True
        self._loop.remove_reader(self._socket)
        if self._resume_timer is not None:
            self._resume_timer.cancel()
        self._connecting.cancel_all()

    async def wait_closed(self) -> None:
        await self._connecting.finish()

    def report(self) -> None:
        """Once in a while: log what happened, by count."""
        crowd = ", ".join(f"{count} from {address}" for address, count in self._displaced.most_common(3))
        if self._displaced_line.report(crowd):
            self._displaced.clear()
        self._refused_line.report()
        self._exhausted_line.report()

    def admit(self, guest: Guest) -> None:
        if self._forget_guest(guest):
            self._resume()

    def renew(self, guest: Guest) -> None:
        crowd = self._guests.get(guest.address, {})
        if guest in crowd:
            del crowd[guest]
            crowd[guest] = None
            self._start_timer(guest)

    def leave(self, guest: Guest) -> None:
        self._open.discard(guest)
        self._forget_guest(guest)
        self._resume()

    def _accept(self) -> None:
        for _ in range(BATCH):
            if self._wait_for_room():
                return
            try:
                accepted, address = self._socket.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as fault:
                if fault.errno in (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM):
                    self._exhausted_line.count()
                    if self._guests:
                        self._displace(self._crowd())
                self._pause(PAUSE)
                return
            self._take(accepted, _neighbourhood(address))

    def _wait_for_room(self) -> bool:
        """Make room for one more where there is none; whether it takes a moment until there can be."""
        room = self._room
        while self._guests and (self._guest_count >= room.guests or len(self._open) >= room.connections):
            crowd = self._crowd()
            oldest = next(iter(crowd))
            young_for = oldest.since + FIRST_MOMENT - self._loop.time()
            if young_for > 0:
                self._pause(young_for)
                return True
            self._displace(crowd)
        return False

    def _take(self, accepted: socket.socket, address: str) -> None:
        if len(self._open) >= self._room.connections:
            self._refused_line.count()
            with accepted, contextlib.suppress(OSError):
                accepted.setblocking(False)
                if self._tls is None:
                    accepted.send(TOO_MANY_CONNECTIONS)
            return
        accepted.setblocking(False)
        guest = Guest(self, address)
        self._open.add(guest)
        crowd = self._guests.setdefault(address, {})
        crowd[guest] = None
        self._guest_count += 1
        self._start_timer(guest)
        while len(crowd) > self._room.guests_per_address:
            if next(iter(crowd)).since + FIRST_MOMENT > self._loop.time():
                break
            self._displace(crowd)
        self._connecting.start(self._introduce(guest, accepted), key=guest)

    async def _introduce(self, guest: Guest, accepted: socket.socket) -> None:
        try:
            guest.transport, _ = await self._loop.connect_accepted_socket(
                lambda: self._connect(guest),
                accepted,
                ssl=self._tls,
                ssl_handshake_timeout=None if self._tls is None else HANDSHAKE_SECONDS,
            )
        except OSError:  # it left, or does not speak TLS
            accepted.close()
        finally:
            if guest.transport is None:
                self.leave(guest)

    def _start_timer(self, guest: Guest) -> None:
        guest.since = self._loop.time()
        if guest.timer is not None:
            guest.timer.cancel()
        guest.timer = self._loop.call_later(GUEST_SECONDS, self._turn_out, guest)

    def _crowd(self) -> dict[Guest, None]:
        return max(self._guests.values(), key=len)

    def _displace(self, crowd: dict[Guest, None]) -> None:
        guest = next(iter(crowd))
        self._displaced_line.count()
        self._displaced[guest.address] += 1
        self._turn_out(guest)

    def _turn_out(self, guest: Guest) -> None:
        self._open.discard(guest)  # its descriptor is free before the next is accepted
        self._forget_guest(guest)
        if guest.transport is None:
            self._connecting.cancel(guest)
        elif isinstance(guest.transport, asyncio.Transport):
            guest.transport.abort()

    def _forget_guest(self, guest: Guest) -> bool:
        crowd = self._guests.get(guest.address, {})
        if guest not in crowd:
            return False
        del crowd[guest]
        self._guest_count -= 1
        if not crowd:
            del self._guests[guest.address]
        if guest.timer is not None:
            guest.timer.cancel()
        return True

    def _pause(self, seconds: float) -> None:
        if self._resume_timer is None:
            self._loop.remove_reader(self._socket)
            self._resume_timer = self._loop.call_later(seconds, self._resume)

    def _resume(self) -> None:
        if self._resume_timer is not None and not self._is_closed:
            self._resume_timer.cancel()
            self._resume_timer = None
            self._loop.add_reader(self._socket, self._accept)


def _neighbourhood(address: Any) -> str:
    """Whose address it is: of IPv6 the network, for whoever has one address there has all of them."""
    host = str(address[0]) if isinstance(address, tuple) else ""  # pyright: ignore[reportUnknownArgumentType]
    try:
        parsed = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return host
    if isinstance(parsed, ipaddress.IPv6Address):
        if parsed.ipv4_mapped is not None:
            return str(parsed.ipv4_mapped)
        return str(ipaddress.ip_network((parsed, 64), strict=False))
    return host
