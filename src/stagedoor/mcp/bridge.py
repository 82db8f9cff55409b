"""For agents that speak the Model Context Protocol over pipes only: a program that carries it to a server over HTTP.

``python -m stagedoor.mcp.bridge URL``; the secret is in the environment, where no list of processes shows it. It
imports nothing of ours, and of the library only what a small client needs: it starts with every such session.
"""

import http.client
import json
import os
import sys
import threading
from urllib.parse import urlsplit

SECRET = "STAGEDOOR_BRIDGE_AUTHORIZATION"

_writing = threading.Lock()


def _say(message: bytes) -> None:
    with _writing:
        sys.stdout.buffer.write(message.replace(b"\n", b" ") + b"\n")
        sys.stdout.buffer.flush()


def _carry(line: bytes, session: str, url: str) -> str:
    """One message there, what it is answered back; the name of the session, where the server gives one."""
    place = urlsplit(url)
    connection = http.client.HTTPConnection(place.hostname or "127.0.0.1", place.port)
    headers = {
        "Content-Type": "application/json",
        "Accept": "application/json, text/event-stream",
        "Authorization": os.environ.get(SECRET, ""),
        **({"Mcp-Session-Id": session} if session else {}),
    }
    try:
        connection.request("POST", place.path, line, headers)
        response = connection.getresponse()
        if response.status not in (200, 202):
            raise OSError(f"{response.status} {response.read().decode(errors='replace')}")
        if response.getheader("Content-Type", "").startswith("text/event-stream"):
            for event in response:
                if event.startswith(b"data: "):
                    _say(event.removeprefix(b"data: ").strip())
        elif body := response.read():
            _say(body)
        return response.getheader("Mcp-Session-Id") or ""
    finally:
        connection.close()


def _answer(line: bytes, session: str, url: str) -> str:
    try:
        return _carry(line, session, url)
    except (OSError, http.client.HTTPException) as fault:
        try:
            message = json.loads(line)
        except ValueError:
            message = None
        if isinstance(message, dict) and "id" in message and "method" in message:
            error = {"code": -32603, "message": f"the tools' server cannot be reached: {fault}"}
            _say(json.dumps({"jsonrpc": "2.0", "id": message["id"], "error": error}).encode())
        return ""


def main() -> None:
    url, session = sys.argv[1], ""
    for line in sys.stdin.buffer:
        if not line.strip():
            continue
        if b'"initialize"' in line:  # nothing else may overtake it
            session = _answer(line, session, url) or session
        else:
            threading.Thread(target=_answer, args=(line, session, url), daemon=True).start()
    os._exit(0)  # whoever asked has gone: nobody waits for what still runs


if __name__ == "__main__":
    main()
