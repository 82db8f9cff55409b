"""Every tool of the running program is known and held, and a list of tools holds whatever the model calls.

``STAGEDOOR_CONTRACT=1`` tries every list on every driver; else each driver tries one of them.
"""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import stagedoor
from stagedoor import catalog
from stagedoor.permissions.policy import Policy
from stagedoor.permissions.rules import Rule
from stagedoor.testing.script import mcp, read_file, say, shell, task, write_file

pytestmark = pytest.mark.live

EVERYTHING = os.environ.get("STAGEDOOR_CONTRACT") == "1"
SLOW = ("opencode-run", "opencode-acp")
"""They offer what ``serve`` offers, by the same settings."""


def left_out(rig: Any) -> bool:
    return not EVERYTHING and rig.id in SLOW


def offered(scene: Any) -> set[str]:
    """What the program offers its model, but for the tools of MCP servers."""
    requests = [request for request in scene.model.requests if not request.side]
    names = {name for request in requests for name in request.tools}
    # Claude Code names those that it shows only when they are looked for.
    deferred = re.findall(r"before calling them:\\n(.*?)\\n</system", "".join(json.dumps(one.body) for one in requests))
    names |= {name for names_in_it in deferred for name in names_in_it.split("\\n")}
    return {name.removeprefix("clock__") for name in names if "sums" not in name and name != "add"}


def tools_in(turn: Any) -> set[str]:
    """``init.tools``, but for the tools of MCP servers."""
    [init] = turn.of(stagedoor.Init)
    return {name for name in init.tools if "sums" not in name and "clock" not in name}


@pytest.mark.drift
def test_the_table_of_tools_is_what_the_program_offers(rig: Any, stage: Any, sums_server: Any, play: Any) -> None:
    if rig.is_embedded or left_out(rig):
        pytest.skip("there is no model to offer tools to, or another driver of the same program is asked")
    table = {tool.name for tool in catalog.agent(rig.agent).tools}
    models = ("gpt-5.5", "gpt-6.1-sol", "unheard-of") if rig.agent == "codex" else (None,)

    async def main() -> None:
        for number, model in enumerate(models):
            scene = stage({"Say hello": [say("Hello.")]}, name=f"stage{number}")
            options: dict[str, Any] = {"tier": "autonomous", "mcp_servers": {"sums": sums_server}, "model": model}
            if rig.capabilities.permissions != "none":
                options["can_use_tool"] = lambda request: stagedoor.Deny()  # some ask questions only then
            async with scene.conversation(**options) as talk:
                turn = await talk.turn("Say hello")
            assert offered(scene), "nothing was offered"
            assert offered(scene) - table == set(), "write these down in the agent's table of tools"
            listed = tools_in(turn)
            assert bool(listed) is rig.capabilities.tool_list
            if listed:
                plumbing = {tool.name for tool in catalog.agent(rig.agent).tools if tool.control == "plumbing"}
                assert offered(scene) - plumbing - listed == set()
                assert listed - plumbing - offered(scene) == set() or rig.agent == "qwen"  # those its search can find

    play(main)


LISTS: list[tuple[dict[str, Any], set[str], set[str]]] = [
    # what is listed, the files that come of it, the tools that the model is offered (by their kind)
    ({"allowed_tools": ["read"]}, set(), {"read_file"}),
    ({"disallowed_tools": ["shell", "write", "edit", "mcp"]}, set(), set()),
    ({"allowed_tools": ["write", "edit", "task", "mcp__none"]}, {"by-write"}, {"write_file", "edit_file", "task"}),
]


def test_a_list_of_tools_holds_whatever_the_model_calls(
    rig: Any, stage: Any, sums_server: Any, play: Any, tmp_path: Path
) -> None:
    """The model calls everything all the same, in the tier that asks nobody, and so does its sub-agent."""
    if left_out(rig):
        pytest.skip("another driver of the same program has the same settings")
    chosen = LISTS if EVERYTHING else [LISTS[sum(map(ord, rig.id)) % len(LISTS)]]
    if rig.is_embedded:
        chosen = LISTS

    async def main() -> None:
        for number, (lists, made, kinds) in enumerate(chosen):
            place = tmp_path / f"stage{number}" / "workspace"
            tries = [
                shell(f"touch {place}/by-shell"),
                write_file(f"{place}/by-write", "x"),
                mcp("sums", "add", a=1, b=2),
                task("Try it yourself", [shell(f"touch {place}/by-agent"), say("I have tried.")]),
                read_file(f"{place}/there"),
            ]
            routes = {"Try everything": [*tries, say("I have tried.")], "Again": [tries[0], say("I have tried.")]}
            scene = stage(routes, name=f"stage{number}")
            (place / "there").write_text("there\n")
            options = {"tier": "autonomous", "mcp_servers": {"sums": sums_server}, **lists}
            async with scene.conversation(**options) as talk:
                turn = await talk.turn("Try everything")
                assert turn.text.endswith("I have tried."), turn.describe()
                session_id = talk.session.id
            found = {path.name for path in place.iterdir() if path.name.startswith("by-")}
            assert found == made, turn.describe()
            results = [event for event in turn.of(stagedoor.ToolResult) if event.name in ("shell", "mcp")]
            assert [event.status for event in results if event.status == "success"] == [], turn.describe()
            if kinds and scene.model is not None and rig.agent != "kimi":  # it has no switch: a hook refuses the call
                by_name = {tool.name: tool for tool in catalog.agent(rig.agent).tools}
                names = offered(scene) | tools_in(turn)
                tools = [by_name[name] for name in names if by_name[name].control != "plumbing"]
                more = {"edit_file"} if rig.agent == "codex" else set()  # it has no switch, and is denied
                assert {tool.kind for tool in tools if not tool.words & (kinds | more)} == set()
            # A resumed session has the lists it had, without being told again.
            async with scene.conversation(resume=session_id, mcp_servers={"sums": sums_server}) as talk:
                turn = await talk.turn("Again")
            assert not (place / "by-shell").exists(), turn.describe()

    play(main)


