"""One conversation with Gemini CLI over ``stream-json``: a process for each turn."""

from __future__ import annotations

import asyncio
import contextlib
import weakref
from collections.abc import AsyncIterator, Callable, Mapping
from pathlib import Path
from types import TracebackType

from stagedoor.errors import LocalProtocolError, SessionEnded
from stagedoor.transports.conversation import Conversation
from stagedoor.transports.launch import Exited, Launch
from stagedoor.transports.process import ChildProcess
from stagedoor.transports.relay import Reader, Relay

from .commands import GeminiInterrupt
from .events import Event, GeminiInit, GeminiMessage, GeminiToolUse
from .launch import startup_failure
from .protocol import StreamProtocol
from .records import ToolDetails
from .store import DetailedProtocol, PrivateHome, SessionFile, forget_unanswered, locator, sweep_stubs

Received = tuple[bytes, Event]
LAST_READERS = 1.0
LAST_FILE = 5.0
"""Seconds; after its result the CLI writes its session file and exits."""


class GeminiSession:
    """Made by :class:`~stagedoor.agents.gemini.client.GeminiClient`.

    Between turns no process runs; a turn's events end with ``Exited``. ``plan`` gives the launch for a prompt.
    """

    def __init__(
        self,
        session_id: str,
        plan: Callable[[str, bool], Launch],
        *,
        cwd: str,
        folder: Path,
        home: PrivateHome,
        env: Mapping[str, str] | None,
        quiet: float | None,
    ) -> None:
        self.session_id = session_id
        self._plan = plan
        self._cwd = cwd
        self._folder = folder
        self._home = home
        self._env = env
        self._quiet = quiet
        self._relay: Relay[Received] = Relay()
        self._file = SessionFile(locator(folder, cwd, session_id))
        self._protocol = StreamProtocol()
        self._conversation: Conversation[Event] | None = None
        self._alive: list[Conversation[Event]] = []  # the same, for a finalizer that must not hold the session itself
        self._started: asyncio.Future[None] | None = None
        self._turn_id = 0
        self._resuming = False
        self._unanswered = False  # created here, and nothing was answered in it yet
        self._running = False
        self._closed = False
        weakref.finalize(self, _abandon, self._alive).atexit = False

    @property
    def events(self) -> AsyncIterator[Event]:
        """Native events of all turns, until the session is closed. Each use is a separate reader."""
        return EventReader(self._relay.reader())

    @property
    def received(self) -> AsyncIterator[Received]:
        """The same, each with the message it came from."""
        return self._relay.reader()

    @property
    def running(self) -> bool:
        """Whether a turn is running."""
        return self._running

    async def send(self, prompt: str) -> None:
        """Start the next turn."""
        await self._start(prompt, resume=True)

    async def open(self, prompt: str, *, resume: bool) -> None:
        """Start the first turn here; raises if the CLI does not start it."""
        self._unanswered = not resume
        started = await self._start(prompt, resume=resume)
        try:
            await asyncio.shield(started)
        except BaseException:
            await self.cancel()
            raise

    async def wait(self) -> None:
        """Wait until no turn runs. Raises ``ProcessExited`` when the program ended with an error or in mid-turn."""
        if self._conversation is not None:
            await self._conversation.ended()
            fault = self._conversation.process.fault("gemini", unfinished=not self._protocol.finished)
            if fault is not None:
                raise fault

    async def interrupt(self) -> None:
        """End the running turn, with every command it started. The session continues with the next ``send``."""
        if self._conversation is not None and self.running:
            self._protocol.send(GeminiInterrupt())
            await self._conversation.process.stop()
            await self._last_events(self._conversation)

    async def cancel(self) -> None:
        """End everything."""
        self._closed = True
        if self._conversation is not None:
            self._protocol.send(GeminiInterrupt())
            await self._conversation.process.stop()
            await self._last_events(self._conversation)
        self._relay.close()
        self._home.remove()

    async def close(self) -> None:
        """End the session. A running turn is ended: to let it finish, read its events up to ``Exited`` first."""
        await self.cancel()

    def tool_details(self, tool_id: str) -> ToolDetails | None:
        """What the session file knows of a finished call: exit code, diff, what the model got."""
        return self._file.tool_details(tool_id)

    async def __aenter__(self) -> GeminiSession:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.cancel()

    async def _start(self, prompt: str, *, resume: bool) -> asyncio.Future[None]:
        if self._closed:
            raise SessionEnded("this session is closed: resume_session() opens it again")
        if self.running and not self._protocol.finished:
            raise LocalProtocolError("a turn is running: wait for its Exited event, or interrupt it")
        if self._conversation is not None:
            if self.running:
                await self._last_events(self._conversation, LAST_FILE)
            await self._conversation.process.stop()  # it has ended; this frees what is left of it
            if resume and self._unanswered and forget_unanswered(self._folder, self._cwd, self.session_id):
                resume = False  # its first turn failed: there is nothing to continue from
                self._file = SessionFile(locator(self._folder, self._cwd, self.session_id))
        launch = self._plan(prompt, resume)
        self._resuming = resume
        self._started = asyncio.get_running_loop().create_future()
        self._protocol = StreamProtocol()
        process = await ChildProcess.start(launch, base_env=self._env)
        self._running = True
        self._turn_id += 1
        self._conversation = Conversation(
            process,
            DetailedProtocol(self._protocol, self._file, self.session_id, self._turn_id),
            self._relay,
            notice=_weakly(self),
            quiet=self._quiet,
        )
        self._alive[:] = [self._conversation]
        return self._started

    async def _last_events(self, conversation: Conversation[Event], within: float = LAST_READERS) -> None:
        """Let the end of a turn be published; readers that are far behind, or gone, must not hold us up."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(within):
                await conversation.ended()

    def notice(self, event: Event) -> None:
        """Sees each event before the readers do."""
        match event:
            case GeminiInit():
                self._report_start(None)
            case GeminiMessage(role="assistant") | GeminiToolUse():
                self._unanswered = False
                return
            case Exited():
                self._running = False
                self._report_start(startup_failure(event, session_id=self.session_id))
            case _:
                return
        if self._resuming:
            sweep_stubs(self._folder, self._cwd, self.session_id)

    def _report_start(self, failure: BaseException | None) -> None:
        if self._started is None or self._started.done():
            return
        if failure is None:
            self._started.set_result(None)
        else:
            self._started.set_exception(failure)
            self._started.exception()  # nobody waits for it in a later turn: its events show it


class EventReader:
    """A relay's reader without the raw messages. A reader from the start, not only from its first use."""

    def __init__(self, reader: Reader[Received]) -> None:
        self._reader = reader

    def __aiter__(self) -> EventReader:
        return self

    async def __anext__(self) -> Event:
        return (await self._reader.__anext__())[1]


def _abandon(alive: list[Conversation[Event]]) -> None:
    for conversation in alive:
        conversation.abandon()


def _weakly(session: GeminiSession) -> Callable[[Event], None]:
    """The running process must not keep its session alive: a session nobody holds must end."""
    reference = weakref.ref(session)

    def notice(event: Event) -> None:
        if (alive := reference()) is not None:
            alive.notice(event)

    return notice
