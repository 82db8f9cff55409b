"""``stagedoor acp``: an agent for editors that speak the Agent Client Protocol, on stdin and stdout."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlencode, urlsplit

from . import EXIT_FAILED, EXIT_INTERRUPTED, EXIT_SUCCESS, EXIT_USAGE
from .command import Parser, error_line

if TYPE_CHECKING:
    from ..remote.address import Address
    from ..server.jsonrpc.stdio import StdioLines
    from ..service.config.settings import Settings

REACH_WITHIN = 5.0
EPILOG = """\
examples:
  stagedoor acp                                     # in your editor's settings: the default agent
  stagedoor acp --agent codex                       # sessions begin with this agent; the editor can choose another
  stagedoor acp --server http://127.0.0.1:16180     # through a running server: questions reach the phone too
  stagedoor acp --server local                      # through the server that runs with this home

Without --server the sessions run here, and are stored in the home of Stagedoor; when a server runs with that home, they
run there. What runs here ends with the editor and can be loaded again. Settings for Zed, JetBrains and Neovim are in
docs/editors.md.
"""


def main(argv: list[str]) -> int:
    parser = Parser(
        prog="stagedoor acp",
        description="Be an agent of the Agent Client Protocol on stdin and stdout, for an editor that starts us.",
        closing=EPILOG,
    )
    parser.add_argument("--agent", default="", help="the agent that sessions begin with (default: as configured)")
    parser.add_argument("--server", metavar="URL", help="run the sessions on this server; local: the one of this home")
    parser.add_argument(
        "--token-file",
        type=Path,
        help="with --server: a file with the token (default: $STAGEDOOR_TOKEN, else the one of this home)",
    )
    parser.add_argument("--local", action="store_true", help="run the sessions here, though a server may be running")
    parser.add_argument("--config", type=Path, help="the configuration file (default: see stagedoor config path)")
    parser.add_argument(
        "--root", action="append", default=[], help="a folder in which sessions may run (default: any the editor names)"
    )
    arguments = parser.parse_args(argv)
    try:
        from ..server.jsonrpc import stdio
        from ..service.config.load import load
    except ModuleNotFoundError as missing:
        print(f"stagedoor acp: {error_line(missing)}", file=sys.stderr)
        return EXIT_USAGE
    if arguments.server is None and arguments.token_file is not None:
        parser.error("--token-file needs --server")
    if arguments.local and arguments.server is not None:
        parser.error("--local and --server contradict each other: leave one of them out")
    settings = load(arguments.config, flags={"workspaces.roots": arguments.root or None}).settings

    token = None if arguments.token_file is None else arguments.token_file.read_text(encoding="utf-8").strip()

    async def speak() -> int:
        _cancel_on_signals()
        address = await _address(arguments.server, token, settings, local=arguments.local)
        async with stdio.standard_streams(settings.limits.body) as lines:
            if address is None:
                return await _serve_here(settings, lines, arguments.agent)
            return await _forward(address, lines, arguments.agent)

    try:
        return asyncio.run(speak())
    except asyncio.CancelledError:
        return EXIT_INTERRUPTED
    except BrokenPipeError:
        return EXIT_FAILED


def _cancel_on_signals() -> None:
    """SIGTERM and SIGHUP end this task in order, as Ctrl-C does."""
    task = asyncio.current_task()
    assert task is not None
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        asyncio.get_running_loop().add_signal_handler(number, task.cancel)


async def _address(server: str | None, token: str | None, settings: Settings, *, local: bool) -> Address | None:
    """The server to work through: the one that is named, else the one that runs with this home, if one does."""
    from ..errors import StagedoorError
    from ..remote.address import LOCAL, find

    env = {**os.environ, "STAGEDOOR_HOME": settings.home} if settings.home else os.environ
    if server is not None:
        return find(server, token, env=env)
    if local:
        return None
    try:
        address = find(LOCAL, None, env=env)
        parts = urlsplit(address.url)
        _, writer = await asyncio.wait_for(asyncio.open_connection(parts.hostname, parts.port), REACH_WITHIN)
    except (StagedoorError, OSError, TimeoutError):
        return None  # none runs, or one has left its file behind
    writer.close()
    return address


async def _serve_here(settings: Settings, lines: StdioLines, agent: str) -> int:
    from msgspec.structs import replace

    from ..server.acp.door import serve_editor
    from ..service.service import Service

    if not settings.roots:
        settings = replace(settings, roots=(os.sep,))  # the editor's folders are the user's own choice
    async with Service(settings) as service:
        await serve_editor(service, lines, agent)
    return EXIT_SUCCESS


async def _forward(address: Address, lines: StdioLines, agent: str) -> int:
    from ..server.acp.door import bridge_editor
    from ..transports.websocket import WebSocket

    url = f"{address.ws_url}/acp" + (f"?{urlencode({'agent': agent})}" if agent else "")
    async with await WebSocket.connect(
        url, headers={"Authorization": f"Bearer {address.token}"}, tls=address.tls(), use_proxies=not address.loopback
    ) as socket:
        await bridge_editor(socket, address.url, lines)
    return EXIT_SUCCESS
