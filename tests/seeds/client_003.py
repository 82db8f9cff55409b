"""A client of document 003, written from that document alone: adapters, nine event types, tiers, tool lists, abort.

The document is TypeScript. In Python an adapter's ``run(prompt, options)`` is ``stagedoor.run(agent, prompt,
**options)`` with the options in snake case, and its ``AgentEvent`` is the dialect ``ues``; everything below reads only
what the document promises of such an event.
"""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Iterable
from contextlib import aclosing
from typing import Any

import stagedoor
from stagedoor.dialects import DIALECTS, encode

Json = dict[str, Any]
CORE = ("init", "text", "text_delta", "tool_use", "tool_result", "thinking", "error", "permission_request", "done")
REQUIRED: dict[str, dict[str, type | tuple[type, ...]]] = {
    "init": {"model": str, "cwd": str, "tools": list},
    "tool_use": {"toolName": str, "toolUseId": str, "input": dict},
    "tool_result": {"toolUseId": str, "toolName": str, "status": str, "output": object},
    "done": {"status": str, "usage": dict, "durationMs": (int, float)},
}
RESULT_STATUS = ("success", "error", "denied")
DONE_STATUS = ("success", "error", "interrupted", "max_turns", "max_budget")


class Adapter:
    """``AgentAdapter``: an id, ``run`` and ``is_available``. ``surroundings``: where the tests put the CLI."""

    def __init__(self, agent: str, **surroundings: Any) -> None:
        self.id = agent
        self.surroundings = surroundings

    async def run(self, prompt: str, **options: Any) -> AsyncGenerator[Json]:
        projection = DIALECTS["ues"]()
        async with aclosing(stagedoor.run(self.id, prompt, **self.surroundings, **options)) as events:
            async for event in events:
                for line in encode(projection, event):
                    yield json.loads(line)

    async def is_available(self) -> bool:
        [presence] = await stagedoor.discover([self.id], env=self.surroundings.get("env"))
        return presence.installed


def check_event(event: Json) -> None:
    """``BaseEvent`` and the key payloads."""
    assert event["type"] in CORE or ":" in event["type"], event
    assert isinstance(event["agent"], str)
    assert event["agent"]
    assert isinstance(event["timestamp"], int | float)
    assert event["timestamp"] > 0
    assert isinstance(event["sessionId"], str)
    assert event["sessionId"]
    for name, kind in REQUIRED.get(event["type"], {}).items():
        assert isinstance(event["payload"][name], kind), (name, event)
    if event["type"] == "tool_result":
        assert event["payload"]["status"] in RESULT_STATUS
    if event["type"] == "done":
        assert event["payload"]["status"] in DONE_STATUS
        assert {"inputTokens", "outputTokens", "toolUses"} <= set(event["payload"]["usage"])


def check_stream(events: list[Json]) -> None:
    """``init`` first, one ``done`` last, and every call with its result, a refused one too."""
    for event in events:
        check_event(event)
    types = [event["type"] for event in events]
    assert types[0] == "init"
    assert types[-1] == "done"
    assert types.count("done") == 1
    assert len({event["sessionId"] for event in events}) == 1
    calls = [event["payload"]["toolUseId"] for event in of(events, "tool_use")]
    results = [event["payload"]["toolUseId"] for event in of(events, "tool_result")]
    assert sorted(calls) == sorted(results)


def of(events: Iterable[Json], kind: str) -> list[Json]:
    return [event for event in events if event["type"] == kind]
