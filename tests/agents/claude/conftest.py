from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[2] / "transcripts" / "claude-2.1.197"
SESSION_FILES = ("210-", "211-", "212-")

Lines = Callable[[str], list[bytes]]


def printed(path: Path) -> list[bytes]:
    """What the program printed: the recording itself, or the outgoing half of a two-way one."""
    lines: list[bytes] = []
    for line in path.read_bytes().splitlines():
        two_way = line.startswith(b'{"dir"')
        if not two_way:
            lines.append(line)
        elif (entry := json.loads(line))["dir"] == "out":
            lines.append(entry["line"].encode())
    return lines


@pytest.fixture
def lines() -> Lines:
    """What Claude Code printed in the recording whose name starts so."""

    def read(prefix: str) -> list[bytes]:
        (path,) = FOLDER.glob(f"{prefix}*.jsonl")
        return printed(path)

    return read


@pytest.fixture
def transcripts() -> list[tuple[str, list[bytes]]]:
    """Every recording of a conversation."""
    paths = sorted(p for p in FOLDER.glob("*.jsonl") if not p.name.startswith(SESSION_FILES))
    return [(path.name, printed(path)) for path in paths]


@pytest.fixture
def session_files() -> list[Path]:
    """Recorded session files, as they lie on disk."""
    return sorted(p for p in FOLDER.glob("*.jsonl") if p.name.startswith(SESSION_FILES))
