"""A session told as it happens: over WebSocket, server-sent events and long polls, in every dialect, from any place."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import sys
from collections.abc import AsyncGenerator, Sequence
from pathlib import Path
from typing import Any

import pytest
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed

from stagedoor.dialects import DIALECTS
from stagedoor.server.streams.dialect_cursor import DialectCursor
from stagedoor.service.store import Append, Trim
from stagedoor.service.views import Record, SessionSpec, SessionView
from stagedoor.unified import events as canonical
from stagedoor.unified.events import Event, encode

Stories = list[list[dict[str, Any]]]


def story(session_id: str = "s") -> list[Record]:
    """A session with something of all that dialects remember: drafts, calls, questions, failures."""
    events: list[Event] = [
        canonical.Init(model="m", cwd="/w"),
        canonical.TurnStarted(prompt="go"),
        canonical.ThinkingDelta(text="hm"),
        canonical.TextDelta(text="Hel", message_id="1"),
        canonical.TextDelta(text="lo", message_id="1"),
        canonical.Text(text="Hello all", message_id="1"),
        canonical.ToolUse(tool_use_id="t", name="shell", native_name="Bash", input={"command": "ls"}),
        canonical.PermissionRequest(request_id="r", tool_use_id="t", tool_name="shell", input={"command": "ls"}),
        canonical.PermissionResolved(request_id="r", decision="allow", by="client"),
        canonical.ToolResult(tool_use_id="t", name="shell", status="success", output="a\u2028b"),
        canonical.TextDelta(text="never said whole", message_id="2"),
        canonical.Error(kind="unknown", message="it broke", fatal=True),
        canonical.TurnCompleted(turn=1, status="error"),
        canonical.Done(status="error"),
    ]
    records: list[Record] = []
    for seq, event in enumerate(events, 1):
        canonical.stamp(event, "understudy", session_id, seq, 1_700_000_000_000 + seq, 1)
        records.append(Record(seq, event.timestamp, str(type(event).__struct_config__.tag), encode(event)))
    return records


async def put(service: Any, records: Sequence[Record], session_id: str = "s", *, ended: bool | None = None) -> None:
    """Into the log, as a session puts them there."""
    over = records[-1].type == "done" if ended is None else ended
    view = SessionView(
        id=session_id, agent="understudy", cwd="/w", activity="ended" if over else "working",
        state="failed" if over else "running", last_seq=records[-1].seq,
    )  # fmt: skip
    await service._journal.write(Append(session_id, records), view)


def in_dialect(name: str, records: Sequence[Record], after: int = 0) -> list[Any]:
    """What one who heard all of it hears after ``after``."""
    cursor = DialectCursor(name)
    projected = [(record.seq, cursor.project(record)) for record in records]
    return [json.loads(message) for seq, messages in projected if seq > after for message in messages]


def socket(server: Any, query: str = "", session_id: str = "s", **more: Any) -> Any:
    return connect(f"{server.ws_url}/ws/sessions/{session_id}{query}", additional_headers=server.headers, **more)


async def receive_all(connection: ClientConnection) -> tuple[list[Any], int | None, str | None]:
    """Everything until the server says goodbye, and how it does."""
    messages: list[Any] = []
    with contextlib.suppress(ConnectionClosed):
        while True:
            messages.append(json.loads(await connection.recv()))
    return messages, connection.close_code, connection.close_reason


def events_of(text: str) -> list[tuple[str, str, Any]]:
    """Server-sent events as a browser reads them: name, id, content."""
    found: list[tuple[str, str, Any]] = []
    for block in text.split("\n\n"):
        fields = dict(line.split(": ", 1) for line in block.split("\n") if line and not line.startswith(":"))
        if "data" in fields:
            found.append((fields.get("event", "message"), fields.get("id", ""), json.loads(fields["data"])))
    return found


@pytest.mark.parametrize("dialect", DIALECTS)
def test_every_door_tells_the_same_from_every_place(serve: Any, dialect: str) -> None:
    records = story()

    async def main() -> tuple[Stories, Stories, Stories]:
        sockets: Stories = []
        streams: Stories = []
        polls: Stories = []
        async with serve() as server, server.client() as client:
            await put(server.service, records)
            for after in range(len(records) + 1):
                place = f"?after={after}&dialect={dialect}"
                async with socket(server, f"{place}&verdict=false") as connection:
                    messages, code, _ = await receive_all(connection)
                assert code == 1000
                sockets.append(messages)
                stream = await client.get(f"/api/sessions/s/stream{place}")
                streams.append([content for name, _, content in events_of(stream.text) if name == "message"])
                poll = (await client.get(f"/api/sessions/s/poll{place}")).json()
                assert (poll["lastSeq"], poll["ended"]) == (len(records), True)
                polls.append(poll["events"])
        return sockets, streams, polls

    expected = [in_dialect(dialect, records, after) for after in range(len(records) + 1)]
    assert asyncio.run(main()) == (expected, expected, expected)


def test_what_happens_is_told_at_once_to_all(serve: Any) -> None:
    records = story()

    async def main() -> list[Any]:
        async with serve() as server, server.client() as client:
            await put(server.service, records[:2])
            async with socket(server) as early, socket(server, "?after=1&dialect=board") as board:
                stream = asyncio.create_task(client.get("/api/sessions/s/stream?after=2"))
                poll = asyncio.create_task(client.get("/api/sessions/s/poll?after=2&wait=60"))
                first = [json.loads(await early.recv()) for _ in range(3)]
                while server.service._journal.followers < 3:
                    await asyncio.sleep(0)
                await put(server.service, records[2:3])
                thought = json.loads(await early.recv())
                polled = (await poll).json()
                for record in records[3:]:
                    await put(server.service, [record])
                rest = await asyncio.gather(receive_all(early), receive_all(board))
                return [first, thought, polled, *rest, events_of((await stream).text)]

    verdict = {"verdict": "ok", "sessionId": "s", "lastSeq": 2, "missingFrom": None, "missingTo": None}
    events = in_dialect("stagedoor", records)
    ended = "the session has ended"
    assert asyncio.run(main()) == [
        [{"type": "verdict", "after": 0, **verdict}, *events[:2]],
        events[2],
        {"verdict": {"after": 2, **verdict, "lastSeq": 3}, "events": [events[2]], "lastSeq": 3, "ended": False},
        (events[3:], 1000, ended),
        (in_dialect("board", records, 1), 1000, ended),
        [
            ("verdict", "", {"type": "verdict", "after": 2, **verdict}),
            *(("message", str(one["seq"]), one) for one in events[2:]),
            ("end", "", {"sessionId": "s", "state": "failed", "lastSeq": 14}),
        ],
    ]


def test_what_retention_removed_is_told_or_refused_never_passed_over(serve: Any) -> None:
    records = story()

    async def main() -> list[Any]:
        async with serve() as server, server.client() as client:
            await put(server.service, records)
            await server.service._journal.write(Trim("s", 6))
            found: list[Any] = []
            for query in ("?after=2", "?after=5", "?after=2&dialect=ues", "?after=2&dialect=ues&verdict=true"):
                async with socket(server, query) as connection:
                    messages, code, reason = await receive_all(connection)
                    found.append((messages[:1], len(messages) > 2, code, reason))
            stream = events_of((await client.get("/api/sessions/s/stream?after=1")).text)
            poll = (await client.get("/api/sessions/s/poll?after=1")).json()
            return [*found, stream[0][2], stream[1][1], poll["verdict"]["verdict"], poll["events"][0]["seq"]]

    gap = {
        "type": "verdict",
        "verdict": "gap",
        "sessionId": "s",
        "after": 2,
        "lastSeq": 14,
        "missingFrom": 3,
        "missingTo": 5,
    }
    fine = {**gap, "verdict": "ok", "after": 5, "missingFrom": None, "missingTo": None}
    ended = "the session has ended"
    refusal = "events 3 to 5 are no longer stored; add verdict=true to continue without them"
    assert asyncio.run(main()) == [
        ([gap], True, 1000, ended),
        ([fine], True, 1000, ended),
        ([], False, 4410, refusal),
        ([gap], True, 1000, ended),
        {**gap, "after": 1, "missingFrom": 2},
        "6",
        "gap",
        6,
    ]


def test_what_goes_between_the_verdict_and_the_first_read_is_not_passed_over(serve: Any) -> None:
    async def main() -> list[Any]:
        async with serve() as server, server.client() as client:
            service = server.service
            follow = service.events.follow

            async def too_late(session_id: str, after: int) -> AsyncGenerator[list[Record]]:
                await service._journal.write(Trim(session_id, 6))
                async for records in follow(session_id, after):
                    yield records

            service.events.follow = too_late
            found: list[Any] = []
            for session_id in ("s", "t"):
                await put(service, story(session_id), session_id)
            async with connect(f"{server.ws_url}/ws/sessions/s?after=2", additional_headers=server.headers) as line:
                messages, code, reason = await receive_all(line)
                found += [[one["verdict"] for one in messages], code, reason]
            stream = events_of((await client.get("/api/sessions/t/stream?after=2")).text)
            return [*found, [(kind, one["verdict"]) for kind, _, one in stream]]

    why = "events 3 to 5 of session s are no longer stored; read again from the place that the verdict names"
    assert asyncio.run(main()) == [["ok"], 4410, why, [("verdict", "ok")]]


WRONG = {
    "?after=-1": 400,
    "?after=x": 400,
    "?after=15": 400,
    "?after=99999999999999999999999999999": 400,
    "?after=" + "9" * 5000: 400,
    "?after=1e3": 400,
    "?after=%00": 400,
    "?dialect=klingon": 400,
    "?dialect=": 400,
    "?heartbeat=0": 400,
    "?heartbeat=nan": 400,
    "?wait=61": 400,
    "?nonsense=1": 400,
    "?after=1&after=2": 400,
    "?aftr=1": 400,
}


def test_a_wrong_query_is_told_what_is_wrong(serve: Any) -> None:
    async def main() -> dict[str, list[int]]:
        codes: dict[str, list[int]] = {}
        async with serve() as server, server.client() as client:
            await put(server.service, story())
            for query in WRONG:
                async with socket(server, query) as connection:
                    messages, code, reason = await receive_all(connection)
                assert (messages, bool(reason)) == ([], True)
                answers = [await client.get(f"/api/sessions/s/{door}{query}") for door in ("stream", "poll")]
                assert all(answer.json()["detail"] for answer in answers)
                codes[query] = [code, *(answer.status_code for answer in answers)]
            assert "did you mean 'after'" in reason
            async with socket(server, session_id="nobody") as connection:
                codes["unknown"] = [(await receive_all(connection))[1]]
            for door in ("stream", "poll"):
                codes["unknown"].append((await client.get(f"/api/sessions/nobody/{door}")).status_code)
        return codes

    expected = {query: [4000 + status, status, status] for query, status in WRONG.items()}
    assert asyncio.run(main()) == {**expected, "unknown": [4404, 404, 404]}


def test_a_browser_that_comes_back_goes_on_exactly(serve: Any) -> None:
    """Even between two messages that a dialect says for one event; and it stays away when all is told."""
    records = story()

    async def main() -> tuple[list[Any], Any, list[Any]]:
        async with serve() as server, server.client() as client:
            await put(server.service, records)
            path = "/api/sessions/s/stream?dialect=lifecycle"
            whole = [event for event in events_of((await client.get(path)).text) if event[0] == "message"]
            rests: list[Any] = []
            for _, place, _ in whole[:-1]:
                answer = await client.get(path, headers={"Last-Event-ID": place})
                rests.append([event for event in events_of(answer.text) if event[0] == "message"])
            wrong = [
                (await client.get(path, headers={"Last-Event-ID": bad})).status_code
                for bad in ("x", "-1", "1.", "1.x", "99", "9" * 30, "²")[:6]
            ]
            last = await client.get(path, headers={"Last-Event-ID": whole[-1][1]})
            return [whole, rests], (last.status_code, last.text), wrong

    (whole, rests), last, wrong = asyncio.run(main())
    assert [content for _, _, content in whole] == in_dialect("lifecycle", records)
    assert any("." in place for _, place, _ in whole)
    assert rests == [whole[start:] for start in range(1, len(whole))]
    assert last == (204, "")
    assert wrong == [400, 400, 200, 400, 400, 400]


def test_messages_of_any_dialect_can_carry_their_place(serve: Any) -> None:
    records = story()

    async def main() -> list[Any]:
        async with serve() as server:
            await put(server.service, records)
            async with socket(server, "?dialect=lifecycle&seq=true") as connection:
                return (await receive_all(connection))[0]

    cursor = DialectCursor("lifecycle")
    expected = [
        {"seq": record.seq, "more": number < len(messages), "event": json.loads(message)}
        for record in records
        for messages in [cursor.project(record)]
        for number, message in enumerate(messages, 1)
    ]
    assert asyncio.run(main()) == expected


def test_silence_is_filled_with_heartbeats_where_they_are_wanted(serve: Any) -> None:
    records = story()

    async def main() -> tuple[list[Any], str]:
        async with serve() as server, server.client() as client:
            await put(server.service, records[:3])
            async with (
                socket(server, "?after=2&heartbeat=0.05") as connection,
                client.stream("GET", "/api/sessions/s/stream?after=3&heartbeat=0.05") as stream,
            ):
                beats = [json.loads(await connection.recv()) for _ in range(4)]
                lines = stream.aiter_lines()
                while await anext(lines) != ":":
                    pass
                await put(server.service, records[3:])
                rest, code, _ = await receive_all(connection)
                events = [one for one in rest if one["type"] != "heartbeat"]
                assert (events, code) == (in_dialect("stagedoor", records, 3), 1000)
                return beats[1:], [line async for line in lines][-3]

    beats, last = asyncio.run(main())
    beat = {"type": "heartbeat", "seq": 3}
    assert beats == [in_dialect("stagedoor", records)[2], beat, beat]
    assert last == "event: end"


def test_a_poll_waits_no_longer_than_it_was_asked_to(serve: Any) -> None:
    records = story()

    async def main() -> list[Any]:
        async with serve() as server, server.client() as client:
            await put(server.service, records[:5])

            async def poll(query: str) -> tuple[list[int], int, bool]:
                answer = (await client.get(f"/api/sessions/s/poll{query}")).json()
                return [one.get("seq", 0) for one in answer["events"]], answer["lastSeq"], answer["ended"]

            found = [
                await poll(query) for query in ("?after=5&wait=0", "?after=5&wait=0.05", "?limit=2", "?after=2&limit=2")
            ]
            # A dialect that is silent about what is new waits on, and goes on behind it.
            found.append(await poll("?after=2&dialect=board&wait=0"))
            return found

    assert asyncio.run(main()) == [
        ([], 5, False), ([], 5, False), ([1, 2], 2, False), ([3, 4], 4, False), ([], 5, False),
    ]  # fmt: skip


def test_whoever_is_told_only_to_watch_may_watch_and_nobody_unknown_may(serve: Any) -> None:
    async def main() -> list[Any]:
        async with serve() as server, server.client(headers={}) as stranger:
            await put(server.service, story())
            devices = server.app.state.devices
            device, token = await devices.add("d1", "phone", "watch")
            found: list[Any] = [
                (await stranger.get(f"/api/sessions/s/{door}")).status_code for door in ("stream", "poll")
            ]
            mine = {"Authorization": f"Bearer {token}"}
            found += [(await stranger.get("/api/sessions/s/poll", headers=mine)).status_code]
            await put(server.service, story("t")[:3], "t")
            offered: Any = ["stagedoor", f"bearer.{token}"]
            async with connect(f"{server.ws_url}/ws/sessions/t", subprotocols=offered) as connection:
                found.append(connection.subprotocol)
                async with stranger.stream("GET", "/api/sessions/t/stream", headers=mine) as stream:
                    lines = stream.aiter_lines()
                    await anext(lines)
                    await devices.revoke(device.id)
                    found.append((await receive_all(connection))[1])
                    found.append([line async for line in lines][-2:])
            while server.service._journal.followers:
                await asyncio.sleep(0)
            return found

    found = asyncio.run(main())
    assert found[:5] == [401, 401, 200, "stagedoor", 4401]
    assert not any("event: end" in line for line in found[5])


def test_a_session_is_watched_from_its_prompt_to_its_end(serve: Any, script: Any) -> None:
    async def main() -> tuple[list[str], int | None]:
        async with serve() as server, server.client() as client:
            view = await server.service.sessions.create(
                SessionSpec(prompt=script([{"say": "Hello"}]), agent="understudy")
            )
            assert (await client.head(f"/api/sessions/{view.id}/stream")).status_code == 200
            async with socket(server, "?dialect=board", view.id) as connection:
                messages, code, _ = await receive_all(connection)
            return [one["payload"]["line"] for one in messages if one["payload"].get("kind") in ("text", "done")], code

    assert asyncio.run(main()) == (["Hello", "Session done"], 1000)


def test_the_example_of_the_page_runs(serve: Any) -> None:
    page = (Path(__file__).parents[2] / "docs" / "streams.md").read_text()
    (example,) = re.findall(r"```python\n(.*?)```", page, re.DOTALL)

    async def main() -> str:
        async with serve() as server:
            await put(server.service, story())
            environment = {"STAGEDOOR_WS": server.ws_url, "STAGEDOOR_TOKEN": server.token, "SESSION": "s"}
            ran = await asyncio.create_subprocess_exec(
                sys.executable, "-c", example, env={**os.environ, **environment}, stdout=asyncio.subprocess.PIPE
            )
            printed, _ = await ran.communicate()
            assert ran.returncode == 0
            return printed.decode()

    assert asyncio.run(main()) == "".join(f"{record.seq} {record.type}\n" for record in story())
