"""Sessions that programs keep on disk beside those of the log; imported ones are whole sessions that have ended."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from msgspec.structs import replace

import stagedoor
from stagedoor.errors import BadRequest, NotAllowed, SessionNotFound
from stagedoor.service.config.settings import AgentSettings, Settings
from stagedoor.service.service import Service
from stagedoor.service.store import Query
from stagedoor.service.views import SessionSpec, SessionView
from stagedoor.unified.events import Init, Text, ToolResult, ToolUse, TurnCompleted, TurnStarted, decode

BOUND = 240.0
SCRIPT = json.dumps({"script": [[{"say": "Look."}], [{"say": "unused"}]]})


@pytest.fixture(autouse=True)
def own_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STAGEDOOR_HOME", str(tmp_path / "home"))
    for name in ("CLAUDE_CONFIG_DIR", "CODEX_HOME", "GEMINI_CLI_HOME"):
        monkeypatch.setenv(name, str(tmp_path / "agents" / name))


def settings_in(tmp_path: Path) -> Settings:
    for name in ("work", "more"):
        (tmp_path / name).mkdir(exist_ok=True)
    agent = AgentSettings(env={"STAGEDOOR_UNDERSTUDY_HOME": str(tmp_path / "understudy")})
    places = tuple(str(tmp_path / name) for name in ("work", "more"))
    return Settings(home=str(tmp_path / "home"), roots=places, agents={"understudy": agent})


@asynccontextmanager
async def service_in(tmp_path: Path) -> AsyncIterator[Service]:
    async with asyncio.timeout(BOUND), Service(settings_in(tmp_path)) as service:
        yield service


async def outside(tmp_path: Path, prompt: str, *, cwd: str = "work") -> str:
    """A session that the server knows nothing of; returns the agent's own id."""
    env = {"STAGEDOOR_UNDERSTUDY_HOME": str(tmp_path / "understudy")}
    events = [
        event
        async for event in stagedoor.run("understudy", prompt, cwd=str(tmp_path / cwd), env=env, tier="autonomous")
    ]
    return next(event.native_session_id for event in events if isinstance(event, Init))


async def finished(service: Service, view: SessionView) -> SessionView:
    async for _ in service.events.follow(view.id, 0):
        pass
    return await service.sessions.get(view.id)


def test_each_session_is_listed_once(tmp_path: Path) -> None:
    async def main() -> None:
        async with service_in(tmp_path) as service:
            ours = await finished(
                service, await service.sessions.create(SessionSpec(prompt=SCRIPT, agent="understudy"))
            )
            theirs = await outside(tmp_path, SCRIPT)
            await outside(tmp_path, SCRIPT, cwd="more")
            listed = await service.stored.sessions(cwd=str(tmp_path / "work"))
            assert {(item.native_id, item.session_id, item.state) for item in listed} == {
                (ours.native_id, ours.id, "done"),
                (theirs, "", None),
            }
            assert listed == sorted(listed, key=lambda item: item.updated_at, reverse=True)
            assert [item for item in await service.stored.sessions() if item.cwd == str(tmp_path / "work")] == listed
            assert await service.stored.sessions(agent="codex", cwd=str(tmp_path / "work")) == []
            more = await service.stored.sessions(agent="understudy", cwd=str(tmp_path / "more"))
            assert [item.cwd for item in more] == [str(tmp_path / "more")]

    asyncio.run(main())


def test_an_imported_session_is_whole_and_comes_once(tmp_path: Path) -> None:
    prompt = json.dumps({"script": [[{"say": "I run it."}, {"shell": "echo hi"}], [{"say": "Done."}]]})

    async def main() -> None:
        async with service_in(tmp_path) as service:
            native = await outside(tmp_path, prompt)
            cwd = str(tmp_path / "work")
            view = await service.stored.import_session("understudy", native, cwd)
            events = [decode(record.body) for record in await service.events.read(view.id)]
            assert [type(event).__name__ for event in events] == [
                "Init", "TurnStarted", "Text", "ToolUse", "ToolResult", "Text", "TurnCompleted", "Done",
            ]  # fmt: skip
            assert [event.seq for event in events] == list(range(1, 9))
            assert {event.session_id for event in events} == {view.id}
            assert [event.turn for event in events] == [0, 1, 1, 1, 1, 1, 1, 1]
            message = [(type(event), event.text) for event in events if isinstance(event, Text)]
            assert message == [(Text, "I run it."), (Text, "Done.")]
            assert [event.output for event in events if isinstance(event, ToolResult)] == ["hi\n"]
            assert [event.input for event in events if isinstance(event, ToolUse)] == [{"command": "echo hi"}]
            assert [event.result for event in events if isinstance(event, TurnCompleted)] == ["Done."]
            assert [event.prompt for event in events if isinstance(event, TurnStarted)] == [prompt]
            assert (view.imported, view.state, view.activity, view.native_id, view.last_seq, view.result) == (
                True, "done", "ended", native, 8, "Done.",
            )  # fmt: skip
            assert await service.sessions.get(view.id) == view
            both = await asyncio.gather(*(service.stored.import_session("understudy", native, cwd) for _ in range(2)))
            assert both == [view, view]
            assert await service._store.count(Query()) == 1
            listed = await service.stored.sessions(cwd=cwd)
            assert [(item.session_id, item.imported) for item in listed] == [(view.id, True)]

    asyncio.run(main())


