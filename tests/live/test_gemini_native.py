"""The real Gemini CLI, driven by its native library, against the scripted model."""

import asyncio
import gc
import json
import os
import subprocess
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from stagedoor.agents.acp.events import RequestWithdrawn
from stagedoor.agents.acp.requests import RequestPermission
from stagedoor.agents.acp.responses import PromptResponse
from stagedoor.agents.acp.updates import AgentMessageChunk, SessionUpdate, ToolCallUpdate
from stagedoor.agents.gemini import (
    ApprovalMode,
    Decision,
    GeminiAcpSession,
    GeminiClient,
    GeminiDriver,
    GeminiMessage,
    GeminiResult,
    GeminiSession,
    GeminiSessionConfig,
    GeminiToolResult,
    GeminiToolUse,
    PolicyRule,
    ToolDetails,
    Truncated,
)
from stagedoor.errors import LaunchError, LocalProtocolError, NotInstalled, NotSignedIn, SessionNotFound
from stagedoor.testing import (
    Environment,
    ScriptedModel,
    endless,
    find_cli,
    forever,
    http_error,
    say,
    shell,
    stall,
    write_file,
)
from stagedoor.transports.launch import Exited
from tests.processes import command_lines, with_environment

CLI = find_cli("gemini")
pytestmark = [pytest.mark.live, pytest.mark.skipif(CLI is None, reason="Gemini CLI is not installed")]
BOUND = 300.0
YOLO = ApprovalMode.YOLO


class Stage:
    """A folder, a home, and the client between them."""

    def __init__(self, model: ScriptedModel, root: Path) -> None:
        self.repo = root / "repo"
        self.repo.mkdir(exist_ok=True)
        self.environment: Environment = model.environment("gemini", cwd=self.repo, home=root / "home")
        self.client = GeminiClient(self.repo, str(CLI), self.environment.env)

    def config(self, **more: object) -> GeminiSessionConfig:
        return GeminiSessionConfig(model=self.environment.model, **more)

    @property
    def settings(self) -> Path:
        return self.environment.home / ".gemini" / "settings.json"

    @property
    def chats(self) -> list[Path]:
        return sorted((self.environment.home / ".gemini").glob("tmp/*/chats/session-*.jsonl"))

    def age(self) -> None:
        """The sessions so far were created an hour ago."""
        for path in self.chats:
            stamp = time.strftime("%Y-%m-%dT%H-%M", time.gmtime(time.time() - 3600))
            path.rename(path.with_name(f"session-{stamp}-{path.name.rpartition('-')[2]}"))

    def left_running(self) -> list[str]:
        lines = command_lines()
        return [lines[pid] for pid in with_environment(f"HOME={self.environment.home}") if pid in lines]

    async def nothing_left(self) -> None:
        async with asyncio.timeout(BOUND):
            while self.left_running():
                await asyncio.sleep(0.05)


@pytest.fixture
def stage(tmp_path: Path, scripted_model: Callable[..., ScriptedModel]) -> Callable[..., Stage]:
    def start(script: object = (), **more: object) -> Stage:
        return Stage(scripted_model(script, **more), tmp_path)

    return start


async def until(events: AsyncIterator[object], *kinds: type) -> list[object]:
    """Read up to and including the first event of these kinds."""
    received: list[object] = []
    async with asyncio.timeout(BOUND):
        async for event in events:
            received.append(event)
            if isinstance(event, kinds):
                return received
    raise AssertionError(f"the stream ended without {kinds}: {received}")


def stream_text(events: list[object]) -> str:
    return "".join(event.content for event in events if isinstance(event, GeminiMessage) and event.role == "assistant")


def acp_text(events: list[object]) -> str:
    updates = [event.update for event in events if isinstance(event, SessionUpdate) and not event.replayed]
    return "".join(update.text for update in updates if isinstance(update, AgentMessageChunk))


