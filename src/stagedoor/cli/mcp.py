"""``stagedoor mcp``: a tool server for models that use agents, on stdin and stdout."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from . import EXIT_FAILED, EXIT_INTERRUPTED, EXIT_SUCCESS, EXIT_USAGE
from .acp import _address, _cancel_on_signals
from .command import Parser, error_line

if TYPE_CHECKING:
    from ..server.jsonrpc.stdio import StdioLines
    from ..service.config.settings import Settings
    from ..unified.options import Tier

EPILOG = """\
examples:
  stagedoor mcp                                     # as the command of a tool server, in your agent's configuration
  stagedoor mcp --tier autonomous                   # its sessions may run without questions
  stagedoor mcp --server http://127.0.0.1:16180     # through a running server: a person answers on the page

Permission questions of its sessions are answered by a person, at the page, the phone or `stagedoor chat`: never by the
calling model. Without a server, of this home or named by --server, the sessions run here and end with the caller; what
nobody answers in time is denied. See docs/mcp.md.
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
    parser.add_argument("--server", metavar="URL", help="run the sessions on this server; local: the one of this home")
    parser.add_argument(
        "--token-file",
        type=Path,
        help="with --server: a file with the token (default: $STAGEDOOR_TOKEN, else the one of this home)",
    )
    parser.add_argument("--local", action="store_true", help="run the sessions here, though a server may be running")
    parser.add_argument("--config", type=Path, help="the configuration file (default: see stagedoor config path)")
    parser.add_argument(
        "--root", action="append", default=[], help="a folder in which sessions may run (default: the current one)"
    )
    arguments = parser.parse_args(argv)
    try:
        from ..service.config.load import load
    except ModuleNotFoundError as missing:
        print(f"stagedoor mcp: {error_line(missing)}", file=sys.stderr)
        return EXIT_USAGE
    if arguments.server is None and arguments.token_file is not None:
        parser.error("--token-file needs --server")
    if arguments.local and arguments.server is not None:
        parser.error("--local and --server contradict each other: leave one of them out")
    settings = load(arguments.config, flags={"workspaces.roots": arguments.root or None}).settings
    token = None if arguments.token_file is None else arguments.token_file.read_text(encoding="utf-8").strip()
    parent = surrounding_session()
    most: Tier | None = arguments.tier or (None if parent else "supervised")
    address = asyncio.run(_address(arguments.server, token, settings, local=arguments.local))
    if address is not None:
        from ..mcp import bridge

        headers = {"Authorization": f"Bearer {address.token}"} | ({"Stagedoor-Tier": most} if most else {})
        if parent:
            headers["Stagedoor-Session"] = parent
        bridge.carry(f"{address.url}/mcp", headers, address.tls() or None)
        return EXIT_SUCCESS

    from ..server.jsonrpc import stdio  # what serves here is not worth loading where another server does

    async def speak() -> int:
        _cancel_on_signals()
        async with stdio.standard_streams(settings.limits.body) as lines:
            return await _serve_here(settings, lines, most, parent)

    try:
        return asyncio.run(speak())
    except asyncio.CancelledError:
        return EXIT_INTERRUPTED
    except BrokenPipeError:
        return EXIT_FAILED


async def _serve_here(settings: Settings, lines: StdioLines, most: Tier | None, parent: str) -> int:
    from msgspec.structs import replace

    from ..server.mcp.door import serve_model
    from ..service.service import Service

    if not settings.roots:
        settings = replace(settings, roots=(str(Path.cwd()),))
    async with Service(settings) as service:
        await serve_model(service, lines, most=most, parent=parent)
    return EXIT_SUCCESS


def surrounding_session() -> str:
    """The session that we run in: our environment says so, or that of a program above us (some agents pass on little
    of theirs to the servers they start). Empty where none does."""
    from ..service.opening import SESSION_VARIABLE

    if named := os.environ.get(SESSION_VARIABLE):
        return named
    mark, process = f"{SESSION_VARIABLE}=".encode(), os.getppid()
    for _ in range(64):
        try:
            variables = Path(f"/proc/{process}/environ").read_bytes().split(b"\0")
            above = int(Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[1])
        except (OSError, ValueError, IndexError):
            return ""  # another user's, or a system that does not say
        if inherited := next((line[len(mark) :] for line in variables if line.startswith(mark)), b""):
            return os.fsdecode(inherited)
        process = above
    return ""
