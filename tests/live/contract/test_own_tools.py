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
from tools.own_tools import PAGE, RESULTS, Way, accepted, broken, load, page, run, trials, usual

CHECKOUT = Path(__file__).parents[3]
EVERYTHING = os.environ.get("STAGEDOOR_CONTRACT") == "1"


@pytest.mark.live
def test_no_tool_does_what_nobody_allowed(rig: Any) -> None:
    if rig.is_embedded or not (EVERYTHING or rig.agent == "codex") or rig.driver != usual(rig.agent)[1]:
        pytest.skip("another driver, or another agent, is asked; STAGEDOOR_CONTRACT=1 asks all agents")
    ways: tuple[Way, ...] | None = None if EVERYTHING else ("dry-run", "all denied")
    assert broken([asyncio.run(run(*usual(rig.agent), rig.executable, ways))]) == []


def test_every_agent_was_played_and_the_page_shows_it() -> None:
    results = load(CHECKOUT / RESULTS)
    assert broken(results) == []
    played = [result.key for result in results]
    assert [key for key in (usual(agent) for agent in scripted_agents()) if key not in played] == []
    assert [key for key in played if key not in accepted(key[0])] == []
    assert [(result.key, set(result.tools)) for result in results] == [
        (result.key, set(trials()[result.agent])) for result in results
    ]
    assert (CHECKOUT / PAGE).read_text() == page(results), "run python -m tools.own_tools --page"


def test_what_is_tried_stands_in_the_agents_own_table() -> None:
    for agent, tools in trials().items():
        assert set(tools) - {tool.name for tool in catalog.agent(agent).tools} == set(), agent


def test_every_tool_has_an_effect_or_a_reason_why_none_shows() -> None:
    """And one that shows nothing is not called harmless for that."""
    bare = [
        (agent, tool)
        for agent, tools in trials().items()
        for tool, trial in tools.items()
        if (trial.does == "nothing") != bool(trial.why)
    ]
    assert bare == []
