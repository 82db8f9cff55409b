"""The two kinds of Codex session: a process of ``codex exec`` for each turn, and one thread of an app-server."""

from __future__ import annotations

import asyncio
import contextlib
import weakref
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol, TypeVar

from ...errors import AlreadyAnswered, LocalProtocolError, ProcessExited, SessionEnded
from ...transports.conversation import Conversation
from ...transports.launch import Exited
from ...transports.process import ChildProcess
from ...transports.relay import Relay
from . import history
from .answers import CodexAnswerer, Deliver
from .commands import Decision, InterruptTurn, StartTurn, Steer, UnsubscribeThread
from .config import CodexSessionConfig
from .events import CodexUsage, ExecEvent, ThreadStarted
from .launch import approval_policy, launch, session_not_found, start_error, turn_params
from .leftovers import Leftovers
from .locate import codex_home, environment, trust_roots
from .notifications import AppEvent
from .protocol import ExecProtocol
from .questions import Question, RequestId
from .threads import ThreadResponse

if TYPE_CHECKING:
    from .app_server import CodexAppServer

UNREAD_BOUND = 1.0
"""Seconds that readers have to take what is left once everything has ended."""
INTERRUPT_BOUND = 20.0
"""Seconds a turn may take to end after an interrupt; a server that needs longer is stopped."""
EventIn = TypeVar("EventIn", contravariant=True)


class _Noticing(Protocol[EventIn]):
    def notice(self, event: EventIn) -> None: ...


def weak_notice(owner: _Noticing[EventIn]) -> Callable[[EventIn], None]:
    """``owner.notice`` for the pump, which must not keep it alive: an owner that nobody holds is collected, and its
    process with it."""
    reference = weakref.ref(owner)

    def notice(event: EventIn) -> None:
        if (alive := reference()) is not None:
            alive.notice(event)

    return notice


# ----------------------------------------------------------------------------------------------------------- codex exec


