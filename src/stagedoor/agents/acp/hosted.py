"""Files and terminals of a client of ours (an editor), in place of our own: what an agent asks of us is passed on."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from .config import Host
from .requests import CreateTerminal


class HostRefused(Exception):
    """The client was asked, and says no; or it has left in the middle of it."""


async def read_hosted(host: Host | None, path: str, line: int | None, limit: int | None) -> str | None:
    """The text as the client has it, saved or not. ``None``: read the file."""
    if host is None:
        return None
    extent = {name: value for name, value in (("line", line), ("limit", limit)) if value is not None}
    try:
        answer = await host("fs/read_text_file", {"path": path, **extent})
    except HostRefused:
        return None  # one that it cannot open may still be there
    content = (answer or {}).get("content")
    return content if isinstance(content, str) else None


async def write_hosted(host: Host | None, path: str, content: str) -> bool:
    """Whether the client has written it. Raises ``HostRefused``."""
    return host is not None and await host("fs/write_text_file", {"path": path, "content": content}) is not None


class HostedTerminal:
    """A terminal of the client's."""

    def __init__(self, host: Host, terminal_id: str) -> None:
        self.ended = asyncio.Event()
        self._host = host
        self._params = {"terminalId": terminal_id}

    @classmethod
    async def start(
        cls, host: Host | None, argv: list[str], request: CreateTerminal, cwd: str
    ) -> HostedTerminal | None:
        """``None``: start one of ours."""
        if host is None:
            return None
        limit = {} if request.output_byte_limit is None else {"outputByteLimit": request.output_byte_limit}
        env = [{"name": one.name, "value": one.value} for one in request.env or ()]
        params = {"command": argv[0], "args": argv[1:], "env": env, "cwd": cwd, **limit}
        answer = await host("terminal/create", params)
        if answer is None:
            return None
        terminal_id = answer.get("terminalId")
        if not isinstance(terminal_id, str):
            raise HostRefused("the editor started a terminal without an id")
        return cls(host, terminal_id)

    async def wait(self) -> int:
        """The exit code; negative for a signal whose number nobody says."""
        status = await self._call("terminal/wait_for_exit")
        code = status.get("exitCode")
        return code if isinstance(code, int) and not status.get("signal") else -9

    async def output(self) -> dict[str, Any]:
        answer = await self._call("terminal/output")
        text, cut = answer.get("output"), answer.get("truncated")
        shown: dict[str, Any] = {"output": text if isinstance(text, str) else "", "truncated": cut is True}
        if self.ended.is_set() and isinstance(answer.get("exitStatus"), dict):
            shown["exitStatus"] = answer["exitStatus"]
        return shown

    async def exit_status(self) -> dict[str, Any]:
        status = await self._call("terminal/wait_for_exit")
        await self.ended.wait()
        return {"exitCode": status.get("exitCode"), "signal": status.get("signal")}

    async def kill(self) -> None:
        await self._call("terminal/kill")

    async def release(self) -> None:
        await self._host("terminal/release", self._params)

    def abandon(self) -> None:
        """It is the client's, and goes with the session there."""

    async def _call(self, method: str) -> Mapping[str, Any]:
        answer = await self._host(method, self._params)
        if answer is None:
            raise HostRefused("the editor that had this terminal has left")
        return answer
