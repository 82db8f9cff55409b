"""What can be chosen in a session of an agent that speaks ACP: at its start, and while it runs."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

import stagedoor
from stagedoor import AcpAgent, catalog
from stagedoor.agents.acp.responses import NewSessionResponse
from stagedoor.drivers.acp.settings import settings_in
from stagedoor.errors import BadRequest, LocalProtocolError, NotAllowed, NotSupported
from stagedoor.stored_sessions import stored_sessions
from stagedoor.understudy import command

BOUND = 120.0
TRANSCRIPTS = Path(__file__).parents[2] / "transcripts"
MODES: dict[Any, str] = {"supervised": "ask", "autonomous": "auto"}
HELLO = json.dumps({"script": [[{"say": "Hello"}]]})
WRITE = json.dumps({"script": [[{"shell": "echo x > a.txt"}], [{"say": "Done"}]]})


def foreign(tmp_path: Path) -> AcpAgent:
    return AcpAgent(command=command(home=str(tmp_path / "agent")), name="foreign", modes=MODES)


async def turn(session: stagedoor.Session, prompt: str) -> list[stagedoor.Event]:
    return [event async for event in session.send(prompt)]


def values(session: stagedoor.Session) -> dict[str, str]:
    return {setting.id: setting.value for setting in session.settings}


def test_settings_are_chosen_at_the_start_and_while_it_runs(tmp_path: Path) -> None:
    async def main() -> None:
        options: dict[str, Any] = {"tier": "autonomous", "model": "understudy-mini", "effort": "high", "mode": "plan"}
        async with asyncio.timeout(BOUND), stagedoor.open(foreign(tmp_path), cwd=tmp_path, **options) as session:
            assert session.settings == ()
            reader = session.events
            await turn(session, WRITE)
            assert values(session) == {"mode": "plan", "model": "understudy-mini", "effort": "high"}
            assert [(setting.kind, setting.locked) for setting in session.settings] == [
                ("mode", ""), ("model", ""), ("effort", ""),
            ]  # fmt: skip
            assert not (tmp_path / "a.txt").exists()
            assert (await session.change_setting("mode", "auto")).value == "auto"
            await session.change_setting("effort", "low")
            await turn(session, WRITE)
            assert values(session) == {"mode": "auto", "model": "understudy-mini", "effort": "low"}
            assert (tmp_path / "a.txt").read_text() == "x\n"
            for name, value, message in (
                ("mode", "nope", "mode has no value 'nope'; choose one of ask, auto_edit, auto, plan"),
                ("model", "nope", r"^unknown model 'nope'\. Available: understudy, understudy-mini$"),
                ("colour", "red", "there is no setting 'colour' here; there is: mode, model, effort"),
            ):
                with pytest.raises(BadRequest, match=message):
                    await session.change_setting(name, value)
        events = [event async for event in reader]
        notices = [event.message for event in events if isinstance(event, stagedoor.Notice) and event.code == "setting"]
        assert notices == ["mode: auto", "effort: low"]

    asyncio.run(main())


def test_a_mode_that_keeps_a_tier_stays(tmp_path: Path) -> None:
    async def main() -> None:
        async with asyncio.timeout(BOUND), stagedoor.open(foreign(tmp_path), cwd=tmp_path) as session:
            await turn(session, HELLO)
            assert [bool(setting.locked) for setting in session.settings] == [True, False, False]
            with pytest.raises(NotAllowed, match="this session promises a tier"):
                await session.change_setting("mode", "auto")
            await session.change_setting("model", "understudy-mini")
            await turn(session, WRITE)
            assert values(session) == {"mode": "ask", "model": "understudy-mini", "effort": "medium"}
            assert not (tmp_path / "a.txt").exists()

    asyncio.run(main())


@pytest.mark.parametrize(
    ("options", "fault", "message"),
    [
        ({"mode": "auto"}, NotSupported, "keeps this session's promises by its mode 'ask': leave mode out"),
        ({"tier": "autonomous", "mode": "plan", "policy": {}}, NotSupported, "by its mode"),
        ({"tier": "autonomous", "mode": "plan", "before_tool_call": ("true",)}, NotSupported, "by its mode"),
        ({"tier": "autonomous", "effort": "enormous"}, LocalProtocolError, "choose one of low, medium"),
        ({"tier": "autonomous", "mode": "nope"}, LocalProtocolError, "has no mode 'nope'"),
    ],
)
def test_what_cannot_be_chosen_is_refused(
    tmp_path: Path, options: dict[str, Any], fault: type[Exception], message: str
) -> None:
    if "policy" in options:
        (tmp_path / "policy.yaml").write_text("default: ask\n")
        options = {**options, "policy": tmp_path / "policy.yaml"}

    async def main() -> None:
        async with asyncio.timeout(BOUND), stagedoor.open(foreign(tmp_path), cwd=tmp_path, **options) as session:
            await turn(session, HELLO)

    with pytest.raises(fault, match=message):
        asyncio.run(main())


def test_its_own_list_is_the_history(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By ``session/list``: listed, found, and continued by ``last``; sessions of other folders are not among them."""
    config = tmp_path / "config.yaml"
    home = str(tmp_path / "agent")
    config.write_text(json.dumps({"agents": {"listed": {"acp": [*command(home=home)], "modes": dict(MODES)}}}))
    monkeypatch.setenv("STAGEDOOR_CONFIG", str(config))
    monkeypatch.setattr(catalog, "_configured", None)
    folders = [tmp_path / name for name in ("here", "there")]

    async def main() -> list[str]:
        ids: list[str] = []
        async with asyncio.timeout(BOUND):
            for folder in folders:
                folder.mkdir()
                async with stagedoor.open("listed", cwd=folder) as session:
                    await turn(session, HELLO)
                    ids.append(session.id)
        return ids

    first, _ = asyncio.run(main())
    [stored] = stored_sessions(folders[0], ["listed"])
    assert (stored.agent, stored.session_id, stored.cwd) == ("listed", first, str(folders[0]))
    assert stored.updated_ms > 1_700_000_000_000

    async def again() -> str:
        async with asyncio.timeout(BOUND), stagedoor.open("listed", cwd=folders[0], resume="last") as session:
            await turn(session, HELLO)
            return session.id

    assert asyncio.run(again()) == first


