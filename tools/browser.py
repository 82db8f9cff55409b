"""The system's Chromium, for the tests of the page: ``make browser`` brings Debian's where it may.

    python -m tools.browser

Nothing is downloaded by Playwright itself: it drives the program that is found here.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
PLACES = ("/usr/bin/chromium", "/usr/bin/chromium-browser")
FLAGS = (
    "--no-sandbox",  # it only ever opens our own page, and root may not have a sandbox
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
    "--hide-scrollbars",
)
PATIENCE = 900
"""Seconds that the package manager may take."""


def find_browser(env: Mapping[str, str] = os.environ) -> str | None:
    """``STAGEDOOR_CHROMIUM``, else the Chromium on the path, else where Debian puts it."""
    named = env.get("STAGEDOOR_CHROMIUM")
    if named:
        return named if Path(named).is_file() else None
    programs = [program for name in NAMES if (program := shutil.which(name, path=env.get("PATH")))]
    return next(iter([*programs, *(place for place in PLACES if Path(place).is_file())]), None)


def install_browser() -> str | None:
    """Ask the distribution for its Chromium, if we may; where it is then."""
    apt = shutil.which("apt-get")
    rights = _rights()
    if apt is None or rights is None:
        return None
    print("installing chromium from the distribution's packages (once, about a minute)", flush=True)
    env = ["env", "DEBIAN_FRONTEND=noninteractive"]
    words = [*rights, *env, apt, "install", "-y", "-qq", "--no-install-recommends", "chromium", "fonts-dejavu-core"]
    for command in ([*rights, apt, "update", "-qq"], words):
        try:
            subprocess.run(command, check=False, capture_output=True, timeout=PATIENCE, stdin=subprocess.DEVNULL)
        except (OSError, subprocess.TimeoutExpired):
            return None
    return find_browser()


def _rights() -> list[str] | None:
    if os.geteuid() == 0:
        return []
    sudo = shutil.which("sudo")
    if sudo is None:
        return None
    probe = subprocess.run([sudo, "-n", "true"], check=False, capture_output=True, stdin=subprocess.DEVNULL)
    return [sudo, "-n"] if probe.returncode == 0 else None


def main() -> int:
    if find_browser() or install_browser():
        return 0
    if os.environ.get("CI") == "true":
        print("Chromium not found: with CI=true the tests of the page must run", file=sys.stderr)
        return 1
    print("Chromium not found: the tests of the page are skipped (set STAGEDOOR_CHROMIUM to its path)")
    return 0


if __name__ == "__main__":
    sys.exit(main())
