"""One conversation: a native session and its dictionary under one grammar, with permissions and limits."""

from __future__ import annotations

import uuid
import weakref
from collections.abc import AsyncGenerator, Callable, Sequence

from .drivers.agent import AnyDriver
from .engine import SessionEngine, milliseconds
from .shadow_git.checkpoints import Checkpoint, UndoResult
from .transports.programs import in_thread
from .transports.relay import Reader
from .trust.project import ProjectStanding
from .unified.capabilities import Capabilities
from .unified.decisions import Decision
from .unified.events import (
    Event,
    TurnCompleted,
)
from .unified.options import Options
from .unified.settings import AgentReport, AgentSetting
from .unified.tool_lists import ToolLists


class Session:
    """Made by ``stagedoor.open``. Use as ``async with``; a session that is dropped is ended, with everything under it.

    ``requested`` are the options as the caller gave them, before a policy made the agent ask about everything.
    ``standing`` decides, when the agent starts, whether the project may take part; without one it may not.
    """

    def __init__(
        self,
        *,
        agent: str,
        options: Options,
        driver: AnyDriver,
        requested: Options | None = None,
        standing: Callable[[], ProjectStanding] = lambda: ProjectStanding(trusted=False),
        title: str = "",
        attended: bool = False,
        lists: ToolLists | None = None,
        now: Callable[[], int] = milliseconds,
        new_id: Callable[[], str] = lambda: uuid.uuid4().hex,
    ) -> None:
        self.agent = agent
        self._engine = SessionEngine(
            agent,
            new_id(),
            options,
            driver,
            now,
            requested=requested or options,
            standing=standing,
            title=title or agent,
            attended=attended,
            lists=lists,
        )
        self._engine.owner = weakref.ref(self)
        weakref.finalize(self, SessionEngine.abandon, self._engine).atexit = False

    @property
    def id(self) -> str:
        """The agent's own session id once the first turn has begun (resume by it); Stagedoor's before that."""
        return self._engine.native_id or self._engine.session_id

    @property
    def events(self) -> Reader[Event]:
        """Everything, from ``init`` to ``done``; many may read, the slowest slows the agent."""
        return self._engine.relay.reader()

    @property
    def unrecognized(self) -> int:
        """How many of the agent's messages we could not type."""
        return self._engine.unrecognized

    @property
    def in_turn(self) -> bool:
        """Whether a turn runs: one that was asked for, or one the agent has begun by itself."""
        return self._engine.in_turn

    @property
    def turn(self) -> int:
        """The number of the running turn, or of the last one: 1 for the first."""
        return self._engine.turn

    @property
    def capabilities(self) -> Capabilities:
        """What the driver of this session can do."""
        return self._engine.capabilities

    async def send(self, prompt: str) -> AsyncGenerator[Event]:
        """Send a prompt and yield the events of its turn, up to and including ``turn_completed``."""
        reader = self._engine.relay.reader()
        await self._engine.send(prompt)
        turn = self._engine.turn
        while await reader.news():
            for event in reader.ready():
                yield event
                if type(event) is TurnCompleted and event.turn >= turn:
                    return

    async def post(self, prompt: str) -> None:
        """Send a prompt and return when the agent has it; what comes of it is read from ``events``."""
        await self._engine.send(prompt)

    async def steer(self, text: str) -> int:
        """Say ``text`` into the running turn, where the agent can (``capabilities.steer``); else ``NotSupported``.

        Returns the number of the event that tells it.
        """
        return await self._engine.steer(text)

    @property
    def settings(self) -> tuple[AgentSetting, ...]:
        """What can be chosen in this session, as it stands now: the agent's modes, models, effort and more. Empty
        before the first prompt, and where the agent has nothing to choose."""
        return self._engine.settings

    @property
    def report(self) -> AgentReport:
        """Its commands, how full its context is, and what of a quota is used up, where the agent says so."""
        return self._engine.report

    async def change_setting(self, name: str, value: str) -> AgentSetting:
        """Choose a value of a setting, by its id or kind (``mode``, ``model``, ``effort``); it holds from the agent's
        next step on. ``BadRequest`` for what there is not, ``NotAllowed`` for what the tier decides."""
        return await self._engine.change_setting(name, value)

    async def interrupt(self) -> None:
        """End the running turn; the session goes on."""
        await self._engine.interrupt()

    def answer(self, request_id: str, decision: Decision, *, who: str = "") -> None:
        """Decide an open question from outside the callback. ``AlreadyAnswered`` when somebody was faster.

        ``who`` decided is written to the audit log.
        """
        self._engine.questions.answer(request_id, decision, who=who)

    async def undo(self, *, turn: int | None = None, checkpoint: str = "", paths: Sequence[str] = ()) -> UndoResult:
        """Put the workspace, or ``paths`` of it, back as it was before ``turn`` (left out: the last one).

        Needs ``checkpoints=True``. ``checkpoint`` names any other of ``checkpoints()``: the result's ``redo`` undoes
        the undo. Ignored files and git's own folders stay as they are.
        """
        return await self._engine.undo(turn=turn, checkpoint=checkpoint, paths=paths)

    async def checkpoints(self) -> list[Checkpoint]:
        """The states of the workspace that ``undo`` can restore, oldest first."""
        return await in_thread(self._engine.checkpoints.listed)

    async def close(self, *, at_once: bool = False) -> None:
        """End the session in order; the last event is ``done``. ``at_once``: open questions are left unanswered."""
        await self._engine.close(at_once=at_once)

    async def __aenter__(self) -> Session:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()
