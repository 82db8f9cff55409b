"""A session's events, each once and in order, whatever happens to the connection.

There are three doors to follow a session through: WebSocket, server-sent events, long polling. Each yields everything
after ``after``, a verdict first, and returns when the session has ended. ``StreamLost``: come back with the last
``seq``. ``DoorClosed``: this door does not open here (a proxy in between), try the next.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from typing import TYPE_CHECKING, TypeAlias

import msgspec

from ..errors import ConnectionLost, NotInstalled
from ..service.views import FollowVerdict, SessionView, VerdictMessage
from ..unified.events import Done, Event, Notice, Unrecognized
from ..wire.sse import ServerEvent, SseBuffer
from .connection import CONNECT_WITHIN, ServerConnection, bearer
from .problems import close_fault, fault_of, read_problem

if TYPE_CHECKING:
    import httpx

SILENCE = 45.0
"""Seconds without an event or heartbeat after which a stream counts as dead."""
WAIT = 25.0
FIRST_ANSWER, LARGEST_ANSWER = 32, 512
"""Events per answer: few at first, so that something gets through on a connection that breaks all the time."""
BROKEN_OPENINGS = 2
"""How often a door may break while it opens, although the server can be reached, before the next one is tried: some
proxies refuse by hanging up, or buffer what they should pass on."""
_ENDED = 1000
_REFUSED_BY_PROXY = frozenset({403, 404, 405, 406, 426})
"""What proxies answer to a stream they do not pass on."""


StreamMessage: TypeAlias = VerdictMessage | Event
Door: TypeAlias = Callable[[ServerConnection, str, int], AsyncGenerator[list[StreamMessage]]]


class StreamLost(Exception):
    """The connection broke; what was received counts. ``opening``: before anything was received."""

    def __init__(self, why: str, *, opening: bool = False) -> None:
        super().__init__(why)
        self.opening = opening


class DoorClosed(Exception):
    """This door does not open here."""


class _EventHead(msgspec.Struct, frozen=True, rename="camel"):
    type: str = ""
    agent: str = ""
    session_id: str = ""
    seq: int = 0
    timestamp: int = 0
    turn: int = 0


class _PolledEvents(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    verdict: FollowVerdict
    events: list[msgspec.Raw]
    ended: bool


_DECODER: msgspec.json.Decoder[StreamMessage] = msgspec.json.Decoder(VerdictMessage | Event)


def decode_message(message: bytes) -> StreamMessage | None:
    """A message, typed. One of a newer server is kept whole; one without a ``seq`` (a heartbeat) is ignored."""
    try:
        return _DECODER.decode(message)
    except msgspec.MsgspecError as fault:
        why = str(fault)
    try:
        head = msgspec.json.decode(message, type=_EventHead)
    except msgspec.MsgspecError:
        raise StreamLost(f"the server sent something that is not an event: {why}") from None
    if not head.seq:
        return None
    return Unrecognized(
        agent=head.agent, session_id=head.session_id, seq=head.seq, timestamp=head.timestamp, turn=head.turn,
        raw=message.decode("utf-8", "replace"), why=f"the server is newer than this client: {why}",
    )  # fmt: skip


async def by_websocket(
    connection: ServerConnection, session_id: str, after: int
) -> AsyncGenerator[list[StreamMessage]]:
    try:
        from websockets.asyncio.client import connect
        from websockets.exceptions import ConnectionClosed, InvalidHandshake, InvalidMessage, InvalidStatus
    except ImportError as missing:
        raise NotInstalled("websockets is not installed; run: pip install websockets") from missing
    address = connection.address
    opening = connect(
        f"{address.ws_url}/ws/sessions/{session_id}?after={after}&dialect=stagedoor",
        additional_headers=bearer(address),
        open_timeout=connection.first_message_within,
        close_timeout=1.0,
        max_size=None,
        compression=None,
        ssl=address.tls(),
        proxy=None if address.loopback else True,
    )
    try:
        socket = await opening
    except InvalidStatus as refused:
        connection.reached()
        problem = read_problem(bytes(refused.response.body or b""))
        if problem.temporary:
            raise StreamLost(problem.detail) from refused
        if problem.ours:
            raise fault_of(refused.response.status_code, problem) from refused
        raise DoorClosed(f"no WebSocket: status {refused.response.status_code}") from refused
    except InvalidMessage as cut:
        raise StreamLost(f"the connection broke while the WebSocket opened: {cut}", opening=True) from cut
    except TimeoutError as slow:
        raise StreamLost("the WebSocket did not open in time", opening=True) from slow
    except InvalidHandshake as refused:
        raise DoorClosed(f"no WebSocket: {refused}") from refused
    except OSError as fault:
        raise StreamLost(connection.lost(fault)) from fault
    connection.reached()
    async with socket:
        try:
            async with asyncio.timeout(connection.first_message_within):
                message = await socket.recv(decode=False)
            while True:
                if (received := decode_message(message)) is not None:
                    yield [received]
                message = await socket.recv(decode=False)
        except TimeoutError as silent:
            raise StreamLost("the WebSocket opens, but nothing comes through", opening=True) from silent
        except ConnectionClosed as end:
            code, reason = (1006, "") if end.rcvd is None else (end.rcvd.code, end.rcvd.reason)
            if code == _ENDED:
                return
            if (refusal := close_fault(code, reason)) is not None:
                raise refusal from end
            raise StreamLost(f"the WebSocket was closed with {code} {reason}") from end


async def by_sse(connection: ServerConnection, session_id: str, after: int) -> AsyncGenerator[list[StreamMessage]]:
    import httpx

    async with connection.client() as client:
        request = client.build_request(
            "GET",
            connection.url(f"/api/sessions/{session_id}/stream"),
            params={"after": after, "dialect": "stagedoor"},
            headers=bearer(connection.address) | {"Accept": "text/event-stream"},
            timeout=httpx.Timeout(CONNECT_WITHIN, read=SILENCE),
        )
        try:
            async with asyncio.timeout(connection.first_message_within):
                response = await client.send(request, stream=True)
        except TimeoutError as silent:
            raise StreamLost("the stream did not open in time", opening=True) from silent
        except httpx.TransportError as fault:
            raise StreamLost(connection.lost(fault)) from fault
        try:
            await _check_status(connection, response)
            if not response.headers.get("content-type", "").startswith("text/event-stream"):
                raise DoorClosed("no server-sent events: something else answers, perhaps a proxy")
            async with aclosing(_server_events(response, connection.first_message_within)) as batches:
                async for events in batches:
                    ended = any(event.event == "end" for event in events)
                    if messages := [
                        message for event in events if event.event != "end" and (message := decode_message(event.data))
                    ]:
                        yield messages
                    if ended:
                        return
        except httpx.TransportError as fault:
            raise StreamLost(connection.lost(fault)) from fault
        finally:
            await response.aclose()
    raise StreamLost("the stream was cut off")


async def _server_events(response: httpx.Response, first_within: float) -> AsyncGenerator[list[ServerEvent]]:
    buffer = SseBuffer()
    first = True
    chunks = response.aiter_bytes()
    while True:
        try:
            async with asyncio.timeout(first_within if first else None):
                chunk = await anext(chunks, b"")
        except TimeoutError as silent:
            raise StreamLost("the stream opens, but nothing comes through", opening=True) from silent
        if not chunk:
            return
        events: list[ServerEvent] = []
        for event in buffer.feed(chunk):
            if not isinstance(event, ServerEvent):
                raise StreamLost(f"the stream holds something that is not an event: {event.why}")
            events.append(event)
        first = first and not events
        if events:
            yield events


async def by_polling(connection: ServerConnection, session_id: str, after: int) -> AsyncGenerator[list[StreamMessage]]:
    import httpx

    limit = FIRST_ANSWER
    async with connection.client() as client:
        while True:
            try:
                response = await client.get(
                    connection.url(f"/api/sessions/{session_id}/poll"),
                    params={"after": after, "wait": WAIT, "limit": limit, "dialect": "stagedoor"},
                    headers=bearer(connection.address),
                    timeout=httpx.Timeout(CONNECT_WITHIN, read=SILENCE),
                )
            except httpx.TransportError as fault:
                raise StreamLost(connection.lost(fault)) from fault
            await _check_status(connection, response)
            try:
                polled = msgspec.json.decode(response.content, type=_PolledEvents)
            except msgspec.MsgspecError as fault:
                raise StreamLost(f"this is not the answer of a Stagedoor server: {fault}") from fault
            messages = [message for event in polled.events if (message := decode_message(bytes(event)))]
            yield [_as_message(polled.verdict), *messages]
            after = max((message.seq for message in messages if not isinstance(message, VerdictMessage)), default=after)
            if polled.ended:
                return
            limit = min(2 * limit, LARGEST_ANSWER)


async def _check_status(connection: ServerConnection, response: httpx.Response) -> None:
    """Raise what a refusal means."""
    connection.reached()
    if response.status_code < 400:
        return
    problem = read_problem(await response.aread())
    if problem.temporary or (not problem.ours and response.status_code >= 500):
        raise StreamLost(problem.detail or f"answered with status {response.status_code}")
    if not problem.ours and response.status_code in _REFUSED_BY_PROXY:
        raise DoorClosed(f"answered with status {response.status_code}")
    raise fault_of(response.status_code, problem)


def _as_message(verdict: FollowVerdict) -> VerdictMessage:
    return VerdictMessage(**{name: getattr(verdict, name) for name in verdict.__struct_fields__})


DOORS: Sequence[Door] = (by_websocket, by_sse, by_polling)


class EventFollower:
    """``last_seq`` is that of the last event it yielded, ``server_seq`` the last one the server has named."""

    def __init__(self, connection: ServerConnection, session_id: str, after: int = 0) -> None:
        self._connection = connection
        self._id = session_id
        self._done = False
        self._broken = 0
        self.last_seq = after
        self.server_seq = after

    async def batches(self) -> AsyncGenerator[list[Event]]:
        """Until the session has ended. Raises the server's refusals, and ``ConnectionLost`` when patience is over."""
        retries = self._connection.retries()
        while True:
            door = DOORS[self._connection.door]
            why = "the stream ended before the session did"
            try:
                async with aclosing(door(self._connection, self._id, self.last_seq)) as stream:
                    async for messages in stream:
                        self._broken = 0
                        events = self._next(messages)
                        if self.last_seq >= self.server_seq:
                            retries.answered()
                        if events:
                            retries.progressed()
                            yield events
                if self._done or await self._has_ended():
                    return
            except DoorClosed as fault:
                self._next_door(fault)
                continue
            except StreamLost as fault:
                why = str(fault)
                if fault.opening:
                    await self._has_ended()  # raises when the server cannot be reached; else the door is at fault
                    self._broken += 1
                if self._broken >= BROKEN_OPENINGS:
                    self._next_door(fault)
            await retries.wait(why)

    def _next(self, messages: list[StreamMessage]) -> list[Event]:
        """The events that follow the last one; raises ``StreamLost`` where something is missing in between."""
        events: list[Event] = []
        for message in messages:
            if isinstance(message, VerdictMessage):
                self.server_seq = max(self.server_seq, message.last_seq)
                events += self._gap(message)
            elif message.seq == self.last_seq + 1:
                self.last_seq = message.seq
                self._done = isinstance(message, Done)
                events.append(message)
            elif message.seq > self.last_seq:
                if events:
                    return events  # yield what is complete; the rest is requested again
                raise StreamLost(f"received event {message.seq} instead of {self.last_seq + 1}")
        self.server_seq = max(self.server_seq, self.last_seq)
        return events

    def _gap(self, verdict: VerdictMessage) -> list[Event]:
        first, last = verdict.missing_from, verdict.missing_to
        if verdict.verdict != "gap" or first is None or last is None or last <= self.last_seq:
            return []
        self.last_seq = last
        message = f"events {first} to {last} are no longer stored on the server"
        return [Notice(session_id=self._id, seq=last, level="warning", code="events_missing", message=message)]

    async def _has_ended(self) -> bool:
        view = await self._connection.get(f"/api/sessions/{self._id}", SessionView)
        return view.ended and view.last_seq <= self.last_seq

    def _next_door(self, fault: Exception) -> None:
        self._broken = 0
        if self._connection.door + 1 == len(DOORS):
            raise ConnectionLost(f"cannot follow the session at {self._connection.address.url}: {fault}") from fault
        self._connection.door += 1
