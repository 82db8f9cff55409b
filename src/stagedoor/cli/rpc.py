"""``stagedoor rpc``: JSON-RPC 2.0 on stdin and stdout, one message per line."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from . import EXIT_FAILED, EXIT_INTERRUPTED, EXIT_SUCCESS, EXIT_USAGE
from .command import Parser, error_line

if TYPE_CHECKING:
    from ..server.jsonrpc.stdio import StdioLines
    from ..service.config.settings import Settings

EPILOG = """\
examples:
  echo '{"jsonrpc":"2.0","id":1,"method":"agent/discover"}' | stagedoor rpc
  stagedoor rpc --root ~/projects
  stagedoor rpc --url http://127.0.0.1:16180        # forward everything to a running server

The sessions are stored in the home of Stagedoor. When stdin ends, running sessions are stopped; to keep them running,
start `stagedoor serve` and use --url. The methods are described in docs/jsonrpc.md.
"""


def main(argv: list[str]) -> int:
    parser = Parser(
        prog="stagedoor rpc",
        description="Speak JSON-RPC 2.0 on stdin and stdout, one message per line, until stdin ends.",
        closing=EPILOG,
    )
    parser.add_argument("--config", type=Path, help="the configuration file (default: see stagedoor config path)")
    parser.add_argument(
        "--root", action="append", default=[], help="a folder in which sessions may run (default: this one)"
    )
    parser.add_argument("--url", help="use the running server at this address")
    parser.add_argument(
        "--token-file",
        type=Path,
        help="with --url: a file with the token (default: $STAGEDOOR_TOKEN, else the token in the home of Stagedoor)",
    )
    arguments = parser.parse_args(argv)
    try:
        from ..server.jsonrpc import stdio
        from ..service.config.load import load
    except ModuleNotFoundError as missing:
        print(f"stagedoor rpc: {error_line(missing)}", file=sys.stderr)
        return EXIT_USAGE
    if arguments.url is None and arguments.token_file is not None:
        parser.error("--token-file needs --url")
    if arguments.url is not None and not arguments.url.startswith(("http://", "https://")):
        parser.error(f"--url must start with http:// or https://: {arguments.url!r}")
    settings = load(arguments.config, flags={"workspaces.roots": arguments.root or None}).settings

    async def speak() -> int:
        _cancel_on_signals()
        async with stdio.standard_streams(settings.limits.body) as lines:
            if arguments.url is None:
                return await _serve_here(settings, lines)
            return await _forward(arguments.url, _token(arguments.token_file, settings), lines)

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


async def _serve_here(settings: Settings, lines: StdioLines) -> int:
    from msgspec.structs import replace

    from ..server.jsonrpc.stdio import serve_stdio
    from ..service.service import Service

    if not settings.roots:
        settings = replace(settings, roots=(str(Path.cwd()),))
    async with Service(settings) as service:
        await serve_stdio(service, lines)
    return EXIT_SUCCESS


async def _forward(url: str, token: str, lines: StdioLines) -> int:
    from ..server.jsonrpc.stdio import bridge

    await bridge(url, token, lines)
    return EXIT_SUCCESS


def _token(file: Path | None, settings: Settings) -> str:
    from ..errors import NotAllowed
    from ..register import home
    from ..server.access.tokens import read_token

    if file is not None:
        return file.read_text(encoding="utf-8").strip()
    if os.environ.get("STAGEDOOR_TOKEN"):
        return os.environ["STAGEDOOR_TOKEN"]
    folder = Path(settings.home) if settings.home else home()
    try:
        return read_token(folder)
    except FileNotFoundError as missing:
        problem = f"no token in {folder}: no server has run there; use --token-file or $STAGEDOOR_TOKEN"
        raise NotAllowed(problem) from missing
