"""What runs the tests elsewhere: the workflow for public CI, and a Makefile for the make and the tools of macOS."""

from __future__ import annotations

import contextlib
import os
import plistlib
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from bench import memory
from tests import processes
from tools import browser, packages

ROOT = Path(__file__).parents[2]
MAKEFILE = (ROOT / "Makefile").read_text()
TARGETS = set(re.findall(r"^([a-z]+):", MAKEFILE, re.MULTILINE))
SCRIPTS = [ROOT / "Makefile", ROOT / ".ci" / "run"]


def workflow() -> dict[Any, Any]:
    content = yaml.safe_load((ROOT / ".github" / "workflows" / "test.yml").read_text())
    assert isinstance(content, dict)
    return content


def test_the_workflow_runs_all_tests_on_both_systems_and_every_python() -> None:
    content = workflow()
    assert {"push", "pull_request"} <= set(content[True])  # YAML reads "on" as a truth value, and so does GitHub's
    job = content["jobs"]["test"]
    assert job["strategy"]["matrix"] == {
        "os": ["ubuntu-latest", "macos-latest"],
        "python": ["3.11", "3.12", "3.13", "3.14"],
    }
    assert job["strategy"]["fail-fast"] is False
    assert "make test" in [step.get("run") for step in job["steps"]]
    assert content["permissions"] == {"contents": "read"}


def test_every_step_of_the_workflow_exists() -> None:
    for job in workflow()["jobs"].values():
        assert job["runs-on"] == "${{ matrix.os }}"
        for step in job["steps"]:
            assert set(step) <= {"name", "uses", "with", "run", "if"}
            assert ("uses" in step) != ("run" in step)
            if "uses" in step:
                assert re.fullmatch(r"actions/[a-z-]+@v\d+", step["uses"])
            for target in re.findall(r"\bmake ([a-z]+)", step.get("run", "")):
                assert target in TARGETS


def test_the_pythons_of_the_workflow_are_those_we_claim() -> None:
    project = (ROOT / "pyproject.toml").read_text()
    versions = workflow()["jobs"]["test"]["strategy"]["matrix"]["python"]
    assert f'requires-python = ">={versions[0]}"' in project
    assert set(re.findall(r"Python :: (3\.\d+)", project)) <= set(versions)


GNU_ONLY = {
    r"(?<!filter )(?<!,)--output-sync": "make 3.81 does not know it: ask $(.FEATURES)",
    r"\bsed -i\b(?! '')": "the sed of macOS wants a suffix",
    r"\bsed\b[^|\n]*\\t": "the sed of macOS writes a t",
    r"\bgrep -[a-zA-Z]*P": "the grep of macOS has no Perl",
    r"\breadlink -f\b": "new in macOS 12.3",
    r"\b(?:date -d|stat -c|xargs -r|find -printf|cp -t|sort -V|nproc|timeout|realpath|tac|shuf)\b": "of GNU only",
    r"^\.ONESHELL|^define .* =|\$\(file |!=|\$\(let ": "make 3.82 or newer",
}


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.name)
def test_no_script_needs_the_tools_of_gnu(path: Path) -> None:
    lines = [line for line in path.read_text().splitlines() if not line.lstrip().startswith("#")]
    found = [(why, line) for line in lines for pattern, why in GNU_ONLY.items() if re.search(pattern, line)]
    assert found == []


def test_every_file_of_make_portable_is_there() -> None:
    names = re.findall(r"tests/[\w/.]+", MAKEFILE.partition("# Whatever stops")[2].partition("\n\n")[0])
    assert len(names) > 15
    assert [name for name in names if not (ROOT / name).exists()] == []


def test_packages_of_linux_are_not_asked_of_a_mac(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packages.shutil, "which", lambda *_, **__: None)
    assert packages.missing(["bubblewrap", "socat", "strace"]) == ["bubblewrap", "socat", "strace"]
    monkeypatch.setattr(sys, "platform", "darwin")
    assert packages.missing(["bubblewrap", "socat", "strace"]) == ["socat"]
    assert packages.install("socat") is False  # there is no Homebrew here
    assert browser.install_browser() is None


def test_the_service_for_launchd_is_a_property_list() -> None:
    text = (ROOT / "docs" / "serve.md").read_text()
    [block] = re.findall(r"```xml\n(.*?)```", text, re.DOTALL)
    service = plistlib.loads(block.encode())
    assert service["ProgramArguments"][1] == "serve"
    assert service["Label"] == "dev.stagedoor.serve"
    assert (service["RunAtLoad"], service["KeepAlive"]) == (True, {"SuccessfulExit": False})
    assert "/opt/homebrew/bin" in service["EnvironmentVariables"]["PATH"].split(":")
    assert f"{service['Label']}.plist" in text


@pytest.mark.parametrize("has_proc", [processes.HAS_PROC, False])
def test_who_runs_is_seen_without_proc_too(has_proc: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "HAS_PROC", has_proc)
    name = "portability-98431"
    with contextlib.ExitStack() as clean_up:
        child = subprocess.Popen(
            ["/bin/sh", "-c", "echo; read line; exit", name], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        clean_up.enter_context(child)
        clean_up.callback(child.kill)
        assert child.stdout is not None
        # Until it speaks it may not have its words yet: the one who started it goes on before they are in place.
        assert child.stdout.read(1) == b"\n"
        assert processes.is_running(child.pid)
        assert processes.parent_of(child.pid) == os.getpid()
        assert [pid for pid, line in processes.command_lines().items() if line.strip().endswith(name)] == [child.pid]
        child.kill()
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
        assert not processes.is_running(child.pid)  # it has ended, and was not collected
    assert not processes.is_running(child.pid)
    assert processes.parent_of(child.pid) == 0


def test_memory_is_measured_without_proc_too(monkeypatch: pytest.MonkeyPatch) -> None:
    block = b"x" * (64 * 2**20)
    measured = [memory.resident(), memory.peak()]
    monkeypatch.setattr(memory, "STATUS", Path("/no/such"))
    assert all(64 * 2**20 < size < 64 * 2**30 for size in (*measured, memory.resident(), memory.peak()))
    assert len(block) < memory.resident()
