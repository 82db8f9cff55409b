"""Any ACP agent through the same door: the understudy, as somebody else's program of which we know the command only."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

import stagedoor
from stagedoor import AcpAgent, catalog
from stagedoor.errors import BadRequest, ConfigError, NotInstalled, NotSupported
from stagedoor.understudy import command
from stagedoor.unified.events import Event

BOUND = 120.0
MODES: dict[Any, str] = {"dry-run": "plan", "supervised": "ask", "autonomous": "auto"}
WRITE_AND_RUN = json.dumps(
    {
        "script": [
            [{"write_file": {"path": "a.txt", "content": "x"}}, {"shell": "echo out > b.txt; exit 3"}],
            [{"say": "Bye"}],
        ]
    }
)


def foreign(tmp_path: Path, **more: Any) -> AcpAgent:
    return AcpAgent(command=command(home=str(tmp_path / "agent")), name="foreign", **more)


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    (tmp_path / "workspace").mkdir()
    return tmp_path / "workspace"


def run(agent: AcpAgent | str, prompt: str, **options: Any) -> list[Event]:
    async def main() -> list[Event]:
        async with asyncio.timeout(BOUND):
            return [event async for event in stagedoor.run(agent, prompt, **options)]

    return asyncio.run(main())


def test_an_agent_of_which_only_the_command_is_known(tmp_path: Path, workspace: Path) -> None:
    """Its default mode asks; in the tier that asks nobody, we say yes."""
    events = run(foreign(tmp_path), WRITE_AND_RUN, cwd=workspace, tier="autonomous")
    assert {event.agent for event in events} == {"foreign"}
    assert not [event for event in events if isinstance(event, stagedoor.PermissionRequest)]
    results = [event for event in events if isinstance(event, stagedoor.ToolResult)]
    assert [(result.name, result.status) for result in results] == [("write_file", "success"), ("shell", "error")]
    assert isinstance(events[-1], stagedoor.Done)
    assert events[-1].status == "success"
    assert sorted(path.name for path in workspace.iterdir()) == ["a.txt", "b.txt"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "foreign .acp. may act without asking .*tier='supervised' cannot be promised: use tier='autonomous'"),
        ({"tier": "dry-run"}, "cannot be told to change nothing.*add confine='read-only'"),
        ({"tier": "autonomous", "approval": "ask"}, "approval='ask' cannot be promised"),
        ({"tier": "autonomous", "allowed_tools": ["shell"]}, "does not support allowed_tools"),
    ],
)
def test_a_tier_that_nobody_keeps_is_refused(
    tmp_path: Path, workspace: Path, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(NotSupported, match=message):
        stagedoor.open(foreign(tmp_path), cwd=workspace, **options)


@pytest.mark.parametrize(
    ("options", "files", "questions"),
    [
        ({"tier": "dry-run"}, [], 0),
        ({"tier": "supervised"}, ["a.txt"], 1),
        ({"tier": "supervised", "can_use_tool": lambda request: stagedoor.Allow()}, ["a.txt", "b.txt"], 1),
    ],
)
def test_a_tier_is_kept_by_the_mode_that_was_configured_for_it(
    tmp_path: Path, workspace: Path, options: dict[str, Any], files: list[str], questions: int
) -> None:
    events = run(foreign(tmp_path, modes=MODES), WRITE_AND_RUN, cwd=workspace, **options)
    assert sorted(path.name for path in workspace.iterdir()) == files
    requests = [event for event in events if isinstance(event, stagedoor.PermissionRequest)]
    assert [request.tool_name for request in requests] == ["shell"] * questions


def test_a_mode_that_the_agent_does_not_have_stops_the_session_before_the_prompt(
    tmp_path: Path, workspace: Path
) -> None:
    agent = foreign(tmp_path, modes={"supervised": "careful"})
    with pytest.raises(stagedoor.StagedoorError, match="the agent has no mode 'careful'; choose one of"):
        run(agent, WRITE_AND_RUN, cwd=workspace)
    assert list(workspace.iterdir()) == []


def test_a_missing_program_says_how_to_install_it(workspace: Path) -> None:
    agent = AcpAgent(command=["no-such-agent", "--acp"], install="npm i -g no-such-agent")
    with pytest.raises(NotInstalled, match=r"no-such-agent was not found\. Install it with: npm i -g no-such-agent "):
        run(agent, "x", cwd=workspace, tier="autonomous")


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"command": "my-agent --acp"}, "as a list of texts"),
        ({"command": []}, "as a list of texts"),
        ({"command": ["a"], "modes": {"careful": "x"}}, "'careful' is not a tier; choose from dry-run"),
        ({"command": ["a"], "name": "My Agent"}, "use small letters"),
    ],
)
def test_a_wrong_description_is_refused(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(BadRequest, match=message):
        AcpAgent(**fields)


def test_sync_and_parallel(tmp_path: Path, workspace: Path) -> None:
    agent, prompt = foreign(tmp_path), json.dumps({"script": [[{"say": "Hello"}]]})
    env = {"STAGEDOOR_UNDERSTUDY_HOME": str(tmp_path / "agent")}
    options: dict[str, Any] = {"cwd": str(workspace), "tier": "autonomous", "watch_files": False, "env": env}
    assert stagedoor.run_sync(agent, prompt, **options).text == "Hello"

    async def both() -> list[tuple[str, str]]:
        tasks = [stagedoor.Task(agent, prompt), stagedoor.Task("understudy", prompt)]
        return [
            (tagged.agent, tagged.event.status)
            async for tagged in stagedoor.run_parallel(tasks, **options)
            if isinstance(tagged.event, stagedoor.Done)
        ]

    assert sorted(asyncio.run(both())) == [("foreign", "success"), ("understudy", "success")]


# ------------------------------------------------------------------------------------------------ by configuration


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    file = tmp_path / "config.yaml"
    monkeypatch.setenv("STAGEDOOR_CONFIG", str(file))
    monkeypatch.setattr(catalog, "_configured", None)
    return file


def test_the_library_knows_the_agents_of_the_users_configuration(config: Path, tmp_path: Path, workspace: Path) -> None:
    entry = {"acp": command(home=str(tmp_path / "agent")), "modes": MODES, "title": "Mine"}
    config.write_text(json.dumps({"agents": {"mine": entry, "claude": {"model": "opus"}}}))
    assert catalog.names() == (*catalog.BUILT_IN, "mine")
    assert catalog.agent("mine").title == "Mine"
    prompt = json.dumps({"script": [[{"say": "Hello"}]]})
    events = run("mine", prompt, cwd=workspace)
    assert events[-1].agent == "mine"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("agents: {mine: {acp: 5}}", "agents.mine: Expected `array`, got `int` - at `[$].acp`"),
        ("agents: {claude: {acp: [x]}}", "claude is an agent of its own; give yours another name"),
        ("agents: {mine: {acp: [x], modes: {careful: y}}}", "agents.mine: Invalid enum value 'careful'"),
        ("agents: [", "not valid YAML"),
    ],
)
def test_a_wrong_entry_is_told_when_its_agent_is_asked_for(config: Path, text: str, message: str) -> None:
    config.write_text(text)
    with pytest.raises(ConfigError, match=message):
        catalog.agent("mine")
    assert catalog.names() == tuple(catalog.BUILT_IN)


def test_the_protocol_alone_names_no_agent(config: Path) -> None:
    with pytest.raises(NotSupported, match="give its command with --acp"):
        catalog.agent("acp")
