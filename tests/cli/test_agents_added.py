"""Agents of the user's own: tried out, written into the configuration with its comments kept, and taken out again."""

from __future__ import annotations

import json
import sys
import textwrap
from pathlib import Path

import pytest
import yaml

from stagedoor import catalog
from stagedoor.cli import main
from stagedoor.errors import ConfigError
from stagedoor.understudy import command
from stagedoor.yaml_with_lines import with_entry, without_entry

ENTRY = {"acp": ["my-agent", "--acp"], "modes": {"supervised": "ask"}}
BLOCK = '  mine:\n    acp: ["my-agent", "--acp"]\n    modes: {"supervised": "ask"}\n'

NO_SESSION = """
import json, sys
for line in sys.stdin:
    request = json.loads(line)
    known = {"initialize": {"result": {"protocolVersion": 1, "agentCapabilities": {}}}}
    answer = known.get(request.get("method"), {"error": {"code": -32603, "message": "out of order"}})
    print(json.dumps({"jsonrpc": "2.0", "id": request.get("id"), **answer}), flush=True)
"""
"""An agent that introduces itself and can do nothing."""


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", f"agents:\n{BLOCK}"),
        ("# mine\nserver: {port: 1}", f"# mine\nserver: {{port: 1}}\nagents:\n{BLOCK}"),
        ("agents:\n", f"agents:\n{BLOCK}"),
        ("agents:  # all\n# x\nserver: {port: 1}\n", f"agents:  # all\n{BLOCK}# x\nserver: {{port: 1}}\n"),
        (
            "agents:\n    # the first\n    codex: {model: x}  # y\n",
            "agents:\n" + textwrap.indent(BLOCK, "  ") + "    # the first\n    codex: {model: x}  # y\n",
        ),
        (
            "agents: {codex: {model: x}}  # y\n",
            f'agents: {{codex: {{model: x}}, "mine": {json.dumps(ENTRY)}}}  # y\n',
        ),
    ],
)  # fmt: skip
def test_an_entry_is_put_in_and_taken_out(text: str, expected: str) -> None:
    changed = with_entry(text, "agents", "mine", ENTRY, ConfigError)
    assert changed == expected
    before = yaml.safe_load(text) or {}
    after = yaml.safe_load(without_entry(changed, "agents", "mine", ConfigError))
    assert {name: value for name, value in after.items() if value} == {
        name: value for name, value in before.items() if value
    }


def test_what_stands_around_an_entry_stays() -> None:
    mine = "  mine:\n    acp:\n      - x\n      - |\n        y\n"
    text = f"agents:\n  # one\n  a: {{acp: [a]}}\n  # two\n{mine}  # three\n  c: {{}}\n"
    assert without_entry(text, "agents", "mine", ConfigError) == (
        "agents:\n  # one\n  a: {acp: [a]}\n  # two\n  # three\n  c: {}\n"
    )


def test_a_file_that_cannot_be_changed_is_left_alone() -> None:
    with pytest.raises(ConfigError, match=r"cannot add agents.mine .*add these lines:\nagents:\n  mine:"):
        with_entry("{server: {port: 1}}", "agents", "mine", ENTRY, ConfigError)


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    file = tmp_path / "config.yaml"
    file.write_text("# mine\nagents:\n  # the main one\n  codex: {model: x}\n")
    monkeypatch.setattr(catalog, "_configured", None)
    monkeypatch.setenv("STAGEDOOR_UNDERSTUDY_HOME", str(tmp_path / "agent"))
    return file


def test_add_and_remove(config: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = command(home=str(tmp_path / "agent"))
    flags = ["--mode", "supervised=ask", "--option", "model=understudy-mini", "--config", str(config)]
    assert main(["agents", "add", "mine", *flags, "--", *words]) == 0
    printed = capsys.readouterr().out
    assert "mode     ask (now), auto_edit, auto, plan" in printed
    assert "supervised: by its mode 'ask'" in printed
    assert "dry-run: with --confine read-only only" in printed
    text = config.read_text()
    assert text.startswith("# mine\nagents:\n  mine:\n")
    assert text.endswith("  # the main one\n  codex: {model: x}\n")
    assert yaml.safe_load(text)["agents"]["mine"] == {
        "acp": list(words),
        "modes": {"supervised": "ask"},
        "options": {"model": "understudy-mini"},
        "title": "Understudy",
    }
    assert main(["agents", "add", "mine", "--no-try", "--config", str(config), "--", "other"]) == 0
    assert yaml.safe_load(config.read_text())["agents"]["mine"] == {"acp": ["other"]}
    assert main(["agents", "remove", "mine", "--config", str(config)]) == 0
    assert config.read_text() == "# mine\nagents:\n  # the main one\n  codex: {model: x}\n"
    assert main(["agents", "remove", "mine", "--config", str(config)]) == 2
    assert "adds no agent 'mine'" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (["mine"], 2, "give the agent's command after --"),
        (["mine", "--mode", "careful=x", "--", "a"], 2, "must be TIER=MODE"),
        (
            ["mine", "--mode", "supervised=careful", "--", *command()],
            2,
            "has no mode 'careful' for supervised",
        ),
        (["mine", "--option", "size=x", "--", *command()], 2, "has no setting 'size'; what can be chosen: mode, model"),
        (["codex", "--", "a"], 2, "'codex' is taken"),
        (["acp", "--", "a"], 2, "'acp' is taken"),
        (["mine", "--", "no-such-agent"], 3, "no-such-agent was not found"),
        (["mine", "--", sys.executable, "-c", NO_SESSION], 1, "the agent opened no session (see problem)"),
        (["mine", "--", sys.executable, "-c", "print('hello')"], 1, "the agent ended before it answered initialize"),
    ],
)
def test_what_cannot_be_added_changes_nothing(
    config: Path, capsys: pytest.CaptureFixture[str], words: list[str], code: int, message: str
) -> None:
    before = config.read_text()
    name, rest = words[0], words[1:]
    assert main(["agents", "add", name, "--config", str(config), *rest]) == code
    assert message in capsys.readouterr().err
    assert config.read_text() == before
