"""The permission contract with the real CLIs: a part that touches every driver and every kind of stance.

All of it is ``make contract``; ``docs/contract.json`` holds what that saw, and ``docs/permissions.md`` shows it.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from stagedoor import catalog
from stagedoor.testing.contract.stances import SCENES
from stagedoor.testing.contract.trial import Player
from stagedoor.testing.environment import scripted_agents
from tools.contract import PAGE, RESULTS, chosen, load, written

CHECKOUT = Path(__file__).parents[2]
BY_NAME = {scene.name: scene for scene in SCENES}
PART = {
    "claude stream": (
        "tier dry-run", "approval ask", "policy denies shell, allowed_tools lists it", "one command remembered",
        "sandbox workspaceWrite",
    ),
    "codex app-server": ("tier dry-run", "tier supervised", "approval ask", "policy allows", "supervised, forked"),
    "codex exec": ("tier supervised", "dry-run, resumed"),
    "gemini acp": ("tier dry-run", "approval ask", "allowed_tools read_file"),
    "gemini stream-json": ("tier supervised",),
    "opencode serve": ("approval ask", "disallowed_tools shell"),
    "opencode run": ("tier supervised",),
    "opencode acp": ("tier supervised",),
    "copilot acp": ("tier dry-run", "approval ask"),
    "qwen acp": ("tier supervised",),
    "kimi acp": ("tier supervised",),
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


def test_the_accepted_versions_were_played_and_kept_every_promise() -> None:
    """The newest and the oldest, with every driver, in everything."""
    seen = {(result.agent, result.driver, result.version): result for result in load(CHECKOUT / RESULTS)}
    every = {stance.name for scene in SCENES for stance in scene.stances}
    answers = {name for name in every if name.startswith("callback")}  # where nobody is asked, nobody answers
    accepted = list(chosen([], oldest=True, newest=True))
    assert seen.keys() == set(accepted)
    for key in accepted:
        asks = catalog.agent(key[0]).drivers[key[1]].capabilities.permissions != "none"
        assert {row.stance for row in seen[key].rows} == (every if asks else every - answers), key
    assert [(result.agent, row) for result in seen.values() for row in result.rows if row.complaints] == []


def test_the_page_shows_what_was_seen() -> None:
    page = (CHECKOUT / PAGE).read_text()
    assert page == written(page, load(CHECKOUT / RESULTS)), "run python -m tools.contract --page"
