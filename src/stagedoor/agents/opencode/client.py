"""OpenCode as a library."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import secrets
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import TypeAlias

import msgspec

from stagedoor.agents.acp.client import AcpClient
from stagedoor.agents.acp.session import AcpSession
from stagedoor.errors import AgentRefused, LaunchError, LocalProtocolError, StagedoorError, unknown_model
from stagedoor.transports.executables import find_executable
from stagedoor.transports.versions import CheckedVersion
from stagedoor.wire.http import HttpRequest

from . import history
from .commands import CreateSession, ModelName, OpenCodeForkSession, OpenSession, PermissionRule
from .config import ACP_PROFILE, OpenCodeDriver, OpenCodeSessionConfig, permission_rules
from .launch import GUARD_PROOF, INSTALL, PortInUse, launch, no_provider, unknown_session
from .parts import SessionRecord
from .server import VERSIONS, Server
from .sessions import OpenCodeRunSession, OpenCodeSession, acp_config

AnySession: TypeAlias = OpenCodeSession | OpenCodeRunSession | AcpSession
HINTS = ("~/.opencode/bin", "~/.local/bin", "~/.bun/bin", "~/node_modules/.bin")
HOSTED = "opencode"
"""OpenCode's own provider, its last resort."""

PORT_TRIES = 3
NOT_FOUND = (400, 404)
LISTING = 10.0
"""How long it may take to tell its tools."""


class _OfferedProvider(msgspec.Struct, frozen=True):
    id: str
    models: dict[str, msgspec.Raw] = {}


class _OfferedProviders(msgspec.Struct, frozen=True):
    providers: list[_OfferedProvider] = []


class _OfferedTool(msgspec.Struct, frozen=True):
    id: str


class _ConfiguredModel(msgspec.Struct, frozen=True):
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

    async def create_session(
        self, prompt: str | None = None, config: OpenCodeSessionConfig | None = None
    ) -> AnySession:
        """Open a new session and, with a prompt, start its first turn. The run driver needs the prompt."""
        config = config or OpenCodeSessionConfig()
        await self._ready(self.cwd)
        match config.driver:
            case OpenCodeDriver.RUN:
                return await self._run(prompt, config, self.cwd, None)
            case OpenCodeDriver.SERVE:
                return await self._serve(prompt, config, self.cwd, None)
            case OpenCodeDriver.ACP:
                client = self._acp(config, self.cwd)
                return await _with_prompt(await client.create_session(None, acp_config(config)), prompt, config)

    async def resume_session(
        self, session_id: str, prompt: str | None = None, config: OpenCodeSessionConfig | None = None
    ) -> AnySession:
        """Open a stored session where it was stored, or a copy of it when the config says ``fork``."""
        config = config or OpenCodeSessionConfig()
        stored = history.find_session(session_id, env=self._environ)
        if stored is None:
            raise unknown_session(session_id)
        # Everywhere but in the session's own folder `run` waits for ever, while the turn really runs.
        await self._ready(stored.cwd)
        match config.driver:
            case OpenCodeDriver.RUN:
                return await self._run(prompt, config, stored.cwd, session_id)
            case OpenCodeDriver.SERVE:
                return await self._serve(prompt, config, stored.cwd, session_id)
            case OpenCodeDriver.ACP:
                client = self._acp(config, stored.cwd)
                open_session = client.fork_session if config.fork else client.resume_session
                return await _with_prompt(await open_session(session_id, None, acp_config(config)), prompt, config)

    async def list_sessions(self) -> list[history.OpenCodeStoredSession]:
        """The sessions of this client's folder, newest first. ``history`` also tells which could not be read."""
        return (await asyncio.to_thread(history.list_sessions, self.cwd, env=self._environ)).sessions

    async def check_version(self) -> CheckedVersion:
        """The installed version. Raises ``NotInstalled`` or ``UnsupportedVersion``."""
        return await VERSIONS.check(self.find(), env=self._env, extra={"OPENCODE_DISABLE_AUTOUPDATE": "1"})

    @property
    def _environ(self) -> Mapping[str, str]:
        return os.environ if self._env is None else self._env

    @property
    def _inherited(self) -> str:
        return self._environ.get("OPENCODE_CONFIG_CONTENT", "")

    def find(self) -> str:
        """The program. Raises ``NotInstalled``."""
        return find_executable("opencode", executable=self._executable, env=self._env, install=INSTALL, hints=HINTS)

    async def _ready(self, cwd: str) -> None:
        """Refuse what cannot work before anything is started."""
        _check_cwd(cwd)
        await self.check_version()

    async def _run(
        self, prompt: str | None, config: OpenCodeSessionConfig, cwd: str, resume: str | None
    ) -> OpenCodeRunSession:
        session = OpenCodeRunSession(config, cwd=cwd, executable=self.find(), env=self._env)
        await session.start(prompt or "", resume=resume)
        return session

    def _acp(self, config: OpenCodeSessionConfig, cwd: str) -> AcpClient:
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
            profile=ACP_PROFILE,
            start_timeout=self._start_timeout,
            quiet=config.stall_after,
        )

    async def _serve(
        self, prompt: str | None, config: OpenCodeSessionConfig, cwd: str, resume: str | None
    ) -> OpenCodeSession:
        server = await self._server(config, cwd)
        try:
            if config.ask_every_command:
                require_guard(server.process.scratch)
            if config.verify_model:
                await check_model(server, config, cwd)
            await _open(server, config, resume)
            session = OpenCodeSession(server, config)
            session.tools = await list_tools(server, config, cwd)
            if prompt is not None:
                await session.send(prompt, attachments=config.attachments)
        except BaseException:
            await server.stop()
            raise
        return session

    async def _server(self, config: OpenCodeSessionConfig, cwd: str) -> Server:
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
            except PortInUse:
                if attempt == PORT_TRIES:
                    raise
        raise AssertionError("unreachable")


