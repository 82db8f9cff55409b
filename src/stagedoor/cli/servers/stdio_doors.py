"""What the commands that speak on stdin and stdout have in common: flags, the server they work through, signals."""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from .. import EXIT_FAILED, EXIT_INTERRUPTED, EXIT_SUCCESS

if TYPE_CHECKING:
    from ...remote.address import Address
    from ...server.jsonrpc.stdio import StdioLines
    from ...service.config.settings import Settings
    from ..command import Parser

REACH_WITHIN = 5.0


class StdioFlags(msgspec.Struct, frozen=True, kw_only=True):
    """``server``: the one that was named, or none. ``roots``: the folders that were."""

    settings: Settings
    server: str | None
    token: str | None
    local: bool
    config: Path | None
    roots: tuple[str, ...]

    @property
    def home(self) -> Path:
        from ...register import home

        return (Path(self.settings.home) if self.settings.home else home()).absolute()

    def own_address(self) -> Address | None:
        """The server that is named, else the one that somebody has started with this home, if it runs."""
        from ...remote.address import LOCAL, find
        from ...server.running import find_own_server

        env = {**os.environ, "STAGEDOOR_HOME": str(self.home)}
        if self.server is not None:
            return find(self.server, self.token, env=env)
        if self.local or find_own_server(self.home, seconds=REACH_WITHIN) is None:
            return None
        return find(LOCAL, None, env=env)

    def of_shared_server(self) -> list[str]:
        """The flags with which the server is started that programs of this home share."""
        config = [] if self.config is None else ["--config", str(self.config.absolute())]
        return config + [word for root in self.roots for word in ("--root", root)]


def add_stdio_flags(parser: Parser, *, default_root: str) -> None:
    parser.add_argument(
        "--server", "--url", metavar="URL", help="run the sessions on this server; local: the one of this home"
    )
    parser.add_argument(
        "--token-file",
        type=Path,
        help="with --server: a file with the token (default: $STAGEDOOR_TOKEN, else the one of this home)",
    )
    parser.add_argument("--local", action="store_true", help="run the sessions in this process, and nowhere else")
    parser.add_argument("--config", type=Path, help="the configuration file (default: see stagedoor config path)")
    parser.add_argument(
        "--root", action="append", default=[], help=f"a folder in which sessions may run (default: {default_root})"
    )


def read_stdio_flags(parser: Parser, arguments: argparse.Namespace) -> StdioFlags:
    """Raises what is wrong with the configuration or the token; ends the program for flags that contradict."""
    from ...service.config.load import load

    if arguments.server is None and arguments.token_file is not None:
        parser.error("--token-file needs --server")
    if arguments.local and arguments.server is not None:
        parser.error("--local and --server contradict each other: leave one of them out")
    return StdioFlags(
        settings=load(arguments.config, flags={"workspaces.roots": arguments.root or None}).settings,
        server=arguments.server,
        token=None if arguments.token_file is None else arguments.token_file.read_text(encoding="utf-8").strip(),
        local=arguments.local,
        config=arguments.config,
        roots=tuple(str(Path(root).expanduser().absolute()) for root in arguments.root),
    )


def run_on_streams(speak: Callable[[StdioLines], Awaitable[None]], settings: Settings) -> int:
    """Speak on our stdin and stdout until it returns. SIGTERM and SIGHUP end it in order, as Ctrl-C does."""
    from ...server.jsonrpc import stdio

    async def run() -> None:
        task = asyncio.current_task()
        assert task is not None
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            asyncio.get_running_loop().add_signal_handler(number, task.cancel)
        async with stdio.standard_streams(settings.limits.body) as lines:
            await speak(lines)

    try:
        asyncio.run(run())
    except asyncio.CancelledError:
        return EXIT_INTERRUPTED
    except BrokenPipeError:
        return EXIT_FAILED
    return EXIT_SUCCESS
