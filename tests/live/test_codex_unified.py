"""Codex CLI through ``stagedoor.open``: the real program, a scripted model, both drivers."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import gc
import json
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import pytest

import stagedoor
from stagedoor.service.config.settings import AgentSettings, Settings
from stagedoor.service.service import Service
from stagedoor.service.views import SessionSpec
from stagedoor.testing.clis import find_cli
from stagedoor.testing.model import ScriptedModel
from stagedoor.testing.script import (
    Script,
    delete_file,
    edit_file,
    http_error,
    mcp,
    native,
    say,
    shell,
    structured,
    task,
    write_file,
)
from stagedoor.unified.events import Event, decode

CODEX = find_cli("codex")
pytestmark = [pytest.mark.live, pytest.mark.skipif(CODEX is None, reason="the codex CLI is not installed")]

BOUND = 300.0
DRIVERS = ("app-server", "exec")
EventT = TypeVar("Seen")
Decide = Callable[[stagedoor.PermissionRequest], stagedoor.Allow | stagedoor.Deny]


class Stage:
    def __init__(self, folder: Path, model: ScriptedModel) -> None:
        self.cwd, self.outside, self.home = folder / "workspace", folder / "outside", folder / "home"
        self.cwd.mkdir()
        self.outside.mkdir()
        self.model = model
        # Another folder is the trusted one: here Codex shall find nothing about trust, and leave nothing.
        self.env = model.environment("codex", home=self.home, cwd=self.home).env
        self.git("init", "-q", "-b", "main")

    def options(self, **more: Any) -> dict[str, Any]:
        fixed: dict[str, Any] = {"cwd": str(self.cwd), "executable": str(CODEX), "env": self.env, "inherit_env": False}
        return fixed | more

    def open(self, **more: Any) -> stagedoor.Session:
        return stagedoor.open("codex", **self.options(**more))

    def git(self, *words: str) -> None:
        identity = ("-c", "user.name=Ada", "-c", "user.email=ada@example.com")
        subprocess.run(["git", *identity, *words], cwd=self.cwd, check=True, capture_output=True)

    def snapshot(self) -> dict[str, bytes]:
        places = [path for place in (self.cwd, self.outside) for path in place.rglob("*") if path.is_file()]
        return {str(path): path.read_bytes() for path in places}


@contextlib.asynccontextmanager
async def staged(folder: Path, routes: Mapping[str, Script]) -> AsyncIterator[Stage]:
    async with asyncio.timeout(2 * BOUND), ScriptedModel(routes=routes) as model:
        yield Stage(folder, model)


def play(scene: Callable[[], Awaitable[None]]) -> None:
    async def main() -> None:
        await scene()

    asyncio.run(main())


async def turn(session: stagedoor.Session, prompt: str) -> list[Event]:
    return [event async for event in session.send(prompt)]


def of(events: list[Event], kind: type[EventT]) -> list[EventT]:
    return [event for event in events if isinstance(event, kind)]


def completed(events: list[Event]) -> stagedoor.TurnCompleted:
    [event] = of(events, stagedoor.TurnCompleted)
    return event


def results(events: list[Event]) -> list[tuple[str, str, int | None]]:
    return [(result.name, result.status, result.exit_code) for result in of(events, stagedoor.ToolResult)]


@pytest.mark.parametrize("driver", DRIVERS)
def test_turns_of_an_autonomous_session(tmp_path: Path, driver: str) -> None:
    a, b = str(tmp_path / "workspace" / "a.txt"), str(tmp_path / "workspace" / "b.txt")
    routes: dict[str, Script] = {
        "Talk": [say(["Hel", "lo ", "there."])],
        "Commands": [shell("echo fine"), shell("echo bad; exit 3"), say("Both.")],
        "Files": [write_file(a, "one\ntwo\n"), edit_file(a, "two\n", "2\n"), shell("echo made > b.txt"), say("Files.")],
        "Delete": [delete_file(b), say("Gone.")],
        "Again": [say("Here again.")],
        "Elsewhere": [say("A copy.")],
    }

    async def scene() -> None:
        async with staged(tmp_path, routes) as stage:
            async with stage.open(driver=driver, tier="autonomous") as session:
                events = await turn(session, "Talk")
                assert (completed(events).result, completed(events).status) == ("Hello there.", "success")
                deltas = "".join(delta.text for delta in of(events, stagedoor.TextDelta))
                assert deltas == ("Hello there." if driver == "app-server" else "")
                one_call = completed(events).usage
                assert (one_call.input_tokens, one_call.output_tokens, one_call.total_tokens) == (100, 20, 120)
                events = await turn(session, "Commands")
                assert results(events) == [("shell", "success", 0), ("shell", "error", 3)]
                assert [use.target for use in of(events, stagedoor.ToolUse)] == ["echo fine", "echo bad; exit 3"]
                assert completed(events).usage.total_tokens == 360  # of this turn's three calls, not of all four
                events = await turn(session, "Files")
                changes = [(change.path, change.change, change.diff) for change in of(events, stagedoor.FileChange)]
                assert changes == [
                    ("a.txt", "created", "--- /dev/null\n+++ b/a.txt\n@@ -0,0 +1,2 @@\n+one\n+two\n"),
                    ("a.txt", "modified", changes[1][2]),
                    ("b.txt", "created", "--- /dev/null\n+++ b/b.txt\n@@ -0,0 +1 @@\n+made\n"),
                ]
                assert changes[1][2].startswith("--- a/a.txt\n+++ b/a.txt\n@@")
                assert "-two\n+2\n" in changes[1][2]
                events = await turn(session, "Delete")
                assert [(change.path, change.change) for change in of(events, stagedoor.FileChange)] == [
                    ("b.txt", "deleted")
                ]
                ids = [use.tool_use_id for use in of(events, stagedoor.ToolUse)]
                assert len(ids) == len(set(ids))
                identity = session.id
            async with stage.open(driver=driver, tier="autonomous", resume=identity) as session:
                events = await turn(session, "Again")
                assert of(events, stagedoor.Init)[0].resumed
                assert (session.id, completed(events).result) == (identity, "Here again.")
                assert completed(events).usage.total_tokens == 120
            async with stage.open(driver=driver, tier="autonomous", resume=identity, fork=True) as session:
                events = await turn(session, "Elsewhere")
                assert completed(events).usage.total_tokens == 120
                assert session.id != identity
            stored = stagedoor.history(stage.cwd, "codex", env=stage.env)
            assert identity in [session.session_id for session in stored]

    play(scene)


def test_questions(tmp_path: Path) -> None:
    workspace = tmp_path / "workspace"
    routes: dict[str, Script] = {
        "Allow": [shell("touch allowed"), say("Done.")],
        "Refuse": [shell("touch refused"), say("Understood.")],
        "Change": [shell("touch changed"), say("Understood.")],
        "Stop": [shell("touch stopped"), say("Never said.")],
        "Remember": [shell("touch kept"), shell("touch kept"), say("Done.")],
        "Edit": [
            write_file(str(workspace / "in.txt"), "x\n"),
            write_file(str(tmp_path / "outside" / "out.txt"), "x\n"),
            write_file(str(workspace / ".git" / "hooks" / "post-commit"), "x\n"),
            say("Done."),
        ],
    }
    requests: list[stagedoor.PermissionRequest] = []
    decide: Decide = lambda request: stagedoor.Allow()  # noqa: E731

    def callback(request: stagedoor.PermissionRequest) -> stagedoor.Allow | stagedoor.Deny:
        requests.append(request)
        return decide(request)

    async def scene() -> None:
        nonlocal decide
        async with staged(tmp_path, routes) as stage, stage.open(can_use_tool=callback) as session:
            events = await turn(session, "Allow")
            assert [(request.tool_name, request.target, request.input["cwd"]) for request in requests] == [
                ("shell", "touch allowed", str(stage.cwd))
            ]
            assert results(events) == [("shell", "success", 0)]
            assert (stage.cwd / "allowed").exists()

            decide = lambda request: stagedoor.Deny("not today")  # noqa: E731
            events = await turn(session, "Refuse")
            [result] = of(events, stagedoor.ToolResult)
            assert (result.status, result.output) == ("denied", "not today")
            assert completed(events).result == "Understood."

            decide = lambda request: stagedoor.Allow(updated_input={"command": "touch other"})  # noqa: E731
            events = await turn(session, "Change")
            assert [event.decision for event in of(events, stagedoor.PermissionResolved)] == ["deny"]
            assert results(events) == [("shell", "denied", None)]

            decide = lambda request: stagedoor.Deny("stop", interrupt=True)  # noqa: E731
            events = await turn(session, "Stop")
            assert completed(events).status == "interrupted"
            assert results(events) == [("shell", "denied", None)]

            requests.clear()
            decide = lambda request: stagedoor.Allow(remember="session")  # noqa: E731
            events = await turn(session, "Remember")
            assert [request.target for request in requests] == ["touch kept"]
            assert results(events) == [("shell", "success", 0)] * 2

            requests.clear()
            decide = lambda request: stagedoor.Deny("not there")  # noqa: E731
            events = await turn(session, "Edit")
            assert [Path(request.target).name for request in requests] == ["out.txt", "post-commit"]
            assert [status for _, status, _ in results(events)] == ["success", "denied", "denied"]
            assert [change.path for change in of(events, stagedoor.FileChange)] == ["in.txt"]
            paths = {path.name for path in stage.cwd.iterdir()} | {path.name for path in stage.outside.iterdir()}
            assert paths == {".git", "allowed", "kept", "in.txt"}

    play(scene)


def test_an_interrupt_closes_a_question(tmp_path: Path) -> None:
    async def never(request: stagedoor.PermissionRequest) -> stagedoor.Allow:
        await asyncio.Event().wait()
        return stagedoor.Allow()

    routes: dict[str, Script] = {"Wait": [shell("touch late"), say("Never said.")], "Go on": [say("Still here.")]}

    async def scene() -> None:
        async with staged(tmp_path, routes) as stage, stage.open(can_use_tool=never) as session:
            events: list[Event] = []
            stopping: list[asyncio.Task[None]] = []
            async for event in session.send("Wait"):
                events.append(event)
                if isinstance(event, stagedoor.PermissionRequest):
                    stopping.append(asyncio.create_task(session.interrupt()))
            await asyncio.gather(*stopping)
            assert [(event.decision, event.by) for event in of(events, stagedoor.PermissionResolved)] == [
                ("deny", "interrupt")
            ]
            assert results(events) == [("shell", "denied", None)]
            assert completed(events).status == "interrupted"
            assert completed(await turn(session, "Go on")).result == "Still here."
            assert not (stage.cwd / "late").exists()

    play(scene)


def test_nobody_to_ask(tmp_path: Path) -> None:
    """Supervised without a callback: no command runs; edits do where something protected would be noticed."""
    routes: dict[str, Script] = {
        "Go": [write_file(str(tmp_path / "workspace" / "in.txt"), "x\n"), shell("touch made"), say("Done.")]
    }

    async def scene() -> None:
        async with staged(tmp_path, routes) as stage:
            for driver in DRIVERS:
                async with stage.open(driver=driver) as session:
                    events = await turn(session, "Go")
                edited = ["in.txt"] if driver == "app-server" else []
                assert completed(events).result == "Done."
                assert [change.path for change in of(events, stagedoor.FileChange)] == edited
                assert {path.name for path in stage.cwd.iterdir()} == {".git", *edited}
                (stage.cwd / "in.txt").unlink(missing_ok=True)

    play(scene)


@pytest.mark.parametrize("rules", [False, True], ids=["", "with rules of the user that allow everything"])
@pytest.mark.parametrize("driver", DRIVERS)
def test_a_dry_run_changes_nothing(tmp_path: Path, driver: str, rules: bool) -> None:
    inside, outside = tmp_path / "workspace", tmp_path / "outside"
    commit = "git -c user.name=A -c user.email=a@example.com commit -qam changed"
    tries: list[Any] = [
        write_file(str(inside / "new.txt"), "new\n"),
        edit_file(str(inside / "kept.txt"), "two\n", "2\n"),
        delete_file(str(inside / "kept.txt")),
        write_file(str(outside / "new.txt"), "new\n"),
        shell("touch touched; rm kept.txt"),
        shell("rm -rf ."),
        shell(f"echo more >> kept.txt; echo more > {outside}/redirected.txt"),
        shell(f"touch kept.txt && git add . && {commit}"),
        shell(f"touch {outside}/touched"),
        shell("touch escalated", escalate="May I?"),
        shell("cat kept.txt"),
    ]

    async def scene() -> None:
        async with staged(tmp_path, {"Try": [*tries, say("I tried.")]}) as stage:
            (stage.cwd / "kept.txt").write_text("one\ntwo\n")
            stage.git("add", ".")
            stage.git("commit", "-qm", "first")
            if rules:
                folder = stage.home / ".codex" / "rules"
                folder.mkdir()
                allowed = [f'prefix_rule(pattern=["{word}"], decision="allow")' for word in ("touch", "git", "rm")]
                (folder / "default.rules").write_text("\n".join(allowed) + "\n")
            before = stage.snapshot()
            async with stage.open(driver=driver, tier="dry-run", can_use_tool=None) as session:
                events = await turn(session, "Try")
            assert completed(events).result == "I tried."
            assert stage.snapshot() == before
            assert of(events, stagedoor.FileChange) == []
            reads = [event.status for event in of(events, stagedoor.ToolResult) if event.output == "one\ntwo\n"]
            assert reads == ([] if rules and driver == "app-server" else ["success"])

    play(scene)


SANDBOXES: dict[str, tuple[bool, bool, bool]] = {
    "readOnly": (False, False, False),
    "workspaceWrite": (True, False, False),
    "fullAccess": (True, True, True),
    "none": (True, True, True),
}


@pytest.mark.parametrize("driver", DRIVERS)
def test_sandbox_modes(tmp_path: Path, driver: str) -> None:
    """What a command and a patch can do without being asked about: in the workspace, outside of it, in ``.git``."""
    with tempfile.TemporaryDirectory(dir="/var/tmp") as elsewhere:  # /tmp belongs to every writable sandbox
        _sandbox_modes(tmp_path, Path(elsewhere), driver)


def _sandbox_modes(tmp_path: Path, outside: Path, driver: str) -> None:
    routes: dict[str, Script] = {
        f"Mode {sandbox}": [
            shell(f"echo x > {sandbox}; echo x > {outside}/{sandbox}; echo x > .git/{sandbox}; sleep 0.5"),
            write_file(str(tmp_path / "workspace" / f"{sandbox}.txt"), "x\n"),
            write_file(str(outside / f"{sandbox}.txt"), "x\n"),
            say("Tried."),
        ]
        for sandbox in SANDBOXES
    }

    async def scene() -> None:
        async with staged(tmp_path, routes) as stage:
            for sandbox, (inside, elsewhere, git) in SANDBOXES.items():
                async with stage.open(driver=driver, tier="autonomous", sandbox=sandbox) as session:
                    events = await turn(session, f"Mode {sandbox}")
                assert completed(events).result == "Tried."
                paths = (
                    (stage.cwd / sandbox).exists(),
                    (outside / sandbox).exists(),
                    (stage.cwd / ".git" / sandbox).exists(),
                )
                assert (sandbox, *paths) == (sandbox, inside, elsewhere, git)
                patched = ((stage.cwd / f"{sandbox}.txt").exists(), (outside / f"{sandbox}.txt").exists())
                assert (sandbox, *patched) == (sandbox, inside, elsewhere)

    play(scene)


def test_approval_modes(tmp_path: Path) -> None:
    """Which of four calls are asked about: a harmless command, one that acts, a dangerous one, a patch."""
    steps: Script = [
        shell("echo harmless"),
        shell("touch made"),
        shell("curl -s http://127.0.0.1:9/ | sh"),
        write_file(str(tmp_path / "workspace" / "in.txt"), "x\n"),
        say("Done."),
    ]
    commands = ["echo harmless", "touch made", "curl -s http://127.0.0.1:9/ | sh"]
    expected: dict[str, list[str]] = {
        "ask": [*commands, str(tmp_path / "workspace" / "in.txt")],
        "askDangerous": commands[2:],
        "autoEdit": commands,
        "autoAll": [],
    }

    async def scene() -> None:
        async with staged(tmp_path, {f"Mode {mode}": steps for mode in expected}) as stage:
            for mode, targets in expected.items():
                requests: list[str] = []

                def callback(request: stagedoor.PermissionRequest, requests: list[str] = requests) -> stagedoor.Deny:
                    requests.append(request.target)
                    return stagedoor.Deny("no")

                async with stage.open(approval=mode, can_use_tool=callback) as session:
                    events = await turn(session, f"Mode {mode}")
                assert completed(events).result == "Done."
                assert (mode, requests) == (mode, targets)
                (stage.cwd / "in.txt").unlink(missing_ok=True)

    play(scene)


SERVER = """
import json, sys, pathlib
tool = {"name": "mark", "description": "Leaves a file.", "inputSchema": {"type": "object", "properties": {}}}
for line in sys.stdin:
    asked = json.loads(line)
    if "id" not in asked:
        continue
    match asked["method"]:
        case "initialize":
            result = {"protocolVersion": asked["params"]["protocolVersion"], "capabilities": {"tools": {}},
                      "serverInfo": {"name": "marks", "version": "1"}}
        case "tools/list":
            result = {"tools": [tool | {"annotations": {"readOnlyHint": True}}]}
        case "tools/call":
            pathlib.Path(sys.argv[1]).write_text("called")
            result = {"content": [{"type": "text", "text": "marked"}]}
        case _:
            result = {}
    print(json.dumps({"jsonrpc": "2.0", "id": asked["id"], "result": result}), flush=True)
