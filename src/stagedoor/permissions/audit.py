"""A log of every decision in which a changed, missing, moved or cut-off line is found.

Each line holds the hash of the one before it and of itself; a second file beside the log holds the count and the last
hash, so that a cut tail is found as well. Whoever can rewrite both files can forge both: keep a copy of the head
(:meth:`AuditLog.append` returns it) elsewhere where that matters.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import hashlib
import os
import re
import threading
import weakref
from collections.abc import Generator, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, Literal

import msgspec

from stagedoor.unified.events import Operation, PermissionRequest, PermissionResolved, Remember, Risk, ToolName, ToolUse

START = "0" * 64
FILE_NAME = "audit.jsonl"
"""In Stagedoor's home: what the server, the command line and its readers mean."""
By = Literal["rule", "callback", "person", "timeout", "interrupt", "tier"]
"""``tier``: nobody was asked, as the session's tier and modes let the agent do."""
_BY: dict[str, By] = {
    "policy": "rule",
    "callback": "callback",
    "client": "person",
    "timeout": "timeout",
    "interrupt": "interrupt",
}


class AuditEntry(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """One decision: who decided about what, and why."""

    session: str
    request: str
    decision: Literal["allow", "deny"]
    by: By
    agent: str = ""
    tool: ToolName = "other"
    native_name: str = ""
    operation: Operation = "other"
    target: str = ""
    risk: Risk = "medium"
    rule: str = ""
    message: str = ""
    remember: Remember = "once"
    who: str = ""
    """The device or person, where a server knows."""


class Head(msgspec.Struct, frozen=True):
    """Where the log stands: how many entries, the hash of the last, the bytes they take."""

    entries: int = 0
    hash: str = START
    size: int = 0


class Verification(msgspec.Struct, frozen=True, kw_only=True):
    """``first_bad_line`` counts from 1; for missing lines it is where they should be."""

    ok: bool
    entries: int
    first_bad_line: int | None = None
    why: str = ""


class AuditRecord(msgspec.Struct, frozen=True, kw_only=True):
    """One line of the log without its own hash."""

    n: int
    at: int
    prev: str
    entry: AuditEntry


def entry_of(
    request: PermissionRequest,
    resolved: PermissionResolved,
    *,
    session: str = "",
    rule: str = "",
    why: str = "",
    who: str = "",
) -> AuditEntry:
    """What the log keeps of a question and its answer."""
    return AuditEntry(
        session=session or request.session_id,
        request=request.request_id,
        decision=resolved.decision,
        by=_BY[resolved.by],
        agent=request.agent,
        tool=request.tool_name,
        native_name=request.native_name,
        operation=request.operation,
        target=request.target,
        risk=request.risk,
        rule=rule,
        message=resolved.message or why,
        remember=resolved.remember,
        who=who,
    )


class _HandedOver(msgspec.Struct, frozen=True):
    entry: AuditEntry
    at: int
    written: Future[Head]


def unasked_entry(call: ToolUse, *, rule: str) -> AuditEntry:
    """What the log keeps of a call that the agent ran without a question."""
    return AuditEntry(
        session=call.session_id,
        request=call.tool_use_id,
        decision="allow",
        by="tier",
        agent=call.agent,
        tool=call.name,
        native_name=call.native_name,
        operation=call.operation,
        target=call.target,
        risk=call.risk,
        rule=rule,
    )


class AuditLog:
    """Append-only; several processes may write to one file. ``audit_log`` gives this process's one for a file.

    What is handed over while the disk is busy is written together, in the order of the calls, by a thread: the loop
    never waits for a lock or a disk.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._head_path = head_path(path)
        self._mutex = threading.Lock()
        self._waiting: list[_HandedOver] = []
        self._thread: ThreadPoolExecutor | None = None
        self._pid = 0

    def append(self, entry: AuditEntry, now_ms: int) -> Head:
        """Write one entry; when this returns, it is on the disk. Raises ``OSError`` when it cannot be."""
        return self.hand_over(entry, now_ms).result()

    async def keep(self, entry: AuditEntry, now_ms: int) -> Head:
        """The same without holding up the loop."""
        return await asyncio.wrap_future(self.hand_over(entry, now_ms))

    def hand_over(self, entry: AuditEntry, now_ms: int) -> Future[Head]:
        """It is written after all that were handed over before, at the latest when this process ends in order."""
        waiting = _HandedOver(entry, now_ms, Future())
        with self._mutex:
            if self._thread is None or self._pid != os.getpid():  # a thread does not survive a fork
                self._thread = ThreadPoolExecutor(1, thread_name_prefix="stagedoor-audit")
                self._pid = os.getpid()
                self._waiting.clear()
            self._waiting.append(waiting)
            self._thread.submit(self._write_waiting)
        return waiting.written

    def _write_waiting(self) -> None:
        with self._mutex:
            batch, self._waiting = self._waiting, []
        if not batch:
            return  # written together with an earlier one
        try:
            heads = self._write(batch)
        except BaseException as fault:
            for waiting in batch:
                _settle(waiting.written, fault)
        else:
            for waiting, head in zip(batch, heads, strict=True):
                _settle(waiting.written, head)

    def _write(self, batch: list[_HandedOver]) -> list[Head]:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with _locked(self.path) as file:
            head = start = self._continue(file)
            heads: list[Head] = []
            lines: list[bytes] = []
            for waiting in batch:
                record = AuditRecord(n=head.entries + 1, at=waiting.at, prev=head.hash, entry=waiting.entry)
                body = msgspec.json.encode(record)
                digest = hashlib.sha256(body).hexdigest()
                lines.append(body[:-1] + b',"hash":"' + digest.encode() + b'"}\n')
                head = Head(head.entries + 1, digest, head.size + len(lines[-1]))
                heads.append(head)
            file.seek(0, os.SEEK_END)
            try:
                file.write(b"".join(lines))
                file.flush()
                os.fsync(file.fileno())
                self._keep(head)
            except BaseException:
                with contextlib.suppress(OSError):
                    file.truncate(start.size)  # nobody may be told of them
                raise
        return heads

    def _continue(self, file: BinaryIO) -> Head:
        """The head to go on from; mended where a crash came between writing a line and writing the head."""
        size = file.seek(0, os.SEEK_END)
        head = _read_head(self._head_path)
        if head is not None and head.size == size:
            return head
        stored_head = head or Head()
        if size < stored_head.size or (head is None and size > 0):
            # Somebody cut the log or took its head. To go on from what is there would hide it: the head's count stays.
            return _recovered(file, stored_head)
        file.seek(stored_head.size)
        last = stored_head
        for line in file:
            body, digest = _split(line)
            if body is None:
                file.truncate(last.size)  # half a line that nobody was told of
                break
            last = Head(last.entries + 1, digest, last.size + len(line))
        return last

    def _keep(self, head: Head) -> None:
        temporary = self._head_path.with_name(self._head_path.name + ".new")
        with temporary.open("wb") as file:
            file.write(msgspec.json.encode(head) + b"\n")
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(self._head_path)


_LOGS: weakref.WeakValueDictionary[Path, AuditLog] = weakref.WeakValueDictionary()
_LOGS_MUTEX = threading.Lock()


def audit_log(path: Path) -> AuditLog:
    """The one of this process for that file, so that its sessions write together."""
    place = path.absolute()
    with _LOGS_MUTEX:
        log = _LOGS.get(place)
        if log is None:
            log = _LOGS[place] = AuditLog(place)
        return log


def _settle(future: Future[Head], outcome: Head | BaseException) -> None:
    if not future.set_running_or_notify_cancel():
        return  # whoever waited has gone; the entry is written all the same
    if isinstance(outcome, BaseException):
        future.set_exception(outcome)
    else:
        future.set_result(outcome)


def head_path(path: Path) -> Path:
    return path.with_name(path.name + ".head")


def read_log(path: Path) -> Iterator[AuditRecord]:
    """The entries that can be read, in order; not verified."""
    with path.open("rb") as file:
        for line in file:
            record = record_of(line)
            if record is not None:
                yield record


def record_of(line: bytes) -> AuditRecord | None:
    """One line of the log; not verified."""
    body, _ = _split(line)
    try:
        return None if body is None else msgspec.json.decode(body, type=AuditRecord)
    except msgspec.MsgspecError:
        return None


def verify(path: Path, *, head: Head | None = None) -> Verification:
    """Read the whole log and say where it stops being true. ``head`` is one that was kept elsewhere."""
    stored_head = _read_head(head_path(path))
    if not path.exists():
        if stored_head is None or stored_head.entries == 0:
            return Verification(ok=stored_head is not None or head is None, entries=0, why="the log does not exist yet")
        return Verification(
            ok=False, entries=0, first_bad_line=1, why=f"the log is missing; it had {stored_head.entries} entries"
        )
    previous, count = START, 0
    marks = {mark.entries: mark for mark in (stored_head, head) if mark is not None}
    with path.open("rb") as file:
        fcntl.flock(file, fcntl.LOCK_SH)
        for number, line in enumerate(file, 1):
            why = _fault(line, number, previous)
            if why:
                return Verification(ok=False, entries=count, first_bad_line=number, why=why)
            _, previous = _split(line)
            count = number
            if number in marks and marks[number].hash != previous:
                why = "the line is not the one that was written here: the log was rewritten"
                return Verification(ok=False, entries=count - 1, first_bad_line=number, why=why)
    return _ended(count, stored_head, head)


def _ended(count: int, stored_head: Head | None, head: Head | None) -> Verification:
    most = max((mark.entries for mark in (stored_head, head) if mark is not None), default=0)
    if count < most:
        missing = f"{most - count} of {most} entries are missing at the end"
        return Verification(ok=False, entries=count, first_bad_line=count + 1, why=missing)
    if stored_head is None and count:
        why = "the file with the count is missing, so missing entries at the end cannot be detected"
        return Verification(ok=False, entries=count, first_bad_line=count + 1, why=why)
    return Verification(ok=True, entries=count)


def _fault(line: bytes, number: int, previous: str) -> str:
    body, digest = _split(line)
    if body is None:
        return "the line is cut off or is not an entry of this log"
    if hashlib.sha256(body).hexdigest() != digest:
        return "the line was changed"
    try:
        record = msgspec.json.decode(body, type=AuditRecord)
    except msgspec.MsgspecError as fault:
        return f"the line is not an entry of this log: {fault}"
    if record.n != number:
        return f"entry {record.n} is where entry {number} should be: lines are missing, repeated or moved"
    return "" if record.prev == previous else "the line does not follow the one before it"


_LINE = re.compile(rb'^(\{.*),"hash":"([0-9a-f]{64})"\}\n$', re.DOTALL)


def _split(line: bytes) -> tuple[bytes | None, str]:
    match = _LINE.match(line)
    return (None, "") if match is None else (match.group(1) + b"}", match.group(2).decode())


def _read_head(path: Path) -> Head | None:
    try:
        return msgspec.json.decode(path.read_bytes(), type=Head)
    except (OSError, msgspec.MsgspecError):
        return None


def _recovered(file: BinaryIO, stored_head: Head) -> Head:
    file.seek(0)
    count, digest = 0, START
    for line in file:
        body, found = _split(line)
        if body is not None:
            count, digest = count + 1, found
    size = file.seek(0, os.SEEK_END)
    if count < stored_head.entries:
        return Head(stored_head.entries, stored_head.hash, size)
    return Head(count, digest, size)


@contextmanager
def _locked(path: Path) -> Generator[BinaryIO]:
    with open(path, "a+b", opener=_private) as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield file


def _private(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_CLOEXEC, 0o600)
