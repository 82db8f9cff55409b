"""Short programs of our own (git, installers, a user's test command): each has an owner, a bound and a guard.

``Programs`` is one guard (see ``guard``) and the programs it runs for us one after the other. Closing it, an overrun
bound, or our own death by ``kill -9`` ends the program that runs with everything it started; if we die, the folders
that were made for it go too. It blocks: call it by ``in_thread``, which stops it when its caller is cancelled.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import functools
import os
import selectors
import signal
import socket
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import IO, Any, ParamSpec, TypeVar

import msgspec

from ..errors import LaunchError
from .guard.processes import SCRIPT, new_mark, strategy
from .guard.roles import FAREWELL

CHUNK = 1 << 18
ASK_EVERY = 0.5
PATIENCE = 3.0
COMPLAINT = 64 * 2**10
"""What is kept of standard error."""

P = ParamSpec("P")
T = TypeVar("T")


class Finished(msgspec.Struct, frozen=True):
    """``code`` is negative for a signal. ``cut``: it was stopped because it wrote more than was wanted."""

    code: int
    out: bytes = b""
    complaint: bytes = b""
    cut: bool = False


class ProgramStopped(LaunchError):
    """A program of ours was ended before it was done: whoever wanted it is gone, or it took too long."""


class ProgramOverdue(ProgramStopped):
    """A program of ours took longer than its bound."""


class Programs:
    """Use as ``with Programs() as programs``. ``folders`` are ours to remove; the guard does it when we are killed."""

    def __init__(self, folders: Sequence[str] = ()) -> None:
        way = strategy()
        self._control, theirs = socket.socketpair()
        self._closed = False
        try:
            self._guard_pid = os.posix_spawn(
                sys.executable,
                [sys.executable, "-I", "-S", SCRIPT, f"series:0:{way}:{new_mark()}", *folders],
                os.environ,
                file_actions=[
                    (os.POSIX_SPAWN_DUP2, theirs.fileno(), 0),
                    (os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0),
                    (os.POSIX_SPAWN_OPEN, 2, os.devnull, os.O_WRONLY, 0),
                ],
                setsid=True,
                setsigmask=[],
                setsigdef=[signal.SIGPIPE],
            )
        except OSError as fault:
            self._control.close()
            raise LaunchError(f"could not start the guard of our own programs: {fault.strerror}") from fault
        finally:
            theirs.close()
        self._stop = _STOP.get()
        if self._stop is not None:
            self._stop.add(self)

    def run(
        self,
        argv: Sequence[str],
        *,
        cwd: str,
        env: Mapping[str, str],
        timeout: float,
        content: bytes = b"",
        most: int | None = None,
        together: bool = False,
        why_slow: Callable[[], str] | None = None,
        why_stop: Callable[[], str] | None = None,
    ) -> Finished:
        """Run one program to its end. ``argv[0]`` is an absolute path; ``content`` is its standard input.

        ``most``: it is stopped after so many bytes of output. ``together``: standard error is part of the output.
        ``why_slow`` is asked once, when it says nothing for ``PATIENCE`` seconds: a reason ends it.
        ``why_stop`` is asked twice a second as long as it runs, and less often if it takes long: a reason ends it.
        Raises ``LaunchError`` when it cannot be started, ``ProgramOverdue`` after ``timeout`` seconds.
        """
        if self._closed:
            raise ProgramStopped(f"{argv[0]} was not started: its owner has ended")
        out_read, out_write = os.pipe()
        complaint_read, complaint_write = (-1, os.dup(out_write)) if together else os.pipe()
        try:
            with _input(content) as stdin:
                words = [os.fsencode(cwd), str(len(argv)).encode(), *map(os.fsencode, argv)]
                words += [os.fsencode(f"{name}={value}") for name, value in env.items()]
                if any(b"\0" in word for word in words):
                    raise LaunchError(f"{argv[0]} was not started: an argument or a variable contains a NUL")
                request = b"\0".join(words)
                head = len(request).to_bytes(4, "big")
                try:
                    socket.send_fds(self._control, [head], [stdin.fileno(), out_write, complaint_write])
                    self._control.sendall(request)
                except OSError as fault:
                    raise ProgramStopped(f"{argv[0]} was stopped before it began") from fault
            os.close(out_write)
            os.close(complaint_write)
            out_write = complaint_write = -1
            out, complaint, cut = self._read(
                argv[0], out_read, complaint_read, time.monotonic() + timeout, timeout, most, why_slow, why_stop
            )
            if cut:
                self._control.sendall(bytes(4))
            code = self._ending(argv[0], time.monotonic() + timeout, timeout)
            return Finished(code, bytes(out), bytes(complaint), cut)
        except BaseException:
            self.close()
            raise
        finally:
            for descriptor in (out_read, out_write, complaint_read, complaint_write):
                if descriptor >= 0:
                    os.close(descriptor)

    def _read(
        self,
        program: str,
        out_read: int,
        complaint_read: int,
        deadline: float,
        timeout: float,
        most: int | None,
        why_slow: Callable[[], str] | None,
        why_stop: Callable[[], str] | None,
    ) -> tuple[bytearray, bytearray, bool]:
        out, complaint = bytearray(), bytearray()
        asked_at, quiet_since, pause = time.monotonic(), time.monotonic(), ASK_EVERY
        with selectors.DefaultSelector() as selector:
            selector.register(out_read, selectors.EVENT_READ, out)
            if complaint_read >= 0:
                selector.register(complaint_read, selectors.EVENT_READ, complaint)
            while selector.get_map():
                left = max(deadline - time.monotonic(), 0)
                wait = left if why_slow is None else min(left, PATIENCE)
                ready = selector.select(wait if why_stop is None else min(wait, pause))
                now = time.monotonic()
                quiet_since = now if ready else quiet_since
                if why_stop is not None and now - asked_at >= pause:
                    if reason := why_stop():
                        raise ProgramStopped(f"{program} was ended: {reason}")
                    asked_at = time.monotonic()
                    pause = max(ASK_EVERY, 10 * (asked_at - now))
                if not ready and why_slow is not None and now - quiet_since >= PATIENCE and left > PATIENCE:
                    reason, why_slow = why_slow(), None
                    if reason:
                        raise ProgramStopped(f"{program} was ended: {reason}")
                    continue
                if not ready and now < deadline:
                    continue
                if not ready:
                    raise _overdue(program, timeout)
                for key, _ in ready:
                    part = os.read(key.fd, CHUNK)
                    if not part:
                        selector.unregister(key.fd)
                    key.data.extend(part)
                del complaint[:-COMPLAINT]
                if most is not None and len(out) >= most:
                    return out[:most], complaint, True
        return out, complaint, False

    def _ending(self, program: str, deadline: float, timeout: float) -> int:
        line = b""
        try:
            while not line.endswith(b"\n"):
                self._control.settimeout(max(deadline - time.monotonic(), 0.001))
                part = self._control.recv(64)
                if not part:
                    raise ProgramStopped(f"{program} was stopped before it was done")
                line += part
        except TimeoutError:
            raise _overdue(program, timeout) from None
        except OSError as fault:
            raise ProgramStopped(f"{program} was stopped before it was done") from fault
        finally:
            with contextlib.suppress(OSError):
                self._control.settimeout(None)
        word, _, number = line.decode().strip().partition(" ")
        if word == "failed":
            raise LaunchError(f"could not start {program}: {os.strerror(int(number))}; is it an executable program?")
        if word != "exited":
            raise ProgramStopped(f"{program} was stopped before it was done: its guard was killed")
        return int(number)

    def stop(self) -> None:
        """From any thread: end what runs, now."""
        with contextlib.suppress(OSError):
            self._control.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """End what runs and wait until nothing of it is left."""
        if self._closed:
            return
        self._closed = True
        if self._stop is not None:
            self._stop.remove(self)
        with contextlib.suppress(OSError):
            self._control.sendall(FAREWELL)
        self._control.close()
        with contextlib.suppress(ChildProcessError):
            os.waitpid(self._guard_pid, 0)

    def __enter__(self) -> Programs:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class ProgramApart:
    """A program of ours that outlives us: a server that several of us share, and that ends when none is left. It is in
    a session of its own, and writes to a file."""

    def __init__(self, argv: Sequence[str], log: Path) -> None:
        kept = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW
        try:
            self._pid = os.posix_spawn(
                argv[0],
                list(argv),
                os.environ,
                file_actions=[
                    (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
                    (os.POSIX_SPAWN_OPEN, 1, log, kept, 0o600),
                    (os.POSIX_SPAWN_DUP2, 1, 2),
                ],
                setsid=True,
                setsigmask=[],
                setsigdef=[signal.SIGPIPE],
            )
        except OSError as fault:
            raise LaunchError(f"could not start {argv[0]}: {fault.strerror}") from fault

    def ended(self) -> bool:
        with contextlib.suppress(ChildProcessError):
            return os.waitpid(self._pid, os.WNOHANG)[0] != 0
        return True

    def end(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(self._pid, signal.SIGTERM)


class _Stop:
    """What runs on behalf of one call of ``in_thread``."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._running: set[Programs] = set()
        self._stopped = False

    def add(self, programs: Programs) -> None:
        with self._lock:
            self._running.add(programs)
            if self._stopped:
                programs.stop()

    def remove(self, programs: Programs) -> None:
        with self._lock:
            self._running.discard(programs)

    def stop(self) -> None:
        with self._lock:
            self._stopped = True
            for programs in self._running:
                programs.stop()


