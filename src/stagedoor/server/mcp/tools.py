"""What a calling model can do: start sessions, wait for them in bounded steps, read what they did, end them.

There is no tool that answers a permission question, whoever calls: that is for a person, at any other door. Long work
is never waited for inside one call, so no client's time limit is met.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec

from stagedoor.errors import NotAllowed, SessionNotFound, StagedoorError
from stagedoor.mcp.functions import Tool, tool
from stagedoor.mcp.protocol import McpResource, Resources, ToolCall, ToolRefused, ToolServer
from stagedoor.service.opening import freedom
from stagedoor.service.service import Service
from stagedoor.service.store import Query
from stagedoor.service.views import Record, SessionSpec, SessionView
from stagedoor.unified.options import APPROVALS, Approval, Tier

from ..access.devices import Caller, demand
from ..problems import problem

MOST_WAIT = 50.0
MOST_TEXT = 50_000
SCHEME = "stagedoor://sessions"
TIERS: tuple[Tier, ...] = ("dry-run", "supervised", "autonomous")
PERSON = "a person must answer a permission question of this session; you cannot. Wait again, or cancel it."
INSTRUCTIONS = (
    "Runs coding agents for you. start returns at once with the id of a session; then call wait until it says that the "
    "turn is over, and read its result. Permission questions are answered by a person, never by you. Cancel sessions "
    "that you no longer need."
)
SKIPPED = frozenset({"text_delta", "thinking_delta", "tool_progress", "usage", "init"})

Session = Annotated[str, msgspec.Meta(description="the id that start returned; empty: the last one you started")]


class ModelCaller(msgspec.Struct, frozen=True, kw_only=True):
    """Whose model calls, and from where."""

    caller: Caller
    parent: str = ""
    """The session that its program runs in, where it says so. That can only narrow what it may do."""
    most: Tier | None = None
    """The most that it may ask for; ``None``: whatever its token allows."""

    roots: tuple[str, ...] = ()
    """Where its sessions may run; empty: wherever the server's may."""

    def folder(self, cwd: str) -> str:
        """Where a session runs that it wants to start in ``cwd``. Raises ``NotAllowed``."""
        if not self.roots:
            return cwd
        place = Path(self.roots[0], Path(cwd).expanduser())
        if not any(place.resolve().is_relative_to(Path(root).resolve()) for root in self.roots):
            raise NotAllowed(f"{cwd} is outside {', '.join(self.roots)}, where you may start sessions")
        return str(place)

    @property
    def calls_only(self) -> bool:
        """Whether its token is for this door alone."""
        return "call" in self.caller.scopes and not self.caller.may("watch")

    def demand(self, right: Literal["watch", "run"]) -> None:
        if not self.calls_only:
            demand(self.caller, right)

    def sees(self, view: SessionView) -> bool:
        """A model in a session, and one with a token for this door, has to do with its own sessions alone."""
        if self.calls_only and view.caller != self.caller.device_id:
            return False  # whichever session it says it runs in
        return not self.parent or view.parent == self.parent


