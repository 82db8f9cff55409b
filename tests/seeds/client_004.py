"""A client of document 004, written from that document alone: a chat window around Claude Code and Codex CLI.

It knows ``ChatEvent`` (§3) and nothing of the CLIs. In Python the window's stream is ``stagedoor.run(agent, prompt,
…)`` in the dialect ``chat``; ``adapt`` is the same for lines that a CLI printed (§2).
"""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Iterable
from contextlib import aclosing
from typing import Any

import stagedoor
from stagedoor import catalog
from stagedoor.dialects import DIALECTS, encode
from stagedoor.replay import translate

Json = dict[str, Any]
FIELDS: dict[str, dict[str, type]] = {
    "SessionInit": {"sessionId": str, "agent": str, "model": str, "cwd": str},
    "Text": {"content": str},
    "ThinkingStart": {"thinkingId": str},
    "ThinkingEnd": {"thinkingId": str},
    "ToolStart": {"toolUseId": str, "toolType": str, "input": dict, "status": str},
    "ToolStatusUpdate": {"toolUseId": str, "status": str},
    "ToolEnd": {"id": str, "status": str, "output": str},
    "TokenUsage": {"totalTokens": int, "inputTokens": int, "outputTokens": int},
    "Complete": {},
    "Error": {"message": str},
}


class ChatWindow:
    """``surroundings``: where the tests put the CLI."""

    def __init__(self, agent: str, **surroundings: Any) -> None:
        self.agent = agent
        self.surroundings = surroundings

    async def events(self, prompt: str, **options: Any) -> AsyncGenerator[Json]:
        projection = DIALECTS["chat"]()
        async with aclosing(stagedoor.run(self.agent, prompt, **self.surroundings, **options)) as events:
            async for event in events:
                for message in encode(projection, event):
                    yield json.loads(message)

    async def chat(self, prompt: str, **options: Any) -> list[Json]:
        events = [event async for event in self.events(prompt, **options)]
        check_chat(events)
        return events


def check_chat(events: list[Json]) -> None:
    """§3: starts with the session, ends with ``Complete`` or ``Error``; what starts ends."""
    for event in events:
        for name, kind in FIELDS[event["type"]].items():
            assert isinstance(event[name], kind), (name, event)
    types = [event["type"] for event in events]
    assert types[0] == "SessionInit"
    assert types.count("SessionInit") == 1
    assert types[-1] in ("Complete", "Error")
    thoughts = [[event["thinkingId"] for event in of(events, kind)] for kind in ("ThinkingStart", "ThinkingEnd")]
    assert thoughts[0] == thoughts[1]
    started = [event["toolUseId"] for event in of(events, "ToolStart")]
    assert sorted(started) == sorted(event["id"] for event in of(events, "ToolEnd"))
    assert {event["toolUseId"] for event in of(events, "ToolStatusUpdate")} <= set(started)


def of(events: Iterable[Json], kind: str) -> list[Json]:
    return [event for event in events if event["type"] == kind]


def adapt(agent: str, driver: str, lines: Iterable[str]) -> list[Json]:
    """What a CLI printed, as the window shows it."""
    projection = DIALECTS["chat"]()
    events = translate(agent, catalog.agent(agent).drivers[driver], [line.encode() for line in lines])
    adapted = [json.loads(message) for event in events for message in encode(projection, event)]
    check_chat(adapted)
    return adapted
