"""A private home for one session: our settings, and links to everything else of the user's ``.gemini``.

The CLI has no flag for settings. Its system settings file, which an environment variable can move, must belong to root
in a folder no other may write, so that a file in ``/tmp`` is passed over with a warning. What remains is
``GEMINI_CLI_HOME``: a folder with a ``.gemini`` in which only ``settings.json`` is ours. Sessions, sign-ins, memory,
extensions and policies are links to the user's own, so that both see the same, and the user's settings stay untouched.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
import weakref
from collections.abc import Mapping
from pathlib import Path

SETTINGS = "settings.json"
_FOLDERS = ("tmp", "history")
_WRITTEN = (
    "oauth_creds.json",
    "google_accounts.json",
    "mcp-oauth-tokens.json",
    "a2a-oauth-tokens.json",
    "installation_id",
    "trustedFolders.json",
    "state.json",
    "GEMINI.md",
)
"""Files the CLI may create: a link that leads nowhere yet lets it create them where they belong."""


def user_home(env: Mapping[str, str]) -> Path:
    return Path(env.get("GEMINI_CLI_HOME") or env.get("HOME") or Path.home())


def user_folder(env: Mapping[str, str]) -> Path:
    """The user's own ``.gemini``."""
    return user_home(env) / ".gemini"


def user_settings(env: Mapping[str, str]) -> bytes | None:
    try:
        return (user_folder(env) / SETTINGS).read_bytes()
    except OSError:
        return None


class PrivateHome:
    """``path`` is for ``GEMINI_CLI_HOME``. Removed by :meth:`remove`, or when it is collected."""

    def __init__(self, env: Mapping[str, str], settings: bytes) -> None:
        self.path = tempfile.mkdtemp(prefix="podium-gemini-")
        self._finalizer = weakref.finalize(self, shutil.rmtree, self.path, ignore_errors=True)
        try:
            self._fill(user_home(env).absolute(), settings)
        except BaseException:
            self.remove()
            raise

    def remove(self) -> None:
        """Removes the links, never what they lead to."""
        self._finalizer()

    def _fill(self, home: Path, settings: bytes) -> None:
        mine, theirs = Path(self.path) / ".gemini", home / ".gemini"
        mine.mkdir()
        (Path(self.path) / "tmp").mkdir()
        with contextlib.suppress(OSError):  # a home that cannot be written is the CLI's to complain about
            for name in _FOLDERS:
                (theirs / name).mkdir(parents=True, exist_ok=True)
        with contextlib.suppress(OSError):
            present = [name for name in os.listdir(theirs) if not name.endswith((".tmp", ".lock"))]  # noqa: PTH208
            for name in {*present, *_FOLDERS, *_WRITTEN} - {SETTINGS}:
                (mine / name).symlink_to(theirs / name)
        for name in (".agents", ".env"):
            if (home / name).exists():
                (Path(self.path) / name).symlink_to(home / name)
        place = mine / SETTINGS
        place.touch(0o600)
        place.write_bytes(settings)
