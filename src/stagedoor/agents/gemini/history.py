"""The sessions Gemini CLI has stored on disk.

A session file must be replayed from its beginning to be understood (see ``records``), so it is read whole; only what a
listing needs is decoded.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from datetime import datetime
from pathlib import Path

import msgspec

from .records import MessageRecord, Metadata, SessionFileReplay
from .store import chats_folders, user_folder

LONGEST_TITLE = 200


class GeminiStoredSession(msgspec.Struct, frozen=True, kw_only=True):
    """``tokens`` is the sum of what all answers used. The CLI stores neither the branch nor a cost."""

    session_id: str
    cwd: str
    title: str = ""
    first_prompt: str = ""
    message_count: int = 0
    model: str | None = None
    git_branch: str | None = None
    started_ms: int = 0
    updated_ms: int = 0
    tokens: int = 0
    cost_usd: float | None = None
    path: str = ""


class GeminiHistory(msgspec.Struct, frozen=True):
    """Newest first. ``skipped`` are files that could not be read, with the reason."""

    sessions: list[GeminiStoredSession] = []
    skipped: list[tuple[str, str]] = []


def list_sessions(cwd: str | Path | None, *, env: Mapping[str, str] | None = None) -> GeminiHistory:
    """The sessions of ``cwd`` (of all folders for ``None``), as the CLI lists them: no sub-agents, no empty files."""
    folder = user_folder(os.environ if env is None else env)
    place = None if cwd is None else str(Path(cwd).absolute())
    sessions: dict[str, GeminiStoredSession] = {}
    skipped: list[tuple[str, str]] = []
    for path, directory in _files(folder, place):
        try:
            session = read_session(path, place or directory)
        except (OSError, ValueError) as error:
            skipped.append((str(path), str(error) or type(error).__name__))
            continue
        before = sessions.get(session.session_id) if session else None
        if session and (before is None or session.updated_ms > before.updated_ms):
            sessions[session.session_id] = session
    return GeminiHistory(sorted(sessions.values(), key=lambda session: -session.updated_ms), skipped)


def _files(folder: Path, cwd: str | None) -> Iterator[tuple[Path, str]]:
    for chats, directory in chats_folders(folder, cwd).items():
        for path in sorted(chats.iterdir()):
            if path.name.startswith("session-") and path.suffix in (".json", ".jsonl"):
                yield path, directory


def read_session(path: Path, cwd: str) -> GeminiStoredSession | None:
    """One file; ``None`` for a sub-agent's and for an empty one. Raises ``ValueError`` for what is not a session."""
    content = path.read_bytes()
    replay = SessionFileReplay()
    # Before 0.40 a session was one JSON object, spread over many lines.
    replay.feed(content.split(b"\n") if path.suffix == ".jsonl" else [content])
    metadata = replay.metadata
    if not metadata.session_id:
        raise ValueError("no session header: the file is damaged or not a session")
    messages = replay.messages
    if metadata.kind == "subagent" or not any(message.is_resumable for message in messages):
        return None
    return _summary(path, cwd, metadata, messages)


def _summary(path: Path, cwd: str, metadata: Metadata, messages: list[MessageRecord]) -> GeminiStoredSession:
    prompt = next((message.text.strip() for message in messages if message.is_prompt), "")
    models = [message.model for message in messages if message.model]
    updated = _ms(metadata.last_updated) or path.stat().st_mtime_ns // 10**6
    return GeminiStoredSession(
        session_id=metadata.session_id,
        cwd=cwd,
        title=(metadata.summary or " ".join(prompt.split()))[:LONGEST_TITLE],
        first_prompt=prompt,
        message_count=len(messages),
        model=models[-1] if models else None,
        started_ms=_ms(metadata.start_time) or updated,
        updated_ms=updated,
        tokens=sum(message.tokens.total for message in messages if message.tokens),
        path=str(path),
    )


def _ms(timestamp: str) -> int:
    try:
        return round(datetime.fromisoformat(timestamp).timestamp() * 1000)
    except ValueError:
        return 0
