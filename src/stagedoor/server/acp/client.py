"""One editor: the methods it can call, each with the scope it needs, and the sessions it has open."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

from msgspec.structs import replace

from stagedoor import __version__
from stagedoor.agent_side.link import NOT_FOUND, AgentLink, Answered, Method, MethodRefused
from stagedoor.agent_side.params import (
    AuthenticateParams,
    EnvironmentParams,
    InitializeParams,
    ListSessionsParams,
    LogoutParams,
    McpServerParams,
    NewSessionParams,
    OpenSessionParams,
    PromptParams,
    SessionIdParams,
    SetConfigOptionParams,
    SetModeParams,
)
from stagedoor.dialects.event_parts import iso_time
from stagedoor.errors import BadRequest, SessionEnded, SessionNotFound, StagedoorError, TooMany
from stagedoor.service.service import Service
from stagedoor.service.store import Query, next_cursor
from stagedoor.service.views import Scope, SessionSpec, SessionView
from stagedoor.transports.tasks import TaskOwner
from stagedoor.unified.options import McpServer
from stagedoor.wire.jsonrpc import INVALID_REQUEST

from ..access.devices import Caller, demand
from ..problems import rpc_error
from .choices import Choices, default_choices
from .outbox import Outbox
from .session import EditorLink, EditorSession

_LOG = logging.getLogger("stagedoor.server.acp")
Json: TypeAlias = dict[str, Any]
ENVIRONMENT = "_stagedoor/environment"
PAGE = 50
LEAVE_WITHIN = 10.0
"""Seconds in which the turns of an editor that has left come to their ends, where they end with it."""


class EditorConnection:
    """``receive`` takes its messages, ``run`` sends ours; ``close`` when it has left.

    ``agent``: the one its sessions begin with. ``alone``: nobody but this editor uses the service; what it started ends
    with it. ``same_machine``: it runs on this machine, so that its files are ours.
    """

    def __init__(
        self,
        service: Service,
        caller: Caller,
        send: Callable[[bytes], Awaitable[None]],
        *,
        agent: str = "",
        alone: bool = False,
        same_machine: bool = False,
    ) -> None:
        self.outbox = Outbox(send)
        self.link = AgentLink(self.outbox.put)
        self._service = service
        self._caller = caller
        self._agent = service.agents.check(agent) if agent else ""
        self._editor = EditorLink(service, caller, self.link, self.outbox, alone=alone, same_machine=same_machine)
        self._sessions: dict[str, EditorSession] = {}
        self._tasks = TaskOwner()
        self.link.cancel = self._cancel
        self.link.methods = self._methods()
        self._tasks.start(self.outbox.run())

    def receive(self, message: bytes) -> None:
        self.link.receive(message)

    async def close(self) -> None:
        """The editor has left. Where it was alone, the turns it started are interrupted first."""
        sessions = list(self._sessions.values())
        self._sessions.clear()
        if self._editor.alone:
            await _leave(sessions)
        await self.link.close()
        for session in sessions:
            await session.close()
        await self._tasks.close()

    # ------------------------------------------------------------------------------------------------- the methods

    def _methods(self) -> Mapping[str, Method]:
        methods: dict[str, tuple[type[Any], Callable[[Any], Awaitable[Json | Answered]], Scope]] = {
            "initialize": (InitializeParams, self._initialize, "watch"),
            "authenticate": (AuthenticateParams, self._authenticate, "watch"),
            "logout": (LogoutParams, self._logout, "watch"),
            "session/new": (NewSessionParams, self._new, "run"),
            "session/load": (OpenSessionParams, self._load, "watch"),
            "session/resume": (OpenSessionParams, self._resume, "watch"),
            "session/list": (ListSessionsParams, self._list, "watch"),
            "session/close": (SessionIdParams, self._close, "watch"),
            "session/delete": (SessionIdParams, self._delete, "run"),
            "session/set_mode": (SetModeParams, self._set_mode, "run"),
            "session/set_config_option": (SetConfigOptionParams, self._set_config_option, "run"),
            "session/prompt": (PromptParams, self._prompt, "run"),
        }
        if self._service.shared and self._editor.same_machine:
            # Whoever can set the environment of a program can make it run anything: nobody else is listened to.
            methods[ENVIRONMENT] = (EnvironmentParams, self._environment, "admin")
        return {name: (shape, self._guarded(method, scope)) for name, (shape, method, scope) in methods.items()}

    def _guarded(
        self, method: Callable[[Any], Awaitable[Json | Answered]], scope: Scope
    ) -> Callable[[Any], Awaitable[Json | Answered]]:
        """The rights of the caller before it, the errors of the house in the protocol's words behind it."""

        async def call(params: Any) -> Json | Answered:
            try:
                demand(self._caller, scope)
                return await method(params)
            except MethodRefused:
                raise
            except SessionNotFound as fault:
                raise MethodRefused(NOT_FOUND, str(fault)) from fault
            except SessionEnded as fault:  # its own code means another thing in this protocol
                raise MethodRefused(INVALID_REQUEST, str(fault)) from fault
            except StagedoorError as fault:
                raise MethodRefused(*rpc_error(fault)) from fault
            except Exception as fault:
                _LOG.exception("a request failed")
                raise MethodRefused(*rpc_error(fault)) from fault

        return call

    async def _initialize(self, params: InitializeParams) -> Json:
        self.link.client_capabilities = params.client_capabilities or {}
        sessions: dict[str, Json] = {name: {} for name in ("list", "resume", "close", "delete")}
        return {
            "protocolVersion": 1,
            "agentCapabilities": {
                "loadSession": True,
                "promptCapabilities": {"image": True, "audio": False, "embeddedContext": True},
                "mcpCapabilities": {"http": True, "sse": True},
                "sessionCapabilities": sessions,
            },
            "agentInfo": {"name": "stagedoor", "title": "Stagedoor", "version": __version__},
            "authMethods": [],
        }

    async def _environment(self, params: EnvironmentParams) -> Json:
        self._editor.environment = params.env
        return {}

    async def _authenticate(self, params: AuthenticateParams) -> Json:
        raise BadRequest(
            "there is nothing to authenticate here: the token, or whoever started this program, is enough. Sign the "
            "agent in with its own program; stagedoor doctor shows the command"
        )

    async def _logout(self, params: LogoutParams) -> Json:
        raise BadRequest("there is nobody to log out here: sign the agent out with its own program")

    async def _new(self, params: NewSessionParams) -> Json:
        self._check_room()
        spec = SessionSpec(prompt="", cwd=_absolute(params.cwd), mcp_servers=_servers(params.mcp_servers))
        cwd = str(self._service.sessions.folder_of(spec))
        choices = await default_choices(self._service, self._agent)
        session = EditorSession(self._editor, self._service.sessions.reserve_id(), cwd, choices, spec)
        self._sessions[session.id] = session
        return {"sessionId": session.id, **await session.described()}

    async def _load(self, params: OpenSessionParams) -> Answered:
        session = await self._open(params)
        await session.replay()
        return Answered(await session.described(), session.follow)

    async def _resume(self, params: OpenSessionParams) -> Answered:
        session = await self._open(params)
        await session.listen_from_now()
        return Answered(await session.described(), session.follow)

    async def _open(self, params: OpenSessionParams) -> EditorSession:
        _absolute(params.cwd)
        if params.session_id not in self._sessions:
            self._check_room()
        view = await self._find(params.session_id)
        view = await self._service.sessions.continued(view)
        before = self._sessions.pop(params.session_id, None)
        if before is not None:
            await before.close()
        spec = view.spec or SessionSpec(prompt="")
        if params.mcp_servers:  # an editor that names none leaves the session those it has
            spec = replace(spec, mcp_servers=_servers(params.mcp_servers))
        session = EditorSession(self._editor, params.session_id, view.cwd, Choices.of(view), spec, view)
        self._sessions[session.id] = session
        return session

    async def _list(self, params: ListSessionsParams) -> Json:
        query = Query(
            cwd="" if params.cwd is None else _resolved(params.cwd),
            archived=False,
            cursor=params.cursor or "",
            limit=PAGE,
        )
        views, _ = await self._service.sessions.page(query)
        after = next_cursor(views, query)
        listed = [
            {
                "sessionId": view.id,
                "cwd": view.cwd,
                "title": view.title or None,
                "updatedAt": iso_time(view.updated_at),
                "_meta": {"stagedoor": {"agent": view.agent, "activity": view.activity}},
            }
            for view in views
        ]
        return {"sessions": listed} | ({"nextCursor": after} if after else {})

    async def _close(self, params: SessionIdParams) -> Json:
        session = self._session(params.session_id)
        del self._sessions[params.session_id]
        await _leave([session])
        await session.close()
        return {}

    async def _delete(self, params: SessionIdParams) -> Json:
        session = self._sessions.pop(params.session_id, None)
        if session is not None:
            await session.close()
            if not session.stored_id:
                return {}
        view = await self._find(params.session_id)
        if not view.ended:
            await self._service.sessions.cancel(view.id)
        await self._service.sessions.delete(view.id)
        return {}

    async def _set_mode(self, params: SetModeParams) -> Answered:
        session = self._session(params.session_id)
        await session.choose("mode", params.mode_id)
        return Answered({}, session.show_mode)

    async def _set_config_option(self, params: SetConfigOptionParams) -> Json:
        session = self._session(params.session_id)
        await session.choose(params.config_id, params.value)
        return {"configOptions": (await session.described())["configOptions"]}

    async def _prompt(self, params: PromptParams) -> Json:
        return await self._session(params.session_id).prompt(params.prompt)

    def _cancel(self, session_id: str) -> None:
        session = self._sessions.get(session_id)
        if session is not None and self._caller.may("run"):
            session.cancel()

    # ------------------------------------------------------------------------------------------------------ sessions

    def _session(self, session_id: str) -> EditorSession:
        session = self._sessions.get(session_id)
        if session is None:
            raise SessionNotFound(f"session {session_id!r} is not open here; send session/new, load or resume first")
        return session

    async def _find(self, session_id: str) -> SessionView:
        """By our id, else by that of the agent's own program."""
        view = await self._service.sessions.find(session_id)
        if view is None:
            view = await self._service.stored.find(session_id, take_in=self._caller.may("run"))
        if view is None:
            raise SessionNotFound(f"session {session_id!r} not found; session/list shows those that are stored")
        return view

    def _check_room(self) -> None:
        limit = self._service.settings.limits.subscriptions
        if len(self._sessions) >= limit:
            raise TooMany(f"this editor has {limit} sessions open, the limit; close one with session/close")


