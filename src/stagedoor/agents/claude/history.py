"""The sessions Claude Code has stored on disk. Reads the head and the tail of each file, never the whole of a big one.

The values of interest are cut out of the bytes: decoding every line would cost more than everything else together.
"""

from __future__ import annotations

import json
import os
import re
import unicodedata
from collections.abc import Mapping
from datetime import datetime
from typing import Any

import msgspec

READ = 65536
LONGEST_NAME = 200
TITLE_LENGTH = 200

_UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}", re.IGNORECASE)
_NO_PROMPT = re.compile(
    r"<local-command-stdout>|<session-start-hook>|<tick>|<goal>|\[Request interrupted by user[^\]]*\]"
    r"|\s*<ide_opened_file>[\s\S]*</ide_opened_file>\s*$|\s*<ide_selection>[\s\S]*</ide_selection>\s*$"
)
_SPACED = re.compile(rb'(?<!\\)"(?:\s+:|:\s)')
_COMMAND = re.compile(r"<command-name>(.*?)</command-name>")


class ClaudeStoredSession(msgspec.Struct, frozen=True, kw_only=True):
    """A stored session. ``title``: its name, else its last prompt, else its first one.

    ``message_count`` and ``tokens`` are known only when the file was short enough to be read whole; :func:`totals`
    reads a long one to the end. Claude Code stores no cost.
    """

    session_id: str
    path: str
    title: str
    updated_ms: int
    size: int
    cwd: str | None = None
    custom_title: str | None = None
    first_prompt: str | None = None
    git_branch: str | None = None
    tag: str | None = None
    model: str | None = None
    started_ms: int | None = None
    message_count: int | None = None
    tokens: int | None = None
    cost_usd: float | None = None


class ClaudeHistory(msgspec.Struct, frozen=True):
    """Sessions, newest first, and the files that could not be used, each with the reason."""

    sessions: list[ClaudeStoredSession]
    skipped: list[tuple[str, str]]


class Totals(msgspec.Struct, frozen=True):
    """Counted over a whole file: prompts and answers, and the tokens of the answers."""

    message_count: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cache_read_input_tokens: int = 0
    cache_creation_input_tokens: int = 0

    @property
    def tokens(self) -> int:
        return self.input_tokens + self.output_tokens + self.cache_read_input_tokens + self.cache_creation_input_tokens


def list_sessions(
    cwd: str | os.PathLike[str] | None, *, home: str | None = None, env: Mapping[str, str] | None = None
) -> ClaudeHistory:
    """The sessions of one working directory, or of all when ``cwd`` is ``None``.

    ``home`` is Claude Code's own folder; without it ``CLAUDE_CONFIG_DIR`` and ``HOME`` of ``env`` say where it is.
    """
    projects = os.path.join(home or config_folder(os.environ if env is None else env), "projects")  # noqa: PTH118
    sessions: list[ClaudeStoredSession] = []
    skipped: list[tuple[str, str]] = []
    project = None if cwd is None else unicodedata.normalize("NFC", os.path.realpath(cwd))
    for folder in _folders(projects) if project is None else _folders_of(projects, project):
        _read_folder(folder, project, sessions, skipped)
    sessions.sort(key=lambda session: session.updated_ms, reverse=True)
    return ClaudeHistory(sessions, skipped)


def config_folder(env: Mapping[str, str]) -> str:
    """Where Claude Code keeps its files."""
    named = env.get("CLAUDE_CONFIG_DIR")
    home = env.get("HOME") or os.path.expanduser("~")  # noqa: PTH111
    return unicodedata.normalize("NFC", named or os.path.join(home, ".claude"))  # noqa: PTH118


def folder_name(path: str) -> str:
    """How Claude Code names the folder of a working directory. Lossy: never decode it."""
    encoded = path.encode("utf-16-le", "surrogatepass")
    units = [int.from_bytes(encoded[at : at + 2], "little") for at in range(0, len(encoded), 2)]
    name = "".join(chr(unit) if unit < 128 and chr(unit).isalnum() else "-" for unit in units)
    if len(name) <= LONGEST_NAME:
        return name
    number = 0
    for unit in units:
        number = (number * 31 + unit) & 0xFFFFFFFF
    number = abs(number - (1 << 32) if number >= 1 << 31 else number)
    digits = ""
    while number:
        number, rest = divmod(number, 36)
        digits = "0123456789abcdefghijklmnopqrstuvwxyz"[rest] + digits
    return f"{name[:LONGEST_NAME]}-{digits or '0'}"


