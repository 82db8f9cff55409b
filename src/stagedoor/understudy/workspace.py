"""What the understudy's tools act on: files of one workspace, never one outside it, and commands run in it."""

from __future__ import annotations

import asyncio
import codecs
import contextlib
import os
import re
import signal
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

from stagedoor.transports.tasks import TaskOwner

MAX_MATCHES = 200
SKIPPED = {".git", ".hg", ".svn", "node_modules", "__pycache__", ".venv"}


class ToolCallFailed(Exception):
    """The tool failed; the message goes to the agent and the user."""


class WorkspaceFiles:
    def __init__(self, root: str, more: tuple[str, ...] = ()) -> None:
        self.root = Path(root).resolve()
        self._roots = [self.root, *(Path(folder).resolve() for folder in more)]

    def locate(self, path: str) -> Path:
        """The real place of ``path``, links followed. Raises ``ToolCallFailed`` outside the workspace."""
        place = Path(os.path.join(self.root, path)).resolve()  # noqa: PTH118 (an absolute path replaces the root)
        if not any(place == root or root in place.parents for root in self._roots):
            raise ToolCallFailed(f"{path} is outside the workspace.")
        return place

    def read(self, path: str) -> str:
        place = self.locate(path)
        try:
            return place.read_bytes().decode("utf-8", "replace")
        except OSError as error:
            raise ToolCallFailed(f"{path}: {error.strerror}") from None

    def before(self, path: str) -> str | None:
        """What is there now; None for nothing."""
        place = self.locate(path)
        return place.read_bytes().decode("utf-8", "replace") if place.is_file() else None

    def write(self, path: str, content: str) -> None:
        place = self.locate(path)
        try:
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes(content.encode("utf-8", "replace"))
        except OSError as error:
            raise ToolCallFailed(f"{path}: {error.strerror}") from None

    def edit(self, path: str, old: str, new: str) -> tuple[str, str]:
        """The file before and after the edit, which is not made yet."""
        before = self.read(path)
        count = before.count(old) if old else 0
        if count != 1:
            raise ToolCallFailed(f"{path}: the text to replace occurs {count} times; it must occur once.")
        return before, before.replace(old, new)

    def delete(self, path: str) -> None:
        place = self.locate(path)
        try:
            place.unlink()
        except OSError as error:
            raise ToolCallFailed(f"{path}: {error.strerror}") from None

    def search(self, pattern: str, path: str) -> str:
        """Lines that match, as ``file:line: text``."""
        try:
            regex = re.compile(pattern)
        except re.error as error:
            raise ToolCallFailed(f"{pattern!r} is not a regular expression: {error}") from None
        matches: list[str] = []
        for place in self._files(path):
            try:
                text = place.read_bytes()
            except OSError:
                continue
            if b"\0" in text[:1024]:
                continue
            for number, line in enumerate(text.decode("utf-8", "replace").splitlines(), 1):
                if regex.search(line):
                    matches.append(f"{place.relative_to(self.root)}:{number}: {line[:300]}")
                    if len(matches) == MAX_MATCHES:
                        return "\n".join(matches)
        return "\n".join(matches)

    def find(self, pattern: str, path: str) -> str:
        matches: list[str] = []
        for place in self._files(path):
            name = place.relative_to(self.root)
            if name.match(pattern) or pattern in ("**", "**/*"):
                matches.append(str(name))
                if len(matches) == MAX_MATCHES:
                    break
        return "\n".join(matches)

    def _files(self, path: str) -> Iterator[Path]:
        start = self.locate(path)
        if start.is_file():
            yield start
            return
        for folder, folders, names in os.walk(start):
            folders[:] = sorted(name for name in folders if name not in SKIPPED)
            for name in sorted(names):
                place = Path(folder) / name
                if not place.is_symlink() and self.root in place.parents:
                    yield place


OUTPUT_LIMIT = 8 * 2**20
GRACE = 1.0
SILENCE = 0.3
"""A process that the command left behind may hold its output open: so long after the last output we stop reading."""


class WorkspaceCommand:
    """One running command. ``kill`` ends its whole process group."""

    def __init__(
        self,
        process: asyncio.subprocess.Process,
        stream: asyncio.StreamReader | None = None,
        pipe: asyncio.ReadTransport | None = None,
    ) -> None:
        self._process = process
        self._stream = stream
        self._pipe = pipe
        self.output = ""

    @classmethod
    async def start(cls, command: str, cwd: str, *, capture: bool = True) -> WorkspaceCommand:
        """``capture``: its output is kept; otherwise it goes nowhere. Cancelled, it leaves nothing running."""
        starting = TaskOwner().start(cls._start(command, cwd, capture=capture))
        try:
            return await asyncio.shield(starting)
        except asyncio.CancelledError:
            await (await starting).kill()
            raise

    @classmethod
    async def _start(cls, command: str, cwd: str, *, capture: bool) -> WorkspaceCommand:
        # The pipe is ours: asyncio's own would tie the end of the process to the end of its output.
        read, write = os.pipe() if capture else (-1, os.open(os.devnull, os.O_WRONLY))
        try:
            process = await asyncio.create_subprocess_exec(
                "/bin/sh",
                "-c",
                command,
                cwd=cwd,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=write,
                stderr=asyncio.subprocess.STDOUT,
                start_new_session=True,
            )
        finally:
            os.close(write)
        if not capture:
            return cls(process)
        stream = asyncio.StreamReader()
        loop = asyncio.get_running_loop()
        pipe, _ = await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(stream), os.fdopen(read, "rb", 0))
        return cls(process, stream, pipe)

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def has_survivors(self) -> bool:
        """Whether anything of its process group is still there."""
        try:
            os.killpg(self._process.pid, 0)
        except (ProcessLookupError, PermissionError):
            return False
        return True

    async def run(self, progress: Callable[[str], Awaitable[None]]) -> int:
        """Wait for the end; cancelled, it kills the command. ``progress`` gets the output so far, whenever it grew."""
        tasks = TaskOwner()
        listening = tasks.start(self._listen(progress))
        try:
            code = await self._process.wait()
            length = -1
            while not listening.done() and length != len(self.output):
                length = len(self.output)
                await asyncio.wait([listening], timeout=SILENCE)
            return code
        except asyncio.CancelledError:
            await self.kill()
            raise
        finally:
            await tasks.close()

    async def kill(self) -> None:
        """Ask it to end, then end it, with everything in its process group."""
        self._signal(signal.SIGTERM)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(GRACE):
                await self._process.wait()
        self._signal(signal.SIGKILL)
        await self._process.wait()
        if self._pipe is not None:
            self._pipe.close()

    async def _listen(self, progress: Callable[[str], Awaitable[None]]) -> None:
        decoder = codecs.getincrementaldecoder("utf-8")("replace")
        while self._stream is not None and (chunk := await self._stream.read(2**16)):
            self.output = (self.output + decoder.decode(chunk))[-OUTPUT_LIMIT:]
            await progress(self.output)
        self.output += decoder.decode(b"", final=True)

    def _signal(self, number: int) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, number)
