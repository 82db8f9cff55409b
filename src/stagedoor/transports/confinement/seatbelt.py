"""The sandbox of a Mac: a profile for ``sandbox-exec``, made from the same list of mounts as those of Linux.

Not yet run by us. So nothing is taken on trust: before its first use on a machine a child tries, under such a profile,
to write outside, to write what is read-only in a writable folder, to read what is hidden, and to write where it may
(``TRIAL``); if one of them goes wrong, ``confine`` refuses to start anything. Of rules that match, the last one counts.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ...errors import LaunchError
from .mounts import Mount

PROGRAM = "/usr/bin/sandbox-exec"
DEVICES = ("null", "zero", "random", "urandom", "tty", "ptmx", "dtracehelper", "autofs_nowait")
RESOLVER = "/private/var/run/mDNSResponder"
"""The one socket without which no name is found."""
WAYS_OUT = (
    "com.apple.coreservices.launchservicesd", "com.apple.coreservices.appleevents", "com.apple.lsd.open",
    "com.apple.lsd.mapdb", "com.apple.pasteboard.1", "com.apple.SecurityServer", "com.apple.securityd",
    "com.apple.xpc.smd", "com.apple.systemadministration.xpc",
)  # fmt: skip
"""Services outside that would start a program, or give out a secret, for whoever asks."""
TRIAL = (
    'if (: > "$1/outside") 2>/dev/null; then exit 9; fi; if (: > "$2/fixed/file") 2>/dev/null; then exit 10; fi; '
    'if (cat "$2/hidden/file") >/dev/null 2>&1; then exit 11; fi; '
    'cat "$2/fixed/file" > /dev/null || exit 12; : > "$2/inside"'
)
"""``$1`` is a folder outside, ``$2`` one that can be written, with what ``prepare_trial`` has put there."""


def prepare_trial(folder: Path) -> list[Mount]:
    for name in ("fixed", "hidden"):
        (folder / name).mkdir()
        (folder / name / "file").write_text(name)
    return [Mount(str(folder / "fixed"), "read"), Mount(str(folder / "hidden"), "hide")]


def words(mounts: Sequence[Mount], *, cwd: str, temp: str) -> tuple[str, ...]:
    """What is put before the command line."""
    return (PROGRAM, "-p", profile(mounts, cwd=cwd, temp=temp))


def profile(mounts: Sequence[Mount], *, cwd: str, temp: str) -> str:
    """Everything is read, nothing written; then each mount in its order, parents before what lies in them."""
    lines = [
        "(version 1)",
        "(allow default)",
        "(deny file-write*)",
        *(f"(allow file-write* (literal {_quoted(f'/dev/{name}')}))" for name in DEVICES),
        '(allow file-write* (regex #"^/dev/(ttys[0-9]+|fd/[0-9]+)$"))',
    ]
    # Nothing can be shown at another place than its own: instead of /tmp the child is given ``temp``.
    own = {mount.path: mount for mount in (Mount(temp, "write"), *(mount for mount in mounts if not mount.source))}
    for mount in sorted(own.values(), key=lambda mount: mount.path.rstrip("/").count("/")):
        lines += _rules(mount)
    lines += [
        "(deny signal)",
        "(allow signal (target same-sandbox))",
        "(deny appleevent-send)",
        "(deny job-creation)",
        *(f"(deny mach-lookup (global-name {_quoted(name)}))" for name in WAYS_OUT),
        "(deny network-outbound (remote unix-socket))",
        f"(allow network-outbound (remote unix-socket (path-literal {_quoted(RESOLVER)})))",
        *(f"(allow network-outbound (remote unix-socket (subpath {_quoted(place)})))" for place in (cwd, temp)),
    ]
    return "\n".join(lines)


def _rules(mount: Mount) -> list[str]:
    place = f"({'subpath' if mount.is_folder else 'literal'} {_quoted(mount.path)})"
    match mount.access:
        case "write":
            return [f"(allow file-read* file-write* {place})"]
        case "read":
            return [f"(allow file-read* {place})", f"(deny file-write* {place})"]
        case "hide":
            return [f"(deny file-read* file-write* {place})"]


def _quoted(path: str) -> str:
    if any(ord(char) < 32 or ord(char) == 127 for char in path):
        raise LaunchError(f"{path!r} cannot be named in a profile of macOS's sandbox: rename it")
    escaped = path.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
