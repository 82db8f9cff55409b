"""The living middle of a session: protocol, process and the caller's functions, wired together.

It is apart from the session the caller holds, so that the running reader does not keep that one alive: a session which
is dropped is collected, and nothing it started goes on running.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any, TypeAlias

from ...errors import AgentRefused, ProcessExited, SessionEnded
from ...transports.conversation import Conversation
from ...transports.launch import Exited, Stalled
from ...transports.process import ChildProcess
from ...transports.relay import Relay
from ...wire.shapes import Unrecognized
from .answering import Answering
from .commands import Command, Interrupt, Reply, Request
from .config import ClaudeSessionConfig
from .delegate import Delegate
from .events import (
    Assistant,
    ControlCancelRequest,
    ControlResponse,
    Event,
    Result,
    StreamEvent,
    SystemInit,
    TurnSettled,
    User,
)
from .notices import ThinkingTokens
from .protocol import ClaudeProtocol
from .requests import CanUseTool, Elicitation, HookCallback, McpMessage, RequestUserDialog

Pair: TypeAlias = tuple[bytes, Event | Unrecognized | Stalled | Exited]

_BULK = frozenset({StreamEvent, User, ThinkingTokens})
CLOSING_WORDS = 2.0
"""How long readers may take for the last events before a closed session stops waiting for them."""


class Exchange:
    def __init__(
        self, process: ChildProcess, config: ClaudeSessionConfig, delegate: Delegate | None, relay: Relay[Pair]
    ) -> None:
        loop = asyncio.get_running_loop()
        self.protocol = ClaudeProtocol()
        self.relay = relay
        self.exited: Exited | None = None
        self.first_words: asyncio.Future[SystemInit | Result | Exited] = loop.create_future()
        self.first_answer: asyncio.Future[Assistant] = loop.create_future()
        self._answers: dict[str, asyncio.Future[ControlResponse]] = {}
        self._settled: list[asyncio.Future[TurnSettled]] = []
        self._answering = Answering(config, self._reply)
        self._delegate = delegate
        if delegate is not None:
            delegate.decide = self._answering.decide
        self.conversation: Conversation[Event] = Conversation(
            process, self.protocol, relay, notice=self._notice, quiet=config.stall_after
        )
        self._ending = loop.create_task(self._end())

    # -------------------------------------------------------------------------------------------- what is heard

    def _notice(self, event: Event | Unrecognized | Stalled | Exited) -> None:
        kind = type(event)
        if kind in _BULK or (kind is Assistant and self.first_answer.done()):
            return
        match event:
            case CanUseTool() | HookCallback() | McpMessage() | Elicitation() | RequestUserDialog():
                self._answering.ask(event)
            case ControlCancelRequest():
                self._answering.void(event.request_id)
            case ControlResponse():
                answer = self._answers.pop(event.request_id, None)
                if answer is not None and not answer.done():
                    answer.set_result(event)
            case Assistant():
                if not self.first_answer.done():
                    self.first_answer.set_result(event)
            case SystemInit() | Result():
                if not self.first_words.done():
                    self.first_words.set_result(event)
            case TurnSettled():
                waiting, self._settled = self._settled, []
                for future in waiting:
                    if not future.done():
                        future.set_result(event)
            case Exited():
                self._over(event)
            case _:
                pass

    def _over(self, event: Exited) -> None:
        self.exited = event
        self._answering.void_all()
        if self._delegate is not None:
            self._delegate.close()
        if not self.first_words.done():
            self.first_words.set_result(event)
        gone = self._gone()
        waiting: list[asyncio.Future[Any]] = [*self._answers.values(), *self._settled]
        for future in waiting:
            if not future.done():
                future.set_exception(gone)
                future.exception()  # whoever waits will see it; nobody has to
        self._answers.clear()
        self._settled.clear()

    async def _end(self) -> None:
        try:
            await self.conversation.ended()
        finally:
            if self.exited is None:
                self._over(Exited(-9))
            self.relay.close()

    def _gone(self) -> ProcessExited:
        code, stderr = (self.exited.code, self.exited.stderr) if self.exited is not None else (None, "")
        words = stderr.strip().splitlines()
        return ProcessExited(
            f"Claude Code ended with code {code}{': ' + words[-1] if words else ''}; resume the session to go on",
            code=code,
            stderr=stderr,
        )

    # -------------------------------------------------------------------------------------------- what is said

    async def send(self, command: Command) -> None:
        if self.exited is not None:
            raise SessionEnded("this session is over; resume it by its id to go on")
        self.protocol.send(command)
        await self.conversation.flush()

    async def _reply(self, reply: Reply) -> None:
        self.protocol.send(reply)
        await self.conversation.flush()

    async def request(self, request: Request | Interrupt) -> Any:
        """Ask and wait. Raises ``AgentRefused`` with Claude Code's own words."""
        if self.exited is not None:
            raise SessionEnded("this session is over; resume it by its id to go on")
        request_id = self.protocol.request(request)
        answer: asyncio.Future[ControlResponse] = asyncio.get_running_loop().create_future()
        self._answers[request_id] = answer
        await self.conversation.flush()
        response = await answer
        if not response.ok:
            raise AgentRefused(response.response.error or "Claude Code refused the request without saying why")
        return response.value()

    async def settled(self) -> TurnSettled | None:
        """Wait until the running turn is over; at once when none runs."""
        if not self.protocol.turn.running or self.exited is not None:
            return None
        future: asyncio.Future[TurnSettled] = asyncio.get_running_loop().create_future()
        self._settled.append(future)
        return await future

    async def interrupt(self, patience: float) -> bool:
        """End the running turn; false when it has not ended within ``patience`` seconds."""
        if self.exited is not None or not self.protocol.turn.running:
            return True
        over = asyncio.ensure_future(self.settled())
        try:
            async with asyncio.timeout(patience):
                await self.request(Interrupt())
                await over
        except TimeoutError:
            return False
        except (ProcessExited, SessionEnded, AgentRefused):
            return self.exited is not None
        finally:
            over.cancel()
            over.add_done_callback(_forget)
        return True

    async def stop(self, patience: float) -> None:
        """The whole ladder: interrupt, close the input, SIGINT, kill. Nothing is left running."""
        await self.interrupt(patience)
        await self.conversation.process.stop()
        # A reader that has stopped reading must not hold up the end; one that reads gets the last words.
        await asyncio.wait([self._ending], timeout=CLOSING_WORDS)
        self.relay.close()
        await asyncio.shield(self._ending)
        if self._delegate is not None:
            self._delegate.close()

    def let_go(self) -> None:
        """For finalizers: the caller dropped the session. Everything is killed, nothing is waited for."""
        with contextlib.suppress(RuntimeError):  # the loop may be closed already
            self.relay.close()
        self.conversation.abandon()


def _forget(task: asyncio.Future[TurnSettled | None]) -> None:
    """Whatever became of it: somebody else tells the caller."""
    if not task.cancelled():
        task.exception()