class CodexExecSession:
    """Made by ``CodexClient``. ``events`` continues over all turns; each turn ends with ``Exited``.

    Between turns nothing runs. ``events`` ends after ``close`` or ``cancel``.
    """

    def __init__(
        self, config: CodexSessionConfig, *, cwd: str, executable: str, native: bool, env: Mapping[str, str] | None
    ) -> None:
        self.session_id = ""
        self.cwd = cwd
        self.config = config
        self.executable = executable
        self._native = native
        self.env = env
        self._leftovers = Leftovers(config, cwd, environment(config, env))
        self._relay: Relay[tuple[bytes, ExecEvent]] = Relay()
        self._turns: list[Conversation[ExecEvent]] = []  # the running one, if any; a list so that a finalizer sees it
        self._protocol = ExecProtocol()
        self._turn_id = 0
        self._opening: asyncio.Future[ThreadStarted | Exited] | None = None
        weakref.finalize(self, _abandon, self._turns).atexit = False
        _abandon_with(self, config)

    async def start(
        self,
        prompt: str,
        *,
        resume: str | None = None,
        fork: str | None = None,
        images: Sequence[str] = (),
    ) -> None:
        """Run one turn; returns when Codex has named the thread. The client's business, use ``send``."""
        roots = trust_roots(self.cwd)
        plan = launch(
            self.config,
            cwd=self.cwd,
            executable=self.executable,
            prompt=prompt,
            resume=resume,
            fork=fork,
            images=images,
            trust_roots=roots,
            native=self._native,
        )
        source = resume or fork
        before = (
            CodexUsage()
            if source is None
            else history.total_usage(source, home=codex_home(environment(self.config, self.env)))
        )
        self._opening = asyncio.get_running_loop().create_future()
        process = await ChildProcess.start(plan, base_env=self.env)
        self._turn_id += 1
        self._protocol = ExecProtocol(before=before)
        self._protocol.session_id, self._protocol.turn_id = resume or "", self._turn_id
        turn = Conversation(
            process,
            self._protocol,
            self._relay,
            notice=weak_notice(self),
            quiet=self.config.stall_after,
        )
        self._turns[:] = [turn]
        try:
            opened = await self._opening
        except BaseException:
            turn.abandon()
            raise
        if isinstance(opened, Exited):
            raise start_error(opened, source)
        if resume is not None and opened.thread_id != resume:
            await turn.stop()
            raise session_not_found(resume)
        self.session_id = opened.thread_id

    @property
    async def events(self) -> AsyncIterator[ExecEvent]:
        async for _, event in self._relay.reader():
            yield event

    @property
    async def received(self) -> AsyncIterator[tuple[bytes, ExecEvent]]:
        async for pair in self._relay.reader():
            yield pair

    @property
    async def batches(self) -> AsyncIterator[list[tuple[bytes, ExecEvent]]]:
        """The same in lists of whatever is there, for those who want many events fast."""
        reader = self._relay.reader()
        while batch := await reader.batch():
            yield batch

    @property
    def running(self) -> bool:
        """Whether a turn is under way."""
        return bool(self._turns) and self._turns[0].process.code is None

    @property
    def pid(self) -> int | None:
        return self._turns[0].process.pid if self.running else None

    async def send(self, prompt: str, *, images: Sequence[str] = ()) -> None:
        """The next turn. ``codex exec`` cannot be spoken to while it runs: wait for the turn's end, or interrupt."""
        if self._relay.closed:
            raise SessionEnded("this session is closed: continue it with resume_session()")
        if self.running and not self._protocol.ended:  # after its last event the process only has to exit
            raise LocalProtocolError(
                "a turn is running: wait until it ends, call interrupt(), or use driver='app-server'"
            )
        if self.config.ephemeral:
            raise LocalProtocolError("an ephemeral session has no next turn, because Codex does not store it")
        await self._finish_turn()
        await self.start(prompt, resume=self.session_id, images=images)

    async def interrupt(self) -> None:
        """End the running turn and its commands. The stream just stops: there is no end event but ``Exited``."""
        for turn in self._turns:
            await turn.process.stop()
            with contextlib.suppress(TimeoutError):  # somebody does not read; that must not hold up the end
                async with asyncio.timeout(UNREAD_BOUND):
                    await turn.ended()
        self._leftovers.sweep()

    async def wait(self) -> None:
        """Wait until no turn runs. Raises ``ProcessExited`` when the program ended with an error or in mid-turn."""
        await self._finish_turn()
        for turn in self._turns:
            if (fault := turn.process.fault("codex exec", unfinished=not self._protocol.ended)) is not None:
                raise fault

    async def cancel(self) -> None:
        """End everything, now."""
        await self.interrupt()
        self._relay.close()
        for turn in self._turns:
            await turn.ended()
        if self.config.beside is not None:
            await self.config.beside.close()

    async def close(self) -> None:
        """End the session; a running turn is interrupted."""
        await self.cancel()

    async def __aenter__(self) -> CodexExecSession:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def _finish_turn(self) -> None:
        for turn in self._turns:
            await turn.ended()
            await turn.process.stop()

    def notice(self, event: ExecEvent) -> None:
        """The pump's business: sees each event before any reader."""
        if isinstance(event, ThreadStarted | Exited) and self._opening is not None and not self._opening.done():
            self._opening.set_result(event)


def _abandon_with(session: object, config: CodexSessionConfig) -> None:
    if config.beside is not None:
        weakref.finalize(session, config.beside.abandon).atexit = False


def _abandon(turns: list[Conversation[ExecEvent]]) -> None:
    for turn in turns:
        turn.abandon()


# ----------------------------------------------------------------------------------------------------- codex app-server


