"""A conversation over ``codex exec``: one process per turn, resumed by thread id."""

from __future__ import annotations

import asyncio
import contextlib
import weakref
from collections.abc import AsyncIterator, Callable, Mapping, Sequence

from ...errors import LocalProtocolError, SessionEnded
from ...transports.conversation import Conversation
from ...transports.launch import Exited
from ...transports.process import ChildProcess
from ...transports.relay import Relay
from . import history
from .complaints import failure, unknown_session
from .config import CodexConfig
from .events import ExecEvent, ThreadStarted
from .launch import launch
from .leftovers import Leftovers
from .locate import codex_home, environment, trust_roots
from .protocol import ExecProtocol
from .usage import Usage

UNREAD_BOUND = 1.0
"""Seconds that readers have to take what is left once a turn has ended."""


class CodexExecSession:
    """Made by ``CodexClient``. ``events`` goes on over all turns; each turn ends with ``Exited``.

    Between turns nothing runs. ``events`` ends after ``close`` or ``cancel``.
    """

    def __init__(
        self, config: CodexConfig, *, cwd: str, executable: str, native: bool, env: Mapping[str, str] | None
    ) -> None:
        self.session_id = ""
        self.cwd = cwd
        self._config = config
        self._executable = executable
        self._native = native
        self._env = env
        self._leftovers = Leftovers(config, cwd, environment(config, env))
        self._relay: Relay[tuple[bytes, ExecEvent]] = Relay()
        self._turns: list[Conversation[ExecEvent]] = []  # the running one, if any; a list so that a finalizer sees it
        self._protocol = ExecProtocol()
        self._opening: asyncio.Future[ThreadStarted | Exited] | None = None
        weakref.finalize(self, _abandon, self._turns).atexit = False

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
            self._config,
            cwd=self.cwd,
            executable=self._executable,
            prompt=prompt,
            resume=resume,
            fork=fork,
            images=images,
            trust_roots=roots,
            native=self._native,
        )
        known = resume or fork
        before = (
            Usage()
            if known is None
            else history.total_usage(known, home=codex_home(environment(self._config, self._env)))
        )
        self._opening = asyncio.get_running_loop().create_future()
        process = await ChildProcess.start(plan, base_env=self._env)
        self._protocol = ExecProtocol(before=before)
        turn = Conversation(
            process,
            self._protocol,
            self._relay,
            notice=_weakly(self),
            quiet=self._config.stall_after,
        )
        self._turns[:] = [turn]
        try:
            opened = await self._opening
        except BaseException:
            turn.abandon()
            raise
        if isinstance(opened, Exited):
            raise failure(opened, known)
        if resume is not None and opened.thread_id != resume:
            await turn.stop()
            raise unknown_session(resume)
        self.session_id = opened.thread_id

    @property
    def events(self) -> AsyncIterator[ExecEvent]:
        return self._events()

    @property
    def received(self) -> AsyncIterator[tuple[bytes, ExecEvent]]:
        return self._received()

    @property
    def batches(self) -> AsyncIterator[list[tuple[bytes, ExecEvent]]]:
        """The same in lists of whatever is there, for those who want many events fast."""
        return self._batches()

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
            raise SessionEnded("this session was closed; resume_session() continues it")
        if self.running and not self._protocol.ended:  # one that has said how it ended is only about to go
            raise LocalProtocolError(
                "a turn is running; wait for its end, interrupt() it, or use the app-server driver"
            )
        if self._config.ephemeral:
            raise LocalProtocolError("an ephemeral session has no next turn: Codex keeps nothing of it")
        await self._settle()
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
        """Wait for the end of the running turn."""
        await self._settle()

    async def cancel(self) -> None:
        """End everything, now."""
        await self.interrupt()
        self._relay.close()
        for turn in self._turns:
            await turn.ended()

    async def close(self) -> None:
        """End the session; a running turn is interrupted."""
        await self.cancel()

    async def __aenter__(self) -> CodexExecSession:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def _settle(self) -> None:
        for turn in self._turns:
            await turn.ended()
            await turn.process.stop()

    async def _events(self) -> AsyncIterator[ExecEvent]:
        async for _, event in self._relay.reader():
            yield event

    async def _batches(self) -> AsyncIterator[list[tuple[bytes, ExecEvent]]]:
        reader = self._relay.reader()
        while batch := await reader.batch():
            yield batch

    async def _received(self) -> AsyncIterator[tuple[bytes, ExecEvent]]:
        async for pair in self._relay.reader():
            yield pair

    def notice(self, event: ExecEvent) -> None:
        """The pump's business: sees each event before any reader."""
        if isinstance(event, ThreadStarted | Exited) and self._opening is not None and not self._opening.done():
            self._opening.set_result(event)


def _weakly(session: CodexExecSession) -> Callable[[ExecEvent], None]:
    """The pump must not keep the session alive: one that nobody holds is collected, and its process with it."""
    reference = weakref.ref(session)

    def notice(event: ExecEvent) -> None:
        if (alive := reference()) is not None:
            alive.notice(event)

    return notice


def _abandon(turns: list[Conversation[ExecEvent]]) -> None:
    for turn in turns:
        turn.abandon()
