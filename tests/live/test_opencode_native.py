"""The OpenCode library against the real CLI, which talks to a scripted model on loopback."""

from __future__ import annotations

import asyncio
import gc
import uuid
from collections.abc import AsyncIterator, Callable, Coroutine
from pathlib import Path
from typing import Any, TypeVar

import httpx
import msgspec
import pytest

from stagedoor.agents.acp.requests import RequestPermission
from stagedoor.agents.acp.responses import PromptResponse
from stagedoor.agents.acp.session import AcpSession
from stagedoor.agents.opencode import (
    AUTONOMOUS,
    READ_ONLY,
    SUPERVISED,
    OpenCodeAllow,
    OpenCodeClient,
    OpenCodeDecision,
    OpenCodeDriver,
    OpenCodeReject,
    OpenCodeRunSession,
    OpenCodeSession,
    OpenCodeSessionConfig,
    launch,
)
from stagedoor.agents.opencode.events import (
    MessagePartDelta,
    MessagePartUpdated,
    OpenCodeText,
    OpenCodeToolUse,
    PermissionAsked,
    PermissionReplied,
    QuestionAsked,
    Runaway,
    ServerListening,
    StepFinish,
    StepStart,
    TurnEnded,
)
from stagedoor.agents.opencode.parts import Cache, OpenCodeTokens, TextPart, ToolPart
from stagedoor.errors import (
    AlreadyAnswered,
    LaunchError,
    LocalProtocolError,
    NotInstalled,
    NotSignedIn,
    SessionEnded,
    SessionNotFound,
)
from stagedoor.testing.clis import find_cli
from stagedoor.testing.model import ScriptedModel
from stagedoor.testing.script import Script, endless, question, say, shell, task, write_file
from stagedoor.transports.launch import Exited
from tests.processes import command_lines, is_running

CLI = find_cli("opencode")
pytestmark = [pytest.mark.live, pytest.mark.skipif(CLI is None, reason="the opencode CLI is not installed")]

BOUND = 300.0
NAP = f"sleep 98{uuid.uuid4().int % 10**7:07d}"
"""A command that can be told from all others: a bare number would be found in the port of somebody's server."""
EventT = TypeVar("EventT")


class Stage:
    """A folder, a home of OpenCode's own, and a model that follows a script."""

    def __init__(self, model: ScriptedModel, folder: Path) -> None:
        self.model = model
        self.cwd = folder / "work"
        self.cwd.mkdir(exist_ok=True)
        self.environment = model.environment("opencode", home=folder / "home", cwd=self.cwd)
        self.client = self.another_client()

    def another_client(self) -> OpenCodeClient:
        return OpenCodeClient(self.cwd, str(CLI), self.environment.env)

    def config(self, driver: OpenCodeDriver = OpenCodeDriver.SERVE, **more: Any) -> OpenCodeSessionConfig:
        return OpenCodeSessionConfig(driver=driver, model=self.environment.model, **more)

    async def serve(self, prompt: str | None = None, **more: Any) -> OpenCodeSession:
        session = await self.client.create_session(prompt, self.config(**more))
        assert isinstance(session, OpenCodeSession)
        return session

    async def run(self, prompt: str, **more: Any) -> OpenCodeRunSession:
        session = await self.client.create_session(prompt, self.config(OpenCodeDriver.RUN, **more))
        assert isinstance(session, OpenCodeRunSession)
        return session


def play(folder: Path, routes: dict[str, Script], scene: Callable[[Stage], Coroutine[Any, Any, None]]) -> None:
    async def main() -> None:
        async with asyncio.timeout(BOUND), ScriptedModel(routes=routes) as model:
            await scene(Stage(model, folder))

    asyncio.run(main())


async def until(
    events: AsyncIterator[Any], kind: type[EventT], check: Callable[[EventT], bool] = lambda _: True
) -> EventT:
    async for event in events:
        if isinstance(event, kind) and check(event):
            return event
    raise AssertionError(f"the stream ended without a {kind.__name__}")


async def events_until(events: AsyncIterator[Any], kind: type[Any]) -> list[Any]:
    received: list[Any] = []
    async for event in events:
        received.append(event)
        if isinstance(event, kind):
            break
    return received


def running(marker: str) -> list[str]:
    return [line for line in command_lines().values() if marker in line]


async def has_ended(marker: str) -> None:
    while running(marker):
        await asyncio.sleep(0.02)


def is_running_command(event: MessagePartUpdated) -> bool:
    part = event.typed()
    return isinstance(part, ToolPart) and part.state.status == "running" and "output" in part.state.metadata


ONE_CALL = OpenCodeTokens(input=50, output=20, reasoning=0, cache=Cache(read=50), total=120)


def test_serve_create_follow_up_resume_fork_and_list(tmp_path: Path) -> None:
    async def scene(stage: Stage) -> None:
        async with await stage.serve('FIRST "quoted" -- prompt', title="A title") as session:
            events = await events_until(session.events, TurnEnded)
            assert events[-1] == TurnEnded(session.session_id, "completed", "stop", None, ONE_CALL, events[-1].cost)
            assert "".join(e.delta for e in events if isinstance(e, MessagePartDelta)) == "One."
            texts = [e.typed() for e in events if isinstance(e, MessagePartUpdated)]
            assert [t.text for t in texts if isinstance(t, TextPart) and t.time and t.time.end] == ["One."]
            await session.send("SECOND")
            assert (await session.turn_ended()).outcome == "completed"
            (listening,) = [e for e in events if isinstance(e, ServerListening)]
            async with httpx.AsyncClient(trust_env=False, timeout=240) as stranger:
                assert (await stranger.get(f"{listening.url}/session")).status_code == 401
        last = (await events_until(session.events, Exited))[-1]
        assert isinstance(last, Exited)
        with pytest.raises(SessionEnded):
            await session.send("too late")

        again = await stage.another_client().resume_session(session.session_id, "THIRD", stage.config())
        assert isinstance(again, OpenCodeSession)
        async with again:
            assert again.session_id == session.session_id
            assert (await again.turn_ended()).outcome == "completed"
        prompts = [
            message["content"] for message in stage.model.requests[-1].body["messages"] if message["role"] == "user"
        ]
        assert prompts == ['FIRST "quoted" -- prompt', "SECOND", "THIRD"]
        (stored,) = await stage.client.list_sessions()
        assert (stored.session_id, stored.title, stored.first_prompt, stored.message_count, stored.tokens) == (
            session.session_id,
            "A title",
            'FIRST "quoted" -- prompt',
            6,
            360,
        )
        fork = await stage.client.resume_session(session.session_id, "FOURTH", stage.config(fork=True))
        assert isinstance(fork, OpenCodeSession)
        async with fork:
            assert fork.session_id != session.session_id
            assert (await fork.turn_ended()).outcome == "completed"

    play(
        tmp_path,
        {"FIRST": [say("One.")], "SECOND": [say("Two.")], "THIRD": [say("Three.")], "FOURTH": [say("4.")]},
        scene,
    )


def test_serve_permissions_are_asked_answered_and_closed(tmp_path: Path) -> None:
    async def scene(stage: Stage) -> None:
        requests: list[PermissionAsked | RequestPermission] = []
        waiting = asyncio.Event()

        async def decide(request: PermissionAsked | RequestPermission) -> OpenCodeDecision:
            assert isinstance(request, PermissionAsked)
            requests.append(request)
            if "touch never" in request.patterns:
                return OpenCodeReject("Not that one.")
            if "touch hang" in request.patterns:
                waiting.set()
                await asyncio.Event().wait()
            if "touch broken" in request.patterns:
                raise RuntimeError("a bug of the caller")
            return OpenCodeAllow()

        async with await stage.serve(
            "YES", permission=SUPERVISED, can_use_tool=decide, answer_question=lambda question: [["B"]]
        ) as session:
            assert (await session.turn_ended()).outcome == "completed"
            assert (stage.cwd / "yes").exists()
            assert (stage.cwd / "file.txt").read_text() == "text\n"
            await session.send("NEVER")
            assert (await session.turn_ended()).finish == "stop"
            await session.send("BROKEN")
            assert (await session.turn_ended()).outcome == "completed"
            await session.send("CHILD")
            assert (await session.turn_ended()).outcome == "completed"
            await session.send("QUESTION")
            assert (await session.turn_ended()).finish == "stop"
            await session.send("HANG")
            events = session.events
            await waiting.wait()
            await session.interrupt()
            assert (await session.turn_ended()).outcome == "aborted"
            await until(events, PermissionReplied, lambda event: event.request_id == requests[-1].id)  # type: ignore[union-attr]
            with pytest.raises(AlreadyAnswered):
                await session.answer_permission(requests[-1].id, OpenCodeAllow())  # type: ignore[union-attr]
        assert [
            (request.permission, request.metadata.get("command"))
            for request in requests
            if isinstance(request, PermissionAsked)
        ] == [
            ("bash", "touch yes"),
            ("edit", None),
            ("bash", "touch never"),
            ("bash", "touch broken"),
            ("bash", "touch child"),
            ("bash", "touch hang"),
        ]
        assert sorted(path.name for path in stage.cwd.iterdir()) == ["child", "file.txt", "yes"]

    routes: dict[str, Script] = {
        "YES": [shell("touch yes"), write_file("file.txt", "text\n"), say("Done.")],
        "NEVER": [shell("touch never"), say("A pity.")],
        "BROKEN": [shell("touch broken"), say("A pity.")],
        "CHILD": [task("run it", [shell("touch child"), say("Ran.")]), say("Done.")],
        "QUESTION": [question("Which?", ["A", "B"]), say("B it is.")],
        "HANG": [shell("touch hang"), say("Never said.")],
    }
    play(tmp_path, routes, scene)


