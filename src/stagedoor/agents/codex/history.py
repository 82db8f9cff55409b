"""The sessions Codex has stored, by working directory. Decodes the head and the tail of each file, not the whole of it.

A file is ``sessions/YYYY/MM/DD/rollout-<time>-<thread id>.jsonl``: first a line of 20 kB and more with the whole system
prompt, then what happened. Sub-agents and reviewers have files of their own; they are no sessions of the user's.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

import msgspec

from ...wire.shapes import decode_or_reason
from .events import CodexUsage
from .locate import codex_home

HEAD, TAIL, STEP = 96 * 2**10, 64 * 2**10, 2**16
HEAD_BOUND = 6 * 2**20
NEAR = 512
"""Bytes from the beginning of a line in which its kind is said, ids before it included."""
TITLE_LENGTH = 100
MOST_REMEMBERED = 5000
_REMEMBERED: dict[tuple[int, int, int, int], CodexStoredSession] = {}
"""What was read of each version of a file (its place, size and time), for the whole of it must be read to count."""

# Inside a JSON string every quote is escaped, so these bytes occur nowhere but in the structure itself.
_TYPE = b'"type":"'
_SETTINGS = b'"type":"turn_context"'
_MESSAGES = {
    b'"type":"event_msg","payload":{"type":"user_message"': "prompt",
    b'"type":"event_msg","payload":{"type":"agent_message"': "answer",
    b'"type":"event_msg","payload":{"type":"item_completed"': "item",
    b'"type":"response_item","payload":{"type":"message"': "raw",
}
_RAW = next(one for one, kind in _MESSAGES.items() if kind == "raw")
_ROLES = {b',"role":"user"': "raw prompt", b',"role":"assistant"': "raw answer"}
_ITEMS = {b'"item":{"type":"UserMessage"': "prompt", b'"item":{"type":"AgentMessage"': "answer"}
_CONTEXT = re.compile(r"\s*(?:<[a-z_]+>|# AGENTS\.md)")
"""What Codex itself puts before the first prompt, in the raw items of the model."""


class CodexStoredSession(msgspec.Struct, frozen=True, kw_only=True):
    """``tokens`` is the total of the whole thread; Codex stores no cost."""

    session_id: str
    cwd: str
    title: str
    first_prompt: str
    message_count: int
    model: str | None
    git_branch: str | None
    started_ms: int
    updated_ms: int
    tokens: CodexUsage | None
    path: str
    source: str = ""
    cli_version: str = ""
    repository_url: str | None = None
    cost_usd: float | None = None


class CodexHistory(msgspec.Struct, frozen=True):
    """``sessions``, the newest first, and the files that could not be read, each with the reason."""

    sessions: list[CodexStoredSession]
    skipped: list[tuple[str, str]]


class _RolloutLine(msgspec.Struct, frozen=True):
    type: str = ""
    timestamp: str = ""
    payload: msgspec.Raw = msgspec.Raw(b"{}")


class _RolloutGit(msgspec.Struct, frozen=True):
    branch: str | None = None
    repository_url: str | None = None


class _SessionMeta(msgspec.Struct, frozen=True):
    id: str
    cwd: str = ""
    timestamp: str = ""
    source: Any = None
    cli_version: str = ""
    git: _RolloutGit | None = None


class _RolloutText(msgspec.Struct, frozen=True):
    text: str = ""


class _StoredItem(msgspec.Struct, frozen=True):
    type: str = ""
    content: list[_RolloutText] = []


class _TokenInfo(msgspec.Struct, frozen=True):
    total_token_usage: CodexUsage | None = None


class _Payload(msgspec.Struct, frozen=True):
    """What we want of the payloads of all the other kinds of line."""

    type: str = ""
    model: str | None = None
    message: str | None = None
    role: str = ""
    content: list[_RolloutText] = []
    item: _StoredItem | None = None
    info: _TokenInfo | None = None
    thread_token_usage: CodexUsage | None = None


class _ThreadName(msgspec.Struct, frozen=True):
    id: str = ""
    thread_name: str | None = None


class _FirstLine(msgspec.Struct, frozen=True):
    payload: _SessionMeta
    type: str = ""


_LINE = msgspec.json.Decoder(_RolloutLine)
_FIRST_LINE = msgspec.json.Decoder(_FirstLine)
_META = msgspec.json.Decoder(_SessionMeta)
_PAYLOAD = msgspec.json.Decoder(_Payload)
_THREAD_NAME = msgspec.json.Decoder(_ThreadName)


def list_sessions(
    cwd: str | None = None,
    *,
    home: Path | str | None = None,
    env: Mapping[str, str] | None = None,
    archived: bool = False,
) -> CodexHistory:
    """The sessions that ran in ``cwd`` (everywhere without it). ``home`` is Codex's own, ``~/.codex`` by default."""
    codex = Path(home) if home is not None else codex_home(os.environ if env is None else env)
    folder = None if cwd is None else os.path.realpath(cwd)
    named = names(codex)
    sessions: list[CodexStoredSession] = []
    skipped: list[tuple[str, str]] = []
    for path in _rollouts(codex / ("archived_sessions" if archived else "sessions")):
        try:
            session = _read(path, folder, named)
        except (OSError, ValueError) as error:
            skipped.append((str(path), str(error) or type(error).__name__))
        else:
            sessions += [session] if session else []
    sessions.sort(key=lambda session: session.updated_ms, reverse=True)
    return CodexHistory(sessions, skipped)


