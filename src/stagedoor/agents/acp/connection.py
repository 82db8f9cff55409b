"""One process of an agent and the sessions on it, kept apart by id."""

from __future__ import annotations

import asyncio
import contextlib
import time
import weakref
from collections.abc import Generator, Mapping

import msgspec

from stagedoor.errors import (
    AgentRefused,
    LaunchError,
    LocalProtocolError,
    NotSignedIn,
    ProcessExited,
    UnsupportedVersion,
)
from stagedoor.transports.launch import Launch
from stagedoor.transports.process import ChildProcess
from stagedoor.transports.relay import LIMIT, Relay
from stagedoor.transports.tasks import TaskOwner
from stagedoor.wire.jsonrpc import Id
from stagedoor.wire.shapes import UnknownMessage
from stagedoor.wire.stamps import Stamp, mark

from .answers import AcpAnswers
from .commands import (
    AnswerPermissionRequest,
    Call,
    CancelRequest,
    ClientCapabilities,
    Command,
    InitializeRequest,
    RefuseRequest,
)
from .config import AcpProfile
from .events import (
    Event,
    FileServed,
    ModelFailed,
    RequestFailed,
    RequestWithdrawn,
    TerminalServed,
    Unanswered,
    session_of,
)
from .protocol import PROTOCOL_VERSION, AcpProtocol, Reply
from .requests import AgentRequest, RequestPermission
from .responses import ConfigOption, InitializeResponse, SetSessionConfigOptionResponse, way_in
from .updates import AvailableCommandsUpdate, ConfigOptionUpdate, CurrentModeUpdate, SessionUpdate

AUTH_REQUIRED = -32000
CLIENT_VERSION = "0.1.0"
LAST_READERS = 1.0
"""How long readers that are behind may take for the last events before a stop continues without them."""


class Channel:
    """What a connection keeps for one session: its readers and its answers."""

    def __init__(self, answers: AcpAnswers, limit: int) -> None:
        self.relay: Relay[tuple[bytes, Event]] = Relay(limit)
        self.answers = answers
        self.turn_id = 0
        """How many prompts were sent."""
        self.commands_listed = asyncio.Event()
        self.mode_id: str | None = None
        """The mode that the agent is in, where that has changed."""
        self.model_id: str | None = None
        """The model that was chosen last."""
        self.config_options: list[ConfigOption] | None = None
        """Its options as it has told them last."""


