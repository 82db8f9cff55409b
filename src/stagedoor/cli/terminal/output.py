"""What the commands print: events as plain lines or JSON, tables, and colour where the terminal wants it."""

from __future__ import annotations

import os
import re
import sys
import unicodedata
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Protocol, TextIO, assert_never

from ...transcript import clean
from ...unified import events
from ...unified.events import Event

Style = Callable[[str, str], str]
"""(role, text) → text. Roles: tool, ok, bad, dim, strong, add, del, hunk."""

MARKS = {"pending": "☐", "in_progress": "▶", "completed": "☑"}
BY = {
    "callback": "by you",
    "policy": "by the policy",
    "client": "by a client of the server",
    "timeout": "because nobody answered in time",
    "interrupt": "because the turn was stopped",
}
ERRORS: dict[events.ErrorKind, str] = {
    "connection_failed": "connection failed",
    "authentication_failed": "not signed in",
    "session_not_found": "session not found",
    "permission_denied": "permission denied",
    "tool_execution_failed": "tool failed",
    "timeout": "timed out",
    "protocol_error": "the agent sent something unexpected",
    "rate_limited": "rate limited",
    "quota_exceeded": "quota used up",
    "context_overflow": "context is full",
    "model_not_found": "unknown model",
    "unknown": "",
}
"""What the kinds of errors are called, as on the page."""
OUTPUT_LINES = 12
DIFF_LINES = 80
DEFAULT_COLUMNS = 80
NARROWEST = 12  # columns
SHOWN_FROM = 50  # milliseconds


def error_words(error: events.Error) -> str:
    heading, message = ERRORS[error.kind], clean(error.message)
    is_said = not heading or message.lower().startswith(heading)
    return f"error: {message}" if is_said else f"error ({heading}): {message}"


def plain(role: str, text: str) -> str:
    return text


def coloured(role: str, text: str) -> str:
    code = {
        "tool": "36", "ok": "32", "bad": "31", "dim": "2", "strong": "1", "add": "32", "del": "31", "hunk": "35",
    }[role]  # fmt: skip
    return f"\x1b[{code}m{text}\x1b[0m"


def style_for(stream: TextIO) -> Style:
    """Colour for a terminal, unless its user wants none (https://no-color.org)."""
    return coloured if stream.isatty() and not os.environ.get("NO_COLOR") else plain


