"""A stream on a terminal: what is finished is printed for good, what is not stands in a live region at the bottom."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from typing import Protocol

from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.live import Live
from rich.markdown import Markdown
from rich.segment import Segment
from rich.text import Text

from ...transcript import clean
from ...unified import events
from ...unified.events import Event
from .output import EventLines, coloured, one_line, summary, wrapped

FRAMES = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"
TICK = 0.1
LONG = 4000  # characters
LIVE_LINES = 6  # of the output of a command that runs
ROOM = 6  # lines of the terminal the unfinished text leaves to everything else


class Region(Protocol):
    """Where the unfinished stands while it changes."""

    def show(self, content: RenderableType) -> None: ...
    def hide(self) -> None: ...


class Screen:
    """Feed it every event; ``animate`` keeps the live region moving, ``pause`` and ``resume`` lend the terminal out."""

    def __init__(
        self,
        console: Console,
        *,
        agent: str,
        thinking: bool = True,
        full_output: bool = False,
        region: Region | None = None,
    ) -> None:
        self.console = console
        self._agent = agent
        self._lines = EventLines(coloured, thinking=thinking, full_output=full_output)
        self._thinking_shown = thinking
        self._blocks = MarkdownBlocks()
        self._streamed = False
        self._thoughts = ""
        self._running: dict[str, tuple[events.ToolUse, float]] = {}
        self._outputs: dict[str, str] = {}
        self._since = time.monotonic()
        self._model = ""
        self._tokens = 0
        self._cost: float | None = None
        self._note = ""
        self._region = region or LiveRegion(console)
        self._is_live = False
        self._question_events: dict[str, asyncio.Event] = {}
        self._answered: set[str] = set()

    # ------------------------------------------------------------------------------------------------ the stream

    def show(self, event: Event) -> None:
        match event:
            case events.TextDelta(text=text) if event.parent_tool_use_id is None:
                self._end_thoughts()
                self._streamed = True
                self._print_markdown(self._blocks.feed(clean(text)))
            case events.Text(text=text) if event.parent_tool_use_id is None:
                self._end_thoughts()
                self._end_text()
                if not self._streamed:
                    self._print_markdown(clean(text))
                self._streamed = False
            case events.ThinkingDelta(text=text):
                self._thoughts += clean(text)
            case events.Thinking(text=text):
                self._thoughts = clean(text)
                self._end_thoughts()
            case events.ToolUse():
                self._print_unfinished()
                self._running[event.tool_use_id] = (event, time.monotonic())
                self._lines.show(event)
            case events.ToolProgress():
                output = self._outputs.get(event.tool_use_id, "") + clean(event.output)
                self._outputs[event.tool_use_id] = output[-LONG:]
            case events.ToolResult():
                self._running.pop(event.tool_use_id, None)
                self._outputs.pop(event.tool_use_id, None)
                self._print_lines(event)
            case events.PermissionRequest():
                self._print_unfinished()
                self._question_events.setdefault(event.request_id, asyncio.Event()).set()
            case events.PermissionResolved() if event.by == "callback" or event.request_id in self._answered:
                return  # the answer stands behind the question already
            case events.PermissionResolved() if not self._is_live:
                self.console.print()  # the question waits for a key: somebody else has answered, or time is up
                self._print_lines(event)
            case events.UsageReport():
                self._tokens = event.session.total_tokens or event.total_tokens
                self._cost = event.session.cost_usd if event.session.cost_usd is not None else event.cost_usd
            case events.TurnStarted() if event.turn > 1:
                self._since = time.monotonic()
                self._note = ""
            case events.Init():
                self._model = clean(event.model)
                self._lines.show(event)
            case events.Done():
                self._print_unfinished()
                self._stop_live()
                bad = event.status != "success"
                self.console.print(Text(summary(event), style="bold red" if bad else "bold green"))
            case _:
                self._print_lines(event)

    async def wait_until_shown(self, request_id: str) -> None:
        """Wait until everything before this question is on the screen: callbacks overtake the stream."""
        waiting = self._question_events.setdefault(request_id, asyncio.Event())
        try:
            async with asyncio.timeout(2.0):
                await waiting.wait()
        except TimeoutError:
            return

    def answered(self, request_id: str) -> None:
        self._answered.add(request_id)

    def note(self, text: str) -> None:
        """A note in the status line that stays until the turn ends."""
        self._note = text
        self.refresh()

    def _print_lines(self, event: Event) -> None:
        text = self._lines.show(event).rstrip("\n")
        if text:
            self._print_unfinished()
            self.console.print(Text.from_ansi(wrapped(text, self.console.width)), soft_wrap=True)

    def _print_unfinished(self) -> None:
        """Print what is unfinished: something else happens now."""
        self._end_thoughts()
        self._end_text()

    def _end_text(self) -> None:
        self._print_markdown(self._blocks.finish())

    def _print_markdown(self, text: str) -> None:
        if text.strip():
            self.console.print(Markdown(text))

    def _end_thoughts(self) -> None:
        thoughts, self._thoughts = self._thoughts, ""
        if thoughts.strip() and self._thinking_shown:
            self.console.print(Text(f"· {thoughts.strip()}", style="dim italic"))

    # ------------------------------------------------------------------------------------------- the live region

    def start(self) -> None:
        self._is_live = True
        self.refresh()

    def pause(self) -> None:
        self._print_unfinished()
        self._stop_live()

    def resume(self) -> None:
        self.start()

    def close(self) -> None:
        self._print_unfinished()
        self._stop_live()

    def refresh(self) -> None:
        if self._is_live:
            self._region.show(self.unfinished())

    async def animate(self) -> None:
        while True:
            self.refresh()
            await asyncio.sleep(TICK)

    def _stop_live(self) -> None:
        self._is_live = False
        self._region.hide()

    def unfinished(self) -> RenderableType:
        """What is not finished yet, and the status line."""
        parts: list[RenderableType] = []
        if self._thoughts.strip() and self._thinking_shown:
            parts.append(TailLines(Text(f"· {self._thoughts.strip()}", style="dim italic"), 3))
        text = self._blocks.rest
        if text.strip():
            # Rendering is done ten times a second: of a long block the end is shown as it is.
            shown = Markdown(text) if len(text) < LONG else Text(text[-LONG:])
            parts.append(TailLines(shown, max(3, self.console.height - ROOM)))
        parts += list(self._running_tools())
        return Group(*parts, self._status())

    def _running_tools(self) -> Iterator[RenderableType]:
        now = time.monotonic()
        for use, since in list(self._running.values())[-ROOM:]:
            line = Text(f"{_frame()} ", style="cyan", no_wrap=True, overflow="ellipsis")
            line.append(use.name, style="cyan")
            line.append(f" {one_line(self._lines.near(use.target))}", style="default")
            line.append(f" {now - since:.1f}s", style="dim")
            yield line
            if output := self._outputs.get(use.tool_use_id, "").rstrip():
                lines = "\n".join(f"    {line}" for line in output.splitlines()[-LIVE_LINES:])
                yield TailLines(Text(lines, style="dim"), LIVE_LINES)

    def _status(self) -> Text:
        parts = [self._agent, self._model, f"{time.monotonic() - self._since:.0f}s"]
        parts += [f"{self._tokens:,} tokens"] if self._tokens else []
        parts += [f"${self._cost:.4f}"] if self._cost is not None else []
        parts.append(self._note or "Ctrl-C interrupts")
        status = " · ".join(part for part in parts if part)
        return Text(f"{_frame()} {status}", style="dim", no_wrap=True, overflow="ellipsis")


class LiveRegion:
    """At the bottom of what was printed, painted over again and again."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._live: Live | None = None

    def show(self, content: RenderableType) -> None:
        if self._live is not None:
            self._live.update(content, refresh=True)
            return
        self._live = Live(
            content,
            console=self._console,
            auto_refresh=False,
            transient=True,
            redirect_stdout=False,
            redirect_stderr=False,
            vertical_overflow="crop",
        )
        self._live.start(refresh=True)

    def hide(self) -> None:
        live, self._live = self._live, None
        if live is not None:
            live.update(Text(""))
            live.stop()


