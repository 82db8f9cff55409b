"""Checkpoints of workspaces: one before each turn, and files put back as they were.

A turn that begins waits for a restore that is under way in its folder, and none is begun while a turn runs there.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Sequence
from pathlib import Path

import msgspec

from stagedoor.errors import BadRequest, NotAllowed, SessionNotFound, SessionRunning
from stagedoor.permissions.audit import AuditEntry, AuditLog
from stagedoor.shadow_git.checkpoints import Checkpoint, CheckpointNotFound, Checkpoints, UndoResult, sweep
from stagedoor.shadow_git.repository import GitFailed
from stagedoor.transports.programs import in_thread
from stagedoor.unified.events import FilesRestored, Notice
from stagedoor.unified.options import SANDBOXES
from stagedoor.workspace import incomplete_checkpoint, no_checkpoint, restored

from ..views import SessionView

_log = logging.getLogger("stagedoor.service")


class CheckpointList(msgspec.Struct, frozen=True):
    """Oldest first."""

    checkpoints: tuple[Checkpoint, ...]


class Undoing:
    """``folder_of`` finds a session's workspace, checked; ``working`` are the folders in which a turn runs now."""

    def __init__(
        self,
        home: Path,
        folder_of: Callable[[str], Awaitable[Path]],
        *,
        audit: AuditLog,
        working: Callable[[], Iterable[str]],
        now: Callable[[], int],
        on: bool = True,
    ) -> None:
        self._home = home
        self._folder_of = folder_of
        self._audit = audit
        self._working = working
        self._now = now
        self._on = on
        self._locks: dict[str, tuple[asyncio.Lock, int]] = {}
        self._incomplete: set[str] = set()

    async def before_turn(self, view: SessionView, turn: int) -> Notice | None:
        """Keep how the workspace stands. What is worth a word is returned; the turn begins whatever came of it."""
        if not self._on or is_read_only(view):
            return None
        try:
            folder = await self._folder_of(view.id)
            async with self._alone(folder):
                store = Checkpoints(self._home, folder)
                made = await in_thread(store.take, view.id, turn, at=self._now())
        except (GitFailed, BadRequest, NotAllowed, OSError) as fault:
            return no_checkpoint(turn, str(fault))
        if not made.left_out or view.id in self._incomplete:
            return None
        self._incomplete.add(view.id)
        return incomplete_checkpoint(made)

    async def list(self, session_id: str) -> CheckpointList:
        folder = await self._folder_of(session_id)
        try:
            return CheckpointList(tuple(await in_thread(Checkpoints(self._home, folder).of_session, session_id)))
        except (GitFailed, OSError) as fault:
            raise BadRequest(str(fault)) from fault

    async def restore(
        self, view: SessionView, *, turn: int | None, checkpoint: str, paths: Sequence[str], who: str
    ) -> tuple[UndoResult, FilesRestored]:
        """Put files back. Raises while a turn runs in the same files, and in a session that may only read."""
        if is_read_only(view):
            raise NotAllowed(f"session {view.id} may only read its workspace, so nothing of it is restored")
        for path in paths:
            if not path or path.startswith("/") or any(part in ("", ".", "..") for part in path.rstrip("/").split("/")):
                raise BadRequest(f"{path!r} is not a path in the workspace")
        folder = await self._folder_of(view.id)
        async with self._alone(folder):
            self._check_at_rest(folder)
            target = ", ".join(paths)[:1000] or view.cwd
            entry = AuditEntry(
                session=view.id, request=f"undo {checkpoint or turn or 'the last turn'}", decision="allow", by="person",
                agent=view.agent, native_name="undo", operation="write", target=target, who=who,
            )  # fmt: skip
            try:
                await self._audit.keep(entry, self._now())
                store = Checkpoints(self._home, folder)
                result = await in_thread(
                    store.restore, view.id, turn=turn, checkpoint=checkpoint, paths=paths, at=self._now()
                )
            except CheckpointNotFound as fault:
                raise SessionNotFound(str(fault)) from fault
            except (GitFailed, OSError) as fault:
                raise BadRequest(str(fault)) from fault
        _log.info("files restored", extra={"session": view.id, "files": len(result.paths), "who": who})
        return result, restored(result, who=who)

    async def forget(self, session_id: str, cwd: str) -> None:
        """The session is deleted: nobody will ask for them."""
        self._incomplete.discard(session_id)
        with contextlib.suppress(GitFailed, OSError):
            await in_thread(Checkpoints(self._home, Path(cwd)).forget, session_id)

    async def sweep(self) -> None:
        await in_thread(sweep, self._home, self._now())

    def _check_at_rest(self, folder: Path) -> None:
        own = Path(os.path.realpath(folder))
        for place in map(Path, map(os.path.realpath, self._working())):
            if own.is_relative_to(place) or place.is_relative_to(own):
                raise SessionRunning(f"an agent is at work in {place}; stop its turn, or wait until it is over")

    @contextlib.asynccontextmanager
    async def _alone(self, folder: Path) -> AsyncGenerator[None]:
        """One at a time in a folder."""
        name = await asyncio.to_thread(os.path.realpath, folder)
        lock, waiting = self._locks.get(name, (asyncio.Lock(), 0))
        self._locks[name] = lock, waiting + 1
        try:
            async with lock:
                yield
        finally:
            lock, waiting = self._locks.pop(name)
            if waiting > 1:
                self._locks[name] = lock, waiting - 1


def is_read_only(view: SessionView) -> bool:
    """Its agent cannot change anything there."""
    return view.confine == "read-only" or (view.sandbox or SANDBOXES[view.tier]) == "readOnly"
