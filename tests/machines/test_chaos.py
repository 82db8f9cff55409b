"""Doors and workers that are killed, frozen and cut off, and a database that crashes: nothing is lost, nothing twice.

``make chaos`` plays it (``STAGEDOOR_CHAOS_SECONDS``, ``STAGEDOOR_CHAOS_SEED``).
"""

from __future__ import annotations

import asyncio
import os
import random
from pathlib import Path

import pytest

from tests.machines.history import violations
from tests.machines.world import BOUND, World

SECONDS = float(os.environ.get("STAGEDOOR_CHAOS_SECONDS", "0"))
SEED = int(os.environ.get("STAGEDOOR_CHAOS_SEED", "20261116"))


@pytest.mark.slow
@pytest.mark.skipif(not SECONDS, reason="make chaos plays it")
def test_nothing_is_lost_and_nothing_is_done_twice(tmp_path: Path) -> None:
    async def main() -> None:
        world = World(tmp_path, random.Random(SEED), workers=3, doors=2, lease=3)
        async with world.running():
            happened: list[str] = []
            try:
                async with asyncio.timeout(SECONDS + BOUND), asyncio.TaskGroup() as group:
                    for _ in range(4):
                        group.create_task(world.work())
                    happened = await world.trouble(SECONDS)
                    world.stopping = True
            except TimeoutError:
                pytest.fail(f"still not at rest: {await world.unrest()}; {happened}")
            history = await world.account()
        records = sum(map(len, history.rows.values()))
        print(f"{len(happened)} troubles, {records} records of {len(history.rows)} sessions")
        assert history.rows
        faults = violations(history)
        assert faults == [], "\n".join([*faults, *happened])

    asyncio.run(main())
