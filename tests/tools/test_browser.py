"""Which browser the tests of the page drive."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tools import browser


@pytest.fixture
def program(tmp_path: Path) -> Path:
    made = tmp_path / "chromium"
    made.write_text("#!/bin/sh\n")
    made.chmod(0o755)
    return made


def test_the_one_that_is_named_comes_first_and_a_wrong_name_is_nobody(program: Path) -> None:
    assert browser.find_browser({"STAGEDOOR_CHROMIUM": str(program), "PATH": os.defpath}) == str(program)
    assert browser.find_browser({"STAGEDOOR_CHROMIUM": str(program) + "-not", "PATH": str(program.parent)}) is None


def test_then_the_one_on_the_path(program: Path) -> None:
    assert browser.find_browser({"PATH": str(program.parent)}) == str(program)


def test_without_one_people_are_told_in_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("STAGEDOOR_CHROMIUM", "/nowhere/chromium")
    monkeypatch.setattr(browser, "install_browser", lambda: None)
    monkeypatch.delenv("CI", raising=False)
    assert browser.main() == 0
    assert capsys.readouterr().out.count("\n") == 1
    monkeypatch.setenv("CI", "true")
    assert browser.main() == 1
