"""Recordings of Gemini CLI, over ``stream-json`` and over ``--acp``. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from ...agents.gemini.events import GeminiMessage
from ...unified.recording import PromptSent, RecordedAction
from ..acp.recording import AcpRecordingReader
from .acp_dictionary import GeminiAcpDictionary


class StreamRecordingReader:
    """The CLI repeats the prompt before it answers."""

    def __init__(self, dictionary: Any) -> None:
        pass

    def from_agent(self, native: Any) -> Iterable[RecordedAction]:
        return [PromptSent(native.content)] if isinstance(native, GeminiMessage) and native.role == "user" else ()

    def from_client(self, command: Any) -> Iterable[RecordedAction]:
        return ()


def acp_recording(dictionary: GeminiAcpDictionary) -> AcpRecordingReader:
    return AcpRecordingReader(
        dictionary.refuse, dictionary.allow, dictionary.expect_answers, lasting=("proceed_always_and_save",)
    )


def recognize_stream(line: bytes, message: Mapping[str, Any]) -> int:
    match message:
        case {"type": "init", "session_id": str()} | {"type": "message", "role": str(), "content": str()}:
            return 3
        case {"type": "tool_use", "tool_name": str()} | {"type": "tool_result", "tool_id": str()}:
            return 3
        case {"type": "result", "stats": _} | {"type": "error", "severity": str()}:
            return 3
        case {"type": "content", "value": str()} | {"type": "tool_call", "name": str()} | {"type": "done"}:
            return 2
        case (
            {"type": "message", "role": str()}
            | {"type": "result", "status": str()}
            | {"type": "tool_result", "id": str()}
        ):
            return 2
        case {"type": "error", "message": str()} | {"type": "retry"}:
            return 1
        case _:
            return 0
