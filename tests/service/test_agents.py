"""Which agents a server has: as found, as configured, and looked up again only when some time has passed."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from stagedoor import __version__, catalog
from stagedoor.service.agents import Agents, AgentView, environment
from stagedoor.service.config.settings import AgentSettings, Settings


def switched_off(name: str) -> AgentView:
    return AgentView(
        agent=name,
        enabled=False,
        problem="switched off in the configuration",
        fix=f"set agents.{name}.enabled: true",
    )


def test_agents_as_the_server_has_them(monkeypatch: pytest.MonkeyPatch) -> None:
    others = [name for name in catalog.names() if name != "understudy"]
    configured = {name: AgentSettings(enabled=False) for name in others} | {"understudy": AgentSettings(model="large")}
    clock = [0.0]
    agents = Agents(Settings(default_agent="understudy", agents=configured), fresh=30.0, clock=lambda: clock[0])

    async def main() -> None:
        found, same = await asyncio.gather(agents.list(), agents.list())
        assert found is same
        drivers = {name: driver.capabilities for name, driver in catalog.agent("understudy").drivers.items()}
        assert {one.agent: one for one in found} == {name: switched_off(name) for name in others} | {
            "understudy": AgentView(
                agent="understudy",
                title="Understudy (embedded, scripted)",
                default=True,
                installed=True,
                version=__version__,
                signed_in=True,
                model="large",
                drivers=drivers,
            )
        }
        clock[0] = 29.0
        assert await agents.list() is found
        clock[0] = 31.0
        fresh = await agents.list()
        assert fresh == found
        assert fresh is not found

    asyncio.run(main())


def test_a_program_is_looked_for_where_the_configuration_says(tmp_path: Path) -> None:
    program = tmp_path / "codex"
    program.write_text("#!/bin/sh\necho codex-cli 0.0.1\n")
    program.chmod(0o755)
    configured = {name: AgentSettings(enabled=False) for name in catalog.names()}
    configured["codex"] = AgentSettings(command=str(program), env={"HOME": str(tmp_path)})
    found = asyncio.run(Agents(Settings(agents=configured)).list())
    (codex,) = [one for one in found if one.enabled]
    assert codex.installed
    assert "0.0.1" in codex.problem


def test_the_environment_is_ours_with_what_is_configured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/bin")
    assert environment(AgentSettings()) is None
    made = environment(AgentSettings(command="/opt/x/run", env={"A": "1"}))
    assert made is not None
    assert (made["A"], made["PATH"]) == ("1", "/opt/x:/bin")
