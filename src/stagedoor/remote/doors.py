"""The three doors a session is followed through: WebSocket, server-sent events, long polling.

Each tells everything after ``after``, a verdict first, and returns when the session has ended. ``Lost``: come back
with the last ``seq``. ``Closed``: this door does not open here (a proxy in between), try the next.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from typing import TYPE_CHECKING, TypeAlias

import msgspec

from ..errors import NotInstalled
from ..service.views import Verdict
from ..unified.events import Event, Unrecognized
from ..wire.sse import EventBuffer, ServerEvent
from .line import CONNECT_WITHIN, Line, bearer
from .problems import closed, fault_of, read

if TYPE_CHECKING:
    import httpx

SILENCE = 45.0
"""Seconds without a word or heartbeat after which a stream is taken for dead."""
WAIT = 25.0
FIRST_ANSWER, LARGEST_ANSWER = 32, 512
"""Events per answer: few at first, so that something gets through on a line that breaks all the time."""
_ENDED = 1000
_NOT_PASSED_ON = frozenset({403, 404, 405, 406, 426})
"""What proxies say to a stream they do not let through."""


class Told(Verdict, frozen=True, kw_only=True, rename="camel", tag="verdict", tag_field="type"):
    """A verdict as a message of its own."""


Heard: TypeAlias = Told | Event
Door: TypeAlias = Callable[[Line, str, int], AsyncGenerator[list[Heard]]]


class Lost(Exception):
    """The connection broke; what was heard counts. ``opening``: before anything was said."""

    def __init__(self, why: str, *, opening: bool = False) -> None:
        super().__init__(why)
        self.opening = opening


class Closed(Exception):
    """This door does not open here."""


class _Known(msgspec.Struct, frozen=True, rename="camel"):
    type: str = ""
    agent: str = ""
    session_id: str = ""
    seq: int = 0
    timestamp: int = 0
    turn: int = 0


class _Polled(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    verdict: Verdict
    events: list[msgspec.Raw]
    ended: bool


_DECODER: msgspec.json.Decoder[Heard] = msgspec.json.Decoder(Told | Event)


def heard(message: bytes) -> Heard | None:
    """A message, typed. One of a newer server is kept whole; one without a place in the log means nothing."""
    try:
        return _DECODER.decode(message)
    except msgspec.MsgspecError as fault:
        why = str(fault)
    try:
        known = msgspec.json.decode(message, type=_Known)
    except msgspec.MsgspecError:
        raise Lost(f"the server said something that is no event: {why}") from None
    if not known.seq:
        return None
    return Unrecognized(
        agent=known.agent, session_id=known.session_id, seq=known.seq, timestamp=known.timestamp, turn=known.turn,
        raw=message.decode("utf-8", "replace"), why=f"the server is newer than this client: {why}",
    )  # fmt: skip


async def by_websocket(line: Line, session_id: str, after: int) -> AsyncGenerator[list[Heard]]:
    try:
        from websockets.asyncio.client import connect
        from websockets.exceptions import ConnectionClosed, InvalidHandshake, InvalidMessage, InvalidStatus
    except ImportError as missing:
        raise NotInstalled("websockets is not installed; run: pip install 'stagedoor[client]'") from missing
    address = line.address
    opening = connect(
        f"{address.ws_url}/ws/sessions/{session_id}?after={after}",
        additional_headers=bearer(address),
        open_timeout=line.first_word_within,
        close_timeout=1.0,
        max_size=None,
        compression=None,
        ssl=address.tls(),
        proxy=None if address.loopback else True,
    )
    try:
        socket = await opening
    except InvalidStatus as refused:
        line.met()
        problem = read(bytes(refused.response.body or b""))
        if problem.passing:
            raise Lost(problem.detail) from refused
        if problem.ours:
            raise fault_of(refused.response.status_code, problem) from refused
        raise Closed(f"no WebSocket: status {refused.response.status_code}") from refused
    except InvalidMessage as cut:
        raise Lost(f"the connection broke while it was opened: {cut}", opening=True) from cut
    except TimeoutError as slow:
        raise Lost("the WebSocket was not opened in time", opening=True) from slow
    except InvalidHandshake as refused:
        raise Closed(f"no WebSocket: {refused}") from refused
    except OSError as fault:
        raise Lost(line.lost(fault)) from fault
    line.met()
    async with socket:
        try:
            async with asyncio.timeout(line.first_word_within):
                message = await socket.recv(decode=False)
            while True:
                if (told := heard(message)) is not None:
                    yield [told]
                message = await socket.recv(decode=False)
        except TimeoutError as silent:
            raise Lost("the WebSocket opens, and nothing is heard", opening=True) from silent
        except ConnectionClosed as end:
            code, reason = (1006, "") if end.rcvd is None else (end.rcvd.code, end.rcvd.reason)
            if code == _ENDED:
                return
            if (meant := closed(code, reason)) is not None:
                raise meant from end
            raise Lost(f"the WebSocket was closed with {code} {reason}") from end


async def by_sse(line: Line, session_id: str, after: int) -> AsyncGenerator[list[Heard]]:
    import httpx

    async with line.held() as client:
        request = client.build_request(
            "GET",
            line.url(f"/api/sessions/{session_id}/stream"),
            params={"after": after},
            headers=bearer(line.address) | {"Accept": "text/event-stream"},
            timeout=httpx.Timeout(CONNECT_WITHIN, read=SILENCE),
        )
        try:
            async with asyncio.timeout(line.first_word_within):
                response = await client.send(request, stream=True)
        except TimeoutError as silent:
            raise Lost("the stream was not opened in time", opening=True) from silent
        except httpx.TransportError as fault:
            raise Lost(line.lost(fault)) from fault
        try:
            await _let_in(line, response)
            if not response.headers.get("content-type", "").startswith("text/event-stream"):
                raise Closed("no server-sent events: somebody else answers")
            async with aclosing(_said(response, line.first_word_within)) as said:
                async for events in said:
                    over = any(event.event == "end" for event in events)
                    if told := [one for event in events if event.event != "end" and (one := heard(event.data))]:
                        yield told
                    if over:
                        return
        except httpx.TransportError as fault:
            raise Lost(line.lost(fault)) from fault
        finally:
            await response.aclose()
    raise Lost("the stream was cut")


async def _said(response: httpx.Response, first_within: float) -> AsyncGenerator[list[ServerEvent]]:
    buffer = EventBuffer()
    first = True
    chunks = response.aiter_bytes()
    while True:
        try:
            async with asyncio.timeout(first_within if first else None):
                chunk = await anext(chunks, b"")
        except TimeoutError as silent:
            raise Lost("the stream opens, and nothing is heard", opening=True) from silent
        if not chunk:
            return
        events: list[ServerEvent] = []
        for event in buffer.feed(chunk):
            if not isinstance(event, ServerEvent):
                raise Lost(f"the stream holds something that is no event: {event.why}")
            events.append(event)
        first = first and not events
        if events:
            yield events


async def by_polling(line: Line, session_id: str, after: int) -> AsyncGenerator[list[Heard]]:
    import httpx

    most = FIRST_ANSWER
    async with line.held() as client:
        while True:
            try:
                response = await client.get(
                    line.url(f"/api/sessions/{session_id}/poll"),
                    params={"after": after, "wait": WAIT, "limit": most},
                    headers=bearer(line.address),
                    timeout=httpx.Timeout(CONNECT_WITHIN, read=SILENCE),
                )
            except httpx.TransportError as fault:
                raise Lost(line.lost(fault)) from fault
            await _let_in(line, response)
            try:
                polled = msgspec.json.decode(response.content, type=_Polled)
            except msgspec.MsgspecError as fault:
                raise Lost(f"the answer is not one of a Stagedoor server: {fault}") from fault
            told = [one for event in polled.events if (one := heard(bytes(event)))]
            yield [_as_told(polled.verdict), *told]
            after = max((one.seq for one in told if not isinstance(one, Told)), default=after)
            if polled.ended:
                return
            most = min(2 * most, LARGEST_ANSWER)


async def _let_in(line: Line, response: httpx.Response) -> None:
    """Raise what a refusal means."""
    line.met()
    if response.status_code < 400:
        return
    problem = read(await response.aread())
    if problem.passing or (not problem.ours and response.status_code >= 500):
        raise Lost(problem.detail or f"answered with status {response.status_code}")
    if not problem.ours and response.status_code in _NOT_PASSED_ON:
        raise Closed(f"answered with status {response.status_code}")
    raise fault_of(response.status_code, problem)


def _as_told(verdict: Verdict) -> Told:
    return Told(**{name: getattr(verdict, name) for name in verdict.__struct_fields__})


DOORS: Sequence[Door] = (by_websocket, by_sse, by_polling)
