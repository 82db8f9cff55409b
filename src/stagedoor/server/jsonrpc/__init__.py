"""JSON-RPC 2.0: the same verbs for clients that speak it, over WebSocket, HTTP POST and stdio.

``methods`` is the table; ``dispatch`` turns a message into its answer; ``client`` is one client: its defaults and what
it follows. The doors only carry bytes.
"""
