"""The system's Chromium, for the tests of the page: ``make browser`` brings Debian's or Homebrew's where it may.

    python -m tools.browser

Nothing is downloaded by Playwright itself: it drives the program that is found here.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path

from tools.packages import apt_install, brew_install

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
PLACES = (
    "/usr/bin/chromium", "/usr/bin/chromium-browser", "/opt/homebrew/bin/chromium", "/usr/local/bin/chromium",
    "/Applications/Chromium.app/Contents/MacOS/Chromium",
    "/Applications/Google Chrome.app/Contents/MacOS/Google Chrome",
)  # fmt: skip
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


def find_browser(env: Mapping[str, str] = os.environ) -> str | None:
    """``STAGEDOOR_CHROMIUM``, else the Chromium on the path, else where Debian and macOS put it."""
    named = env.get("STAGEDOOR_CHROMIUM")
    if named:
        return named if Path(named).is_file() else None
    programs = [program for name in NAMES if (program := shutil.which(name, path=env.get("PATH")))]
    return next(iter([*programs, *(place for place in PLACES if Path(place).is_file())]), None)


def install_browser() -> str | None:
    """Ask the distribution for its Chromium, if we may; where it is then."""
    print("installing chromium from the distribution's packages (once, about a minute)", flush=True)
    if sys.platform == "darwin":
        return find_browser() if brew_install("chromium", cask=True) else None
    return find_browser() if apt_install("chromium", "fonts-dejavu-core") else None


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
