"""The understudy as an ACP agent: its sessions, and what each method of the protocol does with them."""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from stagedoor.agent_side.link import NOT_FOUND, AgentLink, Answered, MethodRefused
from stagedoor.agent_side.params import (
    InitializeParams,
    ListSessionsParams,
    NewSessionParams,
    OpenSessionParams,
    PromptParams,
    SessionIdParams,
    SetConfigOptionParams,
    SetModeParams,
)
from stagedoor.testing.script import Script
from stagedoor.wire.jsonrpc import INVALID_PARAMS, INVALID_REQUEST

from .session import MODES, UnderstudySession
from .store import StoredHeader, UnderstudyStore
from .tools import TOOL_NAMES
from .turn import perform

VERSION = "0.1.0"
MODELS = ("understudy", "understudy-mini")
EFFORTS = ("low", "medium", "high")


class Understudy:
    """Plays ``script``, or the one of ``routes`` whose mark is in the prompt; without a script, a demo."""

    def __init__(
        self,
        link: AgentLink,
        store: UnderstudyStore,
        script: Script | None = None,
        routes: Mapping[str, Script] | None = None,
        without: frozenset[str] = frozenset(),
        readers: frozenset[str] = frozenset(),
    ) -> None:
        self._without = without
        self._readers = readers
        self._link = link
        self._store = store
        self._script = script
        self._routes = routes or {}
        self._sessions: dict[str, UnderstudySession] = {}
        link.cancel = self._cancel
        link.methods = {
            "initialize": (InitializeParams, self._initialize),
            "authenticate": (dict, self._authenticate),
            "session/new": (NewSessionParams, self._new),
            "session/load": (OpenSessionParams, self._load),
            "session/resume": (OpenSessionParams, self._resume),
            "session/fork": (OpenSessionParams, self._fork),
            "session/list": (ListSessionsParams, self._list),
            "session/close": (SessionIdParams, self._close),
            "session/delete": (SessionIdParams, self._delete),
            "session/set_mode": (SetModeParams, self._set_mode),
            "session/set_config_option": (SetConfigOptionParams, self._set_config_option),
            "session/prompt": (PromptParams, self._prompt),
        }

    async def end(self) -> None:
        """The client has left: end every turn and every command."""
        async with asyncio.TaskGroup() as group:
            for session in self._sessions.values():
                group.create_task(session.end())

    # ------------------------------------------------------------------------------------------------- the methods

    async def _initialize(self, params: InitializeParams) -> dict[str, Any]:
        self._link.client_capabilities = params.client_capabilities or {}
        supported: dict[str, Any] = {}
        return {
            "protocolVersion": 1,
            "agentCapabilities": {
                "loadSession": True,
                "promptCapabilities": {"image": False, "audio": False, "embeddedContext": True},
                "mcpCapabilities": {"http": False, "sse": False},
                "sessionCapabilities": {
                    name: supported for name in ("list", "fork", "resume", "close", "delete", "additionalDirectories")
                },
            },
            "agentInfo": {"name": "understudy", "title": "Understudy", "version": VERSION},
            "authMethods": [],
        }

    async def _authenticate(self, params: dict[str, Any]) -> dict[str, Any]:
        return {}

    async def _new(self, params: NewSessionParams) -> Answered:
        session = self._session(f"us-{uuid.uuid4().hex}", params)
        self._store.create(StoredHeader(session.session_id, params.cwd, _now_ms()))
        return self._opened(session, sessionId=session.session_id)

    async def _load(self, params: OpenSessionParams) -> Answered:
        opened = await self._resume(params)
        session = self._sessions[params.session_id]
        stored = self._store.load(params.session_id)
        for update in stored.updates if stored else ():
            session.show(update)
        return opened

    async def _resume(self, params: OpenSessionParams) -> Answered:
        stored = self._store.load(params.session_id)
        if stored is None:
            raise _unknown(params.session_id)
        if params.session_id in self._sessions:
            await self._sessions[params.session_id].end()
        session = self._session(params.session_id, params)
        session.step, session.calls = stored.last("step", 0), stored.last("calls", 0)
        session.mode, session.title = stored.last("mode", "ask"), stored.last("title", "")
        session.route = stored.last("route", "")
        return self._opened(session)

    async def _fork(self, params: OpenSessionParams) -> Answered:
        stored = self._store.load(params.session_id)
        if stored is None:
            raise _unknown(params.session_id)
        copy = f"us-{uuid.uuid4().hex}"
        self._store.create(StoredHeader(copy, params.cwd, _now_ms(), params.session_id), stored.entries)
        await self._resume(msgspec.structs.replace(params, session_id=copy))
        return self._opened(self._sessions[copy], sessionId=copy)

    async def _list(self, params: ListSessionsParams) -> dict[str, Any]:
        return {
            "sessions": [
                {
                    "sessionId": session.header.session_id,
                    "cwd": session.header.cwd,
                    "title": session.title or None,
                    "updatedAt": session.updated.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
                }
                for session in self._store.list()
                if params.cwd is None or session.header.cwd == params.cwd
            ]
        }

    async def _close(self, params: SessionIdParams) -> dict[str, Any]:
        session = self._open_session(params.session_id)
        await session.end()
        self._sessions.pop(params.session_id, None)
        return {}

    async def _delete(self, params: SessionIdParams) -> dict[str, Any]:
        session = self._sessions.pop(params.session_id, None)
        if session is not None:
            await session.end()
        if not self._store.delete(params.session_id):
            raise _unknown(params.session_id)
        return {}

    async def _set_mode(self, params: SetModeParams) -> dict[str, Any]:
        session = self._open_session(params.session_id)
        if params.mode_id not in MODES:
            raise MethodRefused(INVALID_PARAMS, f"unknown mode {params.mode_id!r}: choose one of {', '.join(MODES)}")
        session.mode = params.mode_id
        session.store_progress()
        session.show({"sessionUpdate": "current_mode_update", "currentModeId": params.mode_id})
        return {}

    async def _set_config_option(self, params: SetConfigOptionParams) -> dict[str, Any]:
        session = self._open_session(params.session_id)
        choices = {"model": MODELS, "effort": EFFORTS}.get(params.config_id)
        if choices is None:
            raise MethodRefused(INVALID_PARAMS, "the options are model and effort")
        if params.value not in choices:
            raise MethodRefused(INVALID_PARAMS, f"{params.config_id}: choose one of {', '.join(choices)}")
        if params.config_id == "model":
            session.model = params.value
        else:
            session.effort = params.value
        return {"configOptions": _config_options(session)}

    async def _prompt(self, params: PromptParams) -> dict[str, Any]:
        session = self._open_session(params.session_id)
        if session.turn is not None:
            raise MethodRefused(INVALID_REQUEST, "a turn is running in this session")
        text = params.text
        for block in params.prompt:
            session.store({"sessionUpdate": "user_message_chunk", "content": block})
        if not session.title:
            session.set_title(" ".join(text.split())[:60] or "Untitled")
        return await perform(session, self._link, text, self._script, self._routes)

    def _cancel(self, session_id: str) -> None:
        session = self._sessions.get(session_id)
        if session is not None and session.turn is not None:
            session.turn.cancel()

    # ------------------------------------------------------------------------------------------------------ sessions

    def _session(self, session_id: str, params: NewSessionParams | OpenSessionParams) -> UnderstudySession:
        if not Path(params.cwd).is_absolute() or not Path(params.cwd).is_dir():
            raise MethodRefused(
                INVALID_PARAMS, f"the working directory {params.cwd!r} is not an existing absolute path"
            )
        more = tuple(params.additional_directories or ())
        session = UnderstudySession(session_id, params.cwd, self._link, self._store, more)
        session.model, session.effort, session.without = MODELS[0], EFFORTS[1], self._without
        session.readers = self._readers
        session.mcp_specs = {server.name: server for server in params.mcp_servers or ()}
        self._sessions[session_id] = session
        return session

    def _opened(self, session: UnderstudySession, **members: str) -> Answered:
        commands = [{"name": "demo", "description": "Play the demo"}]
        update = {"sessionUpdate": "available_commands_update", "availableCommands": commands}
        modes = [{"id": mode.id, "name": mode.name, "description": mode.description} for mode in MODES.values()]
        result = {
            **members,
            "modes": {"currentModeId": session.mode, "availableModes": modes},
            "configOptions": _config_options(session),
            "_meta": {"tools": [name for name in TOOL_NAMES if name not in session.without]},
        }
        return Answered(result, lambda: session.show(update))

    def _open_session(self, session_id: str) -> UnderstudySession:
        try:
            return self._sessions[session_id]
        except KeyError:
            raise _unknown(session_id) from None


def _config_options(session: UnderstudySession) -> list[dict[str, Any]]:
    model = {"id": "model", "name": "Model", "category": "model", "currentValue": session.model}
    effort = {"id": "effort", "name": "Effort", "category": "thought_level", "currentValue": session.effort}
    return [model | _choices(MODELS), effort | _choices(EFFORTS)]


def _choices(values: tuple[str, ...]) -> dict[str, Any]:
    named = [{"value": value, "name": value.replace("-", " ").title()} for value in values]
    return {"type": "select", "options": named}


def _unknown(session_id: str) -> MethodRefused:
    return MethodRefused(NOT_FOUND, f"Session not found: {session_id}")


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
