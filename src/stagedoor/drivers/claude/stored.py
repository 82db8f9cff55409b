"""The sessions Claude Code has stored: the list of them, and a session file (one line per content block) as events."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping

from ...agents.claude.history import list_sessions
from ...unified.events import Event, Text, Thinking, ToolName, TurnStarted
from ..agent import StoredSession
from ..stored import Json, ended, lines_of, milliseconds, table, tables, text, text_of_blocks, used
from .tools import name_of

_EXIT = re.compile(r"^(?:Error: )?Exit code (\d+)")


def list_stored(cwd: str, env: Mapping[str, str] | None) -> Iterable[StoredSession]:
    return [
        StoredSession(
            agent="claude",
            session_id=session.session_id,
            cwd=session.cwd or cwd,
            title=session.title,
            first_prompt=session.first_prompt or "",
            messages=session.message_count,
            model=session.model or "",
            branch=session.git_branch or "",
            started_ms=session.started_ms or 0,
            updated_ms=session.updated_ms,
            tokens=session.tokens,
            cost_usd=session.cost_usd,
            path=session.path,
        )
        for session in list_sessions(cwd, env=env).sessions
    ]


def read_stored(stored: StoredSession, env: Mapping[str, str]) -> Iterator[Event]:
    names: dict[str, ToolName] = {}
    for line in lines_of(stored.path):
        if line.get("isSidechain") is True or line.get("isMeta") is True:
            continue
        content, at = table(line.get("message")).get("content"), milliseconds(line.get("timestamp"))
        match line.get("type"):
            case "user":
                yield from _user(content, at, names)
            case "assistant":
                blocks = [{"type": "text", "text": content}] if isinstance(content, str) else tables(content)
                for block in blocks:
                    yield from _block(block, at, names)
            case _:
                continue


def _user(content: object, at: int, names: Mapping[str, ToolName]) -> Iterator[Event]:
    results = [block for block in tables(content) if block.get("type") == "tool_result"]
    for block in results:
        call = text(block.get("tool_use_id"))
        output = text_of_blocks(block.get("content"))
        failed = block.get("is_error") is True
        code = _EXIT.match(output)
        yield ended(
            call, names.get(call, "other"), "error" if failed else "success", output, at, int(code[1]) if code else None
        )
    prompt = text_of_blocks(content)
    if not results and prompt:
        yield TurnStarted(prompt=prompt, timestamp=at)


def _block(block: Json, at: int, names: dict[str, ToolName]) -> Iterator[Event]:
    match block.get("type"):
        case "text":
            yield Text(text=text(block.get("text")), timestamp=at)
        case "thinking" if text(block.get("thinking")):
            yield Thinking(text=text(block.get("thinking")), timestamp=at)
        case "tool_use":
            call, native = text(block.get("id")), text(block.get("name"))
            names[call] = name_of(native)
            yield used(call, names[call], native, table(block.get("input")), at)
        case _:
            return
