"""Gemini CLI: ``acp`` (one process that asks), and ``stream-json`` (a process for each turn, which asks nobody)."""

from __future__ import annotations

import asyncio
import base64
import mimetypes
import os
import weakref
from collections.abc import Iterable, Mapping
from pathlib import Path

import msgspec
from msgspec.structs import replace

from ...agents.acp import PermissionAnswer, RequestPermission
from ...agents.acp.content import ImageContent, KnownBlock, TextContent
from ...agents.acp.protocol import AcpProtocol
from ...agents.gemini import Driver as NativeDriver
from ...agents.gemini import (
    GeminiAcpSession,
    GeminiClient,
    GeminiConfig,
    GeminiSession,
    HttpServer,
    McpServer,
    SseServer,
    StdioServer,
    StreamProtocol,
    list_sessions,
)
from ...agents.gemini.client import INSTALL
from ...agents.gemini.commands import literal_over_acp
from ...agents.gemini.home import user_folder, user_settings
from ...agents.gemini.settings import chosen_auth
from ...errors import LaunchError, NotSupported, SessionNotFound
from ...unified.capabilities import Capabilities
from ...unified.decisions import Allow, Ask, Deny
from ...unified.options import McpServer as Server
from ...unified.options import Options
from ..acp.recording import AcpRecordingReader
from ..agent import Agent, ArgumentRules, Driver, Package, Presence, ScriptedSetup, StoredSession
from ..inspection import SignIn, inspected
from . import GeminiAcpDictionary, StreamDictionary
from .recording import StreamRecordingReader
from .rules import DRY_RUN, MODES, Stance, rules, stance_of
from .scripted import scripted_settings
from .stored import read_stored

NAME = "gemini"
NOTES = {
    "cost": "the CLI tells tokens, not money",
    "max_budget": "the CLI tells tokens, not money",
    "fork": "the CLI cannot branch a stored session",
    "structured_output": "the CLI has no output schema",
    "append_system_prompt": "the CLI only replaces its prompt; put more into GEMINI.md",
    "subagents": "the CLI does not tell what its sub-agents do",
    "sandbox": "readOnly is enforced by policy; others need a container (GEMINI_SANDBOX=docker), by stream-json only",
    "images": "only over acp",
}
STREAM = Capabilities(
    text_deltas=True,
    plan=True,
    mcp_servers=True,
    permissions="none",
    interrupt=True,
    max_turns=True,
    system_prompt=True,
    allowed_tools=True,
    disallowed_tools=True,
    sandbox=("none", "readOnly", "fullAccess"),
    exit_codes=True,
    diffs=True,
    notes={
        **NOTES,
        "permissions": "a headless run asks nobody: what the tier would ask about is refused; use driver='acp'",
        "autonomous": "the CLI refuses to edit build files (package.json, Makefile, …) in a headless run; use acp",
        "thinking": "not printed in this mode",
    },
)
ACP = replace(
    STREAM,
    thinking=True,
    permissions="all",
    remember_session=True,
    images=True,
    notes={
        **NOTES,
        "permissions": "all that acts, commands the CLI takes for harmless included; a tool the mode does not offer "
        "is not asked about and not reported, only the model is told",
        "edit_input": "the protocol has no way to change a call's input; an edited call is refused",
        "deny_message": "the model is only told that the user cancelled the call",
        "remember_session": "remembered by us, for the same tool and target: the CLI would remember more than that",
        "max_turns": "the CLI counts the model turns of all prompts of a session together",
    },
)


def client_of(options: Options) -> GeminiClient:
    return GeminiClient(options.cwd, options.executable, None if options.inherit_env else dict(options.env))


def is_contained(options: Options) -> bool:
    """Whether the CLI is to run in a container, which it makes itself."""
    return bool(options.env.get("GEMINI_SANDBOX"))


def config_of(options: Options, driver: NativeDriver) -> GeminiConfig:
    return GeminiConfig(
        driver=driver,
        approval_mode=MODES[stance_of(options)],
        model=options.model,
        policy=rules(options, asks=driver is NativeDriver.ACP),
        max_session_turns=options.max_turns,
        mcp_servers={name: _server(server) for name, server in options.mcp_servers.items()},
        system_prompt=options.system_prompt,
        quiet=options.stall_after,
        sandbox=is_contained(options),
        env=dict(options.env) if options.inherit_env else {},
        extra_args=options.extra_args,
    )


