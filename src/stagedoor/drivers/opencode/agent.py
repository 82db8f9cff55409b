"""OpenCode: ``serve`` (a private server that asks), ``run`` (a process a turn, asks nobody), ``acp``.

Its rights: ``unified/opencode/rights.py``.
"""

from __future__ import annotations

import asyncio
import mimetypes
import os
from collections.abc import Iterable, Mapping
from pathlib import Path

from msgspec.structs import replace

from ...agents.acp.protocol import AcpProtocol
from ...agents.acp.requests import RequestPermission
from ...agents.acp.session import AcpSession
from ...agents.opencode import (
    Attachment,
    McpLocal,
    McpRemote,
    OpenCodeClient,
    OpenCodeConfig,
    OpenCodeRunSession,
    OpenCodeSession,
    RunEvent,
    RunProtocol,
    ServeProtocol,
    list_sessions,
)
from ...agents.opencode import Driver as NativeDriver
from ...agents.opencode.credentials import has_credentials
from ...agents.opencode.events import PermissionAsked, QuestionAsked
from ...agents.opencode.failures import INSTALL
from ...agents.opencode.history import find_session
from ...errors import LaunchError, NotSupported, SessionNotFound
from ...transports.launch import Exited
from ...unified.capabilities import Capabilities
from ...unified.decisions import Ask
from ...unified.options import McpServer, Options
from ..acp.recording import AcpRecordingReader
from ..agent import Agent, ArgumentRules, Driver, Package, Presence, ScriptedSetup, StoredSession
from ..inspection import SignIn, inspected
from . import OpenCodeAcpDictionary, RunDictionary, ServeDictionary
from .asking import Asking, is_policed
from .recording import ServeRecordingReader
from .rights import rules, stance_of
from .scripted import scripted_settings
from .stored import read_stored

NAME = "opencode"
TITLE = "OpenCode"
SIGN_IN = "opencode auth login"
NOTES = {
    "sandbox": "OpenCode enforces nothing on a command that runs; readOnly denies every tool that acts",
    "allowed_tools": "only these can be used; write_file and edit_file cannot be told apart, nor glob and list",
    "disallowed_tools": "write_file and edit_file cannot be told apart, nor glob and list",
    "system_prompt": "takes the place of the agent's prompt; what OpenCode adds about the folder stays",
    "cost": "by the prices OpenCode knows; none for a model without prices",
}
RUN = Capabilities(
    thinking=True,
    plan=True,
    mcp_servers=True,
    permissions="none",
    interrupt=True,
    fork=True,
    max_turns=True,
    max_budget=True,
    images=True,
    system_prompt=True,
    allowed_tools=True,
    disallowed_tools=True,
    sandbox=("none", "readOnly"),
    exit_codes=True,
    diffs=True,
    cost=True,
    notes={
        **NOTES,
        "text_deltas": "this mode prints whole messages",
        "permissions": "nobody can be asked: what the tier would ask about is denied; use driver='serve'",
        "subagents": "this mode does not print what sub-agents do",
        "structured_output": "only over serve",
        "append_system_prompt": "only over serve; put more into AGENTS.md",
        "images": "with the first prompt of a session",
        "max_turns": "per prompt: so many model requests",
    },
)
SERVE = replace(
    RUN,
    text_deltas=True,
    subagents=True,
    permissions="all",
    deny_message=True,
    remember_session=True,
    structured_output=True,
    append_system_prompt=True,
    notes={
        **NOTES,
        "permissions": "all that acts, sub-agents' calls too",
        "edit_input": "OpenCode has no way to change a call's input; an edited call is refused",
        "deny_message": "with interrupt the message is not delivered: the turn ends at once",
        "remember_session": "remembered by us, for the same tool and target: OpenCode would remember more than that",
        "images": "with the first prompt of a session",
        "max_turns": "per prompt: so many model requests, sub-agents' not counted",
    },
)
ACP = replace(
    SERVE,
    subagents=False,
    deny_message=False,
    max_turns=False,
    max_budget=False,
    structured_output=False,
    images=False,
    append_system_prompt=False,
    notes={
        **SERVE.notes,
        "subagents": "denied: a sub-agent's question is never forwarded over ACP and would wait for ever",
        "deny_message": "the model is only told that the user rejected the call",
        "max_turns": "its steps are not told over ACP",
        "max_budget": "money is told at the end of a turn only",
        "structured_output": "only over serve",
        "images": "only over serve and run",
        "append_system_prompt": "only over serve; put more into AGENTS.md",
        "usage": "tokens are those of the last step of a turn; the cost is the whole turn's",
    },
)


# ------------------------------------------------------------------------------------------------- configuration


def environment(options: Options) -> dict[str, str] | None:
    """What the agent sees; ``None`` is our own environment as it is."""
    if not options.inherit_env:
        return dict(options.env)
    return {**os.environ, **options.env} if options.env else None


def config_of(options: Options, driver: NativeDriver) -> OpenCodeConfig:
    asks = driver is not NativeDriver.RUN
    settings: dict[str, object] = {}
    if driver is not NativeDriver.SERVE:
        # Elsewhere a refusal cannot say why, and without this it would end the turn.
        settings["experimental"] = {"continue_loop_on_deny": True}
    if options.system_prompt is not None:
        settings["agent"] = {"build": {"prompt": options.system_prompt}}
    return OpenCodeConfig(
        driver=driver,
        model=options.model,
        permission=rules(options, asks=asks, policed=is_policed(options)),
        system=options.append_system_prompt,
        output_schema=options.output_schema,
        most_steps=options.max_turns,
        ask_every_command=asks and stance_of(options) in ("ask", "edit"),
        mcp={name: _server(server) for name, server in options.mcp_servers.items()},
        attachments=attachments(options) if driver is NativeDriver.SERVE else (),
        files=tuple(str(path) for path in _images(options)) if driver is NativeDriver.RUN else (),
        settings=settings,
        extra_args=options.extra_args,
        fork=options.fork,
        stall_after=options.stall_after,
    )


