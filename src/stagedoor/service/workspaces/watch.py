"""A workspace as it changes: what was written, made and removed, many changes at once, without git's inside.

One watch per folder serves all who follow it: the system has few of them, and each costs a thread.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncGenerator, Callable, Iterable
from pathlib import Path
from typing import Literal, TypeAlias

import msgspec

from stagedoor.errors import BadRequest
from stagedoor.transports.tasks import TaskOwner
from stagedoor.workspace import PASSED_OVER

from .git import git_folder

MOST = 500
TOGETHER = 300
"""Milliseconds: what happens within is told at once."""
STEP = 50
"""Milliseconds between two looks whether the watch is still wanted."""
IDLE = 100
"""Milliseconds after which it is sure that the watch has begun, and each time nothing happens."""
_GITS_OWN = frozenset({"HEAD", "index", "packed-refs", "MERGE_HEAD", "REBASE_HEAD", "refs"})
FileChangeKind: TypeAlias = Literal["created", "modified", "deleted"]
_CHANGES: dict[int, FileChangeKind] = {1: "created", 2: "modified", 3: "deleted"}


class FileTouched(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    path: str
    change: FileChangeKind


class Touched(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """``git``: a commit, a checkout or the index changed too. ``cut``: more files were touched than are told."""

    files: tuple[FileTouched, ...] = ()
    git: bool = False
    cut: bool = False


class Watches:
    """The folders that somebody follows."""

    def __init__(self) -> None:
        self._open: dict[Path, _Watch] = {}

    async def follow(self, folder: Path) -> AsyncGenerator[Touched]:
        """An empty one first: what happens after it is told, until the folder is gone or nobody listens any more."""
        root = await asyncio.to_thread(folder.resolve)
        watch = self._open.get(root)
        if watch is None:
            watch = self._open[root] = _Watch(root)
        follower = _Follower()
        watch.followers.add(follower)
        try:
            await asyncio.shield(watch.ready)
            yield Touched()
            while (touched := await follower.next()) is not None:
                yield touched
        except OSError as fault:
            raise BadRequest(f"{folder} cannot be watched: {fault}") from fault
        finally:
            watch.followers.discard(follower)
            if not watch.followers:
                watch.close()
                if self._open.get(root) is watch:
                    del self._open[root]


class _Follower:
    """What one of them has not been told yet: for each file the last, so that it takes little room."""

    def __init__(self) -> None:
        self._files: dict[str, FileChangeKind] = {}
        self._git = self._cut = self._ended = False
        self._news = asyncio.Event()

    def add(self, files: Iterable[tuple[str, FileChangeKind]], *, git: bool, ended: bool) -> None:
        for path, change in files:
            if path not in self._files and len(self._files) >= MOST:
                self._cut = True
            elif change != "modified" or self._files.get(path) != "created":
                self._files[path] = change
        self._git |= git
        self._ended |= ended
        if self._files or self._git or self._ended:
            self._news.set()

    async def next(self) -> Touched | None:
        await self._news.wait()
        self._news.clear()
        if not (self._files or self._git):
            return None
        files = tuple(FileTouched(path=path, change=change) for path, change in sorted(self._files.items()))
        touched = Touched(files=files, git=self._git, cut=self._cut)
        self._files, self._git, self._cut = {}, False, False
        if self._ended:
            self._news.set()
        return touched


class _Watch:
    """One folder; ``ready`` ends when nothing is missed any more, or raises ``OSError``."""

    def __init__(self, root: Path) -> None:
        self.followers: set[_Follower] = set()
        self._root = root
        self._own: Path | None = None
        self._stop = threading.Event()
        self._loop = asyncio.get_running_loop()
        self._tasks = TaskOwner()
        self.ready = self._tasks.start(self._begin())

    def close(self) -> None:
        self._stop.set()

    async def _begin(self) -> None:
        self._own = await git_folder(self._root)
        apart = [self._own] if self._own is not None and not self._own.is_relative_to(self._root) else []
        ready: asyncio.Future[None] = self._loop.create_future()
        # A thread of its own: it lasts, and a large folder takes long to begin with.
        places = [self._root, *apart]
        threading.Thread(target=self._look, args=(places, ready), name=f"watch {self._root}", daemon=True).start()
        await ready

    def _look(self, places: list[Path], ready: asyncio.Future[None]) -> None:
        from watchfiles import watch  # pyright: ignore[reportUnknownVariableType]

        try:
            for raw in watch(
                *places, watch_filter=None, debounce=TOGETHER, step=STEP, stop_event=self._stop,
                rust_timeout=IDLE, yield_on_timeout=True, ignore_permission_denied=True,
            ):  # fmt: skip
                self._call(_set, ready, None)
                if raw:
                    self._call(self._tell, *self._sorted(raw), not self._root.is_dir())
        except OSError as fault:
            self._call(_set, ready, fault)

    def _call(self, function: Callable[..., None], *arguments: object) -> None:
        try:
            self._loop.call_soon_threadsafe(function, *arguments)
        except RuntimeError:  # the loop is closed, and nobody listens
            self._stop.set()

    def _sorted(self, raw: Iterable[tuple[int, str]]) -> tuple[list[tuple[str, FileChangeKind]], bool]:
        files: list[tuple[str, FileChangeKind]] = []
        git = False
        for change, text in sorted(raw, key=lambda change: change[1]):
            path = Path(text)
            if self._own is not None and path.is_relative_to(self._own):
                first = path.relative_to(self._own).parts[:1]
                git |= bool(first) and first[0] in _GITS_OWN and not text.endswith(".lock")
            elif path.is_relative_to(self._root):
                inner = path.relative_to(self._root)
                if inner.parts and not PASSED_OVER.intersection(inner.parts):
                    files.append((str(inner).encode("utf-8", "replace").decode(), _CHANGES[change]))
        return files, git

    def _tell(self, files: list[tuple[str, FileChangeKind]], *signs: bool) -> None:
        git, ended = signs
        for follower in self.followers:
            follower.add(files, git=git, ended=ended)


def _set(ready: asyncio.Future[None], fault: OSError | None) -> None:
    if ready.done():
        return
    if fault is None:
        ready.set_result(None)
    else:
        ready.set_exception(fault)