def test_serve_questions_left_open_are_answered_through_the_session(tmp_path: Path) -> None:
    async def scene(stage: Stage) -> None:
        async with await stage.serve("GO", permission=SUPERVISED, leave_open=True) as session:
            events = session.events
            permission = await until(events, PermissionAsked)
            with pytest.raises(LocalProtocolError, match="a turn is running"):
                await session.send("not now")
            await session.answer_permission(permission.id, OpenCodeAllow(always=True))
            with pytest.raises(AlreadyAnswered):
                await session.answer_permission(permission.id, OpenCodeReject())
            question = await until(events, QuestionAsked)
            await session.answer_question(question.id, None)
            assert (await session.turn_ended()).outcome == "completed"
        assert (stage.cwd / "open").exists()

    play(tmp_path, {"GO": [shell("touch open"), question("Which?", ["A", "B"]), say("Done.")]}, scene)


def test_serve_interrupt_and_cancel_leave_nothing(tmp_path: Path) -> None:
    async def scene(stage: Stage) -> None:
        session = await stage.serve("TEXT", permission=AUTONOMOUS)
        events = session.events
        await until(events, MessagePartDelta)
        await session.interrupt()
        assert (await session.turn_ended()).outcome == "aborted"
        await session.send("COMMAND")
        await until(events, MessagePartUpdated, is_running_command)
        await session.interrupt()
        assert (await session.turn_ended()).outcome == "aborted"
        await has_ended(NAP)
        await session.send("CHILD")
        await until(events, MessagePartUpdated, lambda e: is_running_command(e) and e.session_id != session.session_id)
        await session.interrupt()
        # OpenCode may end the sub-agent before its parent, which then hears of a failed call and goes on to its end.
        assert (await session.turn_ended()).outcome in ("aborted", "completed")
        await has_ended(NAP)
        await session.send("AT ONCE")
        await session.interrupt()
        assert (await session.turn_ended()).outcome == "aborted"
        await session.send("COMMAND")
        await until(events, MessagePartUpdated, is_running_command)
        await session.cancel()
        assert not running(NAP)
        assert not is_running(session.pid)
        assert [type(event) for event in await events_until(events, Exited)][-2:] == [TurnEnded, Exited]

        forgotten = await stage.serve("COMMAND", permission=AUTONOMOUS)
        await until(forgotten.events, MessagePartUpdated, is_running_command)
        pid = forgotten.pid
        del forgotten
        gc.collect()
        await has_ended(NAP)
        while is_running(pid):
            await asyncio.sleep(0.02)

    routes: dict[str, Script] = {
        "TEXT": [endless()],
        "COMMAND": [shell(f"echo begun; {NAP}"), say("Over.")],
        "CHILD": [task("wait", [shell(f"echo begun; {NAP}"), say("Over.")]), say("Over.")],
        "AT ONCE": [endless()],
    }
    play(tmp_path, routes, scene)


