"""The MCP servers of a session, over their standard input and output: enough to call a tool."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from typing import Any

import msgspec

from stagedoor.agent_side.params import McpServerParams
from stagedoor.transports.tasks import TaskOwner
from stagedoor.wire.jsonl import LineBuffer
from stagedoor.wire.jsonrpc import Id, Peer, Response, parse

from .workspace import ToolCallFailed

PROTOCOL_VERSION = "2025-06-18"
PATIENCE = 60.0


class McpToolAnswer(msgspec.Struct, frozen=True, rename="camel"):
    content: list[dict[str, Any]] = []
    is_error: bool = False


class RunningMcpServer:
    """One running server. Made by :meth:`start`."""

    def __init__(self, name: str, process: asyncio.subprocess.Process) -> None:
        self._name = name
        self._process = process
        self._peer = Peer()
        self._waiting: dict[Id, asyncio.Future[Any]] = {}
        self._tasks = TaskOwner()
        self._tasks.start(self._listen())

    @classmethod
    async def start(cls, spec: McpServerParams, cwd: str) -> RunningMcpServer:
        if not spec.command:
            raise ToolCallFailed(f"The MCP server {spec.name!r} has no command to start it with.")
        try:
            process = await asyncio.create_subprocess_exec(
                spec.command,
                *spec.args,
                cwd=cwd,
                env=os.environ | {variable.name: variable.value for variable in spec.env},
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.DEVNULL,
                start_new_session=True,
            )
        except OSError as error:
            raise ToolCallFailed(f"The MCP server {spec.name!r} did not start: {error.strerror}") from None
        server = cls(spec.name, process)
        client = {"name": "understudy", "version": "0.1.0"}
        hello = {"protocolVersion": PROTOCOL_VERSION, "capabilities": {}, "clientInfo": client}
        try:
            await server._ask("initialize", hello)
        except BaseException:
            await server.stop()
            raise
        server._peer.notify("notifications/initialized", {})
        await server._flush()
        return server

    async def call(self, tool: str, arguments: dict[str, Any]) -> McpToolAnswer:
        result = await self._ask("tools/call", {"name": tool, "arguments": arguments})
        try:
            return msgspec.convert(result, McpToolAnswer)
        except msgspec.ValidationError as error:
            raise ToolCallFailed(f"The MCP server {self._name!r} sent an invalid result: {error}") from None

    async def stop(self) -> None:
        await self._tasks.close()
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)
        await self._process.wait()

    async def _ask(self, method: str, params: dict[str, Any]) -> Any:
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._waiting[self._peer.call(method, params)] = future
        await self._flush()
        try:
            async with asyncio.timeout(PATIENCE):
                return await future
        except TimeoutError:
            raise ToolCallFailed(f"The MCP server {self._name!r} did not answer {method}.") from None

    async def _flush(self) -> None:
        stdin = self._process.stdin
        assert stdin is not None
        with contextlib.suppress(ConnectionError):  # the end of its output resolves whatever waits
            stdin.writelines(message + b"\n" for message in self._peer.outgoing())
            await stdin.drain()

    async def _listen(self) -> None:
        stdout = self._process.stdout
        assert stdout is not None
        lines = LineBuffer()
        while chunk := await stdout.read(2**16):
            for line in lines.feed(chunk):
                message = parse(line) if isinstance(line, bytes) else None
                if isinstance(message, Response):
                    self._answered(message)
        for future in self._waiting.values():
            if not future.done():
                future.set_exception(ToolCallFailed(f"The MCP server {self._name!r} ended."))

    def _answered(self, response: Response) -> None:
        future = self._waiting.pop(response.id, None)
        if future is None or future.done():
            return
        if response.fault is not None:
            future.set_exception(ToolCallFailed(response.fault.message))
        else:
            future.set_result(msgspec.json.decode(bytes(response.result or b"null")))
