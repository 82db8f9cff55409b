"""One conversation with Claude Code, as the caller holds it, and its living middle."""

from __future__ import annotations

import asyncio
import contextlib
import time
import weakref
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any, TypeAlias

import msgspec

from ...errors import AgentRefused, ProcessExited, SessionEnded
from ...transports.conversation import Conversation
from ...transports.launch import Exited, Stalled
from ...transports.process import ChildProcess
from ...transports.relay import Reader, Relay
from ...transports.tasks import TaskOwner
from ...wire.shapes import UnknownMessage
from ...wire.stamps import Stamp
from .answers import ClaudeAnswers, Delegate
from .commands import (
    AnswerCanUseTool,
    ClaudeInitialize,
    ClaudeInterrupt,
    ClaudePrompt,
    ClaudeSetModel,
    Command,
    Decision,
    GetBinaryVersion,
    GetContextUsage,
    GetSessionCost,
    GetSettings,
    McpReconnect,
    McpStatus,
    McpToggle,
    RenameSession,
    Reply,
    Request,
    RewindFiles,
    SetMaxThinkingTokens,
    SetPermissionMode,
    StopTask,
)
from .config import ClaudePermissionMode, ClaudeSessionConfig
from .events import (
    Assistant,
    CanUseTool,
    ClaudeResult,
    ControlCancelRequest,
    ControlResponse,
    Elicitation,
    Event,
    HookCallback,
    McpMessage,
    Question,
    RequestUserDialog,
    StreamEvent,
    SystemInit,
    SystemStatus,
    ThinkingTokens,
    TurnSettled,
    User,
)
from .protocol import ClaudeProtocol

Pair: TypeAlias = tuple[bytes, Event | UnknownMessage | Stalled | Exited]

INTERRUPT_PATIENCE = 10.0
CLOSE_PATIENCE = 5.0
CANCEL_PATIENCE = 1.0
LAST_EVENTS_PATIENCE = 2.0
"""How long readers may take for the last events before a closed session stops waiting for them."""

ENDED = "this session has ended; resume it by its id to continue"
_BULK = frozenset({StreamEvent, User, ThinkingTokens, SystemStatus})
"""What nobody here waits for."""


class _OfferedModel(msgspec.Struct, frozen=True):
    value: str = ""


class _Introduction(msgspec.Struct, frozen=True):
    """What is read of the answer to ``initialize``."""

    models: list[_OfferedModel] = []


class ClaudeSession:
    """Made by ``ClaudeClient``. Use as ``async with``; a session that is dropped is ended too.

    ``events`` may be read by many at once; the slowest reader slows the stream down, nobody loses an event. The turn
    that a prompt starts is over at ``TurnSettled``; the last event of all is ``Exited``.
    """

    def __init__(self, exchange: Exchange, session_id: str) -> None:
        self._exchange = exchange
        self._session_id = session_id
        weakref.finalize(self, exchange.abandon)

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
        while await reader.news():
            for _, event in reader.ready():
                yield event

    async def _received(self, reader: Reader[Pair]) -> AsyncIterator[Pair]:
        while await reader.news():
            for pair in reader.ready():
                yield pair

    async def _batches(self, reader: Reader[Pair]) -> AsyncIterator[list[Pair]]:
        while batch := await reader.batch():
            yield batch

    # ---------------------------------------------------------------------------------------------- conversation

    async def send(self, prompt: str | Sequence[Mapping[str, Any]] | ClaudePrompt) -> None:
        """A prompt. While a tool runs it joins the running turn, else it starts a turn or waits for the running one."""
        await self._exchange.send(prompt if isinstance(prompt, ClaudePrompt) else ClaudePrompt(prompt))

    async def answer(self, request_id: str, decision: Decision) -> None:
        """Answer a ``CanUseTool`` event. Raises ``AlreadyAnswered`` when it is no longer open."""
        await self._exchange.send(AnswerCanUseTool(request_id, decision))

    async def wait(self) -> None:
        """Wait until no turn runs. Raises ``ProcessExited`` when the program ended with an error or in mid-turn."""
        await self._exchange.wait()

    async def wait_for_turn_end(self) -> TurnSettled | None:
        """Wait until the running turn is over, its background tasks included; at once when none runs."""
        return await self._exchange.wait_for_turn_end()

    async def interrupt(self) -> None:
        """End the running turn and its background tasks; the session continues."""
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
        """Any control request; returns its answer. Raises ``AgentRefused`` with Claude Code's own words."""
        return await self._exchange.request(request)

    async def models(self) -> list[str]:
        """The names of models that Claude Code offers; its provider may know others."""
        if self._exchange.introduction is None:  # else a second one would register nothing in the place of our hooks
            self._exchange.introduction = await self.request(ClaudeInitialize())
        try:
            offered = msgspec.convert(self._exchange.introduction, _Introduction).models
        except msgspec.ValidationError:
            return []
        return [model.value for model in offered if model.value]

    async def set_permission_mode(self, mode: ClaudePermissionMode) -> None:
        await self.request(SetPermissionMode(mode.value))

    async def set_model(self, model: str | None = None) -> None:
        await self.request(ClaudeSetModel(model))

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


