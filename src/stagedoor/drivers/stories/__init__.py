"""Stored sessions told again in unified events: one reader per agent, each total over what it finds.

What the agents keep is less than what they streamed, and differs: here are prompts, answers, thoughts, calls and their
results, in order. What cannot be read is left out; only a whole file that cannot be opened is an error.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from importlib import import_module

from ...unified.events import Event
from ..driver import Stored

Reader = Callable[[Stored, Mapping[str, str]], Iterable[Event]]

AGENTS = ("claude", "codex", "gemini", "opencode", "understudy")


def reader_of(agent: str) -> Reader | None:
    """The reader of an agent's stored sessions; ``None`` where its history does not allow it."""
    if agent not in AGENTS:
        return None
    found: Reader = import_module(f".{agent}", __package__).read
    return found
