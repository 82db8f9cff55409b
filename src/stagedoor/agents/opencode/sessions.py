"""Conversations with OpenCode: over ``serve``, over ``run`` (a process per turn), and the settings of one over ACP."""

from __future__ import annotations

import asyncio
import contextlib
import os
import weakref
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import Any, TypeVar

import msgspec

from stagedoor.agents.acp.config import AcpSessionConfig, PermissionAnswer
from stagedoor.agents.acp.requests import RequestPermission
from stagedoor.errors import (
    AgentRefused,
    AlreadyAnswered,
    LocalProtocolError,
    ProcessExited,
    SessionEnded,
    StagedoorError,
)
from stagedoor.transports.conversation import Conversation
from stagedoor.transports.launch import Exited
from stagedoor.transports.process import ChildProcess
from stagedoor.transports.relay import Reader, Relay
from stagedoor.transports.tasks import TaskOwner

from .answers import AnswerCommand, choices_answer, decide, permission_answer
from .commands import Abort, Attachment, ModelName, OpenCodePrompt, RejectQuestion
from .config import OpenCodeAllow, OpenCodeDecision, OpenCodeSessionConfig
from .events import Runaway, RunEvent, ServerEvent, StepsExhausted, TurnEnded
from .launch import launch, startup_failure
from .parts import SessionRecord
from .protocol import RunProtocol
from .server import Server

EventT = TypeVar("EventT")

# --------------------------------------------------------------------------------------------------------------- serve

PATIENCE = 15.0
"""How long an aborted turn may take to end."""

NOT_FOUND = 404


class OpenCodeSession:
    """Made by ``OpenCodeClient``. Each turn ends with ``TurnEnded``, the session with ``Exited``.

    The server is this session's own: it ends with it.
    """

    def __init__(self, server: Server, config: OpenCodeSessionConfig) -> None:
        self.session_id = server.protocol.session_id
        self._server = server
        self._config = config
        self._tasks = TaskOwner()
        self._closing: asyncio.Task[None] | None = None
        self.tools: tuple[str, ...] = ()
        """Its own tools for this model, where OpenCode has told them; permissions may take some away."""
        weakref.finalize(self, server.abandon).atexit = False

    @property
    def events(self) -> AsyncIterator[ServerEvent]:
        """Native events, to the end of the session; those of sub-agents carry their own session id."""
        return _events_only(self.received)

    @property
    def received(self) -> AsyncIterator[tuple[bytes, ServerEvent]]:
        """The same with the message each came from (empty for what no message caused)."""
        return self._server.relay.reader()

    @property
    def batches(self) -> AsyncIterator[list[tuple[bytes, ServerEvent]]]:
        """The same in lists of whatever is there, for those who want many events fast."""
        return _batches(self._server.relay.reader())

    @property
    def running(self) -> bool:
        """Whether a turn is under way."""
        return self._server.protocol.in_turn and not self._server.ended

    @property
    def record(self) -> SessionRecord | None:
        """The session as the server had it when it was opened."""
        return self._server.protocol.record

    @property
    def pid(self) -> int:
        return self._server.process.pid

    async def send(self, prompt: str, *, attachments: Sequence[Attachment] = ()) -> None:
        """Start a turn. Raises ``LocalProtocolError`` while one is running."""
        if self._closing is not None or self._server.ended:
            raise SessionEnded("this session has ended: resume_session() continues it")
        config = self._config
        command = OpenCodePrompt(
            text=prompt,
            attachments=tuple(attachments),
            model=ModelName.parse(config.model) if config.model else None,
            agent=config.agent,
            variant=config.variant,
            system=config.append_system_prompt,
            tools=config.tools,
            output_schema=config.output_schema,
        )
        await self._server.send(command)

    async def turn_ended(self) -> TurnEnded:
        """Wait for the end of the last turn that was started."""
        turn = self._server.turn
        if turn is None:
            raise LocalProtocolError("no turn has started in this session: send a prompt first")
        return await asyncio.shield(turn)

    async def wait(self) -> None:
        """Wait until no turn runs. Raises ``ProcessExited`` when the program ended with an error or in mid-turn."""
        if self._server.turn is not None:
            ends: tuple[asyncio.Future[Any], ...] = (self._server.turn, self._server.ending)
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        unfinished = self._server.turn is not None and not self._server.turn_ended_well
        if (fault := self._server.process.fault("opencode serve", unfinished=unfinished)) is not None:
            raise fault

    async def interrupt(self) -> None:
        """End the running turn and its commands, and keep the session. Open questions are refused."""
        turn = self._server.turn
        if not self.running or turn is None:
            return
        await self._server.send(Abort())
        await asyncio.wait([turn], timeout=PATIENCE)

    async def answer_permission(self, permission_id: str, decision: OpenCodeDecision) -> None:
        """Answer a ``PermissionAsked`` that was left open. Raises ``AlreadyAnswered`` when it is closed."""
        await self._answer(permission_answer(permission_id, decision))

    async def answer_question(self, question_id: str, answers: Sequence[Sequence[str]] | None) -> None:
        """Answer a ``QuestionAsked`` that was left open: for each question the labels chosen, or None to reject."""
        await self._answer(RejectQuestion(question_id) if answers is None else choices_answer(question_id, answers))

    async def cancel(self) -> None:
        """End everything, now."""
        if self._closing is None:
            self._closing = self._tasks.start(self._server.stop())
        await asyncio.shield(self._closing)

    async def close(self) -> None:
        """End the session in order: a running turn is aborted first."""
        if self._closing is None:
            with contextlib.suppress(StagedoorError):
                await self.interrupt()
        await self.cancel()

    async def __aenter__(self) -> OpenCodeSession:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        await (self.close() if kind is None else self.cancel())

    async def _answer(self, answer: AnswerCommand) -> None:
        if self._server.ended:
            raise ProcessExited("opencode serve has ended, and its questions are closed")
        try:
            await self._server.send(answer)
        except AgentRefused as refused:
            if refused.code == NOT_FOUND:
                raise AlreadyAnswered("OpenCode no longer waits for this answer") from refused
            raise


