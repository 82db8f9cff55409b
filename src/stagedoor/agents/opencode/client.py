"""OpenCode as a library."""

from __future__ import annotations

import os
import secrets
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import TypeAlias

import msgspec

from stagedoor.agents.acp.client import AcpClient
from stagedoor.agents.acp.session import AcpSession
from stagedoor.errors import AgentRefused, LaunchError, LocalProtocolError
from stagedoor.transports.executables import find_executable, read_version, require_version
from stagedoor.wire.http import Request

from . import guard, history
from .acp import PROFILE, acp_config
from .commands import CreateSession, ForkSession, Model, OpenSession, Rule
from .config import Driver, OpenCodeConfig
from .failures import INSTALL, LEAST_VERSION, no_provider, unknown_session
from .launch import launch
from .permissions import rules_of
from .run_session import OpenCodeRunSession
from .serve_session import OpenCodeSession
from .server import Server

AnySession: TypeAlias = OpenCodeSession | OpenCodeRunSession | AcpSession
HINTS = ("~/.opencode/bin", "~/.local/bin", "~/.bun/bin", "~/node_modules/.bin")
HOSTED = "opencode"
"""OpenCode's own provider, which it falls back to when there is no other."""

PORT_TRIES = 3
NOT_FOUND = (400, 404)


class _Provider(msgspec.Struct, frozen=True):
    id: str
    models: dict[str, msgspec.Raw] = {}


class _Providers(msgspec.Struct, frozen=True):
    providers: list[_Provider] = []


class _Configured(msgspec.Struct, frozen=True):
    model: str | None = None


class OpenCodeClient:
    """``env`` takes the place of our own environment when given. The driver is chosen by the config of each session."""

    def __init__(
        self,
        cwd: str | Path = ".",
        executable: str | None = None,
        env: Mapping[str, str] | None = None,
        *,
        start_timeout: float = 120.0,
    ) -> None:
        self.cwd = str(Path(cwd).absolute())
        self._executable = executable
        self._env = env
        self._start_timeout = start_timeout

    async def create_session(self, prompt: str | None = None, config: OpenCodeConfig | None = None) -> AnySession:
        """Open a new session and, with a prompt, begin its first turn. The run driver needs the prompt."""
        config = config or OpenCodeConfig()
        self._check_cwd(self.cwd)
        match config.driver:
            case Driver.RUN:
                return await self._run(prompt, config, self.cwd, None)
            case Driver.SERVE:
                return await self._serve(prompt, config, self.cwd, None)
            case Driver.ACP:
                client = self._acp(config, self.cwd)
                return await _begun(await client.create_session(None, acp_config(config)), prompt, config)

    async def resume_session(
        self, session_id: str, prompt: str | None = None, config: OpenCodeConfig | None = None
    ) -> AnySession:
        """Open a stored session where it was stored, or a copy of it when the config says ``fork``."""
        config = config or OpenCodeConfig()
        stored = history.find_session(session_id, env=self._environ)
        if stored is None:
            raise unknown_session(session_id)
        # Everywhere but in the session's own folder `run` waits for ever, while the turn really runs.
        self._check_cwd(stored.cwd)
        match config.driver:
            case Driver.RUN:
                return await self._run(prompt, config, stored.cwd, session_id)
            case Driver.SERVE:
                return await self._serve(prompt, config, stored.cwd, session_id)
            case Driver.ACP:
                client = self._acp(config, stored.cwd)
                opens = client.fork_session if config.fork else client.resume_session
                return await _begun(await opens(session_id, None, acp_config(config)), prompt, config)

    def list_sessions(self) -> history.History:
        """The sessions of this client's folder, newest first."""
        return history.list_sessions(self.cwd, env=self._environ)

    async def check_version(self) -> tuple[int, int, int]:
        """The installed version. Raises ``NotInstalled`` or ``UnsupportedVersion``."""
        found = await read_version(self.find(), env=self._env, extra={"OPENCODE_DISABLE_AUTOUPDATE": "1"})
        require_version("OpenCode", found, LEAST_VERSION, INSTALL)
        return found

    @property
    def _environ(self) -> Mapping[str, str]:
        return os.environ if self._env is None else self._env

    @property
    def _inherited(self) -> str:
        return self._environ.get("OPENCODE_CONFIG_CONTENT", "")

    def find(self) -> str:
        """The program. Raises ``NotInstalled``."""
        return find_executable("opencode", executable=self._executable, env=self._env, install=INSTALL, hints=HINTS)

    def _check_cwd(self, cwd: str) -> None:
        if not Path(cwd).is_dir():
            raise LaunchError(f"the working directory {cwd!r} does not exist; create it or pass another cwd")

    async def _run(
        self, prompt: str | None, config: OpenCodeConfig, cwd: str, resume: str | None
    ) -> OpenCodeRunSession:
        session = OpenCodeRunSession(config, cwd=cwd, executable=self.find(), env=self._env)
        await session.start(prompt or "", resume=resume)
        return session

    def _acp(self, config: OpenCodeConfig, cwd: str) -> AcpClient:
        plan = launch(
            config,
            cwd=cwd,
            executable=self.find(),
            port=free_port(),
            password=secrets.token_urlsafe(24),
            inherited=self._inherited,
        )
        return AcpClient(
            plan,
            cwd,
            self._env,
            profile=PROFILE,
            start_timeout=self._start_timeout,
            quiet=config.stall_after,
        )

    async def _serve(self, prompt: str | None, config: OpenCodeConfig, cwd: str, resume: str | None) -> OpenCodeSession:
        server = await self._server(config, cwd)
        try:
            if config.ask_every_command:
                guard.require_proof(server.process.scratch)
            if config.verify_model:
                await check_model(server, config, cwd)
            await _open(server, config, resume)
            session = OpenCodeSession(server, config)
            if prompt is not None:
                await session.send(prompt, attachments=config.attachments)
        except BaseException:
            await server.stop()
            raise
        return session

    async def _server(self, config: OpenCodeConfig, cwd: str) -> Server:
        executable = self.find()
        for attempt in range(1, PORT_TRIES + 1):
            password = secrets.token_urlsafe(24)
            plan = launch(
                config, cwd=cwd, executable=executable, port=free_port(), password=password, inherited=self._inherited
            )
            try:
                return await Server.start(
                    plan, config, password=password, base_env=self._env, start_timeout=self._start_timeout
                )
            except LaunchError as error:
                # Between our looking and its listening somebody else may have taken the port.
                if attempt == PORT_TRIES or not ("port" in str(error) and "in use" in str(error)):
                    raise
        raise AssertionError("unreachable")


