"""Play a transcript as if the agent were there: no process, no socket.

A *raw* transcript is what an agent printed. A *two-way* one has one JSON object a line, ``{"dir", "t", "line"}``, with
``dir`` ``"in"`` (to the agent), ``"out"`` (from it) or ``"note"``. A two-way replay answers where the recording did: it
goes on past an ``"in"`` only when the client has sent a message of that kind, and answers under the client's own ids.
"""

from __future__ import annotations

import asyncio
from codecs import BOM_UTF8
from collections.abc import AsyncIterator, Callable, Iterable
from types import TracebackType
from typing import Any, Literal, TypeAlias, cast

import msgspec

from ..errors import ConnectionLost
from ..wire.http import HttpRequest
from ..wire.jsonl import MAX_LINE, LineBuffer
from ..wire.shapes import UnknownMessage, repaired

Kind: TypeAlias = tuple[object, ...]
"""What makes a sent message the one the recording has: its method or type, not its content."""

INPUT_CLOSED = b"stdin closed"


class Recorded(msgspec.Struct, frozen=True):
    """One line of a transcript. ``at`` is seconds from its beginning."""

    direction: Literal["in", "out", "note"]
    line: bytes
    at: float = 0.0


class _TwoWay(msgspec.Struct, frozen=True):
    dir: Literal["in", "out", "note"]
    line: str
    t: float = 0.0


_TWO_WAY = msgspec.json.Decoder(_TwoWay)


def read_transcript(content: bytes) -> list[Recorded]:
    """Either form; a line that is not in the two-way form is output, as it stands."""
    buffer = LineBuffer(MAX_LINE)
    lines = buffer.feed(content.removeprefix(BOM_UTF8)) + buffer.finish()
    return [_recorded(line.raw if isinstance(line, UnknownMessage) else line) for line in lines]


def _recorded(line: bytes) -> Recorded:
    if line.startswith(b'{"dir"'):
        try:
            entry = _TWO_WAY.decode(line)
        except (msgspec.DecodeError, UnicodeDecodeError):
            return _repaired_entry(line)
        return Recorded(entry.dir, entry.line.encode("utf-8", "replace"), entry.t)
    return Recorded("out", line)


def _repaired_entry(line: bytes) -> Recorded:
    try:
        entry = _TWO_WAY.decode(repaired(line))
    except (msgspec.DecodeError, ValueError):
        return Recorded("out", line)
    return Recorded(entry.dir, entry.line.encode(), entry.t)


