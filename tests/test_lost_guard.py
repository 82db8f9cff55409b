"""The guard of an agent is killed in the middle of a turn: the session says so, and nothing of the agent is left."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import time
from pathlib import Path
from typing import Any

import pytest

import stagedoor
from stagedoor.transports.guard.processes import children, descendants
from stagedoor.transports.process import LOST_GUARD
from stagedoor.unified.events import Event
from tests.processes import SETSID, is_running

BOUND = 240.0


@pytest.mark.usefixtures("each_strategy")
@pytest.mark.parametrize("kill", ["guard", "keeper"])
def test_the_session_ends_with_an_error_that_says_why(tmp_path: Path, kill: str) -> None:
    # One that stays in the session of the agent's shell, one that leaves it.
    command = f"{SETSID} sleep 600 & sleep 600 & touch started; wait"
    prompt = json.dumps({"script": [[{"shell": command}], [{"say": "never"}]]})
    options: dict[str, Any] = {
        "cwd": str(tmp_path), "tier": "autonomous", "env": {"STAGEDOOR_UNDERSTUDY_HOME": str(tmp_path / "home")},
    }  # fmt: skip
    killed: list[int] = []

    async def main() -> list[Event]:
        events: list[Event] = []
        async with stagedoor.open("understudy", **options) as session, asyncio.TaskGroup() as group:
            group.create_task(strike())
            events += [event async for event in session.send(prompt)]
        return events

    async def strike() -> None:
        while not (tmp_path / "started").exists():
            await asyncio.sleep(0.02)
        [keeper] = children(os.getpid())
        killed.extend(descendants(os.getpid()))
        os.kill(keeper if kill == "keeper" else children(keeper)[0], signal.SIGKILL)

    events = asyncio.run(asyncio.wait_for(main(), BOUND))
    errors = [event.message for event in events if isinstance(event, stagedoor.Error)]
    assert LOST_GUARD in errors
    assert [event.status for event in events if isinstance(event, stagedoor.TurnCompleted)] == ["error"]
    assert len(killed) >= 5
    deadline = time.monotonic() + BOUND
    while any(map(is_running, killed)):  # the guard itself ends a moment after it has said its last word
        assert time.monotonic() < deadline, killed
        time.sleep(0.02)
