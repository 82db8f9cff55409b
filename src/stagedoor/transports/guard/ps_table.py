"""The process table as ``ps`` shows it: the way that every Unix has."""

from __future__ import annotations

import contextlib
import os
import sys

PLACES = ("/bin/ps", "/usr/bin/ps", "/run/current-system/sw/bin/ps")
"""Never from the ``PATH``: an agent may have written it."""
ENV = {"LC_ALL": "C", "TZ": "UTC", "PATH": "/usr/bin:/bin"}
SLACK = 1_000_000
"""``ps`` says a start to the second, and some compute it from two clocks."""
MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
MOST = 1 << 26


class ProcessRow:
    """One process. ``started`` is in microseconds since 1970, ``ticks`` its processor time in a unit of the table's."""

    __slots__ = ("group", "is_zombie", "parent", "pid", "session", "started", "ticks")

    def __init__(
        self, pid: int, parent: int, group: int, session: int, started: int, ticks: int, *, is_zombie: bool = False
    ) -> None:
        self.pid, self.parent, self.group, self.session = pid, parent, group, session
        self.started, self.ticks, self.is_zombie = started, ticks, is_zombie


class NoTable(OSError):
    """This machine does not tell which processes run."""


def read() -> list[ProcessRow]:
    """Every process, ``ps`` itself excepted."""
    words = [part for name in ("pid", "ppid", "pgid", "stat", "time", "lstart") for part in ("-o", f"{name}=")]
    out, own = _run(["-A", *words])
    rows = [row for line in out.split(b"\n") if (row := _row(line)) is not None and row.pid != own]
    if not rows:
        raise NoTable("ps shows no process")
    return rows


def marked(pids: list[int], entry: bytes) -> set[int]:
    """Those of ``pids`` that have ``entry`` in their environment, as far as it can be seen."""
    if not pids:
        return set()
    out, _ = _run(["eww", "-o", "pid=", "-o", "args=", "-p", ",".join(map(str, pids))])
    found: set[int] = set()
    for line in out.split(b"\n"):
        pid, _, rest = line.strip().partition(b" ")
        if pid.isdigit() and int(pid) in pids and b" " + entry + b" " in b" " + rest + b" ":
            found.add(int(pid))
    return found


def values_of(pids: list[int], name: bytes) -> dict[int, bytes]:
    """Of those that have a variable of this ``name``: its value, up to a space. ``ps`` writes it behind the words."""
    if not pids:
        return {}
    out, _ = _run(["eww", "-o", "pid=", "-o", "args=", "-p", ",".join(map(str, pids))])
    found: dict[int, bytes] = {}
    for line in out.split(b"\n"):
        pid, _, rest = line.strip().partition(b" ")
        _, there, value = rest.rpartition(b" " + name + b"=")
        if there and pid.isdigit():
            found[int(pid)] = value.partition(b" ")[0]
    return found


def _row(line: bytes) -> ProcessRow | None:
    words = line.split()
    try:
        pid, parent, group = int(words[0]), int(words[1]), int(words[2])
        return ProcessRow(
            pid, parent, group, os.getsid(pid), _moment(words[5:]), _ticks(words[4]), is_zombie=words[3][:1] == b"Z"
        )
    except (IndexError, ValueError, OSError):
        return None  # a heading, or it has ended since


def _moment(words: list[bytes]) -> int:
    """``Mon Nov 16 07:57:25 2026``, in microseconds since 1970."""
    _, month_name, day, clock, year_word = (word.decode() for word in words)
    year, month = int(year_word), MONTHS.index(month_name) + 1
    before = year - (month <= 2)  # the year begins in March: then the odd day is its last
    days = before * 365 + before // 4 - before // 100 + before // 400 + (153 * ((month + 9) % 12) + 2) // 5 + int(day)
    hours, minutes, seconds = map(int, clock.split(":"))
    return ((days - 719469) * 86400 + hours * 3600 + minutes * 60 + seconds) * 1_000_000


def _ticks(word: bytes) -> int:
    """``[[D-]H:]M:S[.CC]``, in hundredths of a second."""
    days, _, clock = word.rpartition(b"-")
    total = 0.0
    for part in clock.split(b":"):
        total = total * 60 + float(part)
    return round((int(days or b"0") * 86400 + total) * 100)


def _run(words: list[str]) -> tuple[bytes, int]:
    """What it writes, and its own pid."""
    program = next((place for place in PLACES if os.access(place, os.X_OK)), "")
    if not program:
        raise NoTable(f"there is no ps on this machine ({sys.platform}): looked for {', '.join(PLACES)}")
    out_read, out_write = os.pipe()
    try:
        pid = os.posix_spawn(
            program,
            ["ps", *words],
            ENV,
            file_actions=[
                (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
                (os.POSIX_SPAWN_DUP2, out_write, 1),
                (os.POSIX_SPAWN_OPEN, 2, os.devnull, os.O_WRONLY, 0),
            ],
            setsigmask=[],
        )
    except OSError:
        os.close(out_read)
        raise
    finally:
        os.close(out_write)
    out = bytearray()
    try:
        while (part := os.read(out_read, 1 << 16)) and len(out) < MOST:
            out += part
    finally:
        os.close(out_read)
        with contextlib.suppress(ChildProcessError):
            os.waitpid(pid, 0)
    return bytes(out), pid
