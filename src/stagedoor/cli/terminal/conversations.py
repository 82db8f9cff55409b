"""What ``chat`` talks to: a session of this process, or one of a server that others may watch and use, too."""

from __future__ import annotations

import asyncio
import tempfile
import uuid
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from msgspec.structs import replace

from ... import api
from ...drivers.acp.definition import AcpAgent
from ...engine import milliseconds
from ...errors import BadRequest, SessionEnded, StagedoorError
from ...register import Register, home
from ...service.workspaces.git import WorkspaceDiff, diff, standing
from ...session import Session
from ...shadow_git.checkpoints import Checkpoints, UndoResult
from ...shadow_git.repository import GitFailed
from ...transports.programs import in_thread
from ...transports.tasks import TaskOwner
from ...unified import events
from ...unified.events import Event
from ...unified.options import Approval, Tier
from ...unified.settings import AgentCommand, AgentSetting, check_model
from ..state import count_unrecognized

if TYPE_CHECKING:
    from ...remote import Remote, RemoteSession
    from ...service.views import SessionView

MODES: dict[str, tuple[Tier, Approval | None]] = {
    "read-only": ("dry-run", None),
    "ask": ("supervised", "ask"),
    "accept-edits": ("supervised", None),
    "full-auto": ("autonomous", None),
}
"""What people call the permissions of a session, as on the page."""
APPROVALS = {
    "ask": "Ask",
    "askDangerous": "Ask about risky calls",
    "autoEdit": "Accept edits",
    "autoAll": "Full auto",
    "plan": "Plan",
}
LABELS: dict[str, str] = {"dry-run": "Read-only", "supervised": "Accept edits", "autonomous": "Full auto"}


def rights_named(mode: str) -> tuple[Tier, Approval | None]:
    """Raises ``BadRequest``."""
    try:
        return MODES[mode.lower().replace(" ", "-")]
    except KeyError:
        raise BadRequest(f"unknown mode {mode!r}. Available: {', '.join(MODES)}") from None


def mode_label(tier: str, approval: str | None) -> str:
    return APPROVALS[approval] if approval in APPROVALS and tier != "dry-run" else LABELS[tier]


def _model_chosen(model: str, settings: Sequence[AgentSetting], when: str) -> str:
    """Many an agent says which models it has only when it runs, or never: then the name is not checked yet."""
    is_checked = any(one.kind == "model" for one in settings)
    return f"model: {model}{when}" + ("" if is_checked else " · the agent checks the name with your next message")


class ChatPartner(Protocol):
    """Many turns with one agent. What happens is passed to the function it was made with."""

    @property
    def agent(self) -> str: ...
    @property
    def busy(self) -> bool:
        """A turn runs, or one is about to."""
        ...

    @property
    def waiting(self) -> list[str]:
        """Lines that were sent and wait for their turn: what is left of them when a turn's end was shown is sent."""
        ...

    @property
    def model(self) -> str: ...
    @property
    def mode(self) -> str: ...
    async def commands(self) -> tuple[AgentCommand, ...]:
        """The agent's own, where it says which there are."""
        ...

    async def send(self, prompt: str) -> None: ...
    async def interrupt(self) -> None: ...
    async def kill(self) -> None: ...
    async def set_model(self, model: str) -> str: ...
    async def set_mode(self, mode: str) -> str: ...
    async def diff(self) -> WorkspaceDiff: ...
    async def undo(self, turn: int | None) -> UndoResult:
        """Put the files back as they were before a turn; without one, before the last."""
        ...

    async def leave(self) -> str:
        """Stop; returns what to do to go on."""
        ...


