"""One thread of an app-server, as a session."""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import AsyncIterator, Sequence
from typing import TYPE_CHECKING

from ...errors import AlreadyAnswered, LocalProtocolError, ProcessExited, SessionEnded
from ...transports.relay import Relay
from .answering import Answering, Deliver
from .commands import Decision, Interrupt, StartTurn, Steer, UnsubscribeThread
from .config import CodexConfig
from .launch import approval_policy, turn_params
from .leftovers import Leftovers
from .notifications import AppEvent
from .questions import Question, RequestId
from .threads import ThreadResponse

if TYPE_CHECKING:
    from .app_server import CodexAppServer

INTERRUPT_BOUND = 20.0
"""Seconds a turn may take to end after an interrupt; a server that needs longer is stopped."""


class CodexThread:
    """Made by ``CodexClient`` or ``CodexAppServer``. ``events`` holds the thread's events and its sub-agents'.

    Tell them apart by their ``thread_id``. What is about no thread (warnings, rate limits) comes along.
    """

    def __init__(
        self,
        server: CodexAppServer,
        opened: ThreadResponse,
        relay: Relay[tuple[bytes, AppEvent]],
        config: CodexConfig,
        *,
        owned: bool,
        deliver: Deliver,
    ) -> None:
        self.session_id = opened.thread.id
        self.opened = opened
        """What is in force: model, approval policy, sandbox, folder."""
        self.server = server
        self._config = config
        self._relay = relay
        self._owned = owned
        self._leftovers = Leftovers(config, opened.cwd or server.cwd, server.environ)
        self.answering = Answering(
            config.can_use_tool,
            config.permission_timeout,
            waits=approval_policy(config) != "never" or config.plan_mode,
            deliver=deliver,
        )
        weakref.finalize(self, server.switchboard.close, self.session_id).atexit = False

    @property
    def events(self) -> AsyncIterator[AppEvent]:
        return self._events()

    @property
    def received(self) -> AsyncIterator[tuple[bytes, AppEvent]]:
        return self._received()

    @property
    def batches(self) -> AsyncIterator[list[tuple[bytes, AppEvent]]]:
        """The same in lists of whatever is there, for those who want many events fast."""
        return self._batches()

    @property
    def running(self) -> bool:
        """Whether a turn is under way, here or in a sub-agent."""
        return self.server.exited is None and self.server.protocol.busy(self.session_id)

    @property
    def pid(self) -> int:
        return self.server.pid

    @property
    def open_questions(self) -> list[Question]:
        """What this thread and its sub-agents wait to be told."""
        family = set(self.server.protocol.conversations.family(self.session_id))
        return [question for question in self.server.protocol.open_questions.values() if question.thread_id in family]

    async def send(self, prompt: str, *, images: Sequence[str] = ()) -> None:
        """The next turn; while one runs, Codex takes the prompt into that one."""
        self._require_open()
        if not prompt.strip() and not images:
            raise LocalProtocolError("a turn needs a prompt that is not empty")
        await self.server.call(
            StartTurn(self.session_id, prompt, tuple(images), turn_params(self._config, model=self.opened.model))
        )

    async def steer(self, text: str, *, images: Sequence[str] = ()) -> None:
        """Say something into the running turn. Raises ``LocalProtocolError`` when none runs."""
        self._require_open()
        await self.server.call(Steer(self.session_id, text, tuple(images)))

    async def answer(self, request_id: RequestId, decision: Decision) -> None:
        """Answer an open question of this thread. Raises ``AlreadyAnswered`` when it is closed."""
        if not any(question.request_id == request_id for question in self.open_questions):
            raise AlreadyAnswered(f"question {request_id} is not open in this thread; nothing was sent")
        await self.server.answer(request_id, decision)
        self.answering.close(request_id)

    async def interrupt(self) -> None:
        """End the running turn, its sub-agents' turns and its commands; returns when all that is done."""
        if self.server.exited is not None:
            return
        try:
            async with asyncio.timeout(INTERRUPT_BOUND):
                await self.server.send(Interrupt(self.session_id))
                while self.running:
                    await self.server.changed()
        except ProcessExited:
            return
        except TimeoutError:
            await self.server.cancel()
        finally:
            self._leftovers.sweep()

    async def wait(self) -> None:
        """Wait until no turn runs."""
        while self.running:
            await self.server.changed()

    async def cancel(self) -> None:
        """End everything, now."""
        if self._owned:
            await self.server.cancel()
        else:
            await self.interrupt()
            await self._let_go()
        self.server.switchboard.close(self.session_id)
        self._leftovers.sweep()

    async def close(self) -> None:
        """End the session; a running turn is interrupted first, so that Codex records it as such."""
        if self.running:
            await self.interrupt()
        await self.cancel()

    async def __aenter__(self) -> CodexThread:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def _let_go(self) -> None:
        if self.server.exited is None:
            try:
                await self.server.send(UnsubscribeThread(self.session_id))
            except ProcessExited:
                return

    def _require_open(self) -> None:
        if self._relay.closed:
            raise SessionEnded("this session was closed; resume_session() continues it")

    async def _events(self) -> AsyncIterator[AppEvent]:
        async for _, event in self._relay.reader():
            yield event

    async def _batches(self) -> AsyncIterator[list[tuple[bytes, AppEvent]]]:
        reader = self._relay.reader()
        while batch := await reader.batch():
            yield batch

    async def _received(self) -> AsyncIterator[tuple[bytes, AppEvent]]:
        async for pair in self._relay.reader():
            yield pair
