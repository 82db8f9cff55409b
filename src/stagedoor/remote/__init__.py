"""The client of a server: ``stagedoor.connect(url, token)``, with the same ``run`` and ``open`` as local."""

from __future__ import annotations

from .client import Remote, connect
from .session import RemoteSession

__all__ = ["Remote", "RemoteSession", "connect"]
