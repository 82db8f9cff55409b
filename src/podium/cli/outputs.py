"""Where a stream can go when there is no terminal: plain lines, the answer alone, or JSON in any dialect."""

from __future__ import annotations

import sys
from typing import Protocol

from ..unified import events
from ..unified.events import Event
from .lines import Lines, clean, style_for, summary


class Output(Protocol):
    """Shows one stream. The last four are for questions and interrupts, which need the terminal for themselves."""

    def show(self, event: Event) -> None: ...
    def note(self, text: str) -> None: ...
    async def shown(self, request_id: str) -> None: ...
    def pause(self) -> None: ...
    def resume(self) -> None: ...


class _Written:
    """What outputs that only write have in common with a screen: nothing to make room for."""

    def note(self, text: str) -> None:
        print(text, file=sys.stderr, flush=True)

    async def shown(self, request_id: str) -> None:
        return

    def pause(self) -> None:
        return

    def resume(self) -> None:
        return


class PlainOutput(_Written):
    """Lines on stdout; the closing line on stderr, so that a pipe carries the work and nothing else."""

    def __init__(self, *, thinking: bool = True) -> None:
        self._lines = Lines(style_for(sys.stdout), thinking=thinking)

    def show(self, event: Event) -> None:
        text = self._lines.show(event)
        if text:
            sys.stdout.write(text)
            sys.stdout.flush()
        if isinstance(event, events.Done):
            sys.stdout.flush()
            print(summary(event), file=sys.stderr)


class AnswerOutput(_Written):
    """The final answer and nothing else: for ``$(podium run …)``."""

    def show(self, event: Event) -> None:
        match event:
            case events.Done(status="success", result=result):
                print(clean(result))
            case events.Error(fatal=True):
                print(f"{event.kind}: {clean(event.message)}", file=sys.stderr)
            case _:
                return


class JsonOutput(_Written):
    """One JSON object per line, flushed as it comes."""

    def __init__(self, dialect: str) -> None:
        from ..dialects import DIALECTS, encode

        self._projection = DIALECTS[dialect]()
        self._encode = encode

    def show(self, event: Event) -> None:
        out = sys.stdout.buffer
        lines = self._encode(self._projection, event)
        if lines:
            out.write(b"".join(line + b"\n" for line in lines))
            out.flush()