def test_turns_details_resume_and_history(stage):
    play = stage([[say("Working."), shell("echo hi; exit 3"), write_file("a.txt", "one\n")], forever(say("Done."))])
    settings = play.settings.read_bytes()

    async def main() -> None:
        session = await play.client.create_session("go", play.config(approval_mode=YOLO))
        assert isinstance(session, GeminiSession)
        async with session:
            both = session.events, session.events
            first, again = [await until(events, Exited) for events in both]
            assert first == again
            assert stream_text(first) == "Working.Done."
            uses = [event for event in first if isinstance(event, GeminiToolUse)]
            order = [
                type(event)
                for event in first
                if isinstance(event, GeminiToolUse | GeminiToolResult | ToolDetails | GeminiResult)
            ]
            assert order == [
                GeminiToolUse,
                GeminiToolUse,
                GeminiToolResult,
                GeminiToolResult,
                ToolDetails,
                ToolDetails,
                GeminiResult,
            ]
            command_details, write_details = [event for event in first if isinstance(event, ToolDetails)]
            assert (command_details.tool_name, command_details.exit_code) == ("run_shell_command", 3)
            assert write_details.diff is not None
            assert (write_details.diff.file_path, write_details.diff.new_content) == (str(play.repo / "a.txt"), "one\n")
            assert session.tool_details(uses[0].tool_id) == command_details
            await session.send("/memory show @home")
            second = await until(both[0], Exited)
            assert (
                next(event.content for event in second if isinstance(event, GeminiMessage)) == r" /memory show \@home"
            )
            assert isinstance(second[-2], GeminiResult)
        assert [event async for event in both[1]] == second

        client = GeminiClient(play.repo, str(CLI), play.environment.env)
        async with await client.resume_session(session.session_id, "once more", play.config()) as resumed:
            assert stream_text(await until(resumed.events, Exited)) == "Done."
            assert resumed.session_id == session.session_id
        history = await client.list_sessions()
        [stored] = history
        assert (stored.session_id, stored.title, stored.model) == (session.session_id, "go", play.environment.model)
        assert stored.message_count == 9
        await play.nothing_left()

    asyncio.run(main())
    assert play.settings.read_bytes() == settings


def test_a_resumed_session_survives_the_users_next_start(stage):
    """The trap: each resume leaves an empty file, for which the next start of the CLI deletes the whole session."""
    play = stage([forever(say("Done."))])
    their_settings = json.loads(play.settings.read_text())
    their_settings["general"].pop("sessionRetention", None)  # on is the CLI's default
    play.settings.write_text(json.dumps(their_settings))

    async def main() -> str:
        async with await play.client.create_session("remember me", play.config()) as session:
            await until(session.events, Exited)
        play.age()
        for driver in GeminiDriver:
            config = play.config(driver=driver)
            async with await play.client.resume_session(session.session_id, "go on", config) as resumed:
                await until(resumed.events, Exited, PromptResponse)
        return session.session_id

    session_id = asyncio.run(main())
    command = [str(CLI), "--prompt=a session of my own", "--skip-trust", "-m", play.environment.model]
    subprocess.run(
        command, cwd=play.repo, env=play.environment.env, stdin=subprocess.DEVNULL, check=True, timeout=BOUND
    )
    history = asyncio.run(play.client.list_sessions())
    stored = {session.session_id: session.first_prompt for session in history}
    assert stored[session_id] == "remember me"
    assert len(stored) == 2


def test_interrupts_in_text_and_in_a_command(stage):
    play = stage(  # an interrupted prompt stays in the conversation: of several routes the longest counts
        routes={
            "talk": [[say("Text. "), endless()]],
            "then work": [[say("Command. "), shell("echo on; sleep 4321")]],
            "and at last": [forever(say("Done."))],
        }
    )

    async def main() -> None:
        async with await play.client.create_session("talk", play.config(approval_mode=YOLO)) as session:
            events = session.events
            await until(events, GeminiMessage)
            async with asyncio.timeout(BOUND):
                async for event in events:
                    if isinstance(event, GeminiMessage) and event.role == "assistant":
                        break
            await session.interrupt()
            ended = await until(events, Exited)
            assert [event for event in ended if isinstance(event, Truncated)] == [
                Truncated("the turn was interrupted", True)
            ]
            await play.nothing_left()

            await session.send("then work")
            with pytest.raises(LocalProtocolError, match="turn is running"):
                await session.send("too early")
            use = (await until(events, GeminiToolUse))[-1]
            async with asyncio.timeout(BOUND):
                while not any("sleep 4321" in command for command in play.left_running()):
                    await asyncio.sleep(0.05)
            await session.interrupt()
            ended = await until(events, Exited)
            assert ended[-2] == Truncated("the turn was interrupted", True, (use.tool_id,))
            await play.nothing_left()

            await session.send("and at last")
            last = await until(events, Exited)
            assert isinstance(last[-2], GeminiResult)

    asyncio.run(main())


