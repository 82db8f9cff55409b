"""The audit log: every way to tamper with it is found."""

from __future__ import annotations

import asyncio
import fcntl
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stagedoor.permissions.audit import (
    AuditEntry,
    AuditLog,
    Head,
    Verification,
    audit_log,
    entry_of,
    head_path,
    read_log,
    verify,
)
from stagedoor.unified.events import PermissionRequest, PermissionResolved


def entry(number: int) -> AuditEntry:
    return AuditEntry(
        session="s", request=f"q{number}", decision="allow", by="rule", rule="tests", target=f"npm test {number}"
    )


def written(path: Path, count: int = 5) -> Head:
    log = AuditLog(path)
    head = Head()
    for number in range(1, count + 1):
        head = log.append(entry(number), 1000 + number)
    return head


def test_a_log_as_it_was_written(tmp_path: Path) -> None:
    head = written(tmp_path / "audit.jsonl")
    assert verify(tmp_path / "audit.jsonl", head=head) == Verification(ok=True, entries=5)
    assert [(r.n, r.at, r.entry) for r in read_log(tmp_path / "audit.jsonl")] == [
        (n, 1000 + n, entry(n)) for n in range(1, 6)
    ]


Lines = list[bytes]


def _changed(lines: Lines) -> Lines:
    return [lines[0], lines[1].replace(b"npm test 2", b"npm test 9"), *lines[2:]]


TAMPERED: dict[str, tuple[Callable[[Lines], Lines], int]] = {
    "changed": (_changed, 2),
    "spaces": (lambda lines: [lines[0].replace(b":", b": ", 1), *lines[1:]], 1),
    "missing": (lambda lines: [*lines[:2], *lines[3:]], 3),
    "missing first": (lambda lines: lines[1:], 1),
    "moved": (lambda lines: [lines[0], lines[2], lines[1], *lines[3:]], 2),
    "repeated": (lambda lines: [*lines[:2], lines[1], *lines[2:]], 3),
    "cut tail": (lambda lines: lines[:3], 4),
    "emptied": (lambda lines: [], 1),
    "half a line": (lambda lines: [*lines[:4], lines[4][:30]], 5),
    "no last newline": (lambda lines: [*lines[:4], lines[4][:-1]], 5),
    "foreign line": (lambda lines: [*lines, b"{}\n"], 6),
    "hash replaced": (lambda lines: [lines[0][:-68] + b"0" * 64 + lines[0][-4:], *lines[1:]], 1),
}  # fmt: skip


@pytest.mark.parametrize("name", TAMPERED)
def test_tampering_is_found(tmp_path: Path, name: str) -> None:
    path = tmp_path / "audit.jsonl"
    written(path)
    tamper, bad = TAMPERED[name]
    path.write_bytes(b"".join(tamper(path.read_bytes().splitlines(keepends=True))))
    found = verify(path)
    assert (found.ok, found.first_bad_line) == (False, bad)
    assert found.why


def test_a_log_forged_from_the_start_is_found_by_its_head(tmp_path: Path) -> None:
    path, forged = tmp_path / "audit.jsonl", tmp_path / "forged.jsonl"
    head = written(path)
    for number in range(1, 6):
        AuditLog(forged).append(entry(number + 10), 5)
    path.write_bytes(forged.read_bytes())
    assert (verify(path).ok, verify(path).first_bad_line) == (False, 5)
    head_path(path).write_bytes(head_path(forged).read_bytes())
    assert verify(path).ok
    assert not verify(path, head=head).ok


def test_a_lost_log_or_a_lost_head_is_found(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    assert verify(path) == Verification(ok=True, entries=0, why="the log does not exist yet")
    written(path)
    kept = head_path(path).read_bytes()
    head_path(path).unlink()
    assert not verify(path).ok
    head_path(path).write_bytes(kept)
    path.unlink()
    assert verify(path).why == "the log is missing; it had 5 entries"


def test_writing_on_does_not_hide_a_cut(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    written(path)
    path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[:3]))
    AuditLog(path).append(entry(6), 9)
    assert (verify(path).ok, verify(path).first_bad_line) == (False, 4)


