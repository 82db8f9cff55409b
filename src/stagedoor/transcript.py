"""A session as a document people read."""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import UTC, datetime

from .drivers.agent import StoredSession
from .unified import events
from .unified.events import Event

_ESCAPES = re.compile(r"\x1b(\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(\x07|\x1b\\\\)|[@-_])")
_CONTROLS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069]")


def clean(text: str) -> str:
    """Without anything that moves a cursor, paints or reorders: what an agent says must not forge our lines."""
    return _CONTROLS.sub("", _ESCAPES.sub("", text.replace("\r\n", "\n").replace("\r", "\n")))


def markdown(stored: StoredSession, story: Iterable[Event]) -> str:
    title = clean(stored.title or stored.first_prompt or stored.session_id).strip().partition("\n")[0]
    facts = [("agent", stored.agent), ("session", stored.session_id), ("directory", stored.cwd)]
    facts += [("model", stored.model), ("branch", stored.branch), ("started", _time(stored.started_ms))]
    parts = [f"# {title}", "\n".join(f"- {name}: `{value}`" for name, value in facts if value)]
    uses: dict[str, events.ToolUse] = {}
    for event in story:
        match event:
            case events.TurnStarted(prompt=prompt):
                parts += ["## Prompt", _quoted(prompt)]
            case events.Text(text=text):
                parts.append(clean(text).strip())
            case events.Thinking(text=text):
                parts.append(f"<details><summary>Thinking</summary>\n\n{clean(text).strip()}\n\n</details>")
            case events.ToolUse():
                uses[event.tool_use_id] = event
            case events.ToolResult():
                parts += _call(uses.pop(event.tool_use_id, None), event)
            case events.FileChange(diff=diff) if diff:
                parts.append(_fenced(diff, "diff"))
            case _:
                continue
    parts += [part for use in uses.values() for part in _call(use, None)]
    return "\n\n".join(part for part in parts if part) + "\n"


def _call(use: events.ToolUse | None, result: events.ToolResult | None) -> list[str]:
    name = use.name if use is not None else result.name if result is not None else "other"
    outcome = "not finished" if result is None else result.status
    code = f", exit {result.exit_code}" if result is not None and result.exit_code else ""
    parts = [f"**{name}** ({outcome}{code})"]
    if use is not None and use.target:
        parts.append(_fenced(use.target, "sh" if use.name == "shell" else ""))
    if result is not None and result.output.strip():
        parts.append(_fenced(result.output))
    return parts


def _fenced(text: str, language: str = "") -> str:
    body = clean(text).rstrip("\n")
    fence = "```"
    while fence in body:
        fence += "`"
    return f"{fence}{language}\n{body}\n{fence}"


def _quoted(text: str) -> str:
    return "\n".join(f"> {line}".rstrip() for line in clean(text).strip().splitlines())


def _time(milliseconds: int) -> str:
    return datetime.fromtimestamp(milliseconds / 1000, UTC).strftime("%Y-%m-%d %H:%M UTC") if milliseconds else ""
