"""The Codex library against the real CLI, which talks to a scripted model on loopback."""

from __future__ import annotations

import asyncio
import base64
import gc
import json
import shutil
import subprocess
import uuid
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from pathlib import Path
from typing import Any, TypeVar

import pytest

from stagedoor.agents.codex import (
    VERSIONS,
    Accept,
    AcceptForSession,
    Answers,
    ApprovalPolicy,
    CodexClient,
    CodexExecSession,
    CodexSessionConfig,
    CodexThread,
    CodexUsage,
    Decision,
    Decline,
    Question,
    SandboxMode,
    sessions,
)
from stagedoor.agents.codex.config import DriverName
from stagedoor.agents.codex.events import (
    AgentMessageItem,
    CodexTurnCompleted,
    CodexTurnFailed,
    CommandExecutionItem,
    ItemCompleted,
    ItemStarted,
)
from stagedoor.agents.codex.locate import EXEC_FORK_SINCE
from stagedoor.agents.codex.notifications import (
    AgentMessageDeltaNotification,
    ItemCompletedNotification,
    ItemStartedNotification,
    TurnCompletedNotification,
)
from stagedoor.agents.codex.questions import (
    CommandExecutionRequestApproval,
    FileChangeRequestApproval,
    McpServerElicitationRequest,
    PermissionsRequestApproval,
    ToolRequestUserInput,
)
from stagedoor.agents.codex.threads import (
    AgentMessageThreadItem,
    CommandExecutionThreadItem,
    FileChangeThreadItem,
    FileUpdateChange,
    PatchChangeKind,
)
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
from stagedoor.testing.environment import Environment
from stagedoor.testing.model import ScriptedModel
from stagedoor.testing.script import Script, mcp, native, say, shell, task, write_file
from stagedoor.transports.guard.processes import strategy
from stagedoor.transports.guard.strategies import LINUX
from stagedoor.transports.launch import Exited
from stagedoor.transports.relay import LIMIT
from stagedoor.transports.versions import numbers_of
from tests.processes import command_lines

CODEX = find_cli("codex")
pytestmark = [pytest.mark.live, pytest.mark.skipif(CODEX is None, reason="the codex CLI is not installed")]

BOUND = 300.0
DRIVERS: tuple[DriverName, ...] = ("exec", "app-server")
ONE_CALL = CodexUsage(100, 50, 0, 20, 0)
EventT = TypeVar("Seen")


class Stage:
    """A repository, a home of Codex's own, and a model that follows a script."""

    def __init__(self, model: ScriptedModel, home: Path, cwd: Path) -> None:
        self.model = model
        self.cwd = cwd
        # The trusted folder is another one: here Codex shall find nothing about trust, and leave nothing.
        self.environment: Environment = model.environment("codex", home=home, cwd=home)
        self.settings = home / ".codex" / "config.toml"
        self.untouched = self.settings.read_text()
        self.client = CodexClient(cwd, CODEX, self.environment.env)


@pytest.fixture
def cwd(tmp_path: Path) -> Path:
    folder = tmp_path / "repository"
    folder.mkdir()
    subprocess.run(["git", "init", "-q", "-b", "main", str(folder)], check=True)
    return folder


def play(tmp_path: Path, cwd: Path, script: Script, scene: Callable[[Stage], Coroutine[Any, Any, None]]) -> None:
    async def main() -> None:
        async with asyncio.timeout(BOUND), ScriptedModel(script) as model:
            stage = Stage(model, tmp_path / "home", cwd)
            await scene(stage)
            assert stage.settings.read_text() == stage.untouched

    asyncio.run(main())


async def until(
    events: AsyncIterator[Any], kind: type[EventT], check: Callable[[EventT], bool] = lambda _: True
) -> EventT:
    async for event in events:
        if isinstance(event, kind) and check(event):
            return event
    raise AssertionError(f"the stream ended without a {kind.__name__}")


async def wait_until_gone(marker: str) -> None:
    """Wait until no process has ``marker`` on its command line."""
    async with asyncio.timeout(BOUND):
        while running(marker):
            await asyncio.sleep(0.02)


def running(marker: str) -> list[str]:
    return [line for line in command_lines().values() if marker in line]


def texts_of(events: Sequence[Any]) -> list[str]:
    items = [event.item for event in events if isinstance(event, ItemCompleted | ItemCompletedNotification)]
    return [item.text for item in items if isinstance(item, AgentMessageItem | AgentMessageThreadItem)]


