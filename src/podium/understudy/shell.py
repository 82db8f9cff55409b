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


class Command:
    """One running command. ``kill`` ends its whole process group."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self.output = ""

    @classmethod
    async def start(cls, command: str, cwd: str) -> Command:
        process = await asyncio.create_subprocess_exec(
            "/bin/sh",
            "-c",
            command,
            cwd=cwd,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            start_new_session=True,
        )
        return cls(process)

    @property
    def pid(self) -> int:
        return self._process.pid

    async def run(self, progress: Callable[[str], Awaitable[None]]) -> int:
        """Wait for the end; cancelled, it kills the command. ``progress`` gets the output so far, whenever it grew."""
        try:
            await self._read(progress)
            return await self._process.wait()
        except asyncio.CancelledError:
            await self.kill()
            raise

    async def kill(self) -> None:
        """Ask it to end, then end it, with everything in its process group."""
        self._signal(signal.SIGTERM)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(GRACE):
                await self._process.wait()
        self._signal(signal.SIGKILL)
        await self._process.wait()

    async def _read(self, progress: Callable[[str], Awaitable[None]]) -> None:
        decoder = codecs.getincrementaldecoder("utf-8")("replace")
        stream = self._process.stdout
        assert stream is not None
        while chunk := await stream.read(2**16):
            self.output += decoder.decode(chunk)
            if len(self.output) > OUTPUT_KEPT:
                self.output = self.output[-OUTPUT_KEPT:]
            await progress(self.output)
        self.output += decoder.decode(b"", final=True)

    def _signal(self, number: int) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, number)
