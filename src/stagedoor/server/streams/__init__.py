"""Following a session: WebSocket, server-sent events, long polling; and a session as one document."""
