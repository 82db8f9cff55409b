"""Commands as child process groups, with their output as it comes."""

from __future__ import annotations

import asyncio
import codecs
import contextlib
import os
import signal
from collections.abc import Awaitable, Callable

OUTPUT_KEPT = 8 * 2**20
GRACE = 1.0
SILENCE = 0.3
"""A process that the command left behind may hold its output open: so long after the last word we stop listening."""


class Command:
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
    async def start(cls, command: str, cwd: str, *, heard: bool = True) -> Command:
        """``heard``: its output is kept; otherwise it goes nowhere. Cancelled, it leaves nothing running."""
        starting = asyncio.ensure_future(cls._start(command, cwd, heard=heard))
        try:
            return await asyncio.shield(starting)
        except asyncio.CancelledError:
            await (await starting).kill()
            raise

    @classmethod
    async def _start(cls, command: str, cwd: str, *, heard: bool) -> Command:
        # The pipe is ours: asyncio's own would tie the end of the process to the end of its output.
        read, write = os.pipe() if heard else (-1, os.open(os.devnull, os.O_WRONLY))
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
        if not heard:
            return cls(process)
        stream = asyncio.StreamReader()
        loop = asyncio.get_running_loop()
        pipe, _ = await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(stream), os.fdopen(read, "rb", 0))
        return cls(process, stream, pipe)

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def left_running(self) -> bool:
        """Whether anything of its process group is still there."""
        try:
            os.killpg(self._process.pid, 0)
        except (ProcessLookupError, PermissionError):
            return False
        return True

    async def run(self, progress: Callable[[str], Awaitable[None]]) -> int:
        """Wait for the end; cancelled, it kills the command. ``progress`` gets the output so far, whenever it grew."""
        listening = asyncio.create_task(self._listen(progress))
        try:
            code = await self._process.wait()
            heard = -1
            while not listening.done() and heard != len(self.output):
                heard = len(self.output)
                await asyncio.wait([listening], timeout=SILENCE)
            return code
        except asyncio.CancelledError:
            await self.kill()
            raise
        finally:
            listening.cancel()

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
            self.output = (self.output + decoder.decode(chunk))[-OUTPUT_KEPT:]
            await progress(self.output)
        self.output += decoder.decode(b"", final=True)

    def _signal(self, number: int) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, number)
