"""The caller's functions that answer Claude Code's questions: permissions, hooks, tools in this process.

Each question is answered in its own task, so a person who takes an hour to decide holds up neither the reader nor
the other questions. Whatever goes wrong is a refusal.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import os
import shutil
import sys
import tempfile
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, cast

import msgspec

from ...errors import AlreadyAnswered, NotSupported, ProcessExited
from ...mcp.functions import ToolContext
from ...mcp.protocol import ToolCall
from ...transports.callbacks import CallbackLate, run_callback
from ...transports.tasks import TaskOwner
from ...wire.permission import PermissionBehavior
from ...wire.stamps import Stamp
from . import permission_server
from .commands import (
    AnswerCanUseTool,
    AnswerControlRequest,
    AnswerHook,
    AnswerMcp,
    Decision,
    PermissionResultAllow,
    PermissionResultDeny,
    RefuseControlRequest,
    Reply,
)
from .commands import decision as decision_of
from .config import ClaudeSessionConfig, HookFunction
from .events import CanUseTool, Elicitation, HookCallback, McpMessage, Question, RequestUserDialog
from .launch import hook_id
from .protocol import permission_body

NO_ANSWER = "Nobody answered in time, so this call was refused."
NOBODY = "Nobody can allow this call: no permission callback is set."


class ClaudeAnswers:
    """Answers what the config has a function for; the rest stays open for the caller, or is refused."""

    def __init__(self, config: ClaudeSessionConfig, reply: Callable[[Reply], Awaitable[None]]) -> None:
        self._config = config
        self._reply = reply
        self._servers = config.tool_servers()
        self._hooks: dict[str, tuple[HookFunction, float | None]] = {
            hook_id(event, at, n): (function, matcher.timeout)
            for event, matchers in config.hooks.items()
            for at, matcher in enumerate(matchers)
            for n, function in enumerate(matcher.hooks)
        }
        self._remembered: dict[tuple[str, bytes], Decision] = {}
        self._tasks = TaskOwner()

    def start(self, question: Question) -> None:
        """Start answering; returns at once."""
        self._tasks.start(self._serve(question), key=question.request_id)

    def void(self, request_id: str) -> None:
        """The question needs no answer any more."""
        self._tasks.cancel(request_id)

    def void_all(self) -> None:
        self._tasks.cancel_all()

    async def _serve(self, question: Question) -> None:
        try:
            reply = await self._answer(question)
            if reply is not None:
                await self._reply(reply)
        except (AlreadyAnswered, ProcessExited):
            pass  # somebody else was faster, or nobody listens any more: either way nothing was allowed

    async def _answer(self, question: Question) -> Reply | None:
        match question:
            case CanUseTool():
                return await self._permission(question)
            case HookCallback():
                return AnswerHook(question.request_id, await self._hook(question))
            case McpMessage():
                server = self._servers.get(question.server_name)
                if server is None:
                    return RefuseControlRequest(
                        question.request_id, f"MCP server {question.server_name!r} is not registered in this process"
                    )
                return AnswerMcp(question.request_id, await server.respond(bytes(question.message), _called))
            case Elicitation():
                return AnswerControlRequest(question.request_id, await self._elicitation(question))
            case RequestUserDialog():
                return AnswerControlRequest(question.request_id, {"behavior": "cancelled"})

    async def _elicitation(self, question: Elicitation) -> Mapping[str, Any]:
        """An exception, silence and nobody there fill in nothing."""
        function = self._config.elicit
        if function is None:
            return {"action": "decline"}
        try:
            filled = await run_callback(function, question, timeout=self._config.permission_timeout)
        except Exception:
            return {"action": "cancel"}
        return {"action": "decline"} if filled is None else {"action": "accept", "content": dict(filled)}

    async def _permission(self, question: CanUseTool) -> Reply | None:
        if self._config.can_use_tool is not None or not self._config.host_answers_permissions:
            return AnswerCanUseTool(question.request_id, await self.decide(question))
        if self._config.permission_timeout is None:
            return None
        await asyncio.sleep(self._config.permission_timeout)
        return AnswerCanUseTool(question.request_id, PermissionResultDeny(NO_ANSWER))

    async def decide(self, question: CanUseTool) -> Decision:
        """The decision of ``can_use_tool``. An exception, a wrong answer and silence are refusals."""
        function = self._config.can_use_tool
        if function is None:
            return PermissionResultDeny(NOBODY)
        call = _identity(question)
        if call in self._remembered:
            return self._remembered[call]
        try:
            decision: object = await run_callback(
                cast("Callable[..., object]", function), question, timeout=self._config.permission_timeout
            )
        except CallbackLate:
            return PermissionResultDeny(NO_ANSWER)
        except Exception as error:
            return PermissionResultDeny(f"The permission callback failed: {type(error).__name__}: {error}")
        if isinstance(decision, PermissionBehavior):
            decision = decision_of(question, decision)
        if not isinstance(decision, (PermissionResultAllow, PermissionResultDeny)):
            kind = type(decision).__name__
            return PermissionResultDeny(f"The permission callback returned {kind}, which is neither allow nor deny.")
        if decision.remember:
            self._remembered[call] = decision
        return decision

    async def _hook(self, question: HookCallback) -> Mapping[str, Any]:
        function, timeout = self._hooks.get(question.callback_id, (None, None))
        if function is None:
            return {}
        try:
            output: object = await run_callback(function, question, timeout=timeout)
            return msgspec.json.decode(msgspec.json.encode(output or {}), type=dict[str, Any])
        except CallbackLate:
            return _failed_hook(question, f"the hook did not answer within {timeout:g} s")
        except Exception as error:
            return _failed_hook(question, f"the hook failed: {type(error).__name__}: {error}")


async def _called(call: ToolCall) -> object:
    context = ToolContext(tool=call.tool.name, arguments=call.arguments)
    return await run_callback(call.tool.bound(call.arguments, context))


def _identity(question: CanUseTool) -> tuple[str, bytes]:
    """What makes two calls the same. The description of a command is the model's chatter, not part of it."""
    essence = {name: value for name, value in question.input.items() if name != "description"}
    return question.tool_name, msgspec.json.encode(essence, order="sorted")


