"""A recording of an agent, translated: what the unified stream would have been. Pure of processes and clocks."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import msgspec
from msgspec.structs import force_setattr, replace

from .. import catalog
from ..drivers.agent import AnyDriver
from ..permissions.paths import Ground
from ..permissions.protected import as_patterns
from ..permissions.risk.judge import judge
from ..unified.capabilities import as_json
from ..unified.decisions import INTERRUPTED, WITHDRAWN, Allow, Decision, Deny, resolved
from ..unified.events import (
    By,
    Error,
    Event,
    FileChange,
    Init,
    PermissionRequest,
    ToolProgress,
    ToolResult,
    ToolUse,
    TurnCompleted,
    TurnStarted,
    Unrecognized,
    UsageReport,
    stamp,
    steered,
)
from ..unified.grammar import Grammar
from ..unified.recording import (
    PromptSent,
    QuestionAnswered,
    QuestionWithdrawn,
    RecordedAction,
    SessionOpened,
    TextSteered,
    TurnInterrupted,
)
from ..wire import shapes

Line = bytes | shapes.UnknownMessage
CUT_SHORT = "the agent ended in the middle of its turn"
HALF = "the recording ends in the middle of a message: what came after it is not known"


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
            f"{self.unrecognized} not recognized, {self.said_to_agent} sent to the agent, {self.remarks} remarks"
        )


class _RecordedLine(msgspec.Struct):
    dir: str
    line: str | msgspec.Raw
    t: float = 0.0


_ANY_NUMBERS = json.JSONDecoder(parse_int=str, parse_float=str)
"""Only whether something is whole is asked: not even a number beyond all bounds makes a line half a one."""
_RECORDED = msgspec.json.Decoder(_RecordedLine)
_SIDES = {"stdin": "in", "send": "in", "sent": "in", "stdout": "out", "recv": "out", "received": "out"}
"""What other recorders call the two."""


def translate(agent: str, driver: AnyDriver, lines: Iterable[Line], account: Account | None = None) -> Iterator[Event]:
    """Unified events for the lines of a recording (raw output, or a two-way log), up to and including ``done``."""
    account = account or Account()
    replayed = _ReplayedSession(agent, driver)
    line: Line = b""
    for line in lines:
        account.lines += 1
        side, message = side_of(line)
        if side == "in":
            account.said_to_agent += 1
            yield from replayed.from_client(message)
        elif side == "out":
            natives = (
                [message] if isinstance(message, shapes.UnknownMessage) else list(replayed.protocol.receive(message))
            )
            before = replayed.events_from_agent
            events = [event for native in natives for event in replayed.from_agent(native)]
            unknown = replayed.unrecognized()
            understood = replayed.events_from_agent > before
            account.unrecognized += unknown
            account.translated += understood and not unknown
            account.absorbed += not understood and not unknown
            yield from events
        else:
            account.remarks += 1
    for native in replayed.protocol.receive_eof():
        yield from replayed.from_agent(native)
    yield from replayed.end(_silence(account), _half_a_message(line))


def _silence(account: Account) -> Error | None:
    """What is wrong with a recording in which the agent said nothing that we understand."""
    if account.unrecognized and not account.translated:
        return Error(kind="protocol_error", message="nothing in this recording could be understood", fatal=True)
    if not (account.translated or account.absorbed):
        return Error(kind="connection_failed", message="the agent ended without a word", fatal=True)
    return None


def _half_a_message(last: Line) -> Error | None:
    """What is wrong with a recording whose last line was cut: what it would have said, nobody knows."""
    if not isinstance(last, bytes) or not last.lstrip().startswith(b"{"):
        return None
    try:
        _ANY_NUMBERS.decode(last.decode("utf-8", "replace").strip())
    except json.JSONDecodeError:
        return Error(kind="connection_failed", message=HALF, fatal=True)
    except RecursionError:
        pass  # too deep to look at, which is another fault
    return None


class _Waiting(msgspec.Struct):
    """A question that overtook the call it is about, and what was said of it since."""

    tool_use_id: str
    native: Any
    actions: list[QuestionAnswered | QuestionWithdrawn] = []


class _ReplayedSession:
    """The living session's part, played from a recording."""

    def __init__(self, agent: str, driver: AnyDriver) -> None:
        self.protocol = driver.protocol()
        self.events_from_agent = 0
        """How many events the agent's words have given, before they were put in order."""
        self._grammar = Grammar(Init(capabilities=as_json(driver.capabilities)))
        self._agent = agent
        self._driver = driver
        self._dictionary: Any = driver.dictionary()
        self._recording = driver.recording(self._dictionary)
        self._two_way = False
        self._prompted = False  # whether this turn began with its prompt, and the agent has not said so yet
        self._open: dict[str, PermissionRequest] = {}
        self._waiting: dict[str, _Waiting] = {}
        self._cwd = "/"
        self._unrecognized = False
        self._went_well = True  # the last turn
        self._unresolved = False  # whether an error was told, and no turn has ended since
        self._seq = itertools.count(1)

    def from_client(self, message: Line) -> Iterator[Event]:
        """A line that was said to the agent."""
        self._two_way = True
        decode: Callable[[bytes], Iterable[Any]] | None = getattr(self.protocol, "decode_command", None)
        if decode is None or isinstance(message, shapes.UnknownMessage):
            return
        for command in decode(message):
            for action in self._recording.from_client(command):
                yield from self._take(action)

    def from_agent(self, native: Any) -> Iterator[Event]:
        """What a native event says, with the questions a living session would have put to somebody."""
        for action in self._recording.from_agent(native):
            yield from self._take(action)
        for event in self._dictionary.translate(native):
            self.events_from_agent += 1
            self._unrecognized = self._unrecognized or isinstance(event, Unrecognized)
            self._unresolved = isinstance(event, Error) or (self._unresolved and not isinstance(event, TurnCompleted))
            yield from self._emit(event)
        if isinstance(native, self._driver.question_types):
            question: PermissionRequest | None = self._dictionary.request(native)
            if question is not None:
                self.events_from_agent += 1
                yield from self._open_question(question, native)

    def unrecognized(self) -> bool:
        """Whether something was not recognized since the last time, the message itself or a part of it."""
        unrecognized, self._unrecognized = self._unrecognized, False
        return unrecognized

    def end(self, silence: Error | None, half: Error | None) -> Iterator[Event]:
        """The recording is over. ``silence``: the agent has said nothing that could be understood. ``half``: the last
        line is not whole."""
        yield from self._ask_all()
        if self._grammar.in_turn:
            cut_short = silence or Error(kind="connection_failed", message=CUT_SHORT, fatal=True)
            yield from self._stamped(self._grammar.end("error", cut_short))
        elif silence is not None and not self._grammar.turn:
            yield from self._stamped(self._grammar.end("error", silence))
        elif half is not None and self._went_well and not self._unresolved:
            yield from self._stamped(self._grammar.end("error", half))
        else:
            # An error that no turn was opened for is all that this recording came to.
            yield from self._stamped(self._grammar.end("error" if self._unresolved else None))

    def _emit(self, event: Event) -> Iterator[Event]:
        match event:
            case TurnStarted() if self._prompted:
                self._prompted = False
                return
            case TurnCompleted():
                self._prompted = False
                self._went_well = event.status == "success"
                yield from self._ask_all()
            case ToolResult() | FileChange() | ToolProgress():
                yield from self._ask_about(event.tool_use_id)
                yield from self._resolve_open(event)
            case _ if self._begins(event):
                yield from self._stamped(self._grammar.start_turn(""))
            case _:
                pass
        yield from self._stamped(self._grammar.accept(event))
        if isinstance(event, ToolUse):
            yield from self._ask_about(event.tool_use_id)

    def _stamped(self, events: list[Event]) -> Iterator[Event]:
        turn = self._grammar.turn - sum(isinstance(event, TurnStarted) for event in events)
        for event in events:
            turn += isinstance(event, TurnStarted)
            if isinstance(event, Init):
                self._cwd = event.cwd or self._cwd
            if isinstance(event, ToolUse | PermissionRequest):
                name = event.name if isinstance(event, ToolUse) else event.tool_name
                ground = Ground(self._cwd, protected=as_patterns(catalog.protected()))
                judged = judge(name, event.operation, event.input, cwd=ground)
                force_setattr(event, "risk", judged.risk)
                if isinstance(event, PermissionRequest):
                    force_setattr(event, "risk_reasons", list(judged.reasons))
            yield stamp(event, agent=self._agent, session_id="replay", seq=next(self._seq), timestamp=0, turn=turn)

    # --------------------------------------------------------------------------------------------------- questions

    def _open_question(self, question: PermissionRequest, native: Any) -> Iterator[Event]:
        """Questions overtake the stream they belong to; a living session waits for the call, which tells more."""
        if question.tool_use_id and not self._grammar.knows_tool(question.tool_use_id):
            self._waiting[question.request_id] = _Waiting(question.tool_use_id, native)
        else:
            yield from self._ask(question)

    def _ask(self, question: PermissionRequest) -> Iterator[Event]:
        self._open[question.request_id] = question
        yield from self._stamped(self._grammar.accept(question))

    def _ask_all(self) -> Iterator[Event]:
        for tool_use_id in {waiting.tool_use_id: None for waiting in self._waiting.values()}:
            yield from self._ask_about(tool_use_id)

    def _ask_about(self, tool_use_id: str) -> Iterator[Event]:
        """The questions that have waited for this call, now that it is told, or never will be."""
        for request_id, waiting in list(self._waiting.items()):
            if waiting.tool_use_id == tool_use_id:
                del self._waiting[request_id]
                yield from self._ask(self._dictionary.request(waiting.native))
                for action in waiting.actions:
                    yield from self._take(action)

    def _take(self, action: RecordedAction) -> Iterator[Event]:
        match action:
            case SessionOpened(cwd):
                self._grammar.default_init = replace(self._grammar.default_init, cwd=cwd)
                self._cwd = cwd
            case PromptSent(prompt):
                self._prompted = self._prompted or not self._grammar.in_turn
                yield from self._stamped(self._grammar.start_turn(prompt))
            case TextSteered(text):
                yield from self._stamped(self._grammar.accept(steered(text)))
            case TurnInterrupted():
                yield from self._ask_all()
                for request_id in list(self._open):
                    yield from self._resolve(request_id, INTERRUPTED, "interrupt")
            case QuestionAnswered(request_id) | QuestionWithdrawn(request_id) if request_id in self._waiting:
                self._waiting[request_id].actions.append(action)
            case QuestionAnswered(request_id, decision):
                yield from self._resolve(request_id, decision, "client")
            case QuestionWithdrawn(request_id):
                if self._two_way:  # else it may well have been answered
                    yield from self._resolve(request_id, WITHDRAWN, "interrupt")

    def _resolve(self, request_id: str, decision: Decision, by: By) -> Iterator[Event]:
        if self._open.pop(request_id, None) is not None:
            yield from self._stamped(self._grammar.accept(resolved(request_id, decision, by)))

    def _resolve_open(self, event: Event) -> Iterator[Event]:
        """The end of a question whose answer is not recorded: what becomes of the call tells it."""
        if not isinstance(event, ToolResult | FileChange | ToolProgress):
            return
        native = [one.request_id for one in self._open.values() if one.tool_use_id == event.tool_use_id]
        failed = isinstance(event, ToolResult) and event.status != "success"
        for request_id in native:
            if failed and self._two_way:
                yield from self._resolve(request_id, WITHDRAWN, "interrupt")
            else:
                refused = isinstance(event, ToolResult) and event.status == "denied"
                yield from self._resolve(request_id, Deny() if refused else Allow(), "client")

    def _begins(self, event: Event) -> bool:
        """Whether a turn must have begun that nobody has told of: who asked for it is not recorded."""
        if self._two_way or self._grammar.in_turn:
            return False
        fatal = isinstance(event, Error) and event.fatal
        return fatal or (isinstance(event, UsageReport) and not self._grammar.turn)


def side_of(line: Line) -> tuple[str, Line]:
    """``in`` for what was sent to the agent, ``out`` for what it said; recorders put in remarks of their own."""
    if isinstance(line, shapes.UnknownMessage) or b'"dir"' not in line[:200]:
        return "out", line
    both = shapes.decode_or_reason(_RECORDED, line)
    if isinstance(both, str):
        return "out", line
    return _SIDES.get(both.dir, both.dir), both.line.encode() if isinstance(both.line, str) else bytes(both.line)
