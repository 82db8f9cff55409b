"""HTTP: requests go out, server-sent events come in (or long-poll answers, from servers that do not stream)."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any

import msgspec

from ..errors import AgentRefused, ConnectionLost, MessageTooLarge
from ..wire.http import HttpAnswer, HttpRequest
from ..wire.jsonl import MAX_LINE, LineBuffer
from ..wire.shapes import UnknownMessage
from ..wire.sse import ServerEvent, SseBuffer
from .tasks import TaskOwner

if TYPE_CHECKING:
    import httpx

Batch = list[bytes | UnknownMessage]
WORTH_RETRYING = frozenset({408, 425, 429, 500, 502, 503, 504})
CONNECT_WITHIN = 10.0


class Backoff(msgspec.Struct, frozen=True):
    """Seconds to wait before each new try to connect, and how long to go on trying before giving up."""

    first: float = 0.2
    factor: float = 2.0
    longest: float = 5.0
    patience: float = 30.0


BACKOFF = Backoff()


class HttpTransport:
    """One server. ``send`` makes a call; ``batches`` listens at ``events`` and reconnects with ``Last-Event-ID``.

    A server that answers ``events`` with JSON instead of an event stream is polled: a list is many messages, the
    ``id`` of the last one goes along as ``Last-Event-ID``, and an empty answer means *nothing yet*.
    ``silence`` is how long a stream may say nothing (heartbeats count) before it is taken for dead.
    """

    def __init__(
        self,
        base_url: str,
        *,
        events: HttpRequest | None = None,
        auth: tuple[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
        backoff: Backoff = BACKOFF,
        silence: float = 60.0,
        answer_within: float = 120.0,
        max_message: int = MAX_LINE,
        use_proxies: bool = False,
    ) -> None:
        try:
            import httpx
        except ImportError as error:
            raise ConnectionLost("httpx is not installed; run: pip install httpx") from error
        self._errors = httpx.HTTPError, httpx.StreamError
        self._client = httpx.AsyncClient(
            base_url=base_url,
            auth=auth,
            headers=dict(headers or {}),
            timeout=httpx.Timeout(answer_within, connect=CONNECT_WITHIN),
            trust_env=use_proxies,
        )
        self._stream_timeout = httpx.Timeout(silence, connect=CONNECT_WITHIN)
        self._events = events
        self._backoff = backoff
        self._max_message = max_message
        self._polling = False
        self._told_to_stop = False
        self._closed = asyncio.Event()
        self._base_url = base_url
        self.last_event_id = ""

    async def send(self, request: HttpRequest) -> HttpAnswer:
        """Make one call. Raises only when no answer came, or one over the bound."""
        content_type = {"content-type": "application/json"} if request.body else None
        try:
            async with self._client.stream(
                request.method, request.target, content=request.body or None, headers=content_type
            ) as response:
                return HttpAnswer(response.status_code, await self._whole(response, request.line()))
        except self._errors as error:
            why = str(error) or type(error).__name__
            raise ConnectionLost(f"no answer to {request.method} {request.path} at {self._base_url}: {why}") from error

    async def batches(self) -> AsyncIterator[Batch]:
        """What the server says, until ``close`` or until it tells us to stop (204).

        Raises ``AgentRefused`` when it refuses us and ``ConnectionLost`` when it stayed away for too long.
        """
        if self._events is None:
            return
        delay, lost_at, why = self._backoff.first, time.monotonic(), "it did not answer"
        while not self._closed.is_set():
            try:
                async with contextlib.aclosing(self._until_closed(self._connection(self._events))) as connection:
                    async for batch, pause in connection:
                        delay, lost_at = pause or self._backoff.first, time.monotonic()
                        if batch:
                            yield batch
                if self._closed.is_set() or self._told_to_stop:
                    return
                why = "it closed the stream"
            except self._errors as error:
                why = str(error) or type(error).__name__
            if self._polling:
                continue
            if time.monotonic() - lost_at > self._backoff.patience:
                raise ConnectionLost(
                    f"lost the connection to {self._base_url}{self._events.path} and could not connect again: {why}"
                )
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._closed.wait(), delay)
            delay = min(delay * self._backoff.factor, self._backoff.longest)

    async def close(self) -> None:
        self._closed.set()
        await self._client.aclose()

    async def __aenter__(self) -> HttpTransport:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()

    async def _until_closed(self, source: AsyncGenerator[Any, None]) -> AsyncGenerator[Any, None]:
        """``source``, ended by ``close`` even while it waits: httpx leaves a reader waiting on a closed client."""
        tasks = TaskOwner()
        closed = tasks.start(self._closed.wait())
        try:
            while True:
                following = tasks.start(_next_batch(source))
                # Looked at in any case: how a connection ended is no news to somebody who has left or closed it.
                following.add_done_callback(lambda ended: ended.cancelled() or ended.exception())
                await asyncio.wait((closed, following), return_when=asyncio.FIRST_COMPLETED)
                if closed.done():
                    return
                batch = following.result()
                if batch is None:
                    return
                yield batch
        finally:
            await tasks.close()
            await source.aclose()

    async def _connection(self, events: HttpRequest) -> AsyncGenerator[tuple[Batch, float | None], None]:
        """One connection from its opening to its end: batches, each with the pause the server asked for."""
        headers = {"accept": "text/event-stream, application/json;q=0.5", "cache-control": "no-store"}
        if self.last_event_id:
            headers["last-event-id"] = self.last_event_id
        async with self._client.stream(
            events.method, events.target, content=events.body or None, headers=headers, timeout=self._stream_timeout
        ) as response:
            if response.status_code == 204 and not self._polling:
                self._told_to_stop = True
            elif response.status_code >= 400:
                await self._refused(response, events)
            elif response.headers.get("content-type", "").startswith("text/event-stream"):
                self._polling = False
                yield [], None
                async for item in self._streamed(response):
                    yield item
            else:
                self._polling = True
                async for item in self._polled(response, events):
                    yield item

    async def _refused(self, response: httpx.Response, events: HttpRequest) -> None:
        body = (await self._whole(response, events.line())).decode("utf-8", "replace")[:500]
        if response.status_code in WORTH_RETRYING:
            response.raise_for_status()
        raise AgentRefused(
            f"{self._base_url}{events.path} answered {response.status_code}: {body or response.reason_phrase}",
            code=response.status_code,
        )

    async def _streamed(self, response: httpx.Response) -> AsyncIterator[tuple[Batch, float | None]]:
        buffer = SseBuffer(self._max_message)
        buffer.last_id = self.last_event_id
        broken: Exception | None = None
        try:
            async for chunk in response.aiter_bytes():
                batch = _messages(buffer.feed(chunk))
                self.last_event_id = buffer.last_id
                yield batch, None if buffer.retry_ms is None else buffer.retry_ms / 1000
        except self._errors as error:
            broken = error
        if rest := _messages(buffer.finish()):
            yield rest, None
        if broken is not None:
            raise broken

    async def _polled(self, response: httpx.Response, events: HttpRequest) -> AsyncIterator[tuple[Batch, float | None]]:
        body = await self._whole(response, events.line())
        batch = _listed(body, self._max_message)
        for message in reversed(batch):
            if isinstance(message, bytes) and (last := _identity(message)):
                self.last_event_id = last
                break
        yield batch, None
        if not batch:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._closed.wait(), self._backoff.first)

    async def _whole(self, response: httpx.Response, request: bytes) -> bytes:
        content = bytearray()
        async for chunk in response.aiter_bytes():
            content += chunk
            if len(content) > self._max_message:
                what = request[:200].decode("utf-8", "replace")
                raise MessageTooLarge(f"the answer to {what} is larger than the limit of {self._max_message} bytes")
        return bytes(content)


def _messages(events: list[ServerEvent | UnknownMessage]) -> Batch:
    return [event.data if isinstance(event, ServerEvent) else event for event in events]


def _listed(body: bytes, max_message: int) -> Batch:
    """A polled answer's messages: a JSON list of them, a single one, or JSON Lines."""
    if not body.strip():
        return []
    try:
        return [bytes(one) for one in msgspec.json.decode(body, type=list[msgspec.Raw])]
    except (msgspec.DecodeError, UnicodeDecodeError):
        buffer = LineBuffer(max_message)
        return buffer.feed(body) + buffer.finish()


class _Identified(msgspec.Struct, frozen=True):
    id: str | int = ""


def _identity(message: bytes) -> str:
    try:
        return str(msgspec.json.decode(message, type=_Identified).id)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return ""


async def _next_batch(source: AsyncGenerator[Any, None]) -> Any | None:
    """``None`` at the end: a task that ends with ``StopAsyncIteration`` would be reported as one that failed."""
    return await anext(source, None)
