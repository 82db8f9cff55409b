"""Answers what the agent asks in one session: permissions, forms, files, terminals.

Each question has its own task, so that none waits for another.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import shlex
import signal
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import replace

from stagedoor.transports.callbacks import run_callback
from stagedoor.transports.launch import SCRATCH, Launch, Signal
from stagedoor.transports.process import ChildProcess
from stagedoor.transports.tasks import TaskOwner
from stagedoor.wire.jsonrpc import Id
from stagedoor.wire.permission import PermissionBehavior

from .commands import AnswerElicitation, AnswerPermissionRequest, AnswerRequest, Command, RefuseRequest
from .config import AcpProfile, AcpSessionConfig, AnsweredQuestion, ServedRequest
from .events import FileServed, TerminalServed
from .hosted import HostedTerminal, HostRefused, read_hosted, write_hosted
from .requests import (
    AgentRequest,
    CreateElicitation,
    CreateTerminal,
    KillTerminal,
    PermissionKind,
    PermissionOption,
    ReadTextFile,
    ReleaseTerminal,
    RequestPermission,
    TerminalOutput,
    WaitForTerminalExit,
    WriteTextFile,
)

RESOURCE_NOT_FOUND = -32002
BEHAVIORS: dict[PermissionBehavior, PermissionKind] = {
    PermissionBehavior.allow: "allow_once",
    PermissionBehavior.allow_always: "allow_always",
    PermissionBehavior.deny: "reject_once",
    PermissionBehavior.deny_always: "reject_always",
}


def call_identity(question: RequestPermission) -> bytes:
    """What a question is about, without what differs each time it is asked."""
    call = question.tool_call
    return msgspec.json.encode(
        [call.kind, call.title, call.raw_input, call.content, call.locations], enc_hook=repr, order="deterministic"
    )


class AcpAnswers:
    """``reply`` sends one answer and must refuse quietly when the question was closed in the meantime."""

    def __init__(
        self,
        config: AcpSessionConfig,
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
        self._files = ServedFiles([cwd, *config.add_dirs], anywhere=config.authorize is not None)
        self._terminals = Terminals()
        self._remembered: dict[bytes, PermissionKind] = {}
        self._tasks = TaskOwner()
        self.report: Callable[[FileServed | TerminalServed], None] = lambda event: None
        """Told what became of what we served; set by the connection."""

    def ask(self, question: AgentRequest) -> None:
        self._tasks.start(self._answer(question), key=question.request_id)

    def withdraw(self, request_id: Id) -> None:
        """Nobody waits for this answer any more."""
        self._tasks.cancel(request_id)

    async def close(self) -> None:
        """Stop answering; everything started for the agent is ended."""
        await self._tasks.close()
        await self._terminals.release_all()

    def abandon(self) -> None:
        self._terminals.abandon()

    async def _answer(self, question: AgentRequest) -> None:
        match question:
            case RequestPermission():
                answer: Command = await self._permission(question)
            case CreateElicitation():
                answer = await self._elicitation(question)
            case _:
                answer = await self._service(question)
        await self._reply(answer)

    async def _permission(self, question: RequestPermission) -> AnswerPermissionRequest:
        decide = self._config.can_use_tool
        refusal = AnswerPermissionRequest(question.request_id, "reject_once")
        if decide is None:
            return refusal
        call = call_identity(question)
        if call in self._remembered:
            return AnswerPermissionRequest(question.request_id, self._remembered[call])
        try:
            decision = await run_callback(decide, question, timeout=self._config.permission_timeout)
        except Exception:  # a broken or late callback must not let anything through, nor leave the agent waiting
            return refusal
        match decision:
            case None:
                return AnswerPermissionRequest(question.request_id)
            case PermissionOption(option_id=option_id) if decision in question.options:
                return AnswerPermissionRequest(question.request_id, option_id=option_id)
            case AnsweredQuestion(option=option, answers=answers) if option in question.options:
                return AnswerPermissionRequest(question.request_id, option_id=option.option_id, answers=answers)
            case "allow_once" | "allow_always" | "reject_once" | "reject_always":
                return AnswerPermissionRequest(question.request_id, decision)
            case PermissionBehavior():
                kind = BEHAVIORS[decision]
                # Not every agent offers an answer that lasts. A yes is kept only for a call that says what it will do.
                says = bool(question.tool_call.raw_input or question.tool_call.content)
                if decision is PermissionBehavior.deny_always or (decision is PermissionBehavior.allow_always and says):
                    self._remembered[call] = kind
                return AnswerPermissionRequest(question.request_id, kind)
            case _:
                return refusal

    async def _elicitation(self, question: CreateElicitation) -> AnswerElicitation:
        elicit = self._config.elicit
        if elicit is None:
            return AnswerElicitation(question.request_id, "decline")
        try:
            filled = await run_callback(elicit, question, timeout=self._config.permission_timeout)
        except Exception:  # as above
            return AnswerElicitation(question.request_id, "cancel")
        if filled is None:
            return AnswerElicitation(question.request_id, "decline")
        return AnswerElicitation(question.request_id, "accept", dict(filled))

    async def _service(self, question: AgentRequest) -> Command:
        try:
            answer, failed = await self._served(question), True
        except (NotServed, OutsideWorkspace, HostRefused) as refused:
            answer, failed = RefuseRequest(question.request_id, str(refused) or "not allowed"), False
        refusal = answer.message if isinstance(answer, RefuseRequest) else ""
        match question:
            case ReadTextFile() | WriteTextFile():
                self.report(FileServed(question, refusal, failed=failed and bool(refusal)))
            case CreateTerminal() if refusal:
                self.report(TerminalServed(question, refusal=refusal, failed=failed))
            case _:
                pass
        return answer

    async def _served(self, question: AgentRequest) -> AnswerRequest | RefuseRequest:
        try:
            return AnswerRequest(question.request_id, await self._result(question))
        except FileNotFoundError:
            if isinstance(question, ReadTextFile) and self._profile.missing_files_are_empty:
                return AnswerRequest(question.request_id, {"content": ""})
            return RefuseRequest(question.request_id, "Resource not found", RESOURCE_NOT_FOUND)
        except UnknownTerminal as error:
            return RefuseRequest(question.request_id, str(error), RESOURCE_NOT_FOUND)
        except (NotServed, OutsideWorkspace, HostRefused):
            raise
        except (
            Exception
        ) as error:  # the agent gets it as an answer; a failing file or command is no reason to end the session
            return RefuseRequest(question.request_id, str(error) or type(error).__name__)

    async def _result(self, question: AgentRequest) -> dict[str, Any]:
        match question:
            case ReadTextFile(path=path, line=line, limit=limit):
                place = await asyncio.to_thread(self._files.locate, path)
                await self._authorize(replace(question, path=str(place)))
                text = await read_hosted(self._config.host, str(place), line, limit)
                return {
                    "content": await asyncio.to_thread(self._files.read, place, line, limit) if text is None else text
                }
            case WriteTextFile(path=path, content=content):
                place = await asyncio.to_thread(self._files.locate, path)
                await self._authorize(replace(question, path=str(place)))
                await asyncio.to_thread(self._files.check, place)
                if not await write_hosted(self._config.host, str(place), content):
                    await asyncio.to_thread(self._files.write, place, content)
                return {}
            case CreateTerminal(cwd=cwd):
                folder = str(self._files.locate(cwd, everywhere=False)) if cwd else self._cwd
                await self._authorize(question)
                terminal: Terminal | HostedTerminal | None
                terminal = await HostedTerminal.start(self._config.host, argv_of(question), question, folder)
                if terminal is None:
                    terminal = await Terminal.start(question, folder, self._base_env)
                terminal_id = self._terminals.add(terminal)
                self._tasks.start(self._watch(question, terminal_id, terminal))
                return {"terminalId": terminal_id}
            case TerminalOutput(terminal_id=terminal_id):
                return await self._terminals[terminal_id].output()
            case WaitForTerminalExit(terminal_id=terminal_id):
                return await self._terminals[terminal_id].exit_status()
            case KillTerminal(terminal_id=terminal_id):
                await self._terminals[terminal_id].kill()
                return {}
            case ReleaseTerminal(terminal_id=terminal_id):
                await self._terminals.release(terminal_id)
                return {}
            case _:
                raise NotImplementedError(f"{type(question).__name__} is not supported")

    async def _authorize(self, question: ServedRequest) -> None:
        """Raises ``NotServed``. A callback that is broken lets nothing through."""
        if self._config.authorize is None:
            return
        try:
            refusal: str = await run_callback(self._config.authorize, question, timeout=None)
        except Exception as fault:
            refusal = f"it could not be decided: {fault}"
        if refusal != "":
            raise NotServed(refusal or "not allowed")

    async def _watch(self, question: CreateTerminal, terminal_id: str, terminal: Terminal | HostedTerminal) -> None:
        """Report a command's end before the agent can know of it."""
        try:
            code = await terminal.wait()
            output = (await terminal.output())["output"]
            self.report(TerminalServed(question, terminal_id, output, code))
        except HostRefused as fault:
            self.report(TerminalServed(question, terminal_id, str(fault), LOST))
        finally:
            terminal.ended.set()


