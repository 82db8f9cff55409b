"""What a recording holds beside the agent's own words: what was said to it, and what became of its questions. Pure.

An agent's protocol reads our side of a two-way recording back into its commands (``decode_command``); a
:class:`RecordingReader` says what they mean, as the living session would have known it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Protocol, TypeAlias

import msgspec

from .decisions import Decision, Deny

UNREADABLE = Deny("the answer could not be read, so it allows nothing")
"""Agents treat such an answer as a failed question: the call does not run."""


class SessionOpened(msgspec.Struct, frozen=True):
    """A session was asked for, in this directory."""

    cwd: str


class PromptSent(msgspec.Struct, frozen=True):
    """A turn was asked for."""

    prompt: str


class TextSteered(msgspec.Struct, frozen=True):
    """Something was said into the running turn."""

    text: str


class TurnInterrupted(msgspec.Struct, frozen=True):
    """The turn was to end."""


class QuestionAnswered(msgspec.Struct, frozen=True):
    """A question got its answer."""

    request_id: str
    decision: Decision


class QuestionWithdrawn(msgspec.Struct, frozen=True):
    """The agent waits for no answer any more."""

    request_id: str


RecordedAction: TypeAlias = (
    SessionOpened | PromptSent | TextSteered | TurnInterrupted | QuestionAnswered | QuestionWithdrawn
)


class RecordingReader(Protocol):
    """Both sides of a recording, as far as the living session would have known more than the agent says."""

    def from_agent(self, native: Any) -> Iterable[RecordedAction]:
        """What the agent says of its own questions; the dictionary has not heard it yet."""
        ...

    def from_client(self, command: Any) -> Iterable[RecordedAction]:
        """What one of our commands meant."""
        ...


class OneSided:
    """A recording of an agent that is told nothing once it runs."""

    def __init__(self, dictionary: Any) -> None:
        pass

    def from_agent(self, native: Any) -> Iterable[RecordedAction]:
        return ()

    def from_client(self, command: Any) -> Iterable[RecordedAction]:
        return ()
