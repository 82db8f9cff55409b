"""What all streams of a session share: where to start, what is sent for each record, and how long a client may stall.

A client has no queue here. Each reads the log at its own pace and waits at its own socket; the next records are
encoded once for all clients that are at the same place.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Coroutine, Sequence
from types import TracebackType
from typing import Annotated, Any, TypeAlias, TypeVar, cast

import msgspec
from msgspec.structs import replace
from starlette.types import Scope

from stagedoor.errors import BadRequest
from stagedoor.service.service import Service
from stagedoor.service.views import Record, SessionView, VerdictMessage
from stagedoor.transports.tasks import TaskOwner

from ..access.auth import caller_of
from ..access.devices import Caller
from ..reading import read_query
from .dialect_cursor import CANONICAL, DialectCursor, DialectCursors, check_dialect

PIECE = 64 * 1024
"""Bytes that go to a socket at once, unless one event alone is larger."""
CACHED_BYTES = 8 * 1024 * 1024
STALL_SECONDS = 60.0
"""How long a client may leave a full socket untouched before it is cut off. It can come back with ``after``."""

NOT_NAMED = "*"
"""As the device or the server speaks."""

Seconds: TypeAlias = Annotated[float, msgspec.Meta(ge=0.05, le=3600)]
Place: TypeAlias = Annotated[int, msgspec.Meta(ge=0)]


class StreamQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The query of every stream: the events after a ``seq``, in a dialect. Each door adds its own fields."""

    after: Place = 0
    dialect: str = NOT_NAMED


Query = TypeVar("Query", bound=StreamQuery)


def read_stream_query(scope: Scope, service: Service, shape: type[Query]) -> Query:
    """The query, with the dialect it will be: the one it names, else the device's, else the server's."""
    query = cast("Query", read_query(scope["query_string"], shape))
    return replace(query, dialect=spoken_by(query.dialect, caller_of(scope), service))


def spoken_by(dialect: str | None, caller: Caller, service: Service) -> str:
    """The dialect of a request. Raises ``BadRequest`` for one that nobody knows."""
    named = caller.dialect or service.settings.dialect if dialect is None or dialect == NOT_NAMED else dialect
    check_dialect(named)
    return named


class StreamStart(msgspec.Struct, frozen=True):
    """Where a reader starts. After a gap ``after`` is what comes before the first record that is still stored."""

    view: SessionView
    verdict: VerdictMessage
    after: int


async def start_at(service: Service, session_id: str, after: int, *, caller: Caller) -> StreamStart:
    """A session may be named as the agent's own program names it.

    Raises ``SessionNotFound``, and ``BadRequest`` for a place the log has not reached.
    """
    view = await service.stored.named(session_id, take_in=caller.may("run"))
    if after > view.last_seq:
        raise BadRequest(f"session {session_id} has only {view.last_seq} events; after={after} is too large")
    return StreamStart(view, VerdictMessage.of(view, after), max(after, view.first_seq - 1))


class EncodedRecords:
    """Records encoded for sending, cached for the other clients that are at the same place."""

    def __init__(self, encode: Callable[[int, bytes], bytes], *, max_bytes: int = CACHED_BYTES) -> None:
        self._encode = encode
        self._max_bytes = max_bytes
        self._bytes = 0
        self._cached: OrderedDict[tuple[str, int, int], tuple[int, list[tuple[int, bytes]]]] = OrderedDict()

    def pieces(self, session_id: str, records: Sequence[Record]) -> list[tuple[int, bytes]]:
        """``records`` in the canonical form, in a few pieces, each with the last ``seq`` in it."""
        key = (session_id, records[0].seq, records[-1].seq)
        cached = self._cached.get(key)
        if cached is not None:
            return cached[1]
        pieces = joined([(record.seq, self._encode(record.seq, record.body)) for record in records])
        size = sum(len(piece) for _, piece in pieces)
        self._cached[key] = (size, pieces)
        self._bytes += size
        while self._bytes > self._max_bytes:
            self._bytes -= self._cached.popitem(last=False)[1][0]
        return pieces


def joined(messages: Sequence[tuple[int, bytes]]) -> list[tuple[int, bytes]]:
    """Messages joined into pieces of about ``PIECE`` bytes."""
    pieces: list[tuple[int, bytes]] = []
    current: list[bytes] = []
    size = last = 0
    for seq, message in messages:
        if current and size + len(message) > PIECE:
            pieces.append((last, b"".join(current)))
            current, size = [], 0
        current.append(message)
        size += len(message)
        last = seq
    if current:
        pieces.append((last, b"".join(current)))
    return pieces


class StallTimer:
    """Cuts a client off that takes nothing for ``bound`` seconds while something is being sent to it.

    ``with StallTimer(connection.abort) as timer: … timer.begin(); await send(…); timer.end()``
    """

    __slots__ = ("_abort", "_bound", "_handle", "_loop", "_since")

    def __init__(self, abort: Callable[[], None], bound: float = STALL_SECONDS) -> None:
        self._abort = abort
        self._bound = bound
        self._loop = asyncio.get_running_loop()
        self._since: float | None = None
        self._handle: asyncio.TimerHandle | None = None

    def begin(self) -> None:
        self._since = self._loop.time()

    def end(self) -> None:
        self._since = None

    def __enter__(self) -> StallTimer:
        self._handle = self._loop.call_later(self._bound, self._check)
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        if self._handle is not None:
            self._handle.cancel()

    def _check(self) -> None:
        waited = 0.0 if self._since is None else self._loop.time() - self._since
        if waited >= self._bound:
            self._abort()
        else:
            self._handle = self._loop.call_later(self._bound - waited, self._check)


async def cursor_from(cursors: DialectCursors, start: StreamStart, dialect: str) -> DialectCursor | None:
    """A cursor for this reader; none for the canonical form, which goes out as it is stored."""
    if dialect == CANONICAL:
        return None
    return await cursors.at(start.view.id, dialect, start.after)


def numbered(seq: int, message: bytes, *, more: bool) -> bytes:
    """A message of any dialect with its ``seq``. ``more``: others of the same event follow; continue after
    ``seq - 1``."""
    return b'{"seq":%d,"more":%b,"event":%b}' % (seq, b"true" if more else b"false", message)


async def first_of(*works: Coroutine[Any, Any, object]) -> None:
    """Run all of them until one is over; end the others; raise what that one raised."""
    owner = TaskOwner()
    tasks = [owner.start(work) for work in works]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        await owner.close()
    for task in done:
        if not task.cancelled():
            task.result()