class EventLines:
    """Turns events into text to print. Streamed text comes as it arrives; a new line is started where needed.

    With ``follow`` the output of a running tool is printed line by line as it comes. Otherwise its end is printed with
    its result: errors stand there.
    """

    def __init__(
        self, style: Style = plain, *, thinking: bool = True, follow: bool = False, full_output: bool = False
    ) -> None:
        self._style = style
        self._thinking = thinking
        self._follow = follow
        self._most_lines = sys.maxsize if full_output else OUTPUT_LINES
        self._followed: dict[str, str] = {}
        self._last_followed = ""
        self._mid_line = False
        self._streamed = False
        self._tools: dict[str, events.ToolUse] = {}
        self._cwd = ""

    def show(self, event: Event) -> str:
        match event:
            case events.TextDelta(text=text) if event.parent_tool_use_id is None:
                self._streamed = True
                return self._flow(clean(text))
            case events.Text(text=text) if event.parent_tool_use_id is None:
                streamed, self._streamed = self._streamed, False
                return self._line("") if streamed else self._line(clean(text))
            case events.Thinking(text=text):
                return self._line(self._style("dim", f"· {clean(text).strip()}")) if self._thinking else ""
            case events.ToolUse():
                self._tools[event.tool_use_id] = event
                return ""
            case events.ToolProgress() if self._follow:
                return self._progress(event)
            case events.ToolResult():
                return self._result(event)
            case events.FileChange():
                return self._line(self.diff(event)) if event.diff else ""
            case events.Plan(items=items):
                return self._line("\n".join(f"  {MARKS[item.status]} {one_line(item.text)}" for item in items))
            case events.PermissionRequest():
                why = f": {one_line(event.risk_reasons[0])}" if event.risk_reasons and event.risk != "low" else ""
                question = f"? {event.tool_name} {one_line(self.near(event.target))} (risk {event.risk}{why})"
                return self._line(self._style("strong", question))
            case events.PermissionResolved():
                role, word = ("ok", "allowed") if event.decision == "allow" else ("bad", "denied")
                note = f": {one_line(event.message)}" if event.message else ""
                return self._line(self._style(role, f"  {word} {BY[event.by]}{note}"))
            case events.Retry():
                return self._line(self._style("dim", f"retrying ({event.attempt}): {one_line(event.reason)}"))
            case events.Error():
                return self._line(self._style("bad", error_words(event)))
            case events.Notice() if event.level != "info":
                return self._line(self._style("dim", f"{event.level}: {clean(event.message)}"))
            case events.FilesRestored():
                left = "".join(f"\n  not restored: {one_line(path)}" for path in event.not_restored)
                return self._line(self._style("dim", f"{events.restored_words(event)}{left}"))
            case events.Init():
                self._cwd = event.cwd.rstrip("/") + "/" if event.cwd else ""
                return ""
            case events.Unrecognized():
                return self._line(self._style("dim", f"not recognized: {one_line(event.raw)}"))
            case (
                events.TextDelta()
                | events.Text()
                | events.ThinkingDelta()
                | events.ToolProgress()
                | events.TurnStarted()
                | events.UsageReport()
                | events.Notice()
                | events.TurnCompleted()
                | events.Done()
            ):
                return ""
            case _:
                assert_never(event)

    def _progress(self, event: events.ToolProgress) -> str:
        """The lines that are whole now; above them, where another tool was shown before, which one this is."""
        use = self._tools.get(event.tool_use_id)
        before = self._followed.get(event.tool_use_id, "")
        output = self._followed[event.tool_use_id] = before + clean(event.output)
        printed = before.rfind("\n") + 1
        whole = output[printed : output.rfind("\n") + 1]
        if use is None or not whole:
            return ""
        head = [f"{self._style('dim', '▸')} {self._style('tool', use.name)} {one_line(self.near(use.target))}"]
        if self._last_followed == event.tool_use_id:
            head = []
        self._last_followed = event.tool_use_id
        return self._line("\n".join([*head, *self._output(whole.splitlines())]))

    def _output(self, lines: Sequence[str]) -> list[str]:
        return [self._style("dim", f"    {line}") for line in lines]

    def _result(self, event: events.ToolResult) -> str:
        followed = self._followed.pop(event.tool_use_id, "")
        self._last_followed = ""
        use = self._tools.pop(event.tool_use_id, None)
        target = one_line(self.near(use.target)) if use is not None else ""
        mark, role = {"success": ("✓", "ok"), "error": ("✗", "bad"), "denied": ("⊘", "bad")}[event.status]
        spent = event.duration_ms or 0.0
        took = f" {spent / 1000:.1f}s" if spent >= SHOWN_FROM else ""
        code = f" exit {event.exit_code}" if event.exit_code else ""
        inner = "  ↳ " if event.parent_tool_use_id is not None else ""
        name = self._style("tool", event.name)
        head = f"{inner}{self._style(role, mark)} {name} {target}{self._style('dim', took + code)}"
        shown = use is None or use.operation in ("execute", "network", "other") or event.status != "success"
        text = clean(event.output).rstrip() if shown else ""
        printed = followed.rfind("\n") + 1  # an agent reports the end of an output with its result only
        continues = printed > 0 and text.startswith(followed[:printed].rstrip())
        output = (text[printed:] if continues else text).splitlines()
        earlier = len(output) - self._most_lines
        more = [f"    … {earlier} earlier lines (--full-output shows all)"] if earlier > 0 else []
        body = [*more, *self._output(output[-self._most_lines :])]
        return self._line("\n".join([*body, head] if continues else [head, *body]))

    def diff(self, event: events.FileChange) -> str:
        roles = {"+": "add", "-": "del", "@": "hunk"}
        lines = clean(event.diff).rstrip("\n").splitlines()
        more = [f"… {len(lines) - DIFF_LINES} more lines"] if len(lines) > DIFF_LINES else []
        shown = [self._style(roles[line[0]], line) if line[:1] in roles else line for line in lines[:DIFF_LINES]]
        return "\n".join(f"    {line}" for line in [*shown, *more])

    def near(self, target: str) -> str:
        """Paths below the workspace are shown relative to it."""
        return target.removeprefix(self._cwd) if self._cwd else target

    def _line(self, text: str) -> str:
        start, self._mid_line = ("\n" if self._mid_line else ""), False
        return f"{start}{text}\n" if text else start

    def _flow(self, text: str) -> str:
        self._mid_line = not text.endswith("\n")
        return text


