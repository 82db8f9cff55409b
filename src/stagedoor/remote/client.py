"""``stagedoor.connect``: the agents of a server, with the same ``run`` and ``open`` as without one."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import AsyncExitStack, aclosing
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict, Unpack
from urllib.parse import quote

import msgspec

from ..api import LAST, Result, collect, without_loop
from ..cancel import CancelToken, ends_with
from ..errors import NotSupported
from ..service.views import AttachedFile, By, Question, SessionSpec, SessionView, State
from ..unified.decisions import CanUseTool, Decision
from ..unified.events import Event
from ..unified.options import Approval, Confine, McpServer, Options, PermissionMode, Sandbox, Tier
from .address import Address, find
from .connection import ServerConnection
from .session import OpenRequest, RemoteSession, SessionLink, answer_body

if TYPE_CHECKING:
    from os import PathLike

    from ..service.agents import AgentView
    from ..service.ledger import UsageSums

PATIENCE = 120.0
_LOCAL_OPTIONS = frozenset({"can_use_tool", "resume", "fork"})
"""Options that are carried out on this side, or by another path than ``POST /api/sessions``."""
ACCEPTED = (frozenset(SessionSpec.__struct_fields__) - {"prompt", "agent", "keep_open"}) | _LOCAL_OPTIONS
REFUSED: dict[str, str] = {
    "policy": "the server's own policy decides; set it in the server's configuration",
    "before_tool_call": "the server runs the hooks of its own configuration",
    "after_tool_call": "the server runs the hooks of its own configuration",
    "on_event": "the server runs the hooks of its own configuration",
    "hook_timeout": "the server runs the hooks of its own configuration",
    "remember_in": "the server saves remembered answers in its own policy file",
    "audit": "the server records every decision; read it with GET /api/audit",
    "tools": "a function can be called only where it is; open a session without a server for it",
    "images": "the server does not accept images with a prompt",
    "env": "the server's configuration sets the environment of each agent",
    "inherit_env": "the server's configuration sets the environment of each agent",
    "stall_after": "the server watches its agents itself", "watch_files": "the server watches its workspaces itself",
    "checkpoints": "the server keeps them by its own configuration",
    "extra_args": "the server's configuration says how each agent runs",
    "executable": "the server's configuration says how each agent runs",
    "confine_write": "the server's configuration says what a confined agent may touch",
    "confine_hide": "the server's configuration says what a confined agent may touch",
    "raw": "the server does not send the agents' own messages",
}  # fmt: skip
"""Options of ``stagedoor.run`` that make sense only where the agent runs → why."""


def connect(
    url: str | None = None,
    token: str | None = None,
    *,
    certificate: str | Path | None = None,
    patience: float = PATIENCE,
) -> Remote:
    """The server at ``url``; without one ``STAGEDOOR_URL``, else the one that runs with this home (``"local"``).

    >>> remote = stagedoor.connect("http://127.0.0.1:16180", token)
    ... async for event in remote.run("claude", "Fix the login bug"): ...

    ``certificate``: a PEM file to trust. ``patience``: seconds to keep trying when the connection is lost.
    """
    return Remote(lambda: find(url, token, None if certificate is None else str(certificate)), patience=patience)


class RemoteOptions(TypedDict, total=False):
    """What ``run`` and ``open`` take with a server. The server chooses what is left out; ``cwd`` is a folder there."""

    cwd: str | PathLike[str]
    project_id: str
    title: str
    model: str | None
    effort: str | None
    mode: str | None
    driver: str | None
    tier: Tier | None
    approval: Approval | PermissionMode | None
    sandbox: Sandbox | None
    confine: Confine
    container: str
    max_turns: int | None
    max_budget_usd: float | None
    allowed_tools: list[str] | tuple[str, ...] | None
    disallowed_tools: list[str] | tuple[str, ...]
    protected: list[str] | tuple[str, ...]
    auto_approve: list[str] | tuple[str, ...]
    only_refusing: bool
    attachments: tuple[AttachedFile, ...]
    needs: list[str] | tuple[str, ...]
    place: str
    system_prompt: str | None
    append_system_prompt: str | None
    output_schema: Mapping[str, Any] | None
    mcp_servers: Mapping[str, McpServer]
    timeout: float | None
    permission_timeout: float
    trust: bool | None
    group: str
    worktree: bool
    from_branch: str
    can_use_tool: CanUseTool | None
    resume: str | None
    fork: bool


class Remote:
    """A server. ``async with`` keeps connections open between calls; it is optional."""

    def __init__(self, find_address: Callable[[], Address], *, patience: float = PATIENCE) -> None:
        self._find_address = find_address
        self._patience = patience
        self._connection = ServerConnection(find_address, patience=patience)
        self._stack = AsyncExitStack()

    def __repr__(self) -> str:
        return f"stagedoor.connect({self.url!r})"

    @property
    def url(self) -> str:
        return self._connection.address.url

    async def __aenter__(self) -> Remote:
        await self._stack.enter_async_context(self._connection.client())
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stack.aclose()

    async def run(
        self, agent: str, prompt: str, *, cancel: CancelToken | None = None, **options: Unpack[RemoteOptions]
    ) -> AsyncGenerator[Event]:
        """One prompt: yields every event from ``init`` to ``done``. Leaving the loop ends the session on the server."""
        async with self._open(agent, options, keep_open=False) as session, ends_with(session, cancel) as started:
            async with aclosing(session.send(prompt)) as turn:
                async for event in turn:
                    started.set()
                    yield event
            async for event in session.events:
                yield event

    def open(self, agent: str, *, keep_open: bool = True, **options: Unpack[RemoteOptions]) -> RemoteSession:
        """A conversation; nothing is started before the first ``send``. Without ``keep_open`` it ends after one prompt.

        >>> async with remote.open("codex", tier="supervised", can_use_tool=ask) as session:
        ...     async for event in session.send("Write the test first"): ...
        """
        return self._open(agent, options, keep_open=keep_open)

    async def result(self, agent: str, prompt: str, **options: Unpack[RemoteOptions]) -> Result:
        """The same as ``run`` when only the outcome matters: waits, and returns the whole result."""
        return collect([event async for event in self.run(agent, prompt, **options)])

    def run_sync(self, agent: str, prompt: str, **options: Unpack[RemoteOptions]) -> Result:
        """``result`` for scripts without an event loop."""
        fresh = Remote(self._find_address, patience=self._patience)
        return without_loop(fresh.result(agent, prompt, **options))

    def session(self, session_id: str, *, after: int = 0, can_use_tool: CanUseTool | None = None) -> RemoteSession:
        """Join a session of the server; ``events`` starts after ``after``. Leaving it changes nothing for others."""
        return RemoteSession(
            SessionLink(self._connection, session_id=session_id, after=after, can_use_tool=can_use_tool)
        )

    async def sessions(
        self,
        *,
        state: State | None = None,
        agent: str = "",
        project_id: str = "",
        group: str = "",
        search: str = "",
        archived: bool | None = None,
        ended: bool | None = None,
        offset: int = 0,
        limit: int = 50,
    ) -> list[SessionView]:
        """The server's sessions, newest first."""
        query = {
            "state": state, "agent": agent, "projectId": project_id, "group": group, "search": search,
            "archived": archived, "ended": ended, "offset": offset, "limit": limit,
        }  # fmt: skip
        return (await self._connection.get("/api/sessions", _SessionList, query)).sessions

    async def agents(self) -> list[AgentView]:
        """Every agent of the server: installed? signed in? what can it do?"""
        from ..service.agents import AgentView

        return (await self._connection.get("/api/agents", dict[str, list[AgentView]]))["agents"]

    async def questions(
        self, session_id: str | None = None, *, open_only: bool = True, offset: int = 0, limit: int = 500
    ) -> list[Question]:
        """The questions that wait for an answer, in all sessions or one; the oldest first."""
        path = "/api/permissions" if session_id is None else f"/api/sessions/{quote(session_id, safe='')}/permissions"
        return (
            await self._connection.get(path, _QuestionList, {"open": open_only, "offset": offset, "limit": limit})
        ).permissions

    async def answer(self, question_id: str, decision: Decision) -> Question:
        """Answer an open question, once. Raises ``AlreadyAnswered`` when somebody else answered first."""
        path = f"/api/permissions/{quote(question_id, safe='')}"
        return await self._connection.post(path, Question, answer_body(decision))

    async def usage(self, by: By = "day", *, since: int | None = None, until: int | None = None) -> UsageSums:
        """Tokens and money by day, agent, project, session or model; times in milliseconds."""
        from ..service.ledger import UsageSums

        return await self._connection.get("/api/usage", UsageSums, {"by": by, "since": since, "until": until})

    def _open(self, agent: str, options: RemoteOptions, *, keep_open: bool) -> RemoteSession:
        request = open_request(agent, options)
        return RemoteSession(
            SessionLink(self._connection, request=request, keep_open=keep_open, can_use_tool=request.can_use_tool)
        )


