"""A recording of ``gemini --output-format stream-json``: the CLI repeats the prompt before it answers."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ...agents.gemini.events import Message
from ...unified.recording import PromptSent, RecordedAction


class StreamRecordingReader:
    def __init__(self, dictionary: Any) -> None:
        pass

    def from_agent(self, native: Any) -> Iterable[RecordedAction]:
        return [PromptSent(native.content)] if isinstance(native, Message) and native.role == "user" else ()

    def from_client(self, command: Any) -> Iterable[RecordedAction]:
        return ()
