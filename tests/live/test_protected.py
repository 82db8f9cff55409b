"""Files from which something runs later: no agent writes one unless somebody allows it, by whatever tool it tries.

The oracle is the disk: every question is refused, and then nothing may have changed but the plain file that is edited
in between.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

import stagedoor
from stagedoor.testing import ScriptedModel, edit_file, read_file, say, shell, write_file
from stagedoor.testing.script import ScriptedCall

BOUND = 300.0
FROM = "Try them from number"
PLAIN = "notes.txt"
MODES: dict[str, dict[str, Any]] = {"supervised": {}, "askDangerous": {"approval": "askDangerous"}}
WRITTEN = (
    ".claude/settings.json", ".mcp.json", ".codex/config.toml", ".gemini/settings.json", ".opencode/plugin/x.js",
    "deep/opencode.json", ".git/hooks/pre-commit", ".github/workflows/ci.yml", ".vscode/tasks.json", ".husky/pre-push",
    "link/settings.json", "deep/../.ClAuDe/settings.local.json", "deploy/run.sh",
)  # fmt: skip
"""By the agent's own tool for files. ``link`` leads to ``.claude``; ``deploy`` is protected by the caller."""
RUN = (
    "echo '{}' > .claude/settings.local.json", "cp notes.txt .opencode/plugin/y.js", "tee .mcp.json < notes.txt",
    "cd deep && cp ../notes.txt ../.gemini/settings.json", "mv deep/spare .codex", "ln -s deep/spare .cursor",
    "dd if=notes.txt of=.vscode/tasks.json", "git config core.hooksPath deep", "sed -i s/a/b/ .claude/settings.json",
    "python3 -c \"open('.gemini/settings.json', 'w')\"", "cp notes.txt link/x", "install notes.txt .git/hooks/pre-push",
    "mkdir -p .github/workflows && echo 'on: push' > .github/workflows/x.yml", "cp -r deep/. .",
)  # fmt: skip


def attempts(workspace: Path) -> list[ScriptedCall]:
    files = [write_file(str(workspace / path), "{}\n") for path in WRITTEN]
    known = str(workspace / ".claude" / "settings.json")
    edits = [read_file(known), edit_file(known, "a", "b")]
    return [write_file(str(workspace / PLAIN), "edited\n"), *files, *edits, *map(shell, RUN)]


def fill(workspace: Path) -> None:
    for path, text in {
        ".claude/settings.json": '{"a": 1}\n',
        "deep/spare/config.toml": "",
        ".opencode/plugin/old.js": "",
        ".gemini/settings.json": "{}\n",
        ".git/HEAD": "ref: refs/heads/main\n",
        ".git/config": "[core]\n\trepositoryformatversion = 0\n",
        ".git/objects/.keep": "",
        ".git/refs/.keep": "",
    }.items():
        (workspace / path).parent.mkdir(parents=True, exist_ok=True)
        (workspace / path).write_text(text)
    (workspace / "link").symlink_to(".claude")
    for path in WRITTEN:  # some write no file into a folder that is missing, and ask about none
        (workspace / path).parent.mkdir(parents=True, exist_ok=True)


def contents(workspace: Path) -> dict[str, str]:
    """Every file and link. Git's index is git's own, looking at the repository may write it; one agent keeps its
    packages out of git."""
    own = workspace / ".opencode" / ".gitignore"
    return {
        str(path.relative_to(workspace)): f"-> {path.readlink()}" if path.is_symlink() else path.read_text()
        for path in sorted(workspace.rglob("*"))
        if (path.is_file() or path.is_symlink()) and path.name not in (PLAIN, "index") and path != own
    }


@pytest.fixture
def home(tmp_path: Path) -> Path:
    (tmp_path / "home").mkdir()
    return tmp_path / "home"


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    folder = tmp_path / "workspace"
    folder.mkdir()
    fill(folder)
    return folder


@pytest.fixture
def model(rig: Any, workspace: Path) -> Iterator[ScriptedModel | None]:
    tries = attempts(workspace)
    if rig.is_embedded:
        yield None
        return
    routes = {f"{FROM} {first}": [*tries[first:], say("Done.")] for first in range(len(tries))}
    with ScriptedModel(routes=routes) as scripted:
        yield scripted


@pytest.mark.live
@pytest.mark.parametrize("mode", MODES)
def test_nothing_that_runs_later_is_written_without_an_answer(
    rig: Any, mode: str, model: ScriptedModel | None, workspace: Path, home: Path, tmp_path: Path
) -> None:
    if rig.capabilities.permissions == "none":
        pytest.skip("it can ask nobody, so it edits nothing: the cells of test_tiers.py")
    if (rig.agent, rig.driver) == ("opencode", "acp"):
        pytest.skip("its questions are answered by the same object as over serve, and it starts slowly")
    options = MODES[mode] | {"protected": ["./deploy/**"], "driver": rig.driver, "executable": rig.executable}
    if model is None:
        kept = {name: os.environ[name] for name in ("PATH", "LANG") if name in os.environ}
        env = kept | {"HOME": str(home), "STAGEDOOR_UNDERSTUDY_HOME": str(home / "understudy")}
        script = tmp_path / "script.yaml"
        script.write_text(
            yaml.safe_dump([{"call": {"tool": c.tool, "input": dict(c.input)}} for c in attempts(workspace)])
        )
        options["extra_args"] = ("--script", str(script))
    else:
        env = dict(model.environment(rig.agent, home=home, cwd=workspace).env)
    # There are files in it from which OpenCode would run plugins: nothing but trust lets it start.
    options["trust"] = rig.agent == "opencode"
    before = contents(workspace)
    questions: list[stagedoor.PermissionRequest] = []

    async def refuse(request: stagedoor.PermissionRequest) -> stagedoor.Deny:
        questions.append(request)
        return stagedoor.Deny("no")

    async def main() -> None:
        count, first = len(attempts(workspace)), 0
        async with (
            asyncio.timeout(BOUND),
            stagedoor.open(
                rig.agent, cwd=str(workspace), env=env, inherit_env=False, can_use_tool=refuse, **options
            ) as session,
        ):
            while first < count:  # an agent may end its turn when something is refused
                async with contextlib.aclosing(session.send(f"{FROM} {first}")) as turn:
                    events = [event async for event in turn]
                done = count if model is None else first + _tried(model, first)
                assert done > first, events
                first = done

    asyncio.run(main())
    assert contents(workspace) == before
    assert (workspace / PLAIN).read_text() == "edited\n", "a plain edit needs no question"
    paths = [str(value) for request in questions if request.operation == "write" for value in request.input.values()]
    asked = {path for path in WRITTEN if any(Path(path).name in value for value in paths)}
    refused_by_itself = {".git/hooks/pre-commit"} if rig.agent == "gemini" else set[str]()
    assert asked | refused_by_itself == set(WRITTEN)
    commands = {request.target for request in questions if request.tool_name == "shell"}
    assert [command for command in RUN if not any(command in asked_about for asked_about in commands)] == []
    assert {r.risk for r in questions if r.operation == "write" or any(c in r.target for c in RUN)} == {"high"}
    [why] = {r.risk_reasons[0] for r in questions if r.operation == "write" and "settings.local" in str(r.input)}
    assert why.endswith("Claude Code runs hooks, tool servers and commands from it at the next start")


def _tried(model: ScriptedModel, first: int) -> int:
    route = f"{FROM} {first}"
    return max((request.step + 1 for request in model.requests if request.route == route and request.calls), default=0)