class Started(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A session in few words."""

    session: str
    agent: str = ""
    state: str = ""
    title: str = ""
    cwd: str = ""
    tier: str = ""
    turn_over: bool = False
    result: str = ""
    error: str = ""
    waits_for: str = ""
    cost_usd: float | None = None
    last_seq: int = 0
    next: str = ""


def server_for(service: Service, model: ModelCaller, version: str) -> ToolServer:
    """The tools of one calling model."""
    tools = AgentTools(service, model)
    resources = Resources(
        tools.resources,
        tools.resource,
        ({"uriTemplate": f"{SCHEME}/{{id}}", "name": "session", "mimeType": "application/json"},),
    )
    return ToolServer(tools.tools(), name="stagedoor", version=version, instructions=INSTRUCTIONS, resources=resources)


async def run_tool(call: ToolCall) -> Any:
    """Make a call. What goes wrong is told in the words that every door uses."""
    try:
        return await call.tool.bound(call.arguments)()
    except StagedoorError as fault:
        raise ToolRefused(problem(fault).detail) from fault


class AgentTools:
    def __init__(self, service: Service, model: ModelCaller) -> None:
        self._service = service
        self._model = model

    def tools(self) -> list[Tool]:
        reading: Sequence[Callable[..., Any]] = (self.agents, self.wait, self.events, self.diff, self.list)
        acting: Sequence[Callable[..., Any]] = (self.start, self.send, self.cancel)
        return [*(tool(one, reads=True) for one in reading), *(tool(one) for one in acting)]

    async def agents(self) -> list[dict[str, Any]]:
        """The coding agents that can be started here: name, whether it is installed and signed in, its version."""
        self._model.demand("watch")
        return [
            {
                "agent": view.agent, "title": view.title, "default": view.default, "version": view.version,
                "installed": view.installed, "signedIn": view.signed_in, "problem": view.problem,
            }
            for view in await self._service.agents.list() if view.enabled
        ]  # fmt: skip

    async def start(
        self,
        prompt: Annotated[str, msgspec.Meta(min_length=1, description="what the agent shall do, in full")],
        agent: Annotated[str, msgspec.Meta(description="a name from agents; empty: the default")] = "",
        cwd: Annotated[str, msgspec.Meta(description="the folder to work in; empty: yours")] = "",
        *,
        model: str | None = None,
        tier: Tier | None = None,
        worktree: Annotated[bool, msgspec.Meta(description="work in a git worktree of its own")] = False,
        title: str = "",
    ) -> Started:
        """Start a coding agent in a session of its own. Returns at once: call wait for its result."""
        self._model.demand("run")
        allowed, approval = await self._rights(tier)
        folder = await asyncio.to_thread(self._model.folder, cwd)
        spec = SessionSpec(
            prompt=prompt, agent=agent, cwd=folder, model=model, tier=allowed, approval=approval, worktree=worktree,
            title=title, keep_open=True,
        )  # fmt: skip
        view = await self._service.sessions.create_for_model(
            spec, caller=self._model.caller.device_id, parent=self._model.parent, who=self._model.caller.name
        )
        return _brief(view)

    async def send(
        self,
        prompt: Annotated[str, msgspec.Meta(min_length=1)],
        session: Session = "",
        *,
        steer: Annotated[bool, msgspec.Meta(description="add it to the running turn, where the agent can")] = False,
    ) -> Started:
        """Send a follow-up to a session; it waits for its turn. Returns at once: call wait for the result."""
        self._model.demand("run")
        view = await self._view(session)
        await self._service.sessions.send(view.id, prompt, steer=steer, who=self._model.caller.name)
        return _brief(await self._service.sessions.get(view.id))

    async def wait(
        self,
        session: Session = "",
        seconds: Annotated[float, msgspec.Meta(ge=0, le=MOST_WAIT)] = 20.0,
    ) -> Started:
        """Wait until the session's turn is over, but no longer than so many seconds; then call it again."""
        self._model.demand("watch")
        view = await self._view(session)
        bell = self._service.events.bell(view.id)
        try:
            async with asyncio.timeout(seconds):
                while not _rests(view):
                    await bell.rung()
                    view = await self._service.sessions.get(view.id)
        except TimeoutError:
            view = await self._service.sessions.get(view.id)
        finally:
            bell.close()
        return _brief(view)

    async def events(
        self,
        session: Session = "",
        after: Annotated[int, msgspec.Meta(ge=0, description="the seq of the last event you have")] = 0,
        limit: Annotated[int, msgspec.Meta(ge=1, le=200)] = 50,
    ) -> dict[str, Any]:
        """What happened in a session: texts, tool calls, changed files, questions. Read on with next as after."""
        self._model.demand("watch")
        view = await self._view(session)
        records: Sequence[Record] = await self._service.events.read(view.id, after, limit)
        events = [_in_words(record) for record in records if record.type not in SKIPPED]
        return {"events": events, "next": records[-1].seq if records else after, "last": view.last_seq}

    async def diff(self, session: Session = "", path: str = "") -> dict[str, Any]:
        """What a session has changed in its files, as a unified diff; with path of that file alone."""
        self._model.demand("watch")
        view = await self._view(session)
        found = await self._service.workspaces.diff(view.id, path=path)
        cut = found.cut or len(found.diff) > MOST_TEXT
        return {
            "files": found.files, "insertions": found.insertions, "deletions": found.deletions, "cut": cut,
            "diff": found.diff[:MOST_TEXT],
        }  # fmt: skip

    async def cancel(self, session: Annotated[str, msgspec.Meta(min_length=1)]) -> Started:
        """End a session now, whatever it does."""
        self._model.demand("run")
        view = await self._view(session)
        return _brief(await self._service.sessions.cancel(view.id))

    async def list(self, limit: Annotated[int, msgspec.Meta(ge=1, le=100)] = 20) -> Sequence[Started]:
        """The sessions that you can see, the newest first."""
        self._model.demand("watch")
        return [_brief(view) for view in await self._newest(limit)]

    async def resources(self) -> Sequence[McpResource]:
        self._model.demand("watch")
        return [
            McpResource(
                uri=f"{SCHEME}/{view.id}", name=view.id, title=view.title, description=f"{view.agent}, {view.state}"
            )
            for view in await self._newest(50)
        ]

    async def resource(self, uri: str) -> str | None:
        self._model.demand("watch")
        place, _, session_id = uri.rpartition("/")
        if place != SCHEME or not session_id:
            return None
        try:
            return msgspec.json.encode(_brief(await self._view(session_id))).decode()
        except SessionNotFound:
            return None

    async def _rights(self, tier: Tier | None) -> tuple[Tier | None, Approval | None]:
        """What to ask for: never more than the token allows, whatever the headers say."""
        parent = await self._service.sessions.find(self._model.parent) if self._model.parent else None
        bounds: list[Tier] = [self._service.settings.tier] if self._model.calls_only else []
        if self._model.most is not None:
            bounds.append(self._model.most)
        if not bounds:
            return tier, None
        most: Tier = min(bounds, key=TIERS.index)
        if tier is not None and TIERS.index(tier) > TIERS.index(most):
            raise NotAllowed(f"tier {tier!r} is more than you may ask for ({most!r}): leave it out")
        if parent is None:
            return tier or most, None
        least: Tier = min((parent.tier, most), key=TIERS.index)
        chosen = tier or least
        # That the session may ask less than its tier says was said of that session alone.
        freer = freedom(chosen, parent.approval) > freedom(chosen, None)
        return chosen, APPROVALS[chosen] if freer else None

    async def _newest(self, limit: int) -> Sequence[SessionView]:
        page = await self._service.sessions.list(Query(limit=500))
        return [view for view in page if self._model.sees(view)][:limit]

    async def _view(self, session: str) -> SessionView:
        """A session of this caller's; those of others do not exist."""
        if session:
            view = await self._service.sessions.find(session)
            if view is None or not self._model.sees(view):
                raise SessionNotFound(f"session {session!r} not found: list shows yours")
            return view
        started = [view for view in await self._newest(500) if view.caller == self._model.caller.device_id]
        if not started:
            raise SessionNotFound("you have started no session yet: call start first")
        return max(started, key=lambda view: view.created_at)


def _in_words(record: Record) -> dict[str, Any]:
    """An event without its images, which it names: a model reads base64 as text, and pays for each letter."""
    event: dict[str, Any] = msgspec.json.decode(record.body)
    event.pop("images", None)
    return event


def _rests(view: SessionView) -> bool:
    return view.ended or (view.activity in ("idle", "asleep") and not view.queued)


def _brief(view: SessionView) -> Started:
    over = _rests(view)
    return Started(
        session=view.id, agent=view.agent, state=view.state if view.ended else view.activity, title=view.title,
        cwd=view.cwd, tier=view.tier, turn_over=over, result=view.result[:MOST_TEXT] if over else "", error=view.error,
        waits_for=PERSON if view.open_questions else "", cost_usd=view.cost_usd, last_seq=view.last_seq,
        next="" if over else "call wait with this session",
    )  # fmt: skip
