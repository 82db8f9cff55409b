"""A server of the Model Context Protocol over pipes, without its resources: for agents that read those unasked.

``python tools_only.py COMMAND ARGUMENTS…`` starts the server and passes everything on, but says that there are no
resources, and refuses to list or read any. It imports nothing of ours: it starts with every such server, inside an
agent, which is under a guard.
"""

import json
import subprocess
import sys
import threading
from typing import Any

RESOURCES = "resources/"
METHOD_NOT_FOUND = -32601
_writing = threading.Lock()


def _say(line: bytes) -> None:
    with _writing:
        sys.stdout.buffer.write(line)
        sys.stdout.buffer.flush()


def refusals(message: Any) -> list[dict[str, Any]]:
    """The answers to what must not be asked; empty: it may be passed on. Requests may come several at once."""
    if not names_resources(message):
        return []
    error = {"code": METHOD_NOT_FOUND, "message": "the rules of this session allow no resources"}
    return [{"jsonrpc": "2.0", "id": one["id"], "error": error} for one in _tables(message) if "id" in one]


def names_resources(message: Any) -> bool:
    """Whether something is asked for, or told, about resources."""
    return any(str(one.get("method", "")).startswith(RESOURCES) for one in _tables(message))


def without_resources(message: Any) -> bool:
    """Take the word that there are resources out of ``message``. Whether it was there."""
    named = False
    for one in _tables(message):
        for result in _tables(one.get("result")):
            for capabilities in _tables(result.get("capabilities")):
                named = named or "resources" in capabilities
                capabilities.pop("resources", None)
    return named


def _tables(value: Any) -> list[dict[str, Any]]:
    values: list[Any] = value if isinstance(value, list) else [value]  # pyright: ignore[reportUnknownVariableType]
    return [one for one in values if isinstance(one, dict)]


def _read(line: bytes) -> Any:
    try:
        return json.loads(line)
    except ValueError:
        return None


def _from_server(server: "subprocess.Popen[bytes]") -> None:
    assert server.stdout is not None
    for line in server.stdout:
        if b'"resources"' in line:
            message = _read(line)
            if without_resources(message):
                line = json.dumps(message).encode() + b"\n"
        _say(line)


def main() -> int:
    server = subprocess.Popen(sys.argv[1:], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    reader = threading.Thread(target=_from_server, args=(server,), daemon=True)
    reader.start()
    assert server.stdin is not None
    try:
        for line in sys.stdin.buffer:
            # Escapes could hide the word: whatever is not plainly something else is read.
            answers = refusals(_read(line)) if b"resources" in line or b"\\" in line else []
            for answer in answers:
                _say(json.dumps(answer).encode() + b"\n")
            if not answers:
                server.stdin.write(line)
                server.stdin.flush()
        server.stdin.close()
    except BrokenPipeError:
        pass
    code = server.wait()
    reader.join()
    return code


if __name__ == "__main__":
    sys.exit(main())
