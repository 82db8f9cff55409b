"""Codex CLI's two dialects, translated: ``codex exec --json`` and ``codex app-server``. Pure."""

from .app_server import AppServerDictionary
from .exec_stream import ExecDictionary

__all__ = ["AppServerDictionary", "ExecDictionary"]
