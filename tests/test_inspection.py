"""What is found of an agent's program, whatever that program does."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path

import pytest

from stagedoor.drivers.agent import Presence
from stagedoor.drivers.inspection import inspected
from stagedoor.drivers.understudy.agent import AGENT
from stagedoor.transports.executables import find_executable, read_version
from stagedoor.transports.versions import CheckedVersion, text_of

PROGRAMS = {
    "well": ("echo 'it 1.2.3'", {"version": "1.2.3", "signed_in": False, "problem": "no key", "fix": "set one"}),
    "mute": ("exit 1", {"problem": "{path} --version printed ''; is it the right program?"}),
    "hung": ("sleep 600", {"problem": "{path} did not answer within 3 s", "fix": "{path} --version"}),
    "none": (
        None,
        {"problem": "it was not found. Install it, or name its file as the executable (looked in the PATH)"},
    ),
}


@pytest.mark.parametrize("case", PROGRAMS)
def test_what_a_program_shows_of_itself(tmp_path: Path, case: str) -> None:
    does, expected = PROGRAMS[case]
    path = tmp_path / "it"
    if does is not None:
        path.write_text(f"#!/bin/sh\n{does}\n")
        path.chmod(0o755)
    env: Mapping[str, str] = {"PATH": str(tmp_path)}
    words = {"path": str(path), "folder": str(tmp_path)}

    async def main() -> Presence:
        async def version() -> CheckedVersion:
            return CheckedVersion(text_of(await read_version(str(path), env={"PATH": "/usr/bin:/bin"})))

        return await inspected(
            AGENT,
            lambda: find_executable("it", env=env),
            version,
            lambda: (False, "no key", "set one"),
            patience=3 if case == "hung" else 60,
        )

    assert asyncio.run(main()) == Presence(
        agent=AGENT.name,
        title=AGENT.title,
        drivers={name: driver.capabilities for name, driver in AGENT.drivers.items()},
        installed=does is not None,
        executable=str(path) if does is not None else "",
        **{name: value.format(**words) if isinstance(value, str) else value for name, value in expected.items()},  # type: ignore[arg-type]
    )