def test_run_create_follow_up_resume_interrupt(tmp_path: Path) -> None:
    async def scene(stage: Stage) -> None:
        session = await stage.run('FIRST "quoted"\nprompt', auto=True, permission=SUPERVISED)
        first = await events_until(session.events, Exited)
        assert [type(event) for event in first] == [
            StepStart,
            OpenCodeToolUse,
            StepFinish,
            StepStart,
            OpenCodeText,
            StepFinish,
            Exited,
        ]
        assert first[-1].code == 0
        assert first[4].part.text == "One."
        assert (stage.cwd / "made").exists()
        assert stage.model.requests[0].prompt == 'FIRST "quoted"\nprompt'
        await session.send("COMMAND")
        assert session.running
        await until(session.events, StepStart)
        while not running(NAP):
            await asyncio.sleep(0.02)
        await session.interrupt()
        assert not running(NAP)
        await session.close()

        elsewhere = OpenCodeClient(tmp_path, str(CLI), stage.environment.env)
        again = await elsewhere.resume_session(session.session_id, "SECOND", stage.config(OpenCodeDriver.RUN))
        assert again.session_id == session.session_id
        assert isinstance(again, OpenCodeRunSession)
        async with again:
            assert [e.part.text for e in await events_until(again.events, Exited) if isinstance(e, OpenCodeText)] == [
                "Two."
            ]

    routes: dict[str, Script] = {
        "FIRST": [shell("touch made"), say("One.")],
        "COMMAND": [shell(NAP), say("Over.")],
        "SECOND": [say("Two.")],
    }
    play(tmp_path, routes, scene)


def test_acp_prompt_permission_and_resume(tmp_path: Path) -> None:
    async def scene(stage: Stage) -> None:
        requests: list[RequestPermission] = []

        def decide(request: PermissionAsked | RequestPermission) -> OpenCodeDecision:
            assert isinstance(request, RequestPermission)
            requests.append(request)
            return OpenCodeAllow()

        config = stage.config(OpenCodeDriver.ACP, permission=SUPERVISED, can_use_tool=decide)
        session = await stage.client.create_session("FIRST", config)
        assert isinstance(session, AcpSession)
        async with session:
            answer = await session.turn_ended()
            assert isinstance(answer, PromptResponse)
            assert answer.stop_reason == "end_turn"
            assert (stage.cwd / "acp.txt").read_text() == "text\n"
            assert len(requests) == 1
            words = command_lines()[session.pid].split()
            async with httpx.AsyncClient(trust_env=False, timeout=240) as stranger:
                url = f"http://127.0.0.1:{words[words.index('--port') + 1]}/session"
                assert (await stranger.get(url)).status_code == 401
            offered = {tool for request in stage.model.requests for tool in request.tools}
            assert "write" in offered
            assert "task" not in offered
        again = await stage.another_client().resume_session(session.session_id, "SECOND", config)
        assert isinstance(again, AcpSession)
        async with again:
            assert again.session_id == session.session_id
            await again.turn_ended()
            await again.send("COMMAND")
            while not running(NAP):
                await asyncio.sleep(0.02)
            await again.interrupt()
            cancelled = await again.turn_ended()
            assert isinstance(cancelled, PromptResponse)
            assert cancelled.stop_reason == "cancelled"
            await has_ended(NAP)

    routes: dict[str, Script] = {
        "FIRST": [write_file("acp.txt", "text\n"), say("One.")],
        "SECOND": [say("Two.")],
        "COMMAND": [shell(NAP), say("Over.")],
    }
    play(tmp_path, routes, scene)


def test_read_only_holds_against_the_users_own_settings(tmp_path: Path) -> None:
    async def scene(stage: Stage) -> None:
        settings = tmp_path / "home" / ".config" / "opencode" / "opencode.json"
        theirs = msgspec.json.decode(settings.read_bytes())
        theirs["permission"] = {"*": "allow", "bash": "allow", "edit": "allow"}
        theirs["agent"] = {"build": {"permission": {"bash": "allow", "edit": {"*": "allow"}}}}
        settings.write_bytes(msgspec.json.encode(theirs))
        for driver in OpenCodeDriver:
            session = await stage.client.create_session("WRITE", stage.config(driver, permission=READ_ONLY))
            async with session:
                if isinstance(session, OpenCodeRunSession):
                    await session.wait()
                else:
                    await session.turn_ended()
        assert list(stage.cwd.iterdir()) == []
        assert {tool for request in stage.model.requests for tool in request.tools} == {
            "glob",
            "grep",
            "read",
            "todowrite",
        }

    play(tmp_path, {"WRITE": [write_file("no.txt", "no"), shell("touch no"), say("No.")]}, scene)


