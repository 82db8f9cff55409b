"""Our options in Gemini CLI's words, and the start of a session with them."""

from __future__ import annotations

import asyncio
import os
import weakref

import msgspec

from ...agents.acp import PermissionAnswer, RequestPermission
from ...agents.acp.updates import KnownBlock, TextContent
from ...agents.gemini import (
    GeminiAcpSession,
    GeminiClient,
    GeminiDriver,
    GeminiSession,
    GeminiSessionConfig,
    HttpMcpServer,
    McpServer,
    SseMcpServer,
    StdioMcpServer,
    list_sessions,
)
from ...agents.gemini.commands import literal_over_acp
from ...errors import NotSupported, SessionNotFound
from ...mcp.functions import HOST
from ...permissions.ground import is_free_edit
from ...transports.tasks import TaskOwner
from ...unified.decisions import Allow, Ask, Deny
from ...unified.events import PermissionRequest
from ...unified.options import McpServer as Server
from ...unified.options import Options
from ..acp.opening import image_block
from ..confinement import confinement_of, is_confined
from .acp_dictionary import GeminiAcpDictionary
from .rules import DRY_RUN, lists_of, mode_of, readers_of, rules, stance_of
from .state import state_of
from .stream_dictionary import StreamDictionary
from .tools import MCP_NAME
from .trust import PROJECT_PATHS, with_trust


def client_of(options: Options) -> GeminiClient:
    return GeminiClient(options.cwd, options.executable, None if options.inherit_env else dict(options.env))


def is_contained(options: Options) -> bool:
    """Whether the CLI shall run in a container, which it makes itself."""
    return bool(options.env.get("GEMINI_SANDBOX"))


def config_of(options: Options, driver: GeminiDriver) -> GeminiSessionConfig:
    if is_contained(options) and is_confined(options):
        raise NotSupported("a container cannot be started from within confine or workspaceWrite: leave one of them out")
    lists = lists_of(options)
    return GeminiSessionConfig(
        driver=driver,
        approval_mode=mode_of(options),
        model=options.model,
        policy=rules(options, asks=driver is GeminiDriver.ACP),
        max_session_turns=options.max_turns,
        mcp_servers={
            name: _server(server) for name, server in options.mcp_servers.items() if lists.permits_server(name)
        },
        system_prompt=options.system_prompt,
        stall_after=options.stall_after,
        sandbox=is_contained(options),
        env=dict(options.env) if options.inherit_env else {},
        extra_args=options.extra_args,
        confinement=confinement_of(options, state_of, PROJECT_PATHS),
    )


def _server(server: Server) -> McpServer:
    match server.transport:
        case "http":
            return HttpMcpServer(http_url=server.url, headers=server.headers)
        case "sse":
            return SseMcpServer(url=server.url, headers=server.headers)
        case "stdio":
            return StdioMcpServer(command=server.command, args=server.args, env=server.env)


# ------------------------------------------------------------------------------------------------- opening a session


async def open_stream(prompt: str, options: Options, ask: Ask, dictionary: StreamDictionary) -> GeminiSession:
    client = client_of(options)
    config = await asyncio.to_thread(
        with_trust, config_of(options, GeminiDriver.STREAM_JSON), options, _home_of(options)
    )
    if options.resume is None:
        return await client.create_stream_session(prompt, config)
    try:
        return await client.resume_stream_session(options.resume, prompt, config)
    except SessionNotFound as error:
        raise _elsewhere(options, error) from None


async def open_acp(prompt: str, options: Options, ask: Ask, dictionary: GeminiAcpDictionary) -> GeminiAcpSession:
    questions = GeminiQuestions(options, ask, dictionary)
    dictionary.expect_answers()
    client = client_of(options)
    config = await asyncio.to_thread(with_trust, config_of(options, GeminiDriver.ACP), options, _home_of(options))
    config = msgspec.structs.replace(config, can_use_tool=questions.decide)
    first = _with_images(prompt, options)
    try:
        if options.resume is None:
            session = await client.create_acp_session(first, config)
        else:
            session = await client.resume_acp_session(options.resume, first, config)
    except SessionNotFound as error:
        raise _elsewhere(options, error) from None
    questions.session.set_result(weakref.ref(session))
    return session


class GeminiQuestions:
    """Answers the CLI's questions with our caller's decisions."""

    def __init__(self, options: Options, ask: Ask, dictionary: GeminiAcpDictionary) -> None:
        self._stance = stance_of(options)
        self._lists = lists_of(options)
        self._listed = self._lists.limits
        self._readers = {MCP_NAME.format(server=HOST, tool=name) for name in readers_of(options)}
        self._options = options
        self._ask = ask
        self._dictionary = dictionary
        self._tasks = TaskOwner()
        # Weak, because the running connection holds this: a session nobody else holds must end.
        self.session: asyncio.Future[weakref.ref[GeminiAcpSession]] = asyncio.get_running_loop().create_future()

    async def decide(self, question: RequestPermission) -> PermissionAnswer:
        if self._stance == "act" and not self._listed:
            self._dictionary.allow(question.tool_call.tool_call_id)
            return "allow_once"  # even then it asks before it edits a build file
        request = self._dictionary.request(question)
        if self._stance == "edit" and self._is_listed(request) and is_free_edit(request, self._options):
            return "allow_once"
        barred = self._stance == "read" and request.native_name not in self._readers
        decision = Deny(DRY_RUN) if barred else await self._ask(request)
        if isinstance(decision, Allow):
            self._dictionary.allow(question.tool_call.tool_call_id)
            return "allow_once"  # "always" would let more through than this one: all edits, or a whole program
        self._dictionary.refuse(question.tool_call.tool_call_id, decision.message)
        if decision.interrupt:
            self._tasks.start(self._interrupt())
        return "reject_once"

    def _is_listed(self, request: PermissionRequest) -> bool:
        return not self._listed or not self._lists.refusal(request)

    async def _interrupt(self) -> None:
        session = (await self.session)()
        if session is not None:
            await session.interrupt()


def _home_of(options: Options) -> str | None:
    env = {**os.environ, **options.env} if options.inherit_env else options.env
    return env.get("HOME")


def _with_images(prompt: str, options: Options) -> str | list[KnownBlock]:
    if not options.images:
        return prompt
    return [TextContent(literal_over_acp(prompt)), *(image_block(options.cwd, name) for name in options.images)]


def _elsewhere(options: Options, error: SessionNotFound) -> SessionNotFound:
    """Where the session is, if it is another directory's: the CLI resumes it only there."""
    env = dict(options.env) if not options.inherit_env else {**os.environ, **options.env}
    sessions = list_sessions(None, env=env).sessions
    places = [session.cwd for session in sessions if session.session_id == options.resume]
    if not places:
        return error
    return SessionNotFound(f"session {options.resume!r} belongs to {places[0]!r}: pass cwd={places[0]!r} to resume it")
