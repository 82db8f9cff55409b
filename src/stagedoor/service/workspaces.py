"""The workspaces of sessions: what git says of them, their files, and how they change."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from pathlib import Path

import msgspec

from stagedoor.errors import BadRequest
from stagedoor.whole_file import replace_file

from . import reading, tracking
from .reading import FileText, Listing
from .tracking import Diff, GitStatus
from .views import SessionView
from .watching import Touched, Watches

_DIFF = "diff.json"


class Workspaces:
    """``get`` finds a session by its id; ``kept`` is the folder for how workspaces were when sessions began.

    ``check`` raises for a place that may not be shown, or not to whoever asks about sessions of that agent.
    """

    def __init__(
        self,
        get: Callable[[str], Awaitable[SessionView]],
        kept: Path | None = None,
        *,
        check: Callable[[Path, str], None] = lambda place, agent: None,
    ) -> None:
        self._get = get
        self._kept = kept
        self._check = check
        self._watches = Watches()

    async def standing(self, session_id: str, folder: Path) -> tuple[str, str]:
        """Branch and state of the folder where a session is about to begin; ``diff`` tells what changed since."""
        return await tracking.standing(folder, self._kept and self._kept / session_id)

    async def forget(self, session_id: str) -> None:
        """The session is deleted: nobody will ask what it changed."""
        if self._kept is not None:
            await asyncio.to_thread(shutil.rmtree, self._kept / session_id, ignore_errors=True)

    async def git_status(self, session_id: str) -> GitStatus:
        return await tracking.status(await self._folder(session_id))

    async def diff(self, session_id: str, *, path: str = "") -> Diff:
        """All that has changed since the session began; with ``path`` of that file or folder alone."""
        view = await self._get(session_id)
        if not path and (last := await asyncio.to_thread(self._last_diff, view)) is not None:
            return last
        folder = await self._folder(session_id)
        if path:
            await self._place(session_id, path)
        kept = self._kept and self._kept / session_id
        return await tracking.diff(folder, view.base, path=path, keep=kept if kept and kept.is_dir() else None)

    async def keep_diff(self, session_id: str) -> None:
        """The workspace is about to be taken away: what was changed in it can still be shown."""
        if self._kept is None:
            return
        with contextlib.suppress(BadRequest):  # git cannot tell, and nobody can later
            text = msgspec.json.encode(await self.diff(session_id)).decode()
            await asyncio.to_thread(replace_file, self._kept / session_id / _DIFF, text)

    def _last_diff(self, view: SessionView) -> Diff | None:
        if self._kept is None or view.worktree not in ("kept", "removed"):
            return None
        try:
            return msgspec.json.decode((self._kept / view.id / _DIFF).read_bytes(), type=Diff)
        except OSError:
            return None

    async def files(self, session_id: str, path: str = "") -> Listing:
        await self._place(session_id, path)
        return await asyncio.to_thread(reading.listing, await self._folder(session_id), path)

    async def read(
        self, session_id: str, path: str, *, first_line: int | None = None, last_line: int | None = None
    ) -> FileText:
        await self._place(session_id, path)
        folder = await self._folder(session_id)
        return await asyncio.to_thread(reading.read, folder, path, first_line=first_line, last_line=last_line)

    async def watch(self, session_id: str) -> AsyncGenerator[Touched]:
        """What is touched in the workspace. An empty one comes first: from then on nothing is missed."""
        async with aclosing(self._watches.follow(await self._folder(session_id))) as touches:
            async for touched in touches:
                yield touched

    async def _folder(self, session_id: str) -> Path:
        view = await self._get(session_id)
        folder = Path(view.cwd)
        if not await asyncio.to_thread(folder.is_dir):
            raise BadRequest(f"the workspace {folder} is no folder any more")
        # The agent may have put a link in its place since.
        self._check(await asyncio.to_thread(folder.resolve), view.agent)
        return folder

    async def _place(self, session_id: str, path: str) -> None:
        """Raises when ``path`` leads out of the workspace, or to what is shown to nobody."""
        view = await self._get(session_id)
        self._check(await asyncio.to_thread(reading.inside, Path(view.cwd), path), view.agent)
