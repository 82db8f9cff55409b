"""Real CLIs in a sandbox of ours: their model's shell and write tool try to get out, and what became of it is looked at
from outside. ``STAGEDOOR_CONTRACT=1`` plays every agent, driver and level; without it a few stand for all."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

import stagedoor
from stagedoor import catalog
from stagedoor.testing import ScriptedModel, say, shell, write_file
from stagedoor.testing.clis import find_cli
from stagedoor.transports.confinement.mechanism import CHOSEN_BY, trial

BOUND = 300.0
EVERY_CELL = os.environ.get("STAGEDOOR_CONTRACT") == "1"
CELLS = [
    (name, driver, level)
    for name in catalog.names()
    for driver in catalog.agent(name).drivers
    for level in ("workspace", "read-only")
]
STAND_FOR_ALL = {
    ("claude", "stream", "workspace"),
    ("codex", "app-server", "read-only"),
    ("codex", "exec", "workspace"),
}
OTHER_MEANS = ("namespaces", "landlock")


class Escape:
    """A folder for the agent, and one that is none of its business."""

    def __init__(self, folder: Path) -> None:
        self.cwd, self.home, self.outside = (folder / name for name in ("cwd", "home", "outside"))
        for place in (self.cwd, self.home, self.outside):
            place.mkdir()
        subprocess.run(["git", "init", "-q", str(self.cwd)], check=True)
        (self.outside / "file").write_text("whole")
        self.other = subprocess.Popen(["sleep", "600"], cwd=self.outside)

    def close(self) -> None:
        self.other.kill()
        self.other.wait()

    def script(self, settings: tuple[str, ...]) -> str:
        out = self.outside
        ways = [
            "touch made-inside", f"touch {out}/made", f"echo more >> {out}/file", f"mv {out}/file {out}/moved",
            f"ln -s {out}/file link", "echo more >> link", f"ln {out}/file hard", f"chmod 777 {out}/file",
            f"setsid -w sh -c 'touch {out}/detached'", f"touch {self.home}/.bashrc", "mount -o remount,rw,bind /",
            f"unshare -Urm sh -c 'mount -o remount,rw,bind /; touch {out}/unshared'",
            "sh -c ': >> /proc/sys/kernel/core_pattern' && touch core-pattern-is-open",
            f"touch /proc/{self.other.pid}/cwd/made", f"kill -9 {self.other.pid}", "echo x > .git/hooks/pre-commit",
            *(f"touch {path}planted" if path.endswith("/") else f"echo x >> {path}" for path in settings),
        ]  # fmt: skip
        return "; ".join(ways) + "; true"

    def calls(self, settings: tuple[str, ...]) -> list[Any]:
        return [
            shell(self.script(settings)),
            write_file(str(self.cwd / "written-inside"), "x"),
            write_file(str(self.outside / "written"), "x"),
            write_file(str(self.home / ".profile"), "x"),
        ]

    def contents(self) -> dict[str, bytes]:
        places = [*self.outside.rglob("*"), *self.home.glob(".*rc"), *self.home.glob(".profile")]
        places += (self.cwd / ".git" / "hooks").iterdir()
        return {str(path): path.read_bytes() for path in places if path.is_file()}


def settings_of(paths: tuple[str, ...]) -> dict[str, object]:
    """What each of them says; one that is missing says as much as one that is empty."""
    found: dict[str, object] = {}
    for path in map(Path, paths):
        if path.is_dir():
            found[str(path)] = sorted(str(one) for one in path.rglob("*"))
        else:
            found[str(path)] = path.read_bytes() if path.exists() else b""
    return {path: said for path, said in found.items() if said not in (b"", b"{}\n", [])}


@pytest.fixture
def escape() -> Iterator[Escape]:
    with tempfile.TemporaryDirectory(prefix="stagedoor-confine-", dir="/var/tmp", ignore_cleanup_errors=True) as folder:
        escape = Escape(Path(folder).resolve())
        try:
            yield escape
        finally:
            escape.close()


async def play(agent: str, options: dict[str, Any]) -> list[stagedoor.Event]:
    async with asyncio.timeout(BOUND):
        return [event async for event in stagedoor.run(agent, "Go on", **options)]


def embedded(escape: Escape, calls: list[Any]) -> dict[str, Any]:
    script = escape.outside.parent / "script.yaml"
    steps = [{"call": {"tool": call.tool, "input": dict(call.input)}} for call in calls]
    script.write_text(yaml.safe_dump([*steps, {"say": "Done."}]))
    env = {"PATH": os.environ["PATH"], "HOME": str(escape.home)}
    return {"env": env, "extra_args": ("--script", str(script))}


@pytest.mark.live
@pytest.mark.parametrize(("agent", "driver", "level"), CELLS, ids=["-".join(cell) for cell in CELLS])
def test_nothing_gets_out(agent: str, driver: str, level: str, escape: Escape) -> None:
    if not EVERY_CELL and (agent, driver, level) not in STAND_FOR_ALL and agent != "understudy":
        pytest.skip("STAGEDOOR_CONTRACT=1 plays it")
    if reason := asyncio.run(trial("bubblewrap")):
        pytest.skip(f"bubblewrap does not work here: {reason}")
    confined(agent, driver, level, escape, with_mounts=True)


@pytest.mark.parametrize("level", ["workspace", "read-only"])
@pytest.mark.parametrize("means", OTHER_MEANS)
def test_nothing_gets_out_by_other_means(
    means: Any, level: str, escape: Escape, monkeypatch: pytest.MonkeyPatch
) -> None:
    if reason := asyncio.run(trial(means)):
        pytest.skip(f"{means} does not work here: {reason}")
    monkeypatch.setenv(CHOSEN_BY, means)
    agents = [("understudy", "acp")]
    agents += [
        (agent, driver) for agent, driver, which in CELLS if which == level and EVERY_CELL and agent != "understudy"
    ]
    for agent, driver in agents:
        for place in (escape.cwd, escape.home):
            shutil.rmtree(place)
            place.mkdir()
        subprocess.run(["git", "init", "-q", str(escape.cwd)], check=True)
        confined(agent, driver, level, escape, with_mounts=means == "namespaces")


def confined(agent: str, driver: str, level: str, escape: Escape, *, with_mounts: bool) -> None:
    state = catalog.agent(agent).state
    assert state is not None
    with ScriptedModel() as model:
        if agent == "understudy":
            program, env = None, {"HOME": str(escape.home)}
        else:
            found = find_cli(agent)
            if found is None:
                pytest.skip(f"{agent} is not installed: run `make clis`")
            program, env = str(found), model.environment(agent, home=escape.home, cwd=escape.cwd).env
        project = [escape.cwd / path.path for path in catalog.agent(agent).project_paths if path.path == ".mcp.json"]
        for place in project:
            place.write_text("{}")
        settings = (*state(env).settings, *map(str, project)) if with_mounts else ()
    calls = escape.calls(settings)
    with ScriptedModel([*calls, say("Done.")]) as model:
        if program is None:
            options = embedded(escape, calls)
        else:
            options = {"env": model.environment(agent, home=escape.home, cwd=escape.cwd).env, "executable": program}
        options |= {"cwd": escape.cwd, "driver": driver, "inherit_env": False, "tier": "autonomous", "confine": level}
        before, said = escape.contents(), settings_of(settings)
        mode = (escape.outside / "file").stat().st_mode
        events = asyncio.run(play(agent, options))
    results = [event for event in events if isinstance(event, stagedoor.ToolResult)]
    assert any(event.name == "shell" for event in results), events  # it was really tried
    if not with_mounts:
        before = {path: content for path, content in before.items() if ".git/hooks" not in path}
    assert {
        path: content for path, content in escape.contents().items() if with_mounts or ".git/hooks" not in path
    } == before
    assert settings_of(settings) == said
    assert escape.other.poll() is None
    assert not (escape.cwd / "core-pattern-is-open").exists()
    assert with_mounts is False or (escape.outside / "file").stat().st_mode == mode
    made = {name for name in ("made-inside", "written-inside") if (escape.cwd / name).exists()}
    assert made == ({"made-inside", "written-inside"} if level == "workspace" else set())
    assert isinstance(events[-1], stagedoor.Done)


@pytest.mark.live
@pytest.mark.parametrize("means", ["bubblewrap", *OTHER_MEANS])
def test_an_interrupt_reaches_a_confined_cli(means: Any, escape: Escape, monkeypatch: pytest.MonkeyPatch) -> None:
    """Codex ``exec`` is interrupted by a signal, which is not for the sandbox around it."""
    if reason := asyncio.run(trial(means)):
        pytest.skip(f"{means} does not work here: {reason}")
    if (program := find_cli("codex")) is None:
        pytest.skip("codex is not installed: run `make clis`")
    monkeypatch.setenv(CHOSEN_BY, means)

    async def run(env: dict[str, str]) -> list[stagedoor.Event]:
        options: dict[str, Any] = {"driver": "exec", "executable": str(program), "confine": "workspace"}
        events: list[stagedoor.Event] = []
        async with (
            asyncio.timeout(BOUND),
            stagedoor.open(
                "codex", cwd=escape.cwd, env=env, inherit_env=False, tier="autonomous", **options
            ) as session,
        ):
            async for event in session.send("Wait"):
                events.append(event)
                if isinstance(event, stagedoor.ToolUse):
                    await session.interrupt()
        return events

    with ScriptedModel([shell("sleep 600"), say("Done.")]) as model:
        events = asyncio.run(run(model.environment("codex", home=escape.home, cwd=escape.cwd).env))
    ends = [event.status for event in events if isinstance(event, stagedoor.TurnCompleted)]
    assert ends == ["interrupted"]


@pytest.mark.live
def test_claude_codes_own_sandbox_asks_about_the_network_and_does_not_start_without_its_tools(
    escape: Escape, tmp_path: Path
) -> None:
    if (program := find_cli("claude")) is None:
        pytest.skip("claude is not installed: run `make clis`")
    if not shutil.which("bwrap") or not shutil.which("socat"):
        pytest.skip("bubblewrap or socat is not installed")
    questions: list[tuple[str, str]] = []

    def ask(request: stagedoor.PermissionRequest) -> stagedoor.Decision:
        questions.append((request.native_name, request.target))
        return stagedoor.Allow() if request.native_name == "Bash" else stagedoor.Deny("no network")

    commands = ["touch inside", f"touch {escape.outside}/made", "curl -sS -m 20 http://nowhere.invalid/"]
    options: dict[str, Any] = {
        "cwd": escape.cwd, "executable": str(program), "inherit_env": False, "sandbox": "workspaceWrite",
        "can_use_tool": ask,
    }  # fmt: skip
    with ScriptedModel([*map(shell, commands), say("Done.")]) as model:
        env = model.environment("claude", home=escape.home, cwd=escape.cwd).env
        asyncio.run(play("claude", options | {"env": env}))
        assert questions == [*(("Bash", command) for command in commands), ("SandboxNetworkAccess", "nowhere.invalid")]
        assert (escape.cwd / "inside").exists()
        assert [path.name for path in escape.outside.iterdir()] == ["file"]

    for program_path in (path for folder in ("/usr/local/bin", "/usr/bin", "/bin") for path in Path(folder).iterdir()):
        if program_path.name != "bwrap" and not os.path.lexists(tmp_path / program_path.name):
            (tmp_path / program_path.name).symlink_to(program_path)
    with ScriptedModel([shell("touch unconfined"), say("Done.")]) as model:
        env = model.environment("claude", home=escape.home, cwd=escape.cwd).env | {"PATH": str(tmp_path)}
        events = asyncio.run(play("claude", options | {"env": env, "tier": "autonomous"}))
    assert not (escape.cwd / "unconfined").exists()
    errors = [event.message for event in events if isinstance(event, stagedoor.Error)]
    assert any("bubblewrap (bwrap) not installed" in message for message in errors), errors
