"""Commands run for an agent that was offered terminals."""

from __future__ import annotations

import signal
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from stagedoor.transports.launch import SCRATCH, Launch, Signal
from stagedoor.transports.process import ChildProcess

from .requests import CreateTerminal

OUTPUT_KEPT = 2**20
TO_A_FILE = 'exec "$@" >"$0" 2>&1'


class UnknownTerminal(Exception):
    """No terminal has that id, or it was released."""


class Terminal:
    """A command whose output goes to a private file: nobody has to read it while it runs, and nothing is lost."""

    def __init__(self, process: ChildProcess, limit: int) -> None:
        self._process = process
        self._output = Path(process.scratch) / "output"
        self._limit = limit

    @classmethod
    async def start(cls, request: CreateTerminal, cwd: str, base_env: Mapping[str, str] | None) -> Terminal:
        argv = ("/bin/sh", "-c", TO_A_FILE, f"{SCRATCH}/output", request.command, *(request.args or ()))
        if not request.args and any(blank in request.command for blank in " \t|&;<>$`"):
            argv = ("/bin/sh", "-c", TO_A_FILE, f"{SCRATCH}/output", "/bin/sh", "-c", request.command)
        launch = Launch(
            argv=argv,
            cwd=cwd,
            env={variable.name: variable.value for variable in request.env or ()},
            stdin="null",
            files={"output": b""},
            stop=(Signal(signal.SIGTERM, 1.0, group=True),),
        )
        limit = OUTPUT_KEPT if request.output_byte_limit is None else max(0, request.output_byte_limit)
        return cls(await ChildProcess.start(launch, base_env=base_env), limit)

    def output(self) -> dict[str, Any]:
        """As ``terminal/output`` answers: the end of the output is kept, cut at a character."""
        whole = self._output.read_bytes()
        kept = whole[len(whole) - self._limit :] if len(whole) > self._limit else whole
        while len(kept) < len(whole) and kept and kept[0] & 0xC0 == 0x80:
            kept = kept[1:]
        answer: dict[str, Any] = {"output": kept.decode("utf-8", "replace"), "truncated": len(kept) < len(whole)}
        if self._process.code is not None:
            answer["exitStatus"] = _status(self._process.code)
        return answer

    async def ended(self) -> dict[str, Any]:
        return _status(await self._process.wait())

    def kill(self) -> None:
        self._process.signal(signal.SIGKILL, group=True)

    async def release(self) -> None:
        await self._process.stop()

    def abandon(self) -> None:
        self._process.abandon()


class Terminals:
    """The terminals of one session."""

    def __init__(self) -> None:
        self._open: dict[str, Terminal] = {}
        self._made = 0

    def __getitem__(self, terminal_id: str) -> Terminal:
        try:
            return self._open[terminal_id]
        except KeyError:
            raise UnknownTerminal(f"There is no terminal {terminal_id!r}.") from None

    async def create(self, request: CreateTerminal, cwd: str, base_env: Mapping[str, str] | None) -> str:
        terminal = await Terminal.start(request, cwd, base_env)
        self._made += 1
        terminal_id = f"terminal-{self._made}"
        self._open[terminal_id] = terminal
        return terminal_id

    async def release(self, terminal_id: str) -> None:
        terminal = self[terminal_id]
        del self._open[terminal_id]
        await terminal.release()

    async def release_all(self) -> None:
        while self._open:
            await self._open.popitem()[1].release()

    def abandon(self) -> None:
        while self._open:
            self._open.popitem()[1].abandon()


def _status(code: int) -> dict[str, Any]:
    if code < 0:
        return {"exitCode": None, "signal": _signal_name(-code)}
    return {"exitCode": code, "signal": None}


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"SIG{number}"