def names(home: Path) -> dict[str, str]:
    """The names users gave to threads, by thread id."""
    try:
        lines = (home / "session_index.jsonl").read_bytes().splitlines()
    except OSError:
        return {}
    entries = [entry for line in lines if not isinstance(entry := decode_or_reason(_THREAD_NAME, line), str)]
    return {entry.id: entry.thread_name for entry in entries if entry.thread_name}


def total_usage(thread_id: str, *, home: Path) -> CodexUsage | None:
    """What the thread has used so far; ``None`` when there is no recording of it."""
    for path in _rollouts(home / "sessions"):
        if path.name.endswith(f"-{thread_id}.jsonl"):
            try:
                with path.open("rb") as file:
                    size = path.stat().st_size
                    return _last_total(file.fileno(), size) or CodexUsage()
            except OSError:
                return None
    return None


def _rollouts(folder: Path) -> list[Path]:
    """The newest first. Compressed ones are among them: they cannot be read, and that is reported."""
    paths = (
        f"{place}{os.sep}{name}"
        for place, _, files in os.walk(folder)
        for name in files
        if name.startswith("rollout-") and (name.endswith(".jsonl") or ".jsonl." in name)
    )
    return [Path(path) for path in sorted(paths, reverse=True)]


def _read(path: Path, folder: str | None, named: Mapping[str, str]) -> CodexStoredSession | None:
    if path.suffix != ".jsonl":
        raise ValueError(f"the recording is compressed ({path.suffix}): resume it in Codex to unpack it")
    status = path.stat()
    version = (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns)
    session = _REMEMBERED.get(version)
    if session is None:
        session = _read_file(path, folder, status)
        if session is None:
            return None
        if len(_REMEMBERED) >= MOST_REMEMBERED:
            _REMEMBERED.clear()
        _REMEMBERED[version] = session
    if folder is not None and os.path.realpath(session.cwd) != folder:
        return None
    return msgspec.structs.replace(session, path=str(path), title=named.get(session.session_id) or session.title)


def _read_file(path: Path, folder: str | None, status: os.stat_result) -> CodexStoredSession | None:
    """``None`` for a sub-agent's, and for one of another folder."""
    with path.open("rb") as file:
        fd = file.fileno()
        beginning = _first_lines(fd)
        first = next(beginning, b"")
        meta = _meta(first)
        if isinstance(meta.source, dict) or (folder is not None and os.path.realpath(meta.cwd) != folder):
            return None
        count, settings = _stored_messages(fd, spaced=first.find(b'"type": "session_meta"', 0, NEAR) >= 0)
        prompt, model = _opening(beginning, displayed=count["prompt"] > 0)
        times = (_milliseconds(_line(line).timestamp) for line in _last_lines(fd, status.st_size, TAIL))
        git = meta.git or _RolloutGit()
        return CodexStoredSession(
            session_id=meta.id,
            cwd=meta.cwd,
            title=_shortened(prompt),
            first_prompt=prompt,
            message_count=_message_count(count),
            model=_payload(settings).model or model,
            git_branch=git.branch,
            started_ms=_milliseconds(meta.timestamp) or int(status.st_mtime * 1000),
            updated_ms=next(filter(None, times), 0) or int(status.st_mtime * 1000),
            tokens=_last_total(fd, status.st_size),
            path=str(path),
            source=meta.source if isinstance(meta.source, str) else "",
            cli_version=meta.cli_version,
            repository_url=git.repository_url,
        )


def _meta(line: bytes) -> _SessionMeta:
    whole = decode_or_reason(_FIRST_LINE, line)
    if not isinstance(whole, str) and whole.type == "session_meta":
        return whole.payload
    first = _line(line)
    if first.type != "session_meta":
        raise ValueError("the file does not begin with a session_meta line")
    meta = decode_or_reason(_META, first.payload)
    if isinstance(meta, str):
        raise ValueError(f"session_meta: {meta}")
    return meta


def _opening(lines: Iterable[bytes], *, displayed: bool) -> tuple[str, str | None]:
    """The first prompt and the model it went to. Without ``displayed`` it is stored for the model only."""
    prompt, raw, model = "", "", None
    passed = 0
    for line in lines:
        passed += len(line)
        payload = _payload(line)
        model = model or payload.model
        if payload.type == "item_completed" and payload.item is not None and payload.item.type == "UserMessage":
            prompt = prompt or "\n".join(part.text for part in payload.item.content if part.text)
        elif payload.type == "user_message":
            prompt = prompt or payload.message or ""
        elif payload.type == "message" and payload.role == "user" and not raw:
            words = "\n".join(part.text for part in payload.content if part.text)
            raw = "" if _CONTEXT.match(words) else words
        if (prompt or (raw and not displayed)) and (model or passed > HEAD):
            break
    return prompt or raw, model


