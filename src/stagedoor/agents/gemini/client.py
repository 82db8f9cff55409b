"""Gemini CLI as a library."""

from __future__ import annotations

import asyncio
import os
import time
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from stagedoor.agents.acp.client import AcpClient
from stagedoor.agents.acp.updates import KnownBlock
from stagedoor.errors import LaunchError, LocalProtocolError, StagedoorError
from stagedoor.transports.executables import find_executable
from stagedoor.transports.launch import Launch
from stagedoor.transports.versions import CheckedVersion, ProvenVersions

from .acp import GeminiAcpSession, acp_config, blocks, make_loadable
from .config import PROFILE, GeminiDriver, GeminiSessionConfig, settings
from .history import GeminiStoredSession, list_sessions
from .launch import acp_failure, check, launch, session_not_found
from .policy import check_policy
from .session import GeminiSession
from .store import PrivateHome, session_files, sweep_stubs, user_folder, user_settings

INSTALL = "npm install -g @google/gemini-cli"
VERSIONS = ProvenVersions("gemini", "0.51.0", "0.61.0", INSTALL)


class GeminiClient:
    """Runs Gemini CLI in ``cwd``. ``env`` takes the place of our own environment when given."""

    def __init__(
        self, cwd: str | Path = ".", executable: str | None = None, env: Mapping[str, str] | None = None
    ) -> None:
        self.cwd = str(Path(cwd).absolute())
        self._executable = executable
        self._env = env

    async def create_session(
        self, prompt: str, config: GeminiSessionConfig | None = None
    ) -> GeminiSession | GeminiAcpSession:
        """Create a session; returns once Gemini has started its first turn."""
        config = config or GeminiSessionConfig()
        if config.chosen_driver is GeminiDriver.ACP:
            return await self._open_acp(prompt, config, None)
        return await self.create_stream_session(prompt, config)

    async def resume_session(
        self, session_id: str, prompt: str, config: GeminiSessionConfig | None = None
    ) -> GeminiSession | GeminiAcpSession:
        """Continue a stored session of this folder."""
        config = config or GeminiSessionConfig()
        if config.chosen_driver is GeminiDriver.ACP:
            return await self._open_acp(prompt, config, session_id)
        return await self.resume_stream_session(session_id, prompt, config)

    async def create_stream_session(self, prompt: str, config: GeminiSessionConfig | None = None) -> GeminiSession:
        """As :meth:`create_session`, for ``stream-json`` only."""
        config = config or GeminiSessionConfig()
        return await self._open_stream(config.session_id or str(uuid.uuid4()), prompt, config, resume=False)

    async def resume_stream_session(
        self, session_id: str, prompt: str, config: GeminiSessionConfig | None = None
    ) -> GeminiSession:
        """As :meth:`resume_session`, for ``stream-json`` only."""
        return await self._open_stream(session_id, prompt, config or GeminiSessionConfig(), resume=True)

    async def create_acp_session(
        self, prompt: str | Sequence[KnownBlock], config: GeminiSessionConfig | None = None
    ) -> GeminiAcpSession:
        """As :meth:`create_session`, for ``--acp`` only; the prompt may have images."""
        return await self._open_acp(prompt, config or GeminiSessionConfig(driver=GeminiDriver.ACP), None)

    async def resume_acp_session(
        self, session_id: str, prompt: str | Sequence[KnownBlock], config: GeminiSessionConfig | None = None
    ) -> GeminiAcpSession:
        return await self._open_acp(prompt, config or GeminiSessionConfig(driver=GeminiDriver.ACP), session_id)

    async def list_sessions(self) -> list[GeminiStoredSession]:
        """The stored sessions of this folder, newest first. Asks the files: the CLI's own listing calls the model.
        ``history`` also tells which could not be read."""
        return (await asyncio.to_thread(list_sessions, self.cwd, env=self._environment)).sessions

    async def check_version(self) -> CheckedVersion:
        """Raises ``UnsupportedVersion`` for a CLI that is older than what was proven."""
        return await VERSIONS.check(self.find(), env=self._env, extra={"GEMINI_CLI_NO_RELAUNCH": "true"})

    def find(self) -> str:
        """The program. Raises ``NotInstalled``."""
        return find_executable(
            "gemini",
            executable=self._executable,
            env=self._environment,
            install=INSTALL,
            hints=("~/.local/bin", "~/.npm-global/bin", "/usr/local/bin", "/opt/homebrew/bin"),
        )

    @property
    def _environment(self) -> Mapping[str, str]:
        return os.environ if self._env is None else self._env

    async def _open_stream(
        self, session_id: str, prompt: str, config: GeminiSessionConfig, *, resume: bool
    ) -> GeminiSession:
        executable = await self._ready(config, resume=resume)
        config = msgspec.structs.replace(config, session_id=None)  # it is chosen; a next turn resumes it
        folder = self._folder(config)
        policies = _policies(config)
        home = self._home(config)

        def plan(text: str, again: bool) -> Launch:  # noqa: FBT001 (a callback of two)
            if config.check_workspace is not None:
                config.check_workspace()
            return launch(
                config,
                cwd=self.cwd,
                executable=executable,
                home=home.path,
                user_folder=str(folder),
                prompt=text,
                resume=session_id if again else None,
                session_id=session_id,
                policies=policies,
            )

        session = GeminiSession(
            session_id, plan, cwd=self.cwd, folder=folder, home=home, env=self._env, quiet=config.stall_after
        )
        try:
            await session.open(prompt, resume=resume)
        except BaseException:
            home.remove()
            raise
        return session

    async def _open_acp(
        self, prompt: str | Sequence[KnownBlock], config: GeminiSessionConfig, resume: str | None
    ) -> GeminiAcpSession:
        executable = await self._ready(config, resume=resume is not None)
        if isinstance(prompt, str) and not prompt.strip():
            raise LocalProtocolError("the prompt is empty: Gemini CLI needs some text")
        folder = self._folder(config)
        policies = _policies(config)
        if resume is not None:
            self._prepare_to_load(resume, folder)
        home = self._home(config)
        try:
            client = AcpClient(
                launch(
                    config,
                    cwd=self.cwd,
                    executable=executable,
                    home=home.path,
                    user_folder=str(folder),
                    policies=policies,
                ),
                self.cwd,
                self._env,
                profile=PROFILE,
                quiet=config.stall_after,
            )
            first = blocks(prompt, config)
            if resume is None:
                acp = await client.create_session(first, acp_config(config))
            else:
                acp = await client.resume_session(resume, first, acp_config(config))
                sweep_stubs(folder, self.cwd, resume)
        except StagedoorError as error:
            home.remove()
            raise acp_failure(error) from error
        except BaseException:
            home.remove()
            raise
        return GeminiAcpSession(acp, config, cwd=self.cwd, folder=folder, home=home)

    def _prepare_to_load(self, session_id: str, folder: Path) -> None:
        sweep_stubs(folder, self.cwd, session_id)
        files = session_files(folder, self.cwd, session_id)
        if not files:
            raise session_not_found(session_id)
        make_loadable(files, time.time())

    async def _ready(self, config: GeminiSessionConfig, *, resume: bool) -> str:
        """Refuse what cannot work before anything is started."""
        self._check(config, resume=resume)
        await self.check_version()
        return self.find()

    def _check(self, config: GeminiSessionConfig, *, resume: bool) -> None:
        if not Path(self.cwd).is_dir():
            raise LaunchError(f"the working directory {self.cwd!r} does not exist: create it or pass another cwd")
        check(config, resume="resume" if resume else None)

    def _home(self, config: GeminiSessionConfig) -> PrivateHome:
        env = {**self._environment, **config.env}
        return PrivateHome(env, settings(config, user_settings(env), env))

    def _folder(self, config: GeminiSessionConfig) -> Path:
        return user_folder({**self._environment, **config.env})


def _policies(config: GeminiSessionConfig) -> dict[str, bytes]:
    """The caller's policy files, read and checked: the CLI would silently run without one that is missing or wrong."""
    policies: dict[str, bytes] = {}
    for number, name in enumerate(config.policy_files):
        try:
            content = Path(name).read_bytes()
        except OSError as error:
            raise LocalProtocolError(f"cannot read the policy file {name!r}: {error.strerror}") from None
        check_policy(content, name)
        policies[f"policy-{number}.toml"] = content
    return policies
