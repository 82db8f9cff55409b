"""The examples in docs/testing.md are true."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

import pytest

from stagedoor.testing import load_script
from stagedoor.testing import script as words

PAGE = (Path(__file__).parents[2] / "docs" / "testing.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```(\w*)\n(.*?)```", PAGE, re.DOTALL)


@pytest.mark.parametrize("code", [code for kind, code in BLOCKS if kind == "python"])
def test_python_examples_run(tmp_path, code):
    path = tmp_path / "example.py"
    path.write_text(code)
    runpy.run_path(str(path))


@pytest.mark.live
def test_the_first_example_is_a_test_that_passes(tmp_path, scripted_model, real_cli):
    path = tmp_path / "example.py"
    path.write_text(next(code for _, code in BLOCKS if "def test_" in code))
    (tmp_path / "repo").mkdir()
    runpy.run_path(str(path))["test_the_agent_runs_the_tests"](scripted_model, real_cli, tmp_path / "repo")


def test_the_first_example_is_skipped_where_the_agent_is_missing(tmp_path, monkeypatch, scripted_model, real_cli):
    monkeypatch.setattr("stagedoor.testing.clis.find_cli", lambda agent: None)
    path = tmp_path / "example.py"
    path.write_text(next(code for _, code in BLOCKS if "def test_" in code))
    with pytest.raises(pytest.skip.Exception, match="claude is not installed: run npm install"):
        runpy.run_path(str(path))["test_the_agent_runs_the_tests"](scripted_model, real_cli, tmp_path)


def test_the_yaml_example_loads():
    (text,) = [code for kind, code in BLOCKS if kind == "yaml"]
    loaded = load_script(text)
    assert len(loaded.script) == 3
    assert list(loaded.routes) == ["the sub job"]


def test_every_word_of_the_script_is_explained():
    named = {
        name for name in dir(words) if name.islower() and callable(getattr(words, name)) and not name.startswith("_")
    }
    ours = {name for name in named if getattr(getattr(words, name), "__module__", "") == words.__name__}
    missing = {name for name in ours - {"parts_of", "calls_in"} if not re.search(rf"`{name}\(", PAGE)}
    assert missing == set()
