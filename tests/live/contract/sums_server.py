"""A small MCP server on standard input and output, quick to start: one tool that adds."""

import json
import sys

TOOL = {
    "name": "add",
    "description": "Add two numbers",
    "inputSchema": {
        "type": "object",
        "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}},
        "required": ["a", "b"],
    },
}


def answer(method: str, params: dict) -> dict | None:
    if method == "initialize":
        info = {"name": "sums", "version": "1"}
        return {"protocolVersion": params["protocolVersion"], "capabilities": {"tools": {}}, "serverInfo": info}
    if method == "tools/list":
        return {"tools": [TOOL]}
    if method == "tools/call":
        arguments = params["arguments"]
        return {"content": [{"type": "text", "text": f"sum={arguments['a'] + arguments['b']}"}]}
    return {}


for line in sys.stdin:
    message = json.loads(line)
    if "id" in message and "method" in message:
        result = answer(message["method"], message.get("params") or {})
        print(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}), flush=True)
