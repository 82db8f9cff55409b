"""``stagedoor.connect``: a server's agents, with the same words as those here."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import AsyncExitStack, aclosing
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import msgspec

from ..api import Result, collect
from ..cancel import CancelToken, ends_with
from ..service.views import By, Question, SessionView, State
from ..unified.decisions import CanUseTool, Decision
from ..unified.events import Event
from .address import Address, find
from .line import Line
from .session import Live, RemoteSession, answer_body
from .wishes import wish

if TYPE_CHECKING:
    from ..service.ledger import Sums
    from ..service.presence import AgentView

PATIENCE = 120.0


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

    ``certificate``: a PEM file to trust. ``patience``: seconds to go on trying when a server that was there is not.
    """
    return Remote(lambda: find(url, token, None if certificate is None else str(certificate)), patience=patience)


class Remote:
    """A server. ``async with`` keeps connections open between calls; nothing needs it."""

    def __init__(self, where: Callable[[], Address], *, patience: float = PATIENCE) -> None:
        self._where = where
        self._patience = patience
        self._line = Line(where, patience=patience)
        self._stack = AsyncExitStack()

    def __repr__(self) -> str:
        return f"stagedoor.connect({self.url!r})"

    @property
    def url(self) -> str:
        return self._line.address.url

    async def __aenter__(self) -> Remote:
        await self._stack.enter_async_context(self._line.held())
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stack.aclose()

    async def run(
        self, agent: str, prompt: str, *, cancel: CancelToken | None = None, **options: Any
    ) -> AsyncGenerator[Event]:
        """One prompt: yields every event from ``init`` to ``done``. Leaving the loop ends the session on the server."""
        async with self._open(agent, options, keep_open=False) as session, ends_with(session, cancel) as begun:
            async with aclosing(session.send(prompt)) as turn:
                async for event in turn:
                    begun.set()
                    yield event
            async for event in session.events:
                yield event

    def open(self, agent: str, **options: Any) -> RemoteSession:
        """A conversation; nothing is started before the first ``send``.

        >>> async with remote.open("codex", tier="supervised", can_use_tool=ask) as session:
        ...     async for event in session.send("Write the test first"): ...
        """
        return self._open(agent, options, keep_open=True)

    def run_sync(self, agent: str, prompt: str, **options: Any) -> Result:
        """The same as ``run`` for scripts: waits, and returns the whole result."""

        async def main() -> Result:
            fresh = Remote(self._where, patience=self._patience)
            return collect([event async for event in fresh.run(agent, prompt, **options)])

        return asyncio.run(main())

    def session(self, session_id: str, *, after: int = 0, can_use_tool: CanUseTool | None = None) -> RemoteSession:
        """Join a session of the server; ``events`` begins after ``after``. Leaving it changes nothing for others."""
        return RemoteSession(Live(self._line, session_id=session_id, after=after, can_use_tool=can_use_tool))

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
        return (await self._line.get("/api/sessions", _Sessions, query)).sessions

    async def agents(self) -> list[AgentView]:
        """Every agent: installed? signed in? what can it do there?"""
        from ..service.presence import AgentView

        return (await self._line.get("/api/agents", dict[str, list[AgentView]]))["agents"]

    async def questions(
        self, session_id: str | None = None, *, open_only: bool = True, offset: int = 0, limit: int = 500
    ) -> list[Question]:
        """What waits for an answer, in all sessions or one; the oldest first."""
        path = "/api/permissions" if session_id is None else f"/api/sessions/{quote(session_id, safe='')}/permissions"
        return (
            await self._line.get(path, _Questions, {"open": open_only, "offset": offset, "limit": limit})
        ).permissions

    async def answer(self, question_id: str, decision: Decision) -> Question:
        """Decide an open question, once. ``AlreadyAnswered`` when somebody was faster."""
        path = f"/api/permissions/{quote(question_id, safe='')}"
        return await self._line.post(path, Question, answer_body(decision))

    async def usage(self, by: By = "day", *, since: int | None = None, until: int | None = None) -> Sums:
        """Tokens and money by day, agent, project, session or model; times in milliseconds."""
        from ..service.ledger import Sums

        return await self._line.get("/api/usage", Sums, {"by": by, "since": since, "until": until})

    def _open(self, agent: str, options: dict[str, Any], *, keep_open: bool) -> RemoteSession:
        wanted = wish(agent, options)
        return RemoteSession(Live(self._line, wish=wanted, keep_open=keep_open, can_use_tool=wanted.can_use_tool))


class _Sessions(msgspec.Struct, frozen=True):
    sessions: list[SessionView]


class _Questions(msgspec.Struct, frozen=True):
    permissions: list[Question]
