"""A child process that speaks line by line, and leaves nothing running.

The child stands under a guard process (see ``guard``) which kills everything below it as soon as we close, are
collected, or die in any way.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
import socket
import sys
import tempfile
import threading
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path
from typing import Literal

from ..errors import LaunchError, ProcessExited
from ..wire.jsonl import MAX_LINE, LineBuffer
from ..wire.shapes import UnknownMessage
from . import tap
from .confinement.mechanism import Wrapped, choose, wrap
from .confinement.mounts import mounts_of
from .guard.processes import SCRIPT, end_session, new_mark, processor_ticks, sandboxed, started_at, strategy
from .guard.roles import KILL_BOUND
from .launch import SCRATCH, EndInput, Exited, Launch, Signal, Stalled
from .pipes import ReadEnd, WriteEnd, input_pair, output_pair
from .tasks import TaskOwner

STDERR_READS = 64
STDERR_KEPT = 64 * 2**10
LOST_GUARD = "the process that guards this program was killed, so everything it ran was ended; start it again"
LINGERING = 60.0
"""How long a child may stay after it has closed its output."""
STILL_THERE = 0.01
"""Seconds between two looks at processes that were killed."""
LAST_WORDS = 2.0
"""How long the guard may take to end a tree before ``stop`` returns anyway."""


class Silence:
    """How long a child has shown no sign of life. Said less and less often: it may be meant to wait for hours."""

    __slots__ = ("_next", "_ticks", "lasted")

    def __init__(self) -> None:
        self.end()

    def end(self) -> None:
        self.lasted, self._ticks, self._next = 0.0, -1, 0.0

    def is_news(self, quiet: float, ticks: int) -> bool:
        """Asked after each half of ``quiet``: the processor time of one half is held against the other's."""
        if self._ticks not in (-1, ticks):
            self.end()
        else:
            self.lasted += quiet / 2
        known, self._ticks = self._ticks == ticks, ticks
        if not known or self.lasted < max(quiet, self._next):
            return False
        self._next = self.lasted * 2
        return True