def _failed_hook(question: HookCallback, why: str) -> Mapping[str, Any]:
    if question.input.get("hook_event_name") != "PreToolUse":
        return {}
    return {
        "hookSpecificOutput": {
            "hookEventName": "PreToolUse",
            "permissionDecision": "deny",
            "permissionDecisionReason": why,
        }
    }


# ------------------------------------------------------------------ questions that come through the permission server


class Delegate:
    """Our end of the permission server: a private socket on which ``can_use_tool`` is asked. Made by :meth:`open`.

    ``entry`` is the MCP server that Claude Code must start.
    """

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._server: asyncio.Server | None = None
        self._tasks = TaskOwner()
        self._count = 0
        self.decide: Callable[[CanUseTool], Awaitable[Decision]] | None = None
        self.stamp: Callable[[], Stamp] = Stamp

    @classmethod
    async def open(cls) -> Delegate:
        """Raises ``NotSupported`` when the ``mcp`` package is missing."""
        if importlib.util.find_spec("mcp") is None:
            raise NotSupported(
                "permission_mode delegate needs the package mcp, which is not installed: run pip install mcp, "
                "or use can_use_tool without delegate"
            )
        # A folder readable by this user only; the name of a socket may have no more than some 100 bytes.
        where = tempfile.gettempdir() if len(os.fsencode(tempfile.gettempdir())) < 70 else "/tmp"
        delegate = cls(tempfile.mkdtemp(prefix="stagedoor-", dir=where))
        delegate._server = await asyncio.start_unix_server(
            delegate._start, delegate._path, limit=permission_server.LINE_LIMIT
        )
        return delegate

    @property
    def _path(self) -> str:
        return f"{self._folder}/permissions"

    @property
    def entry(self) -> dict[str, Any]:
        return {"type": "stdio", "command": sys.executable, "args": ["-P", permission_server.__file__, self._path]}

    def close(self) -> None:
        """Open questions are refused by the closing of their connection."""
        if self._server is not None:
            self._server.close()
        self._tasks.cancel_all()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _start(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._tasks.start(self._serve(reader, writer))

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            line = await reader.readline()
            answer = self._tasks.start(self._answer(line))
            hang_up = self._tasks.start(reader.read())  # Claude Code takes its question back by hanging up
            try:
                await asyncio.wait([answer, hang_up], return_when=asyncio.FIRST_COMPLETED)
                if answer.done():
                    writer.write(msgspec.json.encode(answer.result()) + b"\n")
                    with contextlib.suppress(OSError):
                        await writer.drain()
            finally:
                answer.cancel()
                hang_up.cancel()
        finally:  # also when the session ends: closing the connection refuses
            writer.close()

    async def _answer(self, line: bytes) -> dict[str, Any]:
        self._count += 1
        try:
            question = msgspec.json.decode(line, type=CanUseTool)
        except msgspec.DecodeError as error:
            return {"behavior": "deny", "message": f"The question could not be read: {error}"}
        question = msgspec.structs.replace(question, request_id=f"mcp_{self._count}", stamp=self.stamp())
        decision = PermissionResultDeny(NOBODY) if self.decide is None else await self.decide(question)
        return permission_body(decision, question)
