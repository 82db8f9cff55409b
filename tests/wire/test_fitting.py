"""A wrong value costs its field, never the message."""

from __future__ import annotations

import gc
from types import TracebackType
from typing import Any, Literal

import msgspec
import pytest

from stagedoor.wire.fitting import fitted
from stagedoor.wire.shapes import decode_or_reason, decode_question, decode_strictly


class Inner(msgspec.Struct, frozen=True):
    name: str
    size: int = 1


class Shape(msgspec.Struct, frozen=True, rename="camel"):
    number: int = 1
    share: float = 0.5
    text: str = "t"
    flag: bool = False
    kind: Literal["a", "b"] = "a"
    maybe: int | None = None
    either: str | list[str] = ""
    inner: Inner | None = None
    inners: list[Inner] = []
    table: dict[str, int] = {}
    raw_part: msgspec.Raw = msgspec.Raw(b"null")
    anything: Any = None


DECODER = msgspec.json.Decoder(Shape)
# the message, what is read of it, and whether a question with that message is one
ROWS: list[tuple[str, Shape, bool]] = [
    ('{"number":5.0,"share":"0.25","text":7,"flag":"true"}', Shape(5, 0.25, "7", True), True),
    ('{"number":"5","maybe":6.0}', Shape(5, maybe=6), True),
    ('{"number":null,"text":null,"inners":null}', Shape(), True),
    ('{"number":5.7}', Shape(5), False),
    ('{"number":{},"text":"stays"}', Shape(text="stays"), False),
    ('{"number":1e999,"anything":NaN,"rawPart":{"a":Infinity},"text":"stays"}', Shape(text="stays"), False),
    ('{"number":true,"flag":1}', Shape(flag=True), False),
    ('{"kind":"c","text":"stays"}', Shape(text="stays"), False),
    ('{"either":["a",5]}', Shape(either=["a", "5"]), True),
    ('{"either":{},"text":"stays"}', Shape(text="stays"), False),
    ('{"inner":{"name":"n","size":"x"}}', Shape(inner=Inner("n")), False),
    ('{"inner":{"size":3}}', Shape(), False),
    ('{"inner":{"name":null,"size":3}}', Shape(inner=Inner("", 3)), False),
    ('{"inners":[{"name":"n"},5,{"name":"m","size":2.0}]}', Shape(inners=[Inner("n"), Inner("m", 2)]), False),
    ('{"table":{"a":1.0,"b":[]}}', Shape(table={"a": 1}), False),
    ('\ufeff{"text":"stays","new":{"a":1}}', Shape(text="stays"), True),
]


@pytest.mark.parametrize(("message", "shape", "question"), ROWS)
def test_rows(message: str, shape: Shape, question: bool) -> None:
    read = decode_or_reason(DECODER, message.encode())
    assert isinstance(read, Shape)
    assert _plain(read) == _plain(shape)
    asked = decode_question(DECODER, message.encode())
    assert isinstance(asked, Shape) is question
    if isinstance(asked, Shape):
        assert _plain(asked) == _plain(shape)


def _plain(shape: Shape) -> Shape:
    """A raw part is compared by nothing but its identity."""
    return msgspec.structs.replace(shape, raw_part=msgspec.Raw(b"null"), anything=None)


@pytest.mark.parametrize("message", [b"[]", b"5", b"", b"{", b'{"a":' + b"[" * 100_000])
def test_what_is_no_such_message_has_a_reason(message: bytes) -> None:
    assert isinstance(decode_or_reason(DECODER, message), str)
    with pytest.raises((ValueError, RecursionError)):
        fitted(message, Shape)


def test_an_answer_stands_there_as_agreed() -> None:
    assert isinstance(decode_strictly(DECODER, b'{"flag":"true"}'), str)
    assert decode_strictly(DECODER, b'{"flag":true}') == Shape(flag=True)


def test_what_cannot_be_read_leaves_nothing_behind() -> None:
    """An exception that is raised again and again keeps every frame it went through."""
    decoder = msgspec.json.Decoder(Shape)

    def tracebacks() -> int:
        gc.collect()
        return sum(type(one) is TracebackType for one in gc.get_objects())

    before = tracebacks()
    for _ in range(100):
        assert isinstance(decode_or_reason(decoder, b"null"), str)
        assert decode_or_reason(decoder, b'{"number": {}, "inner": 5, "inners": [5]}') == Shape()
    assert tracebacks() <= before + 10


class First(msgspec.Struct, frozen=True, tag_field="kind", tag="first"):
    size: int = 1


class Second(msgspec.Struct, frozen=True, tag_field="kind", tag="second"):
    size: int = 2


@pytest.mark.parametrize(
    ("message", "alone", "among_others"),
    [
        (b'{"kind":"first","size":"5"}', First(5), First(5)),
        (b'{"kind":"first","size":[]}', First(), First()),
        (b'{"kind":"second","size":[]}', None, Second()),
        (b'{"size":"5"}', First(5), None),
        (b'{"kind":"third","size":[]}', None, None),
    ],
)
def test_a_tag_is_needed_only_where_another_could_stand(message: bytes, alone: object, among_others: object) -> None:
    for decoder, expected in (
        (msgspec.json.Decoder(First), alone),
        (msgspec.json.Decoder(First | Second), among_others),
    ):
        read = decode_or_reason(decoder, message)
        assert (None if isinstance(read, str) else read) == expected