def _first_lines(fd: int) -> Iterator[bytes]:
    """Those of the beginning, as long as somebody wants more of them."""
    offset = 0
    for text in _whole_lines(fd):
        at = 0
        while (end := text.find(b"\n", at)) >= 0:
            if line := text[at:end].strip():
                yield line
            at = end + 1
        offset += at
        if offset >= HEAD_BOUND:
            return


def _last_lines(fd: int, size: int, length: int) -> Iterator[bytes]:
    """Those that begin in the last ``length`` bytes, the last one first."""
    start = max(0, size - length)
    text = os.pread(fd, length, start)
    end = len(text)
    while (before := text.rfind(b"\n", 0, end)) >= 0:
        if line := text[before + 1 : end].strip():
            yield line
        end = before
    if not start and (line := text[:end].strip()):
        yield line


def _last_total(fd: int, size: int) -> CodexUsage | None:
    length = TAIL
    while True:
        for line in _last_lines(fd, size, length):
            if b"token_usage" in line:
                payload = _payload(line)
                total = payload.thread_token_usage or (payload.info.total_token_usage if payload.info else None)
                if total is not None:
                    return total
        if length >= size:
            return None
        length *= 16


def _message_count(count: Mapping[str, int]) -> int:
    """How many messages the whole file holds. Some are stored for the model only."""
    # One more is what Codex itself says of the surroundings.
    prompts = count["prompt"] or max(0, count["raw prompt"] - 1)
    return prompts + max(count["answer"], count["raw answer"])


def _stored_messages(fd: int, *, spaced: bool) -> tuple[Counter[str], bytes]:
    """How many there are of each kind, and the last line with the settings of a turn.

    Decodes no line: its first bytes tell its kind, and most lines begin as one before them did.
    """
    form: Callable[[bytes], bytes] = _spaced if spaced else bytes
    mark, settings = form(_TYPE), form(_SETTINGS)
    messages, roles, items = ({form(one): kind for one, kind in each.items()} for each in (_MESSAGES, _ROLES, _ITEMS))
    width, raw, role = max(map(len, messages)), len(form(_RAW)), min(map(len, roles))
    roles = {one[:role]: kind for one, kind in roles.items()}
    kinds: dict[bytes, str] = {}
    count: Counter[str] = Counter()
    last = b""
    lead = 0
    for text in _whole_lines(fd):
        at = 0
        while (end := text.find(b"\n", at)) >= 0:
            start = at + lead
            kind = kinds.get(text[start : start + width])
            if kind is None:
                if not text.startswith(mark, start):
                    # It stands where it stood in the line before: times are of one length.
                    lead = max(text.find(mark, at, end) - at, 0)
                    start = at + lead
                kind = next((kind for one, kind in messages.items() if text.startswith(one, start)), "")
                if text.startswith(settings, start):
                    last = text[at:end]
                elif text.startswith(mark, start):
                    kinds[text[start : start + width]] = kind
            if kind:
                if kind == "raw":
                    kind = roles.get(text[start + raw : start + raw + role], kind)
                elif kind == "item":
                    kind = next((kind for one, kind in items.items() if text.find(one, at, end) >= 0), kind)
                count[kind] += 1
            at = end + 1
    return count, last


def _whole_lines(fd: int) -> Iterator[bytes]:
    """The whole file, some lines at a time, each with its end."""
    offset, size = 0, STEP
    while text := os.pread(fd, size, offset):
        whole = text.rfind(b"\n") + 1
        if whole:
            yield text
            offset, size = offset + whole, STEP
        elif len(text) < size:  # the last line, which has no end
            yield text + b"\n"
            return
        else:
            size *= 8  # a line that is longer


def _spaced(mark: bytes) -> bytes:
    return mark.replace(b":", b": ").replace(b",", b", ")


def _line(raw: bytes) -> _RolloutLine:
    line = decode_or_reason(_LINE, raw)
    return _RolloutLine() if isinstance(line, str) else line


def _payload(raw: bytes) -> _Payload:
    payload = decode_or_reason(_PAYLOAD, _line(raw).payload)
    return _Payload() if isinstance(payload, str) else payload


def _milliseconds(timestamp: str) -> int:
    try:
        return int(datetime.fromisoformat(timestamp).timestamp() * 1000)
    except ValueError:
        return 0


def _shortened(prompt: str) -> str:
    first = next((line.strip() for line in prompt.splitlines() if line.strip()), "")
    return first if len(first) <= TITLE_LENGTH else first[: TITLE_LENGTH - 1] + "…"
