"""The checker finds what it is there for: each fault, planted into a history that is right, and nothing in that one."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from dataclasses import replace
from typing import Any

import pytest

from .history import History, Request, Row, violations


def _row(seq: int, epoch: int, type: str, **fields: Any) -> Row:
    return Row(seq, epoch, {"type": type, "seq": seq, **fields})


def right() -> History:
    """Two sessions; the first was taken over once, and its question was answered by one of two clients."""
    first = [
        _row(1, 1, "turn_started", prompt="one"),
        _row(2, 1, "permission_request", requestId="q1"),
        _row(3, 1, "permission_resolved", requestId="q1", by="client", decision="allow"),
        _row(4, 1, "turn_completed", status="success"),
        _row(5, 1, "turn_started", prompt="two"),
        _row(6, 3, "turn_completed", status="interrupted"),
        _row(7, 3, "done", status="interrupted"),
    ]
    second = [
        _row(1, 2, "turn_started", prompt="three"),
        _row(2, 2, "turn_completed", status="success"),
        _row(3, 2, "done", status="success"),
    ]
    return History(
        requests=[
            Request("create", "a", "one", 201),
            Request("send", "a", "two", 202),
            Request("answer", "a", "q1", 200, "allow"),
            Request("answer", "a", "q1", 409, "deny"),
            Request("create", "b", "three", 0),
        ],
        rows={"a": first, "b": second},
        heard=[("door 1", "a", [row.event for row in first]), ("door 2", "a", [row.event for row in first[:4]])],
        effects=["one", "three"],
    )


def _renumber(rows: list[Row]) -> list[Row]:
    return [Row(seq, row.epoch, row.event) for seq, row in enumerate(rows, 1)]


def _hole(history: History) -> None:
    del history.rows["a"][1]


def _repeat(history: History) -> None:
    history.rows["b"].insert(1, history.rows["b"][0])


def _old_owner_writes(history: History) -> None:
    history.rows["a"][5] = replace(history.rows["a"][5], epoch=3)
    history.rows["a"][6] = replace(history.rows["a"][6], epoch=1)


def _shared_epoch(history: History) -> None:
    history.rows["b"] = [replace(row, epoch=3) for row in history.rows["b"]]


def _goes_on_after_the_end(history: History) -> None:
    history.rows["b"].append(_row(4, 2, "text_delta"))


def _never_ends(history: History) -> None:
    history.rows["b"].pop()


def _answered_twice(history: History) -> None:
    rows = history.rows["a"]
    history.rows["a"] = _renumber([*rows[:3], rows[2], *rows[3:]])
    history.heard = []


def _both_win(history: History) -> None:
    history.requests[3] = replace(history.requests[3], status=200, value="allow")


def _the_other_answer(history: History) -> None:
    history.requests[2] = replace(history.requests[2], value="deny")


def _lost_answer(history: History) -> None:
    event = {**history.rows["a"][2].event, "by": "timeout", "requestId": "q2"}
    history.rows["a"][2] = replace(history.rows["a"][2], event=event)
    history.heard = []


def _sent_again(history: History) -> None:
    rows = history.rows["a"]
    history.rows["a"] = _renumber([*rows[:6], _row(7, 3, "turn_started", prompt="two"), rows[6]])
    history.heard = []


def _done_twice(history: History) -> None:
    history.effects.append("one")


def _only_claimed(history: History) -> None:
    history.effects.remove("three")


def _heard_what_is_not_stored(history: History) -> None:
    history.heard.append(("door 2", "b", [{"type": "text_delta", "seq": 1}]))


def _lost_session(history: History) -> None:
    del history.rows["a"]
    history.heard = []


def _lost_prompt(history: History) -> None:
    history.requests.append(Request("send", "b", "four", 202))


def _orphan(history: History) -> None:
    history.left_running.append("4711 sleep 1000")


FAULTS: list[tuple[Callable[[History], None], str]] = [
    (_hole, "a hole or a repeat"),
    (_repeat, "a hole or a repeat"),
    (_old_owner_writes, "stands after one of epoch 3"),
    (_shared_epoch, "belongs to"),
    (_goes_on_after_the_end, "1 ends, at [3], of 4"),
    (_never_ends, "never ended"),
    (_answered_twice, "asked 1 and resolved 2"),
    (_both_win, "2 clients were told"),
    (_the_other_answer, "answered deny and became allow"),
    (_lost_answer, "accepted answer to q1 is not in the log"),
    (_sent_again, "sent to an agent 2 times"),
    (_done_twice, "carried out 2 times"),
    (_only_claimed, "called a success"),
    (_heard_what_is_not_stored, "not in the log"),
    (_lost_session, "is not in the log"),
    (_lost_prompt, "does not speak of it"),
    (_orphan, "still running"),
]


def test_a_right_history_has_no_violation() -> None:
    assert violations(right()) == []


@pytest.mark.parametrize(("plant", "words"), FAULTS, ids=[plant.__name__.strip("_") for plant, _ in FAULTS])
def test_each_fault_is_found(plant: Callable[[History], None], words: str) -> None:
    history = deepcopy(right())
    plant(history)
    assert any(words in violation for violation in violations(history)), violations(history)