class NotServed(Exception):
    """The rules of the session do not allow it."""


OUTPUT_LIMIT = 2**20
LOST = 1
"""The exit code of a command whose end nobody can tell."""
TO_A_FILE = 'exec "$@" >"$0" 2>&1'


class UnknownTerminal(Exception):
    """No terminal has that id, or it was released."""


class Terminal:
    """A command whose output goes to a private file: nobody has to read it while it runs, and nothing is lost."""

    def __init__(self, process: ChildProcess, limit: int) -> None:
        self.process = process
        self.ended = asyncio.Event()
        """It is over, and that was reported."""
        self._output = Path(process.scratch) / "output"
        self._limit = limit

    @classmethod
    async def start(cls, request: CreateTerminal, cwd: str, base_env: Mapping[str, str] | None) -> Terminal:
        launch = Launch(
            argv=("/bin/sh", "-c", TO_A_FILE, f"{SCRATCH}/output", *argv_of(request)),
            cwd=cwd,
            env={variable.name: variable.value for variable in request.env or ()},
            stdin="null",
            files={"output": b""},
            stop=(Signal(signal.SIGTERM, 1.0, group=True),),
        )
        limit = OUTPUT_LIMIT if request.output_byte_limit is None else max(0, request.output_byte_limit)
        return cls(await ChildProcess.start(launch, base_env=base_env), limit)

    async def wait(self) -> int:
        return await self.process.wait()

    async def output(self) -> dict[str, Any]:
        """As ``terminal/output`` answers: the end of the output is kept, cut at a character."""
        whole = await asyncio.to_thread(self._output.read_bytes)
        end = whole[len(whole) - self._limit :] if len(whole) > self._limit else whole
        while len(end) < len(whole) and end and end[0] & 0xC0 == 0x80:
            end = end[1:]
        answer: dict[str, Any] = {"output": end.decode("utf-8", "replace"), "truncated": len(end) < len(whole)}
        if self.process.code is not None and self.ended.is_set():
            answer["exitStatus"] = _status(self.process.code)
        return answer

    async def exit_status(self) -> dict[str, Any]:
        code = await self.process.wait()
        await self.ended.wait()
        return _status(code)

    async def kill(self) -> None:
        self.process.signal(signal.SIGKILL, group=True)

    async def release(self) -> None:
        await self.process.stop()

    def abandon(self) -> None:
        self.process.abandon()


