"""What ``serve`` and ``worker`` share: both stay in the foreground until Ctrl-C or SIGTERM and run agents."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from .. import EXIT_INTERRUPTED, EXIT_USAGE
from ..command import report

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable

    from ...service.config.settings import Settings

SECRETS = ("STAGEDOOR_NOTIFY__", "STAGEDOOR_LOG__", "PGPASSWORD")
"""Variables that are ours alone, or begin like this."""


def add_flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--root",
        action="append",
        metavar="DIR",
        help="sessions may run only under this folder (repeatable; default: here)",
    )
    parser.add_argument(
        "--config", type=Path, metavar="FILE", help="use this configuration file instead of the default"
    )
    parser.add_argument(
        "--log-format", choices=("text", "json"), default="text", help="format of the log on standard error"
    )
    parser.add_argument("--log-level", choices=("debug", "info", "warning", "error"), default="info")


def run_in_foreground(command: str, work: Callable[[argparse.Namespace], int], arguments: argparse.Namespace) -> int:
    """The exit code of ``work``; what keeps it from starting is reported under the command's name."""
    from ...errors import StagedoorError

    try:
        return work(arguments)
    except (StagedoorError, OSError, ModuleNotFoundError) as fault:
        report(command, fault)
        return EXIT_USAGE


def prepare_process(command: str, arguments: argparse.Namespace, warnings: list[str] | tuple[str, ...]) -> None:
    """After the settings were read: agents inherit our environment without our secrets, and logging begins."""
    from ...server import logs
    from ...server.arrivals import raise_descriptor_limit

    for name in [name for name in os.environ if name.startswith(SECRETS)]:
        del os.environ[name]
    for warning in warnings:
        print(f"stagedoor {command}: {warning}", file=sys.stderr)
    raise_descriptor_limit()
    logs.set_up(arguments.log_format, arguments.log_level)


def checked_roots(settings: Settings) -> Settings:
    """With the folders that sessions may run in: here, when none are named."""
    from msgspec.structs import replace

    from ...errors import ConfigError

    if not settings.roots:
        settings = replace(settings, roots=(str(Path.cwd()),))
    for root in settings.roots:
        folder = Path(root).expanduser().resolve()
        if not folder.is_dir():
            raise ConfigError(f"the root {root} is not a folder: create it, or choose another with --root")
        if folder == Path(folder.anchor):
            raise ConfigError("the whole disk cannot be a root for agents: choose a folder with --root")
    return settings


def stopped_by_signals(logger: str) -> asyncio.Event:
    """Set at the first Ctrl-C or SIGTERM; a second one ends the process, and the guards end what the agents run."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()

    def stop_in_order() -> None:
        if stop.is_set():
            os._exit(EXIT_INTERRUPTED)
        logging.getLogger(logger).info("stopping (again to stop at once)")
        stop.set()

    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop_in_order)
    return stop
