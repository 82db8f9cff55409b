"""Attempts at the model that an agent repeats without a word, told from its own records while the turn runs."""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import Callable
from pathlib import Path

import msgspec

from ...agents.acp import AcpSession
from ...agents.acp.events import ModelFailed
from ..stored import Json, NewLines

EVERY = 1.0
"""Seconds between two looks."""


class FailedCall(msgspec.Struct, frozen=True):
    """What a record says of a call of the model."""

    message: str
    status: int | None = None


def watch_retries(
    session: AcpSession,
    place: Callable[[], Path | None],
    failure: Callable[[Json], FailedCall | None],
    *,
    start: int = 0,
) -> None:
    """Until the session ends. ``place``: where its records are, as soon as there are any; ``failure``: what one line
    says, if it is one. What was written before ``start`` was told before."""
    # The task must not hold the session: one that nobody else holds is to end.
    session.attend(_watch(weakref.ref(session), NewLines(place, start), failure))


async def _watch(
    reference: weakref.ref[AcpSession], lines: NewLines, failure: Callable[[Json], FailedCall | None]
) -> None:
    """What is found is told at the next look, if the turn still runs: one that is over has said itself how it ended."""
    failures: list[FailedCall] = []
    turn = attempt = 0
    while True:
        await asyncio.sleep(EVERY)
        running = _running_turn(reference)
        if running is None:
            return
        if running != turn:
            turn, attempt, failures = running, 0, []
        for failed in failures:
            attempt += 1
            _put_in(reference, attempt, failed)
        records = await asyncio.to_thread(lines.read)
        failures = [one for record in records if (one := failure(record)) is not None]


def _running_turn(reference: weakref.ref[AcpSession]) -> int | None:
    """0: none runs. ``None``: the session is over."""
    session = reference()
    if session is None or session.ended:
        return None
    return session.turn_id if session.running else 0


def _put_in(reference: weakref.ref[AcpSession], attempt: int, failed: FailedCall) -> None:
    session = reference()
    if session is not None:
        session.put_in(ModelFailed(session.session_id, attempt, failed.message, failed.status))
