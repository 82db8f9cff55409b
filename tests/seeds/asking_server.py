"""A small MCP server whose tool asks the user for a colour (``elicitation/create``) and says what it got."""

import json
import sys

TOOL = {"name": "paint", "description": "Paint the wall", "inputSchema": {"type": "object", "properties": {}}}
FORM = {
    "message": "Which colour?",
    "requestedSchema": {
        "type": "object",
        "properties": {"colour": {"type": "string", "enum": ["Red", "Blue"]}},
        "required": ["colour"],
    },
}


def send(message: dict) -> None:
    print(json.dumps({"jsonrpc": "2.0", **message}), flush=True)


def answer(method: str, params: dict) -> dict:
    if method == "initialize":
        info = {"name": "walls", "version": "1"}
        return {"protocolVersion": params["protocolVersion"], "capabilities": {"tools": {}}, "serverInfo": info}
    if method == "tools/list":
        return {"tools": [TOOL]}
    if method == "tools/call":
        send({"id": "form", "method": "elicitation/create", "params": FORM})
        for line in sys.stdin:
            reply = json.loads(line)
            if reply.get("id") == "form" and "method" not in reply:
                return {"content": [{"type": "text", "text": f"reply: {json.dumps(reply.get('result'))}"}]}
    return {}


for line in sys.stdin:
    message = json.loads(line)
    if "id" in message and "method" in message:
        send({"id": message["id"], "result": answer(message["method"], message.get("params") or {})})
