"""The sandbox that we bring ourselves: run on its own (``python -I -S inside.py PLAN PROGRAM …``), it confines itself
by PLAN, then becomes PROGRAM. Standard library only. Whatever cannot be done ends it: nothing runs half confined.

``namespaces``: a user namespace with file systems of its own, as bubblewrap makes them, and, where the kernel can, a
Landlock domain that signals and abstract sockets do not leave. ``landlock``: for machines without user namespaces;
no mounts, so what lies in a writable folder cannot be kept from being written. A seccomp filter refuses unix sockets,
because none of them can be masked there.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import stat
import struct
import sys
from typing import Any

AT_FDCWD = -100
AT_RECURSIVE = 0x8000
CLONE_NEWNS, CLONE_NEWIPC, CLONE_NEWUSER = 0x20000, 0x8000000, 0x10000000
MS_REC, MS_PRIVATE, MS_NOSUID, MS_NODEV = 0x4000, 0x40000, 2, 4
OPEN_TREE_CLONE, MOVE_MOUNT_F_EMPTY_PATH, AT_EMPTY_PATH, MOUNT_ATTR_RDONLY = 1, 4, 0x1000, 1
SYS_OPEN_TREE, SYS_MOVE_MOUNT, SYS_MOUNT_SETATTR = 428, 429, 442
SYS_LANDLOCK_CREATE_RULESET, SYS_LANDLOCK_ADD_RULE, SYS_LANDLOCK_RESTRICT_SELF = 444, 445, 446
PR_SET_PDEATHSIG, PR_SET_NO_NEW_PRIVS, PR_SET_SECCOMP, PR_CAPBSET_DROP = 1, 38, 22, 24
PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL = 47, 4
CAPABILITIES = 64
DEVICES = ("null", "zero", "full", "random", "urandom", "tty")

EXECUTE, WRITE_FILE, READ_FILE = 1 << 0, 1 << 1, 1 << 2
CHANGE_FOLDER = sum(1 << bit for bit in range(4, 13))
REFER, TRUNCATE, IOCTL_DEVICE = 1 << 13, 1 << 14, 1 << 15
SCOPE_ABSTRACT_SOCKETS, SCOPE_SIGNALS = 1, 2
LEAST_ABI, SCOPED_ABI = 3, 6
"""Before 3 anybody can empty a file with ``truncate``; before 6 signals cannot be kept inside."""

LIBC = ctypes.CDLL(None, use_errno=True)


class CannotConfine(Exception):
    """The kernel refused a step."""


def _do(step: str, result: int) -> int:
    if result < 0:
        raise CannotConfine(f"{step}: {os.strerror(ctypes.get_errno())}")
    return result


def _syscall(step: str, number: int, *arguments: object) -> int:
    return _do(step, LIBC.syscall(ctypes.c_long(number), *arguments))


def _prctl(step: str, option: int, *arguments: int) -> None:
    values = [ctypes.c_ulong(value) for value in (*arguments, 0, 0, 0, 0)[:4]]
    _do(step, LIBC.prctl(option, *values))


# -------------------------------------------------------------------------------------------------------------- mounts


def enter_namespaces(mounts: list[tuple[str, str, str]]) -> None:
    uid, gid = os.geteuid(), os.getegid()
    _do("user namespace", LIBC.unshare(CLONE_NEWUSER | CLONE_NEWNS | CLONE_NEWIPC))
    for name, text in (("setgroups", "deny"), ("uid_map", f"{uid} {uid} 1"), ("gid_map", f"{gid} {gid} 1")):
        with open(f"/proc/self/{name}", "w") as file:  # noqa: PTH123 (pathlib is not worth its start-up time here)
            file.write(text)
    _do("private mounts", LIBC.mount(None, b"/", None, ctypes.c_ulong(MS_REC | MS_PRIVATE), None))
    # Everything that stays is taken hold of before the root becomes read-only.
    trees = [(path, access, _tree(source or path) if access != "hide" else -1) for path, access, source in mounts]
    devices = [(f"/dev/{name}", _tree(f"/dev/{name}")) for name in DEVICES if os.path.exists(f"/dev/{name}")]  # noqa: PTH110
    terminals = _tree("/dev/pts") if os.path.isdir("/dev/pts") else -1  # noqa: PTH112
    nothing = _tree("/dev/null")
    _read_only(AT_FDCWD, b"/")
    _small_dev(devices, terminals)
    for path, access, tree in trees:
        if access == "hide":
            if os.path.isdir(path):  # noqa: PTH112
                _tmpfs(path)
            elif os.path.lexists(path):
                _attach(_tree("/dev/null"), path, folder=False)
            continue
        if access == "read":
            _read_only(tree, b"")
        _attach(tree, path, folder=stat.S_ISDIR(os.fstat(tree).st_mode))
    os.close(nothing)


def _tree(path: str) -> int:
    flags = OPEN_TREE_CLONE | os.O_CLOEXEC | AT_RECURSIVE
    return _syscall(f"hold {path}", SYS_OPEN_TREE, AT_FDCWD, path.encode(), ctypes.c_uint(flags))


def _read_only(tree: int, path: bytes) -> None:
    attributes = struct.pack("QQQQ", MOUNT_ATTR_RDONLY, 0, 0, 0)
    flags = ctypes.c_uint(AT_RECURSIVE | (0 if path else AT_EMPTY_PATH))
    _syscall("read-only", SYS_MOUNT_SETATTR, tree, path, flags, attributes, ctypes.c_size_t(len(attributes)))


def _attach(tree: int, path: str, *, folder: bool) -> None:
    if not os.path.lexists(path):  # below a folder that is masked
        os.makedirs(path if folder else os.path.dirname(path), 0o755, exist_ok=True)  # noqa: PTH103, PTH120
        if not folder:
            os.close(os.open(path, os.O_CREAT | os.O_CLOEXEC, 0o600))
    _syscall(
        f"mount {path}", SYS_MOVE_MOUNT, tree, b"", AT_FDCWD, path.encode(), ctypes.c_uint(MOVE_MOUNT_F_EMPTY_PATH)
    )
    os.close(tree)


def _tmpfs(path: str) -> None:
    flags = ctypes.c_ulong(MS_NOSUID | MS_NODEV)
    _do(f"hide {path}", LIBC.mount(b"tmpfs", path.encode(), b"tmpfs", flags, b"mode=755"))


def _small_dev(devices: list[tuple[str, int]], terminals: int) -> None:
    """Disks are written through their devices whether or not the file system is read-only."""
    _tmpfs("/dev")
    for path, tree in devices:
        _attach(tree, path, folder=False)
    if terminals >= 0:
        _attach(terminals, "/dev/pts", folder=True)
        os.symlink("pts/ptmx", "/dev/ptmx")  # noqa: PTH211
    os.mkdir("/dev/shm", 0o1777)  # noqa: PTH102
    for name, target in (("fd", ""), ("stdin", "/0"), ("stdout", "/1"), ("stderr", "/2")):
        os.symlink(f"/proc/self/fd{target}", f"/dev/{name}")  # noqa: PTH211


def drop_capabilities() -> None:
    for number in range(CAPABILITIES):
        if LIBC.prctl(PR_CAPBSET_DROP, ctypes.c_ulong(number), 0, 0, 0) < 0:
            break  # the kernel knows no more of them
    LIBC.prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0)
    header = struct.pack("Ii", 0x20080522, 0)
    _do("drop capabilities", LIBC.capset(header, struct.pack("6I", *[0] * 6)))


# ------------------------------------------------------------------------------------------------------------ Landlock


def landlock_abi() -> int:
    """0: this kernel has none, or it is switched off."""
    number = ctypes.c_long(SYS_LANDLOCK_CREATE_RULESET)
    return max(0, int(LIBC.syscall(number, None, ctypes.c_size_t(0), ctypes.c_uint(1))))


def _ruleset(files: int, scoped: int) -> int:
    attributes = struct.pack("QQQ", files, 0, scoped)[: 24 if scoped else 8]
    size = ctypes.c_size_t(len(attributes))
    return _syscall("landlock", SYS_LANDLOCK_CREATE_RULESET, attributes, size, ctypes.c_uint(0))


def _enforce(ruleset: int) -> None:
    _syscall("landlock", SYS_LANDLOCK_RESTRICT_SELF, ruleset, ctypes.c_uint(0))
    os.close(ruleset)


def keep_signals_inside() -> None:
    if landlock_abi() >= SCOPED_ABI:
        _enforce(_ruleset(0, SCOPE_ABSTRACT_SOCKETS | SCOPE_SIGNALS))


def enter_landlock(mounts: list[tuple[str, str, str]], temp: str) -> None:
    abi = landlock_abi()
    if abi < LEAST_ABI:
        raise CannotConfine(f"Landlock {abi or 'is not there'}; at least {LEAST_ABI} is needed")
    writable = [path for path, access, source in mounts if access == "write" and not source]
    hidden = [path for path, access, _ in mounts if access == "hide" and path != "/run"]
    change = WRITE_FILE | CHANGE_FOLDER | REFER | TRUNCATE
    device = IOCTL_DEVICE if abi >= 5 else 0
    read = READ_FILE if hidden else 0
    scoped = SCOPE_ABSTRACT_SOCKETS | SCOPE_SIGNALS if abi >= SCOPED_ABI else 0
    ruleset = _ruleset(change | device | read, scoped)
    for path in (*writable, temp, "/dev/shm"):
        _allow(ruleset, path, change | read)
    for name in (*DEVICES, "ptmx", "pts"):
        _allow(ruleset, f"/dev/{name}", WRITE_FILE | TRUNCATE | device | read)
    for path in _beside(hidden) if hidden else ():
        _allow(ruleset, path, read)
    _enforce(ruleset)


def _allow(ruleset: int, path: str, access: int) -> None:
    try:
        place = os.open(path, os.O_PATH | os.O_CLOEXEC | os.O_NOFOLLOW)
    except OSError:
        return
    kind = os.fstat(place).st_mode
    if not stat.S_ISDIR(kind):
        access &= EXECUTE | WRITE_FILE | READ_FILE | TRUNCATE | IOCTL_DEVICE
    if not stat.S_ISLNK(kind) and access:
        rule = struct.pack("=Qi", access, place)
        _syscall(f"allow {path}", SYS_LANDLOCK_ADD_RULE, ruleset, ctypes.c_int(1), rule, ctypes.c_uint(0))
    os.close(place)


def _beside(hidden: list[str]) -> list[str]:
    """Everything that is not on the way to something hidden. Landlock can only say what is allowed."""
    on_the_way = {"/"}
    for path in hidden:
        parts = path.strip("/").split("/")
        on_the_way |= {"/" + "/".join(parts[:count]) for count in range(1, len(parts))}
    allowed: list[str] = []
    for folder in on_the_way:
        try:
            names = os.listdir(folder)  # noqa: PTH208
        except OSError:
            continue
        paths = [f"{folder.rstrip('/')}/{name}" for name in names]
        allowed += [path for path in paths if path not in on_the_way and path not in hidden]
    return allowed


# ------------------------------------------------------------------------------------------------------------- seccomp

ARCHITECTURES = {"x86_64": (0xC000003E, 41), "aarch64": (0xC00000B7, 198)}
"""Machine → its name for seccomp, and the number of ``socket``."""
SYS_IO_URING_SETUP = 425
X32 = 0x40000000
AF_UNIX = 1
LOAD, EQUALS, AT_LEAST, RETURN = 0x20, 0x15, 0x35, 0x06
ALLOWED, REFUSED = 0x7FFF0000, 0x00050000 | 13


def refuse_unix_sockets() -> None:
    """``connect`` to a socket by its path is no matter of Landlock's. io_uring would be a way round the filter."""
    machine = os.uname().machine
    if machine not in ARCHITECTURES:
        raise CannotConfine(f"no filter for {machine}")
    architecture, number = ARCHITECTURES[machine]
    program = [
        (LOAD, 0, 0, 4),
        (EQUALS, 0, 6, architecture),
        (LOAD, 0, 0, 0),
        (AT_LEAST, 4, 0, X32),
        (EQUALS, 3, 0, SYS_IO_URING_SETUP),
        (EQUALS, 0, 3, number),
        (LOAD, 0, 0, 16),
        (EQUALS, 0, 1, AF_UNIX),
        (RETURN, 0, 0, REFUSED),
        (RETURN, 0, 0, ALLOWED),
    ]
    code = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *instruction) for instruction in program))
    filter_program = struct.pack("HxxxxxxP", len(program), ctypes.addressof(code))
    holder = ctypes.create_string_buffer(filter_program)
    _prctl("seccomp", PR_SET_SECCOMP, 2, ctypes.addressof(holder))


def confine(plan: dict[str, Any]) -> None:
    mounts = [(str(path), str(access), str(source)) for path, access, source in plan["mounts"]]
    _prctl("die with the guard", PR_SET_PDEATHSIG, signal.SIGKILL)
    if plan["means"] == "namespaces":
        enter_namespaces(mounts)
        drop_capabilities()
        _prctl("no new privileges", PR_SET_NO_NEW_PRIVS, 1)
        keep_signals_inside()
    else:
        _prctl("no new privileges", PR_SET_NO_NEW_PRIVS, 1)
        enter_landlock(mounts, str(plan["temp"]))
        drop_capabilities()
        refuse_unix_sockets()
    os.chdir(plan["cwd"])


if __name__ == "__main__":
    try:
        confine(json.loads(sys.argv[1]))
        os.execvp(sys.argv[2], sys.argv[2:])
    except (CannotConfine, OSError) as error:
        sys.stderr.write(f"stagedoor: cannot confine: {error}\n")
        sys.exit(125)
