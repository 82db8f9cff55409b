"""Text in columns, for terminals and pipes alike."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from datetime import datetime

from .lines import Style, plain

Cell = str | tuple[str, str]
"""Text, or (role, text) for a ``Style``."""


def table(headings: Sequence[str], rows: Sequence[Sequence[Cell]], style: Style = plain) -> str:
    """Columns as wide as their widest cell; the last one is not padded."""
    texts = [list(headings), *[[_text(cell) for cell in row] for row in rows]]
    widths = [max(width(row[column]) for row in texts) for column in range(len(headings))]
    head = _line([("strong", heading) for heading in headings], widths, style)
    rule = "  ".join("─" * size for size in widths)
    return "\n".join([head, style("dim", rule), *(_line(row, widths, style) for row in rows)])


def width(text: str) -> int:
    """Columns a terminal needs for ``text``."""
    return sum(
        0 if unicodedata.combining(char) else 2 if unicodedata.east_asian_width(char) in "WF" else 1 for char in text
    )


def ago(milliseconds: int, now: int) -> str:
    """How long ago that was, shortly; a date when it is long."""
    seconds = max(0, (now - milliseconds) // 1000)
    if not milliseconds:
        return ""
    for size, unit in ((60, "s"), (60, "min"), (24, "h"), (14, "d")):
        if seconds < size:
            return f"{seconds} {unit} ago"
        seconds //= size
    return datetime.fromtimestamp(milliseconds / 1000).strftime("%Y-%m-%d")


def _line(row: Sequence[Cell], widths: Sequence[int], style: Style) -> str:
    cells: list[str] = []
    for number, (cell, size) in enumerate(zip(row, widths, strict=True)):
        text = _text(cell)
        padding = "" if number == len(row) - 1 else " " * (size - width(text))
        cells.append((style(cell[0], text) if isinstance(cell, tuple) and text else text) + padding)
    return "  ".join(cells).rstrip()


def _text(cell: Cell) -> str:
    return cell if isinstance(cell, str) else cell[1]
