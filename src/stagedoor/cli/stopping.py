"""Ctrl-C: once interrupts the turn, twice kills; if even that takes too long we die, and the guard does the rest."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any

from ..session import Session
from . import EXIT_INTERRUPTED

if TYPE_CHECKING:
    from ..remote import RemoteSession

PATIENCE = 4.0
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Stopping:
    """``begun``: has the agent said something? Before that there is no turn that could be interrupted."""

    def __init__(
        self,
        session: Session | RemoteSession,
        say: Callable[[str], None],
        restore: Callable[[], None],
        begun: Callable[[], bool],
    ) -> None:
        self.pressed = 0
        self._begun = begun
        self._session = session
        self._say = say
        self._restore = restore
        self._errands: set[asyncio.Task[None]] = set()
        self._main: asyncio.Task[object] | None = None

    def start(self) -> None:
        loop = asyncio.get_running_loop()
        self._main = asyncio.current_task()
        loop.add_signal_handler(signal.SIGINT, self._press)
        for number in (signal.SIGTERM, signal.SIGHUP):
            loop.add_signal_handler(number, self._kill)

    def stop(self) -> None:
        loop = asyncio.get_running_loop()
        for number in SIGNALS:
            loop.remove_signal_handler(number)

    def _press(self) -> None:
        self.pressed += 1
        if self.pressed == 1 and self._begun():
            self._say("interrupting; Ctrl-C again kills")
            self._run(self._session.interrupt())
        else:
            self._kill()

    def _kill(self) -> None:
        self.pressed = max(self.pressed, 1) + 1
        loop = asyncio.get_running_loop()
        if self.pressed > 3:
            self._die()
        self._say("killing")
        if self._begun():
            self._run(self._session.close())
            loop.call_later(PATIENCE / 2, self._cancel)
        else:
            self._cancel()
        loop.call_later(PATIENCE, self._die)

    def _run(self, errand: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(errand)
        self._errands.add(task)
        task.add_done_callback(self._errands.discard)

    def _cancel(self) -> None:
        if self._main is not None:
            self._main.cancel()

    def _die(self) -> None:
        self._restore()
        os._exit(EXIT_INTERRUPTED)