class _SessionList(msgspec.Struct, frozen=True):
    sessions: list[SessionView]


class _QuestionList(msgspec.Struct, frozen=True):
    permissions: list[Question]


def open_request(agent: str, options: Mapping[str, Any]) -> OpenRequest:
    """Raises ``NotSupported`` for an option that works only without a server, ``TypeError`` for an unknown one."""
    for name in options:
        if name in ACCEPTED:
            continue
        if name in Options.__struct_fields__:
            raise NotSupported(f"{name}= does not work with a server: {REFUSED[name]}")
        raise TypeError(f"unknown option {name!r}; the options with a server are {', '.join(sorted(ACCEPTED))}")
    if options.get("permission_timeout", 0) is None:
        raise NotSupported("permission_timeout=None does not work with a server: leave it out, and the server decides")
    resume = options.get("resume")
    places = ("cwd", "project_id") if resume == LAST else ()
    sent = {name: _plain(value) for name, value in options.items() if name not in _LOCAL_OPTIONS}
    if resume is not None and (kept := [name for name in sent if name not in places]):
        names = ", ".join(f"{name}=" for name in kept)
        raise NotSupported(f"a resumed session keeps its options; leave out {names}")
    if options.get("fork") and resume is None:
        raise NotSupported("fork= needs resume=, the id of the session to fork")
    return OpenRequest(
        agent=agent,
        options=sent,
        can_use_tool=options.get("can_use_tool"),
        resume=resume,
        fork=bool(options.get("fork")),
    )


def _plain(value: Any) -> Any:
    return str(value) if hasattr(value, "__fspath__") else value
