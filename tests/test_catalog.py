"""The table of agents, and agents that installed packages bring."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from stagedoor import NotSupported, catalog
from stagedoor.drivers.agent import Agent, ArgumentRules, SortedArguments

PLUGIN = """
from dataclasses import replace
from stagedoor import catalog

AGENT = replace(catalog.agent("understudy"), name="stand-in", title="Stand-in")
OTHER = "not an agent"
"""
ENTRY_POINTS = """
[stagedoor.agents]
stand-in = stand_in:AGENT
claude = stand_in:AGENT
broken = stand_in:MISSING
wrong = stand_in:OTHER
"""


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    (tmp_path / "stand_in.py").write_text(PLUGIN)
    info = tmp_path / "stand_in_agent-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: stand-in-agent\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(ENTRY_POINTS)
    monkeypatch.syspath_prepend(tmp_path)
    catalog._installed.cache_clear()
    yield
    catalog._installed.cache_clear()
    sys.modules.pop("stand_in", None)


def test_a_package_brings_an_agent(installed: None) -> None:
    assert catalog.names() == (*catalog.BUILT_IN, "broken", "stand-in", "wrong")
    agent = catalog.agent("stand-in")
    assert (agent.title, list(agent.drivers)) == ("Stand-in", ["acp"])
    assert isinstance(agent, Agent)


def test_nobody_takes_the_place_of_an_agent_of_ours(installed: None) -> None:
    assert catalog.agent("claude").title == "Claude Code"


@pytest.mark.parametrize(("name", "message"), [("broken", "cannot be loaded"), ("wrong", "must be a stagedoor Agent")])
def test_a_package_that_is_wrong_is_named(installed: None, name: str, message: str) -> None:
    with pytest.raises(NotSupported, match=f"stand-in-agent.*{message}"):
        catalog.agent(name)


def test_an_unknown_agent_is_answered_with_the_nearest() -> None:
    with pytest.raises(NotSupported, match="did you mean 'claude'"):
        catalog.agent("cluade")


@pytest.mark.parametrize("name", catalog.BUILT_IN)
def test_every_agent_is_one_value(name: str) -> None:
    agent = catalog.agent(name)
    assert agent.name == name
    assert replace(agent) == agent
    for driver_name, driver in agent.drivers.items():
        assert driver.name == driver_name


def test_arguments_are_sorted_by_who_owns_them() -> None:
    rules = ArgumentRules(reserved={"--output-format": 1, "-p": 0}, replaced={"--model": "model"})
    words = ["-p", "--output-format", "json", "--output-format=text", "--model=opus", "--debug"]
    assert rules.sort(words) == SortedArguments(
        passed=("--debug",),
        dropped=("-p", "--output-format", "json", "--output-format=text"),
        misplaced={"--model": "model"},
    )
