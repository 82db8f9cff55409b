"""A conversation over ``opencode run``: one process per turn, resumed by session id."""

from __future__ import annotations

import asyncio
import os
import weakref
from collections.abc import AsyncIterator, Callable, Mapping

import msgspec

from stagedoor.errors import LocalProtocolError, SessionEnded
from stagedoor.transports.conversation import Conversation
from stagedoor.transports.launch import Exited
from stagedoor.transports.process import ChildProcess
from stagedoor.transports.relay import Relay

from .config import OpenCodeConfig
from .events import Runaway, RunEvent, StepsExhausted
from .failures import startup_failure
from .launch import launch
from .protocol import RunProtocol

FIRST_WORD = 15.0
"""How long a turn may be silent at its beginning before it is taken for begun; OpenCode says nothing while it waits."""


class OpenCodeRunSession:
    """Made by ``OpenCodeClient``. ``events`` goes on over all turns; each turn ends with ``Exited``.

    Between turns nothing runs. What would be asked is refused (or allowed, with ``auto``): nobody can be asked.
    """

    def __init__(self, config: OpenCodeConfig, *, cwd: str, executable: str, env: Mapping[str, str] | None) -> None:
        self.session_id = ""
        self.cwd = cwd
        self._config = config
        self._executable = executable
        self._env = env
        self._relay: Relay[tuple[bytes, RunEvent]] = Relay()
        self._turns: list[Conversation[RunEvent]] = []  # the running one, if any; a list so that a finalizer sees it
        self._protocol = RunProtocol()
        self._resumed: str | None = None
        self._interrupted = False
        self._begun: asyncio.Future[Exited | None] | None = None
        self._ending: asyncio.Task[None] | None = None
        weakref.finalize(self, _abandon, self._turns).atexit = False

    async def start(self, prompt: str, *, resume: str | None = None, config: OpenCodeConfig | None = None) -> None:
        """Run one turn. The client's business, use ``send``.

        Returns when OpenCode has said its first word, or is just waiting for its model.
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
        self._resumed = resume
        if resume is not None and not (config or self._config).fork:
            self.session_id = resume  # known before OpenCode's first word, which may be long in coming
        self._interrupted = False
        self._begun = asyncio.get_running_loop().create_future()
        process = await ChildProcess.start(plan, base_env=self._env)
        turn = Conversation(process, self._protocol, self._relay, notice=_weakly(self), quiet=self._config.stall_after)
        self._turns[:] = [turn]
        try:
            await asyncio.wait([self._begun], timeout=FIRST_WORD)
        except BaseException:
            turn.abandon()
            raise
        ended = self._begun.result() if self._begun.done() else None
        if ended is not None and not self._protocol.session_id and not self._interrupted:
            await turn.stop()
            raise startup_failure(ended, resume)

    @property
    def events(self) -> AsyncIterator[RunEvent]:
        """Native events of all turns, to the end of the session. Each use is a reader of its own."""
        return _events_only(self.received)

    @property
    def received(self) -> AsyncIterator[tuple[bytes, RunEvent]]:
        """The same with the line each came from (empty for what no line said)."""
        return self._relay.reader()

    @property
    def running(self) -> bool:
        return bool(self._turns) and self._turns[0].process.code is None

    @property
    def pid(self) -> int | None:
        return self._turns[0].process.pid if self.running else None

    async def send(self, prompt: str) -> None:
        """The next turn. ``opencode run`` cannot be spoken to while it runs: wait for the turn's end, or interrupt."""
        if self._relay.closed:
            raise SessionEnded("this session was closed; resume_session() continues it")
        if self.running:
            raise LocalProtocolError("a turn is running: wait for its Exited event, or interrupt it")
        await self.wait()
        if not self.session_id:  # stopped before its first word: what was to be resumed or forked still is
            await self.start(prompt, resume=self._resumed)
            return
        await self.start(prompt, resume=self.session_id, config=_without_fork(self._config))

    async def interrupt(self) -> None:
        """End the running turn and its commands. The stream just stops: there is no end event but ``Exited``."""
        self._interrupted = True
        for turn in self._turns:
            await turn.stop()

    async def wait(self) -> None:
        """Wait for the end of the running turn."""
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
        if self._begun is not None and not self._begun.done():
            if isinstance(event, Exited):
                self._begun.set_result(event)
            elif self._protocol.session_id:
                self._begun.set_result(None)
        if isinstance(event, (Runaway, StepsExhausted)):
            self._ending = asyncio.get_running_loop().create_task(self.interrupt())


async def _events_only(pairs: AsyncIterator[tuple[bytes, RunEvent]]) -> AsyncIterator[RunEvent]:
    async for _, event in pairs:
        yield event


def _without_fork(config: OpenCodeConfig) -> OpenCodeConfig:
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
