"""A reply as an HTTP answer in one model API's words, as frames for the server to write. Pure."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Protocol, TypeAlias

import msgspec

from .model_request import Json, ModelRequest, NativeCall
from .reply_choice import AnsweredCall
from .script import (
    ContextOverflow,
    Cut,
    EarlyStop,
    Endless,
    HttpError,
    Part,
    Say,
    ScriptedCall,
    Stall,
    StopReason,
    StreamError,
    Structured,
    Think,
    UsageOverride,
)


class Pause(msgspec.Struct, frozen=True):
    """Write nothing for so long; without ``seconds``, until the client goes away."""

    seconds: float | None


class Hangup(msgspec.Struct, frozen=True):
    """Write these bytes outside any framing and reset the connection."""

    tail: bytes = b""


Frame: TypeAlias = bytes | Pause | Hangup


class Refusal(msgspec.Struct, frozen=True):
    """An HTTP error as one API words it."""

    status: int
    body: Json
    headers: tuple[tuple[str, str], ...] = ()


class FramedAnswer(msgspec.Struct, frozen=True):
    """An HTTP answer. ``frames`` are written as they come; with ``chunked`` off they are the one whole body."""

    status: int
    headers: tuple[tuple[str, str], ...]
    frames: Iterable[Frame]
    chunked: bool = False


class AnswerStream(Protocol):
    """One answer in one API's words: streamed piece by piece, or whole after its last piece."""

    def begin(self) -> Iterable[bytes]: ...
    def say(self, pieces: Iterable[str]) -> Iterable[bytes]: ...
    def think(self, text: str) -> Iterable[bytes]: ...
    def call(self, call: NativeCall, call_id: str) -> Iterable[bytes]: ...
    def fail(self, kind: str, message: str) -> Iterable[bytes]: ...
    def end(self, stop: StopReason, usage: UsageOverride) -> Iterable[bytes]: ...
    def whole(self, stop: StopReason, usage: UsageOverride) -> Json: ...


class ModelApi(Protocol):
    """One model API: how its requests are read, which tools its agents have, how it answers."""

    @property
    def name(self) -> str: ...
    def accepts(self, method: str, path: str) -> bool: ...
    def read(self, path: str, headers: dict[str, str], body: Json) -> ModelRequest: ...
    def native(self, call: ScriptedCall, request: ModelRequest) -> list[NativeCall]: ...
    def complete_parts(self, request: ModelRequest, parts: Sequence[Part]) -> Sequence[Part]: ...
    def follow_up(
        self, request: ModelRequest, last: Sequence[AnsweredCall]
    ) -> list[tuple[ScriptedCall, NativeCall]]: ...
    def side_answer(self, request: ModelRequest) -> str: ...
    def stream(self, request: ModelRequest, new_id: Callable[[], int]) -> AnswerStream: ...
    def refuse(self, error: HttpError) -> Refusal: ...
    def overflow(self) -> HttpError | StreamError: ...


JSON_HEADERS = (("content-type", "application/json; charset=utf-8"),)
STREAM_HEADERS = (("content-type", "text/event-stream; charset=utf-8"), ("cache-control", "no-cache"))

IssuedPairs: TypeAlias = list[tuple[NativeCall, str]]
Dispatch: TypeAlias = Callable[[ScriptedCall], IssuedPairs]
"""Translates a call and gives each native one its id."""
Act: TypeAlias = Part | IssuedPairs


def play(
    api: ModelApi, request: ModelRequest, parts: Sequence[Act], stream: AnswerStream, dispatch: Dispatch
) -> FramedAnswer:
    """The answer that plays these parts."""
    played = [_concrete(part, request, api) for part in parts]
    for part in played:
        if isinstance(part, HttpError):
            return refusal_answer(api.refuse(part))
    if not request.stream and (failure := next((part for part in played if isinstance(part, StreamError)), None)):
        return refusal_answer(api.refuse(HttpError(500, failure.message, failure.kind)))
    acts = [dispatch(part) if isinstance(part, ScriptedCall) else part for part in played]
    silent = list(itertools.takewhile(lambda act: isinstance(act, Stall), acts))
    delay = [Pause(part.seconds) for part in silent if isinstance(part, Stall)]
    rest = acts[len(silent) :]
    frames = _streamed(rest, stream) if request.stream else _whole(rest, stream)
    headers = STREAM_HEADERS if request.stream else JSON_HEADERS
    return FramedAnswer(200, headers, itertools.chain(delay, frames), chunked=request.stream)


def notice_early_end(frames: Iterable[Frame], broken_off: Callable[[], None]) -> Iterator[Frame]:
    """The same frames; calls ``broken_off`` when the reader stops before their end."""
    ended = False
    try:
        yield from frames
        ended = True
    finally:
        if not ended:
            broken_off()


def refusal_answer(refusal: Refusal) -> FramedAnswer:
    return answer_json(refusal.status, refusal.body, refusal.headers)


def answer_json(status: int, body: object, headers: tuple[tuple[str, str], ...] = ()) -> FramedAnswer:
    return FramedAnswer(status, JSON_HEADERS + headers, [json.dumps(body).encode()])


def _concrete(part: Act, request: ModelRequest, api: ModelApi) -> Act:
    match part:
        case ContextOverflow():
            return api.overflow()
        case Structured(value=value) if "StructuredOutput" in request.tools:
            return ScriptedCall("StructuredOutput", value, native=True)
        case Structured(value=value):
            return Say((json.dumps(value),))
        case _:
            return part


def _reason(parts: Sequence[Act]) -> StopReason:
    for part in parts:
        if isinstance(part, EarlyStop):
            return part.reason
    return "end"


def _usage(parts: Sequence[Act]) -> UsageOverride:
    thought = any(isinstance(part, Think) for part in parts)
    return next(
        (part for part in parts if isinstance(part, UsageOverride)), UsageOverride(reasoning=7 if thought else 0)
    )


def _streamed(acts: Sequence[Act], stream: AnswerStream) -> Iterator[Frame]:
    yield from stream.begin()
    for act in acts:
        match act:
            case list():
                for native, call_id in act:
                    yield from stream.call(native, call_id)
            case Say(pieces=pieces, pause=pause):
                yield from _spaced(stream.say(pieces), pause)
            case Endless(text=text, pause=pause):
                yield from _spaced(stream.say(itertools.repeat(text)), pause)
            case Think(text=text):
                yield from stream.think(text)
            case Stall(seconds=seconds):
                yield Pause(seconds)
            case Cut(partway=partway):
                yield Hangup(b'data: {"type":"con' if partway else b"")
                return
            case StreamError(kind=kind, message=message):
                yield from stream.fail(kind, message)
                return
            case _:
                pass
    yield from stream.end(_reason(acts), _usage(acts))


def _spaced(frames: Iterable[bytes], pause: float) -> Iterator[Frame]:
    for frame in frames:
        yield frame
        if pause:
            yield Pause(pause)


def _whole(acts: Sequence[Act], stream: AnswerStream) -> Iterator[Frame]:
    finite = [act for act in acts if not isinstance(act, Endless)]
    for frame in _streamed(finite, stream):
        if not isinstance(frame, bytes):
            yield frame
            if isinstance(frame, Hangup):
                return
    if len(finite) < len(acts):
        yield Pause(None)
        return
    yield json.dumps(stream.whole(_reason(acts), _usage(acts))).encode()


def sse(payload: Json, event: str | None = None) -> bytes:
    """One server-sent event. ASCII on purpose: half a surrogate pair can be sent as an escape only."""
    head = f"event: {event}\n" if event else ""
    return f"{head}data: {json.dumps(payload)}\n\n".encode()
