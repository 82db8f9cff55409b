"""The canonical stream in the vocabularies others speak. Pure.

A *projection* reads one session's events in order and says each in its dialect's words. Some remember what went before
(a message's deltas, a tool's own name), so every stream and every reader needs a projection of its own::

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
        """What the dialect says for ``event``: mostly one thing, sometimes several or nothing. Never raises."""
        ...


def _stagedoor() -> Projection:
    from .stagedoor import StagedoorProjection

    return StagedoorProjection()


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
    "stagedoor": _stagedoor,
    "ues": _ues,
    "lifecycle": _lifecycle,
    "board": _board,
    "notify": _notify,
    "chat": _chat,
}

_ENCODER = msgspec.json.Encoder()


def encode(projection: Projection, event: Event) -> list[bytes]:
    """What ``projection`` says for ``event``, each as one JSON object without a newline."""
    return [_ENCODER.encode(said) for said in projection.project(event)]