def _folders(projects: str) -> list[str]:
    try:
        with os.scandir(projects) as entries:
            return [entry.path for entry in entries if entry.is_dir()]
    except OSError:
        return []


def _folders_of(projects: str, cwd: str) -> list[str]:
    name = folder_name(cwd)
    exact = os.path.join(projects, name)  # noqa: PTH118
    if len(name) <= LONGEST_NAME or os.path.isdir(exact):  # noqa: PTH112
        return [exact]
    # Builds of Claude Code differ in how they hash a long path; the beginning is the same.
    start = name[: LONGEST_NAME + 1]
    return [folder for folder in _folders(projects) if os.path.basename(folder).startswith(start)][:1]  # noqa: PTH119


def _read_folder(
    folder: str, project: str | None, sessions: list[ClaudeStoredSession], skipped: list[tuple[str, str]]
) -> None:
    try:
        with os.scandir(folder) as entries:
            names = [entry.name for entry in entries]
    except OSError:
        return
    for name in names:
        if not name.endswith(".jsonl") or not _UUID.fullmatch(name, 0, len(name) - 6):
            continue
        path = f"{folder}/{name}"
        try:
            session = _read_session(path, name[:-6], project)
        except (OSError, ValueError, TypeError, AttributeError, KeyError, RecursionError) as error:
            session = f"{type(error).__name__}: {error}"
        if isinstance(session, str):
            skipped.append((path, session))
        elif session is not None:
            sessions.append(session)


