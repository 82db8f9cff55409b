"""OpenCode's three ways of speaking, translated: ``serve``, ``run`` and ``acp``."""

from .acp import OpenCodeAcpDictionary
from .run import RunDictionary
from .serve import ServeDictionary

__all__ = ["OpenCodeAcpDictionary", "RunDictionary", "ServeDictionary"]