async def whole_turn(session: Any) -> list[Any]:
    events: list[Any] = []
    async for event in session.events:
        events.append(event)
        own = isinstance(event, TurnCompletedNotification) and event.thread_id == session.session_id
        if own or isinstance(event, Exited):
            return events
    return events


def test_exec_create_follow_up_resume_and_list(tmp_path: Path, cwd: Path) -> None:
    async def scene(stage: Stage) -> None:
        session = await stage.client.create_session(
            "--first prompt\n\nwith lines", CodexSessionConfig(reasoning_summary="auto")
        )
        assert isinstance(session, CodexExecSession)
        first = await whole_turn(session)
        assert texts_of(first) == ["One."]
        assert [e.turn_usage for e in first if isinstance(e, CodexTurnCompleted)] == [CodexUsage(200, 100, 0, 40, 0)]
        assert isinstance(first[-1], Exited)
        assert first[-1].code == 0
        assert (cwd / "made.txt").read_text() == "made\n"

        await session.send("second")
        second = await whole_turn(session)
        assert [(e.usage, e.turn_usage) for e in second if isinstance(e, CodexTurnCompleted)] == [
            (CodexUsage(300, 150, 0, 60, 0), ONE_CALL)
        ]
        await session.close()
        with pytest.raises(SessionEnded):
            await session.send("too late")

        again = await CodexClient(cwd, CODEX, stage.environment.env).resume_session(session.session_id, "third")
        assert again.session_id == session.session_id
        third = await whole_turn(again)
        assert texts_of(third) == ["Three."]
        assert [e.turn_usage for e in third if isinstance(e, CodexTurnCompleted)] == [ONE_CALL]
        await again.close()

        listed = await stage.client.list_sessions()
        assert [(s.session_id, s.first_prompt, s.message_count, s.tokens) for s in listed] == [
            (session.session_id, "--first prompt\n\nwith lines", 6, CodexUsage(400, 200, 0, 80, 0)),
        ]
        stage.model.assert_consumed()

    script: Script = [shell("echo made > made.txt"), say("One."), say("Two."), say("Three.")]
    play(tmp_path, cwd, script, scene)


@pytest.mark.parametrize("driver", DRIVERS)
def test_a_fork_is_a_session_of_its_own(tmp_path: Path, cwd: Path, driver: DriverName) -> None:
    async def scene(stage: Stage) -> None:
        if driver == "exec" and numbers_of((await stage.client.check_version()).version) < EXEC_FORK_SINCE:
            pytest.skip("this codex exec cannot fork")
        config = CodexSessionConfig(driver=driver)
        first = await stage.client.create_session("first", config)
        await whole_turn(first)
        await first.close()
        fork = await stage.client.resume_session(first.session_id, "second", config, fork=True)
        assert fork.session_id != first.session_id
        events = await whole_turn(fork)
        assert [
            event.turn_usage for event in events if isinstance(event, CodexTurnCompleted | TurnCompletedNotification)
        ] == [ONE_CALL]
        assert "One." in str(stage.model.requests[-1].body)
        await fork.close()
        assert {s.session_id for s in await stage.client.list_sessions()} == {first.session_id, fork.session_id}

    play(tmp_path, cwd, [say("One."), say("Two.")], scene)


@pytest.mark.parametrize("sandbox", [SandboxMode.WORKSPACE_WRITE, SandboxMode.DANGER_FULL_ACCESS])
def test_exec_interrupt_mid_command_leaves_nothing(tmp_path: Path, cwd: Path, sandbox: SandboxMode) -> None:
    marker = f"sleep 98{uuid.uuid4().int % 10**7:07d}"

    async def scene(stage: Stage) -> None:
        session = await stage.client.create_session("wait", CodexSessionConfig(sandbox_mode=sandbox))
        assert isinstance(session, CodexExecSession)
        await until(session.events, ItemStarted, lambda e: isinstance(e.item, CommandExecutionItem))
        with pytest.raises(LocalProtocolError):
            await session.send("not while a turn runs")
        await session.interrupt()
        assert running(marker) == []
        assert [path.name for path in cwd.iterdir()] == [".git"]
        exited = await until(session.events, Exited)
        assert exited.code == 1
        await session.send("go on")
        assert texts_of(await whole_turn(session)) == ["Awake."]
        await session.close()

    play(tmp_path, cwd, [shell(f"({marker}; true) & {marker}"), say("Awake.")], scene)


