"""Gemini CLI's two dialects, translated: ``stream-json`` and ``--acp``. Pure."""

from .acp import GeminiAcpDictionary
from .stream import StreamDictionary

__all__ = ["GeminiAcpDictionary", "StreamDictionary"]
