"""``stagedoor rpc``: JSON-RPC 2.0 on stdin and stdout, one message per line."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from .command import Parser
from .servers.stdio_doors import StdioFlags, add_stdio_flags, read_stdio_flags, run_on_streams

if TYPE_CHECKING:
    from ..remote.address import Address
    from ..server.jsonrpc.stdio import StdioLines

EPILOG = """\
examples:
  echo '{"jsonrpc":"2.0","id":1,"method":"agent/discover"}' | stagedoor rpc
  stagedoor rpc --root ~/projects
  stagedoor rpc --server http://127.0.0.1:16180     # forward everything to a running server

The sessions are stored in the home of Stagedoor. When stdin ends, those that run here are stopped; where a server runs
with that home they run there, and go on. The methods are described in docs/jsonrpc.md.
"""


def main(argv: list[str]) -> int:
    parser = Parser(
        prog="stagedoor rpc",
        description="Speak JSON-RPC 2.0 on stdin and stdout, one message per line, until stdin ends.",
        closing=EPILOG,
    )
    add_stdio_flags(parser, default_root="this one")
    flags = read_stdio_flags(parser, parser.parse_args(argv))
    address = flags.own_address()
    if address is not None:
        return run_on_streams(lambda lines: _forward(address, lines), flags.settings)
    from .servers import shared_server

    if flags.local or not (flags.home / shared_server.FILE_NAME).exists():
        return run_on_streams(lambda lines: _serve_here(flags, lines), flags.settings)
    with shared_server.shared_server(flags.home, flags.of_shared_server()) as shared:
        return run_on_streams(lambda lines: _forward(shared, lines), flags.settings)


async def _serve_here(flags: StdioFlags, lines: StdioLines) -> None:
    from msgspec.structs import replace

    from ..server.jsonrpc.stdio import serve_stdio
    from ..service.service import Service

    settings = flags.settings
    if not settings.roots:
        settings = replace(settings, roots=(str(Path.cwd()),))
    async with Service(settings) as service:
        await serve_stdio(service, lines)


async def _forward(address: Address, lines: StdioLines) -> None:
    from ..server.jsonrpc.stdio import bridge

    await bridge(address.url, address.token, lines, address.tls())
