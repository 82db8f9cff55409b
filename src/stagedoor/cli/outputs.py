"""Where a stream can go when there is no terminal: plain lines, the answer alone, or JSON in any dialect."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Protocol

from ..transcript import clean
from ..unified import events
from ..unified.events import Event
from .lines import Lines, style_for, summary

Show = Callable[[Event], None]


class Output(Protocol):
    """Shows one stream, and makes room for questions, which need the terminal for themselves."""

    @property
    def show(self) -> Show: ...
    def note(self, text: str) -> None: ...
    async def shown(self, request_id: str) -> None: ...
    def answered(self, request_id: str) -> None: ...
    def pause(self) -> None: ...
    def resume(self) -> None: ...
    async def ticking(self) -> None: ...


class Written:
    """An output that only writes: there is nothing to make room for, and nothing that moves."""

    def __init__(self, show: Show) -> None:
        self.show = show

    def note(self, text: str) -> None:
        print(text, file=sys.stderr, flush=True)

    async def shown(self, request_id: str) -> None:
        return

    def answered(self, request_id: str) -> None:
        return

    def pause(self) -> None:
        return

    def resume(self) -> None:
        return

    async def ticking(self) -> None:
        return


def plain_lines(*, thinking: bool = True) -> Show:
    """Lines on stdout; the closing line on stderr, so that a pipe carries the work and nothing else."""
    lines = Lines(style_for(sys.stdout), thinking=thinking)

    def show(event: Event) -> None:
        text = lines.show(event)
        if text:
            sys.stdout.write(text)
            sys.stdout.flush()
        if isinstance(event, events.Done):
            print(summary(event), file=sys.stderr)

    return show


def answer_alone(event: Event) -> None:
    """The final answer and nothing else: for ``$(stagedoor run …)``."""
    match event:
        case events.Done(status="success", result=result):
            print(clean(result))
        case events.Error(fatal=True):
            print(f"{event.kind}: {clean(event.message)}", file=sys.stderr)
        case _:
            return


def json_lines(dialect: str) -> Show:
    """One JSON object per line, flushed as it comes."""
    from ..dialects import DIALECTS, encode

    projection, out = DIALECTS[dialect](), sys.stdout.buffer

    def show(event: Event) -> None:
        lines = encode(projection, event)
        if lines:
            out.write(b"".join(line + b"\n" for line in lines))
            out.flush()

    return show
