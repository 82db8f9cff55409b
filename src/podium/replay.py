"""A recording of an agent, translated: what the unified stream would have been. Pure of processes and clocks."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Literal

import msgspec
from msgspec.structs import force_setattr

from .drivers.driver import Driver
from .permissions.risk import judge
from .unified.capabilities import as_json
from .unified.events import (
    Error,
    Event,
    FileChange,
    Init,
    PermissionRequest,
    PermissionResolved,
    ToolProgress,
    ToolResult,
    ToolUse,
    TurnStarted,
    UsageReport,
    stamp,
)
from .unified.grammar import Grammar
from .wire import shapes

Line = bytes | shapes.Unrecognized


class Account(msgspec.Struct):
    """Every line of a recording is one of these."""

    lines: int = 0
    translated: int = 0
    absorbed: int = 0
    unrecognized: int = 0
    said_to_agent: int = 0
    remarks: int = 0

    def __str__(self) -> str:
        return (
            f"{self.lines} lines: {self.translated} translated, {self.absorbed} without a unified meaning, "
            f"{self.unrecognized} not recognized, {self.said_to_agent} said to the agent, {self.remarks} remarks"
        )


class _TwoWay(msgspec.Struct):
    dir: str
    line: str | msgspec.Raw
    t: float = 0.0


def translate(agent: str, driver: Driver, lines: Iterable[Line], account: Account | None = None) -> Iterator[Event]:
    """Unified events for the lines of a recording (raw output, or a two-way log), up to and including ``done``."""
    account = account or Account()
    protocol, dictionary, grammar = driver.protocol(), driver.dictionary(), Grammar()
    overhear: Callable[[bytes], None] | None = getattr(protocol, "overhear", None)
    seq = itertools.count(1)
    asked: dict[str, PermissionRequest] = {}
    capabilities = as_json(driver.capabilities)
    cwd = ["/"]
    paid = False

    def stamped(made: list[Event]) -> Iterator[Event]:
        turn = grammar.turn - sum(isinstance(event, TurnStarted) for event in made)
        for event in made:
            turn += isinstance(event, TurnStarted)
            if isinstance(event, Init):
                cwd.append(event.cwd)
                force_setattr(event, "capabilities", capabilities)
            if isinstance(event, ToolUse | PermissionRequest):
                name = event.name if isinstance(event, ToolUse) else event.tool_name
                judged = judge(name, event.operation, event.input, cwd=cwd[-1] or "/")
                force_setattr(event, "risk", judged.risk)
                if isinstance(event, PermissionRequest):
                    force_setattr(event, "risk_reasons", list(judged.reasons))
            yield stamp(event, agent=agent, session_id="replay", seq=next(seq), timestamp=0, turn=turn)

    for line in lines:
        account.lines += 1
        side, message = _side(line)
        if side == "in":
            account.said_to_agent += 1
            if overhear is not None and isinstance(message, bytes):
                overhear(message)
            continue
        if side != "out":
            account.remarks += 1
            continue
        natives = [message] if isinstance(message, shapes.Unrecognized) else list(protocol.receive(message))
        unknown = any(isinstance(native, shapes.Unrecognized) for native in natives)
        made = [event for native in natives for event in _told(driver, dictionary, native, asked)]
        account.unrecognized += unknown
        account.translated += bool(made) and not unknown
        account.absorbed += not made and not unknown
        for event in made:
            if isinstance(event, UsageReport) and not grammar.turn and not paid:
                # Nothing else was said in the turn that was paid for, and no caller began it.
                paid = True
                yield from stamped(grammar.accept(TurnStarted()))
            yield from stamped(grammar.accept(event))
    for native in protocol.receive_eof():
        for event in dictionary.translate(native):
            yield from stamped(grammar.accept(event))
    cut_short = Error(kind="connection_failed", message="the agent ended in the middle of its turn", fatal=True)
    if not grammar.turn and not account.translated and account.unrecognized:
        cut_short = Error(kind="protocol_error", message="nothing in this recording could be understood", fatal=True)
    elif account.said_to_agent and not (account.translated or account.absorbed):
        cut_short = Error(kind="connection_failed", message="the agent ended without a word", fatal=True)
    elif not grammar.in_turn:
        yield from stamped(grammar.end())
        return
    yield from stamped(grammar.end("error", cut_short))


def _told(driver: Driver, dictionary: Any, native: Any, asked: dict[str, PermissionRequest]) -> Iterator[Event]:
    """What a native event says, with the questions a living session would have put to somebody.

    Who answered stands on our side of the recording, in as many forms as there are agents; what became of the call
    tells the answer.
    """
    for event in dictionary.translate(native):
        happened = isinstance(event, ToolResult | FileChange | ToolProgress)
        if happened and (question := asked.pop(event.tool_use_id, None)) is not None:
            refused = isinstance(event, ToolResult) and event.status == "denied"
            decision: Literal["allow", "deny"] = "deny" if refused else "allow"
            yield PermissionResolved(request_id=question.request_id, decision=decision, by="client")
        yield event
    if isinstance(native, driver.questions):
        question = dictionary.request(native)
        if question is not None:
            asked[question.tool_use_id] = question
            yield question


def _side(line: Line) -> tuple[str, Line]:
    """``in`` for what was said to the agent, ``out`` for what it said; recorders put in remarks of their own."""
    if isinstance(line, shapes.Unrecognized) or b'"dir"' not in line[:200]:
        return "out", line
    try:
        both = msgspec.json.decode(line, type=_TwoWay)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return "out", line
    return both.dir, both.line.encode() if isinstance(both.line, str) else bytes(both.line)
