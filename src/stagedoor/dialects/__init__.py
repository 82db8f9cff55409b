"""The canonical stream in the vocabularies others speak. Pure.

A *projection* reads one session's events in order and translates each into its dialect. Some remember earlier events
(a message's deltas, a tool's native name), so every stream and every reader needs its own projection::

    projection = DIALECTS["ues"]()
    for line in encode(projection, event): ...
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

import msgspec

from stagedoor.unified.events import Event


class Projection(Protocol):
    def project(self, event: Event) -> Sequence[msgspec.Struct]:
        """``event`` in the dialect: mostly one value, sometimes several or none. Never raises."""
        ...


class StagedoorProjection:
    """The canonical form itself, so that every door can treat all dialects alike."""

    def project(self, event: Event) -> Sequence[Event]:
        return [event]


def _ues() -> Projection:
    from .ues import UesProjection

    return UesProjection()


def _lifecycle() -> Projection:
    from .lifecycle import LifecycleProjection

    return LifecycleProjection()


def _board() -> Projection:
    from .board import BoardProjection

    return BoardProjection()


def _notify() -> Projection:
    from .notify import NotifyProjection

    return NotifyProjection()


def _chat() -> Projection:
    from .chat import ChatProjection

    return ChatProjection()


DIALECTS: dict[str, Callable[[], Projection]] = {
    "stagedoor": StagedoorProjection,
    "ues": _ues,
    "lifecycle": _lifecycle,
    "board": _board,
    "notify": _notify,
    "chat": _chat,
}

_ENCODER = msgspec.json.Encoder()


def encode(projection: Projection, event: Event) -> list[bytes]:
    """``event`` in the dialect of ``projection``: JSON objects without newlines."""
    return [_ENCODER.encode(value) for value in projection.project(event)]
