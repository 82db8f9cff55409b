"""One conversation with an ACP agent."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Coroutine, Sequence
from types import TracebackType
from typing import Any

from msgspec.structs import replace

from stagedoor.errors import AgentRefused, LocalProtocolError, NotSupported, SessionEnded, StagedoorError, unknown_model
from stagedoor.transports.relay import Reader
from stagedoor.transports.tasks import TaskOwner

from .commands import (
    Call,
    CancelNotification,
    CloseSessionRequest,
    ListToolsRequest,
    PromptRequest,
    SetSessionConfigOptionRequest,
    SetSessionModelRequest,
    SetSessionModeRequest,
)
from .connection import Channel, Connection
from .events import Event, ModelFailed, Unanswered
from .protocol import Reply, method_of
from .responses import (
    ConfigOption,
    InitializeResponse,
    OpenSessionResponse,
    SessionModelState,
    SessionModeState,
    SetSessionConfigOptionResponse,
    UntypedResponse,
    tool_names,
)
from .updates import KnownBlock, TextContent

PATIENCE = 10.0
"""How long a cancelled turn may take to end, and the agent to confirm that a session is closed."""

ANSWERED_WITHIN = 120.0
"""How long the agent may take to change a setting of a session."""

EFFORTS = ("effort", "reasoning_effort", "thought_level", "thinking")
"""Ids of options without a category that say how much the model thinks."""


class AcpSession:
    """Made by a client. Reading ``events`` slowly slows the agent; not reading them at all in the end stops it."""

    def __init__(self, connection: Connection, channel: Channel, session_id: str, opened: OpenSessionResponse) -> None:
        self.session_id = session_id
        self.opened = opened
        self._connection = connection
        self._channel = channel
        self._turn: asyncio.Future[Reply] | None = None
        self._tasks = TaskOwner()
        self._attending = TaskOwner()
        self._closing: asyncio.Task[None] | None = None
        self.tools: tuple[str, ...] = ()
        """What its model is offered, where the agent has told."""
        connection.abandon_with(self, session_id, channel)

    # ------------------------------------------------------------------------------------------------ what is known

    @property
    def agent(self) -> InitializeResponse:
        """Who the agent is and what it can do."""
        return self._connection.agent

    @property
    def pid(self) -> int:
        return self._connection.process.pid

    @property
    def scratch(self) -> str:
        """The private folder of the files the agent was started with; empty when there are none."""
        return self._connection.process.scratch

    @property
    def modes(self) -> SessionModeState | None:
        """What there are, and the one it is in now."""
        modes, now = self.opened.modes, self._channel.mode_id
        return modes if modes is None or now is None else replace(modes, current_mode_id=now)

    @property
    def models(self) -> SessionModelState | None:
        models, now = self.opened.models, self._channel.model_id
        return models if models is None or now is None else replace(models, current_model_id=now)

    @property
    def config_options(self) -> list[ConfigOption]:
        """Its settings as they stand now."""
        changed = self._channel.config_options
        return list(self.opened.config_options or () if changed is None else changed)

    @property
    def running(self) -> bool:
        """Whether a turn is running."""
        return self._connection.protocol.in_turn(self.session_id)

    @property
    def events(self) -> AsyncIterator[Event]:
        """Native events, to the end of the session. Each use is a separate reader."""
        return _events(self, self._channel.relay.reader())

    @property
    def received(self) -> AsyncIterator[tuple[bytes, Event]]:
        """The same with the raw message each came from (empty for an event that no message caused)."""
        return _pairs(self, self._channel.relay.reader())

    @property
    def batches(self) -> AsyncIterator[list[tuple[bytes, Event]]]:
        """The same in lists of whatever is there, for those who want many events fast."""
        return _batches(self, self._channel.relay.reader())

    # ---------------------------------------------------------------------------------------------------- the verbs

    async def send(self, prompt: str | Sequence[KnownBlock]) -> None:
        """Start a turn. Its events end with ``PromptResponse``, ``RequestFailed`` or ``Unanswered``."""
        blocks = (TextContent(prompt),) if isinstance(prompt, str) else tuple(prompt)
        self._channel.turn_id += 1  # before the prompt is on its way: what comes next is already of this turn
        try:
            self._turn = await self._start(PromptRequest(self.session_id, blocks))
        except BaseException:
            self._channel.turn_id -= 1
            raise

    async def turn_ended(self) -> Reply:
        """Wait for the end of the turn last started; returns what ended it."""
        if self._turn is None:
            raise LocalProtocolError("no turn was started in this session: send a prompt first")
        return await asyncio.shield(self._turn)

    async def wait(self) -> None:
        """Wait until no turn runs. Raises ``ProcessExited`` when the program ended with an error or in mid-turn."""
        reply = await asyncio.shield(self._turn) if self._turn is not None else None
        process = self._connection.process
        unanswered = isinstance(reply, Unanswered)
        if unanswered:
            await process.wait()
        if (fault := process.fault("the agent", unfinished=unanswered)) is not None:
            raise fault

    async def interrupt(self) -> None:
        """End the running turn and keep the session. Returns when it has ended, or the agent took too long."""
        await self._connection.send(CancelNotification(self.session_id))
        loop = asyncio.get_running_loop()
        until = loop.time() + PATIENCE
        # Who interrupts may be the very reader everything waits for: then its end will be among what it reads next.
        while self._turn and not self._turn.done() and not self._connection.congested and loop.time() < until:
            await asyncio.wait([self._turn], timeout=0.1)

    async def set_mode(self, mode_id: str) -> None:
        offered = [mode.id for mode in self.modes.available_modes] if self.modes else []
        if offered and mode_id not in offered:
            raise LocalProtocolError(f"the agent has no mode {mode_id!r}; choose one of {', '.join(offered)}")
        option = self._option("mode")
        if not offered and option is not None:
            await self.set_config_option(option.id, mode_id)
        else:
            channel, before = self._channel, self._channel.mode_id
            channel.mode_id = None
            try:
                await self._request(SetSessionModeRequest(self.session_id, mode_id))
            except BaseException:
                channel.mode_id = before if channel.mode_id is None else channel.mode_id
                raise
            if channel.mode_id is None:  # most tell the change as well, and know better
                channel.mode_id = mode_id

    async def set_model(self, model_id: str) -> None:
        option = self._option("model")
        models = self.models
        if models is None and option is not None:
            choices = [choice.value for choice in option.choices()]
            if choices and model_id not in choices:
                raise _unknown_model(model_id, choices)
            await self.set_config_option(option.id, model_id)
        elif models is None:
            raise NotSupported("this agent does not let you choose a model")
        else:
            try:
                await self._request(SetSessionModelRequest(self.session_id, model_id))
            except AgentRefused as refused:  # some take more than they list: the agent itself decides
                offered = [model.model_id for model in models.available_models]
                if not offered or model_id in offered:
                    raise
                raise _unknown_model(model_id, offered) from refused
            self._channel.model_id = model_id

    async def set_effort(self, value: str) -> None:
        """How much the model thinks, by the agent's own words for it."""
        options = self.config_options
        by_id = (option for option in options if option.category is None and option.id in EFFORTS)
        option = next((option for option in options if option.category == "thought_level"), None) or next(by_id, None)
        if option is None:
            raise NotSupported(f"effort {value!r}: this agent does not let you choose how much its model thinks")
        await self.set_config_option(option.id, value == "true" if option.type == "boolean" else value)

    async def set_config_option(self, config_id: str, value: str | bool) -> None:  # noqa: FBT001 (a value, no switch)
        options = self.config_options
        option = next((option for option in options if option.id == config_id), None)
        if option is None:
            offered = ", ".join(option.id for option in options) or "none"
            raise LocalProtocolError(f"the agent has no option {config_id!r}; its options: {offered}")
        choices = [choice.value for choice in option.choices()]
        if choices and value not in choices:
            few = ", ".join(choices[:20])
            raise LocalProtocolError(
                f"{value!r} is not a value of the agent's option {config_id!r}; choose one of {few}"
            )
        answer = await self._request(SetSessionConfigOptionRequest(self.session_id, config_id, value))
        if isinstance(answer, SetSessionConfigOptionResponse) and not answer.config_options:  # it only says yes
            changed = [replace(one, current_value=value) if one.id == config_id else one for one in self.config_options]
            self._channel.config_options = changed

    async def list_tools(self, method: str, cwd: str) -> None:
        """Ask which tools its model is offered, by the agent's own ``method``. One that does not know it, or does not
        answer in time, has told nothing."""
        with contextlib.suppress(AgentRefused, TimeoutError):
            async with asyncio.timeout(PATIENCE):
                answer = await self._request(ListToolsRequest(method, self.session_id, cwd))
                self.tools = tool_names(answer.result) if isinstance(answer, UntypedResponse) else ()

    @property
    def turn_id(self) -> int:
        """How many prompts were sent."""
        return self._channel.turn_id

    @property
    def ended(self) -> bool:
        return self._connection.ended or self._channel.relay.closed

    def attend(self, work: Coroutine[Any, Any, None]) -> None:
        """Run ``work`` as long as the session is open. It must not hold the session."""
        self._attending.start(work)

    def put_in(self, event: ModelFailed) -> None:
        """Something that the agent does not say, among its events."""
        self._connection.put_in(self.session_id, event)

    async def commands_listed(self, timeout: float) -> None:
        """Wait until the agent has listed its commands, which some do when a loaded session has been replayed."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout):
                await self._channel.commands_listed.wait()

    async def cancel(self) -> None:
        """End everything at once: the turn, the session, and the process when it serves no other session."""
        if self._closing is None:
            self._closing = self._tasks.start(self._cancel())
        await asyncio.shield(self._closing)

    async def close(self) -> None:
        """End the session in order."""
        if self._closing is None:
            self._closing = self._tasks.start(self._close())
        await asyncio.shield(self._closing)

    async def __aenter__(self) -> AcpSession:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await (self.close() if kind is None else self.cancel())

    async def _cancel(self) -> None:
        if not self._connection.ended:
            await self._connection.send(CancelNotification(self.session_id))
        await self._attending.close()
        await self._connection.leave(self.session_id)

    async def _close(self) -> None:
        if not self._connection.ended and not self._connection.congested:
            if self.running:
                await self.interrupt()
            if self.agent.capabilities.session.close is not None:
                with contextlib.suppress(StagedoorError, TimeoutError):
                    async with asyncio.timeout(PATIENCE):
                        await self._request(CloseSessionRequest(self.session_id))
        await self._attending.close()
        await self._connection.leave(self.session_id)

    async def _request(self, command: Call) -> Reply:
        self._alive()
        try:
            async with asyncio.timeout(ANSWERED_WITHIN):
                return await self._connection.request(command)
        except TimeoutError:
            words = f"the agent did not answer {method_of(command)} within {ANSWERED_WITHIN:g} s"
            raise AgentRefused(f"{words}: interrupt its turn, or open the session again") from None

    async def _start(self, command: Call) -> asyncio.Future[Reply]:
        self._alive()
        return await self._connection.start(command)

    def _alive(self) -> None:
        if self._connection.ended or self._channel.relay.closed:
            raise SessionEnded("this session has ended: resume it by its id to continue")

    def _option(self, category: str) -> ConfigOption | None:
        by_category = (option for option in self.config_options if option.category == category)
        by_id = (option for option in self.config_options if option.id == category)
        return next(by_category, None) or next(by_id, None)


async def _events(session: AcpSession, reader: Reader[tuple[bytes, Event]]) -> AsyncIterator[Event]:
    """Holds the session: whoever still reads it still has it."""
    while await reader.news():
        for _, event in reader.ready():
            yield event


async def _pairs(session: AcpSession, reader: Reader[tuple[bytes, Event]]) -> AsyncIterator[tuple[bytes, Event]]:
    while await reader.news():
        for pair in reader.ready():
            yield pair


async def _batches(
    session: AcpSession, reader: Reader[tuple[bytes, Event]]
) -> AsyncIterator[list[tuple[bytes, Event]]]:
    while batch := await reader.batch():
        yield batch


def _unknown_model(model_id: str, offered: Sequence[str]) -> LocalProtocolError:
    return LocalProtocolError(unknown_model(model_id, offered))