# ----------------------------------------------------------------------------------------------------------------- run

FIRST_EVENT_TIMEOUT = 15.0
"""How long a turn may be silent at its start before it counts as started; OpenCode prints nothing while it waits."""


class OpenCodeRunSession:
    """Made by ``OpenCodeClient``. ``events`` lasts over all turns; each turn ends with ``Exited``.

    Between turns nothing runs. Questions are refused (or allowed, with ``auto``): nobody can be asked.
    """

    def __init__(
        self, config: OpenCodeSessionConfig, *, cwd: str, executable: str, env: Mapping[str, str] | None
    ) -> None:
        self.session_id = ""
        self.cwd = cwd
        self._config = config
        self._executable = executable
        self._env = env
        self._relay: Relay[tuple[bytes, RunEvent]] = Relay()
        self._turns: list[Conversation[RunEvent]] = []  # the running one, if any; a list so that a finalizer sees it
        self._protocol = RunProtocol()
        self._turn_id = 0
        self._resumed: str | None = None
        self._interrupted = False
        self._started: asyncio.Future[Exited | None] | None = None
        self._tasks = TaskOwner()
        weakref.finalize(self, _abandon, self._turns).atexit = False

    async def start(
        self, prompt: str, *, resume: str | None = None, config: OpenCodeSessionConfig | None = None
    ) -> None:
        """Run one turn. The client's business, use ``send``.

        Returns after OpenCode's first event, or when it is just waiting for its model.
        """
        environ = os.environ if self._env is None else self._env
        plan = launch(
            config or self._config,
            cwd=self.cwd,
            executable=self._executable,
            prompt=prompt,
            resume=resume,
            inherited=environ.get("OPENCODE_CONFIG_CONTENT", ""),
        )
        self._protocol = RunProtocol(most_empty_steps=self._config.most_empty_steps, most_steps=self._config.most_steps)
        self._turn_id += 1
        self._protocol.turn_id = self._turn_id
        self._resumed = resume
        if resume is not None and not (config or self._config).fork:
            self.session_id = resume  # before OpenCode's first event, which may take long
        self._interrupted = False
        self._started = asyncio.get_running_loop().create_future()
        process = await ChildProcess.start(plan, base_env=self._env)
        turn = Conversation(process, self._protocol, self._relay, notice=_weakly(self), quiet=self._config.stall_after)
        self._turns[:] = [turn]
        try:
            await asyncio.wait([self._started], timeout=FIRST_EVENT_TIMEOUT)
        except BaseException:
            turn.abandon()
            raise
        ended = self._started.result() if self._started.done() else None
        if ended is not None and not self._protocol.session_id and not self._interrupted:
            await turn.stop()
            raise startup_failure(ended, resume)

    @property
    def events(self) -> AsyncIterator[RunEvent]:
        """Native events of all turns, to the end of the session. Each use is a reader of its own."""
        return _events_only(self.received)

    @property
    def received(self) -> AsyncIterator[tuple[bytes, RunEvent]]:
        """The same with the line each came from (empty for what no line caused)."""
        return self._relay.reader()

    @property
    def batches(self) -> AsyncIterator[list[tuple[bytes, RunEvent]]]:
        """The same in lists of whatever is there, for those who want many events fast."""
        return _batches(self._relay.reader())

    @property
    def running(self) -> bool:
        return bool(self._turns) and self._turns[0].process.code is None

    @property
    def pid(self) -> int | None:
        return self._turns[0].process.pid if self.running else None

    async def send(self, prompt: str) -> None:
        """The next turn. ``opencode run`` reads nothing while it runs: wait for the turn's end, or interrupt."""
        if self._relay.closed:
            raise SessionEnded("this session has ended: resume_session() continues it")
        if self.running:
            raise LocalProtocolError("a turn is running: wait for its Exited event, or interrupt it")
        await self._finish_turn()
        if not self.session_id:  # stopped before its first event: what was to be resumed or forked still is
            await self.start(prompt, resume=self._resumed)
            return
        await self.start(prompt, resume=self.session_id, config=_without_fork(self._config))

    async def interrupt(self) -> None:
        """End the running turn and its commands. The stream just stops: ``Exited`` is its only end."""
        self._interrupted = True
        for turn in self._turns:
            await turn.stop()

    async def wait(self) -> None:
        """Wait until no turn runs. Raises ``ProcessExited`` when the program ended with an error or in mid-turn."""
        await self._finish_turn()
        for turn in self._turns:
            if (fault := turn.process.fault("opencode run")) is not None:
                raise fault

    async def _finish_turn(self) -> None:
        for turn in self._turns:
            await turn.ended()
            await turn.process.stop()

    async def cancel(self) -> None:
        """End everything, now."""
        await self.interrupt()
        self._relay.close()

    async def close(self) -> None:
        """End the session; a running turn is interrupted."""
        await self.cancel()

    async def __aenter__(self) -> OpenCodeRunSession:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.cancel()

    def notice(self, event: RunEvent) -> None:
        """The pump's business: sees each event before any reader."""
        self.session_id = self._protocol.session_id or self.session_id
        if self._started is not None and not self._started.done():
            if isinstance(event, Exited):
                self._started.set_result(event)
            elif self._protocol.session_id:
                self._started.set_result(None)
        if isinstance(event, (Runaway, StepsExhausted)):
            self._tasks.start(self.interrupt())