@pytest.fixture
def codex_only(rig: Any) -> None:
    if rig.agent != "codex":
        pytest.skip("only Codex never asks about a tool that reaches the network")


ALLOWS_SEARCHES = Policy(rules=(Rule(action="allow", tool=("web_search",)),), default="deny")
SEARCHES: list[tuple[dict[str, Any], bool]] = [
    ({"tier": "dry-run"}, False),
    ({"tier": "supervised"}, False),
    ({"approval": "ask"}, False),
    ({"tier": "autonomous"}, True),
    ({"tier": "autonomous", "sandbox": "readOnly"}, False),
    ({"tier": "autonomous", "disallowed_tools": ["web_search"]}, False),
    ({"tier": "autonomous", "disallowed_tools": ["web_fetch"]}, False),
    ({"tier": "supervised", "allowed_tools": ["web_search"]}, False),
    ({"tier": "autonomous", "allowed_tools": ["web_search", "shell", "edit"]}, True),
    ({"tier": "autonomous", "policy": Policy(default="deny")}, False),
    ({"tier": "autonomous", "policy": Policy(rules=(Rule(action="deny", tool=("web_fetch",)),))}, False),
    ({"tier": "supervised", "policy": ALLOWS_SEARCHES}, True),
]


def test_a_search_that_nobody_is_asked_about_needs_to_be_allowed(
    rig: Any, codex_only: None, stage: Callable[..., Any], play: Any
) -> None:
    policed = [row for row in SEARCHES if "policy" in row[0]]  # exec asks nobody, so it takes no policy
    others = [row for row in SEARCHES if "policy" not in row[0]]
    chosen = others if rig.driver == "exec" else SEARCHES if EVERYTHING else [*others[1:3], *policed]

    async def main() -> None:
        for number, (options, searches) in enumerate(chosen):
            scene = stage({"Say hello": [say("Hello.")]}, name=f"stage{number}")
            async with scene.conversation(**options) as talk:
                await talk.turn("Say hello")
            assert ("web_search" in offered(scene)) == searches, options

    play(main)


def test_a_server_of_the_users_own_configuration_is_asked_about(
    rig: Any, codex_only: None, stage: Callable[..., Any], play: Any
) -> None:
    """Though that configuration approves it, beforehand and by name."""
    server = Path(__file__).with_name("sums_server.py")
    config = f"""
[mcp_servers.sums]
command = "{sys.executable}"
args = ["-I", "-S", "{server}"]
default_tools_approval_mode = "approve"

[mcp_servers.sums.tools.add]
approval_mode = "approve"
"""
    asks = rig.capabilities.permissions != "none"

    async def main() -> None:
        modes: list[dict[str, Any]] = [{"tier": "dry-run"}, {"tier": "supervised"}]
        for number, options in enumerate([*modes, {"tier": "autonomous", "disallowed_tools": ["mcp"]}]):
            scene = stage({"Add": [mcp("sums", "add", a=1, b=2), say("Done.")]}, name=f"stage{number}")
            with (scene.home / ".codex" / "config.toml").open("a") as file:
                file.write(config)
            questions: list[str] = []

            def refuse(request: stagedoor.PermissionRequest, questions: list[str] = questions) -> stagedoor.Deny:
                questions.append(request.native_name)
                return stagedoor.Deny("no")

            async with scene.conversation(**options, **({"can_use_tool": refuse} if asks else {})) as talk:
                turn = await talk.turn("Add")
            statuses = [event.status for event in turn.of(stagedoor.ToolResult) if event.name == "mcp"]
            assert "success" not in statuses, turn.describe()
            assert questions == (["mcp__sums__add"] if asks and options["tier"] == "supervised" else [])

    play(main)
