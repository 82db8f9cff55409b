"""One turn: which script it plays, and the replies of that, performed until one of them calls no tool."""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from stagedoor.agent_side.link import AgentLink, MethodRefused
from stagedoor.testing.script import (
    ContextOverflow,
    Cut,
    EarlyStop,
    Empty,
    Endless,
    Forever,
    HttpError,
    Part,
    Reply,
    Say,
    Script,
    ScriptedCall,
    Stall,
    StreamError,
    Structured,
    Think,
    ToolOutcome,
    UsageOverride,
    calls_in,
    parts_of,
    say,
)
from stagedoor.transports.tasks import TaskOwner
from stagedoor.wire.jsonrpc import INTERNAL_ERROR, INVALID_PARAMS

from .demo import demo
from .session import UnderstudySession
from .tools import Toolbox, TurnCancelled

CONTEXT = 200_000
STOP_REASONS = {
    "end": "end_turn",
    "max_tokens": "max_tokens",
    "refusal": "refusal",
    "content_filter": "refusal",
}
SCRIPT_OVER = say("The script is over.")


class ScriptUsage(msgspec.Struct):
    """Tokens of a turn."""

    input: int = 0
    output: int = 0
    cached: int = 0
    reasoning: int = 0
    context: int = 0

    def add(self, reply: UsageOverride) -> None:
        self.input += reply.input
        self.output += reply.output
        self.cached += reply.cached
        self.reasoning += reply.reasoning
        self.context = reply.input + reply.output

    def members(self) -> dict[str, int]:
        """As a prompt's response states it."""
        return {
            "inputTokens": self.input - self.cached,
            "outputTokens": self.output,
            "totalTokens": self.input + self.output,
            "thoughtTokens": self.reasoning,
            "cachedReadTokens": self.cached,
        }


class Performer:
    """Performs replies in a session. A sub-agent's performer sends everything as part of its parent's tool call."""

    def __init__(
        self,
        session: UnderstudySession,
        link: AgentLink,
        usage: ScriptUsage,
        routes: Mapping[str, Script],
        parent: str | None = None,
    ) -> None:
        self._session = session
        self._link = link
        self._turn_usage = usage
        self._routes = routes
        self._parent = parent
        self._toolbox = Toolbox(session, self._sub_agent, parent)
        self._messages = 0
        self.text = ""

    async def session_script(self, script: Script) -> str:
        """Continue the session's own script; the turn ends with the first reply that calls no tool."""
        outcomes: list[ToolOutcome] = []
        while True:
            reply = reply_at(script, self._session.step)
            self._session.step += 1
            stop, outcomes = await self._perform(parts_of(reply, outcomes))
            if stop is not None or not outcomes:
                return stop or "end_turn"

    async def whole_script(self, script: Script) -> str:
        """Every reply of it in this one turn."""
        outcomes: list[ToolOutcome] = []
        for reply in script:
            stop, latest = await self._perform(parts_of(reply, outcomes))
            outcomes = latest or outcomes
            if stop is not None:
                return stop
        return "end_turn"

    async def _perform(self, parts: Sequence[Part]) -> tuple[str | None, list[ToolOutcome]]:
        self._messages += 1
        usage = next((part for part in parts if isinstance(part, UsageOverride)), UsageOverride())
        self._turn_usage.add(usage)
        stop: str | None = None
        for part in parts:
            match part:
                case Say(pieces=pieces, pause=pause):
                    await self._say(pieces, pause)
                case Structured(value=value):
                    await self._say((msgspec.json.encode(value).decode(),), 0.0)
                case Think(text=thought):
                    await self._chunks("agent_thought_chunk", (thought,), 0.0)
                case EarlyStop(reason=reason):
                    stop = STOP_REASONS[reason]
                case HttpError() | StreamError() | ContextOverflow() | Cut() | Stall() | Endless():
                    await self._fault(part)
                case Empty() | UsageOverride() | ScriptedCall():
                    pass
        calls = calls_in(parts)
        return stop, await self._use_tools(calls)

    async def _use_tools(self, calls: Sequence[ScriptedCall]) -> list[ToolOutcome]:
        """All at once, as models ask for them; when one ends the turn, the others are ended too."""
        tasks = TaskOwner()
        try:
            return list(await asyncio.gather(*(tasks.start(self._toolbox.use(call)) for call in calls)))
        finally:
            await tasks.close()

    async def _say(self, pieces: Sequence[str], pause: float) -> None:
        self.text += "".join(pieces)
        await self._chunks("agent_message_chunk", pieces, pause)

    async def _chunks(self, kind: str, pieces: Sequence[str], pause: float) -> None:
        sent: list[str] = []
        try:
            for number, piece in enumerate(pieces):
                await asyncio.sleep(pause if number else 0)
                self._session.show(self._chunk(kind, piece))
                sent.append(piece)
        finally:
            if sent:
                self._session.store(self._chunk(kind, "".join(sent)))

    def _chunk(self, kind: str, text: str) -> dict[str, Any]:
        message_id = f"message_{self._session.step}_{self._messages}"
        chunk: dict[str, Any] = {
            "sessionUpdate": kind,
            "content": {"type": "text", "text": text},
            "messageId": message_id,
        }
        if self._parent is not None:
            chunk["_meta"] = {"parentToolCallId": self._parent}
        return chunk

    async def _fault(self, fault: HttpError | StreamError | ContextOverflow | Cut | Stall | Endless) -> None:
        if getattr(fault, "times", None) is not None:
            return  # it would pass by itself, and an agent tries again: that is not seen from outside
        match fault:
            case HttpError(status=status, message=message, kind=kind, retry_after=retry_after):
                details = {"kind": kind, "retryAfter": retry_after}
                stated = {name: value for name, value in details.items() if value is not None}
                raise MethodRefused(status, message or f"HTTP {status}", {"status": status, **stated})
            case StreamError(kind=kind, message=message):
                raise MethodRefused(INTERNAL_ERROR, message, {"kind": kind})
            case ContextOverflow():
                why = "The conversation is too long: it exceeds the context window."
                raise MethodRefused(400, why, {"status": 400, "kind": "context_length_exceeded"})
            case Cut(partway=partway):
                if partway:
                    self._link.half_a_message()
                os._exit(1)
            case Stall(seconds=seconds):
                await (asyncio.Event().wait() if seconds is None else asyncio.sleep(seconds))
            case Endless(text=text, pause=pause):
                while True:
                    await self._chunks("agent_message_chunk", (text,), 0.0)
                    await asyncio.sleep(pause)

    async def _sub_agent(self, call: ScriptedCall, call_id: str) -> str:
        performer = Performer(self._session, self._link, self._turn_usage, self._routes, call_id)
        prompt = str(call.input.get("prompt", ""))
        routed = next((script for mark, script in self._routes.items() if mark in prompt), None)
        await performer.whole_script(call.script or routed or (say("The sub-agent is done."),))
        return performer.text


