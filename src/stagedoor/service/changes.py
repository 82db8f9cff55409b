"""What the server is told, and when that changed: a row for each setting that is not as it was at the last start."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, cast

import msgspec

from stagedoor.errors import StoreError

from .journal import Journal
from .settings import Settings
from .store import ConfigChange, Remember

LAST = "told at the last start"
POLICY = "policy (its text)"
_SECRET = "env"
"""What agents are given may be keys: that something changed there is told, never what."""


class Changes:
    def __init__(self, journal: Journal, now: Callable[[], int]) -> None:
        self._journal = journal
        self._now = now
        self._writing: set[asyncio.Task[None]] = set()

    async def note(self, settings: Settings, policy: Path) -> None:
        """At the start: compare with the last one. The very first leaves no rows, there was nothing to change."""
        told = flat(settings) | {POLICY: await asyncio.to_thread(_text, policy)}
        known = await self._journal.store.setting(LAST)
        before = told if known is None else msgspec.json.decode(known, type=dict[str, str])
        changed = [name for name in {**before, **told} if before.get(name, "") != told.get(name, "")]
        rows = [self._row("start", name, before.get(name, ""), told.get(name, "")) for name in sorted(changed)]
        if rows or known is None:
            await self._journal.write(*rows, Remember(LAST, msgspec.json.encode(told)))

    def policy_changed(self, before: str, after: str) -> None:
        """The policy file was read again, by a session that asked it something."""
        task = asyncio.get_running_loop().create_task(self._policy(before, after))
        self._writing.add(task)
        task.add_done_callback(self._writing.discard)

    async def settled(self) -> None:
        if self._writing:
            await asyncio.wait(self._writing)

    async def _policy(self, before: str, after: str) -> None:
        with contextlib.suppress(StoreError):  # whoever writes next finds out, and says it
            known = await self._journal.store.setting(LAST)
            told = {} if known is None else msgspec.json.decode(known, type=dict[str, str])
            row = self._row("file", POLICY, before, after)
            await self._journal.write(row, Remember(LAST, msgspec.json.encode(told | {POLICY: after})))

    def _row(self, who: str, name: str, before: str, after: str) -> ConfigChange:
        return ConfigChange(at=self._now(), who=who, name=name, before=before, after=after)


def flat(settings: Settings) -> dict[str, str]:
    """``agents.gemini.model`` → its value as JSON; of secrets only how many there are."""
    found: dict[str, str] = {}

    def walk(name: str, value: Any) -> None:
        if isinstance(value, Mapping):
            inner = cast("Mapping[str, Any]", value)
            if name.endswith(f".{_SECRET}"):
                found[name] = f"{len(inner)} values: {', '.join(sorted(inner))}"
                return
            for key, one in inner.items():
                walk(f"{name}.{key}" if name else key, one)
        else:
            found[name] = msgspec.json.encode(value).decode()

    walk("", msgspec.to_builtins(settings))
    return found


def _text(path: Path) -> str:
    try:
        return path.read_text("utf-8", "replace")
    except OSError:
        return ""
