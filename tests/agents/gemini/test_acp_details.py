"""What the session file adds to a finished call, and that nothing waits for it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from stagedoor.agents.acp.updates import SessionUpdate, ToolCallUpdate
from stagedoor.agents.gemini import acp
from stagedoor.agents.gemini.acp import Pair, detailed
from stagedoor.agents.gemini.records import ToolDetails

ENDED = [
    (b"%d" % number, SessionUpdate("s", ToolCallUpdate(f"call-{number}", status="completed"))) for number in (1, 2)
]


async def spoken(pairs: list[Pair]) -> AsyncIterator[Pair]:
    for pair in pairs:
        await asyncio.sleep(0)
        yield pair


def details(number: int) -> ToolDetails:
    return ToolDetails(f"call-{number}", "run_shell_command", exit_code=number)


@pytest.mark.parametrize(
    ("known_at_look", "told"),
    [
        pytest.param({}, [b"1", b"2"], id="never"),
        pytest.param({"call-1": 1, "call-2": 1}, [b"1", 1, b"2", 2], id="at once"),
        pytest.param({"call-1": 2, "call-2": 2}, [b"1", 1, b"2", 2], id="when the CLI speaks again"),
        pytest.param({"call-2": 1}, [b"1", b"2", 2], id="of the second call alone"),
    ],
)
def test_nothing_that_the_cli_says_waits_for_a_record(
    monkeypatch: pytest.MonkeyPatch, known_at_look: dict[str, int], told: list[bytes | int]
) -> None:
    monkeypatch.setattr(acp, "PATIENCE", (3600.0,))  # whoever waited for the record would wait for an hour
    looks: dict[str, int] = {}

    def details_of(call: str) -> ToolDetails | None:
        looks[call] = looks.get(call, 0) + 1
        return details(int(call[-1])) if looks[call] >= known_at_look.get(call, 99) else None

    async def reading() -> list[bytes | int | None]:
        events = detailed(spoken(ENDED), details_of)
        return [event.exit_code if isinstance(event, ToolDetails) else raw async for raw, event in events]

    assert asyncio.run(reading()) == told


def test_a_record_that_comes_while_the_cli_is_silent_is_told_before_it_speaks() -> None:
    looks = 0

    def details_of(call: str) -> ToolDetails | None:
        nonlocal looks
        looks += 1
        return details(1) if call == "call-1" and looks == 3 else None

    async def reading() -> list[bytes]:
        told = asyncio.Event()

        async def silent_until_told() -> AsyncIterator[Pair]:
            yield ENDED[0]
            await told.wait()
            yield ENDED[1]

        found: list[bytes] = []
        async for raw, event in detailed(silent_until_told(), details_of):
            found.append(raw)
            if isinstance(event, ToolDetails):
                told.set()
        return found

    assert asyncio.run(reading()) == [b"1", b"", b"2"]


def test_a_reader_that_leaves_in_the_middle_leaves_nothing_behind() -> None:
    async def reading() -> int:
        async def endless() -> AsyncIterator[Pair]:
            yield ENDED[0]
            await asyncio.Event().wait()

        events = detailed(endless(), lambda call: details(1))
        assert [(await anext(events))[0], (await anext(events))[0]] == [b"1", b""]
        await events.aclose()  # type: ignore[attr-defined]
        return len(asyncio.all_tasks())

    assert asyncio.run(reading()) == 1
