"""Which means this machine has to confine a child, found by trying each, and the command line that uses it."""

from __future__ import annotations

import json
import os
import shutil
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal

import msgspec

from ...errors import NotSupported
from . import seatbelt
from .mounts import Mount

Means = Literal["bubblewrap", "namespaces", "landlock", "seatbelt"]
MEANS_OF: dict[str, tuple[Means, ...]] = {
    "linux": ("bubblewrap", "namespaces", "landlock"),
    "darwin": ("seatbelt",),
}
"""System → its means, the best first."""
INSIDE = Path(__file__).with_name("inside.py")
CHOSEN_BY = "STAGEDOOR_CONFINE_WITH"
"""Names the one to use in place of the first that works."""
INSTALL = (
    "install bubblewrap (apt install bubblewrap, dnf install bubblewrap, pacman -S bubblewrap, apk add bubblewrap) and "
    "allow user namespaces, or use a kernel with Landlock (Linux 6.2 or newer); `stagedoor doctor` shows what was tried"
)
UNCONFINED_AS_ROOT = ("/proc/sys", "/proc/sysrq-trigger", "/proc/irq", "/proc/bus")
"""bubblewrap leaves these writable to root: it asks whether they are with a test that proc always denies."""
REFUSES = 'if (: > "$1/outside") 2>/dev/null; then exit 9; fi; : > "$2/inside"'
"""The trial: a file outside cannot be written, one inside can."""


class Wrapped(msgspec.Struct, frozen=True):
    """``layers``: how many processes of the means stand above the child. ``temp``: where it finds its ``TMPDIR``."""

    argv: tuple[str, ...]
    layers: int
    temp: str


def wrap(means: Means, argv: Sequence[str], mounts: Sequence[Mount], *, cwd: str, temp: str) -> Wrapped:
    if means == "bubblewrap":
        return Wrapped((*_bubblewrap(mounts), "--chdir", cwd, "--", *argv), 2, "/tmp")
    if means == "seatbelt":
        return Wrapped((*seatbelt.words(mounts, cwd=os.path.realpath(cwd), temp=temp), *argv), 0, temp)
    if means == "landlock":
        _refuse_nested(mounts, os.path.realpath(cwd))
    plan = {"means": means, "cwd": cwd, "temp": temp, "mounts": [[one.path, one.access, one.source] for one in mounts]}
    words = (sys.executable, "-I", "-S", str(INSIDE), json.dumps(plan), *argv)
    return Wrapped(words, 0, "/tmp" if means == "namespaces" else temp)


def _refuse_nested(mounts: Sequence[Mount], cwd: str) -> None:
    """Landlock cannot take back below what it allows above."""
    for mount in mounts:
        if mount.access == "read" and mount.path == cwd:
            above = [place.path for place in mounts if place.access == "write" and cwd.startswith(f"{place.path}/")]
            if above and not mount.source and above != ["/tmp"]:
                raise NotSupported(
                    f"{cwd} lies in {above[0]}, which can be written, and Landlock cannot except it: {INSTALL}"
                )


def _bubblewrap(mounts: Sequence[Mount]) -> list[str]:
    words = [shutil.which("bwrap") or "bwrap", "--unshare-user", "--unshare-pid", "--unshare-ipc", "--die-with-parent"]
    words += ["--cap-drop", "ALL", "--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc"]
    if os.geteuid() == 0:
        for path in UNCONFINED_AS_ROOT:
            words += ["--ro-bind-try", path, path]
    for mount in mounts:
        match mount.access:
            case "write":
                words += ["--bind", mount.source or mount.path, mount.path]
            case "read":
                words += ["--ro-bind", mount.source or mount.path, mount.path]
            case "hide" if mount.is_folder:
                words += ["--perms", "0755", "--tmpfs", mount.path]
            case "hide":
                words += ["--ro-bind", "/dev/null", mount.path]
    return words


_works: dict[tuple[str, str], str] = {}
"""(means, path of programs) → why it does not work; empty: it does."""


async def choose(env: Mapping[str, str] = os.environ) -> Means:
    """The first that works here. Raises ``NotSupported``."""
    here = MEANS_OF.get(sys.platform, ())
    if not here:
        raise NotSupported(
            f"confine needs Linux or macOS; on {sys.platform} run the agent in a container or a virtual machine"
        )
    named = env.get(CHOSEN_BY, "")
    if named and named not in here:
        raise NotSupported(f"{CHOSEN_BY}={named!r}: choose from {', '.join(here)}")
    reasons: list[str] = []
    for means in here:
        if named and named != means:
            continue
        reason = await trial(means)
        if not reason:
            return means
        reasons.append(f"{means}: {reason}")
    advice = INSTALL if sys.platform == "linux" else "run the agent in a container or a virtual machine"
    raise NotSupported(f"this machine cannot confine an agent, so it was not started ({'; '.join(reasons)}): {advice}")


async def trial(means: Means) -> str:
    """Why ``means`` does not work here; empty: it does. Tried once per process, with a real start."""
    key = (means, os.environ.get("PATH", ""))
    if key not in _works:
        _works[key] = await _try(means)
    return _works[key]


async def _try(means: Means) -> str:
    from ..launch import Launch
    from ..process import ChildProcess  # it starts confined children by what is found here

    if means == "bubblewrap" and shutil.which("bwrap") is None:
        return "bwrap is not on the PATH"
    if means == "seatbelt" and not os.access(seatbelt.PROGRAM, os.X_OK):
        return f"{seatbelt.PROGRAM} is not there"
    with tempfile.TemporaryDirectory(prefix="stagedoor-trial-") as folder:
        place = Path(folder).resolve()  # noqa: ASYNC240 (once per process)
        outside, temp = place / "out", place / "temp"
        outside.mkdir()
        temp.mkdir()
        mounts, script = [Mount(str(temp), "write")], REFUSES
        if means == "seatbelt":
            mounts += seatbelt.prepare_trial(temp)
            script = seatbelt.TRIAL
        command = ("/bin/sh", "-c", script, "sh", str(outside), str(temp))
        argv = wrap(means, command, mounts, cwd="/", temp=str(temp)).argv
        launch = Launch(argv=argv, cwd="/", stdin="null", stop=())
        async with await ChildProcess.start(launch) as process:
            code = await process.wait()
        if code == 0 and (temp / "inside").exists() and not (outside / "outside").exists():
            return ""
        words = process.stderr_tail.strip().splitlines()
        return words[-1] if words else f"a trial ended with code {code}"
