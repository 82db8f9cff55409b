"""A recording of ``gemini --output-format stream-json``: the CLI repeats the prompt before it answers."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ...agents.gemini.events import Message
from ..recorded import Prompted, Said


class StreamRecorded:
    def __init__(self, dictionary: Any) -> None:
        pass

    def heard(self, native: Any) -> Iterable[Said]:
        return [Prompted(native.content)] if isinstance(native, Message) and native.role == "user" else ()

    def said(self, command: Any) -> Iterable[Said]:
        return ()
