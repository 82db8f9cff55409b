"""A policy that follows its file: changes hold at once, mistakes change nothing, without a good one all is denied."""

from __future__ import annotations

import asyncio
import itertools
import json
import logging
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from pathlib import Path

import pytest

from stagedoor.drivers.codex.withholding import OWN_TOOLS as CODEX
from stagedoor.drivers.gemini.tools import OWN_TOOLS as GEMINI
from stagedoor.drivers.policing import without_denied_tools
from stagedoor.drivers.qwen.tools import OWN_TOOLS as QWEN
from stagedoor.permissions.policy import Policy
from stagedoor.permissions.policy_file import load_policy
from stagedoor.permissions.rules import Rule
from stagedoor.service.config.settings import AgentSettings, Settings
from stagedoor.service.opening import CurrentPolicy, Opening
from stagedoor.service.service import Service
from stagedoor.service.views import SessionSpec, SessionView
from stagedoor.unified.decisions import Allow
from stagedoor.unified.events import Done, PermissionRequest, PermissionResolved, TurnCompleted, decode

QUESTION = PermissionRequest(request_id="1", tool_name="shell", operation="execute", input={"command": "make all"})
RULE = "rules:\n  - action: {action}\n    command: make *\n"


def put(file: Path, text: str) -> None:
    """Replace the file as editors do: the new one is another file, so that no clock has to tell them apart."""
    fresh = file.with_suffix(".new")
    fresh.write_text(text)
    fresh.replace(file)


