"""A workspace as it changes: what was written, made and removed, many changes at once, without git's inside."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Literal

import msgspec

from podium.errors import BadRequest
from podium.workspace import PASSED_OVER

from .tracking import git_folder

MOST = 500
TOGETHER = 300
"""Milliseconds: what happens within is told at once."""
_GITS_OWN = frozenset({"HEAD", "index", "packed-refs", "MERGE_HEAD", "REBASE_HEAD", "refs"})


class FileTouched(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    path: str
    change: Literal["created", "modified", "deleted"]


class Touched(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """``git``: a commit, a checkout or the index changed too. ``cut``: more files were touched than are told."""

    files: tuple[FileTouched, ...] = ()
    git: bool = False
    cut: bool = False


async def watch(folder: Path, *, stop: asyncio.Event | None = None) -> AsyncGenerator[Touched]:
    """From now on, until ``stop`` is set, the folder is gone or nobody listens any more."""
    from watchfiles import Change, awatch  # pyright: ignore[reportUnknownVariableType]

    names: dict[Change, Literal["created", "modified", "deleted"]] = {
        Change.added: "created",
        Change.modified: "modified",
        Change.deleted: "deleted",
    }
    root = await asyncio.to_thread(folder.resolve)
    own = await git_folder(root)
    apart = [own] if own is not None and not own.is_relative_to(root) else []

    def wanted(_: Change, path: str) -> bool:
        place = Path(path)
        if own is not None and place.is_relative_to(own):
            first = place.relative_to(own).parts[:1]
            return bool(first) and first[0] in _GITS_OWN and not path.endswith(".lock")
        return place.is_relative_to(root) and not PASSED_OVER.intersection(place.relative_to(root).parts)

    try:
        async for changes in awatch(
            root, *apart, watch_filter=wanted, debounce=TOGETHER, stop_event=stop, ignore_permission_denied=True
        ):
            git = False
            files: dict[str, Literal["created", "modified", "deleted"]] = {}
            for change, path in sorted(changes, key=lambda one: one[1]):
                if own is not None and Path(path).is_relative_to(own):
                    git = True
                else:
                    files[_shown(Path(path), root)] = names[change]
            told = tuple(FileTouched(path=path, change=change) for path, change in list(files.items())[:MOST])
            yield Touched(files=told, git=git, cut=len(files) > MOST)
            if not await asyncio.to_thread(root.is_dir):
                return
    except OSError as fault:
        raise BadRequest(f"{folder} cannot be watched: {fault}") from fault


def _shown(path: Path, root: Path) -> str:
    return str(path.relative_to(root)).encode("utf-8", "replace").decode()
