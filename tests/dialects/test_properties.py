"""Any sequence of canonical events can be said in every dialect, and what is said is of the dialect."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from functools import cache
from pathlib import Path
from typing import Any, get_args

import jsonschema
import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stagedoor import catalog
from stagedoor.dialects import DIALECTS, board, chat, encode, lifecycle, notify, ues
from stagedoor.dialects.event_parts import own_fields
from stagedoor.dialects.schemas import board_schema, lifecycle_schema
from stagedoor.unified.events import Event, TextDelta, stamp
from stagedoor.unified.events import decode as decode_canonical

GOLDENS = Path(__file__).parents[1] / "goldens" / "unified"
AGENTS = [*catalog.names(), "some-acp-agent"]
SEED_AGENTS = {"claude", "codex", "gemini"}


@cache
def validator(*, widened: bool) -> Any:
    """The schema as its authors wrote it knows three agents."""
    schema = lifecycle_schema(AGENTS if widened else ())
    jsonschema.Draft7Validator.check_schema(schema)
    return jsonschema.Draft7Validator(schema)


def read_lifecycle(line: bytes) -> object:
    message = msgspec.json.decode(line)
    validator(widened=message.get("agentType") not in {None, *SEED_AGENTS}).validate(message)
    assert datetime.fromisoformat(message["timestamp"]).tzinfo is not None  # the validator does not look at formats
    return lifecycle.decode(line)


BOARD = jsonschema.Draft7Validator(board_schema())


def read_board(line: bytes) -> object:
    BOARD.validate(msgspec.json.decode(line))
    return msgspec.json.decode(line, type=board.BoardEvent)


def read_notify(line: bytes) -> object:
    message = msgspec.json.decode(line, type=dict[str, Any])
    assert list(message) == ["jsonrpc", "method", "params"]
    assert message["params"]["event"] == message["method"]
    payload = next(shape for shape, method in notify.METHODS.items() if method == message["method"])
    return msgspec.convert(message["params"]["payload"], payload)


def read_stagedoor(line: bytes) -> object:
    # The canonical decoder does not take back a ``native`` it has written.
    message = msgspec.json.decode(line, type=dict[str, Any])
    message.pop("native", None)
    return decode_canonical(msgspec.json.encode(message))


READERS: dict[str, Callable[[bytes], object]] = {
    "stagedoor": read_stagedoor,
    "ues": ues.decode,
    "lifecycle": read_lifecycle,
    "board": read_board,
    "notify": read_notify,
    "chat": chat.decode,
}

JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=3), inner, max_size=2),
    max_leaves=4,
)


def values(info: msgspec.inspect.Type) -> st.SearchStrategy[Any]:
    """Values for a field, so that a new field or event needs no change here."""
    match info:
        case msgspec.inspect.UnionType(types=types):
            return st.one_of(*[values(each) for each in types])
        case msgspec.inspect.LiteralType(values=choices):
            return st.sampled_from(choices)
        case msgspec.inspect.StrType():
            # Few and short, so that ids and messages meet each other.
            return st.sampled_from(["", "a", "b", "ab"]) | st.text(max_size=5)
        case msgspec.inspect.BoolType():
            return st.booleans()
        case msgspec.inspect.IntType():
            return st.integers(-(2**53), 2**53)
        case msgspec.inspect.FloatType():
            return st.floats(allow_nan=False, allow_infinity=False)
        case msgspec.inspect.NoneType():
            return st.none()
        case msgspec.inspect.ListType(item_type=item):
            return st.lists(values(item), max_size=2)
        case msgspec.inspect.DictType():
            return st.dictionaries(st.text(max_size=3), JSON, max_size=2)
        case msgspec.inspect.AnyType():
            return JSON
        case msgspec.inspect.RawType():
            return JSON.map(lambda value: msgspec.Raw(msgspec.json.encode(value)))
        case msgspec.inspect.StructType(cls=cls, fields=fields):
            return st.builds(cls, **{field.name: values(field.type) for field in fields})
        case _:
            raise AssertionError(f"no values for {info}")


EVENTS = st.one_of(*[values(msgspec.inspect.type_info(kind)) for kind in get_args(Event)])


@pytest.mark.parametrize("dialect", DIALECTS)
@settings(max_examples=50, deadline=None)
@given(agent=st.sampled_from(AGENTS), story=st.lists(EVENTS, max_size=12))
def test_any_sequence_can_be_said(dialect: str, agent: str, story: list[Event]) -> None:
    projection = DIALECTS[dialect]()
    for seq, event in enumerate(story):
        stamp(event, agent=agent, session_id="s", seq=seq, timestamp=event.timestamp, turn=event.turn)
        for line in encode(projection, event):
            READERS[dialect](line)


@pytest.mark.parametrize("dialect", DIALECTS)
def test_the_table_is_of_the_dialect(dialect: str, samples: list[Event], whole_turn: list[Event]) -> None:
    projection = DIALECTS[dialect]()
    for event in [*samples, *whole_turn]:
        for line in encode(projection, event):
            READERS[dialect](line)


@pytest.mark.parametrize(
    "golden", sorted(GOLDENS.rglob("*.jsonl")) or [None], ids=lambda path: path.stem if path else "none"
)
def test_every_transcript_can_be_said(golden: Path | None) -> None:
    """Each transcript's unified events, through every dialect."""
    if golden is None:
        pytest.skip("no unified goldens yet")
    events = [decode_canonical(line) for line in golden.read_bytes().splitlines() if line]
    for dialect in DIALECTS:
        projection = DIALECTS[dialect]()
        for event in events:
            for line in encode(projection, event):
                READERS[dialect](line)


@settings(max_examples=200, deadline=None)
@given(event=EVENTS)
def test_ues_says_each_event_once_and_loses_nothing(event: Event) -> None:
    (line,) = encode(DIALECTS["ues"](), event)
    decoded = ues.decode(line)
    assert (decoded.metadata["seq"], decoded.metadata["turn"], decoded.timestamp) == (
        event.seq,
        event.turn,
        event.timestamp,
    )
    fields = msgspec.json.decode(line, type=dict[str, Any])
    values = [*fields["metadata"].values(), *fields["payload"].values()]
    values += [value for each in values if isinstance(each, dict) for value in each.values()]
    for name, value in msgspec.json.decode(msgspec.json.encode(own_fields(event))).items():
        # ``fatal`` is turned round into ``recoverable``.
        assert name == "fatal" or value in ("", [], {}, 0, None) or value in values


@settings(max_examples=40, deadline=None)
@given(cuts=st.lists(st.text(max_size=3), max_size=6), rest=st.text(max_size=3))
def test_speech_is_heard_once(cuts: list[str], rest: str) -> None:
    """However a message is cut into deltas, a dialect that appends pieces ends with the message."""
    deltas: list[Event] = [TextDelta(text=cut, message_id="m") for cut in cuts]
    whole = msgspec.convert({"type": "text", "text": "".join(cuts) + rest, "messageId": "m"}, Event)
    for dialect, key in (("lifecycle", "content"), ("chat", "content")):
        projection = DIALECTS[dialect]()
        lines = [line for event in [*deltas, whole] for line in encode(projection, event)]
        assert "".join(msgspec.json.decode(line)[key] for line in lines) == "".join(cuts) + rest
