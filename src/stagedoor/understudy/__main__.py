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

from stagedoor.testing.script import Script
from stagedoor.wire.jsonl import LineBuffer
from stagedoor.wire.shapes import Unrecognized

from .agent import VERSION, Understudy
from .link import Link
from .store import Store, default_home

STDIN, STDOUT = 0, 1


def main() -> int:
    parser = argparse.ArgumentParser(prog="understudy", description="A scripted agent that speaks ACP on stdio.")
    parser.add_argument("--script", type=Path, help="what to play, as YAML or JSON; without it, a short demo")
    parser.add_argument("--home", type=Path, help="where sessions are stored")
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
    asyncio.run(_serve(Store(options.home or default_home()), script, routes))
    return 0


async def _serve(store: Store, script: Script | None, routes: Mapping[str, Script]) -> None:
    loop = asyncio.get_running_loop()
    over = asyncio.Event()
    understudy = Understudy(Link(_write), store, script, routes)
    lines = LineBuffer()

    def heard(chunk: bytes) -> None:
        for line in lines.feed(chunk) if chunk else lines.finish():
            if not isinstance(line, Unrecognized):
                understudy.receive(line)
        if not chunk:
            over.set()

    def listen() -> None:
        # A thread, because standard input may be a file, which the event loop cannot watch.
        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody listens any more
            while True:
                chunk = os.read(STDIN, 2**16)
                loop.call_soon_threadsafe(heard, chunk)
                if not chunk:
                    return

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, over.set)
    threading.Thread(target=listen, daemon=True).start()
    await over.wait()
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
