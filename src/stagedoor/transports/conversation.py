"""A process and a protocol, pumped together: what every line-speaking agent client needs, and nothing of any agent."""

from __future__ import annotations

import asyncio
import contextlib
import time
import weakref
from collections.abc import Callable, Iterable
from typing import Generic, Protocol, TypeVar

from msgspec.structs import force_setattr

from ..errors import ProcessExited
from ..wire.shapes import UnknownMessage
from ..wire.stamps import Stamp, Stamped, mark
from .launch import Exited, Stalled
from .process import ChildProcess
from .tasks import TaskOwner

Event = TypeVar("Event", bound=Stamped)
EventOut = TypeVar("EventOut", bound=Stamped, covariant=True)
ItemIn = TypeVar("ItemIn", contravariant=True)


class LineProtocol(Protocol[EventOut]):
    """The shape a conversation drives. Agents match it; they never inherit it.

    ``session_id`` and ``turn_id`` are those of the message last received: its events are stamped with them.
    """

    session_id: str
    turn_id: int

    def receive(self, message: bytes) -> Iterable[EventOut]: ...
    def receive_eof(self) -> Iterable[EventOut]: ...
    def outgoing(self) -> Iterable[bytes]: ...


class Outlet(Protocol[ItemIn]):
    """Where the pairs go: one relay, or a switchboard of several."""

    async def publish(self, items: Iterable[ItemIn]) -> None: ...


class Conversation(Generic[Event]):
    """Reads the process to its end, publishing ``(message, event)`` pairs; the last event is ``Exited``.

    ``notice`` sees each event before any reader does, synchronously: that is where a client resolves what it waits for
    and starts answering questions; the kinds in ``bulk`` are not shown to it. The raw message is ``b""`` for events
    that no message caused.
    """

    def __init__(
        self,
        process: ChildProcess,
        protocol: LineProtocol[Event],
        relay: Outlet[tuple[bytes, Event | UnknownMessage | Stalled | Exited]],
        *,
        notice: Callable[[Event | UnknownMessage | Stalled | Exited], None] = lambda event: None,
        bulk: frozenset[type] = frozenset(),
        quiet: float | None = None,
    ) -> None:
        self.process = process
        self._protocol = protocol
        self._relay = relay
        self._notice = notice
        self._bulk = bulk
        self._quiet = quiet
        self._tasks = TaskOwner()
        self._pump = self._tasks.start(self._run(), name="stagedoor conversation")

    async def flush(self) -> None:
        """Write what the protocol wants written. Call it after every ``protocol.send``."""
        for message in self._protocol.outgoing():
            await self.process.send(message)

    async def ended(self) -> None:
        """Wait until the process has ended and everything it said is published."""
        await asyncio.shield(self._pump)

    async def stop(self) -> None:
        """Stop the process by its ladder; everything it still says on the way is published."""
        await self.process.stop()
        await asyncio.wait([self._pump])
        if not self._pump.cancelled():
            self._pump.result()

    def abandon(self) -> None:
        """For finalizers: kill everything now, wait for nothing."""
        self.process.abandon()

    def abandon_with(self, owner: object) -> None:
        """Tie the process to ``owner``'s life: when it is collected, nothing is left running."""
        weakref.finalize(owner, self.abandon)

    async def _run(self) -> None:
        try:
            protocol, receive, bulk = self._protocol, self._protocol.receive, self._bulk
            async for batch in self.process.batches(quiet=self._quiet):
                stamp = self._stamp()
                turn_id, session_id = stamp.turn_id, stamp.session_id
                pairs: list[tuple[bytes, Event | UnknownMessage | Stalled | Exited]] = []
                for message in batch:
                    if isinstance(message, bytes):
                        events = receive(message)
                        if protocol.turn_id != turn_id or protocol.session_id != session_id:
                            turn_id, session_id = protocol.turn_id, protocol.session_id
                            stamp = Stamp(session_id, turn_id, stamp.read_at)
                        for event in events:  # written out, as a call for each of them would cost more than the rest
                            force_setattr(event, "stamp", stamp)
                            if session_id and not event.session_id:
                                force_setattr(event, "session_id", session_id)
                            pairs.append((message, event))
                            if type(event) not in bulk:
                                self._notice(event)
                    else:
                        force_setattr(message, "stamp", stamp)
                        pairs.append((message.raw if isinstance(message, UnknownMessage) else b"", message))
                        self._notice(message)
                await self._publish(pairs)
            last: list[tuple[bytes, Event | UnknownMessage | Stalled | Exited]]
            last = [(b"", event) for event in self._protocol.receive_eof()]
            last.append((b"", await self.process.exited()))
            mark(last, self._stamp())
            for _, last_word in last:
                self._notice(last_word)
            await self._publish(last)
        finally:
            # Cancelled, or our own fault: either way the child must not outlive its reader.
            if self.process.code is None:
                self.process.abandon()

    def _stamp(self) -> Stamp:
        return Stamp(self._protocol.session_id, self._protocol.turn_id, time.time())

    async def _publish(self, pairs: list[tuple[bytes, Event | UnknownMessage | Stalled | Exited]]) -> None:
        with contextlib.suppress(ProcessExited):  # the end of its output will say so
            await self.flush()
        await self._relay.publish(pairs)
