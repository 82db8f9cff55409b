"""``stagedoor mcp``: a tool server for models that use agents, on stdin and stdout."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from . import EXIT_SUCCESS
from .command import Parser
from .servers.stdio_doors import StdioFlags, add_stdio_flags, read_stdio_flags, run_on_streams

if TYPE_CHECKING:
    from ..remote.address import Address
    from ..server.jsonrpc.stdio import StdioLines
    from ..unified.options import Tier

EPILOG = """\
examples:
  stagedoor mcp                                     # as the command of a tool server, in your agent's configuration
  stagedoor mcp --tier autonomous                   # its sessions may run without questions
  stagedoor mcp --server http://127.0.0.1:16180     # through a running server: a person answers on the page

Permission questions of its sessions are answered by a person, at the page, the phone or `stagedoor chat`: never by the
calling model. Without a server, of this home or named by --server, the sessions run in one that all programs of this
home share; they end with the last of these, and what nobody answers in time is denied. See docs/mcp.md.
"""


def main(argv: list[str]) -> int:
    parser = Parser(
        prog="stagedoor mcp",
        description="Serve the Model Context Protocol on stdin and stdout: tools to start agents, wait for them and "
        "read what they did.",
        closing=EPILOG,
    )
    parser.add_argument(
        "--tier",
        choices=("dry-run", "supervised", "autonomous"),
        help="the most that its sessions may do (default: supervised; inside a session, what that one may)",
    )
    add_stdio_flags(parser, default_root="the current one")
    arguments = parser.parse_args(argv)
    flags = read_stdio_flags(parser, arguments)
    parent = surrounding_session()
    most: Tier | None = arguments.tier or (None if parent else "supervised")
    if flags.local:
        return run_on_streams(lambda lines: _serve_here(flags, lines, most, parent), flags.settings)
    address = flags.own_address()
    # Elsewhere the current folder means nothing; inside a session, the one that it works in is the measure.
    here = () if flags.server is not None or parent else (str(Path.cwd()),)
    headers = _headers(most, parent, flags.roots or here)
    if address is not None:
        return _carry(address, headers)
    from .servers.shared_server import shared_server

    with shared_server(flags.home, flags.of_shared_server()) as shared:
        return _carry(shared, headers)


def _headers(most: Tier | None, parent: str, roots: tuple[str, ...]) -> dict[str, str]:
    from urllib.parse import quote

    headers = {
        "Stagedoor-Tier": most or "",
        "Stagedoor-Session": parent,
        "Stagedoor-Roots": ":".join(map(quote, roots)),
    }
    return {name: value for name, value in headers.items() if value}


def _carry(address: Address, headers: dict[str, str]) -> int:
    from ..mcp import bridge

    headers = {"Authorization": f"Bearer {address.token}", **headers}
    bridge.carry(f"{address.url}/mcp", headers, address.tls() or None)
    return EXIT_SUCCESS


async def _serve_here(flags: StdioFlags, lines: StdioLines, most: Tier | None, parent: str) -> None:
    from msgspec.structs import replace

    from ..server.mcp.door import serve_model
    from ..service.service import Service

    settings = flags.settings
    if not settings.roots:
        settings = replace(settings, roots=(str(Path.cwd()),))
    async with Service(settings) as service:
        await serve_model(service, lines, most=most, parent=parent)


def surrounding_session() -> str:
    """The session that we run in: our environment says so, or that of a program above us (some agents pass on little
    of theirs to the servers they start). Empty where none does."""
    from ..service.opening import SESSION_VARIABLE
    from ..transports.guard.processes import variable_above

    return os.environ.get(SESSION_VARIABLE) or variable_above(SESSION_VARIABLE)