def _read_session(path: str, session_id: str, project: str | None) -> ClaudeStoredSession | str | None:
    """The session; why the file is of no use; or ``None`` for a sub-agent's own file, which is no session."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        stat = os.fstat(fd)
        head = os.pread(fd, READ, 0)
        tail = head if stat.st_size <= READ else os.pread(fd, READ, stat.st_size - READ)
    finally:
        os.close(fd)
    if not head:
        return "the file is empty"
    whole = tail is head
    head = _compact(head)
    tail = head if whole else _compact(tail)
    end = head.find(b"\n")
    first_line = head if end < 0 else head[:end]
    if b'"isSidechain":true' in first_line or b'"isSidechain": true' in first_line:
        return None
    custom_title = _title(tail) or (None if tail is head else _title(head))
    first_prompt = _first_prompt(head) or None
    title = custom_title or _last(tail, b"lastPrompt") or _last(tail, b"summary") or first_prompt
    if not title:
        return "it holds no prompt"
    counted = _count(head) if tail is head else None
    return ClaudeStoredSession(
        session_id=session_id,
        path=path,
        title=title,
        updated_ms=int(stat.st_mtime * 1000),
        size=stat.st_size,
        cwd=_first(head, b"cwd") or project,
        custom_title=custom_title,
        first_prompt=first_prompt,
        git_branch=_last(tail, b"gitBranch") or _first(head, b"gitBranch"),
        tag=_tag(tail),
        model=_model(tail),
        started_ms=_milliseconds(_first(head, b"timestamp")),
        message_count=counted.message_count if counted else None,
        tokens=counted.tokens if counted else None,
    )


# ---------------------------------------------------------------------------- values cut out of the bytes


def _compact(text: bytes) -> bytes:
    """The same lines without spaces between their members: other programs write them, Claude Code does not."""
    if not (b'":' in text and _SPACED.search(text)):
        return text
    return b"\n".join(_compact_line(line) if _SPACED.search(line) else line for line in text.split(b"\n"))


def _compact_line(line: bytes) -> bytes:
    try:
        return msgspec.json.encode(msgspec.json.decode(line.removeprefix(b"\xef\xbb\xbf")))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return line  # the beginning or the end of a longer one


def _title(text: bytes) -> str | None:
    """The name the user gave, else the one the model made up. Most files have neither, which one search shows."""
    if text.rfind(b'Title":') < 0:  # three times as fast as find on such text
        return None
    return _last(text, b"customTitle") or _last(text, b"aiTitle")


def _tag(tail: bytes) -> str | None:
    at = len(tail)
    while (at := tail.rfind(b'{"type":"tag"', 0, at)) >= 0:
        if at == 0 or tail[at - 1] == 0x0A:
            end = tail.find(b"\n", at)
            return _last(tail[at : None if end < 0 else end], b"tag")
    return None


def _model(tail: bytes) -> str | None:
    at = len(tail)
    while (at := tail.rfind(b'"model":"', 0, at)) >= 0:
        value = _value(tail, at + 9)
        if value and value != "<synthetic>":
            return value
    return None


def _first(text: bytes, key: bytes) -> str | None:
    for opening in (b'"%b":"' % key, b'"%b": "' % key):
        at = text.find(opening)
        if at >= 0:
            value = _value(text, at + len(opening))
            if value is not None:
                return value or None
    return None


def _last(text: bytes, key: bytes) -> str | None:
    """Claude Code writes no space behind the colon; only a file without such a line is searched a second time."""
    for opening in (b'"%b":"' % key, b'"%b": "' % key):
        at = len(text)
        while (at := text.rfind(opening, 0, at)) >= 0:
            value = _value(text, at + len(opening))
            if value is not None:
                return value or None
    return None


def _value(text: bytes, start: int) -> str | None:
    """The JSON string that begins at ``start``; ``None`` when the text ends inside it."""
    end = text.find(b'"', start)
    while end > start and text[end - 1] == 0x5C:
        backslashes = 1
        while text[end - 1 - backslashes] == 0x5C and end - 1 - backslashes >= start:
            backslashes += 1
        if backslashes % 2 == 0:
            break
        end = text.find(b'"', end + 1)
    if end < 0:
        return None
    raw = text[start:end].decode("utf-8", "replace")
    if "\\" not in raw:
        return raw
    try:
        return str(json.loads(f'"{raw}"'))
    except ValueError:
        return raw


def _milliseconds(timestamp: str | None) -> int | None:
    try:
        return int(datetime.fromisoformat(timestamp).timestamp() * 1000) if timestamp else None
    except ValueError:
        return None


# ---------------------------------------------------------------------------- the first prompt, and the count


def _first_prompt(head: bytes) -> str:
    start, command = 0, ""
    while start < len(head):
        end = head.find(b"\n", start)
        line, start = (head[start:], len(head)) if end < 0 else (head[start:end], end + 1)
        if not _may_be_prompt(line):
            continue
        for text in _texts(_decoded(line)):
            prompt = text.replace("\n", " ").strip()
            if not prompt:
                continue
            if named := _COMMAND.search(prompt):
                command = command or named[1]
            elif not _NO_PROMPT.match(prompt):
                return prompt if len(prompt) <= TITLE_LENGTH else prompt[:TITLE_LENGTH].rstrip() + "…"
    return command


def _may_be_prompt(line: bytes) -> bool:
    return (
        (b'"type":"user"' in line or b'"type": "user"' in line)
        and b'"tool_result"' not in line
        and b'"isMeta":true' not in line
        and b'"isMeta": true' not in line
        and b'"isCompactSummary":true' not in line
        and b'"isCompactSummary": true' not in line
    )


def _decoded(line: bytes) -> dict[str, Any]:
    """The line, or nothing when it is broken: the head may end in the middle of one."""
    try:
        value = msgspec.json.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        try:
            value = json.loads(line.decode("utf-8-sig", "replace"))
        except (ValueError, RecursionError):
            return {}
    return value if isinstance(value, dict) else {}  # pyright: ignore[reportUnknownVariableType]


def _texts(entry: dict[str, Any]) -> list[str]:
    message = entry.get("message")
    if entry.get("type") != "user" or not isinstance(message, dict):
        return []
    content: Any = message.get("content")  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
    if isinstance(content, str):
        return [content]
    blocks: list[Any] = content if isinstance(content, list) else []  # pyright: ignore[reportUnknownVariableType]
    return [
        block["text"]
        for block in blocks
        if isinstance(block, dict) and block.get("type") == "text" and isinstance(block.get("text"), str)  # pyright: ignore[reportUnknownMemberType]
    ]


def totals(path: str | os.PathLike[str]) -> Totals:
    """Count one session, reading its file to the end."""
    with open(path, "rb") as file:  # noqa: PTH123
        return _count(_compact(file.read()))


def _count(text: bytes) -> Totals:
    prompts = 0
    answers: dict[str, dict[str, Any]] = {}
    for line in text.split(b"\n"):
        if _may_be_prompt(line):
            prompts += 1 if any(prompt.strip() for prompt in _texts(_decoded(line))) else 0
        elif b'"type":"assistant"' in line:
            message: Any = _decoded(line).get("message")
            if isinstance(message, dict) and isinstance(message.get("id"), str):  # pyright: ignore[reportUnknownMemberType]
                # One line per content block, each with the usage of the whole message.
                usage: Any = message.get("usage")  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
                answers[message["id"]] = usage if isinstance(usage, dict) else {}

    def total(name: str) -> int:
        return sum(value for usage in answers.values() if isinstance(value := usage.get(name), int))

    return Totals(
        prompts + len(answers),
        total("input_tokens"),
        total("output_tokens"),
        total("cache_read_input_tokens"),
        total("cache_creation_input_tokens"),
    )