def test_an_agent_without_efforts_refuses_one(tmp_path: Path) -> None:
    with pytest.raises(NotSupported, match=r"gemini .* does not support effort"):
        stagedoor.open("gemini", cwd=tmp_path, effort="high")
    with pytest.raises(NotSupported, match="Claude Code knows low, medium"):
        stagedoor.open("claude", cwd=tmp_path, effort="enormous")
    with pytest.raises(NotSupported, match=r"kimi .* does not support mode"):
        stagedoor.open("kimi", cwd=tmp_path, mode="yolo")


@pytest.mark.parametrize(
    ("recording", "expected"),
    [
        ("copilot-1.0.102", [("mode", "mode"), ("allow_all", "other")]),
        ("kimi-2.1.0", [("mode", "mode"), ("model", "model")]),
        ("qwen-0.24.4", [("mode", "mode"), ("model", "model")]),
        ("opencode-1.18.33", [("model", "model"), ("mode", "mode")]),
    ],
)
def test_what_agents_offer(recording: str, expected: list[tuple[str, str]]) -> None:
    """As their own answers say it; what is offered twice is told once."""
    opened = next(answer for path in sorted((TRANSCRIPTS / recording).glob("*.jsonl")) if (answer := opening(path)))
    settings = settings_in(opened, opened.config_options or ())
    assert [(setting.id, setting.kind) for setting in settings] == expected
    assert all(setting.value in [choice.value for choice in setting.choices] for setting in settings)


def opening(path: Path) -> NewSessionResponse | None:
    for line in path.read_text().splitlines():
        try:
            answer = json.loads(json.loads(line)["line"])["result"]
            return msgspec.json.decode(json.dumps(answer).encode(), type=NewSessionResponse)
        except (ValueError, KeyError, TypeError, msgspec.ValidationError):
            continue
    return None
