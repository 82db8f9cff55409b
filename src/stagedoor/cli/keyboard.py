"""One key at a time from a terminal, without stopping the event loop."""

from __future__ import annotations

import asyncio
import codecs
import os
import sys
import termios
import tty
from typing import Any

ENTER, BACKSPACE, ESCAPE, END_OF_INPUT = ("\r", "\n"), ("\x7f", "\b"), "\x1b", "\x04"
CLEAR_LINE, CLEAR_WORD = "\x15", "\x17"


class Keyboard:
    """Holds the terminal quiet (no echo, no line editing) from ``start`` to ``stop``. Ctrl-C stays a signal."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._before: list[Any] | None = None
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def start(self) -> None:
        if self._before is None:
            self._before = termios.tcgetattr(self._descriptor)
        tty.setcbreak(self._descriptor, termios.TCSADRAIN)

    def stop(self) -> None:
        if self._before is not None:
            termios.tcsetattr(self._descriptor, termios.TCSADRAIN, self._before)
            self._before = None

    def forget(self) -> None:
        """Throw away what was typed before anything was asked: it was no answer."""
        termios.tcflush(self._descriptor, termios.TCIFLUSH)

    async def typed(self) -> str:
        """What is typed next, at least one character; empty when the terminal is gone."""
        loop = asyncio.get_running_loop()
        while True:
            ready: asyncio.Future[None] = loop.create_future()
            loop.add_reader(self._descriptor, _set, ready)
            try:
                await ready
            finally:
                loop.remove_reader(self._descriptor)
            try:
                chunk = os.read(self._descriptor, 1024)
            except OSError:
                return ""
            if not chunk:
                return ""
            text = self._decoder.decode(chunk)
            if text:
                return text

    async def line(self, text: str, *, secret: bool = False) -> str | None:
        """Let the user change one line, written at the cursor. ``None``: they thought better of it (Escape).

        ``secret``: what is typed is shown as stars.
        """
        out = sys.stderr if not sys.stdout.isatty() else sys.stdout
        out.write(text)
        out.flush()
        while True:
            typed = await self.typed()
            if not typed or typed in (ESCAPE, END_OF_INPUT):
                out.write("\n")
                return None
            if typed.startswith(ESCAPE):
                continue  # an arrow or function key
            for key in typed:
                if key in ENTER:
                    out.write("\n")
                    out.flush()
                    return text
                kept = _after(key, text)
                added = "*" * (len(kept) - len(text)) if secret else kept[len(text) :]
                out.write("\b \b" * (len(text) - len(kept)) if len(kept) < len(text) else added)
                text = kept
            out.flush()


def _after(key: str, text: str) -> str:
    if key in BACKSPACE:
        return text[:-1]
    if key == CLEAR_LINE:
        return ""
    if key == CLEAR_WORD:
        return text.rstrip().rpartition(" ")[0]
    return text + key if key.isprintable() else text


def _set(ready: asyncio.Future[None]) -> None:
    if not ready.done():
        ready.set_result(None)


def find_keyboard() -> Keyboard | None:
    """The terminal somebody sits at, even when standard input is a file; ``None`` when nobody does."""
    if not (sys.stdout.isatty() or sys.stderr.isatty()):
        return None
    try:
        descriptor = sys.stdin.fileno() if sys.stdin.isatty() else os.open("/dev/tty", os.O_RDWR | os.O_CLOEXEC)
        in_front = os.tcgetpgrp(descriptor) == os.getpgrp()  # a job in the background would be stopped by a read
    except (OSError, ValueError):
        return None
    return Keyboard(descriptor) if in_front else None