async def _leave(sessions: Sequence[EditorSession]) -> None:
    """Interrupt the turns of the editor's own prompts, and wait until they have ended, for a while."""
    for session in sessions:
        if session.in_turn:
            session.cancel()
    try:
        async with asyncio.timeout(LEAVE_WITHIN):
            for session in sessions:
                await session.rest()
    except TimeoutError:
        _LOG.warning("a turn did not end in time and is left to itself")


def _absolute(path: str) -> str:
    if not Path(path).is_absolute():
        raise BadRequest(f"the working directory {path!r} must be an absolute path")
    return path


def _resolved(path: str) -> str:
    """As the log has it: links followed."""
    return os.path.realpath(_absolute(path))


def _servers(servers: list[McpServerParams] | None) -> dict[str, McpServer]:
    """The editor's tool servers in our words."""
    converted: dict[str, McpServer] = {}
    for number, server in enumerate(servers or ()):
        if server.name in converted:
            raise BadRequest(f"mcpServers[{number}]: there are two servers with the name {server.name!r}")
        if not (server.command if server.type == "stdio" else server.url):
            missing = "a command" if server.type == "stdio" else "a url"
            raise BadRequest(f"mcpServers[{number}]: {server.name!r} needs {missing}")
        converted[server.name] = McpServer(
            transport=server.type,
            command=server.command,
            args=tuple(server.args),
            env={variable.name: variable.value for variable in server.env},
            url=server.url,
            headers={header.name: header.value for header in server.headers},
        )
    return converted
