"""Find an agent's program, and ask it for its version."""

from __future__ import annotations

import asyncio
import os
import re
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

from ..errors import LaunchError, NotInstalled
from .launch import Launch, Signal
from .process import ChildProcess

PATIENCE = 60.0
"""Seconds that a program may take to tell its version, or whether it is signed in."""
INSTALLED_BY = {
    "/opt/homebrew/bin": "Homebrew",
    "/usr/local/bin": "Homebrew on an Intel Mac, npm",
    "/opt/local/bin": "MacPorts",
    "/home/linuxbrew/.linuxbrew/bin": "Homebrew on Linux",
}
"""Where package managers put programs that a shell finds and a service does not."""
VERSION = re.compile(r"(\d+)\.(\d+)\.(\d+)")


def find_executable(
    name: str,
    *,
    executable: str | None = None,
    env: Mapping[str, str] | None = None,
    install: str = "",
    hints: Sequence[str] = (),
) -> str:
    """The absolute path of ``name``: the given ``executable``, else on ``PATH``, else in one of the ``hints`` folders.

    Raises ``NotInstalled``, saying that ``install`` is the command that brings it, and then where we looked.
    """
    environ = os.environ if env is None else env
    if executable is not None:
        version = shutil.which(executable, path=environ.get("PATH"))
        if version is None:
            raise NotInstalled(f"{executable!r} is not an executable program: correct the path. {_cure(name, install)}")
        return str(Path(version).absolute())
    home = environ.get("HOME", "")
    folders = [str(Path(hint.replace("~", home, 1))) for hint in hints]
    path = os.pathsep.join([environ.get("PATH", os.defpath), *folders])
    version = shutil.which(name, path=path)
    if version is None:
        places = " and in ".join(["the PATH", *([", ".join(hints)] if hints else [])])
        raise NotInstalled(f"{name} was not found. {_cure(name, install)} (looked in {places})")
    return str(Path(version).absolute())


def _cure(name: str, install: str) -> str:
    return f"Install it with: {install}" if install else f"Install {name}, or name its file as the executable"


async def read_version(
    executable: str, *, env: Mapping[str, str] | None = None, extra: Mapping[str, str] | None = None
) -> tuple[int, int, int]:
    """What ``executable --version`` says. ``env`` replaces the environment, ``extra`` is laid over it."""
    launch = Launch(argv=(executable, "--version"), cwd="/", env=extra or {}, stdin="null", stop=(Signal(15, 1.0),))
    text = ""
    async with await ChildProcess.start(launch, base_env=env) as process:
        try:
            async with asyncio.timeout(PATIENCE):
                async for batch in process.batches():
                    text += "\n".join(part.decode("utf-8", "replace") for part in batch if isinstance(part, bytes))
                await process.wait()
        except TimeoutError:
            raise LaunchError(f"{executable} --version did not end in {PATIENCE:g} seconds; try it yourself") from None
        version = VERSION.search(text) or VERSION.search(process.stderr_tail)
        if version is None:
            output = (text or process.stderr_tail)[:200]
            raise LaunchError(f"{executable} --version printed {output!r}; is it the right program?")
    return int(version[1]), int(version[2]), int(version[3])
