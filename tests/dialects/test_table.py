"""Every canonical event in every dialect, as whole objects.

``expected/`` holds each canonical event on one line and under it what the dialect says. ``STAGEDOOR_REWRITE=1`` writes
what is said now, for review.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import get_args

import pytest

from stagedoor.dialects import DIALECTS, encode
from stagedoor.unified.events import Event
from stagedoor.unified.events import encode as canonical_line

EXPECTED = Path(__file__).parent / "expected"
OTHERS = sorted(set(DIALECTS) - {"stagedoor"})


def check(name: str, projected: list[tuple[Event, list[bytes]]]) -> None:
    lines = [
        line
        for event, messages in projected
        for line in (canonical_line(event).decode(), *(f"    {each.decode()}" for each in messages))
    ]
    path = EXPECTED / name
    if os.environ.get("STAGEDOOR_REWRITE"):
        path.parent.mkdir(exist_ok=True)
        path.write_text("\n".join(lines) + "\n")
    assert lines == path.read_text().splitlines()


def test_the_samples_hold_every_canonical_type(samples: list[Event]) -> None:
    assert {type(event) for event in samples} == set(get_args(Event))


@pytest.mark.parametrize("dialect", OTHERS)
def test_each_event_on_its_own(dialect: str, samples: list[Event]) -> None:
    check(f"{dialect}.txt", [(event, encode(DIALECTS[dialect](), event)) for event in samples])


@pytest.mark.parametrize("dialect", OTHERS)
def test_a_whole_turn(dialect: str, whole_turn: list[Event]) -> None:
    projection = DIALECTS[dialect]()
    check(f"{dialect}.turn.txt", [(event, encode(projection, event)) for event in whole_turn])


def test_stagedoor_is_the_canonical_form(samples: list[Event]) -> None:
    projection = DIALECTS["stagedoor"]()
    assert [encode(projection, event) for event in samples] == [[canonical_line(event)] for event in samples]
