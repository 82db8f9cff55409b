"""Interrupt, cancel, kill: the turn ends as it should, and nothing is left running."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from typing import Any

import pytest

import stagedoor
from stagedoor.testing import say, shell
from stagedoor.transports.guard.processes import descendants
from tests.processes import is_running

pytestmark = pytest.mark.live
BOUND = 300.0


@pytest.mark.drift
def test_interrupt_and_cancel(rig: Any, stage: Any, cases: Any, expected: Any, play: Any, napping: Any) -> None:
    able = rig.capabilities
    nap, last_nap = napping(), napping()
    scene = stage(
        {
            "Talk without end": [say([f"word {n} and " for n in range(10_000)], pause=0.02)],
            "Sleep": [shell(f"({nap.marker}; true) & {nap.marker}"), say("Awake.")],
            "First of all": [say("Well.")],
            "Still there": [say("Still here.")],
            "Sleep on": [shell(f"({last_nap.marker}; true) & {last_nap.marker}"), say("Awake.")],
        }
    )
    scene.git("init", "-q")

    async def main() -> None:
        async with scene.conversation(tier="autonomous") as talk:
            await talk.turn("First of all")
            with cases("interrupt mid-text", able=able.interrupt, field="interrupt"):
                turn = await interrupted(talk, "Talk without end", stagedoor.TextDelta, being_answered)
                assert turn.completed.status == "interrupted", turn.describe()
            with cases("interrupt mid-command", able=able.interrupt, field="interrupt"):
                turn = await interrupted(talk, "Sleep", stagedoor.ToolUse, lambda: nap.until(True))
                assert turn.completed.status == "interrupted", turn.describe()
                assert "Awake." not in turn.text
                results = [result.status for _, result in turn.calls("shell")]
                assert results == ["error"] or expected.tells_calls_late, turn.describe()
                await asyncio.wait_for(nap.until(False), BOUND)
            with cases("session goes on after an interrupt", able=able.interrupt, field="interrupt"):
                turn = await talk.turn("Still there")
                assert (turn.text, turn.completed.status) == ("Still here.", "success"), turn.describe()
        with cases("cancel mid-command"):
            async with scene.conversation(tier="autonomous") as talk:
                running = asyncio.create_task(talk.turn("Sleep on"))
                await asyncio.wait_for(last_nap.until(True), BOUND)
                await talk.session.close()
                turn = await running
                assert turn.completed.status == "interrupted", turn.describe()
                assert not last_nap.is_running
                assert descendants(os.getpid()) == []
                talk.events.extend([event async for event in talk.session.events if isinstance(event, stagedoor.Done)])

    async def being_answered() -> None:
        while scene.model is not None and scene.model.requests[-1].prompt != "Talk without end":
            await asyncio.sleep(0.02)

    async def interrupted(talk: Any, prompt: str, awaited: type[Any], ready: Any) -> Any:
        """Interrupt once something is visible of what the agent does."""

        async def stop() -> None:
            await asyncio.wait_for(ready(), BOUND)
            if able.text_deltas if awaited is stagedoor.TextDelta else not expected.tells_calls_late:
                await is_visible.wait()
            await talk.session.interrupt()

        async def react(event: Any) -> None:
            if isinstance(event, awaited):
                is_visible.set()

        is_visible = asyncio.Event()
        stopping = asyncio.create_task(stop())
        turn = await talk.turn(prompt, react)
        await stopping
        return turn

    play(main)
    cases.settle()


OURSELVES = """
import asyncio, json, sys, stagedoor
request = json.load(sys.stdin)
async def main():
    async for event in stagedoor.run(request["agent"], request["prompt"], **request["options"]):
        pass
asyncio.run(main())
"""


def test_kill_9_of_ourselves(rig: Any, stage: Any, cases: Any, play: Any, napping: Any) -> None:
    nap = napping()
    scene = stage({"Sleep": [shell(f"({nap.marker}; true) & {nap.marker}"), say("Awake.")]})
    scene.git("init", "-q")
    request = {"agent": rig.agent, "prompt": "Sleep", "options": scene.options(tier="autonomous")}

    async def main() -> None:
        with cases("kill -9 of us mid-command"):
            ours = subprocess.Popen([sys.executable, "-c", OURSELVES], stdin=subprocess.PIPE)
            assert ours.stdin is not None
            try:
                ours.stdin.write(json.dumps(request).encode())
                ours.stdin.close()
                await asyncio.wait_for(nap.until(True), BOUND)
                below = descendants(ours.pid)
                assert len(below) >= 3, below  # the guard, the agent, the command
            finally:
                ours.send_signal(signal.SIGKILL)
                ours.wait()
            await asyncio.wait_for(nap.until(False), BOUND)
            await asyncio.wait_for(all_gone(below), BOUND)

    async def all_gone(pids: list[int]) -> None:
        while any(map(is_running, pids)):
            await asyncio.sleep(0.05)

    play(main)
    cases.settle()