def test_app_server_asks_and_goes_on_over_turns_and_clients(tmp_path: Path, cwd: Path) -> None:
    questions: list[Question] = []

    async def ask(question: Question) -> Decision:
        questions.append(question)
        return Decline() if isinstance(question, CommandExecutionRequestApproval) else Accept()

    async def scene(stage: Stage) -> None:
        config = CodexSessionConfig(can_use_tool=ask)
        session = await stage.client.create_session("first", config)
        assert isinstance(session, CodexThread)
        first = await whole_turn(session)
        assert texts_of(first) == ["One."]
        assert first[-1].turn_usage == CodexUsage(300, 150, 0, 60, 0)
        assert (cwd / "new.txt").read_text() == "new\n"
        assert not (cwd / "never.txt").exists()
        patch, command = questions
        assert isinstance(patch, FileChangeRequestApproval)
        assert patch.changes == [FileUpdateChange(str(cwd / "new.txt"), PatchChangeKind("add"), "new\n")]
        assert isinstance(command, CommandExecutionRequestApproval)
        assert "touch never.txt" in (command.command or "")
        done = [e.item for e in first if isinstance(e, ItemCompletedNotification)]
        assert [i.status for i in done if isinstance(i, FileChangeThreadItem | CommandExecutionThreadItem)] == [
            "completed",
            "declined",
        ]
        await session.send("second")
        second = await whole_turn(session)
        assert second[-1].turn_usage == ONE_CALL
        await session.close()

        again = await CodexClient(cwd, CODEX, stage.environment.env).resume_session(session.session_id, "3", config)
        assert again.session_id == session.session_id
        third = await whole_turn(again)
        assert texts_of(third) == ["Three."]
        assert third[-1].turn_usage == ONE_CALL
        await again.close()
        stage.model.assert_consumed()

    script: Script = [write_file("new.txt", "new\n"), shell("touch never.txt"), say("One."), say("Two."), say("Three.")]
    play(tmp_path, cwd, script, scene)


@pytest.mark.parametrize("sandbox", [SandboxMode.WORKSPACE_WRITE, SandboxMode.DANGER_FULL_ACCESS])
def test_app_server_interrupt_mid_text_and_mid_command(tmp_path: Path, cwd: Path, sandbox: SandboxMode) -> None:
    marker = f"sleep 98{uuid.uuid4().int % 10**7:07d}"

    async def scene(stage: Stage) -> None:
        session = await stage.client.create_session(
            "talk", CodexSessionConfig(driver="app-server", sandbox_mode=sandbox)
        )
        assert isinstance(session, CodexThread)
        await until(session.events, AgentMessageDeltaNotification)
        await session.interrupt()
        assert (await until(session.events, TurnCompletedNotification)).turn.status == "interrupted"
        assert not session.running

        await session.send("wait")
        await until(session.events, ItemStartedNotification, lambda e: isinstance(e.item, CommandExecutionThreadItem))
        while marker not in map(str.strip, running(marker)):  # what is stopped while it starts, Codex may leave running
            await asyncio.sleep(0.02)
        await session.interrupt()
        await wait_until_gone(marker)
        assert [path.name for path in cwd.iterdir()] == [".git"]
        assert (await until(session.events, TurnCompletedNotification)).turn.status == "interrupted"

        await session.send("go on")
        assert texts_of(await whole_turn(session))[-1] == "Awake."
        await session.cancel()
        assert (await until(session.events, Exited)).code == 0

    script: Script = [say(["word "] * 400, pause=0.05), shell(f"({marker}; true) & {marker}"), say("Awake.")]
    play(tmp_path, cwd, script, scene)


STARTS = 4