class LocalConversation:
    """A session of this process. It is opened at the first prompt and again, with all that was said, after its agent
    has ended or its settings were changed."""

    def __init__(
        self,
        agent: str | AcpAgent,
        name: str,
        options: dict[str, Any],
        show: Callable[[Event], None],
        fail: Callable[[StagedoorError], None],
    ) -> None:
        self.agent = name
        self.waiting: list[str] = []
        self._agent = agent
        self._options = options
        self._show = show
        self._fail = fail
        self._session: Session | None = None
        self._native_id: str = ""
        self._model: str = ""
        self._version = ""
        self._settings: Sequence[AgentSetting] = ()
        self._busy = False
        self._is_outdated = False
        self._tasks = TaskOwner()
        self._objects = tempfile.TemporaryDirectory(prefix="stagedoor-chat-")
        self._start = self._tasks.start(self._how_it_stands())
        self._id = uuid.uuid4().hex
        self._turn = 0
        self._checkpoints = Checkpoints(home(), self.folder)

    @property
    def busy(self) -> bool:
        return self._busy

    @property
    def model(self) -> str:
        return str(self._options.get("model") or self._model)

    @property
    def mode(self) -> str:
        tier = self._options.get("tier") or "supervised"
        approval = self._options.get("approval")
        return mode_label(tier, approval)

    @property
    def folder(self) -> Path:
        return Path(self._options.get("cwd", "."))

    async def commands(self) -> tuple[AgentCommand, ...]:
        return () if self._session is None else self._session.report.commands

    async def send(self, prompt: str) -> None:
        """Returns when the agent has it, or when it waits for its turn."""
        if self._busy:
            self.waiting.append(prompt)
            return
        self._busy = True
        try:
            await asyncio.wait((self._start,))
            await self._keep_files()
            session = await self._opened()
            await session.post(prompt)
        except StagedoorError as fault:
            self._busy = False
            await self._close()
            self._fail(fault)

    async def interrupt(self) -> None:
        if self._session is not None:
            await self._session.interrupt()

    async def kill(self) -> None:
        """End the agent; the next prompt starts it again."""
        await self._close(at_once=True)
        self._busy = False

    async def set_model(self, model: str) -> str:
        settings = self._settings if self._session is None else self._session.settings
        check_model(settings, model)
        return _model_chosen(model, settings, self._change(model=model))

    async def set_mode(self, mode: str) -> str:
        tier, approval = rights_named(mode)
        register = Register()
        entry = register.find(self._native_id) if self._native_id else None
        if entry is not None:  # a person chooses: it may be wider, which resuming alone never is
            register.add(replace(entry, tier=tier, approval=approval))
        try:
            return f"mode: {mode_label(tier, approval)}{self._change(tier=tier, approval=approval)}"
        except StagedoorError:
            if entry is not None:
                register.add(entry)
            raise

    async def diff(self) -> WorkspaceDiff:
        await asyncio.wait((self._start,))
        return await diff(self.folder, self._start.result(), keep=Path(self._objects.name))

    async def undo(self, turn: int | None) -> UndoResult:
        if self._busy:
            raise BadRequest("a turn is running: stop it with Ctrl-C, or wait until it ends")
        try:
            return await in_thread(self._checkpoints.restore, self._id, turn=turn, at=milliseconds())
        except (GitFailed, OSError) as fault:
            raise BadRequest(str(fault)) from fault

    async def leave(self) -> str:
        await self._close()
        await self._tasks.close()
        self._objects.cleanup()
        with suppress(GitFailed, OSError):
            await in_thread(self._checkpoints.forget, self._id)
        session_id = self._native_id or self._options.get("resume")
        if not session_id or isinstance(self._agent, AcpAgent):
            return ""
        return f"stagedoor chat {self.agent} --resume {session_id}"

    async def _how_it_stands(self) -> str:
        """The files when the chat begins, which ``diff`` compares with, whatever was changed in them before."""
        _, state = await standing(self.folder, Path(self._objects.name))
        return state

    async def _keep_files(self) -> None:
        """How the workspace stands before the turn, for ``undo``; the turn begins whatever comes of it."""
        self._turn += 1
        if self._options.get("tier") == "dry-run":
            return
        try:
            await in_thread(self._checkpoints.take, self._id, self._turn, at=milliseconds())
        except (GitFailed, OSError) as fault:
            message = f"this turn cannot be undone: {fault}"
            self._show(events.Notice(level="warning", code="no_checkpoint", message=message))

    async def _opened(self) -> Session:
        if self._is_outdated:
            await self._close()
        if self._session is None:
            self._is_outdated = False
            self._session = self._conversation(self._options)
            self._tasks.start(self._follow(self._session))
        return self._session

    def _conversation(self, options: dict[str, Any]) -> Session:
        if self._native_id:
            options = {**options, "resume": self._native_id}
        return api.open(self._agent, **options)

    def _change(self, **changed: Any) -> str:
        """From the next prompt on: the agent is started again and goes on where it was. Returns what to add."""
        options = {name: value for name, value in {**self._options, **changed}.items() if value is not None}
        self._conversation(options)  # raises what is wrong with it
        self._options = options
        self._is_outdated = self._session is not None
        return " (from the next message on)" if self._busy else ""

    async def _follow(self, session: Session) -> None:
        async for event in session.events:
            self._see(session, event)
            if isinstance(event, events.TurnCompleted) and self._session is session:
                self._busy = False
                if self.waiting:
                    self._tasks.start(self.send(self.waiting.pop(0)))
        if session.unrecognized:
            count_unrecognized(self.agent, self._version, session.unrecognized)
        if self._session is session:  # the agent has ended by itself
            self._session = None
            self._busy = False

    def _see(self, session: Session, event: Event) -> None:
        if isinstance(event, events.Init):
            self._model, self._version = event.model, event.agent_version
            # What goes with the first prompt only, and how the session began.
            self._options = {
                name: value for name, value in self._options.items() if name not in ("images", "fork", "resume")
            }
        match event:
            case events.Init(native_session_id=named) if named:
                self._native_id = named
            case events.Notice(native_session_id=str(named)):
                self._native_id = named  # the agent goes on under another one
            case _:
                pass
        self._show(event)

    async def _close(self, *, at_once: bool = False) -> None:
        session, self._session = self._session, None
        if session is not None:
            self._settings = session.settings or self._settings
            await session.close(at_once=at_once)


