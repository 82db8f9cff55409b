"""A conversation over ``opencode serve``."""

from __future__ import annotations

import asyncio
import contextlib
import weakref
from collections.abc import AsyncIterator, Sequence

from stagedoor.errors import (
    AgentRefused,
    AlreadyAnswered,
    LocalProtocolError,
    ProcessExited,
    SessionEnded,
    StagedoorError,
)

from .commands import Abort, Attachment, Model, Prompt, RejectQuestion, ReplyPermission, ReplyQuestion
from .config import Allow, Decision, OpenCodeConfig
from .events import ServerEvent, SessionRecord, TurnEnded
from .server import Server

PATIENCE = 15.0
"""How long an aborted turn may take to end."""

NOT_FOUND = 404


class OpenCodeSession:
    """Made by ``OpenCodeClient``. Each turn ends with ``TurnEnded``, the session with ``Exited``.

    The server is this session's own: it ends with it.
    """

    def __init__(self, server: Server, config: OpenCodeConfig) -> None:
        self.session_id = server.protocol.session_id
        self._server = server
        self._config = config
        self._closing: asyncio.Task[None] | None = None
        weakref.finalize(self, server.abandon).atexit = False

    @property
    def events(self) -> AsyncIterator[ServerEvent]:
        """Native events, to the end of the session; those of sub-agents carry their own session id."""
        return _events_only(self.received)

    @property
    def received(self) -> AsyncIterator[tuple[bytes, ServerEvent]]:
        """The same with the message each came from (empty for what no message said)."""
        return self._server.relay.reader()

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
        """Begin a turn. Raises ``LocalProtocolError`` while one is running."""
        if self._closing is not None or self._server.ended:
            raise SessionEnded("this session is over; resume_session() continues it")
        config = self._config
        command = Prompt(
            text=prompt,
            attachments=tuple(attachments),
            model=Model.parse(config.model) if config.model else None,
            agent=config.agent,
            variant=config.variant,
            system=config.system,
            tools=config.tools,
            output_schema=config.output_schema,
        )
        await self._server.say(command)

    async def turn_ended(self) -> TurnEnded:
        """Wait for the end of the turn last begun."""
        turn = self._server.turn
        if turn is None:
            raise LocalProtocolError("no turn was begun in this session: send a prompt first")
        return await asyncio.shield(turn)

    async def interrupt(self) -> None:
        """End the running turn and its commands, and keep the session. Open questions are refused."""
        turn = self._server.turn
        if not self.running or turn is None:
            return
        await self._server.say(Abort())
        await asyncio.wait([turn], timeout=PATIENCE)

    async def answer_permission(self, permission_id: str, decision: Decision) -> None:
        """Answer a ``PermissionAsked`` that was left open. Raises ``AlreadyAnswered`` when it is closed."""
        if isinstance(decision, Allow):
            reply = ReplyPermission(permission_id, "always" if decision.always else "once")
        else:
            reply = ReplyPermission(permission_id, "reject", decision.message)
        await self._answer(reply)

    async def answer_question(self, question_id: str, answers: Sequence[Sequence[str]] | None) -> None:
        """Answer a ``QuestionAsked`` that was left open: for each question the labels chosen, or None to reject."""
        if answers is None:
            await self._answer(RejectQuestion(question_id))
        else:
            await self._answer(ReplyQuestion(question_id, tuple(tuple(labels) for labels in answers)))

    async def cancel(self) -> None:
        """End everything, now."""
        if self._closing is None:
            self._closing = asyncio.get_running_loop().create_task(self._server.stop())
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

    async def _answer(self, reply: ReplyPermission | ReplyQuestion | RejectQuestion) -> None:
        if self._server.ended:
            raise ProcessExited("the server has ended; every open question was closed with it")
        try:
            await self._server.say(reply)
        except AgentRefused as refused:
            if refused.code == NOT_FOUND:
                raise AlreadyAnswered("OpenCode does not wait for this answer any more") from refused
            raise


async def _events_only(pairs: AsyncIterator[tuple[bytes, ServerEvent]]) -> AsyncIterator[ServerEvent]:
    async for _, event in pairs:
        yield event
