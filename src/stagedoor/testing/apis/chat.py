"""The OpenAI Chat Completions API, as OpenCode and most other agents use it."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from ..answers import Refusal, sse
from ..model_request import (
    CallResult,
    ConversationTurn,
    Json,
    ModelRequest,
    NativeCall,
    PastCall,
    exit_failed,
    record,
    records,
    text_of,
    typed_text,
)
from ..reply_choice import AnsweredCall
from ..script import HttpError, Part, ScriptedCall, StopReason, StreamError, UsageOverride
from .chat_tools import native_call
from .responses import refuse_as_openai

_SIDE = {
    "title": ("Generate a title for this conversation", "You are a title generator"),
    "summary": (
        "You are a context summarization agent",
        "Provide a detailed prompt for continuing our conversation",
        "tasked with summarizing conversations",
    ),
}
_STOPS: Mapping[StopReason, str] = {
    "end": "stop",
    "max_tokens": "length",
    "refusal": "content_filter",
    "content_filter": "content_filter",
}
_FAILED = re.compile(r"(?:Error\b|The user rejected|Invalid tool|\[Tool execution)")


class ChatApi:
    name = "chat"

    def accepts(self, method: str, path: str) -> bool:
        return method == "POST" and path.endswith("/chat/completions")

    def read(self, path: str, headers: dict[str, str], body: Json) -> ModelRequest:
        messages = records(body.get("messages"))
        system = "\n".join(
            text_of(message.get("content")) for message in messages if message.get("role") in ("system", "developer")
        )
        turns = tuple(_turns(messages))
        functions = [record(tool.get("function")) for tool in records(body.get("tools"))]
        return ModelRequest(
            api=self.name,
            path=path,
            body=body,
            model=str(body.get("model", "")),
            stream=bool(body.get("stream")),
            system=system,
            turns=turns,
            tools={str(function.get("name", "")): function for function in functions},
            session=headers.get("x-session-affinity") or headers.get("x-session-id") or "",
            side="" if functions else _side(system, turns),
        )

    def native(self, call: ScriptedCall, request: ModelRequest) -> list[NativeCall]:
        return [native_call(call, request.tools)]

    def complete_parts(self, request: ModelRequest, parts: Sequence[Part]) -> Sequence[Part]:
        return parts

    def follow_up(self, request: ModelRequest, last: Sequence[AnsweredCall]) -> list[tuple[ScriptedCall, NativeCall]]:
        return []

    def side_answer(self, request: ModelRequest) -> str:
        return "Scripted session" if request.side == "title" else "A summary of the scripted conversation."

    def stream(self, request: ModelRequest, new_id: Callable[[], int]) -> ChatStream:
        return ChatStream(request.model, f"chatcmpl-scripted{new_id():08d}")

    def refuse(self, error: HttpError) -> Refusal:
        return refuse_as_openai(error)

    def overflow(self) -> HttpError | StreamError:
        return HttpError(400, "This model's maximum context length is 128000 tokens.", "context_length_exceeded")


def _turns(messages: Sequence[Json]) -> Iterator[ConversationTurn]:
    results: list[CallResult] = []
    for message in messages:
        text = text_of(message.get("content"))
        if message.get("role") == "tool":
            failed = exit_failed(text) or _FAILED.match(text) is not None
            results.append(CallResult(str(message.get("tool_call_id")), text, failed))
            continue
        if results:
            yield ConversationTurn("tool", results=tuple(results))
            results = []
        if message.get("role") == "assistant":
            calls = tuple(
                PastCall(str(call.get("id")), str(record(call.get("function")).get("name")), call.get("function"))
                for call in records(message.get("tool_calls"))
            )
            yield ConversationTurn("model", text, calls)
        elif message.get("role") == "user" and (prompt := typed_text(text)):
            yield ConversationTurn("user", prompt)
    if results:
        yield ConversationTurn("tool", results=tuple(results))


def _side(system: str, turns: Sequence[ConversationTurn]) -> str:
    texts = [system, *(turn.text for turn in turns if turn.role == "user")]
    return next(
        (name for name, marks in _SIDE.items() if any(mark in text for mark in marks for text in texts)),
        "",
    )


class ChatStream:
    """One completion, chunk by chunk."""

    def __init__(self, model: str, completion_id: str) -> None:
        self._head: Json = {"id": completion_id, "created": 1_700_000_000, "model": model}
        self._text: list[str] = []
        self._thought: list[str] = []
        self._calls: list[Json] = []

    def begin(self) -> Iterator[bytes]:
        yield self._chunk({"role": "assistant", "content": ""})

    def say(self, pieces: Iterable[str]) -> Iterator[bytes]:
        for piece in pieces:
            self._text.append(piece)
            yield self._chunk({"content": piece})

    def think(self, text: str) -> Iterator[bytes]:
        self._thought.append(text)
        for piece in (text[: len(text) // 2], text[len(text) // 2 :]):
            yield self._chunk({"reasoning_content": piece})

    def call(self, call: NativeCall, call_id: str) -> Iterator[bytes]:
        arguments = json.dumps(call.input)
        made: Json = {"id": call_id, "type": "function", "function": {"name": call.name, "arguments": ""}}
        index = len(self._calls)
        yield self._chunk({"tool_calls": [{"index": index, **made}]})
        for piece in (arguments[: len(arguments) // 2], arguments[len(arguments) // 2 :]):
            yield self._chunk({"tool_calls": [{"index": index, "function": {"arguments": piece}}]})
        self._calls.append({**made, "function": {"name": call.name, "arguments": arguments}})

    def fail(self, kind: str, message: str) -> Iterator[bytes]:
        yield sse({"error": {"message": message, "type": kind, "code": kind}})

    def end(self, stop: StopReason, usage: UsageOverride) -> Iterator[bytes]:
        yield self._chunk({}, finish_reason=self._stop(stop), usage=_usage(usage))
        yield b"data: [DONE]\n\n"

    def whole(self, stop: StopReason, usage: UsageOverride) -> Json:
        message: Json = {"role": "assistant", "content": "".join(self._text)}
        if self._thought:
            message["reasoning_content"] = "".join(self._thought)
        if self._calls:
            message["tool_calls"] = self._calls
        choice = {"index": 0, "message": message, "finish_reason": self._stop(stop)}
        return {**self._head, "object": "chat.completion", "choices": [choice], "usage": _usage(usage)}

    def _stop(self, stop: StopReason) -> str:
        return "tool_calls" if self._calls and stop == "end" else _STOPS[stop]

    def _chunk(self, delta: Json, finish_reason: str | None = None, **more: Any) -> bytes:
        choice = {"index": 0, "delta": delta, "finish_reason": finish_reason}
        return sse({**self._head, "object": "chat.completion.chunk", "choices": [choice], **more})


def _usage(usage: UsageOverride) -> Json:
    return {
        "prompt_tokens": usage.input,
        "completion_tokens": usage.output,
        "total_tokens": usage.input + usage.output,
        "prompt_tokens_details": {"cached_tokens": usage.cached},
        "completion_tokens_details": {"reasoning_tokens": usage.reasoning},
    }
