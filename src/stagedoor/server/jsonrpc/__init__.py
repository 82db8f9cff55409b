"""JSON-RPC 2.0: the same verbs for clients that speak it, over WebSocket, HTTP POST and stdio.

``methods`` is the table; ``dispatch`` turns a message into its answer; ``peer`` is one client: what it has selected and
what it follows. The doors only carry bytes.
"""

from __future__ import annotations

from .doors import routes

__all__ = ["routes"]
