"""Every tool of an agent's own, called one by one, is under the tier, the policy and the lists.

``STAGEDOOR_CONTRACT=1`` plays all of it; else one agent stands for all, in the two ways that matter most. What was seen
last is in ``docs/own_tools.json``.
"""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any

import pytest

from stagedoor import catalog
from stagedoor.testing.environment import scripted_agents
from stagedoor.unified.options import Options
from tools.own_tools import PAGE, RESULTS, Way, broken, load, page, run, trials

CHECKOUT = Path(__file__).parents[3]
EVERYTHING = os.environ.get("STAGEDOOR_CONTRACT") == "1"


@pytest.mark.live
def test_no_tool_does_what_nobody_allowed(rig: Any) -> None:
    chosen = not rig.is_embedded and rig.driver == catalog.agent(rig.agent).choose_driver(Options())
    if not chosen or not (EVERYTHING or rig.agent == "codex"):
        pytest.skip("another driver, or another agent, is asked; STAGEDOOR_CONTRACT=1 asks all agents")
    ways: tuple[Way, ...] | None = None if EVERYTHING else ("dry-run", "all denied")
    assert broken([asyncio.run(run(rig.agent, ways))]) == []


def test_every_agent_was_played_and_the_page_shows_it() -> None:
    results = load(CHECKOUT / RESULTS)
    assert broken(results) == []
    assert {result.agent: set(result.tools) for result in results} == {
        agent: set(tools) for agent, tools in trials().items()
    }
    assert [result.agent for result in results] == list(scripted_agents())
    assert (CHECKOUT / PAGE).read_text() == page(results), "run python -m tools.own_tools --page"


def test_what_is_tried_stands_in_the_agents_own_table() -> None:
    for agent, tools in trials().items():
        assert set(tools) - {tool.name for tool in catalog.agent(agent).tools} == set(), agent