class Exchange:
    """The living middle of a session: protocol, process and the caller's functions, wired together.

    It is apart from the session the caller holds, so that the running reader does not keep that one alive: a session
    which is dropped is collected, and nothing it started continues to run.
    """

    def __init__(
        self, process: ChildProcess, config: ClaudeSessionConfig, delegate: Delegate | None, relay: Relay[Pair]
    ) -> None:
        loop = asyncio.get_running_loop()
        self.protocol = ClaudeProtocol()
        self.relay = relay
        self.exited: Exited | None = None
        self.first_event: asyncio.Future[SystemInit | ClaudeResult | Exited] = loop.create_future()
        self.first_answer: asyncio.Future[Assistant] = loop.create_future()
        self._responses: dict[str, asyncio.Future[ControlResponse]] = {}
        self.introduction: Any = None
        """What it said of itself when something was registered."""
        self._turn_ends: list[asyncio.Future[TurnSettled]] = []
        self._answers = ClaudeAnswers(config, self._reply)
        self._delegate = delegate
        self._died_in_turn = False
        if delegate is not None:
            delegate.decide = self._answers.decide
            delegate.stamp = lambda: Stamp(self.protocol.session_id, self.protocol.turn_id, time.time())
        self.conversation: Conversation[Event] = Conversation(
            process, self.protocol, relay, notice=self._notice, bulk=_BULK, quiet=config.stall_after
        )
        self._tasks = TaskOwner()
        self._ending = self._tasks.start(self._end(), name="stagedoor exchange")

    # ------------------------------------------------------------------------------------------- from Claude Code

    def _notice(self, event: Event | UnknownMessage | Stalled | Exited) -> None:
        match event:
            case Assistant():  # first: the most frequent
                if not self.first_answer.done():
                    self.first_answer.set_result(event)
            case CanUseTool() | HookCallback() | McpMessage() | Elicitation() | RequestUserDialog():
                self._answers.start(event)
            case ControlCancelRequest():
                self._answers.void(event.request_id)
            case ControlResponse():
                response = self._responses.pop(event.request_id, None)
                if response is not None and not response.done():
                    response.set_result(event)
            case SystemInit() | ClaudeResult():
                if not self.first_event.done():
                    self.first_event.set_result(event)
            case TurnSettled():
                self._died_in_turn = self.protocol.ended and event.result is None
                waiting, self._turn_ends = self._turn_ends, []
                for future in waiting:
                    if not future.done():
                        future.set_result(event)
            case Exited():
                self._process_exited(event)
            case _:
                pass

    def _process_exited(self, event: Exited) -> None:
        self.exited = event
        self._answers.void_all()
        if self._delegate is not None:
            self._delegate.close()
        if not self.first_event.done():
            self.first_event.set_result(event)
        fault = _exit_fault(event)
        waiting: list[asyncio.Future[Any]] = [*self._responses.values(), *self._turn_ends]
        for future in waiting:
            if not future.done():
                future.set_exception(fault)
                future.exception()  # whoever waits will see it; nobody has to
        self._responses.clear()
        self._turn_ends.clear()

    async def _end(self) -> None:
        try:
            await self.conversation.ended()
        finally:
            if self.exited is None:
                self._process_exited(Exited(-9))
            self.relay.close()

    # --------------------------------------------------------------------------------------------- to Claude Code

    async def send(self, command: Command) -> None:
        if self.exited is not None:
            raise SessionEnded(ENDED)
        self.protocol.send(command)
        await self.conversation.flush()

    async def _reply(self, reply: Reply) -> None:
        self.protocol.send(reply)
        await self.conversation.flush()

    async def request(self, request: Request | ClaudeInterrupt) -> Any:
        """Ask and wait. Raises ``AgentRefused`` with Claude Code's own words."""
        if self.exited is not None:
            raise SessionEnded(ENDED)
        request_id = self.protocol.request(request)
        answer: asyncio.Future[ControlResponse] = asyncio.get_running_loop().create_future()
        self._responses[request_id] = answer
        await self.conversation.flush()
        response = await answer
        if not response.ok:
            raise AgentRefused(response.response.error or "Claude Code refused the request and gave no reason")
        return response.value()

    async def wait(self) -> None:
        """Wait until no turn runs; raises when the program ended badly."""
        unfinished = False
        try:
            settled = await self.wait_for_turn_end()
            unfinished = settled is not None and settled.result is None
        except ProcessExited:
            unfinished = True
        process = self.conversation.process
        if self.protocol.ended:
            await process.wait()
        self._died_in_turn = self._died_in_turn or (unfinished and self.protocol.ended)
        if (fault := process.fault("Claude Code", unfinished=self._died_in_turn)) is not None:
            raise fault

    async def wait_for_turn_end(self) -> TurnSettled | None:
        """Wait until the running turn is over; at once when none runs."""
        if not self.protocol.turn.running or self.exited is not None:
            return None
        return await self._turn_end()

    def _turn_end(self) -> asyncio.Future[TurnSettled]:
        future: asyncio.Future[TurnSettled] = asyncio.get_running_loop().create_future()
        self._turn_ends.append(future)
        return future

    async def interrupt(self, patience: float) -> bool:
        """End the running turn; false when it has not ended within ``patience`` seconds."""
        if self.exited is not None or not self.protocol.turn.running:
            return True
        turn_end = self._turn_end()  # before the request: the turn may end before the answer to it comes
        try:
            async with asyncio.timeout(patience):
                await self.request(ClaudeInterrupt())
                await turn_end
        except TimeoutError:
            return False
        except (ProcessExited, SessionEnded, AgentRefused):
            return self.exited is not None
        finally:
            turn_end.cancel()
        return True

    async def stop(self, patience: float) -> None:
        """The whole ladder: interrupt, close the input, SIGINT, kill. Nothing is left running."""
        await self.interrupt(patience)
        await self.conversation.process.stop()
        # A reader that has stopped reading must not hold up the end; one that reads gets the last events.
        await asyncio.wait([self._ending], timeout=LAST_EVENTS_PATIENCE)
        self.relay.close()
        await asyncio.shield(self._ending)
        if self._delegate is not None:
            self._delegate.close()

    def abandon(self) -> None:
        """For finalizers: the caller dropped the session. Everything is killed, nothing is waited for."""
        with contextlib.suppress(RuntimeError):  # the loop may be closed already
            self.relay.close()
        self.conversation.abandon()


def _exit_fault(event: Exited) -> ProcessExited:
    words = event.stderr.strip().splitlines()
    return ProcessExited(
        f"Claude Code exited with code {event.code}{': ' + words[-1] if words else ''}; resume the session to continue",
        code=event.code,
        stderr=event.stderr,
    )