async def _begun(session: AcpSession, prompt: str | None, config: OpenCodeConfig) -> AcpSession:
    try:
        if config.ask_every_command:
            guard.require_proof(session.scratch)
        if prompt is not None:
            await session.send(prompt)
    except BaseException:
        await session.cancel()
        raise
    return session


async def _open(server: Server, config: OpenCodeConfig, resume: str | None) -> None:
    rules: tuple[Rule, ...] = (rules_of(config.permission) if config.permission is not None else ()) + config.rules
    try:
        if resume is None:
            model = Model.parse(config.model) if config.model else None
            await server.say(CreateSession(config.title, config.agent, model, config.variant, rules))
            return
        if config.fork:
            await server.say(ForkSession(resume))
            resume = server.protocol.session_id
        await server.say(OpenSession(resume, rules or None))
    except AgentRefused as refused:
        if resume is not None and refused.code in NOT_FOUND:
            raise unknown_session(resume) from refused
        raise


async def check_model(server: Server, config: OpenCodeConfig, directory: str) -> None:
    """Refuse a model that there is not: once sent, it would stick to the session."""
    query = {"directory": directory}
    # Asked past the protocol: the answer holds the user's keys in clear and is no event.
    answer = await server.http.send(Request("GET", "/config/providers", query=query))
    try:
        offered = {one.id: one.models for one in msgspec.json.decode(answer.body, type=_Providers).providers}
    except (msgspec.DecodeError, UnicodeDecodeError):
        return
    if not answer.ok:
        return
    model = Model.parse(config.model) if config.model else None
    if model is not None:
        if model.provider_id not in offered:
            raise no_provider(model.provider_id)
        if model.model_id not in offered[model.provider_id]:
            few = ", ".join(sorted(offered[model.provider_id])[:20]) or "none"
            raise LocalProtocolError(f"{model.provider_id} has no model {model.model_id!r}; it offers {few}")
        return
    configured = await server.http.send(Request("GET", "/config", query=query))
    with_model = msgspec.json.decode(configured.body, type=_Configured).model if configured.ok else None
    if with_model is None and set(offered) <= {HOSTED}:
        raise no_provider(None)


def free_port() -> int:
    """A port of the loopback address that is free now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
