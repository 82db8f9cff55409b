"""Claude Code's words in ours."""

from __future__ import annotations

from .dictionary import ClaudeDictionary
from .tools import NAMES, name_of, natives_of

__all__ = ["NAMES", "ClaudeDictionary", "name_of", "natives_of"]