class ChildProcess:
    """Made by :meth:`start`. Use as ``async with await ChildProcess.start(launch) as process``."""

    pid: int
    """The agent's own process id (not the guard's)."""

    def __init__(self, launch: Launch, scratch: str, *, max_line: int) -> None:
        self._launch = launch
        self._max_line = max_line
        self._guard_pid = 0
        self._stderr = bytearray()
        self._loop = asyncio.get_running_loop()
        self._news: asyncio.Future[None] = self._loop.create_future()
        self._exit: asyncio.Future[int] = self._loop.create_future()
        self._ended: asyncio.Future[None] = self._loop.create_future()
        self._failure = 0
        self._released = False
        self._collected = False
        self._recorder = tap.current()
        self._tasks = TaskOwner()
        self._feeding: asyncio.Task[None] | None = None
        self._stopping: asyncio.Task[int] | None = None
        self._stopped_by_us = False
        self._inbox = b""
        self._silence = Silence()
        self.pid = 0
        self._pid_started = 0
        self._mark = new_mark()
        self.left_running = 0
        self.guard_was_killed = False
        self.scratch = scratch
        self._temp = ""

    @classmethod
    async def start(
        cls, launch: Launch, *, base_env: Mapping[str, str] | None = None, max_line: int = MAX_LINE
    ) -> ChildProcess:
        """Start ``launch`` and return once the program runs. ``base_env`` replaces ``os.environ`` when given."""
        if not os.path.isdir(launch.cwd):  # noqa: PTH112, ASYNC240 (one stat before a fork)
            raise LaunchError(f"the working directory {launch.cwd!r} does not exist; create it or pass another cwd")
        way = strategy()
        means = None if launch.confinement is None else await choose()
        scratch = tempfile.mkdtemp(prefix="stagedoor-") if launch.files else ""
        temp = tempfile.mkdtemp(prefix="stagedoor-") if means else ""
        try:
            for name, content in launch.files.items():
                (Path(scratch) / name).write_bytes(content)
            process = cls(launch, scratch, max_line=max_line)
            process._temp = temp
            env = environment(launch, os.environ if base_env is None else base_env, scratch)
            wrapped = Wrapped(tuple(part.replace(SCRATCH, scratch) for part in launch.argv), 0, "")
            if means:
                mounts = mounts_of(launch, env, temp=temp, scratch=scratch, argv=wrapped.argv)
                wrapped = wrap(means, wrapped.argv, mounts, cwd=launch.cwd, temp=temp)
                env |= temporary(launch, env, wrapped.temp)
            process._spawn(wrapped, env, way)
            try:
                await process._started()
            except BaseException:  # whoever wanted it has gone meanwhile: nobody else knows of it
                process.abandon()
                raise
        except BaseException:
            for folder in filter(None, (scratch, temp)):
                shutil.rmtree(folder, ignore_errors=True)
            raise
        return process

    def _spawn(self, wrapped: Wrapped, env: dict[str, str], way: str) -> None:
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        stdin_theirs, stdin_ours = (-1, -1) if self._launch.stdin == "null" else input_pair()
        stdout_ours, stdout_theirs = output_pair(self._launch.stdout)
        stderr_ours, stderr_theirs = output_pair("pipe")
        null = os.open(os.devnull, os.O_RDWR)
        control = theirs.fileno()
        folders = (*self._launch.folders, *filter(None, (self.scratch, self._temp)))
        first = f"{control}:{wrapped.layers}:{way}:{self._mark}"
        guarded = [first, self._launch.cwd, str(len(folders)), *folders, *wrapped.argv]
        os.set_inheritable(control, True)
        try:
            self._guard_pid = os.posix_spawn(
                sys.executable,
                [sys.executable, "-I", "-S", SCRIPT, *guarded],
                env,
                file_actions=[
                    (os.POSIX_SPAWN_DUP2, null if stdin_theirs < 0 else stdin_theirs, 0),
                    (os.POSIX_SPAWN_DUP2, stdout_theirs, 1),
                    (os.POSIX_SPAWN_DUP2, stderr_theirs, 2),
                ],
                setsid=True,
                setsigmask=[],
                setsigdef=[signal.SIGPIPE],
            )
        finally:
            theirs.close()
            for fd in (stdin_theirs, stdout_theirs, stderr_theirs, null):
                if fd >= 0:
                    os.close(fd)
        self._control = ours
        self._stdin = WriteEnd(stdin_ours)
        self._stdout = ReadEnd(stdout_ours)
        self._stderr_end = ReadEnd(stderr_ours)
        self._stderr_fd = stderr_ours
        self._loop.add_reader(ours, self._hear_guard)
        self._loop.add_reader(stderr_ours, self._drain_stderr)
        if isinstance(self._launch.stdin, bytes):
            self._feeding = self._tasks.start(self._feed(self._launch.stdin))

    async def _started(self) -> None:
        await asyncio.wait([self._ended, self._news], return_when=asyncio.FIRST_COMPLETED)
        if not self.pid:
            self._release()
            reason = os.strerror(self._failure) if self._failure else "its guard process ended at once"
            raise LaunchError(f"could not start {self._launch.argv[0]!r}: {reason}; is it an executable program?")

    async def batches(self, *, quiet: float | None = None) -> AsyncIterator[list[bytes | UnknownMessage | Stalled]]:
        """The child's output, one list of whole lines per chunk read, until it ends.

        With ``quiet``, a ``Stalled`` comes when that many seconds have passed without a byte of output, without a tick
        of processor time anywhere in the child's tree and without a word to it; again after twice as long, and so on.
        """
        lines = LineBuffer(self._max_line)
        while True:
            chunk = self._stdout.take()
            if chunk is None:
                if await self._stdout.ready(None if quiet is None else quiet / 2) or quiet is None:
                    continue
                if self._silence.is_news(quiet, processor_ticks(self._guard_pid)):
                    yield [Stalled(self._silence.lasted)]
                continue
            self._silence.end()
            batch = lines.feed(chunk) if chunk else lines.finish()
            if batch:
                self._tell_listener("out", batch)
                yield [*batch]
            if not chunk:
                return

    async def send(self, message: bytes) -> None:
        """Write one message and its line end."""
        self._tell_listener("in", [message])
        self._silence.end()
        try:
            await self._stdin.write(message + b"\n")
        except BrokenPipeError:
            why = f"{self._launch.argv[0]} accepts no more input{self._last_words()}"
            raise ProcessExited(why, code=self.code, stderr=self.stderr_tail) from None

    async def end_input(self) -> None:
        """Close the child's standard input."""
        self._stdin.close()

    def signal(self, number: int, *, group: bool = False) -> None:
        """Signal the child; ``group``: its whole process group (a launcher together with its worker)."""
        self._tell(f"signal-group {number}" if group else f"signal {number}")

    async def end_sandboxed(self, *entries: bytes) -> None:
        """Kill what the child has put into a sandbox with one of ``entries`` in its environment, and wait for its end.

        Chosen before anything is awaited: what is started later is not touched.
        """
        chosen: dict[int, int] = sandboxed(self._guard_pid, self.pid, entries)
        while chosen:
            for pid in tuple(chosen):
                try:
                    os.kill(pid, signal.SIGKILL)
                except OSError:  # it has gone, or is another user's, and would be waited for without end
                    del chosen[pid]
            await asyncio.sleep(STILL_THERE)
            there = sandboxed(self._guard_pid, self.pid, entries)
            chosen = {pid: start for pid, start in chosen.items() if there.get(pid) == start}

    @property
    def code(self) -> int | None:
        """The exit code (negative for a signal), or ``None`` while the child runs."""
        return self._exit.result() if self._exit.done() else None

    @property
    def stderr_tail(self) -> str:
        """The last of what the child wrote on standard error."""
        return self._stderr.decode("utf-8", "replace")

    async def wait(self) -> int:
        """Wait for the child's own end and return its exit code."""
        return await asyncio.shield(self._exit)

    async def exited(self, *, lingering: float = LINGERING) -> Exited:
        """Wait for the child's own end, after that of its output: how it ended, and its last words. One that stays
        without being able to say anything is killed: nobody would ever hear from it."""
        await asyncio.wait([self._exit], timeout=lingering)
        if not self._exit.done():
            self._tell("end")
        code = await self.wait()
        return Exited(code, self.stderr_tail, self.guard_was_killed)

    def fault(self, program: str, *, unfinished: bool = False) -> ProcessExited | None:
        """Why the child's end is an error: it had a code, or (``unfinished``) something was still expected of it.

        ``None`` while it runs, after a good end, and when it was we who ended it.
        """
        if (
            self.code is None
            or self._stopped_by_us
            or (self.code == 0 and not unfinished and not self.guard_was_killed)
        ):
            return None
        words = self.stderr_tail.strip().splitlines()
        why = f": {words[-1]}" if words else " and said nothing"
        return ProcessExited(
            f"{program} exited with code {self.code}{why}; resume the session to continue it",
            code=self.code,
            stderr=self.stderr_tail,
        )

    async def stop(self) -> int:
        """Climb the launch's ladder, then kill. When it returns, nothing of the child's tree is left."""
        if self._stopping is None:
            self._stopped_by_us = not self._exit.done()
            self._stopping = self._tasks.start(self._stop())
        return await asyncio.shield(self._stopping)

    async def _stop(self) -> int:
        for step in self._launch.stop:
            if self._exit.done():
                break
            match step:
                case EndInput():
                    self._stdin.close()
                case Signal(number, group=group):
                    self.signal(number, group=group)
            await asyncio.wait([self._exit], timeout=step.wait)
        if not self._exit.done():
            self._tell("end")
        await asyncio.wait([self._ended], timeout=KILL_BOUND + LAST_WORDS)
        if self._ended.done():
            # It ends right after its socket closes: no zombie remains.
            await asyncio.to_thread(_collect, self._guard_pid)
            self._collected = True
        self._release()
        return self.code if self.code is not None else -signal.SIGKILL

    def abandon(self) -> None:
        """Kill everything at once, without waiting: for finalizers, and for loops that are already closed."""
        self._release()

    async def __aenter__(self) -> ChildProcess:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    async def _feed(self, content: bytes) -> None:
        self._tell_listener("in", content.splitlines())
        with contextlib.suppress(BrokenPipeError):  # the child did not want it all; its output says why
            await self._stdin.write(content)
        self._stdin.close()

    def _tell_listener(self, direction: Literal["in", "out"], lines: Sequence[bytes | UnknownMessage]) -> None:
        if self._recorder is not None:
            for line in lines:
                self._recorder(direction, line.raw if isinstance(line, UnknownMessage) else line)

    def _hear_guard(self) -> None:
        try:
            received = self._control.recv(4096)
        except BlockingIOError:
            return
        except OSError:
            received = b""
        *lines, self._inbox = (self._inbox + received).split(b"\n")
        for line in lines:
            word, _, number = line.decode().partition(" ")
            match word:
                case "started":
                    self.pid = int(number)
                    self._pid_started = started_at(self.pid)
                    self._news.set_result(None)
                case "failed":
                    self._failure = int(number)
                case "exited":
                    self._drain_stderr_to_its_end()  # what it wrote last is in the pipe by now
                    self._exit.set_result(int(number))
                case "lost":
                    self._note_lost_guard()
                case _:
                    self.left_running = int(number)
        if not received:
            self._loop.remove_reader(self._control)
            if not self._exit.done():
                if self.pid and not self.guard_was_killed and self._stopping is None:
                    self._note_lost_guard()
                    end_session(self.pid, self._pid_started, self._mark)
                self._exit.set_result(-signal.SIGKILL)
            if not self._ended.done():
                self._ended.set_result(None)

    def _note_lost_guard(self) -> None:
        self.guard_was_killed = True
        self._drain_stderr_to_its_end()
        self._stderr += f"\n{LOST_GUARD}\n".encode()

    def _drain_stderr(self) -> bool:
        """Read once what is there; false when there was nothing."""
        received = self._stderr_end.take()
        if received == b"":
            self._loop.remove_reader(self._stderr_fd)
        elif received:
            self._stderr += received
            del self._stderr[:-STDERR_KEPT]
        return bool(received)

    def _drain_stderr_to_its_end(self) -> None:
        for _ in range(STDERR_READS):  # a bound, because others that hold the pipe may go on writing
            if not self._drain_stderr():
                return

    def _presume_killed(self) -> None:
        if not self._exit.done():
            self._exit.set_result(-signal.SIGKILL)

    def _tell(self, line: str) -> None:
        with contextlib.suppress(OSError):
            self._control.send(line.encode() + b"\n")

    def _last_words(self) -> str:
        lines = self.stderr_tail.strip().splitlines()
        return f": {lines[-1]}" if lines else ""

    def _release(self) -> None:
        if self._released:
            return
        self._released = True
        self._loop.remove_reader(self._control)
        self._loop.remove_reader(self._stderr_fd)
        self._control.close()
        self._stdin.close()
        self._stdout.close()
        self._stderr_end.close()
        if self._feeding is not None and not self._loop.is_closed():
            self._feeding.cancel()
        if not self._exit.done() and not self._loop.is_closed():
            # Nobody hears the guard any more; whoever waits for the end must not wait for ever.
            self._loop.call_soon_threadsafe(self._presume_killed)
        if self._guard_pid and not self._collected:
            # Nobody may be waiting for us here (a finalizer, a closed loop), and the guard still has work to do.
            threading.Thread(target=_collect, args=(self._guard_pid,), daemon=True).start()
        for folder in filter(None, (self.scratch, self._temp)):
            shutil.rmtree(folder, ignore_errors=True)


def temporary(launch: Launch, env: Mapping[str, str], temp: str) -> dict[str, str]:
    """Where a confined child finds room for temporary files, unless its launch gives it a folder of ours."""
    given = env.get("TMPDIR", "")
    if any(given == folder or given.startswith(f"{folder}/") for folder in launch.folders):
        return {}
    return dict.fromkeys(("TMPDIR", "TMP", "TEMP"), temp)


def environment(launch: Launch, base: Mapping[str, str], scratch: str) -> dict[str, str]:
    """The child's whole environment."""

    def inherited(name: str) -> bool:
        return not any(name == out or (out.endswith("*") and name.startswith(out[:-1])) for out in launch.unset)

    env = {name: value for name, value in base.items() if inherited(name)}
    return env | {name: value.replace(SCRATCH, scratch) for name, value in launch.env.items()} | {"PWD": launch.cwd}


def _collect(guard_pid: int) -> None:
    with contextlib.suppress(ChildProcessError):
        os.waitpid(guard_pid, 0)
