"""Which versions are accepted, and that a program is asked again whenever another one may have taken its place."""

from __future__ import annotations

import asyncio
import os
import shutil
from pathlib import Path

import pytest

from stagedoor.errors import UnsupportedVersion
from stagedoor.transports import versions
from stagedoor.transports.versions import ALLOW_UNPROVEN, CheckedVersion, ProvenVersions, add_proven, identity_of

PROVEN = ProvenVersions("agent", "1.2.3", "1.4.0", "npm install -g agent")
NEWER = (
    "agent {} is newer than 1.4.0, the newest version that was proven to keep every rule: "
    "run stagedoor doctor --deep agent to prove it here"
)
TOO_OLD = "agent {} is too old: Stagedoor needs 1.2.3 or newer; run npm install -g agent"


def install(folder: Path, version: str, *, counting: Path | None = None) -> Path:
    """An npm package whose program tells ``version``, and leaves a line for each time it was asked."""
    package = folder / "node_modules" / "agent"
    shutil.rmtree(package, ignore_errors=True)
    package.mkdir(parents=True)
    (package / "package.json").write_text(f'{{"name": "agent", "version": "{version}"}}')
    program = package / "cli.sh"
    program.write_text(f"#!/bin/sh\necho asked >> {counting or '/dev/null'}\necho agent {version}\n")
    program.chmod(0o755)
    for file in (program, package / "package.json"):
        os.utime(file, (499162500, 499162500))  # as npm does, whatever the version
    return program


def check(program: Path) -> CheckedVersion:
    return asyncio.run(PROVEN.check(str(program)))


@pytest.mark.parametrize(
    ("version", "notice"),
    [
        ("1.2.3", ""),
        ("1.3.99", ""),
        ("1.4.0", ""),
        ("1.4.1", NEWER.format("1.4.1")),
        ("2.0.0", NEWER.format("2.0.0")),
    ],
)
def test_what_is_accepted(version: str, notice: str, tmp_path: Path) -> None:
    assert check(install(tmp_path, version)) == CheckedVersion(version, notice)
    assert PROVEN.judge(f"Agent v{version} (Agent)") == CheckedVersion(version, notice)


@pytest.mark.parametrize(
    ("version", "why"),
    [
        ("1.2.2", TOO_OLD.format("1.2.2")),
        ("0.99.0", TOO_OLD.format("0.99.0")),
        ("unknown", "cannot tell the version of .*/cli.sh: .*set STAGEDOOR_ALLOW_UNPROVEN=1"),
        ("1.4", "cannot tell the version of"),
    ],
)
def test_what_is_refused(version: str, why: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = install(tmp_path, version)
    with pytest.raises(UnsupportedVersion, match=why):
        check(program)
    monkeypatch.setenv(ALLOW_UNPROVEN, "1")
    assert "runs all the same" in check(program).notice


def test_a_program_that_never_answers_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(versions, "PATIENCE", 0.2)
    program = tmp_path / "agent"
    program.write_text("#!/bin/sh\nexec sleep 1000\n")
    program.chmod(0o755)
    with pytest.raises(UnsupportedVersion, match=r"no answer within 0\.2 s"):
        check(program)


def test_a_version_is_asked_once_and_again_when_the_program_is_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = tmp_path / "asked"
    program = install(tmp_path, "1.2.3", counting=asked)
    assert [check(program).version, check(program).version] == ["1.2.3", "1.2.3"]
    monkeypatch.setattr(versions, "_seen", {})  # as in another process
    assert check(program).version == "1.2.3"
    assert asked.read_text() == "asked\n"
    install(tmp_path, "1.2.0", counting=asked)  # the same length, the same times
    with pytest.raises(UnsupportedVersion, match=r"1\.2\.0 is too old"):
        check(program)
    install(tmp_path, "1.2.4", counting=asked)
    monkeypatch.setattr(versions, "_seen", {})
    assert check(program).version == "1.2.4"


def test_a_script_that_may_start_anything_is_asked_every_time(tmp_path: Path) -> None:
    inner, wrapper = tmp_path / "version", tmp_path / "agent"
    inner.write_text("1.3.0")
    wrapper.write_text(f"#!/bin/sh\ncat {inner}\n")
    wrapper.chmod(0o755)
    assert identity_of(str(wrapper)) == ()
    assert check(wrapper).version == "1.3.0"
    inner.write_text("1.2.0")
    with pytest.raises(UnsupportedVersion):
        check(wrapper)


def test_what_doctor_has_proven_here_is_no_news(stagedoor_home: Path, tmp_path: Path) -> None:
    add_proven("agent", "1.5.0")
    assert check(install(tmp_path, "1.5.0")) == CheckedVersion("1.5.0")
    assert check(install(tmp_path, "1.5.1")).notice == NEWER.format("1.5.1")
    (stagedoor_home / "proven.json").write_text("not json")
    (stagedoor_home / "versions.json").write_text('{"agent": 3}')
    assert check(install(tmp_path, "1.5.0")).notice == NEWER.format("1.5.0")