def argv_of(request: CreateTerminal) -> list[str]:
    """The command in words. One that is a script in a single word is one for a shell, which reads it as it is shown."""
    if not request.args and shlex.quote(request.command) != request.command:
        return ["/bin/sh", "-c", request.command]
    return [request.command, *(request.args or ())]


class Terminals:
    """The terminals of one session."""

    def __init__(self) -> None:
        self._open: dict[str, Terminal | HostedTerminal] = {}
        self._count = 0

    def __getitem__(self, terminal_id: str) -> Terminal | HostedTerminal:
        try:
            return self._open[terminal_id]
        except KeyError:
            raise UnknownTerminal(f"terminal {terminal_id!r} not found") from None

    def add(self, terminal: Terminal | HostedTerminal) -> str:
        self._count += 1
        terminal_id = f"terminal-{self._count}"
        self._open[terminal_id] = terminal
        return terminal_id

    async def release(self, terminal_id: str) -> None:
        terminal = self[terminal_id]
        del self._open[terminal_id]
        await terminal.release()

    async def release_all(self) -> None:
        while self._open:
            with contextlib.suppress(HostRefused):
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
    """``anywhere``: somebody else decides about each file, so none is out of reach."""

    def __init__(self, roots: Sequence[str], *, anywhere: bool = False) -> None:
        self._roots = [Path(root).resolve() for root in roots]
        self._anywhere = anywhere

    def locate(self, path: str, *, everywhere: bool = True) -> Path:
        """The real file behind ``path``. Raises :class:`OutsideWorkspace`."""
        place = Path(os.path.join(self._roots[0], path)).resolve()  # noqa: PTH118 (an absolute path replaces the root)
        free = self._anywhere and everywhere
        if not free and not any(place == root or root in place.parents for root in self._roots):
            raise OutsideWorkspace(f"{path} is outside the workspace {self._roots[0]}")
        return place

    def read(self, place: Path, line: int | None = None, limit: int | None = None) -> str:
        """The text from ``line`` (counted from 1), at most ``limit`` lines of it."""
        text = place.read_bytes().decode("utf-8", "replace")
        if line is None and limit is None:
            return text
        first = max(0, (line or 1) - 1)
        lines = re.findall(r"[^\n]*\n|[^\n]+", text)  # U+2028 and its like end no line, for editors neither
        return "".join(lines[first:] if limit is None else lines[first : first + limit])

    def check(self, place: Path) -> None:
        if place.resolve() != place:  # a link was put there while it was decided
            raise OutsideWorkspace(f"{place} is no longer the file that was asked about")

    def write(self, place: Path, content: str) -> None:
        self.check(place)
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(content.encode("utf-8", "replace"))
