"""The files of Gemini CLI: the user's ``.gemini``, a private home for one session, its session file while it grows.

The CLI has no flag for settings. Its system settings file, which an environment variable can move, must belong to root
in a folder no other may write, so that a file in ``/tmp`` is passed over with a warning. What remains is
``GEMINI_CLI_HOME``: a folder with a ``.gemini`` in which only ``settings.json`` is ours. Sessions, sign-ins, memory,
extensions and policies are links to the user's own, so that both see the same, and the user's settings stay untouched.
"""

from __future__ import annotations

import contextlib
import fcntl
import glob
import json
import os
import shutil
import tempfile
import threading
import time
import weakref
from codecs import BOM_UTF8
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, cast

import msgspec

from .events import Event, GeminiMessage, GeminiToolResult
from .protocol import StreamProtocol
from .records import SessionFileReplay, ToolDetails, details

SETTINGS = "settings.json"
PREFIX = "stagedoor-gemini-"
LOCK = "lock"
PAUSES = (0.1, 0.4, 1, 4, 15, 40)
"""Seconds between looks at a home that its CLI may still make anew."""
_FOLDERS = ("tmp", "history")
_WRITTEN = (
    "oauth_creds.json", "google_accounts.json", "mcp-oauth-tokens.json", "a2a-oauth-tokens.json", "installation_id",
    "trustedFolders.json", "state.json", "GEMINI.md",
)  # fmt: skip
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
        self._lock = _locked(Path(self.path))
        self._finalizer = weakref.finalize(self, _remove_forgotten, self.path, self._lock)
        try:
            self._fill(user_home(env).absolute(), settings)
        except BaseException:
            self.remove()
            raise

    def remove(self) -> None:
        """Removes the links, never what they lead to."""
        if self._finalizer.detach():
            _remove(self.path, self._lock)

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


def _remove_forgotten(path: str, lock: int) -> None:
    """Of a session that nobody ended: its CLI is being killed meanwhile, and may make the folder anew."""
    _remove(path, lock)
    with contextlib.suppress(RuntimeError):  # the interpreter ends: so does the CLI, and its guard sees to the folder
        threading.Thread(target=_remove_again, args=(path,), daemon=True).start()


def _remove_again(path: str) -> None:
    for pause in PAUSES:
        time.sleep(pause)
        shutil.rmtree(path, ignore_errors=True)


def remove_orphans() -> None:
    """Homes whose process is gone: they hold a copy of the user's settings, which must not stay there."""
    for lock in Path(tempfile.gettempdir()).glob(f"{PREFIX}*/{LOCK}"):
        with contextlib.suppress(OSError):
            if lock.parent.is_symlink() or lock.parent.stat().st_uid != os.getuid():
                continue
            descriptor = os.open(lock, os.O_RDWR | os.O_CLOEXEC)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(lock.parent, ignore_errors=True)
            finally:
                os.close(descriptor)


HEAD = 64 * 2**10


def projects(folder: Path) -> dict[str, str]:
    """The working directory of each slug below ``folder`` (a ``.gemini``).

    A slug is registered in ``projects.json`` and marked by a ``.project_root`` file; either may be missing.
    """
    directories: dict[str, str] = {}
    with contextlib.suppress(OSError, ValueError, AttributeError):
        registered: dict[str, Any] = json.loads((folder / "projects.json").read_bytes()).get("projects", {})
        directories |= {str(slug): path for path, slug in registered.items() if Path(str(slug)).name == slug}
    for place in sorted((folder / "tmp").glob("*/.project_root")):
        with contextlib.suppress(OSError, UnicodeDecodeError):
            directories[place.parent.name] = place.read_text().strip()
    return directories


def chats_folders(folder: Path, cwd: str | None) -> dict[Path, str]:
    """The folders with the sessions of ``cwd``, or of all working directories, each with its directory."""
    paths = None if cwd is None else {str(Path(cwd).absolute()), str(Path(cwd).resolve())}
    chosen = {slug: path for slug, path in projects(folder).items() if paths is None or path in paths}
    return {chats: path for slug, path in chosen.items() if (chats := folder / "tmp" / slug / "chats").is_dir()}


def session_id_of(path: Path) -> str:
    """From the header, which is the first line (of an older ``.json``, all of it); empty when there is none."""
    try:
        with path.open("rb") as file:
            text = file.readline(HEAD) if path.suffix == ".jsonl" else file.read()
            header: object = msgspec.json.decode(text.removeprefix(BOM_UTF8))
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError):
        return ""
    return str(cast("dict[str, Any]", header).get("sessionId", "")) if isinstance(header, dict) else ""


