"""Codex as a library: sessions over ``codex exec`` or the app-server, and what is stored of earlier ones."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Coroutine, Mapping
from pathlib import Path
from typing import TypeAlias

from ...errors import LaunchError, NotSupported, SessionNotFound
from ...transports.versions import CheckedVersion, numbers_of
from . import history
from .app_server import CodexAppServer
from .config import CodexSessionConfig, chosen_driver, on_app_server
from .events import ExecEvent
from .launch import check
from .locate import EXEC_FORK_SINCE, VERSIONS, codex_home, environment, find_codex, require_sign_in
from .notifications import AppEvent
from .sessions import CodexExecSession, CodexThread

UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
DEFAULT = CodexSessionConfig()

CodexSession = CodexExecSession | CodexThread
Event: TypeAlias = ExecEvent | AppEvent
"""Everything a Codex session of either driver can yield."""


class CodexClient:
    """Codex in one folder. ``executable`` is looked for on the PATH; ``env``, when given, replaces our environment."""

    def __init__(
        self, cwd: str | Path = ".", executable: str | Path | None = None, env: Mapping[str, str] | None = None
    ) -> None:
        self.cwd = str(Path(cwd).absolute())
        self._executable = None if executable is None else str(executable)
        self._env = env

    async def create_session(self, prompt: str, config: CodexSessionConfig = DEFAULT) -> CodexSession:
        """A new thread, its first turn under way."""
        if chosen_driver(config) == "exec":
            session = await self._exec_session(config)
            await session.start(prompt, images=config.images)
            return session
        server = await self.start_server(config)
        return await _owning(server, server.start_thread(prompt, images=config.images, owned=True))

    async def resume_session(
        self, session_id: str, prompt: str, config: CodexSessionConfig = DEFAULT, *, fork: bool = False
    ) -> CodexSession:
        """Continue a thread by its id or name; with ``fork``, a copy of it. Raises ``SessionNotFound``."""
        thread_id = self._thread_id(session_id, config)
        if chosen_driver(config) == "exec":
            session = await self._exec_session(config)
            if fork and (numbers_of((await self.check_version()).version) or EXEC_FORK_SINCE) < EXEC_FORK_SINCE:
                raise NotSupported("this version of codex exec cannot fork: update Codex, or use driver='app-server'")
            source = thread_id if fork else None
            await session.start(prompt, resume=None if fork else thread_id, fork=source, images=config.images)
            return session
        server = await self.start_server(config)
        begin = server.fork_thread if fork else server.resume_thread
        return await _owning(server, begin(thread_id, prompt, images=config.images, owned=True))

    async def start_server(self, config: CodexSessionConfig = DEFAULT) -> CodexAppServer:
        """An app-server of its own, for several threads in one process."""
        config = on_app_server(config)
        self._check(config)
        executable, native = find_codex(self._executable, self._env)
        server = await CodexAppServer.start(config, cwd=self.cwd, executable=executable, native=native, env=self._env)
        try:
            await server.require_sign_in()
        except BaseException:
            await server.cancel()
            raise
        return server

    async def list_sessions(self, *, everywhere: bool = False) -> list[history.CodexStoredSession]:
        """The stored sessions of this folder, the newest first. ``history`` also tells which could not be read."""
        home = codex_home(environment(DEFAULT, self._env))
        return (await asyncio.to_thread(history.list_sessions, None if everywhere else self.cwd, home=home)).sessions

    async def check_version(self) -> CheckedVersion:
        """Raises ``NotInstalled`` or ``UnsupportedVersion``."""
        executable, _ = find_codex(self._executable, self._env)
        return await VERSIONS.check(executable, env=self._env)

    async def _exec_session(self, config: CodexSessionConfig) -> CodexExecSession:
        self._check(config)
        executable, native = find_codex(self._executable, self._env)
        await VERSIONS.check(executable, env=self._env)
        require_sign_in(config, self._env)
        return CodexExecSession(config, cwd=self.cwd, executable=executable, native=native, env=self._env)

    def _check(self, config: CodexSessionConfig) -> None:
        check(config)
        if not Path(self.cwd).is_dir():
            raise LaunchError(f"working directory {self.cwd!r} not found: create it, or pass another cwd")
        missing = [path for path in config.images if not Path(self.cwd, path).is_file()]
        if missing:
            raise LaunchError(f"image {missing[0]!r} not found")

    def _thread_id(self, session_id: str, config: CodexSessionConfig) -> str:
        """Codex starts a new thread for a name it does not know, so names are looked up here."""
        if UUID.fullmatch(session_id.lower()):
            return session_id.lower()
        home = codex_home(environment(config, self._env))
        named = [thread_id for thread_id, name in history.names(home).items() if name == session_id]
        if not named:
            raise SessionNotFound(
                f"session {session_id!r} not found in Codex: list_sessions() shows those of this folder"
            )
        return named[-1]


async def _owning(server: CodexAppServer, opening: Coroutine[None, None, CodexThread]) -> CodexThread:
    """The server lives for this one thread; when the thread cannot be opened, the server is stopped."""
    try:
        return await opening
    except BaseException:
        await server.cancel()
        raise
