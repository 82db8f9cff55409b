"""A user's own commands in a session: one that decides before a call, one that is told after it, and others that are
told of events, by type.

Each is started for one call or event, under a guard and a bound, with it as one JSON object on its standard input.
``before`` answers on its standard output: ``{"decision": "allow" | "deny" | "ask", "message", "updatedInput"}``, or one
of the three words. ``ask``: as if there were no hook. Whatever goes wrong is a no: it ends with another code than 0,
says something else, or is not done in time.
"""

from __future__ import annotations

import asyncio
import os
import shutil
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import msgspec

from ..errors import BadRequest, LaunchError
from ..machine.names import is_beneath
from ..transports.programs import ProgramOverdue, run_program
from ..transports.tasks import TaskOwner
from ..unified.decisions import Allow, Decision, Deny
from ..unified.events import Event, Notice, PermissionRequest, ToolResult, ToolUse, encode

MOST_OUTPUT = 1 << 20
WAITING = 1000
"""What waits for its hook; more is not told, and a notice says so."""
FINISH_WITHIN = 10.0
_FAILED = "hook_failed"


class HookAnswer(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    decision: Literal["allow", "deny", "ask"]
    message: str = ""
    updated_input: dict[str, Any] | None = None


class SessionHooks:
    """``before`` and ``after`` are commands, as words; empty: there is none. ``on_event``: type of event → command."""

    def __init__(
        self,
        before: Sequence[str],
        after: Sequence[str],
        on_event: Mapping[str, Sequence[str]],
        *,
        cwd: str,
        agent: str,
        session_id: str,
        env: Mapping[str, str],
        timeout: float,
        emit: Callable[[Event], None],
    ) -> None:
        self._before = command(before, cwd) if before else []
        self._after = command(after, cwd) if after else []
        self._on_event = {kind: command(words, cwd) for kind, words in on_event.items()}
        self._head = {"agent": agent, "sessionId": session_id, "cwd": cwd}
        self._env = env
        self._timeout = timeout
        self._emit = emit
        self._calls: dict[str, ToolUse] = {}
        self._waiting: deque[tuple[str, Sequence[str], bytes]] = deque()
        self._tasks = TaskOwner()
        self._is_telling = False
        self._failing: set[str] = set()

    async def decide(self, request: PermissionRequest) -> Decision | None:
        """What ``before`` decides; ``None``: somebody else must."""
        if not self._before:
            return None
        call = {
            "hook": "beforeToolCall",
            **self._head,
            "requestId": request.request_id,
            "toolId": request.tool_use_id,
            "toolName": request.tool_name,
            "toolNameNative": request.native_name,
            "operation": request.operation,
            "target": request.target,
            "riskLevel": request.risk,
            "arguments": request.input,
            "description": request.description,
        }
        try:
            answer = _answer(await self._run(self._before, msgspec.json.encode(call)))
        except _HookFailed as fault:
            return Deny(f"the hook beforeToolCall {fault}, so the call was refused")
        if answer.decision == "ask":
            return None
        if answer.decision == "deny":
            return Deny(answer.message or "refused by the hook beforeToolCall")
        return Allow(updated_input=answer.updated_input)

    def observe(self, event: Event) -> None:
        """Tell ``after`` of a call that is over, and the others of their events; nobody waits for them, and they are
        told one after the other."""
        if self._after:
            if isinstance(event, ToolUse):
                self._calls[event.tool_use_id] = event
            elif isinstance(event, ToolResult):
                self._queue("afterToolCall", self._after, msgspec.json.encode(self._result(event)))
        if (words := self._on_event.get(event.type)) is not None and not _is_ours(event):
            message = {"hook": "onEvent", **self._head, "event": msgspec.Raw(encode(event))}
            self._queue(f"onEvent {event.type}", words, msgspec.json.encode(message))

    async def finish(self) -> None:
        """Wait for what is still being told, for a moment."""
        await self._tasks.finish(FINISH_WITHIN)
        await self._tasks.close()

    def _queue(self, name: str, words: Sequence[str], content: bytes) -> None:
        if len(self._waiting) >= WAITING:
            self._complain(name, f"is {WAITING} behind; the next ones are left out")
            return
        self._waiting.append((name, words, content))
        if not self._is_telling:
            self._is_telling = True
            self._tasks.start(self._tell())

    async def _tell(self) -> None:
        while self._waiting:
            name, words, content = self._waiting.popleft()
            try:
                await self._run(words, content)
            except _HookFailed as fault:
                self._complain(name, str(fault))
        self._is_telling = False  # in the same step that found nothing more

    def _result(self, result: ToolResult) -> dict[str, Any]:
        use = self._calls.pop(result.tool_use_id, None)
        return {
            "hook": "afterToolCall",
            **self._head,
            "toolId": result.tool_use_id,
            "toolName": result.name,
            "toolNameNative": "" if use is None else use.native_name,
            "operation": "other" if use is None else use.operation,
            "target": "" if use is None else use.target,
            "arguments": {} if use is None else use.input,
            "status": result.status,
            "output": result.output,
            "exitCode": result.exit_code,
            "durationMs": result.duration_ms,
        }

    def _complain(self, name: str, why: str) -> None:
        """Once for each."""
        if name not in self._failing:
            self._failing.add(name)
            notice = Notice(level="warning", code=_FAILED, message=f"the hook {name} {why}")
            asyncio.get_running_loop().call_soon(self._emit, notice)  # not among the events that are being told now

    async def _run(self, argv: Sequence[str], content: bytes) -> bytes:
        try:
            done = await run_program(
                argv,
                cwd=str(Path(argv[0]).parent),
                env=self._env,
                timeout=self._timeout,
                content=content + b"\n",
                most=MOST_OUTPUT,
            )
        except ProgramOverdue:
            raise _HookFailed(f"did not answer within {self._timeout:g} s") from None
        except (LaunchError, OSError) as fault:
            raise _HookFailed(f"could not be started: {fault}") from fault
        if done.code or done.cut:
            complaint = done.complaint.decode("utf-8", "replace").strip()[-200:]
            raise _HookFailed(f"ended with code {done.code}" + (f" ({complaint})" if complaint else ""))
        return done.out


class _HookFailed(Exception):
    pass


def _is_ours(event: Event) -> bool:
    """That a hook failed is told to no hook."""
    return isinstance(event, Notice) and event.code == _FAILED


def command(words: Sequence[str], workspace: str) -> list[str]:
    """``words`` with the whole path of their program. Raises ``BadRequest`` where there is none, or where the agent
    could change it."""
    program = shutil.which(os.path.expanduser(words[0]))  # noqa: PTH111
    if program is None:
        raise BadRequest(f"the hook {words[0]!r} is not a program that can be run; give its path, and chmod +x it")
    ground = os.path.realpath(workspace)
    for word in (str(Path(program).absolute()), *words[1:]):  # a script that an interpreter is given runs as well
        place = os.path.expanduser(word)  # noqa: PTH111
        if os.path.isabs(place) and is_beneath(place, ground):  # noqa: PTH117
            raise BadRequest(
                f"the hook {place} lies in the workspace, where the agent could change it; put it somewhere else"
            )
    return [str(Path(program).absolute()), *words[1:]]


def _answer(out: bytes) -> HookAnswer:
    text = out.decode("utf-8", "replace").strip()
    if text in ("allow", "deny", "ask"):
        return HookAnswer(text)  # type: ignore[arg-type]
    try:
        return msgspec.json.decode(text, type=HookAnswer)
    except msgspec.MsgspecError as fault:
        raise _HookFailed(f"gave an answer that is not valid ({fault}): {text[:100]!r}") from None