class ServerConversation:
    """A session of a server: a new one, opened at the first prompt, or one that is joined. It goes on without us.

    ``view``: the session to join. One that has ended is continued by the next prompt, in a new one.
    """

    def __init__(
        self,
        remote: Remote,
        agent: str,
        options: dict[str, Any],
        show: Callable[[Event], None],
        fail: Callable[[StagedoorError], None],
        *,
        view: SessionView | None = None,
    ) -> None:
        self.agent = agent
        self.waiting: list[str] = []
        self._remote = remote
        self._options = options
        self._show = show
        self._fail = fail
        self._tasks = TaskOwner()
        self._session: RemoteSession | None = None
        self._following: asyncio.Task[None] | None = None
        self._last_id = "" if view is None else view.id
        self._begun_id = self._last_id
        self._model = "" if view is None else view.model
        self._tier = str(options.get("tier") or "supervised") if view is None else str(view.tier)
        self._approval: str | None = options.get("approval") if view is None else view.approval
        self._busy = False
        if view is not None and not view.ended:
            self._busy = view.activity in ("starting", "working", "waiting")
            after = max(view.first_seq, view.turn_seq) - 1  # the last turn is shown
            self._begin(remote.session(view.id, after=after, can_use_tool=options.get("can_use_tool")))

    @property
    def busy(self) -> bool:
        return self._busy

    @property
    def model(self) -> str:
        return self._model

    @property
    def mode(self) -> str:
        return mode_label(self._tier, self._approval)

    async def commands(self) -> tuple[AgentCommand, ...]:
        return () if self._session is None else (await self._session.report()).commands

    async def send(self, prompt: str) -> None:
        """What is sent while a turn runs, whoever started it, waits here: until then it can be taken back."""
        if self._busy:
            self.waiting.append(prompt)
            return
        self._busy = True
        try:
            if not await self._posted(prompt):
                session = self._remote.open(self.agent, **self._opening())
                await session.post(prompt)
                self._begin(session)
        except StagedoorError as fault:
            self._busy = False
            self._fail(fault)

    async def interrupt(self) -> None:
        if self._session is not None:
            await self._session.interrupt(pause=True)

    async def kill(self) -> None:
        if self._session is not None:
            await self._session.cancel()
        self._busy = False

    async def set_model(self, model: str) -> str:
        settings = await self._seen_settings()
        if not await self._configured(model=model):
            self._check_unsent("model")
            check_model(settings, model)
            self._options["model"] = model
        self._model = model
        return _model_chosen(model, settings, " (from the next message on)" if self._busy else "")

    async def set_mode(self, mode: str) -> str:
        tier, approval = rights_named(mode)
        if not await self._configured(tier=tier, approval=approval):
            self._check_unsent("mode")
            self._options |= {"tier": tier, "approval": approval}
        self._tier, self._approval = tier, approval
        words = f"mode: {mode_label(tier, approval)}"
        return f"{words} (from the next message on)" if self._busy else words

    async def diff(self) -> WorkspaceDiff:
        if not self._last_id:
            raise BadRequest("nothing was sent yet")
        return await (self._session or self._remote.session(self._last_id)).diff()

    async def undo(self, turn: int | None) -> UndoResult:
        if not self._last_id:
            raise BadRequest("nothing was sent yet")
        return await (self._session or self._remote.session(self._last_id)).undo(turn=turn)

    async def leave(self) -> str:
        """It goes on; what waited here waits there now."""
        session, self._session = self._session, None
        try:
            if session is not None:
                for prompt in self.waiting:
                    await session.post(prompt)
                await session.leave()
        finally:
            await self._tasks.close()
        return f"stagedoor chat --attach {self._last_id}" if self._last_id else ""

    async def _posted(self, prompt: str) -> bool:
        """Whether the session has it; if not, it has ended, maybe while this was typed, and all of it was shown."""
        try:
            if self._session is not None:
                await self._session.post(prompt)
                return True
        except SessionEnded:
            await self._followed()
            self._busy = True
        return False

    async def _configured(self, **changed: Any) -> bool:
        """Whether the session has it; if not, it has ended, maybe while this was typed."""
        try:
            if self._session is not None:
                await self._session.configure(**changed)
                return True
        except SessionEnded:
            await self._followed()
        return False

    async def _followed(self) -> None:
        """Returns when all of the session was shown."""
        if self._following is not None:
            await asyncio.wait((self._following,))

    async def _seen_settings(self) -> Sequence[AgentSetting]:
        """What the agent lets one choose: in this session, or before there is one, what the server has seen of it."""
        with suppress(SessionEnded):
            if self._session is not None:
                return await self._session.settings()
        return next((view.settings for view in await self._remote.agents() if view.agent == self.agent), ())

    def _check_unsent(self, name: str) -> None:
        if self._last_id:
            raise BadRequest(f"the session has ended: send a message to go on with it, then change the {name}")

    def _opening(self) -> dict[str, Any]:
        if not self._last_id:
            return self._options
        return {"resume": self._last_id, "can_use_tool": self._options.get("can_use_tool")}

    def _begin(self, session: RemoteSession) -> None:
        self._session = session
        self._last_id = session.id
        self._following = self._tasks.start(self._follow(session))

    async def _follow(self, session: RemoteSession) -> None:
        try:
            async for event in session.events:
                self._see(event)
        except StagedoorError as fault:
            if self._session is session:
                self._session = None
                self._busy = False
                self._fail(fault)
        if self._session is session:  # it has ended; where its agent never began, there is nothing to go on with
            self._session = None
            self._busy = False
            self._last_id = self._begun_id

    def _see(self, event: Event) -> None:
        if isinstance(event, (events.Init, events.Notice)) and event.native_session_id:
            self._begun_id = self._last_id
        match event:
            case events.Init():
                self._model = event.model or self._model
            case events.TurnStarted():
                self._busy = True
            case events.TurnCompleted():
                self._busy = False
            case _:
                pass
        self._show(event)
        if isinstance(event, events.TurnCompleted) and self.waiting:
            self._tasks.start(self.send(self.waiting.pop(0)))
