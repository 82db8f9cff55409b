"""A dialogue with the understudy in a child process, through our own client."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from pathlib import Path
from typing import Any

import msgspec
import pytest

from stagedoor.agents.acp import (
    AcpClient,
    AcpSession,
    AcpSessionConfig,
    AcpToolCall,
    AgentMessageChunk,
    ClientCapabilities,
    Content,
    Event,
    PromptResponse,
    RequestFailed,
    RequestPermission,
    SessionUpdate,
    ToolCallUpdate,
    Unanswered,
)
from stagedoor.understudy import command

BOUND = 240.0


class TurnReply:
    """The events of one turn, and what tests look at."""

    def __init__(self, events: list[Event]) -> None:
        self.events = events
        self.updates = [event.update for event in events if isinstance(event, SessionUpdate)]
        self.questions = [event for event in events if isinstance(event, RequestPermission)]

    @property
    def text(self) -> str:
        return "".join(update.text for update in self.updates if isinstance(update, AgentMessageChunk))

    @property
    def end(self) -> Event:
        return self.events[-1]

    @property
    def stop_reason(self) -> str:
        assert isinstance(self.end, PromptResponse), self.end
        return self.end.stop_reason

    @property
    def started(self) -> list[str]:
        return [update.title for update in self.updates if isinstance(update, AcpToolCall)]

    @property
    def ended(self) -> list[str | None]:
        return [update.status for update in self.final]

    @property
    def final(self) -> list[ToolCallUpdate]:
        ends = ("completed", "failed")
        return [update for update in self.updates if isinstance(update, ToolCallUpdate) and update.status in ends]

    @property
    def outputs(self) -> list[str]:
        return [
            "".join(content.text for content in update.contents() if isinstance(content, Content))
            for update in self.final
        ]


class Dialogue:
    """``say`` sends a prompt (a list is sent as a script) and returns the events until the turn ended."""

    def __init__(self, session: AcpSession) -> None:
        self.session = session
        self.events: AsyncIterator[Event] = session.events

    async def say(self, prompt: str | list[Any]) -> TurnReply:
        await self.session.send(prompt if isinstance(prompt, str) else msgspec.json.encode(prompt).decode())
        return await self.hear()

    async def hear(self, until: Callable[[Event], bool] | None = None) -> TurnReply:
        reply: list[Event] = []
        async for event in self.events:
            reply.append(event)
            if isinstance(event, PromptResponse | RequestFailed | Unanswered) or (until and until(event)):
                break
        return TurnReply(reply)


class Understudy:
    def __init__(self, folder: Path) -> None:
        self.workspace = folder / "work"
        self.home = folder / "home"
        self.workspace.mkdir()

    def client(self, script: str | None = None, capabilities: ClientCapabilities | None = None) -> AcpClient:
        return AcpClient(self.argv(script), self.workspace, capabilities=capabilities)

    def argv(self, script: str | None = None) -> list[str]:
        path = self.home.with_name("script.yaml")
        if script is not None:
            path.write_text(script)
        return list(command(str(path) if script is not None else None, str(self.home)))

    def dialogue(
        self,
        main: Callable[[Dialogue], Coroutine[Any, Any, None]],
        *,
        script: str | None = None,
        capabilities: ClientCapabilities | None = None,
        **config: Any,
    ) -> None:
        async def play() -> None:
            client = self.client(script, capabilities)
            async with await client.create_session(config=AcpSessionConfig(**config)) as session:
                await main(Dialogue(session))

        run(play())


def run(main: Coroutine[Any, Any, None]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(BOUND):
            await main

    asyncio.run(bounded())


@pytest.fixture
def understudy(tmp_path: Path) -> Understudy:
    return Understudy(tmp_path)


@pytest.fixture
def bounded() -> Callable[[Coroutine[Any, Any, None]], None]:
    return run


@pytest.fixture
def dialogue_of() -> type[Dialogue]:
    return Dialogue
