"""The servers that ``bench.fanout`` measures, each in a process of its own: ours, and the barest one there could be.

They take orders line by line (``go``, ``memory``) and answer in JSON.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import tempfile
import zlib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from bench.memory import resident

TOKEN = "a-token-for-the-benchmark"


def bodies(session_id: str, count: int) -> list[bytes]:
    """The stream of a session: canonical events, mostly a few words each."""
    from stagedoor.unified.events import Done, Event, TextDelta, encode

    header = {"agent": "bench", "session_id": session_id, "timestamp": 1_700_000_000_000, "turn": 1}
    deltas: list[Event] = [TextDelta(**header, seq=seq, text="some words ", message_id="m1") for seq in range(1, count)]  # type: ignore[arg-type]
    return [encode(event) for event in [*deltas, Done(**header, seq=count, status="success")]]  # type: ignore[arg-type]


def expected(messages: Iterable[bytes]) -> tuple[int, int]:
    """The length and the checksum of what every subscriber must read, whoever serves it."""
    from stagedoor.server.connections import text_frame

    stream = b"".join(text_frame(message) for message in messages)
    return len(stream), zlib.crc32(stream)


def answer(**fields: Any) -> None:
    print(json.dumps(fields), flush=True)


def memory() -> int:
    return resident()


async def orders() -> asyncio.StreamReader:
    reader = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    return reader


async def ours(sessions: int, events: int, batch: int) -> None:
    """Events go into the journal as a session puts them there, ``batch`` at a time: what one read of the agent's pipe
    brings. Subscribers come through the whole app."""
    import gc

    from stagedoor.server.app import create_app
    from stagedoor.server.connections import WebSocketConnection
    from stagedoor.server.listening import listening, open_socket
    from stagedoor.service.config.settings import AgentSettings, Settings
    from stagedoor.service.service import Service
    from stagedoor.service.store import Append
    from stagedoor.service.views import Record, SessionSpec, SessionView

    def no_pings(_: WebSocketConnection) -> None:
        """They would stand in the middle of what is checksummed, on a machine slow enough."""

    WebSocketConnection.start_keepalive = no_pings  # type: ignore[method-assign]

    async def feed(view: SessionView, messages: list[bytes]) -> None:
        from msgspec.structs import replace

        for start in range(0, events, batch):
            records = [
                Record(seq, 1_700_000_000_000, "text_delta", messages[seq - 1])
                for seq in range(start + 1, min(start + batch, events) + 1)
            ]
            last = records[-1].seq
            ended = last == events
            view = replace(
                view, last_seq=last, activity="ended" if ended else "working", state="done" if ended else "running"
            )
            await service._journal.write(Append(view.id, records), view)

    with tempfile.TemporaryDirectory(prefix="stagedoor-bench-") as folder:
        program = os.environ.get("BENCH_PROGRAM", "")
        work = f"{folder}/work"  # apart from the home, which no session may run in
        await asyncio.to_thread(Path(work).mkdir)
        settings = Settings(
            home=f"{folder}/home", roots=(work,), agents={"claude": AgentSettings(command=program)}, sleep_after=None
        )
        service = Service(settings)
        opened = open_socket("127.0.0.1", 0)
        async with listening(create_app(service, token=TOKEN), settings, opened):
            views = [SessionView(id=f"session-{number}", agent="bench", cwd=folder) for number in range(sessions)]
            await service._journal.write(*views)
            streams = [bodies(view.id, events) for view in views]
            answer(port=opened.getsockname()[1])
            reader = await orders()
            while order := (await reader.readline()).decode().split():
                match order:
                    case ["go"]:
                        await asyncio.gather(*(feed(*each) for each in zip(views, streams, strict=True)))
                        answer(complete=True)
                    case ["memory"]:
                        gc.collect()
                        answer(memory=memory())
                    case ["agent", keep]:
                        spec = SessionSpec(prompt="go", agent="claude", cwd=work, keep_open=keep == "keep")
                        answer(session=(await service.sessions.create(spec)).id)
                    case _:
                        break


async def bare(events: int, batch: int) -> None:
    """``websockets`` alone: every message broadcast as it comes."""
    from websockets.asyncio.server import ServerConnection, broadcast, serve

    messages = [body.decode() for body in bodies("session-0", events)]
    connections: set[ServerConnection] = set()
    somebody = asyncio.Event()

    async def come(connection: ServerConnection) -> None:
        connections.add(connection)
        somebody.set()
        await connection.wait_closed()
        connections.discard(connection)

    async with serve(come, "127.0.0.1", 0, compression=None, ping_interval=None) as server:
        answer(port=next(iter(server.sockets)).getsockname()[1])
        reader = await orders()
        while order := (await reader.readline()).decode().split():
            match order:
                case ["go"]:
                    for start in range(0, events, batch):
                        for message in messages[start : start + batch]:
                            broadcast(connections, message)
                        await asyncio.sleep(0)
                    answer(complete=True)
                case ["agent", *_]:
                    answer(session="session-0")
                    await somebody.wait()
                    await _relay(connections)
                case _:
                    break


async def _relay(connections: Any) -> None:
    """A program's lines to the sockets, unread and unkept."""
    from websockets.asyncio.server import broadcast

    pipe = asyncio.subprocess.PIPE
    program = await asyncio.create_subprocess_exec(os.environ["BENCH_PROGRAM"], stdin=pipe, stdout=pipe)
    assert program.stdin is not None
    assert program.stdout is not None
    program.stdin.write(b'{"type":"user"}\n')
    async for line in program.stdout:
        broadcast(connections, line.decode())
        if b'"type":"result"' in line:
            break
    program.stdin.close()
    await program.wait()


if __name__ == "__main__":
    _, which, *numbers = sys.argv
    sessions, events, batch = map(int, numbers)
    asyncio.run(ours(sessions, events, batch) if which == "ours" else bare(events, batch))