def _check_cwd(cwd: str) -> None:
    if not Path(cwd).is_dir():
        raise LaunchError(f"working directory {cwd!r} not found: create it or pass another cwd")


async def _with_prompt(session: AcpSession, prompt: str | None, config: OpenCodeSessionConfig) -> AcpSession:
    try:
        if config.ask_every_command:
            require_guard(session.scratch)
        if prompt is not None:
            await session.send(prompt)
    except BaseException:
        await session.cancel()
        raise
    return session


async def _open(server: Server, config: OpenCodeSessionConfig, resume: str | None) -> None:
    rules: tuple[PermissionRule, ...] = config.rules
    if config.permission is not None:
        rules = permission_rules(config.permission) + rules
    try:
        if resume is None:
            model = ModelName.parse(config.model) if config.model else None
            await server.send(CreateSession(config.title, config.agent, model, config.variant, rules))
            return
        if config.fork:
            await server.send(OpenCodeForkSession(resume))
            resume = server.protocol.session_id
        await server.send(OpenSession(resume, rules or None))
    except AgentRefused as refused:
        if resume is not None and refused.code in NOT_FOUND:
            raise unknown_session(resume) from refused
        raise


async def check_model(server: Server, config: OpenCodeSessionConfig, directory: str) -> None:
    """Refuse an unknown model: once sent, it would stick to the session."""
    query = {"directory": directory}
    # Not through the protocol: the answer holds the user's keys in clear and is no event.
    answer = await server.http.send(HttpRequest("GET", "/config/providers", query=query))
    try:
        providers = msgspec.json.decode(answer.body, type=_OfferedProviders).providers
    except (msgspec.DecodeError, UnicodeDecodeError):
        return
    if not answer.ok:
        return
    offered = {provider.id: provider.models for provider in providers}
    model = ModelName.parse(config.model) if config.model else None
    if model is not None:
        if model.provider_id not in offered:
            raise no_provider(model.provider_id)
        if model.model_id not in offered[model.provider_id]:
            names = sorted(offered[model.provider_id])
            raise LocalProtocolError(unknown_model(model.model_id, names, model.provider_id))
        return
    if await _configured_model(server, query) is None and set(offered) <= {HOSTED}:
        raise no_provider(None)


