"""Transcripts played back: raw ones flow, two-way ones answer where the recording did."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from stagedoor.errors import ConnectionLost
from stagedoor.transports.replay import Recorded, Replay, kind_of, read_transcript
from stagedoor.wire.http import HttpRequest
from stagedoor.wire.jsonrpc import Peer


def two_way(*entries: tuple[str, object]) -> bytes:
    lines = [
        {"dir": direction, "t": 0.5 * position, "line": line if isinstance(line, str) else json.dumps(line)}
        for position, (direction, line) in enumerate(entries)
    ]
    return "\n".join(json.dumps(line) for line in lines).encode()


async def drain(replay: Replay) -> list[object]:
    async with asyncio.timeout(240):
        return [json.loads(m) if isinstance(m, bytes) else m async for batch in replay.batches() for m in batch]


def test_both_forms_are_read() -> None:
    assert read_transcript(b'{"type":"a"}\r\n\nplain text') == [
        Recorded("out", b'{"type":"a"}'),
        Recorded("out", b"plain text"),
    ]
    assert read_transcript(two_way(("in", "GET /event"), ("note", "stdin closed"), ("out", {"n": 1}))) == [
        Recorded("in", b"GET /event", 0.0),
        Recorded("note", b"stdin closed", 0.5),
        Recorded("out", b'{"n": 1}', 1.0),
    ]


def test_a_raw_transcript_is_one_stream() -> None:
    async def main() -> None:
        replay = Replay(b'{"n":1}\n{"n":2}', exit_code=3)
        assert await drain(replay) == [{"n": 1}, {"n": 2}]
        assert await replay.wait() == 3

    asyncio.run(main())


def test_answers_come_when_asked_and_under_our_ids() -> None:
    recording = two_way(
        ("in", {"id": 41, "method": "initialize"}),
        ("out", {"id": 41, "result": {}}),
        ("in", {"id": 42, "method": "session/prompt"}),
        ("out", {"method": "session/update", "params": {"n": 1}}),
        ("out", {"id": 0, "method": "session/request_permission", "params": {}}),
        ("in", {"id": 0, "result": {"outcome": "selected"}}),
        ("out", {"id": 42, "result": {"stopReason": "end_turn"}}),
        ("note", "stdin closed"),
        ("out", {"method": "bye"}),
    )

    async def main() -> None:
        replay, peer = Replay(recording), Peer(version=False)
        seen: list[object] = []
        peer.call("initialize")
        async with asyncio.timeout(240):
            for message in peer.outgoing():
                await replay.send(message)
            async for batch in replay.batches():
                for message in batch:
                    assert isinstance(message, bytes)
                    value = json.loads(message)
                    seen.append(value)
                    if value.get("id") == 0 and "result" in value:
                        peer.call("session/prompt")
                    elif value.get("method") == "session/request_permission":
                        peer.answer(value["id"], {"outcome": "cancelled"})
                    elif value.get("id") == 1:
                        await replay.end_input()
                for answer in peer.outgoing():
                    await replay.send(answer)
        assert seen == [
            {"id": 0, "result": {}},
            {"method": "session/update", "params": {"n": 1}},
            {"id": 0, "method": "session/request_permission", "params": {}},
            {"id": 1, "result": {"stopReason": "end_turn"}},
            {"method": "bye"},
        ]
        assert replay.unexpected == []

    asyncio.run(main())


def test_control_requests_are_matched_by_subtype() -> None:
    recording = two_way(
        ("in", {"type": "control_request", "request_id": "i1", "request": {"subtype": "initialize"}}),
        ("out", {"type": "control_response", "response": {"request_id": "i1", "subtype": "success"}}),
    )

    async def main() -> None:
        replay = Replay(recording)
        await replay.send(b'{"type":"user"}')
        await replay.send(b'{"type":"control_request","request_id":"mine","request":{"subtype":"initialize"}}')
        assert await drain(replay) == [
            {"type": "control_response", "response": {"request_id": "mine", "subtype": "success"}}
        ]
        assert replay.unexpected == [b'{"type":"user"}']

    asyncio.run(main())


def test_a_client_that_leaves_the_script_is_told() -> None:
    async def main() -> None:
        replay = Replay(two_way(("in", {"method": "initialize", "id": 1}), ("out", {"n": 1})), patience=0.05)
        await replay.send(b'{"method":"other"}')
        with pytest.raises(ConnectionLost, match=r"now sent initialize.*'other'"):
            await drain(replay)
        await replay.close()
        with pytest.raises(ConnectionLost, match="was closed"):
            await replay.send(b"{}")

    asyncio.run(main())


def test_close_ends_a_reader_that_waits() -> None:
    async def main() -> None:
        replay = Replay(two_way(("in", {"method": "initialize", "id": 1}), ("out", {"n": 1})))
        reading = asyncio.create_task(drain(replay))
        await asyncio.sleep(0)
        await replay.close()
        assert await reading == []

    asyncio.run(main())


def test_speed_keeps_the_order() -> None:
    async def main() -> None:
        assert await drain(Replay(two_way(("out", {"n": 1}), ("out", {"n": 2})), speed=100)) == [{"n": 1}, {"n": 2}]

    asyncio.run(main())


TWO_WAY = sorted(
    path
    for path in (Path(__file__).parents[1] / "transcripts").rglob("*.jsonl")
    if path.read_bytes().startswith(b'{"dir"')
)


def shifted(line: bytes) -> bytes:
    """The same request under another id, as another client would have numbered it."""
    try:
        value = json.loads(line)
    except ValueError:
        return line
    if isinstance(value, dict) and "method" in value and isinstance(value.get("id"), int):
        value["id"] += 1000
    return json.dumps(value).encode()


@pytest.mark.parametrize("path", TWO_WAY, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_every_recorded_dialogue_plays_to_its_end(path: Path) -> None:
    entries = read_transcript(path.read_bytes())
    request_ids = {
        json.loads(e.line)["id"] for e in entries if e.direction == "in" and shifted(e.line) != _plain(e.line)
    }

    async def main() -> list[bytes]:
        replay = Replay(entries)
        for entry in entries:
            if entry.direction == "in":
                await replay.send(shifted(entry.line))
        await replay.end_input()
        async with asyncio.timeout(240):
            output = [message async for batch in replay.batches() for message in batch if isinstance(message, bytes)]
        assert replay.unexpected == []
        return output

    def expected(line: bytes) -> bytes:
        try:
            value = json.loads(line)
        except ValueError:
            return line
        if isinstance(value, dict) and "method" not in value and value.get("id") in request_ids:
            value["id"] += 1000
        return json.dumps(value).encode()

    output = asyncio.run(main())
    assert [_plain(line) for line in output] == [expected(e.line) for e in entries if e.direction == "out"]


def _plain(line: bytes) -> bytes:
    try:
        return json.dumps(json.loads(line)).encode()
    except ValueError:
        return line


@pytest.mark.parametrize(
    ("message", "kind"),
    [
        (b'{"method":"initialize","id":3}', ("initialize",)),
        (b'{"id":3,"error":{"code":1}}', ("answer", 3)),
        (b'{"type":"user","message":{}}', ("user",)),
        (b'{"type":"control_response","response":{"request_id":"r","response":{}}}', ("control_response", "r")),
        (
            HttpRequest("POST", "/session/ses_1/abort", query={"directory": "/x"}).line(),
            ("POST", "/session/ses_1/abort"),
        ),
        (b"{not json", ("text",)),
        (b"[1,2]", ("text",)),
        (b"", ("text",)),
    ],
)
def test_kinds(message: bytes, kind: tuple[object, ...]) -> None:
    assert kind_of(message) == kind
