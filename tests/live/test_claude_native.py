"""The native Claude Code client against the real program and the scripted model."""

from __future__ import annotations

import asyncio
import gc
import os
import uuid
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from stagedoor.agents.claude import (
    CanUseTool,
    ClaudeClient,
    ClaudePermissionMode,
    ClaudeResult,
    ClaudeSession,
    ClaudeSessionConfig,
    Event,
    HookCallback,
    HookMatcher,
    PermissionResultAllow,
    PermissionResultDeny,
    SystemInit,
    ToolServer,
    TurnSettled,
    User,
    allow_always,
    answer_questions,
    questions_in,
)
from stagedoor.agents.claude.blocks import ContentBlockDelta, TextBlockDelta, ToolResultBlock
from stagedoor.agents.claude.events import StreamEvent, SystemStatus, TaskNotification, TaskStarted
from stagedoor.errors import AgentRefused, LaunchError, LocalProtocolError, NotInstalled, NotSignedIn, SessionNotFound
from stagedoor.testing import ScriptedModel, call, endless, find_cli, mcp, native, say, shell, structured, write_file
from stagedoor.transports.launch import Exited
from tests.processes import command_lines, is_running

pytestmark = [pytest.mark.live, pytest.mark.skipif(find_cli("claude") is None, reason="claude is not installed")]
BOUND = 300.0
NAPS = [f"sleep 98{uuid.uuid4().int % 10**7:07d}" for _ in range(4)]
"""Commands that can be told from all others."""

Start = Callable[[ScriptedModel], ClaudeClient]


@pytest.fixture
def start(tmp_path: Path) -> Start:
    """A client in a fresh folder that talks to the given model."""
    cwd = tmp_path / "repo"
    cwd.mkdir()

    def client(model: ScriptedModel) -> ClaudeClient:
        env = model.environment("claude", home=tmp_path / "home", cwd=cwd).env
        return ClaudeClient(cwd, str(find_cli("claude")), env)

    return client


