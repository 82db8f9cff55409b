"""``stagedoor acp``: an agent for editors that speak the Agent Client Protocol, on stdin and stdout."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING
from urllib.parse import urlencode

from .command import Parser
from .servers.stdio_doors import StdioFlags, add_stdio_flags, read_stdio_flags, run_on_streams

if TYPE_CHECKING:
    from ..remote.address import Address
    from ..server.jsonrpc.stdio import StdioLines

EPILOG = """\
examples:
  stagedoor acp                                     # in your editor's settings: the default agent
  stagedoor acp --agent codex                       # sessions begin with this agent; the editor can choose another
  stagedoor acp --server http://127.0.0.1:16180     # through a running server: questions reach the phone too
  stagedoor acp --server local                      # through the server that runs with this home

Without --server the sessions run on this machine, and are stored in the home of Stagedoor: in the server that runs with
that home, else in one that all editors of this home share, and that ends with the last of them. What an editor started
ends with it and can be loaded again. Settings for Zed, JetBrains and Neovim are in docs/editors.md.
"""


def main(argv: list[str]) -> int:
    parser = Parser(
        prog="stagedoor acp",
        description="Be an agent of the Agent Client Protocol on stdin and stdout, for an editor that starts us.",
        closing=EPILOG,
    )
    parser.add_argument("--agent", default="", help="the agent that sessions begin with (default: as configured)")
    add_stdio_flags(parser, default_root="any the editor names")
    arguments = parser.parse_args(argv)
    flags = read_stdio_flags(parser, arguments)
    if arguments.agent and flags.server is None and arguments.agent not in flags.settings.agents:
        from ..catalog import agent

        agent(arguments.agent)  # raises for one that nobody knows, before an editor waits for it
    address = flags.own_address()
    own_rules = flags.server is None and bool(flags.roots or flags.config is not None)
    if own_rules and address is not None:
        parser.error(
            "a server runs with this home, and --root and --config do not count there: leave them out, or set "
            "STAGEDOOR_HOME to another folder"
        )
    if flags.local or own_rules:
        return run_on_streams(lambda lines: _serve_here(flags, lines, arguments.agent), flags.settings)
    same = "true" if flags.server in (None, "local") else ""
    if address is not None:
        return run_on_streams(
            lambda lines: _forward(address, lines, {"agent": arguments.agent, "same_machine": same}), flags.settings
        )
    from ..service.opening import environment
    from .servers.shared_server import shared_server

    with shared_server(flags.home, flags.of_shared_server()) as shared:
        query = {"agent": arguments.agent, "alone": "true", "same_machine": "true"}
        return run_on_streams(lambda lines: _forward(shared, lines, query, environment()), flags.settings)


async def _serve_here(flags: StdioFlags, lines: StdioLines, agent: str) -> None:
    from msgspec.structs import replace

    from ..server.acp.door import serve_editor
    from ..service.service import Service

    settings = flags.settings
    if not settings.roots:
        settings = replace(settings, roots=(os.sep,))  # the editor's folders are the user's own choice
    async with Service(settings) as service:
        await serve_editor(service, lines, agent)


async def _forward(
    address: Address, lines: StdioLines, query: dict[str, str], environment: dict[str, str] | None = None
) -> None:
    from ..server.acp.door import bridge_editor
    from ..transports.websocket import WebSocket

    words = urlencode({name: value for name, value in query.items() if value})
    url = f"{address.ws_url}/acp" + (f"?{words}" if words else "")
    async with await WebSocket.connect(
        url, headers={"Authorization": f"Bearer {address.token}"}, tls=address.tls(), use_proxies=not address.loopback
    ) as socket:
        await bridge_editor(socket, address.url, lines, environment)
