"""The caller's own functions, run to answer Claude Code's questions: permissions, hooks, tools in this process.

Each question runs as its own task and plain functions run in their own thread, so a person who takes an hour to decide
holds up neither the reader nor the other questions. Whatever goes wrong is a refusal.
"""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import msgspec

from ...errors import AlreadyAnswered, ProcessExited
from .commands import Allow, Answer, AnswerHook, AnswerMcp, AnswerPermission, Decision, Deny, Refuse, Reply
from .config import ClaudeSessionConfig, HookFunction
from .launch import hook_id
from .requests import CanUseTool, Elicitation, HookCallback, McpMessage, Question, RequestUserDialog


class Answering:
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
        self._tasks: dict[str, asyncio.Task[None]] = {}

    def ask(self, question: Question) -> None:
        """Start answering; returns at once."""
        task = asyncio.get_running_loop().create_task(self._answered(question))
        self._tasks[question.request_id] = task
        task.add_done_callback(lambda _: self._tasks.pop(question.request_id, None))

    def void(self, request_id: str) -> None:
        """The question needs no answer any more."""
        task = self._tasks.pop(request_id, None)
        if task is not None:
            task.cancel()

    def void_all(self) -> None:
        for request_id in list(self._tasks):
            self.void(request_id)

    async def _answered(self, question: Question) -> None:
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
                    return Refuse(
                        question.request_id, f"there is no MCP server {question.server_name!r} in this process"
                    )
                return AnswerMcp(question.request_id, await server.respond(bytes(question.message), run))
            case Elicitation():
                return Answer(question.request_id, {"action": "decline"})
            case RequestUserDialog():
                return Answer(question.request_id, {"behavior": "cancelled"})

    async def _permission(self, question: CanUseTool) -> Reply | None:
        if self._config.can_use_tool is not None:
            return AnswerPermission(question.request_id, await self.decide(question))
        if not self._config.host_answers_permissions:
            return AnswerPermission(question.request_id, Deny("Nobody is there to allow this call."))
        if self._config.permission_timeout is None:
            return None
        await asyncio.sleep(self._config.permission_timeout)
        return AnswerPermission(question.request_id, Deny(NO_ANSWER))

    async def decide(self, question: CanUseTool) -> Decision:
        """What ``can_use_tool`` says. An exception, a wrong answer and silence are refusals."""
        call = _call(question)
        if call in self._remembered:
            return self._remembered[call]
        function = self._config.can_use_tool
        if function is None:
            return Deny("Nobody is there to allow this call.")
        try:
            async with asyncio.timeout(self._config.permission_timeout):
                decision: object = await run(lambda: function(question), blocking=not _is_async(function))
        except TimeoutError:
            return Deny(NO_ANSWER)
        except Exception as error:
            return Deny(f"The permission callback failed: {type(error).__name__}: {error}")
        if not isinstance(decision, (Allow, Deny)):
            return Deny(f"The permission callback gave {type(decision).__name__}, neither Allow nor Deny.")
        if decision.remember:
            self._remembered[call] = decision
        return decision

    async def _hook(self, question: HookCallback) -> Mapping[str, Any]:
        function, timeout = self._hooks.get(question.callback_id, (None, None))
        if function is None:
            return {}
        try:
            async with asyncio.timeout(timeout):
                output = await run(lambda: function(question), blocking=not _is_async(function))
            return msgspec.json.decode(msgspec.json.encode(output or {}), type=dict[str, Any])
        except TimeoutError:
            return _failed_hook(question, f"the hook gave no answer within {timeout:g} s")
        except Exception as error:
            return _failed_hook(question, f"the hook failed: {type(error).__name__}: {error}")


def _call(question: CanUseTool) -> tuple[str, bytes]:
    """What makes two calls the same. The description of a command is the model's chatter, not part of it."""
    essence = {name: value for name, value in question.input.items() if name != "description"}
    return question.tool_name, msgspec.json.encode(essence, order="sorted")


NO_ANSWER = "Nobody answered in time, so this call was refused."


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


def _is_async(function: Callable[..., Any]) -> bool:
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(getattr(function, "__call__", None))  # noqa: B004


async def run(call: Callable[[], Any], *, blocking: bool = True) -> Any:
    """Make the call, in a thread of its own if it may block, and wait for what it gives."""
    outcome = await _in_thread(call) if blocking else call()
    return await outcome if inspect.isawaitable(outcome) else outcome


async def _in_thread(call: Callable[[], Any]) -> Any:
    """Not the loop's own threads: those are few, and the loop would wait at its end for a person who never answers."""
    loop = asyncio.get_running_loop()
    done: asyncio.Future[Any] = loop.create_future()

    def settle(outcome: Any, error: BaseException | None) -> None:
        if done.done():
            return
        if error is None:
            done.set_result(outcome)
        else:
            done.set_exception(error)

    def work() -> None:
        outcome, failure = None, None
        try:
            outcome = call()
        except BaseException as error:
            failure = error if isinstance(error, Exception) else RuntimeError(f"{type(error).__name__}: {error}")
        if not loop.is_closed():
            loop.call_soon_threadsafe(settle, outcome, failure)

    threading.Thread(target=work, name="stagedoor-callback", daemon=True).start()
    return await done