def test_permission_asked_and_answered_over_acp(stage):
    play = stage(
        [
            [say("Working."), shell("touch made; exit 3"), shell("touch refused"), write_file("a.txt", "one\n")],
            [shell("touch hung"), shell("touch broken")],
            forever(say("Done.")),
        ]
    )
    titles: list[str] = []

    async def ask(request: RequestPermission) -> str:
        title = request.tool_call.title or ""
        titles.append(title)
        if "hung" in title:
            await asyncio.Event().wait()
        if "broken" in title:
            raise RuntimeError("the callback is broken")
        return "reject_once" if "refused" in title else "allow_once"

    async def main() -> None:
        config = play.config(can_use_tool=ask, permission_timeout=5.0)
        session = await play.client.create_session("go", config)
        assert isinstance(session, GeminiAcpSession)
        async with session:
            events = await until(session.events, PromptResponse)
            assert acp_text(events) == "Working.Done."
            assert events[-1].stop_reason == "end_turn"
            requests = [event for event in events if isinstance(event, RequestPermission)]
            names = [session.tool_name(request.tool_call.tool_call_id) for request in requests]
            assert names == ["run_shell_command"] * 2 + ["write_file"] + ["run_shell_command"] * 2
            finished = session.tool_details(requests[0].tool_call.tool_call_id)
            assert finished is not None
            assert finished.exit_code == 3
        await play.nothing_left()

    asyncio.run(main())
    assert titles == ["touch made; exit 3", "touch refused", "Writing to a.txt", "touch hung", "touch broken"]
    assert sorted(path.name for path in play.repo.iterdir()) == ["a.txt", "made"]


def test_interrupt_cancel_and_resume_over_acp(stage):
    play = stage(
        routes={
            "work": [[say("Command. "), shell("echo on; sleep 4321")]],
            "ask": [[shell("touch never")]],
            "last": [forever(say("Done."))],
        }
    )

    async def ask(request: RequestPermission) -> str:
        if "never" in (request.tool_call.title or ""):
            await asyncio.Event().wait()
        return "allow_once"

    async def main() -> None:
        config = play.config(can_use_tool=ask)
        async with await play.client.create_acp_session("work", config) as session:
            events = session.events
            await until(events, RequestPermission)
            async with asyncio.timeout(BOUND):
                while not any("sleep 4321" in command for command in play.left_running()):
                    await asyncio.sleep(0.05)
            await session.interrupt()
            ended = await until(events, PromptResponse)
            assert ended[-1].stop_reason == "cancelled"
            assert any(isinstance(event, SessionUpdate) and isinstance(event.update, ToolCallUpdate) for event in ended)
            async with asyncio.timeout(BOUND):
                while any("sleep 4321" in command for command in play.left_running()):
                    await asyncio.sleep(0.05)

            await session.send("ask")
            await until(events, RequestPermission)
            await session.interrupt()  # with a question open
            ended = await until(events, PromptResponse)
            assert any(isinstance(event, RequestWithdrawn) for event in ended)
            await session.cancel()
        await play.nothing_left()
        play.age()
        config = play.config(driver=GeminiDriver.ACP)
        async with await play.client.resume_session(session.session_id, "/memory show last", config) as resumed:
            events = await until(resumed.events, PromptResponse)
            assert acp_text(events) == "Done."
        assert [stored.session_id for stored in await play.client.list_sessions()] == [session.session_id]
        await play.nothing_left()

    asyncio.run(main())
    assert not (play.repo / "never").exists()


