"""Events as plain lines: what a pipe, a log file or a dumb terminal gets. A ``Style`` lays colour on."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TextIO, assert_never

from ..transcript import clean
from ..unified import events
from ..unified.events import Event

Style = Callable[[str, str], str]
"""(role, text) → text. Roles: tool, ok, bad, dim, strong, add, del, hunk."""

MARKS = {"pending": "☐", "in_progress": "▶", "completed": "☑"}
OUTPUT_LINES = 12
DIFF_LINES = 80
WORTH_TELLING = 50  # milliseconds


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


class Lines:
    """Turns a stream into text to print. Streamed text comes as it arrives; a line is begun anew where needed."""

    def __init__(self, style: Style = plain, *, thinking: bool = True) -> None:
        self._style = style
        self._thinking = thinking
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
            case events.ToolResult():
                return self._result(event)
            case events.FileChange():
                return self._line(self.diff(event)) if event.diff else ""
            case events.Plan(items=items):
                return self._line("\n".join(f"  {MARKS[item.status]} {one_line(item.text)}" for item in items))
            case events.PermissionRequest():
                why = f": {one_line(event.risk_reasons[0])}" if event.risk_reasons and event.risk != "low" else ""
                asked = f"? {event.tool_name} {one_line(self.near(event.target))} (risk {event.risk}{why})"
                return self._line(self._style("strong", asked))
            case events.PermissionResolved():
                role, word = ("ok", "allowed") if event.decision == "allow" else ("bad", "denied")
                note = f": {one_line(event.message)}" if event.message else ""
                return self._line(self._style(role, f"  {word} by {event.by}{note}"))
            case events.Retry():
                return self._line(self._style("dim", f"retrying ({event.attempt}): {one_line(event.reason)}"))
            case events.Error():
                return self._line(self._style("bad", f"error ({event.kind}): {clean(event.message)}"))
            case events.Notice() if event.level != "info":
                return self._line(self._style("dim", f"{event.level}: {clean(event.message)}"))
            case events.Init():
                self._cwd = event.cwd.rstrip("/") + "/" if event.cwd else ""
                return ""
            case events.Unrecognized():
                return self._line(self._style("dim", f"not understood: {one_line(event.raw)}"))
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

    def _result(self, event: events.ToolResult) -> str:
        use = self._tools.pop(event.tool_use_id, None)
        target = one_line(self.near(use.target)) if use is not None else ""
        mark, role = {"success": ("✓", "ok"), "error": ("✗", "bad"), "denied": ("⊘", "bad")}[event.status]
        spent = event.duration_ms or 0.0
        took = f" {spent / 1000:.1f}s" if spent >= WORTH_TELLING else ""
        code = f" exit {event.exit_code}" if event.exit_code else ""
        inner = "  ↳ " if event.parent_tool_use_id is not None else ""
        name = self._style("tool", event.name)
        head = f"{inner}{self._style(role, mark)} {name} {target}{self._style('dim', took + code)}"
        shown = use is None or use.operation in ("execute", "network", "other") or event.status != "success"
        output = clean(event.output).rstrip().splitlines() if shown else []
        more = [f"    … {len(output) - OUTPUT_LINES} more lines"] if len(output) > OUTPUT_LINES else []
        body = [self._style("dim", f"    {line}") for line in [*output[:OUTPUT_LINES]]] + more
        return self._line("\n".join([head, *body]))

    def diff(self, event: events.FileChange) -> str:
        roles = {"+": "add", "-": "del", "@": "hunk"}
        lines = clean(event.diff).rstrip("\n").splitlines()
        more = [f"… {len(lines) - DIFF_LINES} more lines"] if len(lines) > DIFF_LINES else []
        shown = [self._style(roles[line[0]], line) if line[:1] in roles else line for line in lines[:DIFF_LINES]]
        return "\n".join(f"    {line}" for line in [*shown, *more])

    def near(self, target: str) -> str:
        """Paths below the workspace are told from there."""
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