def _server(server: McpServer) -> McpLocal | McpRemote:
    if server.transport == "stdio":
        return McpLocal((server.command, *server.args), dict(server.env))
    return McpRemote(server.url, dict(server.headers))  # it tries both ways to speak HTTP


def _images(options: Options) -> list[Path]:
    found = [Path(options.cwd, name).absolute() for name in options.images]
    for path in found:
        if not (mimetypes.guess_type(path.name)[0] or "").startswith("image/"):
            raise NotSupported(f"{path.name!r} does not look like an image; name a file that ends in .png or .jpg")
        if not path.is_file():
            raise LaunchError(f"there is no image {str(path)!r}; correct images=")
    return found


def attachments(options: Options) -> tuple[Attachment, ...]:
    return tuple(
        Attachment(path.as_uri(), mimetypes.guess_type(path.name)[0] or "", path.name) for path in _images(options)
    )


# --------------------------------------------------------------------------------------------- opening a session


async def open_serve(prompt: str, options: Options, ask: Ask, dictionary: ServeDictionary) -> OpenCodeSession:
    asking = Asking(options, ask, dictionary)
    config = replace(config_of(options, NativeDriver.SERVE), can_use_tool=asking.decide, answer_question=asking.answer)
    dictionary.guarded = config.ask_every_command
    session = await _open(prompt, options, config)
    assert isinstance(session, OpenCodeSession)
    asking.opened(session)
    return session


async def open_run(prompt: str, options: Options, ask: Ask, dictionary: RunDictionary) -> OpenCodeRunSession:
    session = await _open(prompt, options, config_of(options, NativeDriver.RUN))
    assert isinstance(session, OpenCodeRunSession)
    return session


async def open_acp(prompt: str, options: Options, ask: Ask, dictionary: OpenCodeAcpDictionary) -> AcpSession:
    asking = Asking(options, ask, dictionary)
    config = replace(config_of(options, NativeDriver.ACP), can_use_tool=asking.decide)
    dictionary.goes_on = True
    session = await _open(prompt, options, config)
    assert isinstance(session, AcpSession)
    asking.opened(session)
    return session


async def _open(
    prompt: str, options: Options, config: OpenCodeConfig
) -> OpenCodeSession | OpenCodeRunSession | AcpSession:
    env = environment(options)
    client = OpenCodeClient(options.cwd, options.executable, env)
    if options.resume is None:
        return await client.create_session(prompt, config)
    stored = await asyncio.to_thread(find_session, options.resume, env=env)
    if stored is not None and not await asyncio.to_thread(same_folder, stored.cwd, options.cwd):
        belongs = f"the session {options.resume!r} belongs to {stored.cwd}, not to {options.cwd}"
        raise SessionNotFound(f"{belongs}; open it with cwd={stored.cwd!r}")
    return await client.resume_session(options.resume, prompt, config)


def same_folder(one: str, other: str) -> bool:
    return Path(one).resolve() == Path(other).resolve()


class RecordedRun:
    """A recording of ``opencode run``: where it ends, the process did."""

    def __init__(self) -> None:
        self._protocol = RunProtocol()

    def receive(self, message: bytes) -> list[RunEvent]:
        return self._protocol.receive(message)

    def receive_eof(self) -> list[RunEvent]:
        return [*self._protocol.receive_eof(), Exited(0)]


# -------------------------------------------------------------------------------------------------- what is there


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
            cost_usd=one.cost_usd,
            path=one.path,
        )
        for one in list_sessions(cwd, env=env).sessions
    ]


async def inspect(env: Mapping[str, str] | None) -> Presence:
    client = OpenCodeClient(env=env)

    async def sign_in() -> SignIn:
        if await asyncio.to_thread(has_credentials, os.environ if env is None else env):
            return True, "", ""
        return False, "OpenCode has no provider with credentials, and would use its own hosted model", SIGN_IN

    return await inspected(AGENT, client.find, client.check_version, sign_in)


def choose(options: Options) -> str:
    """The server, which streams, asks, and starts once for all turns."""
    return "serve"


AGENT = Agent(
    name=NAME,
    title=TITLE,
    install=INSTALL,
    drivers={
        "serve": Driver(
            "serve",
            SERVE,
            ServeDictionary,
            ServeProtocol,
            open_serve,
            (PermissionAsked, QuestionAsked),
            ServeRecordingReader,
        ),
        "run": Driver("run", RUN, RunDictionary, RecordedRun, open_run),
        "acp": Driver(
            "acp",
            ACP,
            OpenCodeAcpDictionary,
            AcpProtocol,
            open_acp,
            (RequestPermission,),
            lambda _: AcpRecordingReader(),
        ),
    },
    choose_driver=choose,
    list_stored=list_stored,
    read_stored=read_stored,
    inspect=inspect,
    tools=("bash", "read", "write", "edit", "grep", "glob", "webfetch", "websearch"),
    arguments=ArgumentRules(
        reserved={"run": 0, "serve": 0, "acp": 0, "--format": 1}, replaced={"--model": "model", "-m": "model"}
    ),
    package=Package("opencode-ai", "1.18.33"),
    scripted=ScriptedSetup("scripted/scripted-model", scripted_settings),
)
