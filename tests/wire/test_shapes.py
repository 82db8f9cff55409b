"""Discriminator tables: nothing raises, nothing is lost."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stagedoor.wire.shapes import Shapes, UnknownMessage


class Hello(msgspec.Struct, frozen=True):
    text: str = ""
    blocks: list[msgspec.Raw] = []


class Started(msgspec.Struct, frozen=True):
    model: str


class Other(msgspec.Struct, frozen=True):
    pass


SHAPES: Shapes[Hello | Started | Other] = Shapes(
    {"hello": Hello, "system/init": Started, "system": Other}, fields=("type", "subtype")
)

TABLE: list[tuple[str, bytes, object]] = [
    ("first field first", b'{"type":"hello","text":"a"}', Hello("a")),
    ("first field last", b'{"text":"a","type":"hello"}', Hello("a")),
    ("spaces", b'{ "type" : "hello" , "text" : "a" }', Hello("a")),
    ("both fields", b'{"type":"system","subtype":"init","model":"m"}', Started("m")),
    ("the longer key wins, else the shorter", b'{"type":"system","subtype":"new"}', Other()),
    ("unknown fields are passed over", b'{"type":"hello","new":{"a":[1,2]}}', Hello()),
    ("half an emoji", b'{"type":"hello","text":"a\\ud83d"}', Hello("a\ufffd")),
    ("a split emoji joins", b'{"type":"hello","text":"\\ud83d\\ude00"}', Hello("\U0001f600")),
    ("invalid UTF-8", b'{"type":"hello","text":"\xff"}', Hello("\ufffd")),
    ("raw NUL", b'{"type":"hello","text":"a\x00b"}', Hello("a\x00b")),
    ("U+2028", '{"type":"hello","text":"a\u2028b"}'.encode(), Hello("a\u2028b")),
    ("duplicate keys", b'{"type":"hello","text":"a","text":"b"}', Hello("b")),
]


@pytest.mark.parametrize(("message", "event"), [row[1:] for row in TABLE], ids=[row[0] for row in TABLE])
def test_known(message: bytes, event: object) -> None:
    assert SHAPES.decode(message) == event


UNKNOWN: list[tuple[bytes, str]] = [
    (b"Warning: hi", "Expecting value: line 1 column 1 (char 0)"),
    (b"", "Expecting value: line 1 column 1 (char 0)"),
    (b"null", "Expected `object`, got `null`"),
    (b"[]", "Expected `object`, got `array`"),
    (b'{"a":1}', "no 'type' in the message"),
    (b'{"type":7}', "no 'type' in the message"),
    (b'{"type":"new"}', "unknown type/subtype 'new'"),
    (b'{"type":"new","subtype":"x"}', "unknown type/subtype 'new/x'"),
    (b'{"type":"hello"', "Expecting ',' delimiter: line 1 column 16 (char 15)"),
    (b"[" * 200_000, "Expected `object`, got `array`"),
    (b'{"type":"hello","blocks":' + b"[" * 200_000, "maximum recursion depth exceeded"),
]


@pytest.mark.parametrize(("message", "why"), UNKNOWN, ids=[row[0][:20] for row in UNKNOWN])
def test_unrecognized(message: bytes, why: str) -> None:
    event = SHAPES.decode(message)
    assert isinstance(event, UnknownMessage)
    assert event.raw == message
    assert event.why.startswith(why)


@given(st.binary(max_size=200))
def test_nothing_raises(message: bytes) -> None:
    event = SHAPES.decode(message)
    assert not isinstance(event, UnknownMessage) or event.raw == message
