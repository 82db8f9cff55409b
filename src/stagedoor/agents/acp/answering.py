"""Answers the agent's questions in one session, each in a task of its own, so that none waits for another."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from stagedoor.wire.jsonrpc import METHOD_NOT_FOUND, Id

from .commands import Answer, AnswerElicitation, AnswerPermission, Command, Refuse
from .config import AcpConfig
from .profile import AcpProfile
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
from .terminals import Terminals, UnknownTerminal
from .workspace import OutsideWorkspace, Workspace

RESOURCE_NOT_FOUND = -32002


class Answering:
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
        self._workspace = Workspace([cwd, *config.additional_directories])
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

    async def _permission(self, question: RequestPermission) -> AnswerPermission:
        decide = self._config.request_permission
        refusal = AnswerPermission(question.request_id, "reject_once")
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
                return AnswerPermission(question.request_id)
            case PermissionOption(option_id=option_id) if decision in question.options:
                return AnswerPermission(question.request_id, option_id=option_id)
            case "allow_once" | "allow_always" | "reject_once" | "reject_always":
                return AnswerPermission(question.request_id, decision)
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
            return Answer(question.request_id, await self._served(question))
        except FileNotFoundError:
            if isinstance(question, ReadTextFile) and self._profile.missing_files_are_empty:
                return Answer(question.request_id, {"content": ""})
            return Refuse(question.request_id, "Resource not found", RESOURCE_NOT_FOUND)
        except UnknownTerminal as error:
            return Refuse(question.request_id, str(error), RESOURCE_NOT_FOUND)
        except Exception as error:  # the agent is told; a failing file or command is no reason to end the session
            return Refuse(question.request_id, str(error) or type(error).__name__)

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
