"""A client on a bad line: every event once and in order, every request carried out once."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest
from msgspec.structs import replace

import stagedoor
from stagedoor.errors import ConnectionLost
from stagedoor.service.store import Append
from stagedoor.service.views import Record, SessionView
from stagedoor.unified.events import Done, Event, TextDelta, encode

REFUSALS = {
    "websocket": "",
    "sse": "^GET /ws/",
    "polling": "^GET (/ws/|.*/stream)",
}


def stream_of(count: int, *, size: int = 20) -> list[Record]:
    """``count`` events, the last of which ends the session."""
    header: Any = {"agent": "understudy", "session_id": "s", "timestamp": 1, "turn": 1}
    events: list[Event] = [TextDelta(**header, seq=seq, text="x" * size, message_id="m") for seq in range(1, count)]
    events.append(Done(**header, seq=count, status="success"))
    return [Record(event.seq, 1, str(type(event).__struct_config__.tag), encode(event)) for event in events]


async def put(service: Any, records: Sequence[Record], **more: Any) -> None:
    ended = records[-1].type == "done"
    view = SessionView(
        id="s", agent="understudy", cwd="/w", activity="ended" if ended else "working",
        state="done" if ended else "running", last_seq=records[-1].seq, **more,
    )  # fmt: skip
    await service._journal.write(Append("s", records), view)


async def put_slowly(service: Any, records: Sequence[Record], batch: int) -> None:
    for start in range(0, len(records), batch):
        await put(service, records[start : start + batch])
        await asyncio.sleep(0)


@pytest.mark.parametrize(
    ("door", "cut_within", "cuts", "count"),
    [("websocket", 16_000, 60, 3000), ("sse", 16_000, 30, 2000), ("polling", 60_000, 12, 2000)],
)
def test_no_gap_and_no_repeat_on_a_line_that_is_cut_anywhere(
    serve: Any, proxied: Any, door: str, cut_within: int, cuts: int, count: int
) -> None:
    records = stream_of(count)

    async def main() -> tuple[list[int], int, int]:
        async with serve() as server, proxied(server) as proxy:
            await put(server.service, records[:1])
            proxy.refuses = REFUSALS[door]
            remote = stagedoor.connect(proxy.url, server.token)
            assert [view.id for view in await remote.sessions()] == ["s"]
            proxy.cut_within, proxy.cuts_left = cut_within, cuts
            received: list[int] = []
            writing = asyncio.create_task(put_slowly(server.service, records[1:], 20))
            async for event in remote.session("s").events:
                received.append(event.seq)
            await writing
            return received, proxy.cuts, list(REFUSALS).index(door) - remote._connection.door

    received, cut, moved = asyncio.run(main())
    assert received == list(range(1, count + 1))
    assert cut >= cuts // 2
    assert moved <= 0


def test_requests_are_carried_out_once_on_a_line_that_is_cut_anywhere(serve: Any, proxied: Any, script: Any) -> None:
    prompts = [script([{"say": f"number {number}"}, {"shell": f"echo x >> made-{number}"}]) for number in range(3)]

    async def main() -> tuple[list[list[int]], list[str], list[str]]:
        async with serve() as server, proxied(server) as proxy:
            remote = stagedoor.connect(proxy.url, server.token)
            await remote.sessions()
            proxy.cut_within, proxy.cuts_left = 4000, 1000
            turns: list[list[int]] = []
            async with remote.open("understudy", can_use_tool=lambda _: stagedoor.Allow()) as session:
                for prompt in prompts:
                    turns.append([event.seq async for event in session.send(prompt)])
                rest = session.events
            turns.append([event.seq async for event in rest])
            proxy.cut_within = 0
            assert proxy.cuts > 10
            written = [(server.workspace / f"made-{number}").read_text() for number in range(3)]
            return turns, written, [view.state for view in await remote.sessions()]

    turns, written, states = asyncio.run(main())
    received = [seq for turn in turns for seq in turn]
    assert received == list(range(1, len(received) + 1))
    assert written == ["x\n"] * 3
    assert states == ["done"]


@pytest.mark.parametrize(
    ("flaw", "pattern", "door"),
    [
        ("refuses", "", "/ws/"),
        ("refuses", "^GET /ws/", "/stream"),
        ("refuses", "^GET (/ws/|.*/stream)", "/poll"),
        ("hangs_up_on", "^GET /ws/", "/stream"),
        ("swallows", "^GET (/ws/|.*/stream)", "/poll"),
    ],
)
def test_where_a_proxy_lets_no_stream_through_the_next_door_is_taken(
    serve: Any, proxied: Any, script: Any, flaw: str, pattern: str, door: str
) -> None:
    async def main() -> tuple[list[int], list[int], set[str]]:
        async with serve() as server, proxied(server) as proxy:
            setattr(proxy, flaw, pattern)
            remote = stagedoor.connect(proxy.url, server.token)
            if flaw == "swallows":
                remote._connection.first_message_within = 0.3
            received = [event.seq async for event in remote.run("understudy", script([{"say": "Hello"}]))]
            proxy.requests.clear()
            view = (await remote.sessions())[0]
            again = [event.seq async for event in remote.session(view.id).events]
            doors = {
                door_path
                for door_path in ("/ws/", "/stream", "/poll")
                for request in proxy.requests
                if door_path in request
            }
            return received, again, doors

    received, again, doors = asyncio.run(main())
    assert received == again == list(range(1, len(received) + 1))
    assert doors == {door}, "what did not work is not tried again"


def test_a_gap_is_told(serve: Any, proxied: Any) -> None:
    async def main() -> list[list[Event]]:
        async with serve() as server, proxied(server) as proxy:
            await put(server.service, stream_of(10))
            view = await server.service.sessions.get("s")
            await server.service._journal.write(replace(view, first_seq=5))
            streams = []
            for refused in REFUSALS.values():
                proxy.refuses = refused
                remote = stagedoor.connect(proxy.url, server.token)
                streams.append([event async for event in remote.session("s", after=2).events])
            return streams

    for events in asyncio.run(main()):
        assert events[0] == stagedoor.Notice(
            session_id="s", seq=4, level="warning", code="events_missing",
            message="events 3 to 4 are no longer stored on the server",
        )  # fmt: skip
        assert [event.seq for event in events] == [4, 5, 6, 7, 8, 9, 10]


def test_a_server_that_never_was_there_is_told_at_once_and_one_that_left_after_a_while(serve: Any) -> None:
    async def main() -> tuple[str, str]:
        async with serve() as server:
            await put(server.service, stream_of(10)[:5])
            remote = stagedoor.connect(server.url, server.token, patience=0.2)
            events = remote.session("s").events
            assert [(await anext(events)).seq for _ in range(5)] == [1, 2, 3, 4, 5]
        with pytest.raises(ConnectionLost) as lost:
            await anext(events)
        with pytest.raises(ConnectionLost) as never:
            await stagedoor.connect(server.url, server.token).sessions()
        return str(lost.value), str(never.value)

    lost, never = asyncio.run(main())
    assert "gave up after 0.2 seconds" in lost
    assert "start it with: stagedoor serve" in never
