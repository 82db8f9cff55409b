"""``python -m stagedoor.understudy [--script FILE.yaml] [--home FOLDER]``: an ACP agent on stdin and stdout."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import signal
import sys
import threading
from collections.abc import Mapping
from pathlib import Path

from stagedoor.agent_side.link import AgentLink
from stagedoor.testing.script import Script
from stagedoor.wire.jsonl import LineBuffer
from stagedoor.wire.shapes import UnknownMessage

from .agent import VERSION, Understudy
from .store import UnderstudyStore, default_home

STDIN, STDOUT = 0, 1


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="understudy",
        description="A scripted agent that uses the Agent Client Protocol on standard input and output.",
    )
    parser.add_argument("--script", type=Path, help="the script to play, as YAML or JSON; without it, a short demo")
    parser.add_argument("--home", type=Path, help="the folder for stored sessions")
    parser.add_argument("--without", default="", metavar="TOOL,…", help="tools to leave out")
    parser.add_argument(
        "--reads", default="", metavar="SERVER/TOOL,…", help="tools of MCP servers that only read: called in every mode"
    )
    parser.add_argument("--version", action="version", version=f"understudy {VERSION}")
    options = parser.parse_args()
    script: Script | None = None
    routes: Mapping[str, Script] = {}
    if options.script is not None:
        from stagedoor.testing.yaml_script import ScriptError, load_script  # only scripts need YAML

        try:
            loaded = load_script(options.script)
        except ScriptError as error:
            print(f"understudy: {error}", file=sys.stderr)
            return 2
        script, routes = loaded.script, loaded.routes
    without = frozenset(options.without.split(",")) - {""}
    readers = frozenset(options.reads.split(",")) - {""}
    asyncio.run(_serve(UnderstudyStore(options.home or default_home()), script, routes, without, readers))
    return 0


async def _serve(
    store: UnderstudyStore,
    script: Script | None,
    routes: Mapping[str, Script],
    without: frozenset[str],
    readers: frozenset[str],
) -> None:
    loop = asyncio.get_running_loop()
    ended = asyncio.Event()
    link = AgentLink(_write)
    understudy = Understudy(link, store, script, routes, without, readers)
    lines = LineBuffer()

    def receive(chunk: bytes) -> None:
        for line in lines.feed(chunk) if chunk else lines.finish():
            if not isinstance(line, UnknownMessage):
                link.receive(line)
        if not chunk:
            ended.set()

    def listen() -> None:
        # A thread, because standard input may be a file, which the event loop cannot watch.
        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody reads any more
            while True:
                chunk = os.read(STDIN, 2**16)
                loop.call_soon_threadsafe(receive, chunk)
                if not chunk:
                    return

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, ended.set)
    threading.Thread(target=listen, daemon=True).start()
    await ended.wait()
    await understudy.end()


def _write(message: bytes) -> None:
    try:
        view = memoryview(message)
        while view:
            view = view[os.write(STDOUT, view) :]
    except BrokenPipeError:
        signal.raise_signal(signal.SIGTERM)  # nobody reads: end, and leave nothing running


if __name__ == "__main__":
    sys.exit(main())