def test_an_imported_session_can_be_resumed(tmp_path: Path) -> None:
    async def main() -> None:
        async with service_in(tmp_path) as service:
            native = await outside(tmp_path, SCRIPT)
            view = await service.stored.import_session("understudy", native, str(tmp_path / "work"))
            again = await finished(service, await service.sessions.resume(view.id, "Go on"))
            assert (again.parent_id, again.native_id, again.state) == (view.id, native, "done")

    asyncio.run(main())


def test_what_cannot_be_imported_is_said(tmp_path: Path) -> None:
    async def main() -> None:
        async with service_in(tmp_path) as service:
            work = str(tmp_path / "work")
            for agent, native, cwd, fault in (
                ("understudy", "nowhere", work, SessionNotFound),
                ("undertsudy", "x", work, BadRequest),
                ("understudy", "x", str(tmp_path), NotAllowed),
                ("understudy", "x", "work", BadRequest),
                ("codex", "x", str(tmp_path / "elsewhere"), NotAllowed),
            ):
                with pytest.raises(fault):
                    await service.stored.import_session(agent, native, cwd)
            with pytest.raises(NotAllowed):
                await service.stored.sessions(cwd="/")
            assert await service._store.count(Query()) == 0

    asyncio.run(main())


def test_a_session_of_two_turns_and_an_open_call_is_closed(tmp_path: Path) -> None:
    """As Claude Code leaves it when it is killed."""
    work = tmp_path / "work"
    folder = tmp_path / "claude" / "projects" / "".join(c if c.isalnum() else "-" for c in str(work))
    folder.mkdir(parents=True)
    at = "2026-11-15T08:00:0{}.000Z"
    head = {"sessionId": "0a1b2c3d-0000-4000-8000-000000000001", "cwd": str(work), "version": "2.0.0"}
    call = {"type": "tool_use", "id": "c1", "name": "Bash", "input": {"command": "make"}}
    lines = [
        {"type": "user", "message": {"role": "user", "content": "First"}},
        {"type": "assistant", "message": {"role": "assistant", "content": [{"type": "text", "text": "One."}]}},
        {"type": "user", "message": {"role": "user", "content": "Second"}},
        {"type": "assistant", "message": {"role": "assistant", "content": [call]}},
    ]
    report = [{**head, "uuid": str(n), "timestamp": at.format(n), **line} for n, line in enumerate(lines)]
    (folder / f"{head['sessionId']}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in report))
    settings = settings_in(tmp_path)
    settings = replace(settings, agents={"claude": AgentSettings(env={"CLAUDE_CONFIG_DIR": str(tmp_path / "claude")})})

    async def main() -> None:
        async with asyncio.timeout(BOUND), Service(settings) as service:
            (listed,) = await service.stored.sessions(cwd=str(work))
            assert (listed.agent, listed.native_id, listed.session_id) == ("claude", head["sessionId"], "")
            view = await service.stored.import_session("claude", listed.native_id, str(work))
            events = [decode(record.body) for record in await service.events.read(view.id)]
            assert [(type(event).__name__, event.turn) for event in events] == [
                ("Init", 0), ("TurnStarted", 1), ("Text", 1), ("TurnCompleted", 1),
                ("TurnStarted", 2), ("ToolUse", 2), ("ToolResult", 2), ("TurnCompleted", 2), ("Done", 2),
            ]  # fmt: skip
            assert events == sorted(events, key=lambda event: event.timestamp)
            assert (view.turn, view.tool_uses) == (2, 1)

    asyncio.run(main())