async def list_tools(server: Server, config: OpenCodeSessionConfig, directory: str) -> tuple[str, ...]:
    """The tools that its own code offers the session's model, before permissions take any away. Those of MCP servers
    are not among them. Nothing where it does not tell."""
    query = {"directory": directory}
    try:
        async with asyncio.timeout(LISTING):
            model = await _model_of(server, config, query)
            if model is None:
                return ()
            query |= {"provider": model.provider_id, "model": model.model_id}
            answer = await server.http.send(HttpRequest("GET", "/experimental/tool", query=query))
            tools = msgspec.json.decode(answer.body, type=list[_OfferedTool]) if answer.ok else []
    except (StagedoorError, TimeoutError, msgspec.MsgspecError, UnicodeDecodeError):
        return ()
    return tuple(tool.id for tool in tools)


async def _model_of(server: Server, config: OpenCodeSessionConfig, query: Mapping[str, str]) -> ModelName | None:
    """The one that will answer: asked for, the session's own, or the default."""
    match server.protocol.record:
        case SessionRecord(model={"providerID": str(provider), "id": str(model)}) if config.model is None:
            return ModelName(provider, model)
        case _:
            return ModelName.parse(config.model or await _configured_model(server, query) or "")


async def _configured_model(server: Server, query: Mapping[str, str]) -> str | None:
    configured = await server.http.send(HttpRequest("GET", "/config", query=dict(query)))
    return msgspec.json.decode(configured.body, type=_ConfiguredModel).model if configured.ok else None


def require_guard(scratch: str) -> None:
    """Raise ``LaunchError`` unless the plugin in this folder takes part. OpenCode loads it before it answers."""
    if not (Path(scratch) / GUARD_PROOF).is_file():
        raise LaunchError(
            "OpenCode has not loaded the plugin that makes it ask about every command, and would run some without "
            "asking: remove what turns plugins off (--pure, settings of your organisation) or use an autonomous tier"
        )


def free_port() -> int:
    """A port of the loopback address that is free now. Not one of those that the system gives to whoever asks for any:
    seconds pass until OpenCode opens it."""
    for candidate in (*random.sample(range(20_000, 32_000), 20), 0):
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", candidate))
            port: int = probe.getsockname()[1]
            return port
    raise LaunchError("no port of 127.0.0.1 is free: end programs that listen on many")


# --------------------------------------------------------------------------------------------------------- credentials

_KEYS = ("_API_KEY", "_API_TOKEN", "_AUTH_TOKEN")
_OTHERS = frozenset(
    {"AWS_ACCESS_KEY_ID", "AWS_PROFILE", "AWS_BEARER_TOKEN_BEDROCK", "GOOGLE_APPLICATION_CREDENTIALS", "GITHUB_TOKEN"}
)
_CONFIGURATIONS = ("config.json", "opencode.json", "opencode.jsonc")


def has_credentials(env: Mapping[str, str] | None = None) -> bool:
    """Whether OpenCode has the credentials of any provider: by ``opencode auth login``, by a variable, or in the user's
    configuration. Nothing is called."""
    environ = os.environ if env is None else env
    if any(value and (name.endswith(_KEYS) or name in _OTHERS) for name, value in environ.items()):
        return True
    home = Path(environ.get("HOME") or Path.home())
    data = Path(environ.get("XDG_DATA_HOME") or home / ".local" / "share")
    config = Path(environ.get("XDG_CONFIG_HOME") or home / ".config")
    if _has_entries(environ.get("OPENCODE_AUTH_CONTENT", "")) or _has_entries(_read(data / "opencode" / "auth.json")):
        return True
    configurations = [environ.get("OPENCODE_CONFIG_CONTENT", "")]
    if environ.get("OPENCODE_CONFIG"):
        configurations.append(_read(Path(environ["OPENCODE_CONFIG"])))
    configurations += [_read(config / "opencode" / name) for name in _CONFIGURATIONS]
    return any('"apiKey"' in configuration for configuration in configurations)


def _has_entries(content: str) -> bool:
    try:
        return bool(msgspec.json.decode(content, type=dict[str, msgspec.Raw]))
    except msgspec.DecodeError:
        return False


def _read(path: Path) -> str:
    try:
        return path.read_text("utf-8", "replace")
    except OSError:
        return ""
