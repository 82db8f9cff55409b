"""A user's own commands around the calls of an agent: one that decides before, one that is told after.

Each is started for one call, under a guard and a bound, with the call as one JSON object on its standard input.
``before`` answers on its standard output: ``{"decision": "allow" | "deny" | "ask", "message", "updatedInput"}``, or one
of the three words. ``ask``: as if there were no hook. Whatever goes wrong is a no: it ends with another code than 0,
says something else, or is not done in time.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import msgspec

from ..errors import BadRequest, LaunchError
from ..transports.programs import ProgramOverdue, run_program
from ..transports.tasks import TaskOwner
from ..unified.decisions import Allow, Decision, Deny
from ..unified.events import Event, Notice, PermissionRequest, ToolResult, ToolUse

MOST_OUTPUT = 1 << 20
WAITING = 1000
"""Results that wait for their hook; more are not told, and a notice says so."""
FINISH_WITHIN = 10.0


class HookAnswer(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    decision: Literal["allow", "deny", "ask"]
    message: str = ""
    updated_input: dict[str, Any] | None = None


class ToolHooks:
    """``before`` and ``after`` are commands, as words; empty: there is none."""

    def __init__(
        self,
        before: Sequence[str],
        after: Sequence[str],
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
        self._head = {"agent": agent, "sessionId": session_id, "cwd": cwd}
        self._env = env
        self._timeout = timeout
        self._emit = emit
        self._calls: dict[str, ToolUse] = {}
        self._results: list[ToolResult] = []
        self._tasks = TaskOwner()
        self._is_failing = False

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
            answer = _answer(await self._run(self._before, call))
        except _HookFailed as fault:
            return Deny(f"the hook beforeToolCall {fault}, so the call was refused")
        if answer.decision == "ask":
            return None
        if answer.decision == "deny":
            return Deny(answer.message or "refused by the hook beforeToolCall")
        return Allow(updated_input=answer.updated_input)

    def observe(self, event: Event) -> None:
        """Tell ``after`` of a call that is over; nobody waits for it, and they are told one after the other."""
        if not self._after:
            return
        if isinstance(event, ToolUse):
            self._calls[event.tool_use_id] = event
        if not isinstance(event, ToolResult):
            return
        if len(self._results) >= WAITING:
            self._complain(f"is {WAITING} calls behind; the next ones are left out")
            return
        self._results.append(event)
        if not len(self._tasks):
            self._tasks.start(self._tell())

    async def finish(self) -> None:
        """Wait for what is still being told, for a moment."""
        await self._tasks.finish(FINISH_WITHIN)
        await self._tasks.close()

    async def _tell(self) -> None:
        while self._results:
            result = self._results.pop(0)
            use = self._calls.pop(result.tool_use_id, None)
            call = {
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
            try:
                await self._run(self._after, call)
            except _HookFailed as fault:
                self._complain(str(fault))

    def _complain(self, why: str) -> None:
        if not self._is_failing:
            self._is_failing = True
            self._emit(Notice(level="warning", code="hook_failed", message=f"the hook afterToolCall {why}"))

    async def _run(self, argv: Sequence[str], call: Mapping[str, Any]) -> bytes:
        try:
            done = await run_program(
                argv,
                cwd=str(Path(argv[0]).parent),
                env=self._env,
                timeout=self._timeout,
                content=msgspec.json.encode(call) + b"\n",
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


def command(words: Sequence[str], workspace: str) -> list[str]:
    """``words`` with the whole path of their program. Raises ``BadRequest`` where there is none, or where the agent
    could change it."""
    program = shutil.which(os.path.expanduser(words[0]))  # noqa: PTH111
    if program is None:
        raise BadRequest(f"the hook {words[0]!r} is not a program that can be run; give its path, and chmod +x it")
    ground = os.path.realpath(workspace)
    for word in (str(Path(program).absolute()), *words[1:]):  # a script that an interpreter is given runs as well
        place = os.path.expanduser(word)  # noqa: PTH111
        if os.path.isabs(place) and Path(os.path.realpath(place)).is_relative_to(ground):  # noqa: PTH117
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
