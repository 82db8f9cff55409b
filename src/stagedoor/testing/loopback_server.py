"""A small HTTP server on loopback that can misbehave on purpose: fall silent, cut a stream, never end."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable

import msgspec

try:
    import h11
except ImportError as missing:  # an extra, so that the library itself stays small
    raise ImportError("the scripted model needs h11: run pip install h11") from missing

from .answers import FramedAnswer, Hangup, Pause

_READ = 2**16


class LoopbackRequest(msgspec.Struct, frozen=True):
    method: str
    path: str
    query: str
    headers: dict[str, str]
    body: bytes


Respond = Callable[[LoopbackRequest], FramedAnswer]


class LoopbackServer:
    """Serves ``respond`` on 127.0.0.1; ``port`` 0 chooses a free one."""

    def __init__(self, respond: Respond, port: int = 0) -> None:
        self._respond = respond
        self._requested_port = port
        self._server: asyncio.Server | None = None
        self._connections: set[asyncio.Task[None]] = set()

    async def start(self) -> int:
        """Start to listen; returns the port."""
        self._server = await asyncio.start_server(self._connected, "127.0.0.1", self._requested_port, backlog=128)
        return int(self._server.sockets[0].getsockname()[1])

    async def stop(self) -> None:
        """Close the port and every connection, stalled ones included."""
        if self._server is None:
            return
        self._server.close()
        for task in self._connections:
            task.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)
        await self._server.wait_closed()
        self._server = None

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._connections.add(task)
        try:
            try:
                await _HttpConnection(reader, writer, self._respond).serve()
            except (ConnectionError, h11.RemoteProtocolError, TimeoutError):
                pass  # the client's own business
            finally:
                writer.close()
                with contextlib.suppress(ConnectionError):
                    await writer.wait_closed()
        except asyncio.CancelledError:
            if self._server is not None and self._server.is_serving():
                raise
            # stop() cancelled us, and asyncio 3.11 would report the connection's cancelled task as a fault
        finally:
            self._connections.discard(task)


class _HttpConnection:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, respond: Respond) -> None:
        self._reader, self._writer, self._respond = reader, writer, respond
        self._http = h11.Connection(h11.SERVER)
        writer.transport.set_write_buffer_limits(high=0)  # drain() then means: the kernel has it

    async def serve(self) -> None:
        while (request := await self._request()) is not None:
            answer = self._respond(request)
            try:
                alive = await (self._stream(answer) if answer.chunked else self._whole(answer, request.method))
            finally:
                close: Callable[[], None] | None = getattr(answer.frames, "close", None)
                if close:
                    close()  # that a client left early must show now, not when memory is tidied up
            if not alive or self._http.our_state is not h11.DONE or self._http.their_state is not h11.DONE:
                return
            self._http.start_next_cycle()

    async def _request(self) -> LoopbackRequest | None:
        head: h11.Request | None = None
        body = bytearray()
        while True:
            event = self._http.next_event()
            if event is h11.NEED_DATA:
                if self._http.they_are_waiting_for_100_continue:
                    await self._send(h11.InformationalResponse(status_code=100, headers=[]))
                self._http.receive_data(await self._reader.read(_READ))
            elif isinstance(event, h11.Request):
                head = event
            elif isinstance(event, h11.Data):
                body += event.data
            elif isinstance(event, h11.EndOfMessage) and head is not None:
                path, _, query = head.target.decode("latin-1").partition("?")
                headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in head.headers}
                return LoopbackRequest(head.method.decode("latin-1"), path, query, headers, bytes(body))
            else:
                return None

    async def _whole(self, answer: FramedAnswer, method: str) -> bool:
        body = b""
        for frame in answer.frames:
            if isinstance(frame, bytes):
                body += frame
            elif isinstance(frame, Hangup) or await self._client_left(frame.seconds):
                return False
        headers = [*answer.headers, ("content-length", str(len(body)))]
        await self._send(h11.Response(status_code=answer.status, headers=headers))
        if method != "HEAD":
            await self._send(h11.Data(data=body))
        await self._send(h11.EndOfMessage())
        return True

    async def _stream(self, answer: FramedAnswer) -> bool:
        head = h11.Response(status_code=answer.status, headers=[*answer.headers, ("transfer-encoding", "chunked")])
        started = False
        for frame in answer.frames:
            if isinstance(frame, Pause):
                if await self._client_left(frame.seconds):
                    return False
                continue
            if not started:
                await self._send(head)
                started = True
            if isinstance(frame, Hangup):
                # Half an event, well framed, and then no end: what a proxy that dies leaves behind.
                if frame.tail:
                    await self._send(h11.Data(data=frame.tail))
                return False
            await self._send(h11.Data(data=frame))
        if not started:
            await self._send(head)
        await self._send(h11.EndOfMessage())
        return True

    async def _send(self, event: h11.Event) -> None:
        self._writer.write(self._http.send(event) or b"")
        await self._writer.drain()
        await asyncio.sleep(0)  # an endless answer to a quick reader must not block the others

    async def _client_left(self, seconds: float | None) -> bool:
        """Wait so long, or for ever; whether the client went away meanwhile."""
        try:
            async with asyncio.timeout(seconds):
                while data := await self._reader.read(_READ):
                    self._http.receive_data(data)
        except TimeoutError:
            return False
        return True
