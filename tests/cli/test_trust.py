"""``stagedoor trust``, and the question at a terminal before the first run in a folder."""

from __future__ import annotations

import asyncio
import os
import pty
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from stagedoor import catalog
from stagedoor.cli.terminal.questions import Keyboard
from stagedoor.cli.trust import ask_for_trust, configured_trust, main
from stagedoor.trust.record import TrustRecord

pytestmark = pytest.mark.usefixtures("no_repository_above")


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("STAGEDOOR_HOME", str(tmp_path / "own"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.delenv("STAGEDOOR_CONFIG", raising=False)
    folder = tmp_path / "project"
    (folder / ".claude").mkdir(parents=True)
    (folder / ".claude" / "settings.json").write_text("{}")
    (folder / ".git").mkdir()
    (folder / "sub").mkdir()
    return folder


def test_the_command(project: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    def said(*words: str) -> tuple[int, str, str]:
        code = main([*words])
        out = capsys.readouterr()
        return code, out.out, out.err

    shown = f"Claude Code would load {project}/.claude/settings.json: settings: hooks, helpers, environment\n"
    shown += f"GitHub Copilot CLI would load {project}/.claude/settings.json: hooks\n"
    assert said("--show", str(project)) == (0, shown, "")
    assert said("--list") == (0, "", "no folder is trusted: stagedoor trust DIR trusts one\n")
    assert said(str(project / "sub")) == (0, f"{shown}trusted: {project}\n", "")
    assert said("--list") == (0, f"{project}\n", "")
    assert said("--remove", str(project)) == (0, f"no longer trusted: {project}\n", "")
    assert said("--remove", str(project))[0] == 2
    assert said(str(project / "gone"))[0] == 2
    monkeypatch.chdir(project.parent)
    plain = "nothing there that an agent would load by itself\n"
    assert said() == (0, f"{plain}trusted: {project.parent}, with everything that is in it\n", "")


def test_the_configuration_trusts(project: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "own" / "config.yaml"
    file.parent.mkdir(parents=True, exist_ok=True)
    options = {"cwd": str(project)}
    assert configured_trust("claude", options) == options
    file.write_text(f"agents: {{claude: {{trusted_folders: [{project}]}}}}\n")
    assert configured_trust("claude", options) == {**options, "trust": True}
    assert configured_trust("codex", options) == options
    file.write_text(f"workspaces: {{trusted_folders: [{project.parent}]}}\n")
    assert configured_trust("codex", options) == {**options, "trust": True}
    assert configured_trust("codex", {**options, "trust": False}) == {**options, "trust": False}
    file.write_text("workspaces: {trusted_folders: 1, wrong: 2}\n")
    assert configured_trust("codex", options) == options
    assert "no folder in it is trusted" in capsys.readouterr().err


@pytest.fixture
def terminal() -> Iterator[tuple[int, int]]:
    ours, theirs = pty.openpty()
    yield ours, theirs
    os.close(ours)
    os.close(theirs)


@pytest.mark.parametrize(
    ("key", "trust", "recorded"),
    [(b"y", True, False), (b"n", False, False), (b"\n", False, False), (b"a", True, True), (b"\x1b", False, False)],
)
def test_the_question(project: Path, terminal: tuple[int, int], key: bytes, trust: bool, recorded: bool) -> None:
    ours, theirs = terminal
    written: list[str] = []

    def write(text: str) -> None:
        written.append(text)
        if text.startswith("Trust it?"):
            asyncio.get_running_loop().call_soon(os.write, ours, key)  # what is typed before it is no answer

    async def ask(**options: Any) -> dict[str, Any]:
        async with asyncio.timeout(240):
            given = {"cwd": str(project), **options}
            return await ask_for_trust(catalog.agent("claude"), given, Keyboard(theirs), write)

    assert asyncio.run(ask())["trust"] is trust
    assert "  .claude/settings.json (settings: hooks, helpers, environment)\n" in written
    assert TrustRecord().covers(project) is recorded
    written.clear()
    for options in ({"trust": False}, {"tier": "dry-run"}, {"cwd": str(project.parent)}, *([{}] if recorded else [])):
        assert "trust" not in asyncio.run(ask(**options)) or options == {"trust": False}
    assert written == []  # nothing to ask