class TailLines:
    """The last lines of something that may be taller than the terminal."""

    def __init__(self, content: RenderableType, lines: int) -> None:
        self._content = content
        self._lines = lines

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        lines = console.render_lines(self._content, options.update(height=None), pad=False)
        for line in lines[-self._lines :]:
            yield from line
            yield Segment.line()


class MarkdownBlocks:
    """Markdown as it streams in: gives out what is whole, keeps what is not. Every line is looked at once."""

    def __init__(self) -> None:
        self.rest = ""
        self._scanned = 0
        self._fence = ""

    def feed(self, text: str) -> str:
        """The blocks that are whole now: up to the last blank line that is not inside a fence."""
        self.rest += text
        end = 0
        while (line_end := self.rest.find("\n", self._scanned)) >= 0:
            line = self.rest[self._scanned : line_end].strip()
            self._scanned = line_end + 1
            if self._fence:
                if line.startswith(self._fence) and not line.strip(self._fence[0]):
                    self._fence = ""
            elif line.startswith(("```", "~~~")):
                self._fence = line[: len(line) - len(line.lstrip(line[0]))]
            elif not line:
                end = self._scanned
        whole, self.rest = self.rest[:end], self.rest[end:]
        self._scanned -= end
        return whole

    def finish(self) -> str:
        rest, self.rest, self._scanned, self._fence = self.rest, "", 0, ""
        return rest


def _frame() -> str:
    return FRAMES[int(time.monotonic() / TICK) % len(FRAMES)]
