"""A repository runs nothing merely because an agent starts in it: every candidate leaves a mark when it runs."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import stagedoor
from stagedoor import catalog
from stagedoor.testing import ScriptedModel, say, shell, write_file
from tests.live.hostile_projects import HARDER, INSTRUCTION, PLANT, PLUGINS, SECRET, HostileProject

pytestmark = pytest.mark.live

BOUND = 300.0
ACT = "Act now"


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    """Where a project would send the keys: nobody must come."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.setblocking(False)
        yield server


@pytest.fixture
def trial(rig: Any, tmp_path: Path, listener: socket.socket) -> Trial:
    project = HostileProject(tmp_path / "place", port=listener.getsockname()[1])
    if rig.agent in PLANT:
        PLANT[rig.agent](project)
    return Trial(rig, project, tmp_path / "home", listener)


class Trial:
    def __init__(self, rig: Any, project: HostileProject, home: Path, listener: socket.socket) -> None:
        self.rig = rig
        self.project = project
        self.home = home
        self.listener = listener
        self.events: list[stagedoor.Event] = []
        self.sent = ""
        self.session_id = ""

    async def run(self, prompts: tuple[str, ...] = (ACT, "/evil", "/worse"), **options: Any) -> str:
        """Returns the error, where the session was refused."""
        script = [shell("echo from-the-shell"), write_file(str(self.project.folder / "new.txt"), "x\n"), say("Done.")]
        with ScriptedModel([say("Done.")], routes={ACT: script}) as model:
            env = model.environment(self.rig.agent, home=self.home, cwd=self.project.folder).env
            chosen = {"cwd": str(self.project.folder), "driver": self.rig.driver, "executable": self.rig.executable}
            if self.rig.capabilities.permissions != "none":
                chosen["can_use_tool"] = lambda request: stagedoor.Allow()
            try:
                async with (
                    asyncio.timeout(BOUND),
                    stagedoor.open(self.rig.agent, **chosen, **options, env=env, inherit_env=False) as session,
                ):
                    for prompt in prompts:
                        async with contextlib.aclosing(session.send(prompt)) as turn:
                            self.events += [event async for event in turn]
                    self.session_id = session.id
            except stagedoor.StagedoorError as refusal:
                return f"{type(refusal).__name__}: {refusal}"
            finally:
                self.sent = "".join(str(request.body) for request in model.requests)
        return ""

    @property
    def worked(self) -> bool:
        """Whether the model's own calls were carried out, where the driver lets them."""
        results = [event for event in self.events if isinstance(event, stagedoor.ToolResult)]
        return (
            any("from-the-shell" in result.output for result in results) or self.rig.capabilities.permissions == "none"
        )

    @property
    def redirected(self) -> bool:
        try:
            self.listener.accept()[0].close()
        except BlockingIOError:
            return False
        return True

    @property
    def notices(self) -> list[stagedoor.Notice]:
        return [event for event in self.events if isinstance(event, stagedoor.Notice) and event.trusted is not None]


TIERS = {
    "claude": "dry-run",
    "codex": "autonomous",
    "gemini": "dry-run",
    "opencode": "supervised",
    "qwen": "supervised",
}
"""The tier that is tried each time. The programs get the same switches in the others: with STAGEDOOR_CONTRACT=1."""
QUICK, SLOW = ("claude-stream", "codex-app-server"), ("opencode-run", "opencode-acp")
EVERYTHING = os.environ.get("STAGEDOOR_CONTRACT") == "1"
LOADED: dict[str, set[str]] = {
    "claude": {
        "env-bash", "git-clean", "git-clean-included", "git-fsmonitor", "hook-PreToolUse", "hook-SessionStart",
        "key-helper", "local-hook-SessionStart", "mcp",
    },
    "codex": {"git-clean", "git-clean-included", "mcp"},
    "gemini": {"discovery", "hook-BeforeAgent", "mcp", "telemetry"},
    "opencode": {"formatter", "mcp", "tool"},
    "qwen": {"hook-PreToolUse", "hook-SessionStart", "hook-UserPromptSubmit"},
}  # fmt: skip
"""What runs, at least, in the same folder when it is trusted: so that the marks are known to appear."""


def only_with_everything() -> None:
    if not EVERYTHING:
        pytest.skip("with STAGEDOOR_CONTRACT=1 only")


@pytest.mark.drift
@pytest.mark.parametrize("tier", ["dry-run", "supervised", "autonomous"])
def test_nothing_of_an_untrusted_project_runs(rig: Any, trial: Trial, tier: str) -> None:
    if rig.agent not in PLANT:
        pytest.skip("it loads nothing of a project, or is refused where there is something to load")
    if tier != TIERS[rig.agent] or rig.id in SLOW:
        only_with_everything()
    HARDER[rig.agent](trial.project)
    refusal = asyncio.run(trial.run(tier=tier))
    assert trial.project.left == []
    assert not trial.redirected
    assert SECRET not in trial.sent
    assert INSTRUCTION not in trial.sent
    if rig.driver == "stream-json":
        assert "UntrustedProject" in refusal
        assert "use driver acp" in refusal
        return
    assert refusal == ""
    [notice] = trial.notices
    assert (notice.code, notice.trusted) == ("project_untrusted", False)
    assert all(str(trial.project.parent) in file.path for file in notice.project_files)
    assert tier == "dry-run" or trial.worked, "what the user asks for works all the same"