BROKEN = b'throw new Error("no")'


@pytest.mark.parametrize(
    ("driver", "source", "flags"), [(OpenCodeDriver.SERVE, None, ("--pure=true",)), (OpenCodeDriver.ACP, BROKEN, ())]
)
def test_nothing_is_asked_of_one_that_would_not_ask(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    driver: OpenCodeDriver,
    source: bytes | None,
    flags: tuple[str, ...],
) -> None:
    if source is not None:
        monkeypatch.setattr(launch, "GUARD_SOURCE", source)

    async def scene(stage: Stage) -> None:
        config = stage.config(driver, permission=SUPERVISED, ask_every_command=True, extra_args=flags)
        with pytest.raises(LaunchError, match="has not loaded the plugin"):
            await stage.client.create_session("REDIRECT", config)
        assert (list(stage.cwd.iterdir()), stage.model.requests) == ([], [])

    play(tmp_path, {"REDIRECT": [shell("> hole.txt"), say("Done.")]}, scene)


def test_what_cannot_be_says_what_to_do(tmp_path: Path) -> None:
    async def scene(stage: Stage) -> None:
        assert (await stage.client.check_version()).version == "1.18.33"
        with pytest.raises(NotInstalled, match="npm install -g opencode-ai"):
            await OpenCodeClient(stage.cwd, env={"PATH": "/nowhere", "HOME": "/nowhere"}).create_session("x")
        with pytest.raises(LaunchError, match="not found"):
            await OpenCodeClient(stage.cwd / "missing", str(CLI), stage.environment.env).create_session("x")
        with pytest.raises(SessionNotFound, match="list_sessions"):
            await stage.client.resume_session("ses_unknown", "x", stage.config())
        with pytest.raises(NotSignedIn, match="opencode auth login"):
            await stage.client.create_session("x", OpenCodeSessionConfig(model="nobody/nothing"))
        with pytest.raises(LocalProtocolError, match="Available: scripted-model"):
            await stage.client.create_session("x", OpenCodeSessionConfig(model="scripted/nothing"))
        with pytest.raises(LaunchError, match="configuration"):
            await stage.client.create_session("x", stage.config(settings={"snapshot": "perhaps"}))

    play(tmp_path, {}, scene)


async def answer_without_end(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """A model whose stream ends in order but never says why: OpenCode asks again, without limit."""
    head = await reader.readuntil(b"\r\n\r\n")
    (length,) = [line.split(b": ")[1] for line in head.lower().split(b"\r\n") if line.startswith(b"content-length")]
    await reader.readexactly(int(length))
    chunk = {"id": "x", "object": "chat.completion.chunk", "choices": [{"index": 0, "delta": {"content": "Hm."}}]}
    writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n")
    writer.write(b"data: " + msgspec.json.encode(chunk) + b"\n\n")
    writer.close()
    await writer.wait_closed()


@pytest.mark.parametrize("driver", [OpenCodeDriver.RUN, OpenCodeDriver.SERVE])
def test_a_turn_that_repeats_itself_without_end_is_ended(tmp_path: Path, driver: OpenCodeDriver) -> None:
    async def scene(stage: Stage) -> None:
        server = await asyncio.start_server(answer_without_end, "127.0.0.1", 0)
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1"
        provider = {"scripted": {"options": {"baseURL": url}}}
        config = stage.config(driver, most_empty_steps=3, title="t", settings={"provider": provider})
        async with server:
            session = await stage.client.create_session("LOOP", config)
            async with session:
                end = Exited if driver is OpenCodeDriver.RUN else TurnEnded
                events = await events_until(session.events, end)
        assert [event.steps for event in events if isinstance(event, Runaway)] == [4]

    play(tmp_path, {}, scene)