def one_line(text: str, width: int = 100) -> str:
    first, _, rest = clean(text).strip().partition("\n")
    return first[: width - 1] + "…" if len(first) >= width or rest else first


_ESCAPE = r"\x1b\[[0-9;]*m"
_PARTS = re.compile(rf"({_ESCAPE})|(\s+)|([^\s\x1b]+|\x1b)")
_HEAD = re.compile(rf"(?:{_ESCAPE}|\s|[?$·•▸✓✗⊘↳☐▶☑❯] )*")


def wrapped(text: str, columns: int) -> str:
    """``text`` with its lines broken between words where they are too long; what follows stands below the first word.

    Colours take no room. A word that is longer than a line is broken where the line ends.
    """
    lines = text.expandtabs().split("\n")
    return "\n".join(line if _shown_width(line) <= columns else _wrapped_line(line, columns) for line in lines)


def _wrapped_line(line: str, columns: int) -> str:
    head = _HEAD.match(line)
    indent = _shown_width(head[0]) if head is not None else 0
    indent = indent if indent <= columns // 2 else 0
    lines, room, space = [""], columns, ""
    for escape, gap, word in _PARTS.findall(line):
        if escape:
            lines[-1] += escape
        elif gap:
            space = gap
        else:
            if room < columns and width(space + word) > room:  # not the first word of its line
                lines.append(" " * indent)
                room, space = columns - indent, ""
            for char in space + word:
                if width(char) > room:
                    lines.append(" " * indent)
                    room = columns - indent
                lines[-1] += char
                room -= width(char)
            space = ""
    return "\n".join(lines)


def _shown_width(line: str) -> int:
    return width(re.sub(_ESCAPE, "", line))


def summary(done: events.Done) -> str:
    """The one closing line."""
    usage = done.usage
    tools = f"{done.tool_uses} tool{'' if done.tool_uses == 1 else 's'}"
    parts = [done.status, tools, f"{usage.total_tokens:,} tokens"]
    if done.cost_usd is not None:
        parts.append(f"${done.cost_usd:.4f}")
    if done.duration_ms is not None:
        parts.append(f"{done.duration_ms / 1000:.1f}s")
    return " · ".join(parts)


# -------------------------------------------------------------------------------------- where the events of a run go

Show = Callable[[Event], None]


class Output(Protocol):
    """Shows one stream, and makes room for questions, which need the terminal for themselves."""

    @property
    def show(self) -> Show: ...
    def note(self, text: str) -> None: ...
    async def wait_until_shown(self, request_id: str) -> None: ...
    def answered(self, request_id: str) -> None: ...
    def pause(self) -> None: ...
    def resume(self) -> None: ...
    async def animate(self) -> None: ...


class PrintedOutput:
    """An output that only prints: it does not move and needs no room for questions."""

    def __init__(self, show: Show) -> None:
        self.show = show

    def note(self, text: str) -> None:
        print(text, file=sys.stderr, flush=True)

    async def wait_until_shown(self, request_id: str) -> None:
        return

    def answered(self, request_id: str) -> None:
        return

    def pause(self) -> None:
        return

    def resume(self) -> None:
        return

    async def animate(self) -> None:
        return


def plain_lines(*, thinking: bool = True, full_output: bool = False) -> Show:
    """Lines on stdout; the closing line on stderr, so that a pipe carries the work and nothing else."""
    lines = EventLines(style_for(sys.stdout), thinking=thinking, follow=True, full_output=full_output)

    def show(event: Event) -> None:
        text = lines.show(event)
        if text:
            sys.stdout.write(text)
            sys.stdout.flush()
        if isinstance(event, events.Done):
            print(summary(event), file=sys.stderr)

    return show