async def perform(
    session: UnderstudySession, link: AgentLink, prompt: str, script: Script | None, routes: Mapping[str, Script]
) -> dict[str, Any]:
    """Run a turn to its end and return the prompt's result. Raises :class:`MethodRefused`."""
    usage = ScriptUsage()
    performer = Performer(session, link, usage, routes)
    task = session.turn = session.tasks.start(_play(session, performer, prompt, script, routes))
    try:
        try:
            await asyncio.wait([task])
        except asyncio.CancelledError:  # the client has withdrawn its request
            task.cancel()
            await asyncio.wait([task])
            raise
        stop = "cancelled" if task.cancelled() else _stop_reason(task)
    finally:
        session.turn = None
        session.store_progress()
    cost = {"amount": 0.0, "currency": "USD"}
    session.show({"sessionUpdate": "usage_update", "used": usage.context, "size": CONTEXT, "cost": cost})
    return {"stopReason": stop, "usage": usage.members()}


async def _play(
    session: UnderstudySession, performer: Performer, prompt: str, script: Script | None, routes: Mapping[str, Script]
) -> str:
    """A script in the prompt comes first, then that of a route, then the program's own; without any, a demo."""
    own = script_in(prompt)
    if own is not None:
        return await performer.whole_script(own)
    marks = [mark for mark in routes if mark in prompt]
    if marks:
        session.route, session.step = max(marks, key=len), 0
    chosen = routes.get(session.route, script)
    if chosen is not None and prompt.strip() != "/demo":
        return await performer.session_script(chosen)
    return await performer.whole_script(demo(session.files, prompt))


def _stop_reason(task: asyncio.Future[str]) -> str:
    try:
        return task.result()
    except TurnCancelled:
        return "cancelled"


def reply_at(script: Script, step: int) -> Reply:
    if step < len(script):
        return script[step]
    last = script[-1] if script else SCRIPT_OVER
    return last if isinstance(last, Forever) else SCRIPT_OVER


FENCE = re.compile(r"^```stagedoor[^\n]*\n(.*?)^```", re.MULTILINE | re.DOTALL)
LIKE_A_SCRIPT = re.compile(r"\s*(\[\s*[\[{\"]|\{\s*\"?script\"?\s*:|script:\s|- )")
A_PART = re.compile(r"\s*(?:\{?\s*\"?script\"?\s*:|(?:-\s+)+(?:\[\s*)?\{?\s*\"?[a-z_]+\"?:\s)")
"""How a list of parts begins: whoever writes that means a script, also with a mistake in it."""


def script_in(prompt: str) -> Script | None:
    """The script a prompt is, or has in a fenced ``stagedoor`` block; None for an ordinary prompt."""
    fenced = FENCE.search(prompt)
    if fenced is None and LIKE_A_SCRIPT.match(prompt) is None:
        return None
    from stagedoor.testing.yaml_script import ScriptError, load_script  # only scripts need YAML, and it takes its time

    try:
        return load_script((fenced[1] if fenced else prompt) + "\n").script
    except ScriptError as error:
        if fenced is None and A_PART.match(prompt) is None:
            return None  # an ordinary prompt may well begin with a dash
        raise MethodRefused(INVALID_PARAMS, str(error)) from None