def _server(server: Server) -> McpServer:
    match server.transport:
        case "http":
            return HttpServer(http_url=server.url, headers=server.headers)
        case "sse":
            return SseServer(url=server.url, headers=server.headers)
        case "stdio":
            return StdioServer(command=server.command, args=server.args, env=server.env)


# ------------------------------------------------------------------------------------------------- opening a session


async def open_stream(prompt: str, options: Options, ask: Ask, dictionary: StreamDictionary) -> GeminiSession:
    client, config = client_of(options), config_of(options, NativeDriver.STREAM_JSON)
    if options.resume is None:
        return await client.create_stream_session(prompt, config)
    try:
        return await client.resume_stream_session(options.resume, prompt, config)
    except SessionNotFound as error:
        raise _elsewhere(options, error) from None


async def open_acp(prompt: str, options: Options, ask: Ask, dictionary: GeminiAcpDictionary) -> GeminiAcpSession:
    asking = _Asking(stance_of(options), ask, dictionary)
    client = client_of(options)
    config = msgspec.structs.replace(config_of(options, NativeDriver.ACP), can_use_tool=asking.decide)
    first = _with_images(prompt, options)
    try:
        if options.resume is None:
            session = await client.create_acp_session(first, config)
        else:
            session = await client.resume_acp_session(options.resume, first, config)
    except SessionNotFound as error:
        raise _elsewhere(options, error) from None
    asking.session.set_result(weakref.ref(session))
    return session


class _Asking:
    """Answers the CLI's questions with our caller's decisions."""

    def __init__(self, stance: Stance, ask: Ask, dictionary: GeminiAcpDictionary) -> None:
        self._stance = stance
        self._ask = ask
        self._dictionary = dictionary
        self._interrupting: set[asyncio.Task[None]] = set()
        # Weak, because the running connection holds this: a session nobody else holds is to end.
        self.session: asyncio.Future[weakref.ref[GeminiAcpSession]] = asyncio.get_running_loop().create_future()

    async def decide(self, asked: RequestPermission) -> PermissionAnswer:
        if self._stance == "act":
            return "allow_once"  # even then it asks before it edits a build file
        request = self._dictionary.request(asked)
        decision = Deny(DRY_RUN) if self._stance == "read" else await self._ask(request)
        if isinstance(decision, Allow):
            return "allow_once"  # "always" would let more through than this one: all edits, or a whole program
        self._dictionary.refuse(asked.tool_call.tool_call_id, decision.message)
        if decision.interrupt:
            task = asyncio.get_running_loop().create_task(self._interrupt())
            self._interrupting.add(task)
            task.add_done_callback(self._interrupting.discard)
        return "reject_once"

    async def _interrupt(self) -> None:
        session = (await self.session)()
        if session is not None:
            await session.interrupt()


def _with_images(prompt: str, options: Options) -> str | list[KnownBlock]:
    if not options.images:
        return prompt
    return [TextContent(literal_over_acp(prompt)), *(_image(options.cwd, name) for name in options.images)]


def _image(cwd: str, name: str) -> ImageContent:
    kind = mimetypes.guess_type(name)[0] or ""
    if not kind.startswith("image/"):
        raise NotSupported(f"{name!r} does not look like an image; name a file that ends in .png, .jpg, .webp or .gif")
    try:
        content = (Path(cwd) / name).read_bytes()
    except OSError as error:
        raise LaunchError(f"cannot read the image {name!r}: {error.strerror}") from None
    return ImageContent(base64.b64encode(content).decode(), kind)


def _elsewhere(options: Options, error: SessionNotFound) -> SessionNotFound:
    """Where the session is, if it is another directory's: the CLI resumes it only there."""
    env = dict(options.env) if not options.inherit_env else {**os.environ, **options.env}
    places = [one.cwd for one in list_sessions(None, env=env).sessions if one.session_id == options.resume]
    if not places:
        return error
    return SessionNotFound(f"session {options.resume} belongs to {places[0]!r}; pass cwd={places[0]!r} to resume it")