def final_answer(event: Event) -> None:
    """Only the final answer: for ``$(stagedoor run …)``."""
    match event:
        case events.Done(status="success", result=result):
            print(clean(result))
        case events.Error(fatal=True):
            print(error_words(event), file=sys.stderr)
        case _:
            return


def json_lines(dialect: str) -> Show:
    """One JSON object per line, flushed as it comes."""
    from ...dialects import DIALECTS, encode

    projection, out = DIALECTS[dialect](), sys.stdout.buffer

    def show(event: Event) -> None:
        lines = encode(projection, event)
        if lines:
            out.write(b"".join(line + b"\n" for line in lines))
            out.flush()

    return show


# ---------------------------------------------------------------------------------------------------------- tables

Cell = str | tuple[str, str]
"""Text, or (role, text) for a ``Style``."""


def table(
    headings: Sequence[str], rows: Sequence[Sequence[Cell]], style: Style = plain, *, columns: int | None = None
) -> str:
    """Columns as wide as their widest cell; the last one is not padded.

    ``columns``: how wide it may be (left out: as wide as the terminal, if it goes to one). Then headings are broken
    between their words, and so are the cells of the last column.
    """
    columns = terminal_columns(sys.stdout) if columns is None else columns
    texts = [[_text(cell) for cell in row] for row in rows]
    widths = [max(width(row[column]) for row in [headings, *texts]) for column in range(len(headings))]
    heads = [[heading] for heading in headings]
    gaps = 2 * (len(headings) - 1)
    if sum(widths) + gaps > columns:
        heads = [heading.split() or [""] for heading in headings]
        widths = [max(map(width, [*words, *(row[column] for row in texts)])) for column, words in enumerate(heads)]
        widths[-1] = max(columns - sum(widths[:-1]) - gaps, NARROWEST)
    height = max(map(len, heads))
    lines = [
        _line([("strong", words[number] if number < len(words) else "") for words in heads], widths, style)
        for number in range(height)
    ]
    lines.append(style("dim", "  ".join("─" * size for size in widths)))
    for row in rows:
        *cells, last = row
        first, *more = wrapped(_text(last), widths[-1]).split("\n")
        empty = [""] * len(cells)
        lines.append(_line([*cells, _as(last, first)], widths, style))
        lines += [_line([*empty, _as(last, rest)], widths, style) for rest in more]
    return "\n".join(lines)


def terminal_columns(stream: TextIO) -> int:
    """How wide the terminal is; no limit where there is none."""
    try:
        return os.get_terminal_size(stream.fileno()).columns or DEFAULT_COLUMNS if stream.isatty() else sys.maxsize
    except (OSError, ValueError):
        return sys.maxsize


def width(text: str) -> int:
    """Columns a terminal needs for ``text``."""
    return sum(
        0 if unicodedata.combining(char) else 2 if unicodedata.east_asian_width(char) in "WF" else 1 for char in text
    )


def ago(milliseconds: int, now: int) -> str:
    """How long ago that was, in short; a date after two weeks."""
    seconds = max(0, (now - milliseconds) // 1000)
    if not milliseconds:
        return ""
    for size, unit in ((60, "s"), (60, "min"), (24, "h"), (14, "d")):
        if seconds < size:
            return f"{seconds} {unit} ago"
        seconds //= size
    return datetime.fromtimestamp(milliseconds / 1000).strftime("%Y-%m-%d")


def _line(row: Sequence[Cell], widths: Sequence[int], style: Style) -> str:
    cells: list[str] = []
    for number, (cell, size) in enumerate(zip(row, widths, strict=True)):
        text = _text(cell)
        padding = "" if number == len(row) - 1 else " " * (size - width(text))
        cells.append((style(cell[0], text) if isinstance(cell, tuple) and text else text) + padding)
    return "  ".join(cells).rstrip()


def _as(cell: Cell, text: str) -> Cell:
    return text if isinstance(cell, str) else (cell[0], text)


def _text(cell: Cell) -> str:
    return cell if isinstance(cell, str) else cell[1]
