"""Run any agent that speaks the Agent Client Protocol."""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import AsyncGenerator, Mapping, Sequence
from pathlib import Path
from typing import TypeAlias

from msgspec import UNSET, UnsetType
from msgspec.structs import replace

from stagedoor.errors import (
    AgentRefused,
    LaunchError,
    LocalProtocolError,
    NotSupported,
    RemoteProtocolError,
    SessionNotFound,
    StagedoorError,
)
from stagedoor.transports.executables import find_executable
from stagedoor.transports.launch import Confinement, Launch
from stagedoor.transports.relay import LIMIT

from .answers import AcpAnswers
from .commands import (
    AuthenticateRequest,
    Call,
    ClientCapabilities,
    DeleteSessionRequest,
    ForkSessionRequest,
    ListSessionsRequest,
    LoadSessionRequest,
    NewSessionRequest,
    ResumeSessionRequest,
)
from .config import AcpProfile, AcpSessionConfig
from .connection import Connection
from .launch import launch
from .protocol import Reply, method_of
from .responses import (
    ForkSessionResponse,
    ListSessionsResponse,
    LoadSessionResponse,
    NewSessionResponse,
    ResumeSessionResponse,
    SessionListing,
)
from .session import AcpSession
from .updates import KnownBlock

REPLAY_LIMIT = 10**6
"""A replay comes before anybody can read it, so it must not wait for readers."""

UNKNOWN_SESSION = re.compile(r"not found|no such|(unknown|invalid|no previous) session|does not exist", re.IGNORECASE)
IN_THAT_MODE = re.compile(r"already in \w+ mode", re.IGNORECASE)
MAX_PAGES = 1000

OpenRequest: TypeAlias = NewSessionRequest | LoadSessionRequest | ForkSessionRequest


