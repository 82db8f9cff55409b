"""The generic ACP client against real programs that speak the protocol, each with the scripted model behind it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import msgspec
import pytest

from stagedoor.agents.acp import (
    AcpClient,
    AcpProfile,
    AcpSessionConfig,
    AgentMessageChunk,
    Event,
    PermissionKind,
    PromptResponse,
    RequestFailed,
    RequestPermission,
    SessionUpdate,
    Unanswered,
)
from stagedoor.errors import NotSupported, SessionNotFound
from stagedoor.testing import ScriptedModel, endless, find_cli, say, shell, write_file
from stagedoor.testing.script import Script
from stagedoor.transports.launch import Exited
from tests.processes import is_running

pytestmark = pytest.mark.live
BOUND = 300.0


class Program(msgspec.Struct, frozen=True):
    name: str
    arguments: tuple[str, ...]
    profile: AcpProfile
    settings: dict[str, str]
    stores: bool


GEMINI = Program(
    "gemini",
    ("--acp", "--skip-trust"),
    AcpProfile(tool_name_in_id=r"(.+?)__", mode_prefix="[MODE_UPDATE] ", replays_after_load=20.0),
    {},
    stores=False,
)
ASK = {"bash": "ask", "edit": "ask"}
OPENCODE = Program(
    "opencode",
    ("acp",),
    AcpProfile(undeclared_writes_are_echoes=True),
    {"OPENCODE_PERMISSION": msgspec.json.encode(ASK).decode()},
    stores=True,
)
PROGRAMS = [
    pytest.param(
        program,
        id=program.name,
        marks=pytest.mark.skipif(find_cli(program.name) is None, reason=f"{program.name} is not installed"),
    )
    for program in (GEMINI, OPENCODE)
]


class Stage:
    """One program, one folder, one model."""

    def __init__(self, program: Program, folder: Path, model: ScriptedModel) -> None:
        self.repo = folder / "repo"
        self.repo.mkdir(exist_ok=True)
        env = model.environment(program.name, home=folder / "home", cwd=self.repo).env | program.settings
        argv = [str(find_cli(program.name)), *program.arguments]
        self.client = AcpClient(argv, self.repo, env, profile=program.profile)


def run(main: Callable[[], Awaitable[None]]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(BOUND):
            await main()

    asyncio.run(bounded())


async def turn(events: AsyncIterator[Event], until: Callable[[Event], bool] = lambda event: False) -> list[Event]:
    received: list[Event] = []
    async for event in events:
        received.append(event)
        if isinstance(event, PromptResponse | RequestFailed | Unanswered) or until(event):
            break
    return received


def text_in(events: list[Event]) -> str:
    updates = [event.update for event in events if isinstance(event, SessionUpdate) and not event.replayed]
    return "".join(update.text for update in updates if isinstance(update, AgentMessageChunk))


async def ended(pid: int) -> None:
    while is_running(pid):
        await asyncio.sleep(0.05)


def allow(question: RequestPermission) -> PermissionKind:
    return "allow_once"


@pytest.mark.parametrize("program", PROGRAMS)
def test_turns_permissions_resume_and_list(program: Program, tmp_path: Path) -> None:
    script: Script = [
        [say("Writing."), write_file(str(tmp_path / "repo" / "a.txt"), "made\n")],
        say("Written."),
        [shell("touch refused.txt")],
        say("On."),  # one of them ends its turn with the refusal
        say("On."),
    ]

    async def main() -> None:
        questions: list[RequestPermission] = []
        answers: list[PermissionKind] = ["allow_once", "reject_once"]

        async def ask(question: RequestPermission) -> PermissionKind:
            questions.append(question)
            await asyncio.sleep(0)
            return answers[len(questions) - 1]

        async with ScriptedModel(script) as model:
            stage = Stage(program, tmp_path, model)
            session = await stage.client.create_session("write a file", AcpSessionConfig(can_use_tool=ask))
            async with session:
                events = session.events
                received = await turn(events)
                assert "Writing." in text_in(received)
                assert isinstance(received[-1], PromptResponse)
                assert received[-1].stop_reason == "end_turn"
                assert (stage.repo / "a.txt").read_text() == "made\n"
                await session.send("run a command")
                await turn(events)
                assert not (stage.repo / "refused.txt").exists()
                assert [question.tool_call.kind for question in questions] == ["edit", "execute"]
                pid, first = session.pid, session.session_id
            assert not is_running(pid)
            assert isinstance([event async for event in events][-1], Exited)
            if program.stores:
                assert first in [stored.session_id for stored in await stage.client.list_sessions()]
                async with await stage.client.resume_session(first, "go on") as session:
                    assert session.session_id == first
                    assert "On." in text_in(await turn(session.events))
            else:  # loading is tested where its trap is taken care of: in the minute it was made in, a session is lost
                with pytest.raises(NotSupported, match="listing its sessions"):
                    await stage.client.list_sessions()
            with pytest.raises(SessionNotFound, match="list the agent's sessions, or create one"):
                await stage.client.resume_session("ses_00000000-0000-4000-8000-000000000000", "hi")

    run(main)


@pytest.mark.parametrize("program", PROGRAMS)
def test_interrupt_mid_command_then_mid_text_then_cancel(program: Program, tmp_path: Path) -> None:
    pid_file = tmp_path / "repo" / "pid"
    script: Script = [
        [shell(f"sleep 1000 & echo $! > {pid_file}; wait")],
        endless(pause=0.02),
    ]

    async def main() -> None:
        async with ScriptedModel(script) as model:
            stage = Stage(program, tmp_path, model)
            session = await stage.client.create_session("run it", AcpSessionConfig(can_use_tool=allow))
            events = session.events
            while not (pid_file.exists() and pid_file.read_text().endswith("\n")):
                await asyncio.sleep(0.05)
            command = int(pid_file.read_text())
            await session.interrupt()
            received = await turn(events)
            assert isinstance(received[-1], PromptResponse)
            assert received[-1].stop_reason == "cancelled"
            await session.send("talk")
            await turn(events, lambda event: bool(text_in([event])))
            await session.interrupt()
            end = (await turn(events))[-1]
            assert isinstance(end, PromptResponse)
            assert end.stop_reason == "cancelled"
            pid = session.pid
            await session.cancel()
            assert not is_running(pid)
            await ended(command)

    run(main)
