"""The real Gemini CLI through ``stagedoor.open`` and ``stagedoor.run``, both drivers, on the scripted model."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import stagedoor
from stagedoor.testing import (
    Environment,
    ScriptedModel,
    edit_file,
    empty,
    find_cli,
    forever,
    http_error,
    mcp,
    native,
    plan,
    read_file,
    say,
    shell,
    stall,
    think,
    web_fetch,
    write_file,
)
from tests.processes import command_lines, with_environment

CLI = find_cli("gemini")
pytestmark = [pytest.mark.live, pytest.mark.skipif(CLI is None, reason="Gemini CLI is not installed")]
BOUND = 300.0
DRIVERS = ("acp", "stream-json")
MCP_SERVER = Path(__file__).parent.parent / "understudy" / "tools_server.py"


class Stage:
    """A folder, a home, and the options that keep the CLI between them."""

    def __init__(self, model: ScriptedModel, root: Path) -> None:
        self.root = root
        self.repo = root / "repo"
        self.repo.mkdir(exist_ok=True)
        self.model = model
        self.environment: Environment = model.environment("gemini", cwd=self.repo, home=root / "home")

    def options(self, **more: Any) -> dict[str, Any]:
        defaults = {
            "cwd": str(self.repo),
            "executable": str(CLI),
            "model": self.environment.model,
            "env": self.environment.env,
            "inherit_env": False,
        }
        return {**defaults, **more}

    def open(self, **more: Any) -> stagedoor.Session:
        return stagedoor.open("gemini", **self.options(**more))

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


async def turn(session: stagedoor.Session, prompt: str) -> list[stagedoor.Event]:
    async with asyncio.timeout(BOUND):
        return [event async for event in session.send(prompt)]


def of(events: list[stagedoor.Event], *kinds: type) -> list[Any]:
    return [event for event in events if isinstance(event, kinds)]


def outcomes(events: list[stagedoor.Event]) -> list[tuple[str, str, int | None]]:
    return [(event.name, event.status, event.exit_code) for event in of(events, stagedoor.ToolResult)]


@pytest.mark.parametrize("driver", DRIVERS)
def test_a_conversation(stage: Callable[..., Stage], driver: str) -> None:
    play = stage(
        [
            [think("Hm."), say("Working. ", chunks=2), shell("echo hi"), shell("echo no; exit 3")],
            [write_file("a.txt", "one\n"), plan([{"text": "x", "status": "completed"}, {"text": "y"}])],
            [edit_file("a.txt", "one", "two"), read_file("a.txt")],
            forever(say("Done.")),
        ]
    )

    async def main() -> None:
        async with play.open(tier="autonomous", driver=driver, raw=True) as session:
            everything = session.events
            events = await turn(session, "/about @a.txt")
            init = events[0]
            assert isinstance(init, stagedoor.Init)
            assert (init.cwd, init.model, init.resumed) == (str(play.repo), play.environment.model, False)
            assert [event.text for event in of(events, stagedoor.Text)] == ["Working. ", "Done."]
            assert "".join(event.text for event in of(events, stagedoor.TextDelta)) == "Working. Done."
            assert bool(of(events, stagedoor.Thinking)) is (driver == "acp")
            assert outcomes(events) == [
                ("shell", "success", 0),
                ("shell", "error", 3),
                ("write_file", "success", None),
                ("plan", "success", None),
                ("edit_file", "success", None),
                ("read_file", "success", None),
            ]
            assert of(events, stagedoor.ToolResult)[-1].output == "two\n"
            changes = [
                (event.path, event.change, event.before, event.after) for event in of(events, stagedoor.FileChange)
            ]
            assert changes == [("a.txt", "created", None, "one\n"), ("a.txt", "modified", "one\n", "two\n")]
            assert of(events, stagedoor.FileChange)[1].diff == "--- a/a.txt\n+++ b/a.txt\n@@ -1 +1 @@\n-one\n+two\n"
            assert of(events, stagedoor.Plan) == of(events, stagedoor.Plan)[:1]
            assert [(item.text, item.status) for item in of(events, stagedoor.Plan)[0].items] == [
                ("x", "completed"),
                ("y", "pending"),
            ]
            assert [event.target for event in of(events, stagedoor.ToolUse)][:2] == ["echo hi", "echo no; exit 3"]
            completed = events[-1]
            assert isinstance(completed, stagedoor.TurnCompleted)
            assert (completed.status, completed.result) == ("success", "Done.")
            assert completed.usage.input_tokens == 400

            again = await turn(session, "again")  # at once: its process has perhaps not even ended
            assert isinstance(again[-1], stagedoor.TurnCompleted)
            assert again[-1].usage.input_tokens == 100
            native_id = session.id

        last = [event async for event in everything][-1]
        assert isinstance(last, stagedoor.Done)
        assert (last.status, last.usage.input_tokens, last.tool_uses) == ("success", 500, 6)

        for other in DRIVERS:  # within the minute it was created in, too
            async with play.open(tier="dry-run", driver=other, resume=native_id) as session:
                events = await turn(session, "go on")
                assert isinstance(events[0], stagedoor.Init)
                assert (events[0].native_session_id, events[0].resumed) == (native_id, True)
                assert [event.text for event in of(events, stagedoor.Text)] == ["Done."]
        [stored] = stagedoor.history(play.repo, "gemini", env=play.environment.env)
        assert stored.session_id == native_id

        (play.root / "elsewhere").mkdir()
        elsewhere = {"cwd": str(play.root / "elsewhere"), "driver": driver, "resume": native_id}
        with pytest.raises(stagedoor.SessionNotFound, match="pass cwd="):
            await turn(play.open(**elsewhere), "where?")
        await play.nothing_left()

    asyncio.run(main())


def test_questions(stage: Callable[..., Stage]) -> None:
    play = stage(
        routes={
            "first": [
                [shell("echo asked"), shell("touch allowed"), shell("touch denied"), shell("touch edited")],
                [web_fetch("http://127.0.0.1:9/"), mcp("house", "add", a=1, b=2), write_file("a.txt", "x")],
                forever(say("Done.")),
            ],
            "second": [[shell("touch interrupted")], forever(say("Never."))],
            "third": [forever(say("Still here."))],
        }
    )
    questions: list[tuple[str, str]] = []

    async def ask(request: stagedoor.PermissionRequest) -> stagedoor.Allow | stagedoor.Deny:
        questions.append((request.tool_name, request.target))
        if "edited" in request.target:
            return stagedoor.Allow(updated_input={"command": "touch other"})
        if "interrupted" in request.target:
            return stagedoor.Deny("stop it", interrupt=True)
        allowed = request.tool_name in ("shell", "mcp") and "denied" not in request.target
        return stagedoor.Allow(remember="session") if allowed else stagedoor.Deny("not that")

    async def main() -> None:
        server = stagedoor.McpServer(command=sys.executable, args=(str(MCP_SERVER),))
        async with play.open(can_use_tool=ask, mcp_servers={"house": server}) as session:
            events = await turn(session, "first")
            results = of(events, stagedoor.ToolResult)
            assert [(event.name, event.status) for event in results] == [
                ("shell", "success"),
                ("shell", "success"),
                ("shell", "denied"),
                ("shell", "denied"),
                ("web_fetch", "denied"),
                ("mcp", "success"),
                ("write_file", "success"),
            ]
            assert results[2].output == "not that"
            assert "input" in results[3].output
            assert {event.by for event in of(events, stagedoor.PermissionResolved)} == {"callback"}

            events = await turn(session, "second")
            assert outcomes(events) == [("shell", "denied", None)]
            assert isinstance(events[-1], stagedoor.TurnCompleted)
            assert events[-1].status == "interrupted"

            events = await turn(session, "third")
            assert [event.text for event in of(events, stagedoor.Text)] == ["Still here."]
        await play.nothing_left()

    asyncio.run(main())
    assert [name for name, _ in questions] == ["shell"] * 4 + ["web_fetch", "mcp", "shell"]
    assert sorted(path.name for path in play.repo.iterdir()) == ["a.txt", "allowed"]


def test_nobody_to_ask(stage: Callable[..., Stage]) -> None:
    tries = [
        shell("touch made"),
        shell("curl -s 127.0.0.1:9"),
        write_file("a.txt", "x"),
        web_fetch("http://127.0.0.1:9/"),
    ]
    play = stage(routes={driver: [tries, forever(say("Done."))] for driver in DRIVERS})

    async def main() -> None:
        for driver in DRIVERS:
            async with play.open(driver=driver) as session:
                assert [(name, status) for name, status, _ in outcomes(await turn(session, driver))] == [
                    ("shell", "denied"),
                    ("shell", "denied"),
                    ("write_file", "success" if driver == "acp" else "denied"),
                    ("web_fetch", "denied"),
                ]

    asyncio.run(main())
    assert [path.name for path in play.repo.iterdir()] == ["a.txt"]


def test_everything_asks(stage: Callable[..., Stage]) -> None:
    play = stage([[write_file("package.json", "{}"), shell("echo x"), read_file("kept")], forever(say("Done."))])
    (play.repo / "kept").write_text("kept\n")
    questions: list[str] = []

    def ask(request: stagedoor.PermissionRequest) -> stagedoor.Allow:
        questions.append(request.tool_name)
        return stagedoor.Allow()

    async def main() -> None:
        async with play.open(approval="ask", can_use_tool=ask) as session:
            assert {status for _, status, _ in outcomes(await turn(session, "go"))} == {"success"}

    asyncio.run(main())
    assert questions == ["write_file", "shell"]


def snapshot(folder: Path) -> dict[str, str]:
    contents = {
        path: path.read_bytes() if path.is_file() else b"" for path in folder.rglob("*") if not path.is_symlink()
    }
    return {str(path): hashlib.sha256(content).hexdigest() for path, content in contents.items()}


@pytest.mark.parametrize("driver", DRIVERS)
def test_a_dry_run_changes_nothing(stage: Callable[..., Stage], driver: str) -> None:
    attempts = [
        write_file("new.txt", "x"),
        write_file("plan.md", "x"),
        edit_file("kept.txt", "one", "two"),
        shell("rm kept.txt"),
        shell("echo x > redirected"),
        shell("echo harmless"),
        shell("git commit --allow-empty -m x"),
        write_file("../outside.txt", "x"),
        shell("touch ../outside.txt"),
        native("exit_plan_mode", plan_filename="plan.md"),
        native("save_memory", fact="x"),
        mcp("house", "add", a=1, b=2),
        web_fetch("http://127.0.0.1:9/"),
    ]
    play = stage(
        [[*attempts, read_file("kept.txt")], [shell("touch late"), write_file("late.txt", "x")], forever(say("Done."))]
    )
    (play.repo / "kept.txt").write_text("one\n")
    git = ["git", "-c", "user.name=x", "-c", "user.email=x@example.com", "-C", str(play.repo)]
    for command in (["init", "-q"], ["add", "."], ["commit", "-q", "-m", "x"]):
        subprocess.run([*git, *command], check=True)
    theirs = play.environment.home / ".gemini" / "policies"
    theirs.mkdir()
    tools = '["run_shell_command", "write_file", "replace", "exit_plan_mode"]'
    (theirs / "mine.toml").write_text(f'[[rule]]\ntoolName = {tools}\ndecision = "allow"\npriority = 999\n')
    before, around = snapshot(play.repo), sorted(path.name for path in play.root.iterdir())

    async def main() -> None:
        server = stagedoor.McpServer(command=sys.executable, args=(str(MCP_SERVER),))
        more: dict[str, Any] = {"can_use_tool": lambda request: stagedoor.Allow()} if driver == "acp" else {}
        async with play.open(tier="dry-run", driver=driver, mcp_servers={"house": server}, **more) as session:
            events = await turn(session, "go")
            assert events[-1].status == "success"
            ended = {event.tool_use_id: event.status for event in of(events, stagedoor.ToolResult)}
            statuses = {
                (event.native_name, Path(event.target).name): ended[event.tool_use_id]
                for event in of(events, stagedoor.ToolUse)
            }
            ran = {call for call, status in statuses.items() if status == "success"}
            assert {call for call in ran if call[0] != "exit_plan_mode"} == {("read_file", "kept.txt")}
            assert {("run_shell_command", "touch late"), ("write_file", "late.txt")} <= set(statuses)
            assert of(events, stagedoor.FileChange) == []

    asyncio.run(main())
    assert snapshot(play.repo) == before
    assert sorted(path.name for path in play.root.iterdir()) == around


@pytest.mark.parametrize("driver", DRIVERS)
def test_failures_have_their_kind(stage: Callable[..., Stage], driver: str) -> None:
    play = stage(
        routes={
            "key": [forever(http_error(401, "Bad key."))],
            "nothing": [forever(empty())],
            "limit": [forever([shell("echo again"), shell("echo more")])],
        }
    )

    async def main() -> None:
        async with play.open(tier="autonomous", driver=driver) as session:
            events = await turn(session, "key")
            assert [(event.kind, event.fatal) for event in of(events, stagedoor.Error)] == [
                ("authentication_failed", True)
            ]
            assert of(events, stagedoor.Error)[0].message == "Bad key. (401 UNAUTHENTICATED)"
            assert events[-1].status == "error"
            events = await turn(session, "nothing")  # though there is nothing stored to resume
            assert [event.kind for event in of(events, stagedoor.Error)] == ["unknown"]
            assert events[-1].status == "error"
        async with play.open(tier="autonomous", driver=driver, max_turns=2) as session:
            events = await turn(session, "limit")
            assert events[-1].status == "max_turns"

    asyncio.run(main())


def test_a_dropped_session_leaves_nothing(stage: Callable[..., Stage]) -> None:
    play = stage([forever([say("Text. "), stall()])])

    async def main() -> None:
        for driver in DRIVERS:
            session = play.open(driver=driver)
            async with contextlib.aclosing(session.send("go")) as events:
                async for event in events:
                    if isinstance(event, stagedoor.TextDelta):
                        break
            del session, events
            await play.nothing_left()

    asyncio.run(main())


def test_images_reach_the_model(stage: Callable[..., Stage]) -> None:
    play = stage([forever(say("Nice."))])
    (play.repo / "dot.png").write_bytes(b"\x89PNG\r\n\x1a\n")

    async def main() -> None:
        async with play.open(images=("dot.png",)) as session:
            assert (await turn(session, "look"))[-1].status == "success"
        with pytest.raises(stagedoor.NotSupported, match="images"):
            play.open(images=("dot.png",), driver="stream-json")

    asyncio.run(main())
    assert "iVBORw0KGgo=" in str(play.model.requests[-1].body)


def test_discovered(stage: Callable[..., Stage]) -> None:
    play = stage([])
    assert CLI is not None
    env = {**play.environment.env, "PATH": f"{CLI.parent}:{play.environment.env['PATH']}"}
    [presence] = asyncio.run(stagedoor.discover(["gemini"], env=env))
    assert (presence.installed, presence.signed_in, presence.problem) == (True, True, "")
    assert presence.version >= "0.61.0"
    assert set(presence.drivers) == set(DRIVERS)
