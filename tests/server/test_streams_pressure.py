"""Streams under clients that are slow, gone, rude or unlucky: nobody else notices, and nothing is lost."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import json
import random
import socket
import struct
from collections.abc import AsyncGenerator, Sequence
from typing import Any

import pytest
from starlette.routing import Route, WebSocketRoute
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed
from websockets.frames import Frame, Opcode

from stagedoor.server.connections import WebSocketConnection, text_frame
from stagedoor.server.streams.dialect_cursor import DialectCursors
from stagedoor.server.streams.following import PIECE, EncodedRecords, joined
from stagedoor.server.streams.sse import SessionStream
from stagedoor.server.streams.websocket import MAX_MESSAGES, SessionSocket
from stagedoor.service.store import Append
from stagedoor.service.views import Record, SessionView
from stagedoor.unified.events import Done, Event, Text, TextDelta, encode

HIGH_WATER = 64 * 1024


def stream_of(count: int, *, size: int = 20) -> list[Record]:
    """``count`` events, the last of which ends the session."""
    header: Any = {"agent": "understudy", "session_id": "s", "timestamp": 1, "turn": 1}
    events: list[Event] = [TextDelta(**header, seq=seq, text="x" * size, message_id="m") for seq in range(1, count)]
    events.append(Done(**header, seq=count, status="success"))
    return [Record(event.seq, 1, str(type(event).__struct_config__.tag), encode(event)) for event in events]


async def put(service: Any, records: Sequence[Record]) -> None:
    over = records[-1].type == "done"
    view = SessionView(
        id="s", agent="understudy", cwd="/w", activity="ended" if over else "working",
        state="done" if over else "running", last_seq=records[-1].seq,
    )  # fmt: skip
    await service._journal.write(Append("s", records), view)


async def put_all(service: Any, records: Sequence[Record], *, batch: int = 100) -> None:
    for start in range(0, len(records), batch):
        await put(service, records[start : start + batch])


@contextlib.asynccontextmanager
async def raw(server: Any, path: str, *, upgrade: bool = True) -> AsyncGenerator[tuple[Any, Any]]:
    """A connection that reads only what it is told to read, with little room in between."""
    plug = socket.socket()
    plug.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    plug.setblocking(False)
    await asyncio.get_running_loop().sock_connect(plug, (server.host, server.port))
    reader, writer = await asyncio.open_connection(sock=plug, limit=4096)
    words = "Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\n" if upgrade else ""
    key = "Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n" if upgrade else ""
    head = f"GET {path} HTTP/1.1\r\nHost: {server.host}:{server.port}\r\nAuthorization: Bearer {server.token}\r\n"
    writer.write(f"{head}{words}{key}\r\n".encode())
    try:
        yield reader, writer
    finally:
        writer.transport.abort()
        with contextlib.suppress(OSError):
            await writer.wait_closed()


async def until(condition: Any) -> None:
    while not condition():
        await asyncio.sleep(0.005)


def numbers(server: Any, query: str = "") -> Any:
    async def read() -> list[int]:
        found: list[int] = []
        async with connect(
            f"{server.ws_url}/ws/sessions/s?verdict=false{query}", additional_headers=server.headers
        ) as one:
            async for message in one:
                found.append(json.loads(message)["seq"])
        assert one.close_code == 1000
        return found

    return read()


def test_a_slow_client_holds_nobody_up_takes_little_room_and_loses_nothing(serve: Any) -> None:
    records = stream_of(3000, size=1000)

    async def main() -> tuple[list[int], list[int], bytes]:
        async with serve() as server:
            await put(server.service, records[:1])
            async with raw(server, "/ws/sessions/s?verdict=false") as (reader, _):
                await reader.readuntil(b"\r\n\r\n")
                fast = asyncio.create_task(numbers(server))
                await until(lambda: server.service._journal.followers == 2)
                await put_all(server.service, records[1:])
                seen = await fast
                await until(lambda: server.service._journal.followers == 1)
                rooms = [
                    one.transport.get_write_buffer_size()
                    for one in gc.get_objects()
                    if type(one) is WebSocketConnection and not one.transport.is_closing()
                ]
                expected = b"".join(text_frame(record.body) for record in records)
                got = await reader.readexactly(len(expected))
                assert got == expected
                return seen, rooms, await reader.readexactly(4)

    seen, rooms, goodbye = asyncio.run(main())
    assert seen == [record.seq for record in records]
    assert len(rooms) == 1
    assert 0 < rooms[0] <= HIGH_WATER + PIECE
    assert goodbye[:1] + goodbye[2:] == b"\x88" + struct.pack("!H", 1000)


@pytest.mark.parametrize("path", ["/ws/sessions/s", "/api/sessions/s/stream"])
def test_whoever_takes_nothing_for_long_is_cut_off_and_can_come_back(serve: Any, path: str) -> None:
    records = stream_of(4000, size=2000)

    async def main() -> list[int]:
        async with serve() as server:
            service = server.service
            server.app.router.routes[:0] = [
                WebSocketRoute("/ws/sessions/{id}", SessionSocket(service, stalled=0.2)),
                Route("/api/sessions/{id}/stream", SessionStream(service, stalled=0.2), methods=["GET"]),
            ]
            await put_all(service, records)
            async with raw(server, path, upgrade=path.startswith("/ws")) as (reader, _):
                await reader.readuntil(b"\r\n\r\n")
                await until(lambda: service._journal.followers == 1)
                await until(lambda: service._journal.followers == 0)
                with pytest.raises((ConnectionError, asyncio.IncompleteReadError)):
                    await reader.readexactly(len(records) * 2000)
            return await numbers(server, "&after=3990")

    assert asyncio.run(main()) == list(range(3991, 4001))


def masked(opcode: int, payload: bytes, *, fin: bool = True) -> bytes:
    return Frame(Opcode(opcode), payload, fin).serialize(mask=True)


RUDE = {
    "garbage": b"\xff\xfe\xfd" * 50,
    "an unmasked frame": b"\x81\x02hi",
    "text that is none": masked(1, b"\xff\xff"),
    "binary": masked(2, b"\x00" * 100),
    "a frame larger than all memory": b"\x82\xff" + struct.pack("!Q", 1 << 62) + b"\0\0\0\0",
    "a frame larger than is borne": b"\x82\xff" + struct.pack("!Q", 64 << 20) + b"\0\0\0\0" + b"x" * 1000,
    "a message that never ends": masked(1, b"a", fin=False) + masked(0, b"b", fin=False) * 20,
    "a continuation of nothing": masked(0, b"x"),
    "a reserved opcode": b"\x83\x80\0\0\0\0",
    "a long ping": b"\x89\xfe\x00\x80\0\0\0\0" + b"x" * 128,
    "a strange goodbye": b"\x88\x81\0\0\0\0\x03",
    "half a frame": b"\x81\xfe\x10",
    "nothing": b"",
    "JSON of another door": masked(1, b'{"jsonrpc":"2.0","id":1,"method":"session/list"}'),
    "very much talk": masked(1, b"hello?") * (MAX_MESSAGES + 1),
}


def test_rude_clients_and_those_who_vanish_leave_nothing_behind(serve: Any) -> None:
    records = stream_of(50)

    async def main() -> tuple[list[list[int]], int | None]:
        async with serve() as server:
            service = server.service
            await put(service, records[:10])
            polite = [asyncio.create_task(numbers(server)) for _ in range(3)]
            await until(lambda: service._journal.followers == 3)
            for rude in RUDE.values():
                async with raw(server, "/ws/sessions/s") as (reader, writer):
                    await reader.readuntil(b"\r\n\r\n")
                    writer.write(rude)
                    await writer.drain()
                    linger = struct.pack("ii", 1, 0)  # hang up with a reset
                    writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
            await until(lambda: service._journal.followers == 3)
            async with connect(f"{server.ws_url}/ws/sessions/s", additional_headers=server.headers) as talker:
                with contextlib.suppress(ConnectionClosed):
                    while True:
                        await talker.send("hello?")
                        await asyncio.sleep(0)  # it lives in the loop of the server it talks to
            await put_all(service, records[10:])
            streams = await asyncio.gather(*polite)
            await until(lambda: service._journal.followers == 0)
            return streams, talker.close_code

    assert asyncio.run(main()) == ([list(range(1, 51))] * 3, 1008)


def test_a_client_that_is_cut_off_again_and_again_hears_everything_once(serve: Any) -> None:
    """By whichever door it comes back."""
    records = stream_of(400)
    dice = random.Random(5)

    async def main() -> list[int]:
        found: list[int] = []
        async with serve() as server, server.client() as client:
            await put(server.service, records[:1])
            writing = asyncio.create_task(put_all(server.service, records[1:], batch=3))
            while len(found) < len(records):
                after = found[-1] if found else 0
                enough = dice.randrange(1, 30)
                match dice.randrange(3):
                    case 0:
                        url = f"{server.ws_url}/ws/sessions/s?after={after}&verdict=false"
                        async with connect(url, additional_headers=server.headers) as one:
                            with contextlib.suppress(ConnectionClosed):
                                found += [json.loads(await one.recv())["seq"] for _ in range(enough)]
                            one.transport.abort()
                    case 1:
                        path = f"/api/sessions/s/stream?after={after}"
                        async with client.stream("GET", path) as stream:
                            async for line in stream.aiter_lines():
                                found += [int(line[4:])] if line.startswith("id: ") else []
                                if len(found) and found[-1] >= after + enough:
                                    break
                    case _:
                        answer = (await client.get(f"/api/sessions/s/poll?after={after}&limit={enough}")).json()
                        found += [one["seq"] for one in answer["events"]]
            await writing
        return found

    found = asyncio.run(main())
    assert found == list(range(1, 401))


def test_clients_continue_on_the_server_that_comes_after_this_one(serve: Any) -> None:
    records = stream_of(20)

    async def main() -> list[Any]:
        async with serve() as server:
            await put(server.service, records[:10])
            url = f"{server.ws_url}/ws/sessions/s?after=8&verdict=false"
            client = server.client()
            stream = asyncio.create_task(client.get("/api/sessions/s/stream?after=9"))
            poll = asyncio.create_task(client.get("/api/sessions/s/poll?after=10&wait=60"))
            connection = await connect(url, additional_headers=server.headers)
            first = [json.loads(await connection.recv())["seq"] for _ in range(2)]
            await until(lambda: server.service._journal.followers == 2)
        with contextlib.suppress(ConnectionClosed):
            await connection.recv()
        left = [(await stream).text.count("event: end"), (await poll).json()["events"]]
        await client.aclose()
        async with serve() as server:
            rest = await numbers(server, "&after=10")
        return [first, connection.close_code, left, rest[0]]

    assert asyncio.run(main()) == [[9, 10], 1012, [0, []], 11]


class Plain(SessionSocket):
    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        await super().__call__({**scope, "extensions": {}}, receive, send)


def test_a_server_that_frames_every_message_itself_tells_the_same(serve: Any) -> None:
    records = stream_of(50)

    async def main() -> list[int]:
        async with serve() as server:
            server.app.router.routes.insert(0, WebSocketRoute("/ws/sessions/{id}", Plain(server.service)))
            await put(server.service, records)
            found: list[int] = await numbers(server)
            return found

    assert asyncio.run(main()) == list(range(1, 51))


@pytest.mark.parametrize("size", [0, 1, 125, 126, 127, 65535, 65536, 70000])
def test_a_frame_is_framed_as_the_library_frames_it(size: int) -> None:
    payload = b"x" * size
    assert text_frame(payload) == Frame(Opcode.TEXT, payload).serialize(mask=False)


def test_what_is_ready_is_shared_in_pieces_and_not_kept_for_ever() -> None:
    records = [Record(seq, 0, "text", b"y" * 1000) for seq in range(1, 301)]
    encoded = EncodedRecords(lambda seq, body: b"%d:%b;" % (seq, body), max_bytes=400_000)
    pieces = encoded.pieces("s", records)
    assert encoded.pieces("s", list(records)) is pieces
    assert b"".join(piece for _, piece in pieces) == b"".join(b"%d:%b;" % (one.seq, one.body) for one in records)
    assert all(len(piece) <= PIECE for _, piece in pieces)
    assert [last for last, _ in pieces] == sorted({last for last, _ in pieces})
    assert pieces[-1][0] == 300
    encoded.pieces("t", records)
    assert encoded.pieces("s", records) is not pieces
    assert joined([]) == []
    assert joined([(1, b"z" * 2 * PIECE), (2, b"z")]) == [(1, b"z" * 2 * PIECE), (2, b"z")]


def test_a_place_that_was_kept_knows_as_much_as_one_that_was_not(serve: Any) -> None:
    header: Any = {"agent": "understudy", "session_id": "s", "timestamp": 1, "turn": 1}
    events: list[Event] = []
    for number in range(100):
        events += [
            TextDelta(**header, seq=3 * number + 1, text="a", message_id=str(number)),
            TextDelta(**header, seq=3 * number + 2, text="b", message_id=str(number)),
            Text(**header, seq=3 * number + 3, text="abc", message_id=str(number)),
        ]
    records = [Record(one.seq, 1, str(type(one).__struct_config__.tag), encode(one)) for one in events]

    async def main() -> list[list[bytes]]:
        async with serve() as server:
            await put(server.service, records)
            found: list[list[bytes]] = []
            for limit in (300, 97, 7):
                cursors = DialectCursors(server.service.events)
                after, messages = 0, list[bytes]()
                while after < len(records):
                    page = await cursors.page("s", "ues", after, limit)
                    messages += page.messages
                    after = page.last
                found.append(messages)
            fresh = DialectCursors(server.service.events)
            found.append(
                found[0][: -len(rest)] + rest if (rest := (await fresh.page("s", "ues", 200, 300)).messages) else []
            )
            return found

    whole, *others = asyncio.run(main())
    assert others == [whole] * 3