class CodexThread:
    """Made by ``CodexClient`` or ``CodexAppServer``. ``events`` holds the thread's events and its sub-agents'.

    Tell them apart by their ``thread_id``. What is about no thread (warnings, rate limits) comes along.
    """

    def __init__(
        self,
        server: CodexAppServer,
        opened: ThreadResponse,
        relay: Relay[tuple[bytes, AppEvent]],
        config: CodexSessionConfig,
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
        self.answerer = CodexAnswerer(
            config.can_use_tool,
            config.permission_timeout,
            waits=approval_policy(config) != "never" or config.plan_mode,
            deliver=deliver,
        )
        weakref.finalize(self, server.switchboard.close, self.session_id, relay).atexit = False
        _abandon_with(self, config)

    @property
    async def events(self) -> AsyncIterator[AppEvent]:
        async for _, event in self._relay.reader():
            yield event

    @property
    async def received(self) -> AsyncIterator[tuple[bytes, AppEvent]]:
        async for pair in self._relay.reader():
            yield pair

    @property
    async def batches(self) -> AsyncIterator[list[tuple[bytes, AppEvent]]]:
        """The same in lists of whatever is there, for those who want many events fast."""
        reader = self._relay.reader()
        while batch := await reader.batch():
            yield batch

    @property
    def running(self) -> bool:
        """Whether a turn is under way, here or in a sub-agent."""
        return self.server.exited is None and self.server.protocol.busy(self.session_id)

    @property
    def pid(self) -> int:
        return self.server.pid

    @property
    def open_questions(self) -> list[Question]:
        """The questions of this thread and its sub-agents that wait for an answer."""
        family = set(self.server.protocol.thread_states.family(self.session_id))
        return [question for question in self.server.protocol.open_questions.values() if question.thread_id in family]

    async def send(self, prompt: str, *, images: Sequence[str] = ()) -> None:
        """The next turn; while one runs, Codex takes the prompt into that one."""
        self._require_open()
        if not prompt.strip() and not images:
            raise LocalProtocolError("the prompt is empty")
        await self.server.call(
            StartTurn(self.session_id, prompt, tuple(images), turn_params(self._config, model=self.opened.model))
        )

    async def steer(self, text: str, *, images: Sequence[str] = ()) -> None:
        """Add text to the running turn. Raises ``LocalProtocolError`` when none runs."""
        self._require_open()
        await self.server.call(Steer(self.session_id, text, tuple(images)))

    async def answer(self, request_id: RequestId, decision: Decision) -> None:
        """Answer an open question of this thread. Raises ``AlreadyAnswered`` when it is closed."""
        if not any(question.request_id == request_id for question in self.open_questions):
            raise AlreadyAnswered(f"question {request_id} is not open in this thread: nothing was sent")
        await self.server.answer(request_id, decision)
        self.answerer.close(request_id)

    async def interrupt(self) -> None:
        """End the running turn, its sub-agents' turns and its commands; returns when all that is done."""
        if self.server.exited is not None:
            return
        try:
            async with asyncio.timeout(INTERRUPT_BOUND):
                await self.server.send(InterruptTurn(self.session_id))
                while self.running:
                    await self.server.changed()
                await self.server.end_commands(self.server.protocol.thread_states.family(self.session_id))
        except ProcessExited:
            return
        except TimeoutError:
            await self.server.cancel()
        finally:
            self._leftovers.sweep()

    async def wait(self) -> None:
        """Wait until no turn runs. Raises ``ProcessExited`` when the program ended with an error or in mid-turn."""
        in_turn = self.running
        while self.running:
            await self.server.changed()
        if (fault := self.server.fault(unfinished=in_turn)) is not None:
            raise fault

    async def cancel(self) -> None:
        """End everything, now."""
        if self._owned:
            await self.server.cancel()
        else:
            await self.interrupt()
            await self._unsubscribe()
        self.server.switchboard.close(self.session_id, self._relay)
        self._leftovers.sweep()
        if self._config.beside is not None:
            await self._config.beside.close()

    async def close(self) -> None:
        """End the session; a running turn is interrupted first, so that Codex records it as such."""
        if self.running:
            await self.interrupt()
        await self.cancel()

    async def __aenter__(self) -> CodexThread:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def _unsubscribe(self) -> None:
        if self.server.exited is None:
            try:
                await self.server.send(UnsubscribeThread(self.session_id))
            except ProcessExited:
                return

    def _require_open(self) -> None:
        if self._relay.closed:
            raise SessionEnded("this session is closed: continue it with resume_session()")
