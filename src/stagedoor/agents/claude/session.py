"""One conversation with Claude Code, as the caller holds it."""

from __future__ import annotations

import weakref
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any

from ...transports.relay import Reader
from .commands import (
    AnswerPermission,
    Decision,
    GetBinaryVersion,
    GetContextUsage,
    GetSessionCost,
    GetSettings,
    McpReconnect,
    McpStatus,
    McpToggle,
    Prompt,
    RenameSession,
    Request,
    RewindFiles,
    SetMaxThinkingTokens,
    SetModel,
    SetPermissionMode,
    StopTask,
)
from .config import ClaudePermissionMode
from .events import Event, TurnSettled
from .exchange import Exchange, Pair
from .requests import Question

INTERRUPT_PATIENCE = 10.0
CLOSE_PATIENCE = 5.0
CANCEL_PATIENCE = 1.0


class ClaudeSession:
    """Made by ``ClaudeClient``. Use as ``async with``; a session that is dropped is ended too.

    ``events`` may be read by many at once; the slowest reader holds up the stream, nobody loses an event. The turn
    that a prompt starts is over at ``TurnSettled``; the last event of all is ``Exited``.
    """

    def __init__(self, exchange: Exchange, session_id: str) -> None:
        self._exchange = exchange
        self._session_id = session_id
        weakref.finalize(self, exchange.let_go)

    @property
    def session_id(self) -> str:
        """The id to resume by. ``/clear`` gives a new one."""
        return self._exchange.protocol.session_id or self._session_id

    @property
    def pid(self) -> int:
        return self._exchange.conversation.process.pid

    @property
    def running(self) -> bool:
        """Whether a turn runs, background tasks included."""
        return self._exchange.protocol.turn.running

    @property
    def open_questions(self) -> Mapping[str, Question]:
        return self._exchange.protocol.open_questions

    @property
    def events(self) -> AsyncIterator[Event]:
        return self._events(self._exchange.relay.reader())

    @property
    def received(self) -> AsyncIterator[tuple[bytes, Event]]:
        """The same with the raw line; ``b""`` for events that no line caused."""
        return self._received(self._exchange.relay.reader())

    @property
    def batches(self) -> AsyncIterator[list[tuple[bytes, Event]]]:
        """The same in lists of whatever is there, for those who want many events fast."""
        return self._batches(self._exchange.relay.reader())

    # Generators of the session, so that whoever reads keeps it alive.

    async def _events(self, reader: Reader[Pair]) -> AsyncIterator[Event]:
        async for _, event in reader:
            yield event

    async def _received(self, reader: Reader[Pair]) -> AsyncIterator[Pair]:
        async for pair in reader:
            yield pair

    async def _batches(self, reader: Reader[Pair]) -> AsyncIterator[list[Pair]]:
        while batch := await reader.batch():
            yield batch

    # ---------------------------------------------------------------------------------------------- conversation

    async def send(self, prompt: str | Sequence[Mapping[str, Any]] | Prompt) -> None:
        """A prompt. While a tool runs it is delivered into the running turn, else it starts one or waits in line."""
        await self._exchange.send(prompt if isinstance(prompt, Prompt) else Prompt(prompt))

    async def answer(self, request_id: str, decision: Decision) -> None:
        """Answer a ``CanUseTool`` event. Raises ``AlreadyAnswered`` when it is no longer open."""
        await self._exchange.send(AnswerPermission(request_id, decision))

    async def settled(self) -> TurnSettled | None:
        """Wait until the running turn is over, its background tasks included; at once when none runs."""
        return await self._exchange.settled()

    async def interrupt(self) -> None:
        """End the running turn and its background tasks; the session goes on."""
        await self._exchange.interrupt(INTERRUPT_PATIENCE)

    async def cancel(self) -> None:
        """End everything, now."""
        await self._exchange.stop(CANCEL_PATIENCE)

    async def close(self) -> None:
        """End the session in order: a turn that still runs is interrupted first."""
        await self._exchange.stop(CLOSE_PATIENCE)

    async def __aenter__(self) -> ClaudeSession:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    # --------------------------------------------------------------------------------------------- control channel

    async def request(self, request: Request) -> Any:
        """Any control request; gives its answer, raises ``AgentRefused`` with Claude Code's own words."""
        return await self._exchange.request(request)

    async def set_permission_mode(self, mode: ClaudePermissionMode) -> None:
        await self.request(SetPermissionMode(mode.value))

    async def set_model(self, model: str | None = None) -> None:
        await self.request(SetModel(model))

    async def set_max_thinking_tokens(self, limit: int | None) -> None:
        await self.request(SetMaxThinkingTokens(limit))

    async def mcp_status(self) -> list[dict[str, Any]]:
        answer: dict[str, list[dict[str, Any]]] = await self.request(McpStatus()) or {}
        return answer.get("mcpServers", [])

    async def mcp_reconnect(self, server: str) -> None:
        await self.request(McpReconnect(server))

    async def mcp_toggle(self, server: str, *, enabled: bool) -> None:
        await self.request(McpToggle(server, enabled))

    async def context_usage(self) -> dict[str, Any]:
        return await self.request(GetContextUsage()) or {}

    async def settings(self) -> dict[str, Any]:
        return await self.request(GetSettings()) or {}

    async def session_cost(self) -> str:
        answer: dict[str, str] = await self.request(GetSessionCost()) or {}
        return answer.get("text", "")

    async def binary_version(self) -> str:
        answer: dict[str, str] = await self.request(GetBinaryVersion()) or {}
        return answer.get("version", "")

    async def rename(self, title: str) -> None:
        await self.request(RenameSession(title))

    async def stop_task(self, task_id: str) -> None:
        await self.request(StopTask(task_id))

    async def rewind_files(self, user_message_id: str, *, dry_run: bool = False) -> dict[str, Any]:
        return await self.request(RewindFiles(user_message_id, dry_run)) or {}