def session_files(folder: Path, cwd: str, session_id: str) -> list[Path]:
    """The files of one session, oldest first: the first is the conversation, others are what a resume left behind."""
    if not session_id:
        return []
    short = glob.escape(session_id[:8])
    files = [path for chats in chats_folders(folder, cwd) for path in chats.glob(f"session-*-{short}.json*")]
    return sorted((path for path in files if session_id_of(path) == session_id), key=lambda path: path.name)


def locator(folder: Path, cwd: str, session_id: str) -> Callable[[], Path | None]:
    """Looks for the conversation's file, which exists a little after the session has started."""
    return lambda: next(iter(session_files(folder, cwd, session_id)), None)


def sweep_stubs(folder: Path, cwd: str, session_id: str) -> list[Path]:
    """Remove the empty files that resuming this session has left; returns them.

    Each resume creates an empty file under the same short id, then continues in the old one. The next start of Gemini
    in that project with ``sessionRetention`` on (its default, so the user's own next start) takes the empty file for an
    expired session and deletes every file with that short id: the real conversation is lost.
    """
    files = session_files(folder, cwd, session_id)
    removed: list[Path] = []
    if len(files) < 2 or not _has_content(files[0]):
        return removed
    for path in files[1:]:
        with contextlib.suppress(OSError):
            if not _has_content(path):
                path.unlink()
                removed.append(path)
    return removed


def forget_unanswered(folder: Path, cwd: str, session_id: str) -> bool:
    """Whether this session's files, of which there are some, have no content; they are removed then.

    A first turn that failed leaves a file without content: the CLI neither resumes it nor lets its id be used again.
    Only for a session the caller has created itself and got no answer in: what has content is left to the CLI.
    """
    files = session_files(folder, cwd, session_id)
    if not files or any(_has_content(path) for path in files):
        return False
    for path in files:
        with contextlib.suppress(OSError):
            path.unlink()
    return True


def _has_content(path: Path) -> bool:
    replay = SessionFileReplay()
    try:
        replay.feed(path.read_bytes().split(b"\n"))
    except OSError:
        return True  # what cannot be read is not ours to judge
    return any(message.is_resumable for message in replay.messages)


class SessionFile:
    """Reads a session's file as far as it has been written, each time only what is new."""

    def __init__(self, locate: Callable[[], Path | None]) -> None:
        self._locate = locate
        self._path: Path | None = None
        self._offset = 0
        self._size = 0
        self.replay = SessionFileReplay()

    @property
    def is_located(self) -> bool:
        return self._path is not None

    def read(self) -> SessionFileReplay:
        self._path = self._path or self._locate()
        if self._path is not None:
            with contextlib.suppress(OSError):
                size = self._path.stat().st_size
                if size != self._size:  # it only grows; opening it each time would cost more than all else
                    self._read_on(self._path)
                    self._size = size
        return self.replay

    def _read_on(self, path: Path) -> None:
        with path.open("rb") as file:
            file.seek(self._offset)
            content = file.read()
        whole = content.rfind(b"\n") + 1  # the last line may be half written
        self._offset += whole
        self.replay.feed(content[:whole].split(b"\n"))

    def tool_details(self, tool_id: str) -> ToolDetails | None:
        record = self.read().tool(tool_id)
        return details(record) if record else None


class DetailedProtocol:
    """A stream protocol that also reads the session file: :class:`ToolDetails` come behind the results they belong to.

    The CLI writes them after it has printed the results of a model turn and before it prints anything else.
    """

    def __init__(self, protocol: StreamProtocol, file: SessionFile, session_id: str = "", turn_id: int = 0) -> None:
        self._protocol = protocol
        self._file = file
        self.session_id = session_id
        self.turn_id = turn_id
        self._awaited: list[str] = []
        self._looks = 0
        """Since something is awaited."""

    def receive(self, message: bytes) -> list[Event]:
        events: list[Event] = []
        for event in self._protocol.receive(message):
            if isinstance(event, GeminiToolResult):
                self._awaited.append(event.tool_id)
                self._looks = 0
            elif self._awaited:
                events += self._details(is_piece=isinstance(event, GeminiMessage))
            events.append(event)
        return events

    def receive_eof(self) -> list[Event]:
        return [*self._details(), *self._protocol.receive_eof()]

    def outgoing(self) -> list[bytes]:
        return self._protocol.outgoing()

    def _details(self, *, is_piece: bool = False) -> list[Event]:
        if not self._awaited:
            return []
        self._looks += 1
        if is_piece and not self._file.is_located and self._looks & (self._looks - 1):
            return []  # to find the file its folder is searched: while the model speaks, ever more rarely
        replay = self._file.read()
        records = {tool_id: record for tool_id in self._awaited if (record := replay.tool(tool_id))}
        self._awaited = [tool_id for tool_id in self._awaited if tool_id not in records]
        return [details(record) for record in records.values()]