class AcpClient:
    """``command`` is a program name, a whole command line as a sequence, or a ready-made :class:`Launch`.

    ``env`` takes the place of our own environment when given. ``sign_in`` is one of the agent's authentication methods,
    to be gone through at each start; agents that know their user already do not need it. Each session has its own
    process, unless ``share_process`` is true; then all sessions open at a time live in one. ``start_timeout``: seconds
    that it may take to say who it is; ``open_timeout``: to open a session, list them, or sign in. ``confinement``: the
    agent and all that it starts run in a sandbox of ours.
    """

    def __init__(
        self,
        command: str | Sequence[str] | Launch,
        cwd: str | Path = ".",
        env: Mapping[str, str] | None = None,
        *,
        capabilities: ClientCapabilities | None = None,
        profile: AcpProfile | None = None,
        sign_in: str | None = None,
        share_process: bool = False,
        start_timeout: float = 120.0,
        open_timeout: float = 600.0,
        quiet: float | None = None,
        confinement: Confinement | None = None,
    ) -> None:
        self._command = command if isinstance(command, Launch) else _argv(command)
        self._cwd = str(Path(cwd).absolute())
        self._env = env
        self._capabilities = capabilities or ClientCapabilities()
        self._profile = profile or AcpProfile()
        self._sign_in = sign_in
        self._share_process = share_process
        self._start_timeout = start_timeout
        self._open_timeout = open_timeout
        self._quiet = quiet
        self._confinement = confinement
        if confinement is not None and (self._capabilities.write_files or self._capabilities.terminals):
            raise LocalProtocolError("files and terminals that we serve are outside the confinement: offer neither")
        self._shared: Connection | None = None
        self._starting = asyncio.Lock()

    async def create_session(
        self, prompt: str | Sequence[KnownBlock] | None = None, config: AcpSessionConfig | None = None
    ) -> AcpSession:
        """Open a new session and, with a prompt, start its first turn."""
        config = config or AcpSessionConfig()
        meta = UNSET if config.meta is None else dict(config.meta)
        return await self._open(NewSessionRequest(self._cwd, config.mcp_servers, _extra(config), meta), prompt, config)

    async def resume_session(
        self, session_id: str, prompt: str | Sequence[KnownBlock] | None = None, config: AcpSessionConfig | None = None
    ) -> AcpSession:
        """Open a stored session. What is played back of it comes as events with ``replayed`` set."""
        config = config or AcpSessionConfig()
        load = LoadSessionRequest(session_id, self._cwd, config.mcp_servers, _extra(config))
        return await self._open(load, prompt, config)

    async def fork_session(
        self, session_id: str, prompt: str | Sequence[KnownBlock] | None = None, config: AcpSessionConfig | None = None
    ) -> AcpSession:
        """Continue from a copy of a stored session."""
        config = config or AcpSessionConfig()
        fork = ForkSessionRequest(session_id, self._cwd, config.mcp_servers, _extra(config))
        return await self._open(fork, prompt, config)

    @contextlib.asynccontextmanager
    async def connected(self) -> AsyncGenerator[Connection]:
        """The agent after the handshake, before any session: who it is and what it can do."""
        connection = await self._connect()
        try:
            yield connection
        finally:
            await self._disconnect(connection)

    async def list_sessions(self, *, everywhere: bool = False) -> list[SessionListing]:
        """The stored sessions of this client's folder, as the agent lists them."""
        connection = await self._connect()
        try:
            return await self._list(connection, UNSET if everywhere else self._cwd)
        finally:
            await self._disconnect(connection)

    async def delete_session(self, session_id: str) -> None:
        connection = await self._connect()
        try:
            await self._ask(connection, DeleteSessionRequest(session_id))
        except AgentRefused as refused:
            raise await self._explanation(connection, refused, session_id) from refused
        finally:
            await self._disconnect(connection)

    async def _open(
        self,
        request: OpenRequest,
        prompt: str | Sequence[KnownBlock] | None,
        config: AcpSessionConfig,
    ) -> AcpSession:
        connection = await self._connect()
        session: AcpSession | None = None
        try:
            with connection.opening():
                session = await self._opened(connection, request, config)
            await self._prepare(session, request, config)
            if config.ready is not None:
                await config.ready()
            if prompt is not None:
                await session.send(prompt)
        except AgentRefused as refused:
            why: Exception = refused
            if session is None and not isinstance(request, NewSessionRequest):
                why = await self._explanation(connection, refused, request.session_id)
            await self._give_up(connection, session)
            raise why from refused
        except BaseException:
            await self._give_up(connection, session)
            raise
        return session

    async def _give_up(self, connection: Connection, session: AcpSession | None) -> None:
        await (session.cancel() if session is not None else self._disconnect(connection))

    async def _explanation(
        self, connection: Connection, refused: AgentRefused, session_id: str
    ) -> AgentRefused | SessionNotFound:
        """Agents have many words for a session they do not know, some none at all: their list shows it."""
        unknown = UNKNOWN_SESSION.search(str(refused)) is not None
        if not unknown and connection.agent.capabilities.session.list is not None:
            with contextlib.suppress(StagedoorError):
                sessions = await self._list(connection, UNSET)
                unknown = session_id not in [session.session_id for session in sessions]
        if not unknown:
            return refused
        return SessionNotFound(
            f"session {session_id!r} not found: list the agent's sessions, or create one ({refused})"
        )

    async def _ask(self, connection: Connection, command: Call) -> Reply:
        try:
            async with asyncio.timeout(self._open_timeout):
                return await connection.request(command)
        except TimeoutError:
            method, seconds = method_of(command), f"{self._open_timeout:g} s"
            raise LaunchError(
                f"the agent did not answer {method} within {seconds}: start it by hand to see why"
            ) from None

    async def _list(self, connection: Connection, cwd: str | UnsetType) -> list[SessionListing]:
        sessions: list[SessionListing] = []
        cursor: str | None = None
        for _ in range(MAX_PAGES):
            page = await self._ask(connection, ListSessionsRequest(cwd, cursor or UNSET))
            if not isinstance(page, ListSessionsResponse):
                raise RemoteProtocolError("the agent's answer to session/list is not a list of sessions")
            sessions += page.sessions
            cursor = page.next_cursor
            if not cursor or not page.sessions:
                break
        return sessions

    async def _opened(
        self,
        connection: Connection,
        request: OpenRequest,
        config: AcpSessionConfig,
    ) -> AcpSession:
        if config.over_pipes and not connection.agent.capabilities.mcp.http:
            servers = tuple(config.over_pipes.get(server.name, server) for server in request.mcp_servers)
            request = replace(request, mcp_servers=servers)
        command: OpenRequest | ResumeSessionRequest = request
        if isinstance(request, LoadSessionRequest):
            offered = connection.agent.capabilities
            if offered.session.resume is not None and not (config.replay and offered.load_session):
                command = ResumeSessionRequest(
                    request.session_id, request.cwd, request.mcp_servers, request.additional_directories
                )
            elif not offered.load_session:
                raise NotSupported("this agent can neither load nor resume a stored session")
        opened = await self._ask(connection, command)
        answers = AcpAnswers(config, self._profile, self._cwd, self._env, connection.reply)
        match opened:
            case NewSessionResponse() | ForkSessionResponse() | LoadSessionResponse() | ResumeSessionResponse():
                limit = LIMIT if isinstance(opened, NewSessionResponse) else REPLAY_LIMIT
                channel = await connection.join(opened.session_id, answers, limit=limit)
                return AcpSession(connection, channel, opened.session_id, opened)
            case _:
                raise RemoteProtocolError("the agent's answer does not open a session")

    async def _prepare(self, session: AcpSession, request: OpenRequest, config: AcpSessionConfig) -> None:
        if self._profile.replays_after_load and isinstance(request, LoadSessionRequest):
            await session.commands_listed(self._profile.replays_after_load)
        if config.mode is not None:
            try:
                await session.set_mode(config.mode)
            except AgentRefused as refused:
                if not IN_THAT_MODE.search(str(refused)):  # a resumed session may be in it, and say so by refusing
                    raise
        if config.model is not None:
            await session.set_model(config.model)
        if config.effort is not None:  # after the model: what there is to choose from may depend on it
            await session.set_effort(config.effort)
        for config_id, value in config.options.items():
            await session.set_config_option(config_id, value)
        if self._profile.tool_list:
            await session.list_tools(self._profile.tool_list, self._cwd)

    async def _connect(self) -> Connection:
        async with self._starting:
            if self._share_process and self._shared is not None and not self._shared.ended:
                return self._shared
            connection = await Connection.open(
                self._launch(),
                capabilities=self._capabilities,
                profile=self._profile,
                base_env=self._env,
                quiet=self._quiet,
                start_timeout=self._start_timeout,
            )
            if self._sign_in is not None:
                try:
                    await self._ask(connection, AuthenticateRequest(self._sign_in))
                except BaseException:
                    await connection.stop()
                    raise
            if self._share_process:
                self._shared = connection
            return connection

    async def _disconnect(self, connection: Connection) -> None:
        """A connection that serves no session is not kept."""
        if connection.idle:
            await connection.stop()

    def _launch(self) -> Launch:
        if isinstance(self._command, Launch):
            return self._command
        if not Path(self._cwd).is_dir():
            raise LaunchError(f"the working directory {self._cwd!r} does not exist: create it or pass another cwd")
        name = self._command[0]
        executable = find_executable(name, executable=name if "/" in name else None, env=self._env)
        return launch(self._command, cwd=self._cwd, executable=executable, confinement=self._confinement)


def _argv(command: str | Sequence[str]) -> tuple[str, ...]:
    return (command,) if isinstance(command, str) else tuple(command)


def _extra(config: AcpSessionConfig) -> tuple[str, ...] | UnsetType:
    return config.add_dirs or UNSET
