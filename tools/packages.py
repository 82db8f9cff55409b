"""Programs from the distribution (on a Mac: Homebrew) that tests need, where we may install them: ``make sandbox``.

python -m tools.packages bubblewrap socat
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys

PATIENCE = 900
"""Seconds that the package manager may take."""
PROGRAMS = {"bubblewrap": "bwrap"}
"""Package → its program, where that has another name."""
LINUX_ONLY = frozenset({"bubblewrap", "strace"})
"""What a Mac does not have: the tests that need it are skipped there."""


def install(*packages: str) -> bool:
    """Ask whoever brings programs to this machine for ``packages``. False: nothing was done."""
    return brew_install(*packages) if sys.platform == "darwin" else apt_install(*packages)


def brew_install(*packages: str, cask: bool = False) -> bool:
    brew = shutil.which("brew") or shutil.which("brew", path="/opt/homebrew/bin:/usr/local/bin")
    if brew is None:
        return False
    env = {**os.environ, "HOMEBREW_NO_AUTO_UPDATE": "1"}
    words = [brew, "install", *(["--cask"] if cask else []), *packages]
    try:
        done = subprocess.run(
            words, check=False, capture_output=True, timeout=PATIENCE, stdin=subprocess.DEVNULL, env=env
        )
    except (OSError, subprocess.TimeoutExpired):
        return False
    return done.returncode == 0


def apt_install(*packages: str) -> bool:
    """Ask the distribution for ``packages``, if we may. False: nothing was done."""
    apt = shutil.which("apt-get")
    rights = _rights()
    if apt is None or rights is None:
        return False
    env = ["env", "DEBIAN_FRONTEND=noninteractive"]
    words = [*rights, *env, apt, "install", "-y", "-qq", "--no-install-recommends", *packages]
    for command in ([*rights, apt, "update", "-qq"], words):
        try:
            subprocess.run(command, check=False, capture_output=True, timeout=PATIENCE, stdin=subprocess.DEVNULL)
        except (OSError, subprocess.TimeoutExpired):
            return False
    return True


def _rights() -> list[str] | None:
    if os.geteuid() == 0:
        return []
    sudo = shutil.which("sudo")
    if sudo is None:
        return None
    probe = subprocess.run([sudo, "-n", "true"], check=False, capture_output=True, stdin=subprocess.DEVNULL)
    return [sudo, "-n"] if probe.returncode == 0 else None


def missing(packages: list[str]) -> list[str]:
    names = [package for package in packages if sys.platform == "linux" or package not in LINUX_ONLY]
    return [package for package in names if shutil.which(PROGRAMS.get(package, package)) is None]


def main(packages: list[str]) -> int:
    wanting = missing(packages)
    if not wanting or (install(*wanting) and not missing(packages)):
        return 0
    print(f"{', '.join(missing(packages))} not found: tests that need them are skipped", file=sys.stderr)
    return 1 if os.environ.get("CI") == "true" else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
