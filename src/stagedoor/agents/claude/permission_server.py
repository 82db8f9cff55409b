"""The MCP server behind ``--permission-prompt-tool mcp__stagedoor__permission``, on the official ``mcp`` package.

Claude Code starts it as its own child. It decides nothing: each question goes over a private socket to the process that
started the session, and whatever goes wrong on the way is a refusal.

This file is run on its own (``python -P permission_server.py SOCKET``) and imports nothing of Stagedoor.
"""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Any

LINE_LIMIT = 64 * 2**20


async def ask(socket_path: str, question: dict[str, Any]) -> str:
    """The answer as the JSON text Claude Code expects."""
    try:
        reader, writer = await asyncio.open_unix_connection(socket_path, limit=LINE_LIMIT)
        try:
            writer.write(json.dumps(question).encode() + b"\n")
            await writer.drain()
            answer = (await reader.readline()).decode()
        finally:
            writer.close()
        if json.loads(answer)["behavior"] in ("allow", "deny"):
            return answer
        why = "the answer was neither allow nor deny"
    except (OSError, ValueError, KeyError, TypeError) as error:
        why = f"{type(error).__name__}: {error}"
    return json.dumps({"behavior": "deny", "message": f"The permission question could not be delivered ({why})."})


def main() -> None:
    from mcp.server.mcpserver import MCPServer

    socket_path = sys.argv[1]
    server = MCPServer("stagedoor")

    @server.tool(description="Asks the user whether a tool call may run.", structured_output=False)
    async def permission(tool_name: str, input: dict[str, Any], tool_use_id: str = "") -> str:
        return await ask(socket_path, {"tool_name": tool_name, "input": input, "tool_use_id": tool_use_id})

    server.run("stdio")


if __name__ == "__main__":
    main()