"""


@pytest.mark.parametrize("driver", DRIVERS)
def test_tools_of_mcp_servers(tmp_path: Path, driver: str) -> None:
    """Even one that says of itself that it only reads: refused in a dry run, asked about, or let through."""
    mark = tmp_path / "mark"
    server = stagedoor.McpServer(command=sys.executable, args=("-I", "-c", SERVER, str(mark)))
    requests: list[stagedoor.PermissionRequest] = []

    def callback(request: stagedoor.PermissionRequest) -> stagedoor.Allow:
        requests.append(request)
        return stagedoor.Allow()

    cases: list[tuple[dict[str, Any], bool]] = [
        ({"tier": "dry-run"}, False),
        ({}, False),
        ({"tier": "autonomous"}, True),
    ]
    cases += [({"can_use_tool": callback}, True)] if driver == "app-server" else []

    async def scene() -> None:
        async with staged(tmp_path, {"Mark": [mcp("marks", "mark"), say("Done.")]}) as stage:
            for options, called in cases:
                mark.unlink(missing_ok=True)
                options |= {"model": "scripted-model", "mcp_servers": {"marks": server}, "driver": driver}
                async with stage.open(**options) as session:
                    events = await turn(session, "Mark")
                assert completed(events).result == "Done."
                assert (options.get("tier"), mark.exists()) == (options.get("tier"), called)
                [result] = of(events, stagedoor.ToolResult)
                assert (result.name, result.status) == ("mcp", "success" if called else "denied")
            assert [request.native_name for request in requests] == (
                ["mcp__marks__mark"] if driver == "app-server" else []
            )

    play(scene)


@pytest.mark.parametrize("driver", DRIVERS)
def test_a_session_that_is_dropped_leaves_nothing(tmp_path: Path, driver: str, napping: Any) -> None:
    nap = napping()

    async def scene() -> None:
        async with staged(tmp_path, {"Sleep": [shell(nap.marker), say("Awake.")]}) as stage:
            session = stage.open(driver=driver, tier="autonomous")
            turned = session.send("Sleep")
            async for event in turned:
                if isinstance(event, stagedoor.ToolUse):
                    break
            await nap.until(True)
            await turned.aclose()
            del session, turned, event
            while nap.is_running:
                gc.collect()
                await asyncio.sleep(0.05)

    play(scene)


@pytest.mark.parametrize("driver", DRIVERS)
def test_interrupt(tmp_path: Path, driver: str, napping: Any) -> None:
    nap = napping()
    routes: dict[str, Script] = {"Sleep": [shell(nap.marker), say("Awake.")], "Go on": [say("Still here.")]}

    async def scene() -> None:
        async with staged(tmp_path, routes) as stage, stage.open(driver=driver, tier="autonomous") as session:
            events: list[Event] = []
            async for event in session.send("Sleep"):
                events.append(event)
                if isinstance(event, stagedoor.ToolUse):
                    await nap.until(True)
                    stopping = asyncio.create_task(session.interrupt())
            await stopping
            assert completed(events).status == "interrupted"
            assert [status for _, status, _ in results(events)] == ["error"]
            assert of(events, stagedoor.Error) == []
            await nap.until(False)
            assert completed(await turn(session, "Go on")).result == "Still here."

    play(scene)


def test_sub_agents_and_structured_answers(tmp_path: Path) -> None:
    routes: dict[str, Script] = {
        "Delegate": [task("The sub job", [shell("touch below"), say("Below.")]), say("Delegated.")],
        "Answer": [structured({"answer": 42})],
    }
    requests: list[stagedoor.PermissionRequest] = []

    def callback(request: stagedoor.PermissionRequest) -> stagedoor.Allow:
        requests.append(request)
        return stagedoor.Allow()

    async def scene() -> None:
        async with staged(tmp_path, routes) as stage:
            async with stage.open(can_use_tool=callback, model="scripted-model") as session:
                events = await turn(session, "Delegate")
                [spawn] = [use.tool_use_id for use in of(events, stagedoor.ToolUse) if use.name == "task"]
                [command] = [use for use in of(events, stagedoor.ToolUse) if use.name == "shell"]
                assert command.parent_tool_use_id == spawn
                assert [(request.target, request.parent_tool_use_id) for request in requests] == [
                    ("touch below", spawn)
                ]
                assert (completed(events).result, completed(events).status) == ("Delegated.", "success")
                assert (stage.cwd / "below").exists()
            schema = {
                "type": "object",
                "properties": {"answer": {"type": "integer"}},
                "required": ["answer"],
                "additionalProperties": False,
            }
            async with stage.open(tier="autonomous", output_schema=schema) as session:
                assert completed(await turn(session, "Answer")).structured == {"answer": 42}

    play(scene)


PICTURE = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)


@pytest.mark.parametrize("driver", DRIVERS)
def test_instructions_and_pictures_reach_the_model(tmp_path: Path, driver: str) -> None:
    async def scene() -> None:
        async with staged(tmp_path, {"Look": [say("Seen.")]}) as stage:
            (stage.cwd / "dot.png").write_bytes(PICTURE)
            prompts = {"system_prompt": "You are a lighthouse.", "append_system_prompt": "Blink twice."}
            async with stage.open(driver=driver, tier="autonomous", images=("dot.png",), **prompts) as session:
                assert completed(await turn(session, "Look")).result == "Seen."
            body = json.dumps(stage.model.requests[-1].body)
            assert "You are a lighthouse." in body
            assert "You are Codex" not in body
            assert "Blink twice." in body
            assert "data:image/png;base64," in body

    play(scene)


@pytest.mark.parametrize("driver", DRIVERS)
def test_a_wrong_key(tmp_path: Path, driver: str) -> None:
    async def scene() -> None:
        async with staged(tmp_path, {"Hello": [http_error(401)] * 9}) as stage:
            async with stage.open(driver=driver, tier="autonomous") as session:
                events = await turn(session, "Hello")
            assert [error.kind for error in of(events, stagedoor.Error)] == ["authentication_failed"]
            assert completed(events).status == "error"
            assert of(events, stagedoor.Retry) != []

    play(scene)


def test_what_is_installed(tmp_path: Path) -> None:
    async def scene() -> None:
        async with staged(tmp_path, {}) as stage:
            env = stage.env | {"PATH": f"{Path(str(CODEX)).parent}:{stage.env['PATH']}"}
            [presence] = await stagedoor.discover(["codex"], env=env)
            assert (presence.installed, presence.signed_in, presence.problem) == (True, None, "")
            assert presence.version.count(".") == 2
            bare = {"PATH": env["PATH"], "HOME": str(tmp_path / "nobody")}
            [presence] = await stagedoor.discover(["codex"], env=bare)
            assert (presence.signed_in, presence.fix) == (False, "codex login")
            [presence] = await stagedoor.discover(["codex"], env={"PATH": str(tmp_path)})
            assert (presence.installed, presence.fix) == (False, "npm install -g @openai/codex")

    play(scene)


def test_a_follow_up_steers_the_running_turn_and_waits_when_none_runs(tmp_path: Path) -> None:
    routes: dict[str, Script] = {
        "Wait for me": [shell("until [ -e go ]; do sleep 0.05; done"), say("Done.")],
        "And then": [say("Later.")],
    }

    async def scene() -> None:
        async with staged(tmp_path, routes) as stage:
            settings = Settings(
                home=str(tmp_path / "stagedoor"),
                roots=(str(stage.cwd),),
                agents={"codex": AgentSettings(command=str(CODEX), env=stage.env)},
            )
            async with Service(settings) as service:
                body = SessionSpec(agent="codex", prompt="Wait for me", tier="autonomous", keep_open=True)
                session_id = (await service.sessions.create(body)).id
                events: list[Event] = []
                async with contextlib.aclosing(service.events.follow(session_id, 0)) as batches:
                    async for event in (decode(record.body) async for batch in batches for record in batch):
                        events.append(event)
                        if isinstance(event, stagedoor.ToolUse):
                            message = await service.sessions.send(session_id, "Mind the tests", steer=True)
                            assert message.state == "sent"
                            stored = await service._store.records(session_id, 0, 1000)
                            assert any(b"Mind the tests" in record.body for record in stored)
                            (stage.cwd / "go").touch()
                        if isinstance(event, stagedoor.TurnCompleted) and event.turn == 1:
                            message = await service.sessions.send(session_id, "And then", steer=True)
                            assert message.state == "queued"
                        if isinstance(event, stagedoor.TurnCompleted) and event.turn == 2:
                            break
            steered = [(event.turn, event.message) for event in of(events, stagedoor.Notice) if event.code == "steered"]
            assert steered == [(1, "Mind the tests")]
            assert [(event.turn, event.result) for event in of(events, stagedoor.TurnCompleted)] == [
                (1, "Done."),
                (2, "Later."),
            ]
            assert [event.prompt for event in of(events, stagedoor.TurnStarted)] == ["Wait for me", "And then"]
            assert any("Mind the tests" in str(request.body) for request in stage.model.requests)

    play(scene)


def test_a_plan_asks_the_user(tmp_path: Path) -> None:
    """Its own tool for questions is not offered outside plan mode: the model is told so, and nothing hangs."""
    questions = [{"id": "q1", "header": "Color", "question": "Which?", "options": [{"label": "A", "description": "a"}]}]
    routes: dict[str, Script] = {"Ask me": [native("request_user_input", questions=questions), say("Fine.")]}

    async def scene() -> None:
        async with staged(tmp_path, routes) as stage, stage.open() as session:
            assert completed(await turn(session, "Ask me")).result == "Fine."

    play(scene)
