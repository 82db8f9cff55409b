"""The process table of a Mac, from ``libproc`` and ``sysctl``. Written from Apple's headers; not yet run by us.

The layouts are functions of bytes, so that they can be tested anywhere.
"""

from __future__ import annotations

import os
import struct

from .ps_table import NoTable, ProcessRow

TYPE_CHECKING = False
if TYPE_CHECKING:
    import ctypes

SLACK = 0
"""The kernel keeps the start of a process as it was, to the microsecond."""
PROC_PIDTBSDINFO = 3
RUSAGE_INFO_V0 = 0
CTL_KERN, KERN_PROCARGS2 = 1, 49
SZOMB = 5
BSDINFO = struct.Struct("=IIIII24xI16x32xIIIIIiQQ")
"""``struct proc_bsdinfo`` (sys/proc_info.h): flags, status, xstatus, pid, ppid · uid to svgid · rfu_1 · comm, name ·
nfiles, pgid, pjobc, e_tdev, e_tpgid, nice · start_tvsec, start_tvusec."""
RUSAGE = struct.Struct("=16xQQ64x")
"""``struct rusage_info_v0`` (sys/resource.h): uuid, user_time, system_time and eight more."""
ARGUMENTS_MOST = 1 << 20
SPARE = 256


def read() -> list[ProcessRow]:
    """Every process of this user."""
    libc = _libc()
    rows = [row for pid in _pids(libc) if (row := _row(libc, pid)) is not None]
    if not rows:
        raise NoTable("libproc shows no process")
    return rows


def marked(pids: list[int], entry: bytes) -> set[int]:
    """Those of ``pids`` that have ``entry`` in their environment. That of Apple's own programs is not shown."""
    return {pid for pid, environment in _environments(pids).items() if entry in environment}


def values_of(pids: list[int], name: bytes) -> dict[int, bytes]:
    """Of those that show a variable of this ``name``: its value."""
    start = name + b"="
    return {
        pid: entry[len(start) :]
        for pid, environment in _environments(pids).items()
        for entry in environment[::-1]
        if entry.startswith(start)
    }


def _environments(pids: list[int]) -> dict[int, list[bytes]]:
    import ctypes

    libc, found = _libc(), dict[int, list[bytes]]()
    buffer = ctypes.create_string_buffer(ARGUMENTS_MOST)
    for pid in pids:
        name = (ctypes.c_int * 3)(CTL_KERN, KERN_PROCARGS2, pid)
        size = ctypes.c_size_t(ARGUMENTS_MOST)
        if libc.sysctl(name, 3, buffer, ctypes.byref(size), None, 0) == 0:
            found[pid] = environment_of(buffer.raw[: size.value])
    return found


def environment_of(content: bytes) -> list[bytes]:
    """What ``KERN_PROCARGS2`` returns: the count of arguments, the path of the program, filled up with NULs, the
    arguments, the environment."""
    if len(content) < 4:
        return []
    count = int.from_bytes(content[:4], "little")
    _, _, rest = content[4:].partition(b"\0")
    return rest.lstrip(b"\0").split(b"\0")[count:]


def row_of(content: bytes, session: int, ticks: int) -> ProcessRow | None:
    """From a ``struct proc_bsdinfo``."""
    if len(content) < BSDINFO.size:
        return None
    _, status, _, pid, parent, _, _, group, _, _, _, _, seconds, micros = BSDINFO.unpack(content[: BSDINFO.size])
    return ProcessRow(pid, parent, group, session, seconds * 1_000_000 + micros, ticks, is_zombie=status == SZOMB)


def _libc() -> ctypes.CDLL:
    import ctypes

    libc = ctypes.CDLL(None)
    libc.proc_pidinfo.argtypes = (ctypes.c_int, ctypes.c_int, ctypes.c_uint64, ctypes.c_void_p, ctypes.c_int)
    libc.proc_listallpids.argtypes = (ctypes.c_void_p, ctypes.c_int)
    libc.proc_pid_rusage.argtypes = (ctypes.c_int, ctypes.c_int, ctypes.c_void_p)
    libc.sysctl.argtypes = (
        ctypes.c_void_p, ctypes.c_uint, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t,
    )  # fmt: skip
    return libc


def _pids(libc: ctypes.CDLL) -> list[int]:
    import ctypes

    count = libc.proc_listallpids(None, 0) + SPARE
    numbers = (ctypes.c_int * count)()
    return list(numbers[: max(0, libc.proc_listallpids(numbers, ctypes.sizeof(numbers)))])


def _row(libc: ctypes.CDLL, pid: int) -> ProcessRow | None:
    import ctypes

    content, used = ctypes.create_string_buffer(BSDINFO.size), ctypes.create_string_buffer(RUSAGE.size)
    # The third argument: of one that has ended and was not collected, too.
    if pid <= 0 or libc.proc_pidinfo(pid, PROC_PIDTBSDINFO, 1, content, BSDINFO.size) != BSDINFO.size:
        return None
    ticks = sum(RUSAGE.unpack(used.raw)) if libc.proc_pid_rusage(pid, RUSAGE_INFO_V0, used) == 0 else 0
    try:
        return row_of(content.raw, os.getsid(pid), ticks)
    except OSError:
        return row_of(content.raw, 0, ticks)  # it has ended