def _without_fork(config: OpenCodeSessionConfig) -> OpenCodeSessionConfig:
    return msgspec.structs.replace(config, fork=False, files=())


def _weakly(session: OpenCodeRunSession) -> Callable[[RunEvent], None]:
    """The pump must not keep the session alive: one that nobody holds is collected, and its process with it."""
    reference = weakref.ref(session)

    def notice(event: RunEvent) -> None:
        if (alive := reference()) is not None:
            alive.notice(event)

    return notice


def _abandon(turns: list[Conversation[RunEvent]]) -> None:
    for turn in turns:
        turn.abandon()


# ----------------------------------------------------------------------------------------------------------------- acp


def acp_config(config: OpenCodeSessionConfig) -> AcpSessionConfig:
    """Permissions and MCP servers belong to the process; the questions, the model and the mode to the session."""

    refused: set[bytes] = set()

    async def request_permission(question: RequestPermission) -> PermissionAnswer:
        decision = await decide(config.can_use_tool, question, refused=refused)
        if isinstance(decision, OpenCodeAllow):
            return "allow_always" if decision.always else "allow_once"
        return "reject_once"

    return AcpSessionConfig(
        model=config.model,
        mode=config.agent,
        effort=config.variant,
        can_use_tool=request_permission,
        permission_timeout=config.permission_timeout,
    )


async def _events_only(pairs: AsyncIterator[tuple[bytes, EventT]]) -> AsyncIterator[EventT]:
    async for _, event in pairs:
        yield event


async def _batches(reader: Reader[tuple[bytes, EventT]]) -> AsyncIterator[list[tuple[bytes, EventT]]]:
    while batch := await reader.batch():
        yield batch
