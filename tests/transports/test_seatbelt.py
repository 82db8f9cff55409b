"""Seatbelt, where there is none: the profile says what it should, and without a proof on the machine nothing starts."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import pytest

from stagedoor.errors import LaunchError, NotSupported
from stagedoor.transports.confinement import mechanism, seatbelt
from stagedoor.transports.confinement.mechanism import CHOSEN_BY, choose, wrap
from stagedoor.transports.confinement.mounts import Mount, mounts_of
from stagedoor.transports.launch import Confinement, Launch


def rules_about(profile: str, path: Path | str) -> list[str]:
    return [line for line in profile.splitlines() if f'"{path}"' in line]


def test_the_profile_of_a_workspace(tmp_path: Path) -> None:
    work, home, temp = (tmp_path / name for name in ("work", "home", "temp"))
    for folder in (work / ".git" / "hooks", home / ".ssh", home / ".agent", temp):
        folder.mkdir(parents=True)
    (work / ".git" / "config").write_text("")
    (home / "token").write_text("secret")
    confinement = Confinement(
        workspace=True,
        writable=(str(home / ".agent"),),
        hidden=(str(home / ".ssh"), str(home / "token")),
    )
    launch = Launch(argv=("agent",), cwd=str(work), confinement=confinement)
    mounts = mounts_of(launch, {"HOME": str(home)}, temp=str(temp), scratch="", argv=("agent",))
    wrapped = wrap("seatbelt", ("agent", "run"), mounts, cwd=str(work), temp=str(temp))
    program, flag, profile, *argv = wrapped.argv
    assert (program, flag, argv) == ("/usr/bin/sandbox-exec", "-p", ["agent", "run"])
    assert (wrapped.layers, wrapped.temp) == (0, str(temp))

    lines = profile.splitlines()
    assert lines[:3] == ["(version 1)", "(allow default)", "(deny file-write*)"]
    assert all(line.count("(") == line.count(")") for line in lines)
    assert rules_about(profile, work)[0] == f'(allow file-read* file-write* (subpath "{work}"))'
    assert rules_about(profile, temp)[0] == f'(allow file-read* file-write* (subpath "{temp}"))'
    assert rules_about(profile, home / ".agent") == [f'(allow file-read* file-write* (subpath "{home}/.agent"))']
    assert rules_about(profile, home / ".ssh") == [f'(deny file-read* file-write* (subpath "{home}/.ssh"))']
    assert rules_about(profile, home / "token") == [f'(deny file-read* file-write* (literal "{home}/token"))']
    for name, kind in (("hooks", "subpath"), ("config", "literal")):
        place = work / ".git" / name
        assert rules_about(profile, place)[-1] == f'(deny file-write* ({kind} "{place}"))'
        # Of rules that match, the last counts: what is in a folder comes after the folder.
        assert lines.index(rules_about(profile, place)[-1]) > lines.index(rules_about(profile, work)[0])
    assert rules_about(profile, "/tmp") == []  # the child is given a folder of its own instead
    assert lines.index("(deny signal)") < lines.index("(allow signal (target same-sandbox))")
    assert "(deny appleevent-send)" in lines
    sockets = [line for line in lines if "unix-socket" in line]
    assert sockets[0] == "(deny network-outbound (remote unix-socket))"
    assert len(sockets) == 4


@pytest.mark.parametrize(
    ("name", "quoted"), [('a "b"', '"/a \\"b\\""'), ("a\\b", '"/a\\\\b"'), ("(deny)", '"/(deny)"'), ("ä", '"/ä"')]
)
def test_no_path_breaks_out_of_its_quotes(name: str, quoted: str) -> None:
    assert quoted in seatbelt.profile([Mount(f"/{name}", "hide")], cwd="/", temp="/t")


def test_a_path_that_cannot_be_quoted_starts_nothing() -> None:
    with pytest.raises(LaunchError, match="rename it"):
        seatbelt.profile([Mount("/a\n(allow file-write*)", "write")], cwd="/", temp="/t")


@pytest.mark.parametrize(
    ("program", "reason"),
    [
        ("exit 0", "a trial ended with code 0"),  # it ran nothing
        ('shift 2; exec "$@"', "a trial ended with code 9"),  # it confined nothing
        ("echo 'sandbox-exec: profile error' >&2; exit 65", "sandbox-exec: profile error"),
    ],
)
def test_a_sandbox_that_does_not_prove_itself_is_not_used(
    program: str, reason: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake = tmp_path / "sandbox-exec"
    fake.write_text(f"#!/bin/sh\n{program}\n")
    fake.chmod(0o755)
    monkeypatch.setattr(seatbelt, "PROGRAM", str(fake))
    monkeypatch.setattr(mechanism, "MEANS_OF", {sys.platform: ("seatbelt",)})
    monkeypatch.setattr(mechanism, "_works", {})
    with pytest.raises(NotSupported) as caught:
        asyncio.run(choose({}))
    assert f"it was not started (seatbelt: {reason})" in str(caught.value)


@pytest.mark.parametrize(
    ("system", "env", "message"),
    [
        ("freebsd", {}, "confine needs Linux or macOS; on freebsd run the agent in a container"),
        ("darwin", {CHOSEN_BY: "bubblewrap"}, "'bubblewrap': choose from seatbelt"),
    ],
)
def test_each_system_has_its_own_means(
    system: str, env: dict[str, str], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mechanism.sys, "platform", system)
    with pytest.raises(NotSupported, match=message):
        asyncio.run(choose(env))
