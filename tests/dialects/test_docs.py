"""``docs/dialects.md`` is true: its table is what the projections say, its examples run."""

from __future__ import annotations

import os
import re
from importlib import import_module
from pathlib import Path
from typing import Any

import msgspec

from stagedoor.dialects import DIALECTS, encode
from stagedoor.dialects.event_parts import type_of
from stagedoor.unified.events import Event, TurnCompleted

PAGE = Path(__file__).parents[2] / "docs" / "dialects.md"
COLUMNS = ["ues", "lifecycle", "board", "notify", "chat"]
BEGIN, END = "<!-- table: written by tests/dialects/test_docs.py -->\n", "<!-- end of table -->\n"


def spoken(dialect: str, event: Event) -> list[bytes]:
    """What a dialect says of an event; where it waits to see what comes next, what it says then."""
    projection, end = DIALECTS[dialect](), TurnCompleted(status="success")
    messages = encode(projection, event)
    if dialect == "notify":
        messages += encode(projection, end)[: -len(encode(DIALECTS[dialect](), end))]
    return messages


def message_types(dialect: str, event: Event) -> str:
    messages = [msgspec.json.decode(line) for line in spoken(dialect, event)]
    names = [each["method" if dialect == "notify" else "type"] for each in messages]
    return " ".join(f"`{name.replace('claude-code:', '<agent>:')}`" for name in dict.fromkeys(names)) or "–"


def silent(dialect: str) -> dict[str, str]:
    if dialect == "stagedoor":  # the canonical form itself
        return {}
    reasons: dict[str, str] = import_module(f"stagedoor.dialects.{dialect}").SILENT
    return reasons


def table(samples: list[Event]) -> str:
    rows: dict[str, list[list[str]]] = {}
    for event in samples:
        row = rows.setdefault(type_of(event), [[] for _ in COLUMNS])
        for cell, dialect in zip(row, COLUMNS, strict=True):
            if (types := message_types(dialect, event)) not in cell:
                cell.append(types)
    lines = ["| event | " + " | ".join(f"`{name}`" for name in COLUMNS) + " |", "|---" * (len(COLUMNS) + 1) + "|"]
    lines += [f"| `{kind}` | " + " | ".join(" or ".join(cell) for cell in row) + " |" for kind, row in rows.items()]
    lines += ["", "Where a dialect sends nothing:", ""]
    lines += [f"- `{dialect}`, `{kind}`: {why}." for dialect in COLUMNS for kind, why in silent(dialect).items()]
    return "\n".join(lines) + "\n"


def test_the_table_is_what_the_dialects_say(samples: list[Event]) -> None:
    before, rest = PAGE.read_text().split(BEGIN)
    written, after = rest.split(END)
    if os.environ.get("STAGEDOOR_REWRITE"):
        written = table(samples)
        PAGE.write_text(before + BEGIN + written + END + after)
    assert written == table(samples)


def test_nothing_is_kept_silent_about_without_a_reason(samples: list[Event]) -> None:
    for dialect in DIALECTS:
        missing = {type_of(event) for event in samples if not spoken(dialect, event)}
        assert missing == set(silent(dialect))


def test_the_examples_run() -> None:
    names: dict[str, Any] = {}
    for example in re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL):
        exec(compile(example, str(PAGE), "exec"), names)
    assert "request" in names
