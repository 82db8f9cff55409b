"""A small MCP server on standard input and output. Its one tool makes a file, and so does reading its resource, whose
address is the path of the file. Started by path, on its own."""

import json
import sys
from pathlib import Path
from typing import Any

TOOL = {
    "name": "mark",
    "description": "Make a file",
    "inputSchema": {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]},
}


def answer(method: str, params: dict[str, Any]) -> dict[str, Any]:
    if method == "initialize":
        capabilities: dict[str, Any] = {"tools": {}, "resources": {}}
        about = {"name": "marks", "version": "1"}
        return {"protocolVersion": params["protocolVersion"], "capabilities": capabilities, "serverInfo": about}
    if method == "tools/list":
        return {"tools": [TOOL]}
    if method == "tools/call":
        Path(params["arguments"]["path"]).touch()
        return {"content": [{"type": "text", "text": "made"}]}
    if method == "resources/list":
        listed = "Listed by the tool server"
        return {
            "resources": [{"uri": one, "name": one, "title": listed, "description": listed} for one in sys.argv[1:]]
        }
    if method == "resources/read":
        Path(params["uri"].removeprefix("file://")).touch()
        return {"contents": [{"uri": params["uri"], "mimeType": "text/plain", "text": "made"}]}
    return {}


def main() -> None:
    for line in sys.stdin:
        message = json.loads(line)
        if "id" in message and "method" in message:
            result = answer(message["method"], message.get("params") or {})
            print(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}), flush=True)


if __name__ == "__main__":
    main()