class Connection:
    """Made by :meth:`open`. The process lives until the last channel is left, or :meth:`stop`."""

    def __init__(self, process: ChildProcess, protocol: AcpProtocol, quiet: float | None) -> None:
        self.protocol = protocol
        self.process = process
        self.program = ""
        self._quiet = quiet
        self._channels: dict[str, Channel] = {}
        self._waiting: dict[Id, asyncio.Future[Reply]] = {}
        self._greeting: list[tuple[bytes, Event]] = []  # what came before there was any session: for all of them
        self._opening = 0
        self._early: list[tuple[bytes, Event]] = []  # of sessions that are being opened
        self._leaving: set[str] = set()
        self._ended = False
        self.congested = False
        """A session's readers are so far behind that nothing is read from the agent until they continue."""
        self._tasks = TaskOwner()
        self._pump = self._tasks.start(self._run(), name="stagedoor ACP connection")

    @classmethod
    async def open(
        cls,
        launch: Launch,
        *,
        capabilities: ClientCapabilities | None = None,
        profile: AcpProfile | None = None,
        base_env: Mapping[str, str] | None = None,
        quiet: float | None = None,
        start_timeout: float = 120.0,
    ) -> Connection:
        """Start the agent and shake hands."""
        process = await ChildProcess.start(launch, base_env=base_env)
        connection = cls(process, AcpProtocol(capabilities, profile), quiet)
        connection.program = launch.argv[0]
        try:
            async with asyncio.timeout(start_timeout):
                hello = await connection.request(InitializeRequest(client_version=CLIENT_VERSION))
        except TimeoutError:
            await connection.stop()
            raise LaunchError(
                f"{launch.argv[0]} did not answer within {start_timeout:g} s: check that this command line starts an "
                "agent that uses the Agent Client Protocol on its standard input"
            ) from None
        except BaseException:
            await connection.stop()
            raise
        if not isinstance(hello, InitializeResponse) or hello.protocol_version != PROTOCOL_VERSION:
            await connection.stop()
            version = hello.protocol_version if isinstance(hello, InitializeResponse) else "unknown"
            raise UnsupportedVersion(
                f"{launch.argv[0]} uses version {version} of the Agent Client Protocol, Stagedoor uses "
                f"{PROTOCOL_VERSION}: install a version of the agent that supports it"
            )
        return connection

    @property
    def agent(self) -> InitializeResponse:
        if self.protocol.agent is None:
            raise LocalProtocolError("the agent is not initialized")
        return self.protocol.agent

    @property
    def idle(self) -> bool:
        """No session is open here or being opened."""
        return not self._channels and not self._opening

    @property
    def ended(self) -> bool:
        return self._ended

    async def request(self, command: Call) -> Reply:
        """Send a request and wait for its answer. Raises what a refusal or a death means."""
        future = await self.start(command)
        try:
            reply = await future
        except asyncio.CancelledError:  # nobody waits for the answer any more: an agent that can stops working on it
            self._tasks.start(self._withdraw(future))
            raise
        match reply:
            case RequestFailed():
                raise self._refusal(reply)
            case Unanswered(method=method):
                code = await self.process.wait()
                stderr = self.process.stderr_tail
                lines = stderr.strip().splitlines()
                why = f": {lines[-1]}" if lines else ""
                raise ProcessExited(f"the agent ended before it answered {method}{why}", code=code, stderr=stderr)
            case _:
                return reply

    async def _withdraw(self, future: asyncio.Future[Reply]) -> None:
        number = next((number for number, waiting in self._waiting.items() if waiting is future), None)
        if number is not None and not self._ended:
            await self.send(CancelRequest(number))

    async def start(self, command: Call) -> asyncio.Future[Reply]:
        """Send a request; the future resolves with whatever becomes of it."""
        if self._ended:
            raise ProcessExited("the agent has ended", code=self.process.code, stderr=self.process.stderr_tail)
        future: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()
        self._waiting[self.protocol.call(command)] = future
        with contextlib.suppress(ProcessExited):  # the end of its output resolves the future
            await self.flush()
        return future

    async def send(self, command: Command) -> None:
        self.protocol.send(command)
        with contextlib.suppress(ProcessExited):
            await self.flush()

    async def reply(self, answer: Command) -> None:
        """Answer a question of the agent, unless it was closed in the meantime."""
        try:
            await self.send(answer)
        except LocalProtocolError:
            request_id = getattr(answer, "request_id", None)
            if isinstance(answer, AnswerPermissionRequest) and self.protocol.is_open(request_id):
                await self.send(AnswerPermissionRequest(request_id))

    async def flush(self) -> None:
        for message in self.protocol.outgoing():
            await self.process.send(message)

    @contextlib.contextmanager
    def opening(self) -> Generator[None]:
        """While a session is being opened, what comes about unknown ones is kept for :meth:`join`."""
        self._opening += 1
        try:
            yield
        finally:
            self._opening -= 1
            if not self._opening:
                self._early.clear()

    async def join(self, session_id: str, answers: AcpAnswers, *, limit: int = LIMIT) -> Channel:
        """Route the session's events to its own channel, also those that came before its id was known."""
        if session_id in self._channels:
            raise LocalProtocolError(f"session {session_id!r} is already open on this connection")
        early = [pair for pair in self._early if session_of(pair[1]) == session_id]
        self._early = [pair for pair in self._early if session_of(pair[1]) != session_id]
        early = [*(_copied(pair) for pair in self._greeting), *early]
        channel = self._channels[session_id] = Channel(answers, limit + len(early))
        self._leaving.discard(session_id)
        mark(early, Stamp(session_id, 0, time.time()))

        answers.report = lambda event: self.put_in(session_id, event)
        for _, event in early:
            self._notice(event, session_of(event))
        await channel.relay.publish(early)
        if self._ended:
            channel.relay.close()
        return channel

    def put_in(self, session_id: str, event: FileServed | TerminalServed | ModelFailed) -> None:
        """An event of the session that no message caused."""
        channel = self._channels.get(session_id)
        pair: tuple[bytes, Event] = (b"", event)
        mark((pair,), self._stamp(session_id, time.time()))
        if channel is not None and not channel.relay.closed:
            channel.relay.add([pair])

    async def leave(self, session_id: str) -> None:
        """The session is done here; the last one to leave stops the process."""
        channel = self._channels.get(session_id)
        if channel is None:
            return
        self._leaving.add(session_id)
        await channel.answers.close()
        if self._leaving.issuperset(self._channels) and not self._opening:
            await self.stop()
        self._channels.pop(session_id, None)
        channel.relay.close()

    def abandon(self, session_id: str, channel: Channel) -> None:
        """For finalizers: as :meth:`leave`, waiting for nothing. The session may be open here again by now, with a
        channel of its own: that one is somebody else's."""
        if self._channels.get(session_id) is not channel:
            return
        del self._channels[session_id]
        channel.answers.abandon()
        with contextlib.suppress(RuntimeError):  # the loop is closed: then nobody waits for room
            channel.relay.close()
        if self.idle:
            self.process.abandon()

    def abandon_with(self, owner: object, session_id: str, channel: Channel) -> None:
        weakref.finalize(owner, self.abandon, session_id, channel).atexit = False

    async def stop(self) -> None:
        """Stop the process by its ladder; what it still sends is published."""
        await self.process.stop()
        await asyncio.wait([self._pump], timeout=LAST_READERS)
        for channel in self._channels.values():  # one that is full and not read must not hold us up
            channel.relay.close()
        await asyncio.wait([self._pump])

    def _refusal(self, failed: RequestFailed) -> Exception:
        reason = failed.message
        match failed.details:
            case {"details": str(details)} if details not in reason:
                reason = f"{reason}: {details}" if reason else details
            case _:
                pass
        if failed.code == AUTH_REQUIRED:
            agent = self.protocol.agent
            methods = (agent.auth_methods if agent else None) or ()
            ways = [way_in(method, self.program) for method in methods]
            offered = f" (ways to sign in: {'; '.join(ways)})" if ways else ""
            return NotSignedIn(f"the agent is not signed in: {reason}{offered}")
        return AgentRefused(f"the agent refused {failed.method}: {reason}", code=failed.code)

    # ------------------------------------------------------------------------------------------------- the pump

    async def _run(self) -> None:
        try:
            async for batch in self.process.batches(quiet=self._quiet):
                pairs: list[tuple[bytes, Event]] = []
                for message in batch:
                    if isinstance(message, bytes):
                        pairs += [(message, event) for event in self.protocol.receive(message)]
                    else:
                        pairs.append((message.raw if isinstance(message, UnknownMessage) else b"", message))
                await self._publish(pairs)
            last: list[tuple[bytes, Event]] = [(b"", event) for event in self.protocol.receive_eof()]
            exited = await self.process.exited()
            end: list[tuple[bytes, Event]] = [(b"", exited)]
            await self._publish([*end, *last])  # why it ended comes before what remained undone because of it
        finally:
            self._ended = True
            for channel in self._channels.values():
                channel.relay.close()
            for future in self._waiting.values():
                if not future.done():
                    future.set_result(Unanswered("", "", None))
            if self.process.code is None:
                self.process.abandon()

    async def _publish(self, pairs: list[tuple[bytes, Event]]) -> None:
        for number, reply in self.protocol.answers().items():
            future = self._waiting.pop(number, None)
            if future is not None and not future.done():
                future.set_result(reply)
        named = [(pair, session_of(pair[1])) for pair in pairs]
        now = time.time()
        for pair, session_id in named:
            mark((pair,), self._stamp(session_id, now))
        for (_, event), session_id in named:
            self._notice(event, session_id)
        with contextlib.suppress(ProcessExited):
            await self.flush()
        by_session: dict[str, list[tuple[bytes, Event]]] = {}
        for pair, session_id in named:
            concerned = self._concerned(pair, session_id)
            for each in concerned:
                copy = pair
                if len(concerned) > 1:  # about no session: each of them has it as its own
                    copy = _copied(pair)
                    mark((copy,), self._stamp(each, now))
                by_session.setdefault(each, []).append(copy)
        for session_id, mine in by_session.items():
            channel = self._channels.get(session_id)
            if channel is not None:
                self.congested = True
                await channel.relay.publish(mine)
                self.congested = False

    def _stamp(self, session_id: str, now: float) -> Stamp:
        """The session is the event's own; what names none, or one that we never opened, is of the only one there is."""
        channel = self._channels.get(session_id)
        if channel is None and len(self._channels) == 1 and not self._opening:
            session_id, channel = next(iter(self._channels.items()))
        return Stamp(session_id, channel.turn_id if channel is not None else 0, now)

    def _concerned(self, pair: tuple[bytes, Event], session_id: str) -> list[str]:
        """The sessions that get an event: its own; all, when it is nobody's or a session's we never opened."""
        if session_id in self._channels:
            return [session_id]
        if session_id and self._opening:
            self._early.append(pair)
            return []
        if not session_id and not self._channels:
            self._greeting.append(pair)
        return [] if session_id in self._leaving else list(self._channels)

    def _notice(self, event: Event, session_id: str) -> None:
        channel = self._answerer(session_id)
        match event:
            case RequestWithdrawn(request=request):
                if channel is not None:
                    channel.answers.withdraw(request.request_id)
            case SessionUpdate(update=AvailableCommandsUpdate()) if channel is not None:
                channel.commands_listed.set()
            case SessionUpdate(update=CurrentModeUpdate(mode_id)) if session_id in self._channels:
                self._channels[session_id].mode_id = mode_id
            case SessionUpdate(update=ConfigOptionUpdate() as changed) if session_id in self._channels:
                self._channels[session_id].config_options = changed.config_options
            case SetSessionConfigOptionResponse(config_options=[_, *_] as options) if session_id in self._channels:
                # Here, where it has its place among the updates, and not where its caller waits for it.
                self._channels[session_id].config_options = options
            case _ if isinstance(event, AgentRequest) and self.protocol.is_open(event.request_id):
                if channel is not None:
                    channel.answers.ask(event)
                elif self._opening:
                    pass  # join will notice it again
                elif isinstance(event, RequestPermission):
                    self.protocol.send(AnswerPermissionRequest(event.request_id, "reject_once"))
                else:
                    self.protocol.send(RefuseRequest(event.request_id, "unknown session"))
            case _:
                pass

    def _answerer(self, session_id: str) -> Channel | None:
        """Who answers for a session; an agent's sub-sessions are answered for by the only one there is."""
        if session_id not in self._channels and len(self._channels) == 1 and not self._opening:
            return next(iter(self._channels.values()))
        return self._channels.get(session_id)


def _copied(pair: tuple[bytes, Event]) -> tuple[bytes, Event]:
    return pair[0], msgspec.structs.replace(pair[1])
