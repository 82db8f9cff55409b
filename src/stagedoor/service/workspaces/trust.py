"""Which folders are trusted, by the configuration or by a person, and what lies in one."""

from __future__ import annotations

import asyncio
from pathlib import Path

import msgspec

from stagedoor import catalog
from stagedoor.errors import BadRequest
from stagedoor.permissions.ground import home_of
from stagedoor.trust.folders import is_covered, trust_subject
from stagedoor.trust.project import project_places
from stagedoor.trust.record import TrustedFolder, TrustRecord
from stagedoor.unified.events import ProjectFile
from stagedoor.unified.options import Options

from ..config.settings import Settings


class FolderTrust(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """``folder`` is what is trusted or not: the repository that the folder belongs to, or itself.

    ``files``: what the agent would load from it.
    """

    folder: str
    trusted: bool
    files: list[ProjectFile] = []


class Trust:
    def __init__(self, settings: Settings, home: Path) -> None:
        self._settings = settings
        self._record = TrustRecord(home)

    def covers(self, folder: Path, agent: str) -> bool:
        """Whether the configuration or a person trusts it, for this agent."""
        settings = self._settings
        own = settings.agents[agent].trusted_folders if agent in settings.agents else ()
        return is_covered(folder, (*settings.trusted_folders, *own)) or self._record.covers(folder)

    async def of(self, folder: Path, agent: str) -> FolderTrust:
        return await asyncio.to_thread(self._of, folder, agent)

    def _of(self, folder: Path, agent: str) -> FolderTrust:
        if not folder.is_dir():
            raise BadRequest(f"{folder} is not a folder; create it first, or choose another one")
        home = home_of(Options())
        places = project_places(folder, catalog.agent(agent).project_paths, home) if agent else ()
        return FolderTrust(
            folder=str(trust_subject(folder)),
            trusted=self.covers(folder, agent),
            files=[file for file, _ in places if not file.is_text],
        )

    async def list(self) -> tuple[TrustedFolder, ...]:
        """Those that a person has trusted; those of the configuration are in it."""
        return await asyncio.to_thread(self._record.folders)

    async def add(self, folder: Path, *, who: str) -> TrustedFolder:
        return await asyncio.to_thread(lambda: self._record.add(folder, who=who))

    async def remove(self, folder: Path) -> None:
        await asyncio.to_thread(self._record.remove, folder)