def test_a_crash_between_line_and_head_is_mended(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    written(path, 2)
    head = head_path(path).read_bytes()
    AuditLog(path).append(entry(3), 9)
    head_path(path).write_bytes(head)
    assert verify(path) == Verification(ok=True, entries=3)
    with path.open("ab") as file:
        file.write(b'{"n":4,"at":')
    assert not verify(path).ok
    AuditLog(path).append(entry(4), 10)
    assert verify(path) == Verification(ok=True, entries=4)


WRITER = """
import sys
from pathlib import Path
from stagedoor.permissions.audit import AuditEntry, AuditLog
for number in range(20):
    entry = AuditEntry(session=sys.argv[2], request=str(number), decision="deny", by="timeout")
    AuditLog(Path(sys.argv[1])).append(entry, number)
"""


def test_several_processes_write_one_log(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    writers = [subprocess.Popen([sys.executable, "-c", WRITER, str(path), name]) for name in "abc"]
    assert [writer.wait(120) for writer in writers] == [0, 0, 0]
    assert verify(path) == Verification(ok=True, entries=60)
    assert sorted(record.entry.session for record in read_log(path)) == ["a"] * 20 + ["b"] * 20 + ["c"] * 20


@settings(max_examples=100, deadline=None)
@given(st.data())
def test_any_changed_byte_is_found(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    path = tmp_path_factory.mktemp("audit") / "audit.jsonl"
    written(path, 3)
    content = bytearray(path.read_bytes())
    at = data.draw(st.integers(0, len(content) - 1))
    byte = data.draw(st.integers(0, 255).filter(lambda value: value != content[at]))
    content[at] = byte
    path.write_bytes(bytes(content))
    assert not verify(path).ok


def test_what_an_entry_keeps() -> None:
    request = PermissionRequest(
        request_id="q",
        tool_name="shell",
        operation="execute",
        target="rm x",
        risk="medium",
        agent="claude",
        session_id="s",
    )
    resolved = PermissionResolved(request_id="q", decision="deny", by="client", message="no")
    assert entry_of(request, resolved) == AuditEntry(
        session="s", request="q", decision="deny", by="person", agent="claude", tool="shell", operation="execute",
        target="rm x", risk="medium", message="no",
    )  # fmt: skip


def test_what_is_handed_over_at_once_is_written_in_order_by_a_thread(tmp_path: Path) -> None:
    async def main() -> list[Head]:
        log = audit_log(tmp_path / "audit.jsonl")
        assert audit_log(tmp_path / "audit.jsonl") is log
        return list(await asyncio.gather(*[log.keep(entry(number), number) for number in range(1, 201)]))

    heads = asyncio.run(main())
    assert [head.entries for head in heads] == list(range(1, 201))
    assert verify(tmp_path / "audit.jsonl", head=heads[-1]) == Verification(ok=True, entries=200)
    assert [record.entry for record in read_log(tmp_path / "audit.jsonl")] == [entry(n) for n in range(1, 201)]


def test_the_loop_goes_on_while_another_process_holds_the_log(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"

    async def main() -> Head:
        with path.open("ab") as held:
            fcntl.flock(held, fcntl.LOCK_EX)
            async with asyncio.TaskGroup() as group:
                keeping = group.create_task(audit_log(path).keep(entry(1), 1))
                for _ in range(100):
                    await asyncio.sleep(0)  # would never come round if the loop waited for the lock
                assert not keeping.done()
                fcntl.flock(held, fcntl.LOCK_UN)
        return keeping.result()

    assert asyncio.run(main()).entries == 1


def test_a_log_that_cannot_be_written_is_told_to_everybody_who_waits(tmp_path: Path) -> None:
    async def main() -> list[object]:
        (tmp_path / "audit.jsonl").mkdir()
        log = audit_log(tmp_path / "audit.jsonl")
        return list(await asyncio.gather(*[log.keep(entry(n), n) for n in range(3)], return_exceptions=True))

    assert [type(outcome) for outcome in asyncio.run(main())] == [IsADirectoryError] * 3