def test_what_the_file_says_now_decides(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    file = tmp_path / "rules.yaml"
    policy = CurrentPolicy(file).stacked_on(Policy(rules=(Rule(action="ask", tool=("*",)),)))
    report: list[tuple[str, bool]] = []
    with caplog.at_level(logging.WARNING):
        for text in (None, RULE.format(action="allow"), RULE.format(action="deny"), "rules: 5", "rules: []", None):
            file.unlink(missing_ok=True) if text is None else put(file, text)
            report.append((policy.decide(QUESTION, "/work", home="/home").action, bool(policy.problem)))
    assert report == [
        ("deny", True),  # there never was one
        ("allow", False),
        ("deny", False),
        ("deny", True),  # the one before it holds
        ("ask", False),
        ("ask", True),  # it is gone; the one before it holds
    ]
    assert [record.levelname for record in caplog.records] == ["WARNING"] * 3
    assert "'rules' must be a list on line 1; the last good policy stays in force until it is fixed" in caplog.text
    assert "nothing is allowed until it is fixed" in caplog.text


def test_without_a_good_file_even_what_lies_beneath_allows_nothing(tmp_path: Path) -> None:
    policy = CurrentPolicy(tmp_path / "no.yaml").stacked_on(Policy(default="allow"))
    ruling = policy.decide(QUESTION, "/work")
    assert (ruling.action, ruling.why) == (
        "deny",
        f"the policy {tmp_path / 'no.yaml'} cannot be read, so nothing is allowed",
    )


def test_stacked_and_only_refusing_it_is_as_a_policy_is(tmp_path: Path) -> None:
    file = tmp_path / "rules.yaml"
    put(file, RULE.format(action="allow") + "  - action: deny\n    command: ls *\n")
    rules = [Policy(rules=(Rule(action=action, tool=(action,)),), name=action) for action in ("allow", "ask", "deny")]
    current, fixed = CurrentPolicy(file), load_policy(file)
    for one, other in itertools.permutations(rules, 2):
        for followed, expected in (
            (current.over_modes(one).stacked_on(other), fixed.over_modes(one).stacked_on(other)),
            (current.stacked_on(one).over_modes(other), fixed.stacked_on(one).over_modes(other)),
            (current.over_modes(one).only_refusing(), fixed.over_modes(one).only_refusing()),
            (current.stacked_on(one).only_refusing(), fixed.stacked_on(one).only_refusing()),
        ):
            assert followed.policy is not None
            assert followed.policy.all_rules == expected.all_rules


READS = ("view_image", "read_file", "grep_search", "glob", "list_directory")
TABLES = {"codex": CODEX, "gemini": GEMINI, "qwen": QWEN}


@pytest.mark.parametrize("agent", TABLES)
@pytest.mark.parametrize(
    ("text", "accept", "withheld"),
    [
        ("default: deny\n", (), True),
        ("default: deny\nrules:\n  - {action: allow, command: ls *}\n", (), True),
        ("rules:\n  - {action: deny, operation: read}\n", (), True),
        ("rules:\n  - {action: deny, operation: read}\n", ("read_file", "search_content", "find_files"), True),
        ("rules: 5\n", (), True),  # no good file, so nothing is allowed
        ("default: deny\n", ("read_file", "search_content", "find_files"), False),
        ("default: deny\nrules:\n  - {action: allow, path: docs/**}\n", (), False),
        ("default: ask\n", (), False),
    ],
)
def test_what_the_file_denies_is_withheld_where_an_agent_never_asks(
    agent: str, text: str, accept: tuple[str, ...], withheld: bool, tmp_path: Path
) -> None:
    file = tmp_path / "rules.yaml"
    put(file, text)
    settings = Settings(policy=str(file), agents={agent: AgentSettings(auto_accept=accept)})
    opening = Opening(settings, tmp_path / "home")
    view = SessionView(id="s", agent=agent, cwd=str(tmp_path), spec=SessionSpec(prompt="look"))

    def denied() -> set[str]:
        options = opening.session(view)._engine._options
        return set(without_denied_tools(options, TABLES[agent], agent).disallowed_tools) & set(READS)

    reading = {tool.name for tool in TABLES[agent]} & set(READS)
    assert denied() == (reading if withheld else set())
    put(file, "default: ask\n")
    assert denied() == set()
    put(file, "default: deny\nrules:\n  - {action: deny, operation: read}\n")
    assert denied() == reading


@asynccontextmanager
async def service_with(tmp_path: Path, *, policy: str = "", accept: tuple[str, ...] = ()) -> AsyncIterator[Service]:
    workspace = tmp_path / "work"
    workspace.mkdir(exist_ok=True)
    agent = AgentSettings(auto_accept=accept, env={"STAGEDOOR_UNDERSTUDY_HOME": str(tmp_path / "understudy")})
    settings = Settings(
        home=str(tmp_path / "home"), roots=(str(workspace),), policy=policy, agents={"understudy": agent}
    )
    async with asyncio.timeout(240), Service(settings) as service:
        yield service


async def resolved(service: Service, view: SessionView) -> list[tuple[str, str]]:
    """Who decided what, with every question that waits answered by a yes."""
    matches: list[tuple[str, str]] = []
    async for batch in service.events.follow(view.id, 0):
        for record in batch:
            event = decode(record.body)
            if isinstance(event, PermissionResolved):
                matches.append((event.decision, event.by))
            if isinstance(event, PermissionRequest) and event.expires_at is not None:
                await service.questions.answer(event.request_id, Allow())
    return matches


def prompt(*commands: str) -> str:
    return json.dumps({"script": [[{"shell": command}] for command in commands] + [[{"say": "done"}]]})


@pytest.fixture(autouse=True)
def own_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STAGEDOOR_HOME", str(tmp_path / "home"))


def test_a_running_session_sees_the_change(tmp_path: Path) -> None:
    async def main() -> list[tuple[str, str]]:
        file = tmp_path / "rules.yaml"
        put(file, "rules: []\n")
        async with service_with(tmp_path, policy=str(file)) as service:
            view = await service.sessions.create(
                SessionSpec(prompt=prompt("echo one", "echo two", "echo three"), agent="understudy")
            )
            matches: list[tuple[str, str]] = []
            async for batch in service.events.follow(view.id, 0):
                for record in batch:
                    event = decode(record.body)
                    if isinstance(event, PermissionResolved):
                        matches.append((event.decision, event.by))
                    elif isinstance(event, PermissionRequest) and event.expires_at is not None:
                        put(
                            file,
                            "rules:\n  - {action: allow, command: echo two}\n  - {action: deny, command: echo *}\n",
                        )
                        await service.questions.answer(event.request_id, Allow())
            return matches

    # Before the change somebody is asked; then the file denies, even what an earlier rule of it allows.
    assert asyncio.run(main()) == [("allow", "client"), ("deny", "policy"), ("deny", "policy")]


def test_tools_of_the_configuration_and_of_the_request_need_no_question(tmp_path: Path) -> None:
    async def main() -> list[tuple[str, str]]:
        async with service_with(tmp_path, accept=("read_file",)) as service:
            target = SessionSpec(prompt=prompt("echo one"), agent="understudy", auto_approve=("shell",))
            return await resolved(service, await service.sessions.create(target))

    assert asyncio.run(main()) == [("allow", "policy")]


@pytest.mark.parametrize(
    ("accept_later", "decided"),
    [
        (("shell",), [("allow", "policy"), ("allow", "policy"), ("allow", "policy")]),
        ((), [("allow", "policy"), ("allow", "client"), ("allow", "client")]),
    ],
)
def test_a_session_under_rules_is_woken_under_rules_and_without_them_asks_about_everything(
    tmp_path: Path, accept_later: tuple[str, ...], decided: list[tuple[str, str]]
) -> None:
    write = json.dumps(
        {"script": [[{"write_file": {"path": "made", "content": "x"}}, {"shell": "true"}], [{"say": "ok"}]]}
    )

    async def main() -> list[tuple[str, str]]:
        async with service_with(tmp_path, accept=("shell",)) as service:
            view = await service.sessions.create(
                SessionSpec(prompt=prompt("echo one"), agent="understudy", keep_open=True)
            )
            await turn_over(service, view, 1)
        async with service_with(tmp_path, accept=accept_later) as service:
            await service.sessions.send(view.id, write)
            followed = asyncio.create_task(resolved(service, view))
            await turn_over(service, view, 2)
            await service.sessions.cancel(view.id)
            return await followed

    assert asyncio.run(main()) == decided


async def turn_over(service: Service, view: SessionView, turn: int) -> None:
    async with aclosing(service.events.follow(view.id, 0)) as batches:
        async for batch in batches:
            for event in map(decode, (record.body for record in batch)):
                assert not isinstance(event, Done), event
                if isinstance(event, TurnCompleted) and event.turn == turn:
                    return
