"""A small ``.gemini`` like the CLI leaves it."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

CONTEXT = {"id": "c", "type": "user", "content": [{"text": "<session_context>\nThis is the Gemini CLI."}]}


@pytest.fixture
def repo(tmp_path: Path) -> Path:
    folder = tmp_path / "repo"
    folder.mkdir()
    return folder


@pytest.fixture
def home(tmp_path: Path) -> Path:
    folder = tmp_path / "home"
    (folder / ".gemini").mkdir(parents=True)
    return folder


@pytest.fixture
def store(repo: Path, home: Path) -> Callable[..., Path]:
    """``store(name, *records)`` writes a session file of ``repo`` and returns its path."""
    slug = home / ".gemini" / "tmp" / "repo"
    (slug / "chats").mkdir(parents=True)
    (slug / ".project_root").write_text(str(repo))

    def write(name: str, *records: object) -> Path:
        path = slug / "chats" / name
        path.write_bytes(b"".join(_line(record) for record in records))
        return path

    return write


def _line(record: object) -> bytes:
    return (record if isinstance(record, bytes) else json.dumps(record).encode()) + b"\n"


@pytest.fixture
def stub() -> Callable[..., list[dict[str, object]]]:
    """What a resume leaves behind: a header and the CLI's own context."""

    def records(session_id: str, minute: str) -> list[dict[str, object]]:
        return [header(session_id, minute), {"$set": {"messages": [CONTEXT]}}]

    return records


@pytest.fixture
def conversation() -> Callable[..., list[dict[str, object]]]:
    def records(session_id: str, minute: str, prompt: str = "Fix the bug") -> list[dict[str, object]]:
        return [
            header(session_id, minute),
            {"$set": {"messages": [CONTEXT], "lastUpdated": f"2026-11-15T{minute}:01.000Z"}},
            {"id": "u", "type": "user", "content": [{"text": prompt}]},
            {"id": "g", "type": "gemini", "content": "", "model": "gemini-3.8-flash", "tokens": {"total": 105}},
            {"id": "g", "type": "gemini", "content": "Done.", "model": "gemini-3.8-flash", "tokens": {"total": 110}},
            {"$set": {"lastUpdated": f"2026-11-15T{minute}:02.500Z"}},
        ]

    return records


def header(session_id: str, minute: str) -> dict[str, object]:
    time = f"2026-11-15T{minute}:00.000Z"
    return {"sessionId": session_id, "projectHash": "h", "startTime": time, "lastUpdated": time, "kind": "main"}
