"""What the live suite has proven, as a page: agent × capability × version.

    python -m tools.compatibility [RECORDS [PAGE]]

The suite writes one line for each thing it tried (``.pytest_cache/d/compatibility/*.jsonl``, one file per worker); this
turns them into ``docs/compatibility.md``. A cell that no test has proven stays empty.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Literal

import msgspec

from stagedoor.drivers.acp.unproven import UNPROVEN

RECORDS = ".pytest_cache/d/compatibility"
PAGE = "docs/compatibility.md"
UNPROVEN_TITLE = "Unproven"

Outcome = Literal["yes", "no", "n/a", "failed"]

WORDS: dict[Outcome, str] = {"yes": "yes", "no": "no", "n/a": "–", "failed": "**failed**"}
MEANING = {
    "yes": "a test did it with the real program and saw it work",
    "no": "the driver says that it cannot, and a test saw that it refuses (`NotSupported`) or leaves it out",
    "–": "the question does not arise",
    "**failed**": "the last run of its test failed",
}


class Record(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One thing the suite tried. ``at`` is in milliseconds: of two records of the same thing, the later one counts."""

    agent: str
    driver: str
    version: str
    capability: str
    outcome: Outcome
    note: str = ""
    test: str = ""
    at: int = 0


_DECODER = msgspec.json.Decoder(Record)


def write(record: Record, file: Path) -> None:
    """Add ``record`` to a file that only this process writes."""
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("ab") as out:
        out.write(msgspec.json.encode(record) + b"\n")


def read(folder: Path) -> list[Record]:
    """The newest record of everything that was tried, in the order in which the suite tries it."""
    records: list[Record] = []
    for file in sorted(folder.glob("*.jsonl")):
        records += [_DECODER.decode(line) for line in file.read_bytes().splitlines() if line.strip()]
    newest: dict[tuple[str, ...], Record] = {}
    for record in sorted(records, key=lambda record: record.at):
        newest[record.agent, record.driver, record.version, record.capability] = record
    return list(newest.values())


def page(records: Iterable[Record], before: str = "") -> str:
    """The whole page as Markdown. The sections of agents that were not tried now are taken from the page ``before``."""
    cells = list(records)
    kept = {name: section for name, section in sections_of(before).items() if name != UNPROVEN_TITLE}
    agents = sorted({*kept, *(record.agent for record in cells)})
    lines = [
        "# Compatibility",
        "",
        "Every cell is the outcome of a test that drove the real program of that very version through `stagedoor.open`",
        "against the scripted model. `make compatibility` runs the tests and writes this page.",
        "",
        *(f"* {word}: {meaning}" for word, meaning in MEANING.items()),
        "* an empty cell: it was not tried with that version (second versions run the scenarios that tell drift)",
    ]
    for agent in agents:
        tried = [record for record in cells if record.agent == agent]
        lines += ["", *(_section(agent, tried) if tried else kept[agent])]
    return "\n".join([*lines, "", *_unproven()]) + "\n"


def sections_of(text: str) -> dict[str, list[str]]:
    """The sections of a page by their titles."""
    sections: dict[str, list[str]] = {}
    for part in text.split("\n## ")[1:]:
        lines = f"## {part}".rstrip().splitlines()
        sections[lines[0].removeprefix("## ")] = lines
    return sections


def _unproven() -> list[str]:
    return [
        f"## {UNPROVEN_TITLE}",
        "",
        "Known by name and command only: nobody has tried these with Stagedoor. They run as any agent that uses the",
        "Agent Client Protocol, in `autonomous` sessions and in dry runs with `confine`; describe one in the",
        "configuration when you know which of its modes keeps which tier.",
        "",
        "| agent | command | install |",
        "|---|---|---|",
        *(f"| `{name}` | `{' '.join(one.command)}` | `{one.install}` |" for name, one in UNPROVEN.items()),
    ]


def _section(agent: str, records: list[Record]) -> list[str]:
    columns = sorted({(record.driver, record.version) for record in records})
    order: dict[str, None] = {record.capability: None for record in records}
    cells = {(record.capability, record.driver, record.version): record for record in records}
    notes: dict[str, int] = {}
    lines = [
        f"## {agent}",
        "",
        "| | " + " | ".join(f"{driver} ({version})" for driver, version in columns) + " |",
        "|---|" + "---|" * len(columns),
    ]
    for capability in sorted(order):
        row = [_cell(cells.get((capability, driver, version)), notes) for driver, version in columns]
        lines.append(f"| {capability} | " + " | ".join(row) + " |")
    if notes:
        lines += ["", *(f"{number}. {note}" for note, number in notes.items())]
    return lines


def _cell(record: Record | None, notes: dict[str, int]) -> str:
    if record is None:
        return ""
    word = WORDS[record.outcome]
    if not record.note:
        return word
    number = notes.setdefault(record.note, len(notes) + 1)
    return f"{word} ({number})"


def main() -> int:
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else RECORDS)
    target = Path(sys.argv[2] if len(sys.argv) > 2 else PAGE)
    records = read(folder)
    if not records:
        print(f"no records in {folder}: run `pytest tests/live/contract` first", file=sys.stderr)
        return 1
    before = target.read_text("utf-8") if target.exists() else ""
    target.write_text(page(records, before), encoding="utf-8")
    failed = [record for record in records if record.outcome == "failed"]
    for record in failed:
        print(f"failed: {record.agent} ({record.driver}, {record.version}): {record.capability}", file=sys.stderr)
    print(f"{target}: {len(records)} cells")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
