"""Limits of turns, money and time; answers that fit a schema; answers of two megabytes."""

from __future__ import annotations

from typing import Any

import pytest

import stagedoor
from stagedoor.testing import forever, say, shell, stall, structured, usage

pytestmark = pytest.mark.live

SCHEMA = {
    "type": "object",
    "properties": {"answer": {"type": "integer"}},
    "required": ["answer"],
    "additionalProperties": False,
}
MUCH = "".join(f"Line {n} of many.\n" for n in range(100_000))  # no line twice: agents look out for loops


@pytest.mark.usefixtures("of_the_program")
def test_limits(rig: Any, stage: Any, cases: Any, play: Any, plays_everything: bool) -> None:
    able = rig.capabilities
    scene = stage(
        {
            "Go on and on": [forever([shell("echo again"), usage(input=50_000, output=9_000, cached=0)])],
            "Answer with a number": [structured({"answer": 42})],
            "Keep me waiting": [stall()],
            "Say very much": [say(MUCH)],
        }
    )
    scene.git("init", "-q")

    def plays(able: bool) -> bool:
        """A refusal costs nothing; another driver of a slow program shows that the limit holds."""
        return plays_everything or not able

    async def main() -> None:
        if plays(able.max_turns):
            with cases("turn limit", able=able.max_turns, field="max_turns"):
                await limited("max_turns", able.max_turns, max_turns=2)
        if plays(able.max_budget):
            with cases("budget", able=able.max_budget, field="max_budget"):
                await limited("max_budget", able.max_budget, max_budget_usd=0.0001)
        if plays(able.structured_output):
            with cases("structured output", able=able.structured_output, field="structured_output"):
                await structure(able.structured_output)
        with cases("time limit of a turn"):
            async with scene.conversation(tier="autonomous", timeout=8.0) as talk:
                turn = await talk.turn("Keep me waiting")
                assert "timeout" in turn.errors, turn.describe()
                assert turn.completed.status == "interrupted", turn.describe()
        with cases("two megabytes in one answer"):
            async with scene.conversation(tier="autonomous") as talk:
                turn = await talk.turn("Say very much")
                assert turn.completed.status == "success", turn.completed.result
                assert (len(turn.text), turn.text == MUCH) == (len(MUCH), True)
                if able.text_deltas:
                    assert sum(len(event.text) for event in turn.of(stagedoor.TextDelta)) == len(MUCH)

    async def structure(allowed: bool) -> None:
        if not allowed:
            with pytest.raises(stagedoor.NotSupported):
                scene.open(output_schema=SCHEMA)
            return
        async with scene.conversation(output_schema=SCHEMA, tier="autonomous") as talk:
            turn = await talk.turn("Answer with a number")
            assert turn.completed.structured == {"answer": 42}, turn.describe()
            assert turn.completed.status == "success"

    async def limited(status: str, allowed: bool, **limit: Any) -> None:
        if not allowed:
            with pytest.raises(stagedoor.NotSupported):
                scene.open(**limit)
            return
        async with scene.conversation(tier="autonomous", **limit) as talk:
            turn = await talk.turn("Go on and on")
            assert turn.completed.status == status, turn.describe()
            assert (await talk.close()).status == status

    play(main)
    cases.settle()
