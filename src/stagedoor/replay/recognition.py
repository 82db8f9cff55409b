"""Which protocol a recording holds. Pure of processes and clocks; the agents themselves know their own words."""

from __future__ import annotations

import codecs
from collections.abc import Iterable, Iterator
from typing import Any, cast

import msgspec

from .. import catalog
from ..drivers.acp.definition import ANY, AcpAgent
from ..drivers.agent import Agent, AnyDriver
from ..errors import NotSupported
from ..wire import shapes
from . import Line, side_of

ENOUGH = 9
"""Points of one driver, and twice those of any other, after which no more lines are looked at."""
FIRST_LINES = 300


class Recognition(msgspec.Struct, frozen=True):
    """The driver whose protocol a recording holds, and what else was found in it.

    ``points`` is 0 when nothing was recognized. ``others``: drivers of other protocols that some lines belong to.
    """

    agent: str
    driver_name: str
    driver: AnyDriver
    points: int = 0
    others: tuple[str, ...] = ()

    def __str__(self) -> str:
        name = "Agent Client Protocol" if self.agent == ANY else f"{self.agent} --driver {self.driver_name}"
        if not self.points:
            seen = f" (it looks like {', '.join(self.others)}: leave the agent out)" if self.others else ""
            return f"no protocol was recognized{seen}; read as {name}"
        mixed = f"; some lines look like {', '.join(self.others)}" if self.others else ""
        return f"recognized as {name}{mixed}"


class Recognizer:
    """Takes lines until it is sure. ``agent``: only the drivers of this one are considered."""

    def __init__(self, agent: Agent | None = None) -> None:
        agents = [agent] if agent is not None else _all_agents()
        self._drivers = [(one, name, driver) for one in agents for name, driver in one.drivers.items()]
        self._points = [0] * len(self._drivers)
        self._certain: list[set[int]] = []  # of each line that is certain, whose it may be
        self._lines = 0

    def look(self, line: Line) -> bool:
        """Take one line in. Whether it is clear now."""
        self._lines += 1
        _, message = side_of(line)
        raw = message.raw if isinstance(message, shapes.UnknownMessage) else message
        value = _members(raw)
        points = [driver.recognize(raw, value) for _, _, driver in self._drivers]
        if max(points, default=0) >= 3:
            self._certain.append({place for place, number in enumerate(points) if number >= 3})
        self._points = [before + now for before, now in zip(self._points, points, strict=True)]
        first, second = sorted([0, *self._points])[-1:-3:-1] if len(self._points) > 1 else (self._points[0], 0)
        return (first >= ENOUGH and first >= 2 * second) or self._lines >= FIRST_LINES

    def recognition(self) -> Recognition:
        best = max(range(len(self._points)), key=lambda place: (self._points[place], -place))
        agent, name, driver = self._drivers[best]
        foreign = [places for places in self._certain if best not in places]
        others = {min(places) for places in foreign}
        named = tuple(f"{self._drivers[place][0].name} {self._drivers[place][1]}" for place in sorted(others))
        return Recognition(agent.name, name, driver, self._points[best], named)


def recognized(lines: Iterable[Line], agent: Agent | None = None) -> tuple[Recognition, Iterator[Line]]:
    """The driver that a recording is for, and all its lines. Reads no more of them than it needs for that."""
    recognizer, source = Recognizer(agent), iter(lines)
    read: list[Line] = []
    for line in source:
        read.append(line)
        if recognizer.look(line):
            break
    recognition = recognizer.recognition()
    if not recognition.points and agent is not None:
        elsewhere = Recognizer()
        for line in read:
            elsewhere.look(line)
        if (other := elsewhere.recognition()).points:
            recognition = msgspec.structs.replace(recognition, others=(f"{other.agent} {other.driver_name}",))
    return recognition, _all_lines(read, source)


def utf8_chunks(chunks: Iterable[bytes]) -> Iterator[bytes]:
    """The same text without a byte order mark; Windows shells write UTF-16 when they redirect."""
    decoder: codecs.IncrementalDecoder | None = None
    head = b""
    source = iter(chunks)
    for chunk in source:
        head += chunk
        if len(head) >= len(codecs.BOM_UTF8):
            break
    if head.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        decoder = codecs.getincrementaldecoder("utf-16")("replace")
    yield decoder.decode(head).encode("utf-8", "replace") if decoder else head.removeprefix(codecs.BOM_UTF8)
    for chunk in source:
        yield decoder.decode(chunk).encode("utf-8", "replace") if decoder else chunk


def _all_lines(read: list[Line], rest: Iterator[Line]) -> Iterator[Line]:
    yield from read
    yield from rest


def _all_agents() -> list[Agent]:
    """The protocol by itself comes first: an agent that speaks it is recognized only by its name."""
    agents = [catalog.agent(AcpAgent(command=[ANY], title="any agent"))]
    for name in catalog.names():
        try:
            agents.append(catalog.agent(name))
        except NotSupported:  # somebody else's, and broken: it says so when it is used
            continue
    return agents


def _members(message: bytes) -> dict[str, Any]:
    start = message.find(b"{", 0, 64)  # ``sse data: {…}``
    if start < 0:
        return {}
    try:
        value = msgspec.json.decode(message[start:])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        try:
            value = msgspec.json.decode(shapes.repaired(message[start:]))
        except (msgspec.DecodeError, ValueError, RecursionError):
            return {}
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}
