"""Start, resume and list Claude Code sessions."""

from __future__ import annotations

import asyncio
import os
import re
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from ...errors import LaunchError, LocalProtocolError, NotSignedIn, ProcessExited, SessionNotFound
from ...transports.executables import PATIENCE, find_executable
from ...transports.launch import Exited, Launch, Signal
from ...transports.process import ChildProcess
from ...transports.relay import Relay
from ...transports.versions import CheckedVersion, ProvenVersions
from .answers import Delegate
from .commands import ClaudePrompt, McpStatus
from .config import ClaudeSessionConfig, check
from .events import ClaudeResult, SystemInit
from .history import ClaudeStoredSession, list_sessions
from .launch import PERMISSION_SERVER, SURROUNDING, USERS_OWN, initialize, launch
from .session import ClaudeSession, Exchange, Pair

INSTALL = "npm install -g @anthropic-ai/claude-code"
HINTS = ("~/.local/bin", "~/.claude/local", "~/.npm-global/bin", "/usr/local/bin", "/opt/homebrew/bin")
VERSIONS = ProvenVersions("claude", "2.1.85", "2.1.325", INSTALL)
START_PATIENCE = 120.0
SIGN_IN_PATIENCE = 1.0
SIGN_IN = "run `claude` once and sign in with /login, or set ANTHROPIC_API_KEY"


class Credentials(msgspec.Struct, frozen=True, rename="camel"):
    """The output of ``claude auth status``, which does not check whether the key is valid."""

    logged_in: bool = False
    auth_method: str = "none"
    api_provider: str = ""


