"""Line framing: any chunking of the same bytes gives the same lines."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stagedoor.wire.jsonl import LineBuffer
from stagedoor.wire.shapes import UnknownMessage


def cut(content: bytes, size: int, max_line: int = 2**30) -> list[bytes | UnknownMessage]:
    buffer = LineBuffer(max_line)
    chunks = [content[at : at + size] for at in range(0, len(content), size)]
    return [line for chunk in chunks for line in buffer.feed(chunk)] + buffer.finish()


TABLE: list[tuple[str, bytes, list[bytes]]] = [
    ("empty", b"", []),
    ("two lines", b"a\nb\n", [b"a", b"b"]),
    ("no last newline", b"a\nb", [b"a", b"b"]),
    ("CRLF", b"a\r\nb\r\n", [b"a", b"b"]),
    ("lone CR stays", b'{"a":"x\ry"}\n', [b'{"a":"x\ry"}']),
    ("blank lines pass", b"\n\r\n  \na\n\n", [b"a"]),
    ("half an emoji", b'{"t":"\\ud83d"}\n{"t":"\xf0\x9f"}\n', [b'{"t":"\\ud83d"}', b'{"t":"\xf0\x9f"}']),
    ("NUL", b"a\0b\n", [b"a\0b"]),
    ("invalid UTF-8", b"\xff\xfe\n", [b"\xff\xfe"]),
    ("U+2028 is no line end", '{"t":"a\u2028b"}\n'.encode(), ['{"t":"a\u2028b"}'.encode()]),
]


@pytest.mark.parametrize(("content", "lines"), [row[1:] for row in TABLE], ids=[row[0] for row in TABLE])
@pytest.mark.parametrize("size", [1, 2, 3, 7, 10**6])
def test_lines(content: bytes, lines: list[bytes], size: int) -> None:
    assert cut(content, size) == lines


@given(st.binary(max_size=300), st.integers(1, 40), st.integers(1, 50))
def test_any_chunking_gives_the_same_lines(content: bytes, size: int, max_line: int) -> None:
    assert cut(content, size, max_line) == cut(content, 10**9, max_line)


@pytest.mark.parametrize("size", [1, 4, 1000])
def test_a_line_over_the_bound_becomes_an_event_and_the_stream_goes_on(size: int) -> None:
    assert cut(b"ab\nabcdefgh\nxy\n", size, max_line=5) == [
        b"ab",
        UnknownMessage(b"abcde", "a line of 8 bytes is larger than the limit of 5"),
        b"xy",
    ]


def test_an_unfinished_line_over_the_bound() -> None:
    assert cut(b"abcdefgh", 3, max_line=5) == [
        UnknownMessage(b"abcde", "a line of 8 bytes is larger than the limit of 5")
    ]


def test_a_line_of_64_megabytes_passes() -> None:
    line = b"x" * (64 * 2**20)
    assert cut(line + b"\nnext\n", 2**18) == [line, b"next"]
