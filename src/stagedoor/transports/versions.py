"""Which versions of a program were proven to keep our rules, and whether the one at hand is among them.

Asking a program for its version takes up to a second, so the answer is kept, in this process and in the file
``versions.json`` of the state folder, for as long as the program's file stays the very same.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeAlias

import msgspec

from ..errors import LaunchError, UnsupportedVersion
from ..whole_file import replace_file
from .executables import VERSION, read_version

ALLOW_UNPROVEN = "STAGEDOOR_ALLOW_UNPROVEN"
"""Set to 1 in our own environment (a session's or a project's does not count), any version is accepted."""
PATIENCE = 60.0

Version: TypeAlias = tuple[int, int, int]
Identity: TypeAlias = tuple[tuple[str, int, int, int, int], ...]
"""The files that tell one installation from another: path, inode, size, and when each was changed."""
_seen: dict[Identity, str] = {}


class CheckedVersion(msgspec.Struct, frozen=True):
    """A version that is accepted, and what there is to be known about it."""

    version: str
    notice: str = ""


class ProvenVersions(msgspec.Struct, frozen=True):
    """The oldest and the newest version of ``program`` that passed the whole permission contract."""

    program: str
    oldest: str
    newest: str
    install: str
    """The command that brings the newest one."""

    async def check(
        self, executable: str, *, env: Mapping[str, str] | None = None, extra: Mapping[str, str] | None = None
    ) -> CheckedVersion:
        """Ask ``executable`` for its version. Raises ``UnsupportedVersion`` when it is too old or cannot be read."""
        identity = await asyncio.to_thread(identity_of, executable)
        version = _seen.get(identity) or await asyncio.to_thread(_remembered, identity)
        if not version:
            try:
                async with asyncio.timeout(PATIENCE):
                    version = text_of(await read_version(executable, env=env, extra=extra))
            except (LaunchError, TimeoutError) as fault:
                return self._unreadable(executable, str(fault) or f"no answer within {PATIENCE:g} s")
            if identity:
                await asyncio.to_thread(_remember, identity, version)
        if identity:
            _seen[identity] = version
        return self.judge(version)

    def judge(self, version: str | Version) -> CheckedVersion:
        """The same for a version that the running program has told."""
        numbers = numbers_of(version) if isinstance(version, str) else version
        if numbers is None:
            return self._unreadable(self.program, f"it says {version!r}")
        name = text_of(numbers)
        if numbers < _numbers(self.oldest):
            return self._refuse(
                f"{self.program} {name} is too old: Stagedoor needs {self.oldest} or newer; run {self.install}", name
            )
        if numbers > _numbers(self.newest) and name not in proven_here(self.program):
            return CheckedVersion(
                name,
                f"{self.program} {name} is newer than {self.newest}, the newest version that was proven to keep every "
                f"rule: run stagedoor doctor --deep {self.program} to prove it here",
            )
        return CheckedVersion(name)

    def _unreadable(self, executable: str, why: str) -> CheckedVersion:
        return self._refuse(
            f"cannot tell the version of {executable}: {why}; Stagedoor needs {self.program} {self.oldest} or newer: "
            f"run {self.install}, or set {ALLOW_UNPROVEN}=1 to run it without any proof that it keeps the rules",
            "",
        )

    def _refuse(self, why: str, version: str) -> CheckedVersion:
        if os.environ.get(ALLOW_UNPROVEN) == "1":
            return CheckedVersion(version, f"{why} ({ALLOW_UNPROVEN} is set, so it runs all the same)")
        raise UnsupportedVersion(why)


def text_of(version: Version) -> str:
    return ".".join(map(str, version))


def numbers_of(version: str) -> Version | None:
    """The three numbers in ``version``, whatever is around them."""
    numbers = VERSION.search(version)
    return (int(numbers[1]), int(numbers[2]), int(numbers[3])) if numbers else None


def _numbers(version: str) -> Version:
    numbers = numbers_of(version)
    assert numbers is not None, version
    return numbers


# ------------------------------------------------------------------------------------------------ what was learned


def identity_of(executable: str) -> Identity:
    """What changes when another version takes this one's place; empty where that cannot be told.

    A script may start anything, so it only counts with the package it belongs to. Packages keep the times their
    files were packed with, hence the inode and the time of the last change of the inode.
    """
    program = Path(executable)
    try:
        program = program.resolve(strict=True)
        files = [program]
        with program.open("rb") as opened:
            if opened.read(2) == b"#!":
                manifest = _manifest(program)
                if manifest is None:
                    return ()
                files.append(manifest)
        return tuple(_marks(file) for file in files)
    except OSError:
        return ()


def _marks(file: Path) -> tuple[str, int, int, int, int]:
    state = file.stat()
    return str(file), state.st_ino, state.st_size, state.st_mtime_ns, state.st_ctime_ns


def _manifest(script: Path) -> Path | None:
    """The description of the npm package that ``script`` is part of."""
    for folder in script.parents:
        if "node_modules" not in folder.parent.parts:
            return None
        if (folder / "package.json").is_file():
            return folder / "package.json"
    return None


class _Remembered(msgspec.Struct, frozen=True):
    """What ``versions.json`` has of one program: its files as they were when it was asked."""

    files: list[Any]
    version: str


def _remembered(identity: Identity) -> str:
    entry: Any = _read("versions.json").get(identity[0][0]) if identity else None
    try:
        remembered = msgspec.convert(entry, _Remembered)
    except msgspec.ValidationError:
        return ""
    same = remembered.files == [list(file) for file in identity]
    return remembered.version if same and numbers_of(remembered.version) else ""


def _remember(identity: Identity, version: str) -> None:
    entry = {"files": identity, "version": version}
    _write("versions.json", {**_read("versions.json"), identity[0][0]: entry})


def proven_here(program: str) -> list[str]:
    """The versions that ``doctor --deep`` found to keep the rules on this machine."""
    versions: Any = _read("proven.json").get(program)
    try:
        return msgspec.convert(versions, list[str])
    except msgspec.ValidationError:
        return []


def add_proven(program: str, version: str) -> None:
    if version not in proven_here(program):
        _write("proven.json", {**_read("proven.json"), program: [*proven_here(program), version]})


def _folder() -> Path:
    if home := os.environ.get("STAGEDOOR_HOME"):
        return Path(home)
    state = os.environ.get("XDG_STATE_HOME") or Path(os.environ.get("HOME") or Path.home()) / ".local" / "state"
    return Path(state) / "stagedoor"


def _read(name: str) -> dict[str, object]:
    try:
        return msgspec.json.decode((_folder() / name).read_bytes(), type=dict[str, object])
    except (OSError, msgspec.DecodeError):
        return {}


def _write(name: str, content: dict[str, object]) -> None:
    with contextlib.suppress(OSError):  # then it is asked for again
        replace_file(_folder() / name, msgspec.json.encode(content).decode())