class ClaudeClient:
    """Claude Code in one working directory. ``env`` replaces this process's environment, whole."""

    def __init__(self, cwd: str | Path, executable: str | None = None, env: Mapping[str, str] | None = None) -> None:
        self.cwd = str(Path(cwd).absolute())
        self._executable = executable
        self._env = env

    async def create_session(
        self, prompt: str | Sequence[Mapping[str, Any]] | None, config: ClaudeSessionConfig | None = None
    ) -> ClaudeSession:
        """Start a session with its first prompt, and return when Claude Code has taken it up.

        Without a prompt the process waits for the first ``send``.
        """
        return await self._start(prompt, config or ClaudeSessionConfig(), resume=None)

    async def resume_session(
        self,
        session_id: str,
        prompt: str | Sequence[Mapping[str, Any]] | None,
        config: ClaudeSessionConfig | None = None,
    ) -> ClaudeSession:
        """Continue a stored session of this working directory; ``SessionNotFound`` when it has none with that id."""
        return await self._start(prompt, config or ClaudeSessionConfig(), resume=session_id)

    async def list_sessions(self) -> list[ClaudeStoredSession]:
        """What Claude Code has stored for this working directory, newest first. ``history`` also tells what it could
        not read."""
        return (await asyncio.to_thread(list_sessions, self.cwd, env=self._env)).sessions

    def find_executable(self) -> str:
        return find_executable("claude", executable=self._executable, env=self._env, install=INSTALL, hints=HINTS)

    async def check_version(self) -> CheckedVersion:
        """The installed version; ``UnsupportedVersion`` when it is older than what was proven."""
        return await VERSIONS.check(self.find_executable(), env=self._env)

    async def auth_status(self) -> Credentials:
        """Whether there are credentials at all (no network)."""
        command = Launch(
            argv=(self.find_executable(), "auth", "status"),
            cwd=self._existing_cwd(),
            env={} if self._env is not None else {name: os.environ[name] for name in USERS_OWN if name in os.environ},
            unset=() if self._env is not None else SURROUNDING,
            stdin="null",
            stop=(Signal(2, 1.0),),
        )
        text = b""
        async with await ChildProcess.start(command, base_env=self._env) as process:
            try:
                async with asyncio.timeout(PATIENCE):
                    async for batch in process.batches():
                        text += b"\n".join(line for line in batch if isinstance(line, bytes))
            except TimeoutError:
                raise LaunchError(f"claude auth status did not end in {PATIENCE:g} seconds; try it yourself") from None
        try:
            return msgspec.json.decode(text, type=Credentials)
        except msgspec.DecodeError:
            raise LaunchError(
                f"cannot read the output of claude auth status: {text[:200]!r}; update it: {INSTALL}"
            ) from None

    async def check_signed_in(self) -> None:
        if not (await self.auth_status()).logged_in:
            raise NotSignedIn(f"Claude Code is not signed in: {SIGN_IN}")

    def _existing_cwd(self) -> str:
        if not Path(self.cwd).is_dir():
            raise LaunchError(f"working directory {self.cwd!r} not found: create it, or pass another cwd")
        return self.cwd

    async def _start(
        self, prompt: str | Sequence[Mapping[str, Any]] | None, config: ClaudeSessionConfig, *, resume: str | None
    ) -> ClaudeSession:
        check(config, resume=resume)
        executable = self.find_executable()
        cwd = self._existing_cwd()
        await self.check_version()
        chosen = config.session_id or (resume if resume is not None and not config.fork_session else str(uuid.uuid4()))
        delegate = await Delegate.open() if config.delegates else None
        try:
            process = await ChildProcess.start(
                launch(
                    config,
                    cwd=cwd,
                    executable=executable,
                    resume=resume,
                    session_id=chosen,
                    permission_server=delegate.entry if delegate else None,
                    inherited=os.environ if self._env is None else None,
                ),
                base_env=self._env,
            )
        except BaseException:
            if delegate is not None:
                delegate.close()
            raise
        relay: Relay[Pair] = Relay()
        exchange = Exchange(process, config, delegate, relay)
        try:
            async with asyncio.timeout(START_PATIENCE):
                await self._introduce(exchange, config, prompt, resume)
        except TimeoutError:
            await exchange.stop(0)
            raise LaunchError(
                f"Claude Code did not start within {START_PATIENCE:g} s; its last error output: {process.stderr_tail!r}"
            ) from None
        except BaseException:
            try:
                await exchange.stop(0)
            finally:
                exchange.abandon()
            raise
        return ClaudeSession(exchange, chosen if not config.continue_session else "")

    async def _introduce(
        self,
        exchange: Exchange,
        config: ClaudeSessionConfig,
        prompt: str | Sequence[Mapping[str, Any]] | None,
        resume: str | None,
    ) -> None:
        """Register what lives in this process, hand over the prompt, and see that the conversation starts."""
        try:
            registration = initialize(config)
            if registration is not None:
                exchange.introduction = await exchange.request(registration)
            for server in (*((PERMISSION_SERVER,) if config.delegates else ()), *config.awaited_servers):
                await _wait_for_server(exchange, server)
            if prompt is None:
                return
            await exchange.send(ClaudePrompt(prompt))
        except ProcessExited:
            pass  # its first event says why
        first = await asyncio.shield(exchange.first_event)
        match first:
            case SystemInit():
                if first.claude_code_version:  # as --version said, unless a wrapper starts another one here
                    VERSIONS.judge(first.claude_code_version)
                await _check_sign_in(exchange, first)
            case ClaudeResult(is_error=True) if resume is not None and any(
                "No conversation" in e for e in first.errors
            ):
                raise SessionNotFound(f"session {resume!r} not found in {self.cwd}; list_sessions() lists the sessions")
            case ClaudeResult():
                if first.errors and any("--resume" in error for error in first.errors):
                    raise SessionNotFound(f"{first.errors[0]} list_sessions() shows the sessions of {self.cwd}")
            case Exited():
                await self._explain(first)

    async def _explain(self, exited: Exited) -> None:
        """Claude Code exited before the conversation started: say why, and what to do."""
        words = exited.stderr.strip()
        if "unknown option" in words or "argument missing" in words:
            raise LocalProtocolError(f"Claude Code does not know that option: {words}; correct extra_args")
        if "already in use" in words:
            raise LocalProtocolError(f"{words} Resume it with resume_session, or choose another session_id")
        if "No conversation found" in words:
            raise SessionNotFound(f"{words}; list_sessions() shows the sessions of {self.cwd}")
        if "root/sudo" in words:
            raise LaunchError(
                f'{words}; if this is a container that holds nothing else, set env={{"IS_SANDBOX": "1"}} in the config'
            )
        if re.search(r"[Ii]nvalid MCP config|MCP config", words):
            raise LocalProtocolError(f"{words}; correct mcp_servers")
        raise ProcessExited(
            f"Claude Code exited with code {exited.code} before the conversation started: {words or 'no error output'}",
            code=exited.code,
            stderr=exited.stderr,
        )


async def _check_sign_in(exchange: Exchange, init: SystemInit) -> None:
    # "none" is also what a subscription login shows; only the next event tells the two apart, and it comes at once.
    if init.api_key_source != "none":
        return
    try:
        async with asyncio.timeout(SIGN_IN_PATIENCE):
            answer = await asyncio.shield(exchange.first_answer)
    except TimeoutError:
        return
    if answer.error == "authentication_failed":
        raise NotSignedIn(f"Claude Code is not signed in: {SIGN_IN}")


async def _wait_for_server(exchange: Exchange, server: str) -> None:
    """Wait until an MCP server is up: Claude Code does not, and would fail at the first question."""
    while True:
        answer: dict[str, list[dict[str, Any]]] = await exchange.request(McpStatus()) or {}
        status = next((s.get("status") for s in answer.get("mcpServers", []) if s.get("name") == server), "missing")
        match status:
            case "connected":
                return
            case "pending":
                await asyncio.sleep(0.05)
            case _:
                way = "use can_use_tool without delegate" if server == PERMISSION_SERVER else "see what it says"
                raise LaunchError(f"the MCP server {server!r} did not start (status: {status}); {way}")
