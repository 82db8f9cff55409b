"""Server-sent events: any chunking gives the same events."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stagedoor.wire.shapes import UnknownMessage
from stagedoor.wire.sse import ServerEvent, SseBuffer


def cut(content: bytes, size: int, max_event: int = 2**30) -> list[ServerEvent | UnknownMessage]:
    buffer = SseBuffer(max_event)
    chunks = [content[at : at + size] for at in range(0, len(content), size)]
    return [event for chunk in chunks for event in buffer.feed(chunk)] + buffer.finish()


TABLE: list[tuple[str, bytes, list[ServerEvent | UnknownMessage]]] = [
    ("one", b"data: a\n\n", [ServerEvent(b"a")]),
    ("no space", b"data:a\n\n", [ServerEvent(b"a")]),
    ("several lines", b"data: a\ndata: b\n\n", [ServerEvent(b"a\nb")]),
    ("named, with id", b"event: ping\nid: 7\ndata: x\n\n", [ServerEvent(b"x", "ping", "7")]),
    ("the id stays", b"id: 7\ndata: x\n\ndata: y\n\n", [ServerEvent(b"x", id="7"), ServerEvent(b"y", id="7")]),
    ("comments", b": heartbeat\n\ndata: a\n\n", [ServerEvent(b"a")]),
    ("CRLF and CR", b"data: a\r\n\r\ndata: b\r\r", [ServerEvent(b"a"), ServerEvent(b"b")]),
    ("no data, no event", b"event: x\n\n", []),
    ("byte order mark", b"\xef\xbb\xbfdata: a\n\n", [ServerEvent(b"a")]),
    (
        "cut off",
        b"data: a\n\ndata: b",
        [ServerEvent(b"a"), UnknownMessage(b"b", "the stream ended inside this event")],
    ),
    ("U+2028", "data: a\u2028b\n\n".encode(), [ServerEvent("a\u2028b".encode())]),
]


@pytest.mark.parametrize(("content", "events"), [row[1:] for row in TABLE], ids=[row[0] for row in TABLE])
@pytest.mark.parametrize("size", [1, 2, 3, 10**6])
def test_events(content: bytes, events: list[ServerEvent | UnknownMessage], size: int) -> None:
    assert cut(content, size) == events


LINES = st.lists(st.sampled_from([b"data: a", b"data", b"id: 3", b"event: e", b": c", b"", b"\xff", b"retry: 5"]))
ENDS = st.sampled_from([b"\n", b"\r\n", b"\r"])


@given(LINES, ENDS, st.integers(1, 9))
def test_any_chunking_gives_the_same_events(lines: list[bytes], end: bytes, size: int) -> None:
    content = end.join(lines)
    assert cut(content, size) == cut(content, 10**9)


@pytest.mark.parametrize("size", [1, 5, 1000])
def test_an_event_over_the_bound_is_reported_and_the_stream_goes_on(size: int) -> None:
    first, second = cut(b"data: " + b"x" * 100 + b"\n\ndata: ok\n\n", size, max_event=20)
    assert isinstance(first, UnknownMessage)
    assert "larger than the limit of 20" in first.why
    assert second == ServerEvent(b"ok")
