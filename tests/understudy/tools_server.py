"""An MCP server, written with the official package."""

from mcp.server.mcpserver import MCPServer

server = MCPServer("sums")


@server.tool()
def add(a: int, b: int) -> str:
    return str(a + b)


@server.tool()
def fail() -> str:
    raise ValueError("on purpose")


server.run()
