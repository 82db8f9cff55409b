"""One server for all programs on pipes (``stagedoor acp``, ``stagedoor mcp``) of one home, as long as any of them runs.

A log belongs to one process, and an editor opens several windows: the first program starts this server, apart from
itself so that it can be killed alone, and the others find it. Each holds a lease, a lock that goes with its process
however it ends; when nobody holds one, the server stops and ends what it ran.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import fcntl
import os
import signal
import sys
import time
from collections.abc import Generator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ...errors import ConnectionLost, StagedoorError, StoreError
from .. import EXIT_SUCCESS, EXIT_USAGE
from ..command import error_line

if TYPE_CHECKING:
    from ...remote.address import Address
    from ...server.running import ServerFile
    from ...service.config.settings import Settings

FILE_NAME = "shared.json"
LEASES, STARTING, LOG = "shared.leases", "shared.start", "shared.log"
REACH_WITHIN = 5.0
START_WITHIN = 60.0
LOOK_EVERY = 0.05
LEASES_EVERY = 0.5
LAST_WORDS = 2000


@contextlib.contextmanager
def shared_server(home: Path, flags: Sequence[str]) -> Generator[Address]:
    """The server that those of this home share; started if none runs. It lives at least as long as the body.

    ``flags``: with which it is started. Raises ``StagedoorError`` when it cannot be.
    """
    from ...remote.address import Address
    from ...server.access.tokens import private_folder, read_token

    private_folder(home)
    with _locked(home / LEASES, fcntl.LOCK_SH):
        with _locked(home / STARTING, fcntl.LOCK_EX):  # the others find the one that the first has started
            server = _find(home) or _start(home, flags)
        yield Address(url=server.url, token=read_token(home))


def _find(home: Path) -> ServerFile | None:
    from ...server.running import find_own_server

    return find_own_server(home, seconds=REACH_WITHIN, name=FILE_NAME)


def _start(home: Path, flags: Sequence[str]) -> ServerFile:
    from ...transports.programs import ProgramApart

    log = home / LOG
    argv = [sys.executable, "-P", "-m", __name__, "--home", str(home), *flags]
    server = ProgramApart(argv, log)
    bound = time.monotonic() + START_WITHIN
    while time.monotonic() < bound:
        if (running := _find(home)) is not None:
            return running
        if server.ended():
            raise StoreError(_last_words(log) or "the server that programs of this home share ended at once")
        time.sleep(LOOK_EVERY)
    server.end()
    raise ConnectionLost(f"the server that programs of this home share did not start in time; see {log}")


def _last_words(log: Path) -> str:
    lines = log.read_text("utf-8", "replace")[-LAST_WORDS:].strip().splitlines()
    return lines[-1] if lines else ""


@contextlib.contextmanager
def _locked(path: Path, kind: int) -> Generator[None]:
    file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        bound = time.monotonic() + START_WITHIN
        while not _lock(file, kind):  # a server that is just stopping holds it until it has
            if time.monotonic() > bound:
                raise ConnectionLost(f"another Stagedoor holds {path} for too long; end it, then try again")
            time.sleep(LOOK_EVERY)
        yield
    finally:
        os.close(file)


def _lock(file: int, kind: int) -> bool:
    try:
        fcntl.flock(file, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


# -------------------------------------------------------------------------------------------------- the server itself


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="stagedoor")
    parser.add_argument("--home", type=Path, required=True)
    parser.add_argument("--config", type=Path)
    parser.add_argument("--root", action="append", default=[])
    arguments = parser.parse_args(argv)
    try:
        from msgspec.structs import replace

        from ...server import logs
        from ...server.arrivals import raise_descriptor_limit
        from ...service.config.load import load

        os.chdir(arguments.home)
        logs.set_up("text", "warning")
        settings = load(arguments.config, flags={"workspaces.roots": arguments.root or None}).settings
        raise_descriptor_limit()
        # For this machine and its user, whatever a server that is started by hand would be for.
        settings = replace(
            settings, home=str(arguments.home), host="127.0.0.1", port=0, hosts=(), tls_cert="", tls_key="",
            roots=settings.roots or (os.sep,),
        )  # fmt: skip
        asyncio.run(_serve(settings, arguments.home))
    except (StagedoorError, OSError, ModuleNotFoundError) as fault:
        print(error_line(fault), file=sys.stderr)
        return EXIT_USAGE
    return EXIT_SUCCESS


async def _serve(settings: Settings, home: Path) -> None:
    from ...server.app import create_app
    from ...server.listening import listening, open_socket
    from ...server.running import server_file
    from ...service.service import Service

    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    with open_socket(settings.host, settings.port) as opened:
        async with listening(create_app(Service(settings, shared=True)), settings, opened) as server:
            with server_file(home, settings, opened.getsockname()[:2], name=FILE_NAME):
                server.serving.add_done_callback(lambda serving: stop.set())
                leases = os.open(home / LEASES, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
                # Whoever comes while it stops waits for the lock, which goes with this process, and starts another.
                while not stop.is_set() and not _lock(leases, fcntl.LOCK_EX):
                    with contextlib.suppress(TimeoutError):
                        async with asyncio.timeout(LEASES_EVERY):
                            await stop.wait()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
