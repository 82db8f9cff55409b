"""The agent's side of the Agent Client Protocol: requests in, sessions and turns out."""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

import msgspec

from stagedoor.testing.script import Script
from stagedoor.wire.jsonrpc import (
    INTERNAL_ERROR,
    INVALID_PARAMS,
    INVALID_REQUEST,
    METHOD_NOT_FOUND,
    Notification,
    Request,
    Response,
    parse,
)
from stagedoor.wire.shapes import Unrecognized, repaired

from .demo import demo
from .link import Link
from .mcp import ServerSpec
from .session import MODES, Session
from .store import Header, Store
from .turn import BadScript, Performer, TurnFailed, perform, script_in

VERSION = "0.1.0"
NOT_FOUND = -32002
MODELS = ("understudy", "understudy-mini")


class Failed(Exception):
    """The request cannot be carried out."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message


class Initialize(msgspec.Struct, frozen=True, rename="camel"):
    protocol_version: int
    client_capabilities: dict[str, Any] | None = None


class Open(msgspec.Struct, frozen=True, rename="camel"):
    """``session/new``, ``load``, ``resume`` and ``fork``."""

    cwd: str
    session_id: str = ""
    additional_directories: list[str] | None = None
    mcp_servers: list[ServerSpec] | None = None


class ListSessions(msgspec.Struct, frozen=True):
    cwd: str | None = None


class Addressed(msgspec.Struct, frozen=True, rename="camel"):
    session_id: str


class SetMode(msgspec.Struct, frozen=True, rename="camel"):
    session_id: str
    mode_id: str


class SetConfigOption(msgspec.Struct, frozen=True, rename="camel"):
    session_id: str
    config_id: str
    value: Any


class Prompt(msgspec.Struct, frozen=True, rename="camel"):
    session_id: str
    prompt: list[dict[str, Any]]

    @property
    def text(self) -> str:
        pieces: list[str] = []
        for block in self.prompt:
            match block:
                case {"type": "text", "text": str(text)} | {"type": "resource", "resource": {"text": str(text)}}:
                    pieces.append(text)
                case _:
                    pass
        return "\n".join(pieces)


class Understudy:
    """``receive`` takes whole messages and never waits; everything that takes time is a task of its own."""

    def __init__(
        self, link: Link, store: Store, script: Script | None = None, routes: Mapping[str, Script] | None = None
    ) -> None:
        self._link = link
        self._store = store
        self._script = script
        self._routes = routes or {}
        self._sessions: dict[str, Session] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._methods: dict[str, tuple[type[Any], Callable[[Any], Awaitable[dict[str, Any]]]]] = {
            "initialize": (Initialize, self._initialize),
            "authenticate": (dict, self._authenticate),
            "session/new": (Open, self._new),
            "session/load": (Open, self._load),
            "session/resume": (Open, self._resume),
            "session/fork": (Open, self._fork),
            "session/list": (ListSessions, self._list),
            "session/close": (Addressed, self._close),
            "session/delete": (Addressed, self._delete),
            "session/set_mode": (SetMode, self._set_mode),
            "session/set_config_option": (SetConfigOption, self._set_config_option),
            "session/prompt": (Prompt, self._prompt),
        }

    def receive(self, message: bytes) -> None:
        match parse(message):
            case Request() as request:
                task = asyncio.get_running_loop().create_task(self._serve(request))
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)
            case Notification(method="session/cancel", params=params):
                # Behind the requests that came before it: the turn it is meant for may not have begun yet.
                asyncio.get_running_loop().call_soon(self._cancel, bytes(params))
            case Response() as response:
                self._link.answered(response)
            case Notification() | Unrecognized():
                pass

    async def end(self) -> None:
        """The client is gone: end every turn and every command."""
        await asyncio.gather(*(session.end() for session in self._sessions.values()))

    async def _serve(self, request: Request) -> None:
        known = self._methods.get(request.method)
        if known is None:
            self._link.refuse(request.id, METHOD_NOT_FOUND, f"Method not found: {request.method}")
            return
        shape, method = known
        try:
            params = _params(bytes(request.params), shape)
            self._link.answer(request.id, await method(params))
        except (msgspec.MsgspecError, UnicodeDecodeError, ValueError) as error:
            self._link.refuse(request.id, INVALID_PARAMS, f"Invalid params: {error}")
        except TurnFailed as failed:
            self._link.refuse(request.id, failed.code, failed.message, failed.details)
        except Failed as failed:
            self._link.refuse(request.id, failed.code, failed.message)
        except Exception as error:  # whatever goes wrong in here, the client is not left waiting
            self._link.refuse(request.id, INTERNAL_ERROR, f"{type(error).__name__}: {error}")

    # ------------------------------------------------------------------------------------------------- the methods

    async def _initialize(self, asked: Initialize) -> dict[str, Any]:
        self._link.client_capabilities = asked.client_capabilities or {}
        there: dict[str, Any] = {}
        return {
            "protocolVersion": 1,
            "agentCapabilities": {
                "loadSession": True,
                "promptCapabilities": {"image": False, "audio": False, "embeddedContext": True},
                "mcpCapabilities": {"http": False, "sse": False},
                "sessionCapabilities": {
                    name: there for name in ("list", "fork", "resume", "close", "delete", "additionalDirectories")
                },
            },
            "agentInfo": {"name": "understudy", "title": "Understudy", "version": VERSION},
            "authMethods": [],
        }

    async def _authenticate(self, asked: dict[str, Any]) -> dict[str, Any]:
        return {}

    async def _new(self, asked: Open) -> dict[str, Any]:
        session = self._session(f"us-{uuid.uuid4().hex}", asked)
        self._store.create(Header(session.session_id, asked.cwd, _now_ms()))
        return self._opened(session) | {"sessionId": session.session_id}

    async def _load(self, asked: Open) -> dict[str, Any]:
        opened = await self._resume(asked)
        session = self._sessions[asked.session_id]
        stored = self._store.load(asked.session_id)
        for update in stored.updates if stored else ():
            session.show(update)
        return opened

    async def _resume(self, asked: Open) -> dict[str, Any]:
        stored = self._store.load(asked.session_id)
        if stored is None:
            raise _unknown(asked.session_id)
        if asked.session_id in self._sessions:
            await self._sessions[asked.session_id].end()
        session = self._session(asked.session_id, asked)
        session.step, session.calls = stored.last("step", 0), stored.last("calls", 0)
        session.mode, session.title = stored.last("mode", "ask"), stored.last("title", "")
        session.route = stored.last("route", "")
        return self._opened(session)

    async def _fork(self, asked: Open) -> dict[str, Any]:
        stored = self._store.load(asked.session_id)
        if stored is None:
            raise _unknown(asked.session_id)
        copy = f"us-{uuid.uuid4().hex}"
        self._store.create(Header(copy, asked.cwd, _now_ms(), asked.session_id), stored.entries)
        opened = await self._resume(msgspec.structs.replace(asked, session_id=copy))
        return opened | {"sessionId": copy}

    async def _list(self, asked: ListSessions) -> dict[str, Any]:
        return {
            "sessions": [
                {
                    "sessionId": one.header.session_id,
                    "cwd": one.header.cwd,
                    "title": one.title or None,
                    "updatedAt": one.updated.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
                }
                for one in self._store.listed()
                if asked.cwd is None or one.header.cwd == asked.cwd
            ]
        }

    async def _close(self, asked: Addressed) -> dict[str, Any]:
        session = self._known(asked.session_id)
        await session.end()
        self._sessions.pop(asked.session_id, None)
        return {}

    async def _delete(self, asked: Addressed) -> dict[str, Any]:
        session = self._sessions.pop(asked.session_id, None)
        if session is not None:
            await session.end()
        if not self._store.delete(asked.session_id):
            raise _unknown(asked.session_id)
        return {}

    async def _set_mode(self, asked: SetMode) -> dict[str, Any]:
        session = self._known(asked.session_id)
        if asked.mode_id not in MODES:
            raise Failed(INVALID_PARAMS, f"There is no mode {asked.mode_id!r}; there are {', '.join(MODES)}.")
        session.mode = asked.mode_id
        session.mark()
        session.show({"sessionUpdate": "current_mode_update", "currentModeId": asked.mode_id})
        return {}

    async def _set_config_option(self, asked: SetConfigOption) -> dict[str, Any]:
        session = self._known(asked.session_id)
        if asked.config_id != "model" or asked.value not in MODELS:
            raise Failed(INVALID_PARAMS, f"The only option is model, with the values {', '.join(MODELS)}.")
        session.model = asked.value
        return {"configOptions": _config_options(session.model)}

    async def _prompt(self, asked: Prompt) -> dict[str, Any]:
        session = self._known(asked.session_id)
        if session.turn is not None:
            raise Failed(INVALID_REQUEST, "A turn is running in this session.")
        text = asked.text
        for block in asked.prompt:
            session.keep({"sessionUpdate": "user_message_chunk", "content": block})
        if not session.title:
            session.name(" ".join(text.split())[:60] or "Untitled")
        return await perform(
            session, self._link, self._routes, lambda performer: self._played(session, text, performer)
        )

    async def _played(self, session: Session, prompt: str, performer: Performer) -> str:
        try:
            given = script_in(prompt)
        except BadScript as bad:
            raise Failed(INVALID_PARAMS, str(bad)) from None
        if given is not None:
            return await performer.whole_script(given)
        asked_for = [mark for mark in self._routes if mark in prompt]
        if asked_for:
            session.route, session.step = max(asked_for, key=len), 0
        script = self._routes.get(session.route, self._script)
        if script is not None and prompt.strip() != "/demo":
            return await performer.session_script(script)
        return await performer.whole_script(demo(session.workspace, prompt))

    def _cancel(self, params: bytes) -> None:
        try:
            session = self._sessions.get(msgspec.json.decode(params, type=Addressed).session_id)
        except msgspec.MsgspecError:
            return
        if session is not None and session.turn is not None:
            session.turn.cancel()

    # ------------------------------------------------------------------------------------------------------ sessions

    def _session(self, session_id: str, asked: Open) -> Session:
        if not Path(asked.cwd).is_absolute() or not Path(asked.cwd).is_dir():
            raise Failed(INVALID_PARAMS, f"The working directory {asked.cwd!r} is not an existing absolute path.")
        more = tuple(asked.additional_directories or ())
        session = Session(session_id, asked.cwd, self._link, self._store, more)
        session.model = MODELS[0]
        session.mcp_specs = {server.name: server for server in asked.mcp_servers or ()}
        self._sessions[session_id] = session
        return session

    def _opened(self, session: Session) -> dict[str, Any]:
        loop = asyncio.get_running_loop()
        commands = [{"name": "demo", "description": "Play the demo"}]
        update = {"sessionUpdate": "available_commands_update", "availableCommands": commands}
        loop.call_soon(lambda: loop.call_soon(session.show, update))  # behind the answer
        modes = [{"id": mode.id, "name": mode.name, "description": mode.description} for mode in MODES.values()]
        return {
            "modes": {"currentModeId": session.mode, "availableModes": modes},
            "configOptions": _config_options(session.model),
        }

    def _known(self, session_id: str) -> Session:
        try:
            return self._sessions[session_id]
        except KeyError:
            raise _unknown(session_id) from None


def _config_options(model: str) -> list[dict[str, Any]]:
    choices = [{"value": value, "name": value.replace("-", " ").title()} for value in MODELS]
    option = {"id": "model", "name": "Model", "category": "model", "type": "select", "currentValue": model}
    return [option | {"options": choices}]


def _unknown(session_id: str) -> Failed:
    return Failed(NOT_FOUND, f"Session not found: {session_id}")


def _params(raw: bytes, shape: type[Any]) -> Any:
    try:
        return msgspec.json.decode(raw, type=shape)
    except (UnicodeDecodeError, msgspec.DecodeError) as error:
        if isinstance(error, msgspec.ValidationError):
            raise
        return msgspec.json.decode(repaired(raw), type=shape)


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