@pytest.mark.skipif(strategy() != LINUX, reason="only Linux has sandboxes that outlive their parent")
def test_app_server_ends_a_command_whose_sandbox_was_starting(
    tmp_path: Path, cwd: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Codex kills what it started; what was between two steps of the sandbox's start then has no parent any more."""
    monkeypatch.setattr(sessions, "INTERRUPT_BOUND", BOUND)  # a server that is only slow is not to be stopped
    markers = [f"sleep 98{uuid.uuid4().int % 10**7:07d}" for _ in range(STARTS)]

    async def scene(stage: Stage) -> None:
        config = CodexSessionConfig(driver="app-server", sandbox_mode=SandboxMode.WORKSPACE_WRITE)
        session = await stage.client.create_session("wait", config)
        assert isinstance(session, CodexThread)
        for number, marker in enumerate(markers):
            if number:
                await session.send("wait")
            while not running(marker):  # its sandbox, at whatever step it is
                await asyncio.sleep(0.002)
            await session.interrupt()
            await wait_until_gone(marker)
        assert [path.name for path in cwd.iterdir()] == [".git"]
        await session.close()

    play(tmp_path, cwd, [shell(f"({marker}; true) & {marker}") for marker in markers], scene)


def test_app_server_questions_close_with_the_turn_and_late_answers_are_refused(tmp_path: Path, cwd: Path) -> None:
    async def scene(stage: Stage) -> None:
        session = await stage.client.create_session("ask", CodexSessionConfig(approval_policy=ApprovalPolicy.UNTRUSTED))
        assert isinstance(session, CodexThread)
        question = await until(session.events, CommandExecutionRequestApproval)
        assert session.open_questions == [question]
        await session.interrupt()
        assert session.open_questions == []
        with pytest.raises(AlreadyAnswered):
            await session.answer(question.request_id, Accept())
        await session.close()

    play(tmp_path, cwd, [shell("touch never.txt")], scene)
    assert not (cwd / "never.txt").exists()


def test_app_server_denies_when_the_callback_fails_or_is_too_slow(tmp_path: Path, cwd: Path) -> None:
    calls: list[str] = []

    async def ask(question: Question) -> Decision:
        calls.append(type(question).__name__)
        if len(calls) == 1:
            raise RuntimeError("no idea")
        await asyncio.get_running_loop().create_future()
        return Accept()

    async def scene(stage: Stage) -> None:
        session = await stage.client.create_session("x", CodexSessionConfig(can_use_tool=ask, permission_timeout=0.2))
        events = await whole_turn(session)
        done = [e.item for e in events if isinstance(e, ItemCompletedNotification)]
        assert [i.status for i in done if isinstance(i, CommandExecutionThreadItem)] == ["declined", "declined"]
        await session.close()

    play(tmp_path, cwd, [shell("touch a"), shell("touch b"), say("Neither.")], scene)
    assert [path.name for path in cwd.iterdir()] == [".git"]


def test_app_server_keeps_threads_and_their_sub_agents_apart(tmp_path: Path, cwd: Path) -> None:
    async def scene(stage: Stage) -> None:
        async with await stage.client.start_server(CodexSessionConfig(model="scripted-model")) as server:
            parent, other = await asyncio.gather(server.start_thread("parent"), server.start_thread("parent"))
            of_parent, of_other = await asyncio.gather(whole_turn(parent), whole_turn(other))
            for session, events in ((parent, of_parent), (other, of_other)):
                threads = {e.thread_id for e in events if isinstance(e, ItemCompletedNotification)}
                family = set(server.protocol.thread_states.family(session.session_id))
                assert threads == family
                assert len(family) == 2
                assert "I am the child." in texts_of(events)
            listed = await server.list_threads(cwd=str(cwd))
            assert {thread.id for thread in listed} == {parent.session_id, other.session_id}

    play(tmp_path, cwd, [task("be a child", [say("I am the child.")]), say("Done.")], scene)


def test_app_server_plan_mode_asks_the_user(tmp_path: Path, cwd: Path) -> None:
    def ask(question: Question) -> Decision:
        assert isinstance(question, ToolRequestUserInput)
        return Answers({question.questions[0].id: ["Blue"]})

    async def scene(stage: Stage) -> None:
        session = await stage.client.create_session("plan", CodexSessionConfig(can_use_tool=ask, plan_mode=True))
        await whole_turn(session)
        assert "Blue" in stage.model.requests[-1].outcomes[-1].output
        await session.close()

    options = [{"label": "Red", "description": "r"}, {"label": "Blue", "description": "b"}]
    questions = [{"id": "q1", "header": "Colour", "question": "Which colour?", "options": options}]
    play(tmp_path, cwd, [native("request_user_input", questions=questions), say("Blue it is.")], scene)


def test_app_server_steers_the_running_turn(tmp_path: Path, cwd: Path) -> None:
    async def scene(stage: Stage) -> None:
        session = await stage.client.create_session("work", CodexSessionConfig(driver="app-server"))
        assert isinstance(session, CodexThread)
        await until(session.events, ItemStartedNotification, lambda e: isinstance(e.item, CommandExecutionThreadItem))
        await session.steer("and mind the tests")
        (cwd / "go").touch()
        events = await whole_turn(session)
        assert texts_of(events) == ["Done."]
        assert "and mind the tests" in str(stage.model.requests[-1].body)
        with pytest.raises(LocalProtocolError, match="no running turn"):
            await session.steer("too late")
        await session.close()

    play(tmp_path, cwd, [shell("until [ -e go ]; do sleep 0.05; done"), say("Done.")], scene)


def test_a_session_nobody_holds_leaves_nothing_running(tmp_path: Path, cwd: Path) -> None:
    marker = f"sleep 98{uuid.uuid4().int % 10**7:07d}"

    async def scene(stage: Stage) -> None:
        # Without a sandbox: a killed one leaves empty folders in /tmp, and there is nobody left to sweep them up.
        for driver in DRIVERS:
            config = CodexSessionConfig(driver=driver, sandbox_mode=SandboxMode.DANGER_FULL_ACCESS)
            session = await stage.client.create_session("wait", config)
            while not running(marker):
                await asyncio.sleep(0.02)
            del session
            gc.collect()
            await wait_until_gone(marker)

    play(tmp_path, cwd, [shell(marker), say("Never said.")], scene)


def test_a_reader_that_does_not_read_cannot_hold_up_the_end(tmp_path: Path, cwd: Path) -> None:
    async def scene(stage: Stage) -> None:
        session = await stage.client.create_session("talk", CodexSessionConfig(driver="app-server"))
        assert isinstance(session, CodexThread)
        reader = session.events
        await until(reader, AgentMessageDeltaNotification)
        relay = session._relay
        while relay._end - relay._floor <= LIMIT:  # until nobody takes any more of the flood
            await asyncio.sleep(0.02)
        await session.cancel()
        assert (await until(reader, Exited)).code in (0, -9, -15)

    play(tmp_path, cwd, [say(["word "] * 6000)], scene)


def test_errors_say_what_to_do(tmp_path: Path, cwd: Path) -> None:
    async def scene(stage: Stage) -> None:
        unknown = "01a1ddd5-0000-7051-af10-170b63b2a1e6"
        exec_driver, app_server = CodexSessionConfig(), CodexSessionConfig(driver="app-server")
        for config in (exec_driver, app_server):
            with pytest.raises(SessionNotFound, match="list_sessions"):
                await stage.client.resume_session(unknown, "hello", config)
            with pytest.raises(SessionNotFound, match="session 'nobody' not found"):
                await stage.client.resume_session("nobody", "hello", config)
            with pytest.raises(NotInstalled, match="npm install -g @openai/codex"):
                await CodexClient(cwd, env={"PATH": "/nowhere"}).create_session("hello", config)
            with pytest.raises(LaunchError, match="not found: create it"):
                await CodexClient(cwd / "missing", CODEX, stage.environment.env).create_session("hello", config)
            empty = tmp_path / "empty-home"
            empty.mkdir(exist_ok=True)
            nobody = {"PATH": stage.environment.env["PATH"], "HOME": str(empty), "CODEX_HOME": str(empty)}
            with pytest.raises(NotSignedIn, match="codex login"):
                await CodexClient(cwd, CODEX, nobody).create_session("hello", config)
            bad = CodexSessionConfig(driver=config.driver, extra_args=("--no-such-option",))
            with pytest.raises(LaunchError, match="--no-such-option"):
                await stage.client.create_session("hello", bad)
        failing = await stage.client.create_session("hello", CodexSessionConfig(config={"model_provider": "scripted"}))
        await failing.close()
        assert (await stage.client.check_version()).version == VERSIONS.newest
        assert await stage.client.list_sessions() != []

    play(tmp_path, cwd, [say("Hello.")], scene)


def test_exec_reports_a_failed_turn(tmp_path: Path, cwd: Path) -> None:
    async def scene(stage: Stage) -> None:
        shutil.rmtree(cwd / ".git")
        nowhere = {"model_providers.scripted.base_url": "http://127.0.0.1:9/v1"}
        session = await stage.client.create_session("hello", CodexSessionConfig(config=nowhere))
        events = await whole_turn(session)
        assert [type(event) for event in events][-2:] == [CodexTurnFailed, Exited]
        assert events[-1].code == 1
        await session.close()

    play(tmp_path, cwd, [], scene)


def test_app_server_asks_before_mcp_tools_and_remembers(tmp_path: Path, cwd: Path) -> None:
    questions: list[Question] = []

    def ask(question: Question) -> Decision:
        questions.append(question)
        return AcceptForSession()

    async def scene(stage: Stage) -> None:
        server = {"command": "python3", "args": [str(tmp_path / "adder.py")]}
        config = CodexSessionConfig(can_use_tool=ask, model="scripted-model", mcp_servers={"adder": server})
        session = await stage.client.create_session("add", config)
        await whole_turn(session)
        (question,) = questions
        assert isinstance(question, McpServerElicitationRequest)
        assert question.call is not None
        assert (question.call.server, question.call.tool, question.tool_params) == (
            "adder",
            "add",
            {"a": 20000, "b": 3},
        )
        outputs = [request.outcomes[-1].output for request in stage.model.requests[1:]]
        assert [sum_ in output for sum_, output in zip(("20003", "40005"), outputs, strict=True)] == [True, True]
        await session.close()

    (tmp_path / "adder.py").write_text(ADDER)
    play(tmp_path, cwd, [mcp("adder", "add", a=20000, b=3), mcp("adder", "add", a=40000, b=5), say("Done.")], scene)


def test_app_server_asks_before_the_sandbox_is_widened(tmp_path: Path, cwd: Path) -> None:
    questions: list[Question] = []

    def ask(question: Question) -> Decision:
        questions.append(question)
        return AcceptForSession() if len(questions) == 1 else Decline()

    async def scene(stage: Stage) -> None:
        config = CodexSessionConfig(
            can_use_tool=ask, approval_policy=ApprovalPolicy.ON_REQUEST, enable=("request_permissions_tool",)
        )
        session = await stage.client.create_session("net", config)
        await whole_turn(session)
        assert [type(question) for question in questions] == [PermissionsRequestApproval] * 2
        granted, refused = (json.loads(request.outcomes[-1].output) for request in stage.model.requests[1:])
        assert (granted["permissions"]["network"], granted["scope"]) == ({"enabled": True}, "session")
        assert not any(refused["permissions"].values())
        await session.close()

    requests = [
        native("request_permissions", reason="why", permissions={"network": {"enabled": True}}),
        native("request_permissions", reason="why", permissions={"file_system": {"write": ["/etc"]}}),
    ]
    play(tmp_path, cwd, [*requests, say("Done.")], scene)


@pytest.mark.parametrize("driver", DRIVERS)
def test_images_instructions_and_schema_reach_the_model(tmp_path: Path, cwd: Path, driver: DriverName) -> None:
    schema = {"type": "object", "properties": {}, "additionalProperties": False, "required": []}

    async def scene(stage: Stage) -> None:
        config = CodexSessionConfig(
            driver=driver,
            images=("dot.png",),
            base_instructions="Be a pirate.",
            developer_instructions="Say arr.",
            output_schema=schema,
        )
        session = await stage.client.create_session("look", config)
        await whole_turn(session)
        await session.send("again", images=("dot.png",))
        await whole_turn(session)
        await session.close()
        first, second = stage.model.requests
        assert "Be a pirate." in first.system
        assert "Say arr." in str(first.body)
        assert first.body["text"]["format"]["schema"] == second.body["text"]["format"]["schema"] == schema
        assert [str(request.body).count("input_image") for request in (first, second)] == [1, 2]

    (cwd / "dot.png").write_bytes(DOT)
    play(tmp_path, cwd, [say("{}"), say("{}")], scene)


DOT = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)

ADDER = """
import json, sys
for line in sys.stdin:
    request = json.loads(line)
    if "id" not in request:
        continue
    if request["method"] == "initialize":
        version = request["params"]["protocolVersion"]
        server = {"name": "adder", "version": "1"}
        result = {"protocolVersion": version, "capabilities": {"tools": {}}, "serverInfo": server}
    elif request["method"] == "tools/list":
        schema = {"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}}}
        result = {"tools": [{"name": "add", "description": "Add", "inputSchema": schema}]}
    elif request["method"] == "tools/call":
        numbers = request["params"]["arguments"]
        result = {"content": [{"type": "text", "text": str(numbers["a"] + numbers["b"])}]}
    else:
        result = {}
    print(json.dumps({"jsonrpc": "2.0", "id": request["id"], "result": result}), flush=True)
"""