_STOP: contextvars.ContextVar[_Stop | None] = contextvars.ContextVar("stagedoor_programs_stop", default=None)


async def in_thread(function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """``function`` in a thread, like ``asyncio.to_thread``; when the caller is cancelled, its programs are ended."""
    stop = _Stop()
    context = contextvars.copy_context()
    context.run(_STOP.set, stop)
    bound = functools.partial(function, *args, **kwargs)
    work = asyncio.get_running_loop().run_in_executor(None, lambda: context.run(bound))
    try:
        return await asyncio.shield(work)
    except asyncio.CancelledError:
        stop.stop()
        await asyncio.wait([work])
        if not work.cancelled():
            work.exception()  # looked at: nobody else will
        raise


async def run_program(
    argv: Sequence[str],
    *,
    cwd: str,
    env: Mapping[str, str] | None = None,
    timeout: float,
    content: bytes = b"",
    most: int | None = None,
    together: bool = False,
) -> Finished:
    """One program, from start to end. ``env`` replaces ``os.environ`` when given."""
    return await in_thread(
        run_blocking, argv, cwd=cwd, env=env, timeout=timeout, content=content, most=most, together=together
    )


def run_blocking(
    argv: Sequence[str],
    *,
    cwd: str,
    env: Mapping[str, str] | None = None,
    timeout: float,
    content: bytes = b"",
    most: int | None = None,
    together: bool = False,
) -> Finished:
    with Programs() as programs:
        return programs.run(
            argv,
            cwd=cwd,
            env=os.environ if env is None else env,
            timeout=timeout,
            content=content,
            most=most,
            together=together,
        )


def _input(content: bytes) -> IO[Any]:
    if not content:
        return Path(os.devnull).open("rb")
    file = tempfile.TemporaryFile()  # noqa: SIM115 (its reader closes it)
    file.write(content)
    file.seek(0)
    return file


def _overdue(program: str, timeout: float) -> ProgramOverdue:
    return ProgramOverdue(f"{Path(program).name} was not done in {timeout:g} seconds and was ended")
