"""The permission contract with the real CLIs: a part that touches every driver and every kind of stance.

All of it is ``make contract``; ``docs/contract.json`` holds what that saw, and ``docs/permissions.md`` shows it.
"""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from stagedoor import catalog
from stagedoor.testing.contract.stances import SCENES
from stagedoor.testing.contract.trial import Player
from stagedoor.testing.environment import scripted_agents

BY_NAME = {scene.name: scene for scene in SCENES}
PART = {
    "claude stream": (
        "tier dry-run", "approval ask", "policy denies shell, allowed_tools lists it", "one command remembered",
    ),
    "codex app-server": ("tier dry-run", "tier supervised", "approval ask", "policy allows", "supervised, forked"),
    "codex exec": ("tier supervised", "dry-run, resumed"),
    "gemini acp": ("tier dry-run", "approval ask", "allowed_tools read_file"),
    "gemini stream-json": ("tier supervised",),
    "opencode serve": ("approval ask", "disallowed_tools shell"),
    "opencode run": ("tier supervised",),
    "opencode acp": ("tier supervised",),
}  # fmt: skip


@pytest.mark.live
def test_scenes(rig: Any) -> None:
    if rig.is_embedded:
        return  # test_tiers tries it
    player = Player(rig.agent, rig.driver, rig.executable)
    for name in PART[f"{rig.agent} {rig.driver}"]:
        for row in asyncio.run(player.play(BY_NAME[name])):
            assert (row.stance, row.complaints) == (row.stance, ()), row.outcomes


# ------------------------------------------------------------------------------------- what was seen, and the page


def test_the_part_touches_every_driver() -> None:
    drivers = {f"{agent} {driver}" for agent in scripted_agents() for driver in catalog.agent(agent).drivers}
    assert PART.keys() == drivers
    assert {name for names in PART.values() for name in names} <= BY_NAME.keys()
