"""Doors and workers that are killed, frozen and cut off, and a database that crashes: nothing is lost, nothing twice.

``make chaos`` plays all of it (``STAGEDOOR_CHAOS_SECONDS``, ``STAGEDOOR_CHAOS_SEED``), ``make postgres`` a short while,
without what takes until a lease is over. Neither is part of ``make test``: on a busy machine even the short one takes
minutes. What the checker would find is tried there with faults that are put in on purpose (``service/test_mutants``).
"""

from __future__ import annotations

import asyncio
import os
import random
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.machines.history import violations
from tests.machines.world import BOUND, DEEDS, World

SECONDS = float(os.environ.get("STAGEDOOR_CHAOS_SECONDS", "0"))
SEED = int(os.environ.get("STAGEDOOR_CHAOS_SEED", "20261116"))
SHORT = 6.0
AT_ONCE = ("kill worker", "kill door", "cut", "crash")


async def play(world: World, seconds: float, *, clients: int, deeds: Sequence[str]) -> None:
    async with world.running():
        happened: list[str] = []
        try:
            async with asyncio.timeout(seconds + BOUND):
                async with asyncio.TaskGroup() as group:
                    for _ in range(clients):
                        group.create_task(world.work())
                    happened = await world.trouble(seconds, deeds)
                    world.stopping = True
                await world.rest()
        except TimeoutError:
            pytest.fail(f"still not at rest: {await world.unrest()}; {happened}")
        history = await world.account()
    records = sum(map(len, history.rows.values()))
    print(f"{len(happened)} troubles, {records} records of {len(history.rows)} sessions")
    assert history.rows
    faults = violations(history)
    assert faults == [], "\n".join([*faults, *happened])


@pytest.mark.slow
@pytest.mark.skipif(not SECONDS, reason="make chaos plays it")
def test_nothing_is_lost_and_nothing_is_done_twice(tmp_path: Path) -> None:
    world = World(tmp_path, random.Random(SEED), workers=3, doors=2, lease=3)
    asyncio.run(play(world, SECONDS, clients=4, deeds=DEEDS))


@pytest.mark.slow
@pytest.mark.skipif(os.environ.get("STAGEDOOR_CHAOS") != "short", reason="make postgres plays it")
def test_a_short_while_of_it(tmp_path: Path) -> None:
    world = World(tmp_path, random.Random(SEED), workers=2, doors=2, lease=60)
    asyncio.run(play(world, SHORT, clients=2, deeds=AT_ONCE))