def run(main: Callable[[], Awaitable[None]]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(BOUND):
            await main()

    asyncio.run(bounded())


async def turn(session: ClaudeSession) -> list[Event]:
    """Everything up to the end of the turn."""
    events: list[Event] = []
    async for event in session.events:
        events.append(event)
        if isinstance(event, (TurnSettled, Exited)):
            return events
    return events


def result_of(events: list[Event]) -> ClaudeResult:
    end = events[-1]
    assert isinstance(end, TurnSettled), end
    assert end.result is not None
    return end.result


def tool_results(events: list[Event]) -> list[ToolResultBlock]:
    return [
        block
        for event in events
        if isinstance(event, User)
        for block in event.message.blocks()
        if isinstance(block, ToolResultBlock)
    ]


def alive(marker: str) -> list[str]:
    """The command lines, anywhere on this machine, that contain the marker."""
    return [line for pid, line in command_lines().items() if marker in line and pid != os.getpid()]


async def wait_until_gone(marker: str) -> None:
    while alive(marker):
        await asyncio.sleep(0.02)


def test_create_follow_up_resume_fork_and_list(start: Start) -> None:
    async def main() -> None:
        with ScriptedModel([say("one"), say("two"), say("three"), say("four")]) as model:
            client = start(model)
            async with await client.create_session("first prompt") as session:
                first = await turn(session)
                assert result_of(first).result == "one"
                pieces = [e.event for e in first if isinstance(e, StreamEvent)]
                assert TextBlockDelta("one") in [p.delta for p in pieces if isinstance(p, ContentBlockDelta)]
                await session.send("second prompt")
                assert result_of(await turn(session)).result == "two"
                assert await session.binary_version() == "2.1.197" or await session.binary_version()
                assert await session.mcp_status() == []
                assert (await session.context_usage())["totalTokens"] > 0
                await session.set_permission_mode(ClaudePermissionMode.accept_edits)
                with pytest.raises(AgentRefused, match="bypass"):
                    await session.set_permission_mode(ClaudePermissionMode.bypass_permissions)
                await session.set_model("claude-haiku-4-5")
                await session.rename("A name of its own")
                session_id = session.session_id
            last = [event async for event in session.events][-1]
            assert last == Exited(0, "")

            again = start(model)
            async with await again.resume_session(session_id, "third prompt") as session:
                assert session.session_id == session_id
                assert result_of(await turn(session)).result == "three"
            fork = ClaudeSessionConfig(fork_session=True)
            async with await again.resume_session(session_id, "fourth prompt", fork) as session:
                assert result_of(await turn(session)).result == "four"
                assert session.session_id != session_id
                forked = session.session_id

            history = await client.list_sessions()
            assert {s.session_id for s in history} == {session_id, forked}
            stored = next(s for s in history if s.session_id == session_id)
            assert (stored.title, stored.first_prompt, stored.cwd) == ("A name of its own", "first prompt", client.cwd)
            assert stored.message_count == 6
            assert stored.tokens

    run(main)


def test_permission_allowed_edited_denied_and_remembered(start: Start) -> None:
    script = [
        shell("touch asked.txt && ls"),
        shell("touch edited.txt && ls"),
        shell("touch denied.txt && ls"),
        shell("mkdir one && ls"),
        shell("mkdir one && ls"),
        native("AskUserQuestion", questions=[
            {"question": "Which colour?", "header": "Colour", "multiSelect": False,
             "options": [{"label": "Red", "description": "r"}, {"label": "Blue", "description": "b"}]}]),
        say("done"),
    ]  # fmt: skip
    commands: list[str] = []

    async def decide(request: CanUseTool) -> PermissionResultAllow | PermissionResultDeny:
        if questions_in(request):
            return answer_questions(request, {questions_in(request)[0].question: "Blue"})
        command = str(request.input["command"])
        commands.append(command)
        if "edited" in command:
            return PermissionResultAllow({**request.input, "command": "touch instead.txt && ls"})
        if "denied" in command:
            return PermissionResultDeny("not that one")
        return allow_always(request) if "mkdir" in command else PermissionResultAllow()

    async def main() -> None:
        with ScriptedModel(script) as model:
            client = start(model)
            async with await client.create_session("go", ClaudeSessionConfig(can_use_tool=decide)) as session:
                events = await turn(session)
            cwd = Path(client.cwd)
            assert sorted(p.name for p in cwd.iterdir()) == ["asked.txt", "instead.txt", "one"]
            assert commands == [
                "touch asked.txt && ls",
                "touch edited.txt && ls",
                "touch denied.txt && ls",
                "mkdir one && ls",
            ]
            texts = [result.text for result in tool_results(events)]
            assert texts[2] == "not that one"
            assert '"Which colour?"="Blue"' in texts[5]
            assert [d.tool_name for d in result_of(events).permission_denials] == ["Bash"]

    run(main)


def test_a_callback_that_blocks_fails_or_interrupts(start: Start) -> None:
    def decide(request: CanUseTool) -> PermissionResultAllow | PermissionResultDeny:
        if "fails" in str(request.input):
            raise RuntimeError("no idea")
        return PermissionResultDeny("stop it", interrupt=True)

    async def main() -> None:
        script = [shell("touch fails.txt && ls"), shell("touch stops.txt && ls"), say("after")]
        with ScriptedModel(script) as model:
            client = start(model)
            async with await client.create_session("go", ClaudeSessionConfig(can_use_tool=decide)) as session:
                events = await turn(session)
                assert tool_results(events)[0].text == "The permission callback failed: RuntimeError: no idea"
                assert result_of(events).interrupted
                await session.send("go on")
                assert result_of(await turn(session)).result == "after"
            assert list(Path(client.cwd).iterdir()) == []

    run(main)


def test_an_open_question_is_void_after_an_interrupt(start: Start) -> None:
    cancelled = asyncio.Event()
    opened = asyncio.Event()

    async def never(request: CanUseTool) -> PermissionResultAllow:
        opened.set()
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()
        return PermissionResultAllow()

    async def main() -> None:
        with ScriptedModel([shell("touch x.txt && ls"), say("after")]) as model:
            client = start(model)
            async with await client.create_session("go", ClaudeSessionConfig(can_use_tool=never)) as session:
                await opened.wait()
                await session.interrupt()
                await cancelled.wait()
                assert session.open_questions == {}
                assert not session.running
                assert result_of(await turn(session)).interrupted

    run(main)


def test_interrupt_mid_text_and_mid_command(start: Start) -> None:
    async def main() -> None:
        script = [endless(), shell(NAPS[0]), say("still here")]
        with ScriptedModel(script) as model:
            client = start(model)
            config = ClaudeSessionConfig(permission_mode=ClaudePermissionMode.bypass_permissions)
            async with await client.create_session("talk", config) as session:
                async for event in session.events:
                    if isinstance(event, StreamEvent) and isinstance(event.event, ContentBlockDelta):
                        break
                await session.interrupt()
                assert result_of(await turn(session)).terminal_reason == "aborted_streaming"
                await session.send("work")
                while not alive(NAPS[0]):
                    await asyncio.sleep(0.02)
                await session.interrupt()
                assert result_of(await turn(session)).terminal_reason == "aborted_tools"
                await wait_until_gone(NAPS[0])
                await session.send("and?")
                assert result_of(await turn(session)).result == "still here"
                pid = session.pid
            assert not is_running(pid)

    run(main)


def test_a_turn_lasts_until_its_background_tasks_have_settled(start: Start) -> None:
    async def main() -> None:
        script = [
            shell("sleep 1; echo finished", background=True),
            say("started"),
            say("woken"),
            shell(NAPS[1], background=True),
            say("again"),
        ]
        with ScriptedModel(script) as model:
            client = start(model)
            config = ClaudeSessionConfig(permission_mode=ClaudePermissionMode.bypass_permissions)
            async with await client.create_session("go", config) as session:
                events = await turn(session)
                assert [e.result for e in events if isinstance(e, ClaudeResult)] == ["started", "woken"]
                assert [e.status for e in events if isinstance(e, TaskNotification)] == ["completed"]
                await session.send("once more")
                async for event in session.events:
                    if isinstance(event, ClaudeResult):
                        break
                assert session.running
                await session.interrupt()
                assert not session.running
                await wait_until_gone(NAPS[1])

    run(main)


def test_cancel_and_dropping_leave_nothing_running(start: Start) -> None:
    async def main() -> None:
        with ScriptedModel([shell(NAPS[2]), say("x")], routes={"drop": [shell(NAPS[3])]}) as model:
            client = start(model)
            config = ClaudeSessionConfig(permission_mode=ClaudePermissionMode.bypass_permissions)
            session = await client.create_session("go", config)
            while not alive(NAPS[2]):
                await asyncio.sleep(0.02)
            await session.cancel()
            assert alive(NAPS[2]) == []
            assert isinstance([event async for event in session.events][-1], Exited)

            dropped = await client.create_session("drop", config)
            while not alive(NAPS[3]):
                await asyncio.sleep(0.02)
            pid = dropped.pid
            del dropped
            gc.collect()
            await wait_until_gone(NAPS[3])
            while is_running(pid):
                await asyncio.sleep(0.02)

    run(main)


def test_hooks_and_tools_in_this_process(start: Start) -> None:
    calls: list[str] = []

    def before(call: HookCallback) -> dict[str, object] | None:
        calls.append(f"{call.input['hook_event_name']} {call.input.get('tool_name')}")
        if call.input.get("tool_name") != "Bash":
            return None
        return {
            "hookSpecificOutput": {
                "hookEventName": "PreToolUse",
                "permissionDecision": "deny",
                "permissionDecisionReason": "no shell today",
            }
        }

    async def after(call: HookCallback) -> None:
        calls.append(str(call.input["hook_event_name"]))

    def add(a: int, b: int = 2) -> int:
        """Adds."""
        return a + b

    async def main() -> None:
        script = [shell("echo hi"), mcp("desk", "add", a=40), mcp("desk", "add", a="forty"), say("done")]
        with ScriptedModel(script) as model:
            config = ClaudeSessionConfig(
                mcp_servers={"desk": ToolServer([add])},
                allowed_tools=["mcp__desk__add"],
                hooks={"PreToolUse": [HookMatcher([before])], "Stop": [HookMatcher([after])]},
            )
            async with await start(model).create_session("go", config) as session:
                events = await turn(session)
                assert [s["name"] for s in await session.mcp_status()] == ["desk"]
            first, second, third = tool_results(events)
            assert first.text == "no shell today"
            assert second.text == "42"
            assert third.is_error
            assert third.text.startswith("wrong arguments for add: ")
            assert calls == [
                "PreToolUse Bash",
                "PreToolUse mcp__desk__add",
                "PreToolUse mcp__desk__add",
                "Stop",
            ]

    run(main)


def test_permissions_through_the_mcp_server(start: Start) -> None:
    pytest.importorskip("mcp")
    commands: list[str] = []

    async def decide(request: CanUseTool) -> PermissionResultAllow | PermissionResultDeny:
        commands.append(str(request.input["command"]))
        return PermissionResultAllow() if "yes" in commands[-1] else PermissionResultDeny("rather not")

    async def main() -> None:
        with ScriptedModel([shell("touch yes.txt && ls"), shell("touch no.txt && ls"), say("done")]) as model:
            client = start(model)
            config = ClaudeSessionConfig(permission_mode=ClaudePermissionMode.delegate, can_use_tool=decide)
            async with await client.create_session("go", config) as session:
                events = await turn(session)
            assert commands == ["touch yes.txt && ls", "touch no.txt && ls"]
            assert [path.name for path in Path(client.cwd).iterdir()] == ["yes.txt"]
            assert tool_results(events)[1].text == "rather not"
            await wait_until_gone("permission_server.py")

    run(main)


def test_structured_output_plan_mode_and_sub_agents(start: Start) -> None:
    async def main() -> None:
        schema = {"type": "object", "properties": {"answer": {"type": "integer"}}, "required": ["answer"]}
        script = [structured({"answer": 42})]
        routes = {
            "plan": [native("ExitPlanMode", plan="1. do it"), write_file("planned.txt", "x"), say("planned")],
            "delegate": [call("task", prompt="sub job", description="Sub"), say("reported")],
            "sub job": [say("sub says")],
            "sneak": [write_file("sneaked.txt", "x"), say("tried")],
        }
        with ScriptedModel(script, routes=routes) as model:
            client = start(model)
            config = ClaudeSessionConfig(output_schema=schema, forward_subagent_text=True)
            async with await client.create_session("number", config) as session:
                assert result_of(await turn(session)).structured_output == {"answer": 42}

            plan = ClaudeSessionConfig(
                permission_mode=ClaudePermissionMode.plan, can_use_tool=lambda request: PermissionResultAllow()
            )
            async with await client.create_session("plan", plan) as session:
                events = await turn(session)
                assert "default" in [e.permission_mode for e in events if isinstance(e, SystemStatus)]
                assert (Path(client.cwd) / "planned.txt").exists()

            closed = ClaudeSessionConfig(permission_mode=ClaudePermissionMode.dont_ask, forward_subagent_text=True)
            async with await client.create_session("sneak", closed) as session:
                events = await turn(session)
                assert [denial.tool_name for denial in result_of(events).permission_denials] == ["Write"]
                assert not (Path(client.cwd) / "sneaked.txt").exists()
                await session.send("delegate")
                events = await turn(session)
                assert [e.task_type for e in events if isinstance(e, TaskStarted)] == ["local_agent"]
                assert result_of(events).result == "reported"

    run(main)


def test_errors_that_say_what_to_do(start: Start, tmp_path: Path) -> None:
    async def main() -> None:
        with ScriptedModel([say("x")]) as model:
            client = start(model)
            with pytest.raises(SessionNotFound, match=r"list_sessions\(\)"):
                await client.resume_session("0a1b2c3d-1111-4222-8333-444455556666", "hello")
            with pytest.raises(LocalProtocolError, match="extra_args"):
                await client.create_session("hello", ClaudeSessionConfig(extra_args=["--no-such-flag"]))
            with pytest.raises(NotInstalled, match="npm install -g"):
                await ClaudeClient(client.cwd, str(tmp_path / "nowhere"), {}).create_session("hello")
            with pytest.raises(LaunchError, match="not found"):
                await ClaudeClient(tmp_path / "no folder", str(find_cli("claude"))).create_session("hello")
            env = dict(model.environment("claude", home=tmp_path / "other", cwd=Path(client.cwd)).env)
            del env["ANTHROPIC_API_KEY"]
            signed_out = ClaudeClient(client.cwd, str(find_cli("claude")), env)
            with pytest.raises(NotSignedIn, match="/login"):
                await signed_out.create_session("hello")
            with pytest.raises(NotSignedIn, match="/login"):
                await signed_out.check_signed_in()
            await client.check_signed_in()
            assert (await client.check_version()).version.startswith("2.1.")

    run(main)


def test_the_environment_of_a_surrounding_claude_code_is_cleared(
    start: Start, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    async def main() -> None:
        with ScriptedModel([shell('echo "[$CLAUDE_CODE_SESSION_KIND|$KEPT]"'), say("x")]) as model:
            executable, explicit = str(find_cli("claude")), start(model)
            env = model.environment("claude", home=tmp_path / "home", cwd=Path(explicit.cwd)).env
            for name in list(os.environ):
                monkeypatch.delenv(name)
            for name, value in env.items():
                monkeypatch.setenv(name, value)
            monkeypatch.setenv("CLAUDE_CODE_SESSION_KIND", "surrounding")
            monkeypatch.setenv("CLAUDECODE", "1")
            config = ClaudeSessionConfig(
                permission_mode=ClaudePermissionMode.bypass_permissions,
                env={"KEPT": "kept", "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1"},
            )
            client = ClaudeClient(explicit.cwd, executable)
            async with await client.create_session("go", config) as session:
                events = await turn(session)
            assert any(isinstance(event, SystemInit) for event in events)
            assert tool_results(events)[0].text == "[|kept]"
            assert len(await client.list_sessions()) == 1

    run(main)
