"""The row of a session is what its records add up to, however they were batched, put to sleep or cut off."""

from __future__ import annotations

import asyncio
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from stagedoor.permissions.audit import AuditLog
from stagedoor.service.journal import Journal, LocalHub
from stagedoor.service.projection import asleep, closing, project, projected
from stagedoor.service.runner import Continuation
from stagedoor.service.session_log import SessionLog
from stagedoor.service.sqlite import SqliteStore
from stagedoor.service.views import SessionView
from stagedoor.unified.events import (
    Done,
    Event,
    Init,
    ToolResult,
    ToolUse,
    TurnCompleted,
    TurnStarted,
    decode,
    encode,
    session_changed,
    stamp,
)

STREAMS = sorted((Path(__file__).parents[1] / "goldens" / "unified").rglob("*.jsonl"))
FEW = STREAMS[::12]
EMPTY = SessionView(id="s", agent="a", cwd="/w", created_at=1)


def _events(path: Path) -> list[Event]:
    return [decode(line) for line in path.read_bytes().splitlines()]


def _row(view: SessionView) -> SessionView:
    """What follows from records alone."""
    return replace(view, title="", archived=False, queued=0, spec=None)


@pytest.mark.parametrize("path", FEW, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_the_stored_row_is_what_the_records_add_up_to(path: Path, tmp_path: Path) -> None:
    async def main() -> None:
        store = SqliteStore(tmp_path / "log.db")
        await store.open()
        await store.write(EMPTY)
        faults: list[Exception] = []
        session_log = SessionLog(
            EMPTY,
            Journal(store, LocalHub()),
            now=lambda: 5,
            new_id=lambda: "m",
            broken=faults.append,
            counts=Counter(),
            audit=AuditLog(tmp_path / "audit.jsonl"),
        )
        events = _events(path)
        first = Continuation(session_log.view).join(events, lambda cut: False)
        for at in range(0, len(first), 7):
            await session_log.store(first[at : at + 7])
        await session_log.say(asleep("resting"))
        await session_log.store(Continuation(session_log.view).join(_events(path), lambda cut: True))
        stored = await store.session("s")
        records = await store.records("s", 0, 100_000)
        await store.close()
        assert faults == []
        assert stored is not None
        report = [decode(record.body) for record in records]
        assert [event.seq for event in report] == list(range(1, len(report) + 1))
        assert _row(stored) == _row(projected(EMPTY, report))
        one_by_one = EMPTY
        for event in report:
            one_by_one = project(one_by_one, event)
        assert one_by_one == projected(EMPTY, report)
        assert sum(isinstance(event, Done) for event in report) == 1
        turns = [event.turn for event in report if isinstance(event, TurnStarted)]
        assert turns == list(range(1, len(turns) + 1))

    asyncio.run(main())


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(path=st.sampled_from(STREAMS), part=st.floats(0, 1))
def test_every_beginning_of_every_stream_can_be_closed_truthfully(path: Path, part: float) -> None:
    events = _events(path)
    events = events[: int(part * len(events))]
    if any(isinstance(event, Done) for event in events):
        return
    started = [stamp(event, "a", "s", seq, event.timestamp, event.turn) for seq, event in enumerate(events, 1)]
    view = projected(EMPTY, started)
    last_turn = [event for event in started if event.seq >= view.turn_seq]
    closed = closing(view, last_turn, 10, why="the server stopped")
    whole = [decode(encode(event)) for event in [*started, *closed]]
    assert [type(event) for event in whole].count(Done) == 1
    assert isinstance(whole[-1], Done)
    assert _count(whole, TurnStarted) == _count(whole, TurnCompleted)
    assert {event.tool_use_id for event in whole if isinstance(event, ToolUse)} == {
        event.tool_use_id for event in whole if isinstance(event, ToolResult)
    }
    ended = projected(view, closed)
    assert ended.ended
    if view.activity in ("working", "waiting", "starting"):
        assert (ended.state, ended.error) == ("failed", "the server stopped")


def test_a_session_that_goes_on_under_another_id_is_resumed_by_that_one() -> None:
    started = projected(EMPTY, [Init(native_session_id="first", seq=1), session_changed("second")])
    assert started.native_id == "second"


def _count(events: list[Event], kind: type[Any]) -> int:
    return sum(isinstance(event, kind) for event in events)