class Replay:
    """A transport in the shape of a child process: ``batches``, ``send``, ``end_input``, ``wait``, ``close``.

    ``speed`` 1.0 keeps the recording's own time, 2.0 is twice as fast, ``None`` (the default) never waits.
    ``patience`` is how long the client may take to send what the recording had sent before ``ConnectionLost``.
    ``unexpected`` holds what the client sent and the recording had not.
    """

    def __init__(
        self,
        transcript: bytes | Iterable[Recorded],
        *,
        speed: float | None = None,
        patience: float = 60.0,
        exit_code: int = 0,
    ) -> None:
        self._entries = read_transcript(transcript) if isinstance(transcript, bytes) else list(transcript)
        self._speed = speed
        self._patience = patience
        self._exit_code = exit_code
        self._sent: list[bytes] = []
        self._news = asyncio.Event()
        self._input_ended = False
        self._closed = False
        self._finished = asyncio.Event()
        self._ids: dict[object, object] = {}

    @property
    def unexpected(self) -> list[bytes]:
        return list(self._sent)

    async def batches(self) -> AsyncIterator[list[bytes | UnknownMessage]]:
        """The recorded output, in the recording's order. Raises ``ConnectionLost`` when the client left the script."""
        batch: list[bytes | UnknownMessage] = []
        clock = 0.0
        for entry in self._entries:
            waits = entry.direction == "in" or (entry.direction == "note" and entry.line == INPUT_CLOSED)
            pause = 0.0 if self._speed is None else (entry.at - clock) / self._speed
            if batch and (waits or pause > 0):
                yield batch
                batch = []
            if pause > 0:
                await asyncio.sleep(pause)
                clock = entry.at
            if self._closed:
                break
            if entry.direction == "out":
                batch.append(self._under_their_ids(entry.line))
            elif entry.direction == "in":
                await self._until_sent(entry.line)
            elif waits:
                await self._until(lambda: self._input_ended, "closed its input")
        if batch:
            yield batch
        self._finished.set()

    async def send(self, message: bytes | HttpRequest) -> None:
        if self._closed or self._input_ended:
            raise ConnectionLost("the replay was closed; make a new one to play the transcript again")
        self._sent.append(message.line() if isinstance(message, HttpRequest) else message)
        self._news.set()

    async def end_input(self) -> None:
        self._input_ended = True
        self._news.set()

    async def wait(self) -> int:
        """Wait for the end of the recording."""
        await self._finished.wait()
        return self._exit_code

    async def close(self) -> None:
        self._closed = self._input_ended = True
        self._news.set()
        self._finished.set()

    async def stop(self) -> int:
        await self.close()
        return self._exit_code

    async def __aenter__(self) -> Replay:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()

    async def _until_sent(self, recorded: bytes) -> None:
        kind = kind_of(recorded)

        def arrived() -> bool:
            for position, message in enumerate(self._sent):
                if kind_of(message) == kind:
                    self._learn_ids(recorded, self._sent.pop(position))
                    return True
            return False

        await self._until(arrived, f"sent {' '.join(str(part) for part in kind)}")

    async def _until(self, arrived: Callable[[], bool], description: str) -> None:
        try:
            async with asyncio.timeout(self._patience):
                while not (arrived() or self._closed):
                    self._news.clear()
                    await self._news.wait()
        except TimeoutError:
            unmatched = ", ".join(repr(kind_of(message)) for message in self._sent) or "nothing"
            raise ConnectionLost(
                f"in the recording the client now {description}; this one did not within {self._patience} s "
                f"(sent, but not in the recording: {unmatched})"
            ) from None

    def _learn_ids(self, recorded: bytes, sent: bytes) -> None:
        theirs, ours = _request_id(_object(recorded)), _request_id(_object(sent))
        if theirs is not None and ours is not None:
            self._ids[theirs] = ours

    def _under_their_ids(self, line: bytes) -> bytes:
        """An answer to the client carries the id that this client chose, where the recorded client's was another."""
        value = _object(line)
        if value is None:
            return line
        if "id" in value and "method" not in value and ("result" in value or "error" in value):
            place, name = value, "id"
        elif value.get("type") == "control_response" and isinstance(value.get("response"), dict):
            place, name = cast("dict[str, Any]", value["response"]), "request_id"
        else:
            return line
        recorded = place.get(name)
        theirs = self._ids.get(_hashable(recorded), recorded)
        if theirs == recorded:
            return line
        place[name] = theirs
        return msgspec.json.encode(value)


def kind_of(message: bytes) -> Kind:
    """The method or type of a message; of an answer, the id it answers; of an HTTP call, its method and path."""
    value = _object(message)
    if value is None:
        words = message.split(b" ", 2)
        if len(words) > 1 and words[1].startswith(b"/"):
            return (words[0].decode("utf-8", "replace"), words[1].partition(b"?")[0].decode("utf-8", "replace"))
        return ("text",)
    if isinstance(method := value.get("method"), str):
        return (method,)
    if "id" in value and ("result" in value or "error" in value):
        return ("answer", _hashable(value["id"]))
    name = value.get("type")
    match name, value:
        case "control_request", {"request": {"subtype": str(subtype)}}:
            return (name, subtype)
        case "control_response", {"response": {"request_id": str(request_id)}}:
            return (name, request_id)
        case _:
            return (name if isinstance(name, str) else "object",)


def _request_id(value: dict[str, Any] | None) -> object:
    if value is None:
        return None
    if "method" in value:
        return _hashable(value.get("id"))
    return _hashable(value.get("request_id")) if value.get("type") == "control_request" else None


def _hashable(value: object) -> object:
    return value if isinstance(value, (str, int, float)) else None


def _object(message: bytes) -> dict[str, Any] | None:
    try:
        value = msgspec.json.decode(message)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    return cast("dict[str, Any]", value) if isinstance(value, dict) else None
