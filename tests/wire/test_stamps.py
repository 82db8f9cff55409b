"""The three facts of every native event, whatever the CLI left out."""

from __future__ import annotations

from datetime import UTC, datetime

import msgspec
import pytest

from stagedoor.wire.stamps import Stamp, Stamped, mark, written_at


class Nameless(Stamped, frozen=True, rename="camel"):
    some_text: str


class Named(Stamped, frozen=True):
    session_id: str = ""


NOW = 1_763_186_400.25
STAMP = Stamp("ours", 3, NOW)
READ = datetime.fromtimestamp(NOW, UTC)


def test_an_event_is_marked_without_being_changed() -> None:
    event = Nameless("a")
    mark([(b"", event)], STAMP)
    assert (event.session_id, event.turn_id, event.timestamp) == ("ours", 3, READ)
    assert event == Nameless("a")
    assert hash(event) == hash(Nameless("a"))
    assert Nameless.__match_args__ == ("some_text",)


@pytest.mark.parametrize(("line", "session_id"), [(b"{}", "ours"), (b'{"session_id":"theirs"}', "theirs")])
def test_the_clis_own_session_is_kept(line: bytes, session_id: str) -> None:
    event = msgspec.json.decode(line, type=Named)
    mark([(line, event)], STAMP)
    assert (event.session_id, event.turn_id) == (session_id, 3)


def test_a_session_that_is_not_known_yet_is_empty() -> None:
    event = Named()
    mark([(b"", event)], Stamp("", 0, NOW))
    assert (event.session_id, event.turn_id, event.timestamp) == ("", 0, READ)


def test_no_line_can_bring_its_own_stamp() -> None:
    event = msgspec.json.decode(b'{"someText":"a","@stamp":{"session_id":"forged","turn_id":9}}', type=Nameless)
    mark([(b"", event)], STAMP)
    assert (event.session_id, event.turn_id) == ("ours", 3)


@pytest.mark.parametrize(
    ("printed", "expected"),
    [
        ("2026-11-15T06:00:00.500Z", datetime(2026, 11, 15, 6, 0, 0, 500_000, UTC)),
        ("2026-11-15T06:00:00", datetime(2026, 11, 15, 6, tzinfo=UTC)),
        (1_763_186_400_250.0, READ),
        ("yesterday", READ),
        ("", READ),
        (None, READ),
        (0.0, READ),
        (1e30, READ),
    ],
)
def test_when_it_was(printed: str | float | None, expected: datetime) -> None:
    assert written_at(printed, Nameless("a", stamp=STAMP)) == expected
