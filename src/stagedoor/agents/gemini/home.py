"""A private home for one session: our settings, and links to everything else of the user's ``.gemini``.

The CLI has no flag for settings. Its system settings file, which an environment variable can move, must belong to root
in a folder no other may write, so that a file in ``/tmp`` is passed over with a warning. What remains is
``GEMINI_CLI_HOME``: a folder with a ``.gemini`` in which only ``settings.json`` is ours. Sessions, sign-ins, memory,
extensions and policies are links to the user's own, so that both see the same, and the user's settings stay untouched.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import tempfile
import weakref
from collections.abc import Mapping
from pathlib import Path

SETTINGS = "settings.json"
PREFIX = "stagedoor-gemini-"
LOCK = "lock"
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
    """``path`` is for ``GEMINI_CLI_HOME``. Removed by :meth:`remove`, or when it is collected.

    One that was left behind by a process that was killed is removed by the next to make one: its lock is free.
    """

    def __init__(self, env: Mapping[str, str], settings: bytes) -> None:
        remove_orphans()
        self.path = tempfile.mkdtemp(prefix=PREFIX)
        self._finalizer = weakref.finalize(self, _remove, self.path, _locked(Path(self.path)))
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


def _locked(home: Path) -> int:
    """Mark a home as in use, for as long as we live."""
    coming = home / f"{LOCK}.new"
    lock = os.open(coming, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
    fcntl.flock(lock, fcntl.LOCK_EX)
    coming.rename(home / LOCK)  # nobody can see it unlocked
    return lock


def _remove(path: str, lock: int) -> None:
    shutil.rmtree(path, ignore_errors=True)
    os.close(lock)


def remove_orphans() -> None:
    """Homes whose process is gone: they hold a copy of the user's settings, which is not to lie about."""
    for lock in Path(tempfile.gettempdir()).glob(f"{PREFIX}*/{LOCK}"):
        with contextlib.suppress(OSError):
            if lock.parent.is_symlink() or lock.parent.stat().st_uid != os.getuid():
                continue
            held = os.open(lock, os.O_RDWR | os.O_CLOEXEC)
            try:
                fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(lock.parent, ignore_errors=True)
            finally:
                os.close(held)