# ------------------------------------------------------------------------------------------------- what is there


def list_stored(cwd: str, env: Mapping[str, str] | None) -> Iterable[StoredSession]:
    return [
        StoredSession(
            agent=NAME,
            session_id=one.session_id,
            cwd=one.cwd,
            title=one.title,
            first_prompt=one.first_prompt,
            messages=one.message_count,
            model=one.model or "",
            started_ms=one.started_ms,
            updated_ms=one.updated_ms,
            tokens=one.tokens,
            path=one.path,
        )
        for one in list_sessions(cwd, env=env).sessions
    ]


async def inspect(env: Mapping[str, str] | None) -> Presence:
    client = GeminiClient(env=env)
    environ = os.environ if env is None else env
    return await inspected(AGENT, client.find, client.check_version, lambda: sign_in(environ))


def sign_in(env: Mapping[str, str]) -> SignIn:
    """Whether the CLI has what it needs to sign in, what is wrong, and what to do. No model is called."""
    folder = user_folder(env)
    key = bool(env.get("GEMINI_API_KEY")) or _in_env_file(folder.parent) or _in_env_file(folder)
    chosen = chosen_auth(user_settings(env))
    set_key = "set GEMINI_API_KEY to a key from Google AI Studio"
    match chosen:
        case "gateway":
            return False, "sign-in by gateway does not work headlessly", "choose another with: gemini, then /auth"
        case "oauth-personal":
            if (folder / "oauth_creds.json").exists():
                return True, "", ""
            return None, "", ""  # newer versions keep them in the system's keychain
        case "gemini-api-key" | "" if key:
            return True, "", ""
        case "gemini-api-key":
            return None, "", ""  # the keychain again
        case "":
            if env.get("GOOGLE_GENAI_USE_VERTEXAI") == "true" or env.get("GOOGLE_GENAI_USE_GCA") == "true":
                return None, "", ""
            return False, "Gemini CLI is not signed in", f"{set_key}, or run gemini once and choose how to sign in"
        case _:
            return None, "", ""


def _in_env_file(folder: Path) -> bool:
    try:
        return "GEMINI_API_KEY=" in (folder / ".env").read_text("utf-8", "replace")
    except OSError:
        return False


def _recorded(dictionary: GeminiAcpDictionary) -> AcpRecordingReader:
    return AcpRecordingReader(dictionary.refuse, lasting=("proceed_always_and_save",))


AGENT = Agent(
    name=NAME,
    title="Gemini CLI",
    install=INSTALL,
    drivers={
        "acp": Driver("acp", ACP, GeminiAcpDictionary, AcpProtocol, open_acp, (RequestPermission,), _recorded),
        "stream-json": Driver(
            "stream-json", STREAM, StreamDictionary, StreamProtocol, open_stream, recording=StreamRecordingReader
        ),
    },
    # It asks where there is somebody to ask, edits build files, and starts once for all turns.
    # From a container of its own it can only do the other.
    choose_driver=lambda options: "stream-json" if is_contained(options) else "acp",
    list_stored=list_stored,
    read_stored=read_stored,
    inspect=inspect,
    tools=(
        "run_shell_command",
        "read_file",
        "write_file",
        "replace",
        "grep_search",
        "glob",
        "web_fetch",
        "google_web_search",
    ),
    arguments=ArgumentRules(
        reserved={
            "-p": 1,
            "--prompt": 1,
            "-o": 1,
            "--output-format": 1,
            "--non-interactive": 0,
            "--acp": 0,
            "--experimental-acp": 0,
        },
        replaced={
            "--yolo": "skip_permissions: true",
            "-y": "skip_permissions: true",
            "--approval-mode": "tier or approval",
            "--sandbox": "sandbox",
            "-s": "sandbox",
            "--model": "model",
            "-m": "model",
        },
    ),
    own_sandboxes={"docker": {"GEMINI_SANDBOX": "docker"}, "podman": {"GEMINI_SANDBOX": "podman"}},
    package=Package("@google/gemini-cli", "0.61.0"),
    scripted=ScriptedSetup("gemini-2.5-flash", scripted_settings),
)
