"""What all streams of a session share: where to begin, what is told of each record, and how long a client is borne.

A client has no queue here. Each reads the log at its own pace and waits at its own socket; what the log says next is
made ready for sending once for all who stand at the same place.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Annotated, Any, TypeAlias

import msgspec

from stagedoor.errors import BadRequest
from stagedoor.service.service import Service
from stagedoor.service.views import FollowVerdict, Record, SessionView

from .dialect_cursor import CANONICAL, Telling, Tellings

PIECE = 64 * 1024
"""What is handed to a socket at once, unless one event alone is larger."""
READY_BYTES = 8 * 1024 * 1024
STALLED = 60.0
"""Seconds a client may leave a full socket untouched before it is cut off. It can come back with ``after``."""

Seconds: TypeAlias = Annotated[float, msgspec.Meta(ge=0.05, le=3600)]
Place: TypeAlias = Annotated[int, msgspec.Meta(ge=0)]


class VerdictMessage(FollowVerdict, frozen=True, kw_only=True, rename="camel", tag="verdict", tag_field="type"):
    """A verdict as a message of its own."""


class Begun(msgspec.Struct, frozen=True):
    """Where a reader begins. After a gap ``after`` is what comes before the first record that is left."""

    view: SessionView
    verdict: VerdictMessage
    after: int


async def begin(service: Service, session_id: str, after: int) -> Begun:
    """Raises ``SessionNotFound``, and ``BadRequest`` for a place the log has not reached."""
    view = await service.sessions.get(session_id)
    if after > view.last_seq:
        raise BadRequest(f"session {session_id} has {view.last_seq} events; after={after} is beyond them")
    return Begun(view, VerdictMessage.of(view, after), max(after, view.first_seq - 1))


class Ready:
    """Records made ready for sending, kept for the others who stand at the same place."""

    def __init__(self, write: Callable[[int, bytes], bytes], *, most_bytes: int = READY_BYTES) -> None:
        self._write = write
        self._most = most_bytes
        self._bytes = 0
        self._kept: OrderedDict[tuple[str, int, int], tuple[int, list[tuple[int, bytes]]]] = OrderedDict()

    def pieces(self, session_id: str, records: Sequence[Record]) -> list[tuple[int, bytes]]:
        """``records`` in the canonical form, in a few pieces, each with the last ``seq`` in it."""
        key = (session_id, records[0].seq, records[-1].seq)
        found = self._kept.get(key)
        if found is not None:
            return found[1]
        made = joined([(record.seq, self._write(record.seq, record.body)) for record in records])
        size = sum(len(piece) for _, piece in made)
        self._kept[key] = (size, made)
        self._bytes += size
        while self._bytes > self._most:
            self._bytes -= self._kept.popitem(last=False)[1][0]
        return made


def joined(messages: Sequence[tuple[int, bytes]]) -> list[tuple[int, bytes]]:
    pieces: list[tuple[int, bytes]] = []
    begun: list[bytes] = []
    size = last = 0
    for seq, message in messages:
        if begun and size + len(message) > PIECE:
            pieces.append((last, b"".join(begun)))
            begun, size = [], 0
        begun.append(message)
        size += len(message)
        last = seq
    if begun:
        pieces.append((last, b"".join(begun)))
    return pieces


class Patience:
    """While a client is given something: it is cut off when it takes nothing for ``bound`` seconds.

    ``with Patience(line.abort) as patience: … patience.begin(); await send(…); patience.end()``
    """

    __slots__ = ("_abort", "_bound", "_loop", "_since", "_timer")

    def __init__(self, abort: Callable[[], None], bound: float = STALLED) -> None:
        self._abort = abort
        self._bound = bound
        self._loop = asyncio.get_running_loop()
        self._since: float | None = None
        self._timer: asyncio.TimerHandle | None = None

    def begin(self) -> None:
        self._since = self._loop.time()

    def end(self) -> None:
        self._since = None

    def __enter__(self) -> Patience:
        self._timer = self._loop.call_later(self._bound, self._look)
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _look(self) -> None:
        waited = 0.0 if self._since is None else self._loop.time() - self._since
        if waited >= self._bound:
            self._abort()
        else:
            self._timer = self._loop.call_later(self._bound - waited, self._look)


async def telling_from(tellings: Tellings, begun: Begun, dialect: str) -> Telling | None:
    """A projection for this reader; none for the canonical form, which goes out as it is stored."""
    if dialect == CANONICAL:
        return None
    return await tellings.at(begun.view.id, dialect, begun.after)


def numbered(seq: int, message: bytes, *, more: bool) -> bytes:
    """A message of any dialect with its place. ``more``: others of the same event follow; go on after ``seq - 1``."""
    return b'{"seq":%d,"more":%b,"event":%b}' % (seq, b"true" if more else b"false", message)


async def first_of(*waits: asyncio.Task[Any]) -> None:
    """Wait until one of the tasks is over; end the others; raise what that one raised."""
    try:
        done, _ = await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for wait in waits:
            wait.cancel()
        await asyncio.gather(*waits, return_exceptions=True)
    for wait in done:
        if not wait.cancelled():
            wait.result()
