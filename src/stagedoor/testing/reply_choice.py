"""Which reply of which script answers a request. Pure but for its memory of what it has served.

A request tells the whole conversation so far, and that decides: the reply is the one after the reply that was served
for the longest beginning of this conversation. So a retry gets the same reply again, a resumed or forked session
continues where it was, and parallel sessions do not disturb each other, whatever process or connection they come from.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence

import msgspec

from .model_request import CallResult, ConversationTurn, ModelRequest, NativeCall
from .script import (
    ContextOverflow,
    Cut,
    EarlyStop,
    Empty,
    Endless,
    Forever,
    HttpError,
    Part,
    Reply,
    Script,
    ScriptedCall,
    Stall,
    StreamError,
    ToolOutcome,
    calls_in,
    parts_of,
    say,
)

MAIN = ""
"""The name of the default script among the routes."""

History = tuple[Hashable, ...]

_FAULTS = (HttpError, StreamError, ContextOverflow, Cut, Stall, Endless, Empty)
_COMPACTED = (
    "This session is being continued from a previous conversation",
    "Another language model started to solve this problem",
    "<state_snapshot>",
    "What did we do so far?",
)
_AFTER_THE_END = say("The script is over.")


class ChosenReply(msgspec.Struct, frozen=True):
    """The answer to one request: these parts, of this reply. ``beyond``: the script had no reply left."""

    route: str
    step: int
    attempt: int
    parts: tuple[Part, ...]
    beyond: bool = False


class IssuedCall(msgspec.Struct, frozen=True):
    """A call we made: as in the script, as the agent got it, and whether we added it ourselves."""

    call: ScriptedCall
    native: NativeCall
    follow_up: bool = False


class AnsweredCall(msgspec.Struct, frozen=True):
    """A call of ours and its result."""

    call: ScriptedCall
    native: NativeCall
    result: CallResult
    follow_up: bool = False


class _ServedReply(msgspec.Struct):
    route: str
    step: int
    attempts: dict[str, int]
    failed: bool = False


class ReplyChooser:
    """The scripts, and how far each conversation has come in them."""

    def __init__(self, script: Script, routes: Mapping[str, Script]) -> None:
        self._scripts: dict[str, Script] = {MAIN: script, **routes}
        self._served: dict[History, _ServedReply] = {}
        self._newest: dict[str, _ServedReply] = {}
        self._after: dict[tuple[str, History], _ServedReply] = {}  # what was last served for a prompt at this point
        self._used: set[tuple[str, int]] = set()

    def choose(self, request: ModelRequest, outcomes: Sequence[ToolOutcome]) -> ChosenReply:
        """Choose the reply for this request, and remember that it was served."""
        history = history_of(request.turns)
        served = self._served.get(history)
        if served is None:
            served = self._next(request, history)
            self._served[history] = served
        attempt = served.attempts[request.session] = served.attempts.get(request.session, 0) + 1
        self._newest[request.session] = served
        self._after[request.session, history[:-1]] = served
        script = self._scripts[served.route]
        reply, beyond = _reply(script, served.step)
        whole = parts_of(reply, outcomes)
        parts = tuple(part for part in whole if not isinstance(part, _FAULTS) or _strikes(part, attempt))
        if whole and not parts:  # nothing but a fault that has passed: what comes next is the next reply
            self._used.add((served.route, served.step))
            served.step, served.attempts = served.step + 1, {}
            return self.choose(request, outcomes)
        served.failed = any(isinstance(part, _FAULTS) for part in parts)
        self._used.add((served.route, served.step))
        for call in calls_in(parts):
            if call.tool == "task" and not call.native:
                self._scripts.setdefault(str(call.input["prompt"]), call.script or [say("The sub-agent is done.")])
        return ChosenReply(served.route, served.step, attempt, parts, beyond)

    def broken_off(self, request: ModelRequest) -> None:
        """The client left in the middle of this answer."""
        if served := self._served.get(history_of(request.turns)):
            served.failed = True

    def remember(self, request: ModelRequest) -> None:
        """This request was answered with a follow-up of our own; the conversation stays at its reply."""
        history = history_of(request.turns)
        length = self._longest(history)
        if history not in self._served and length is not None:
            self._served[history] = self._served[history[:length]]

    def unused(self) -> list[str]:
        """The replies that no agent asked for, in words."""
        unused: list[str] = []
        for route, script in self._scripts.items():
            name = f"route {route!r}" if route else "script"
            unused += [
                f"{name}, reply {n + 1} of {len(script)}" for n in range(len(script)) if (route, n) not in self._used
            ]
        return unused

    def _longest(self, history: History) -> int | None:
        return next((n for n in range(len(history), 0, -1) if history[:n] in self._served), None)

    def _next(self, request: ModelRequest, history: History) -> _ServedReply:
        entries = _entries(request.turns)
        length = self._longest(history)
        route, at = self._route(entries)
        dropped = self._after.get((request.session, history[:-1]))
        if dropped and dropped.failed and entries and entries[-1].role == "user" and route in (MAIN, dropped.route):
            return _ServedReply(dropped.route, dropped.step + 1, {})  # the agent forgot the prompt that failed here
        newest = self._newest.get(request.session)
        if newest and _compacted_at(entries) >= (length or 0):
            return newest if newest.failed else _ServedReply(newest.route, newest.step + 1, {})
        if length is None:  # a new conversation, or one we missed the beginning of: count the answers it has had
            return _ServedReply(route, sum(turn.role == "model" for turn in entries[at:]), {})
        before = self._served[history[:length]]
        if before.failed and all(turn.role == "model" for turn in entries[length:]):
            return before  # the agent kept what came through before the fault, and asks again
        before.attempts.pop(request.session, None)
        if at >= length and route != before.route:
            return _ServedReply(route, 0, {})
        return _ServedReply(before.route, before.step + 1, {})

    def _route(self, entries: Sequence[ConversationTurn]) -> tuple[str, int]:
        """The script asked for by the newest user message that asks for one, and where that message stands."""
        for at in range(len(entries) - 1, -1, -1):
            if entries[at].role == "user":
                text = entries[at].text
                marks = [(text.rfind(mark) + len(mark), len(mark), mark) for mark in self._scripts if mark in text]
                if any(size for _, size, _ in marks):  # the one named last: a prompt that was broken off may precede it
                    return max(mark for mark in marks if mark[1])[2], at
        return MAIN, 0


def _compacted_at(entries: Sequence[ConversationTurn]) -> int:
    """Where the agent put a summary in place of the conversation; -1 when it did not."""
    marked = [at for at, turn in enumerate(entries) if any(mark in turn.text for mark in _COMPACTED)]
    return marked[-1] if marked else -1


def _reply(script: Script, step: int) -> tuple[Reply, bool]:
    if step < len(script):
        return script[step], False
    last = script[-1] if script else _AFTER_THE_END
    if isinstance(last, Forever) or (_is_parts(last) and any(_lasting(part) for part in parts_of(last, ()))):
        return last, False  # agents ask again after a fault: what is broken stays broken
    return _AFTER_THE_END, True


def _is_parts(reply: Reply) -> bool:
    return isinstance(reply, (Part, Sequence))


def _lasting(part: Part) -> bool:
    return isinstance(part, EarlyStop) or (isinstance(part, _FAULTS) and getattr(part, "times", None) is None)


def _strikes(fault: Part, attempt: int) -> bool:
    times: int | None = getattr(fault, "times", None)
    return times is None or attempt <= times


def _entries(turns: Sequence[ConversationTurn]) -> list[ConversationTurn]:
    return [turn for turn in turns if turn.text or turn.calls or turn.results]


def history_of(turns: Sequence[ConversationTurn]) -> History:
    """The conversation in a form that stays the same when agents trim or repeat results and reword what they added."""
    return tuple(
        (turn.role, "" if turn.role == "tool" else " ".join(turn.text.split()), len(turn.calls))
        for turn in _entries(turns)
    )


def outcomes_of(turns: Sequence[ConversationTurn], issued: Mapping[str, IssuedCall]) -> list[ToolOutcome]:
    """What the calls of the last scripted reply gave, those of our follow-ups to it included."""
    outcomes: list[ToolOutcome] = []
    for turn in reversed(turns):
        if turn.role == "model" and not _only_follow_ups(turn, issued):
            break
        for result in sorted(turn.results, key=lambda result: result.id, reverse=True):  # our ids count upwards
            call = issued.get(result.id)
            name = call.native.name if call else result.name
            tool = call.call.tool if call else result.name
            outcomes.append(ToolOutcome(tool, result.output, result.error, name, result.id))
    return outcomes[::-1]


def answered_last(turns: Sequence[ConversationTurn], issued: Mapping[str, IssuedCall]) -> list[AnsweredCall]:
    """The calls whose results are the newest thing in the conversation."""
    answered: list[AnsweredCall] = []
    for turn in reversed(turns):
        if turn.role != "tool":
            break
        for result in reversed(turn.results):
            if call := issued.get(result.id):
                answered.append(AnsweredCall(call.call, call.native, result, call.follow_up))
    return answered[::-1]


def _only_follow_ups(turn: ConversationTurn, issued: Mapping[str, IssuedCall]) -> bool:
    calls = [issued.get(call.id) for call in turn.calls]
    return bool(calls) and all(call is not None and call.follow_up for call in calls)
