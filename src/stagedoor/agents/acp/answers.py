"""Answers what the agent asks in one session: permissions, forms, files, terminals.

Each question has its own task, so that none waits for another.
"""

from __future__ import annotations

import asyncio
import inspect
import os
import signal
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from stagedoor.transports.launch import SCRATCH, Launch, Signal
from stagedoor.transports.process import ChildProcess
from stagedoor.wire.jsonrpc import METHOD_NOT_FOUND, Id

from .commands import AnswerElicitation, AnswerPermissionRequest, AnswerRequest, Command, RefuseRequest
from .config import AcpConfig, AcpProfile
from .requests import (
    AgentRequest,
    CreateElicitation,
    CreateTerminal,
    KillTerminal,
    PermissionOption,
    ReadTextFile,
    ReleaseTerminal,
    RequestPermission,
    TerminalOutput,
    WaitForTerminalExit,
    WriteTextFile,
)

RESOURCE_NOT_FOUND = -32002


class AcpAnswers:
    """``reply`` sends one answer and must refuse quietly when the question was closed in the meantime."""

    def __init__(
        self,
        config: AcpConfig,
        profile: AcpProfile,
        cwd: str,
        base_env: Mapping[str, str] | None,
        reply: Callable[[Command], Awaitable[None]],
    ) -> None:
        self._config = config
        self._profile = profile
        self._cwd = cwd
        self._base_env = base_env
        self._reply = reply
        self._workspace = ServedFiles([cwd, *config.additional_directories])
        self._terminals = Terminals()
        self._tasks: dict[Id, asyncio.Task[None]] = {}

    def ask(self, question: AgentRequest) -> None:
        request_id = question.request_id
        task = asyncio.get_running_loop().create_task(self._resolve(question))
        self._tasks[request_id] = task
        task.add_done_callback(lambda done: self._tasks.pop(request_id, None))

    def withdraw(self, request_id: Id) -> None:
        """Nobody waits for this answer any more."""
        task = self._tasks.pop(request_id, None)
        if task is not None:
            task.cancel()

    async def close(self) -> None:
        """Stop answering; everything started for the agent is ended."""
        for request_id in list(self._tasks):
            self.withdraw(request_id)
        await self._terminals.release_all()

    def abandon(self) -> None:
        self._terminals.abandon()

    async def _resolve(self, question: AgentRequest) -> None:
        match question:
            case RequestPermission():
                answer: Command = await self._permission(question)
            case CreateElicitation():
                answer = await self._elicitation(question)
            case _:
                answer = await self._serve(question)
        await self._reply(answer)

    async def _permission(self, question: RequestPermission) -> AnswerPermissionRequest:
        decide = self._config.request_permission
        refusal = AnswerPermissionRequest(question.request_id, "reject_once")
        if decide is None:
            return refusal
        try:
            async with asyncio.timeout(self._config.permission_timeout):
                decision = decide(question)
                if inspect.isawaitable(decision):
                    decision = await decision
        except Exception:  # a broken callback must not let anything through, nor leave the agent waiting
            return refusal
        match decision:
            case None:
                return AnswerPermissionRequest(question.request_id)
            case PermissionOption(option_id=option_id) if decision in question.options:
                return AnswerPermissionRequest(question.request_id, option_id=option_id)
            case "allow_once" | "allow_always" | "reject_once" | "reject_always":
                return AnswerPermissionRequest(question.request_id, decision)
            case _:
                return refusal

    async def _elicitation(self, question: CreateElicitation) -> AnswerElicitation:
        elicit = self._config.elicit
        if elicit is None:
            return AnswerElicitation(question.request_id, "decline")
        try:
            async with asyncio.timeout(self._config.permission_timeout):
                filled = elicit(question)
                if inspect.isawaitable(filled):
                    filled = await filled
        except Exception:  # as above
            return AnswerElicitation(question.request_id, "cancel")
        if filled is None:
            return AnswerElicitation(question.request_id, "decline")
        return AnswerElicitation(question.request_id, "accept", dict(filled))

    async def _serve(self, question: AgentRequest) -> Command:
        try:
            return AnswerRequest(question.request_id, await self._served(question))
        except FileNotFoundError:
            if isinstance(question, ReadTextFile) and self._profile.missing_files_are_empty:
                return AnswerRequest(question.request_id, {"content": ""})
            return RefuseRequest(question.request_id, "Resource not found", RESOURCE_NOT_FOUND)
        except UnknownTerminal as error:
            return RefuseRequest(question.request_id, str(error), RESOURCE_NOT_FOUND)
        except Exception as error:  # the agent is told; a failing file or command is no reason to end the session
            return RefuseRequest(question.request_id, str(error) or type(error).__name__)

    async def _served(self, question: AgentRequest) -> dict[str, Any]:
        match question:
            case ReadTextFile(path=path, line=line, limit=limit):
                return {"content": await asyncio.to_thread(self._workspace.read, path, line, limit)}
            case WriteTextFile(path=path, content=content):
                await asyncio.to_thread(self._workspace.write, path, content)
                return {}
            case CreateTerminal(cwd=cwd):
                place = str(self._workspace.locate(cwd)) if cwd else self._cwd
                return {"terminalId": await self._terminals.create(question, place, self._base_env)}
            case TerminalOutput(terminal_id=terminal_id):
                return self._terminals[terminal_id].output()
            case WaitForTerminalExit(terminal_id=terminal_id):
                return await self._terminals[terminal_id].ended()
            case KillTerminal(terminal_id=terminal_id):
                self._terminals[terminal_id].kill()
                return {}
            case ReleaseTerminal(terminal_id=terminal_id):
                await self._terminals.release(terminal_id)
                return {}
            case _:
                raise OutsideWorkspace(f"cannot serve {type(question).__name__} (code {METHOD_NOT_FOUND})")


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


class OutsideWorkspace(Exception):
    """The path, with links followed, is in none of the session's folders."""


class ServedFiles:
    def __init__(self, roots: Sequence[str]) -> None:
        self._roots = [Path(root).resolve() for root in roots]

    def locate(self, path: str) -> Path:
        """The real file behind ``path``. Raises :class:`OutsideWorkspace`."""
        place = Path(os.path.join(self._roots[0], path)).resolve()  # noqa: PTH118 (an absolute path replaces the root)
        if not any(place == root or root in place.parents for root in self._roots):
            raise OutsideWorkspace(f"{path} is outside the workspace {self._roots[0]}")
        return place

    def read(self, path: str, line: int | None = None, limit: int | None = None) -> str:
        """The text from ``line`` (counted from 1), at most ``limit`` lines of it."""
        text = self.locate(path).read_bytes().decode("utf-8", "replace")
        if line is None and limit is None:
            return text
        first = max(0, (line or 1) - 1)
        lines = text.splitlines(keepends=True)
        return "".join(lines[first:] if limit is None else lines[first : first + limit])

    def write(self, path: str, content: str) -> None:
        place = self.locate(path)
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(content.encode("utf-8", "replace"))
