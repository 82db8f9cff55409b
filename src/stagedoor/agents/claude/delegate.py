"""Our end of the permission server: a private socket on which ``can_use_tool`` is asked."""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import os
import shutil
import sys
import tempfile
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import msgspec

from ...errors import NotSupported
from .commands import Decision, Deny
from .protocol import permission_body
from .requests import CanUseTool

LINE_LIMIT = 64 * 2**20


class Delegate:
    """Made by :meth:`open`. ``entry`` is the MCP server that Claude Code must start."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._server: asyncio.Server | None = None
        self._conversations: set[asyncio.Task[None]] = set()
        self._count = 0
        self.decide: Callable[[CanUseTool], Awaitable[Decision]] | None = None

    @classmethod
    async def open(cls) -> Delegate:
        """Raises ``NotSupported`` when the ``mcp`` package is missing."""
        if importlib.util.find_spec("mcp") is None:
            raise NotSupported(
                "permission_mode delegate is served by the mcp package, which is not installed; "
                "install it with: pip install 'stagedoor[mcp]', or use can_use_tool without delegate"
            )
        # A folder readable by this user only; the name of a socket may have no more than some 100 bytes.
        where = tempfile.gettempdir() if len(os.fsencode(tempfile.gettempdir())) < 70 else "/tmp"
        delegate = cls(tempfile.mkdtemp(prefix="stagedoor-", dir=where))
        delegate._server = await asyncio.start_unix_server(delegate._asked, delegate._path, limit=LINE_LIMIT)
        return delegate

    @property
    def _path(self) -> str:
        return f"{self._folder}/permissions"

    @property
    def entry(self) -> dict[str, Any]:
        script = str(Path(__file__).with_name("permission_server.py"))
        return {"type": "stdio", "command": sys.executable, "args": ["-P", script, self._path]}

    def close(self) -> None:
        """Open questions are refused by the closing of their connection."""
        if self._server is not None:
            self._server.close()
        for task in list(self._conversations):
            task.cancel()
        shutil.rmtree(self._folder, ignore_errors=True)

    async def _asked(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._conversations.add(task)
        try:
            line = await reader.readline()
            deciding = asyncio.ensure_future(self._decided(line))
            gone = asyncio.ensure_future(reader.read())  # Claude Code takes its question back by hanging up
            try:
                await asyncio.wait([deciding, gone], return_when=asyncio.FIRST_COMPLETED)
                if deciding.done():
                    writer.write(msgspec.json.encode(deciding.result()) + b"\n")
                    with contextlib.suppress(OSError):
                        await writer.drain()
            finally:
                deciding.cancel()
                gone.cancel()
        finally:  # also when the session ends: closing the connection refuses
            self._conversations.discard(task)
            writer.close()

    async def _decided(self, line: bytes) -> dict[str, Any]:
        self._count += 1
        try:
            question = msgspec.json.decode(line, type=CanUseTool)
        except msgspec.DecodeError as error:
            return {"behavior": "deny", "message": f"The question could not be read: {error}"}
        question = msgspec.structs.replace(question, request_id=f"mcp_{self._count}")
        decision = Deny("Nobody is there to allow this call.") if self.decide is None else await self.decide(question)
        return permission_body(decision, question)
