"""Events as plain lines: what a pipe, a log file or a dumb terminal gets. A ``Style`` lays colour on."""

from __future__ import annotations

from collections.abc import Callable
from typing import assert_never

from ..unified import events
from ..unified.events import Event

Style = Callable[[str, str], str]
"""(role, text) → text. Roles: tool, ok, bad, dim, strong, add, del, hunk."""

MARKS = {"pending": "☐", "in_progress": "▶", "completed": "☑"}
OUTPUT_LINES = 12


def plain(role: str, text: str) -> str:
    return text


def coloured(role: str, text: str) -> str:
    code = {
        "tool": "36", "ok": "32", "bad": "31", "dim": "2", "strong": "1", "add": "32", "del": "31", "hunk": "35",
    }[role]  # fmt: skip
    return f"\x1b[{code}m{text}\x1b[0m"


class Lines:
    """Turns a stream into text to print. Streamed text comes as it arrives; a line is begun anew where needed."""

    def __init__(self, style: Style = plain, *, thinking: bool = True) -> None:
        self._style = style
        self._thinking = thinking
        self._mid_line = False
        self._streamed = False
        self._tools: dict[str, events.ToolUse] = {}

    def show(self, event: Event) -> str:
        match event:
            case events.TextDelta(text=text) if event.parent_tool_use_id is None:
                self._streamed = True
                return self._flow(text)
            case events.Text(text=text) if event.parent_tool_use_id is None:
                streamed, self._streamed = self._streamed, False
                return self._line("") if streamed else self._line(text)
            case events.Thinking(text=text):
                return self._line(self._style("dim", f"· {text.strip()}")) if self._thinking else ""
            case events.ToolUse():
                self._tools[event.tool_use_id] = event
                return ""
            case events.ToolResult():
                return self._result(event)
            case events.FileChange():
                return self._line(self.diff(event)) if event.diff else ""
            case events.Plan(items=items):
                return self._line("\n".join(f"  {MARKS[item.status]} {item.text}" for item in items))
            case events.PermissionRequest():
                asked = f"? {event.tool_name} {one_line(event.target)} (risk {event.risk})"
                return self._line(self._style("strong", asked))
            case events.PermissionResolved():
                role, word = ("ok", "allowed") if event.decision == "allow" else ("bad", "denied")
                note = f": {event.message}" if event.message else ""
                return self._line(self._style(role, f"  {word} by {event.by}{note}"))
            case events.Retry():
                return self._line(self._style("dim", f"retrying ({event.attempt}): {event.reason}"))
            case events.Error():
                return self._line(self._style("bad", f"error ({event.kind}): {event.message}"))
            case events.Notice() if event.level != "info":
                return self._line(self._style("dim", f"{event.level}: {event.message}"))
            case events.Unrecognized():
                return self._line(self._style("dim", f"not understood: {one_line(event.raw)}"))
            case (
                events.TextDelta()
                | events.Text()
                | events.ThinkingDelta()
                | events.ToolProgress()
                | events.Init()
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
        target = one_line(use.target) if use is not None else ""
        mark, role = {"success": ("✓", "ok"), "error": ("✗", "bad"), "denied": ("⊘", "bad")}[event.status]
        took = f" {event.duration_ms / 1000:.1f}s" if event.duration_ms else ""
        code = f" exit {event.exit_code}" if event.exit_code else ""
        head = f"{self._style(role, mark)} {self._style('tool', event.name)} {target}{self._style('dim', took + code)}"
        shown = use is None or use.operation in ("execute", "network", "other") or event.status != "success"
        output = event.output.rstrip().splitlines() if shown else []
        more = [f"    … {len(output) - OUTPUT_LINES} more lines"] if len(output) > OUTPUT_LINES else []
        body = [self._style("dim", f"    {line}") for line in [*output[:OUTPUT_LINES]]] + more
        return self._line("\n".join([head, *body]))

    def diff(self, event: events.FileChange) -> str:
        roles = {"+": "add", "-": "del", "@": "hunk"}
        lines = event.diff.rstrip("\n").splitlines()
        return "\n".join(
            f"    {self._style(roles[line[0]], line) if line and line[0] in roles else line}" for line in lines
        )

    def _line(self, text: str) -> str:
        start, self._mid_line = ("\n" if self._mid_line else ""), False
        return f"{start}{text}\n" if text else start

    def _flow(self, text: str) -> str:
        self._mid_line = not text.endswith("\n")
        return text


def one_line(text: str, width: int = 100) -> str:
    first, _, rest = text.strip().partition("\n")
    return first[: width - 1] + "…" if len(first) >= width or rest else first


def summary(done: events.Done) -> str:
    """The one closing line."""
    usage = done.usage
    parts = [done.status, f"{done.tool_uses} tools", f"{usage.total_tokens:,} tokens"]
    if done.cost_usd is not None:
        parts.append(f"${done.cost_usd:.4f}")
    if done.duration_ms is not None:
        parts.append(f"{done.duration_ms / 1000:.1f}s")
    return " · ".join(parts)
