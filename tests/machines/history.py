"""What many machines did, seen from outside, and what must be true of it.

Nothing here knows how Stagedoor works: it is given what clients sent and were answered, what followers heard, the rows
that are in the log in the end, and what the agents themselves left on disk.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Literal

Kind = Literal["create", "send", "answer"]
ENDED = "done"


@dataclass(frozen=True)
class Request:
    """What a client sent, and what it was answered: ``status`` 0 means that it never heard."""

    kind: Kind
    session: str
    subject: str
    """The prompt, or the id of the question."""
    status: int
    value: str = ""
    """The decision: ``allow`` or ``deny``."""
    leaves_mark: bool = True
    """Whether carrying the prompt out leaves its text on disk."""

    @property
    def acknowledged(self) -> bool:
        return 200 <= self.status < 300


@dataclass(frozen=True)
class Row:
    """A record as the database has it."""

    seq: int
    epoch: int
    event: dict[str, Any]

    @property
    def type(self) -> str:
        return str(self.event["type"])


@dataclass
class History:
    requests: list[Request] = field(default_factory=list)
    rows: dict[str, list[Row]] = field(default_factory=dict)
    """Of each session, in the order of the log."""
    heard: list[tuple[str, str, list[dict[str, Any]]]] = field(default_factory=list)
    """Who followed, which session, and every event in the order it came, over all doors."""
    effects: list[str] = field(default_factory=list)
    """The prompts that agents carried out: each leaves its own text once on disk when it is done."""
    left_running: list[str] = field(default_factory=list)


def violations(history: History) -> list[str]:
    """Everything that must not have happened; empty when all is well."""
    rules = (_sequences, _epochs, _ends, _questions, _prompts, _followers, _acknowledged, _left)
    return [violation for rule in rules for violation in rule(history)]


def _sequences(history: History) -> Iterator[str]:
    for session, rows in history.rows.items():
        numbers = [row.seq for row in rows]
        if numbers != list(range(1, len(rows) + 1)):
            yield f"{session}: the numbers of its records have a hole or a repeat: {_odd(numbers)}"


def _epochs(history: History) -> Iterator[str]:
    owners: dict[int, str] = {}
    for session, rows in history.rows.items():
        last = 0
        for row in rows:
            if row.epoch < last:
                yield f"{session}: record {row.seq} of epoch {row.epoch} stands after one of epoch {last}"
            last = max(last, row.epoch)
            if owners.setdefault(row.epoch, session) != session and row.epoch:
                yield f"{session}: epoch {row.epoch} belongs to {owners[row.epoch]} too"


def _ends(history: History) -> Iterator[str]:
    for session, rows in history.rows.items():
        ends = [row.seq for row in rows if row.type == ENDED]
        if not ends:
            yield f"{session}: never ended"
        elif ends != [len(rows)]:
            yield f"{session}: {len(ends)} ends, at {ends}, of {len(rows)} records"


def _questions(history: History) -> Iterator[str]:
    accepted = {
        (request.session, request.subject): request.value
        for request in history.requests
        if request.kind == "answer" and request.acknowledged
    }
    winners = Counter(
        (request.session, request.subject)
        for request in history.requests
        if request.kind == "answer" and request.acknowledged
    )
    for (session, question), number in winners.items():
        if number > 1:
            yield f"{session}: {number} clients were told that their answer to {question} counts"
    for session, rows in history.rows.items():
        opened = Counter(row.event["requestId"] for row in rows if row.type == "permission_request")
        closed = Counter(row.event["requestId"] for row in rows if row.type == "permission_resolved")
        for question in opened.keys() | closed.keys():
            if (opened[question], closed[question]) != (1, 1):
                asked, resolved = opened[question], closed[question]
                yield f"{session}: question {question} was asked {asked} and resolved {resolved} times"
        for row in rows:
            if row.type != "permission_resolved" or row.event.get("by") != "client":
                continue
            decision = accepted.get((session, row.event["requestId"]))
            unheard = any(
                request.kind == "answer" and request.status == 0 and request.subject == row.event["requestId"]
                for request in history.requests
            )
            if decision is None and not unheard:
                yield f"{session}: question {row.event['requestId']} was resolved by a client, and none was told so"
            elif decision is not None and decision != row.event["decision"]:
                yield f"{session}: {row.event['requestId']} was answered {decision} and became {row.event['decision']}"
        for name, question in accepted:
            if name == session and not closed[question]:
                yield f"{session}: the accepted answer to {question} is not in the log"


def _prompts(history: History) -> Iterator[str]:
    effects = Counter(history.effects)
    marked = {request.subject for request in history.requests if request.leaves_mark}
    for session, rows in history.rows.items():
        begun = Counter(row.event.get("prompt", "") for row in rows if row.type == "turn_started")
        for prompt, number in begun.items():
            if prompt in _prompts_of(history, session) and number > 1:
                yield f"{session}: {prompt!r} was sent to an agent {number} times"
        for prompt, status in _outcomes(rows):
            if prompt in marked and status == "success" and not effects[prompt]:
                yield f"{session}: {prompt!r} is called a success, and its agent did not do it"
    for prompt, number in effects.items():
        if number > 1:
            yield f"{prompt!r} was carried out {number} times"


def _outcomes(rows: list[Row]) -> Iterator[tuple[str, str]]:
    prompt = ""
    for row in rows:
        if row.type == "turn_started":
            prompt = row.event.get("prompt", "")
        elif row.type == "turn_completed":
            yield prompt, str(row.event.get("status"))


def _prompts_of(history: History, session: str) -> set[str]:
    return {request.subject for request in history.requests if request.session == session and request.kind != "answer"}


def _followers(history: History) -> Iterator[str]:
    for name, session, events in history.heard:
        stored = [row.event for row in history.rows.get(session, [])]
        if events != stored[: len(events)]:
            yield f"{name} heard of {session} what is not in the log, or not in its order"


def _acknowledged(history: History) -> Iterator[str]:
    for request in history.requests:
        if not request.acknowledged or request.kind == "answer":
            continue
        rows = history.rows.get(request.session)
        if rows is None:
            yield f"{request.session}: was accepted, and is not in the log"
        elif not any(row.type == "turn_started" and row.event.get("prompt") == request.subject for row in rows):
            dropped = any(row.event.get("code") in ("messages_dropped", "message_cut_off") for row in rows)
            if not dropped and rows and rows[-1].event.get("status") == "success":
                yield f"{request.session}: {request.subject!r} was accepted, and the log does not speak of it"


def _left(history: History) -> Iterator[str]:
    for line in history.left_running:
        yield f"still running: {line}"


def _odd(numbers: list[int]) -> str:
    wrong = [f"{number} at place {place}" for place, number in enumerate(numbers, 1) if number != place]
    return ", ".join(wrong[:3])
