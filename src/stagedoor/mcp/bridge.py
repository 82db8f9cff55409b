"""For agents that speak the Model Context Protocol over pipes only: a program that carries it to a server over HTTP.

``python -m stagedoor.mcp.bridge URL``; the secret is in the environment, where no list of processes shows it. It
imports nothing of ours, and of the library only what a small client needs: it starts with every such session.
"""

import http.client
import json
import os
import sys
import threading
import time
from typing import Any
from urllib.parse import urlsplit

SECRET = "STAGEDOOR_BRIDGE_AUTHORIZATION"
FAREWELL_SECONDS = 5.0

_writing = threading.Lock()


def _say(message: bytes) -> None:
    with _writing:
        sys.stdout.buffer.write(message.replace(b"\n", b" ") + b"\n")
        sys.stdout.buffer.flush()


class BridgedServer:
    """Where the messages go, with what, and under which name once the server has given one."""

    def __init__(self, url: str, headers: dict[str, str], tls: Any = None) -> None:
        self.url = urlsplit(url)
        self.headers = headers
        self.tls = tls
        self.session = ""

    def connect(self) -> http.client.HTTPConnection:
        name = self.url.hostname or "127.0.0.1"
        if self.url.scheme == "https":
            return http.client.HTTPSConnection(name, self.url.port, context=self.tls)
        return http.client.HTTPConnection(name, self.url.port)


def _post(line: bytes, server: BridgedServer) -> None:
    """One message there, what it is answered back."""
    connection = server.connect()
    headers = {
        "Content-Type": "application/json",
        "Accept": "application/json, text/event-stream",
        **server.headers,
        **({"Mcp-Session-Id": server.session} if server.session else {}),
    }
    try:
        connection.request("POST", server.url.path, line, headers)
        response = connection.getresponse()
        if response.status not in (200, 202):
            raise OSError(f"{response.status} {response.read().decode(errors='replace')}")
        if response.getheader("Content-Type", "").startswith("text/event-stream"):
            for event in response:
                if event.startswith(b"data: "):
                    _say(event.removeprefix(b"data: ").strip())
        elif body := response.read():
            _say(body)
        server.session = response.getheader("Mcp-Session-Id") or server.session
    finally:
        connection.close()


def _answer(line: bytes, server: BridgedServer) -> None:
    try:
        _post(line, server)
    except (OSError, http.client.HTTPException) as fault:
        try:
            message = json.loads(line)
        except ValueError:
            message = None
        if isinstance(message, dict) and "id" in message and "method" in message:
            error = {"code": -32603, "message": f"the tools' server cannot be reached: {fault}"}
            _say(json.dumps({"jsonrpc": "2.0", "id": message["id"], "error": error}).encode())


def carry(url: str, headers: dict[str, str], tls: Any = None) -> None:
    """Carry messages until our input ends; what is answered soon after that is still told."""
    server = BridgedServer(url, headers, tls)
    answering: list[threading.Thread] = []
    for line in sys.stdin.buffer:
        if not line.strip():
            continue
        if b'"initialize"' in line:  # nothing else may overtake it
            _answer(line, server)
        else:
            answering = [thread for thread in answering if thread.is_alive()]
            answering.append(threading.Thread(target=_answer, args=(line, server), daemon=True))
            answering[-1].start()
    bound = time.monotonic() + FAREWELL_SECONDS
    for thread in answering:
        thread.join(max(0.0, bound - time.monotonic()))
    os._exit(0)  # whoever asked has gone, or will not wait longer


if __name__ == "__main__":
    carry(sys.argv[1], {"Authorization": os.environ.get(SECRET, "")})
