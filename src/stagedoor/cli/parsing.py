"""What the parsers of all commands share: examples at the end of their help, and a mistake told in one line."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any, NoReturn

from . import EXIT_USAGE


class Parser(argparse.ArgumentParser):
    """``examples`` are command lines, one each; ``ends`` is said after them."""

    def __init__(self, *, examples: Sequence[str] = (), ends: str = "", **settings: Any) -> None:
        listed = "\n".join(["examples:", *(f"  {line}" for line in examples)]) if examples else ""
        epilog = "\n\n".join(part for part in (listed, ends) if part)
        super().__init__(formatter_class=_Help, epilog=epilog or None, **settings)

    def error(self, message: str) -> NoReturn:
        self.exit(EXIT_USAGE, f"{self.prog}: {message}; {self.prog} --help says more\n")


class _Help(argparse.HelpFormatter):
    """Fills paragraphs as ever, and leaves alone what has lines of its own."""

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        return text if "\n" in text else super()._fill_text(text, width, indent)