def test_settings_and_policy_reach_the_cli(stage):
    play = stage([[shell("echo yes"), shell("echo no"), write_file("a.txt", "x")], forever(shell("echo yes"))])
    theirs = play.environment.home / ".gemini" / "policies"
    theirs.mkdir()
    rule = '[[rule]]\ntoolName = "write_file"\ndecision = "deny"\npriority = 100\n'
    (theirs / "mine.toml").write_text(rule)
    policy = PolicyRule(
        tool_name="run_shell_command",
        decision=Decision.DENY,
        priority=900,
        args_pattern='"command":"echo no"',
        deny_message="not that",
    )

    async def main() -> list[object]:
        config = play.config(approval_mode=YOLO, policy=(policy,), max_session_turns=2)
        async with await play.client.create_session("go", config) as session:
            return await until(session.events, Exited)

    events = asyncio.run(main())
    results = [event for event in events if isinstance(event, GeminiToolResult)]
    assert [result.status for result in results] == ["success", "error", "error", "success"]
    assert "not that" in (results[1].output or "")
    result, exited = events[-2:]
    assert isinstance(result, GeminiResult)
    assert result.error is not None
    assert (result.error.type, exited.code) == ("FatalTurnLimitedError", 53)
    assert (theirs / "mine.toml").read_text() == rule


def test_a_long_answer_arrives_whole_and_a_failure_is_told(stage):
    text = "".join(f"{number} " for number in range(60_000))
    play = stage([say(text, chunks=1), http_error(400, "No such thing.")])

    async def main() -> None:
        async with await play.client.create_session("go", play.config()) as session:
            events = session.events
            first = await until(events, Exited)
            assert stream_text(first) == text
            assert isinstance(first[-2], GeminiResult)
            await session.send("fail")
            result, exited = (await until(events, Exited))[-2:]
            assert isinstance(result, GeminiResult)
            assert result.status == "error"
            assert exited.code == 400 & 0xFF

    asyncio.run(main())


def test_a_dropped_session_leaves_nothing(stage):
    play = stage([[say("Text. "), stall()]])

    async def main() -> None:
        session = await play.client.create_session("go", play.config())
        await until(session.events, GeminiMessage)
        del session
        gc.collect()
        await play.nothing_left()

    asyncio.run(main())


def test_bad_input_has_its_own_errors(stage, tmp_path):
    play = stage([forever(say("Done."))])
    env = play.environment.env

    def failing(client: GeminiClient, config: GeminiSessionConfig | None = None, resume: str = "") -> Exception:
        async def main() -> None:
            config_ = config or play.config()
            session = client.resume_session(resume, "go", config_) if resume else client.create_session("go", config_)
            await (await session).close()

        with pytest.raises(Exception) as caught:
            asyncio.run(main())
        return caught.value

    empty = {**env, "PATH": str(tmp_path), "HOME": str(tmp_path / "other"), "GEMINI_CLI_HOME": str(tmp_path / "other")}
    unsigned = {key: value for key, value in {**env, **empty, "PATH": env["PATH"]}.items() if key != "GEMINI_API_KEY"}
    unsigned.pop("GOOGLE_GEMINI_BASE_URL", None)
    signed_out = GeminiClient(play.repo, str(CLI), unsigned)
    unknown = "99999999-2222-4333-8444-555555555555"
    acp = play.config(driver=GeminiDriver.ACP)
    cases = [
        (
            failing(GeminiClient(play.repo, str(tmp_path / "gemini"), env)),
            NotInstalled,
            "npm install -g @google/gemini-cli",
        ),
        (failing(GeminiClient(play.repo, None, {**empty, "HOME": "/nowhere"})), NotInstalled, "looked in"),
        (failing(GeminiClient(tmp_path / "nowhere", str(CLI), env)), LaunchError, "does not exist"),
        (failing(play.client, resume=unknown), SessionNotFound, unknown),
        (failing(play.client, acp, resume=unknown), SessionNotFound, unknown),
        (failing(signed_out), NotSignedIn, "GEMINI_API_KEY"),
        (failing(signed_out, acp), NotSignedIn, "GEMINI_API_KEY"),
        (failing(play.client, play.config(extra_args=("--unknown-flag",))), LocalProtocolError, "unknown-flag"),
        (failing(play.client, play.config(policy_files=("/nowhere.toml",))), LocalProtocolError, "/nowhere.toml"),
    ]
    for error, kind, says in cases:
        assert type(error) is kind, error
        assert says in str(error)
    assert play.left_running() == []
    assert asyncio.run(play.client.check_version()).version == "0.61.0"
    assert os.environ.get("GEMINI_CLI_HOME") is None
