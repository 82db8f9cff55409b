"""A private ``opencode serve`` and one conversation with it, pumped together."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Mapping

from stagedoor.errors import AgentRefused, ConnectionLost, LaunchError, StagedoorError
from stagedoor.transports.http import HttpTransport
from stagedoor.transports.launch import Launch, Stalled
from stagedoor.transports.process import ChildProcess
from stagedoor.transports.relay import Relay
from stagedoor.transports.tasks import TaskOwner
from stagedoor.transports.versions import ProvenVersions
from stagedoor.wire.http import HttpRequest
from stagedoor.wire.shapes import UnknownMessage
from stagedoor.wire.stamps import Stamp, mark

from .answers import AnswerCommand, OpenCodeAnswers
from .commands import Command, OpenCodePrompt
from .config import OpenCodeSessionConfig
from .events import (
    PermissionAsked,
    PermissionReplied,
    QuestionAsked,
    QuestionRejected,
    QuestionReplied,
    ServerConnected,
    ServerEvent,
    ServerListening,
    ServerRefusal,
    TurnEnded,
)
from .launch import INSTALL, USERNAME, refused_configuration, startup_failure
from .protocol import ServeProtocol, complaint_in

VERSIONS = ProvenVersions("opencode", "1.18.3", "1.18.33", INSTALL)
Pair = tuple[bytes, ServerEvent]
SILENCE = 60.0
"""The server sends something every ten seconds; a stream that does not is dead."""


class Server:
    """Made by :meth:`start`. ``relay`` carries all its events; it closes when the server has ended."""

    def __init__(self, process: ChildProcess, config: OpenCodeSessionConfig, directory: str) -> None:
        loop = asyncio.get_running_loop()
        self.process = process
        self.protocol = ServeProtocol(
            directory=directory, most_empty_steps=config.most_empty_steps, most_steps=config.most_steps
        )
        self.relay: Relay[Pair] = Relay()
        self.turn: asyncio.Future[TurnEnded] | None = None
        self._turn_id = 0
        self._turn_was_over = True
        self._config = config
        self._directory = directory
        self._http: HttpTransport | None = None
        self._answers = OpenCodeAnswers(config, self._deliver)
        self._listening: asyncio.Future[str] = loop.create_future()
        self._connected: asyncio.Future[None] = loop.create_future()
        self._tasks = TaskOwner()
        self._streaming: asyncio.Task[None] | None = None
        self._watching = self._tasks.start(self._watch(), name="stagedoor opencode serve")

    @classmethod
    async def start(
        cls,
        plan: Launch,
        config: OpenCodeSessionConfig,
        *,
        password: str,
        base_env: Mapping[str, str] | None,
        start_timeout: float,
    ) -> Server:
        """Start the server and return once its events arrive."""
        server = cls(await ChildProcess.start(plan, base_env=base_env), config, plan.cwd)
        try:
            async with asyncio.timeout(start_timeout):
                await server._connect(await server._listening, password)
        except TimeoutError:
            await server.stop()
            raise LaunchError(
                f"opencode serve did not listen within {start_timeout:g} s: try again, or raise start_timeout"
            ) from None
        except BaseException:
            await server.stop()
            raise
        return server

    @property
    def http(self) -> HttpTransport:
        if self._http is None:
            raise ConnectionLost("opencode serve does not listen yet")
        return self._http

    @property
    def ending(self) -> asyncio.Task[None]:
        """Done when the server has ended and said all it had to say."""
        return self._watching

    @property
    def turn_ended_well(self) -> bool:
        """Whether the last turn was over before the server was."""
        return self._turn_was_over

    @property
    def ended(self) -> bool:
        return self.relay.closed

    async def send(self, command: Command) -> None:
        """Send a command and wait for the server's answers to it. Raises ``AgentRefused`` for a refusal."""
        self.protocol.send(command)
        if isinstance(command, OpenCodePrompt):
            self._turn_id += 1
            self._turn_was_over = False
            self.turn = asyncio.get_running_loop().create_future()
        for event in await self._perform(self.protocol.outgoing()):
            if isinstance(event, ServerRefusal):
                raise AgentRefused(f"OpenCode refused {event.call}: {event.message or event.status}", code=event.status)

    async def stop(self) -> None:
        """End the server and everything under it."""
        await self.process.stop()
        await asyncio.shield(self._watching)

    def abandon(self) -> None:
        """For finalizers: kill everything now, wait for nothing."""
        self.process.abandon()
        if not self._watching.get_loop().is_closed():
            self._tasks.cancel_all()

    async def _connect(self, url: str, password: str) -> None:
        if not url.startswith("http://127.0.0.1:"):
            raise LaunchError(f"opencode serve listens on {url}, not on the loopback address: check its configuration")
        events = HttpRequest("GET", "/event", query={"directory": self._directory})
        self._http = HttpTransport(url, events=events, auth=(USERNAME, password), silence=SILENCE)
        # A folder's configuration is read at its first use; mistakes in it are reported here and nowhere else.
        first = await self._http.send(HttpRequest("GET", "/config", query={"directory": self._directory}))
        if not first.ok:
            raise refused_configuration(complaint_in(first.body))
        await self._check_version(self._http)
        self._streaming = self._tasks.start(self._stream(self._http), name="stagedoor opencode events")
        await asyncio.wait((self._connected, self._watching), return_when=asyncio.FIRST_COMPLETED)
        if not self._connected.done():
            raise ConnectionLost("opencode serve ended before it sent an event: try again")

    async def _check_version(self, http: HttpTransport) -> None:
        health = await http.send(HttpRequest("GET", "/global/health"))
        VERSIONS.judge(health.body.decode("utf-8", "replace"))

    async def _deliver(self, answer: AnswerCommand) -> None:
        await self.send(answer)

    async def _watch(self) -> None:
        """Read what the server prints, to its end; then report how it ended. Waits for no reader: it prints little."""
        try:
            async for batch in self.process.batches(quiet=self._config.stall_after):
                for message in batch:
                    if isinstance(message, Stalled):
                        self._add([(b"", message)] if self.protocol.in_turn else [])
                    elif isinstance(message, UnknownMessage):
                        self._add([(message.raw, message)])
                    else:
                        self._add([(message, event) for event in self.protocol.receive(message)])
            exited = await self.process.exited()
            await self._hang_up()
            self._add([*((b"", event) for event in self.protocol.receive_eof()), (b"", exited)])
            if not self._listening.done():
                self._listening.set_exception(startup_failure(exited))
        finally:
            if self.process.code is None:
                self.process.abandon()
            self.relay.close()
            await self._hang_up()  # also when we are abandoned: sockets do not close by themselves

    async def _hang_up(self) -> None:
        if self._streaming is not None:
            self._streaming.cancel()
            await asyncio.wait((self._streaming,))
        await self._answers.close()
        if self._http is not None:
            await self._http.close()

    async def _stream(self, http: HttpTransport) -> None:
        try:
            async for batch in http.batches():
                pairs: list[Pair] = []
                for message in batch:
                    if isinstance(message, UnknownMessage):
                        pairs.append((message.raw, message))
                    else:
                        pairs += [(message, event) for event in self.protocol.receive(message)]
                await self._publish(pairs)
        except StagedoorError as error:
            # A server without its events is of no use to anybody: its end says so to all who wait.
            self._add([(b"", UnknownMessage(b"", f"the event stream is lost: {error}"))])
            self._tasks.start(self.process.stop())

    async def _publish(self, pairs: list[Pair]) -> None:
        self._consider(pairs)
        await self.relay.publish(pairs)

    def _add(self, pairs: list[Pair]) -> None:
        self._consider(pairs)
        self.relay.add(pairs)

    def _consider(self, pairs: list[Pair]) -> None:
        self._mark(pairs)
        for _, event in pairs:
            self._notice(event)
        if requests := self.protocol.outgoing():
            self._tasks.start(self._perform_quietly(requests))

    async def _perform_quietly(self, requests: list[HttpRequest]) -> None:
        with contextlib.suppress(StagedoorError):  # a dead server says so itself
            await self._perform(requests)

    async def _perform(self, requests: list[HttpRequest]) -> list[ServerEvent]:
        answers: list[ServerEvent] = []
        for request in requests:
            answer = await self.http.send(request)
            events = self.protocol.receive_answer(request, answer)
            pairs: list[Pair] = [(answer.line(), event) for event in events]
            self._mark(pairs)
            for event in events:
                self._notice(event)
            self.relay.add(pairs)
            answers += events
        return answers

    def _mark(self, pairs: list[Pair]) -> None:
        mark(pairs, Stamp(self.protocol.session_id, self._turn_id, time.time()))

    def _notice(self, event: ServerEvent) -> None:
        match event:
            case ServerListening(url=url) if not self._listening.done():
                self._listening.set_result(url)
            case ServerConnected() if not self._connected.done():
                self._connected.set_result(None)
            case PermissionAsked() | QuestionAsked():
                self._answers.ask(event)
            case PermissionReplied() | QuestionReplied() | QuestionRejected():
                self._answers.withdraw(event.request_id)
            case TurnEnded():
                self._turn_was_over = self.process.code is None
                self._answers.withdraw_all()
                if self.turn is not None and not self.turn.done():
                    self.turn.set_result(event)
            case _:
                pass
