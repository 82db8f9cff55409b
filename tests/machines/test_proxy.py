from __future__ import annotations

import asyncio
import contextlib

from tests.machines.proxy import Wire


def test_what_is_sent_into_silence_arrives_afterwards_and_a_cut_is_seen_at_both_ends() -> None:
    async def main() -> None:
        async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            with contextlib.suppress(ConnectionError):
                while line := await reader.readline():
                    writer.write(line.upper())
            writer.close()

        server = await asyncio.start_server(echo, "127.0.0.1", 0)
        async with server, Wire(server.sockets[0].getsockname()).listening() as wire:
            reader, writer = await asyncio.open_connection("127.0.0.1", wire.port)
            writer.write(b"one\n")
            assert await reader.readline() == b"ONE\n"
            wire.silence()
            writer.write(b"two\n")
            waiting = asyncio.ensure_future(reader.readline())
            done, _ = await asyncio.wait([waiting], timeout=0.2)
            assert not done
            wire.restore()
            assert await waiting == b"TWO\n"
            wire.cut()
            try:
                left = await reader.read()
            except ConnectionError:
                left = b""
            assert left == b""
            writer.close()
            again, second = await asyncio.open_connection("127.0.0.1", wire.port)
            second.write(b"three\n")
            assert await again.readline() == b"THREE\n"
            second.close()

    asyncio.run(asyncio.wait_for(main(), 240))
