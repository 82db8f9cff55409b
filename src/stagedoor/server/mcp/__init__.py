"""The MCP door: agents that use agents. Tools for a calling model, over HTTP at ``/mcp`` and on standard input and
output."""