def test_a_trusted_project_takes_part(rig: Any, trial: Trial) -> None:
    if rig.agent not in PLANT:
        pytest.skip("it loads nothing of a project, or is refused where there is something to load")
    if rig.id in SLOW:
        only_with_everything()
    (trial.project.parent / ".mcp.json").unlink(missing_ok=True)  # what lies above a project is not trusted with it
    assert asyncio.run(trial.run(prompts=(ACT,), tier="supervised", trust=True)) == ""
    assert set(trial.project.left) >= LOADED[rig.agent]
    [notice] = trial.notices
    assert (notice.code, notice.trusted) == ("project_trusted", True)
    assert INSTRUCTION in trial.sent


@pytest.mark.parametrize("tier", ["dry-run", "supervised"])
def test_a_dry_run_trusts_nothing(rig: Any, trial: Trial, tier: str) -> None:
    """Nor does one whose project lies below something hostile."""
    if rig.agent != "claude":
        pytest.skip("decided in one place for all agents, before any is started")
    if tier == "dry-run":
        (trial.project.parent / ".mcp.json").unlink()
    assert asyncio.run(trial.run(prompts=(ACT,), tier=tier, trust=True)) == ""
    assert trial.project.left == []
    [notice] = trial.notices
    assert notice.trusted is False
    assert ("dry run" if tier == "dry-run" else "above") in notice.message


def test_looking_at_the_agents_runs_nothing(rig: Any, trial: Trial, monkeypatch: pytest.MonkeyPatch) -> None:
    if rig.is_embedded or rig.driver != next(iter(catalog.agent(rig.agent).drivers)):
        pytest.skip("once for each program is enough")
    with ScriptedModel([say("Done.")]) as model:
        env = model.environment(rig.agent, home=trial.home, cwd=trial.project.folder).env
    env["PATH"] = f"{Path(rig.executable).parent}:{env['PATH']}"
    monkeypatch.chdir(trial.project.folder)
    [presence] = asyncio.run(stagedoor.discover([rig.agent], env=env))
    assert presence.installed
    assert trial.project.left == []


@pytest.mark.parametrize("fork", [False, True])
def test_a_session_that_goes_on_is_decided_anew(rig: Any, trial: Trial, fork: bool) -> None:
    """It was trusted when it began; nobody trusts the folder now."""
    if rig.agent not in PLANT or not (rig.capabilities.fork if fork else rig.capabilities.resume):
        pytest.skip("it loads nothing of a project, or cannot go on")
    if rig.id not in QUICK or (fork and rig.agent == "claude"):
        only_with_everything()
    (trial.project.parent / ".mcp.json").unlink(missing_ok=True)
    assert asyncio.run(trial.run(prompts=(ACT,), tier="supervised", trust=True)) == ""
    assert trial.project.left != []
    for mark in trial.project.marks.iterdir():
        mark.unlink()
    refusal = asyncio.run(trial.run(prompts=(ACT,), tier="supervised", resume=trial.session_id, fork=fork))
    assert refusal == "" or "UntrustedProject" in refusal
    assert trial.project.left == []


@pytest.mark.parametrize("name", sorted(PLUGINS))
def test_plugins_that_no_switch_stops_are_refused(rig: Any, tmp_path: Path, listener: socket.socket, name: str) -> None:
    if rig.agent != "opencode":
        pytest.skip("only OpenCode has such plugins")
    if name != "a file" and (rig.driver != "serve" or not EVERYTHING):
        pytest.skip("refused before the program starts; that they would run is tried with STAGEDOOR_CONTRACT=1")
    project = HostileProject(tmp_path / "place", port=listener.getsockname()[1])
    PLUGINS[name](project)
    trial = Trial(rig, project, tmp_path / "home", listener)
    refusal = asyncio.run(trial.run(prompts=(ACT,), tier="supervised"))
    assert "UntrustedProject" in refusal
    assert "stagedoor trust" in refusal
    assert project.left == []
    if EVERYTHING:
        assert asyncio.run(trial.run(prompts=(ACT,), tier="supervised", trust=True)) == ""
        assert project.left == ["plugin"]


@pytest.mark.parametrize("trusted", [False, True])
def test_hooks_that_no_switch_stops_are_refused(
    rig: Any, tmp_path: Path, listener: socket.socket, *, trusted: bool
) -> None:
    if rig.agent != "copilot":
        pytest.skip("only Copilot CLI runs hooks whatever it is told")
    project = HostileProject(tmp_path / "place", port=listener.getsockname()[1])
    hook = {"type": "command", "bash": project.script("hook"), "timeoutSec": 10}
    project.write(".github/hooks/x.json", {"version": 1, "hooks": {"userPromptSubmitted": [hook]}})
    trial = Trial(rig, project, tmp_path / "home", listener)
    refusal = asyncio.run(trial.run(prompts=(ACT,), tier="supervised", trust=trusted))
    assert ("UntrustedProject" in refusal, project.left) == (not trusted, ["hook"] if trusted else [])
