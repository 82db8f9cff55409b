"""The folders a person has trusted: ``trusted-folders.json`` in Stagedoor's own folder, written by nobody else."""

from __future__ import annotations

import fcntl
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import msgspec

from ..errors import StoreBroken
from ..register import home
from ..whole_file import replace_file
from .folders import is_covered, trust_subject

NAME = "trusted-folders.json"


class TrustedFolder(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """``folder``: its real path. A plain folder stands for all that is in it."""

    folder: str
    since_ms: int = 0
    who: str = ""
    """The device that trusted it over the server; empty at this machine."""


class _Record(msgspec.Struct, frozen=True, kw_only=True):
    folders: tuple[TrustedFolder, ...] = ()


class TrustRecord:
    """``folder``: Stagedoor's own, by default ``register.home()``."""

    def __init__(self, folder: Path | None = None) -> None:
        self.path = (folder or home()) / NAME

    def folders(self) -> tuple[TrustedFolder, ...]:
        """A record that cannot be read trusts nothing."""
        try:
            return self._read()
        except StoreBroken:
            return ()

    def covers(self, folder: Path) -> bool:
        return is_covered(folder, [entry.folder for entry in self.folders()])

    def add(self, folder: Path, *, who: str = "") -> TrustedFolder:
        """Trust what ``folder`` belongs to. Returns what is trusted now."""
        place = str(trust_subject(folder))
        entry = TrustedFolder(folder=place, since_ms=time.time_ns() // 1_000_000, who=who)
        with self._locked():
            others = tuple(other for other in self._read() if other.folder != place)
            self._write((*others, entry))
        return entry

    def remove(self, folder: Path) -> tuple[TrustedFolder, ...]:
        """Forget the entries for ``folder`` itself or what it belongs to. Returns them."""
        names = {str(trust_subject(folder)), str(folder.resolve()), str(folder)}
        with self._locked():
            entries = self._read()
            self._write(tuple(entry for entry in entries if entry.folder not in names))
        return tuple(entry for entry in entries if entry.folder in names)

    def _read(self) -> tuple[TrustedFolder, ...]:
        try:
            return msgspec.json.decode(self.path.read_bytes(), type=_Record).folders
        except FileNotFoundError:
            return ()
        except (OSError, msgspec.MsgspecError) as fault:
            raise StoreBroken(f"cannot read {self.path}: {fault}; correct the file, or remove it") from fault

    def _write(self, folders: tuple[TrustedFolder, ...]) -> None:
        text = msgspec.json.format(msgspec.json.encode(_Record(folders=folders)), indent=2).decode()
        replace_file(self.path, text + "\n")

    @contextmanager
    def _locked(self) -> Generator[None]:
        self.path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        with self.path.with_suffix(".lock").open("ab") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield
