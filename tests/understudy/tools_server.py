"""An MCP server, written with the official package."""

import base64

from mcp.server.mcpserver import Image, MCPServer

server = MCPServer("sums")


@server.tool()
def add(a: int, b: int) -> str:
    return str(a + b)


PICTURE = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8BQDwAEhQGAhKmMIQAAAABJRU5ErkJggg=="


@server.tool()
def draw() -> Image:
    return Image(data=base64.b64decode(PICTURE), format="png")


@server.tool()
def fail() -> str:
    raise ValueError("on purpose")


server.run()
