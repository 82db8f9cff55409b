"""What the tests of the client share: an agent of the official package, and reading a turn of it."""

import asyncio
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

from stagedoor.agents.acp import (
    AgentMessageChunk,
    ClientCapabilities,
    Event,
    PromptResponse,
    RequestFailed,
    SessionUpdate,
    Unanswered,
)

AGENT = [sys.executable, str(Path(__file__).with_name("example_agent.py"))]
EVERYTHING = ClientCapabilities(True, True, True, True, True)
BOUND = 240.0
TURN_END = PromptResponse | RequestFailed | Unanswered


def run(main: Any) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(BOUND):
            await main

    asyncio.run(bounded())


async def turn(events: AsyncIterator[Event]) -> list[Event]:
    received: list[Event] = []
    async for event in events:
        received.append(event)
        if isinstance(event, TURN_END):
            break
    return received


def text_in(events: list[Event]) -> str:
    updates = [event.update for event in events if isinstance(event, SessionUpdate)]
    return "".join(update.text for update in updates if isinstance(update, AgentMessageChunk))


async def until(condition: Callable[[], bool]) -> None:
    while not condition():
        await asyncio.sleep(0.01)
