"""Opens OpenCode's sessions: our options in its words, and its questions answered with our caller's decisions.

Its permissions: ``rights``.
"""

from __future__ import annotations

import asyncio
import contextlib
import mimetypes
import os
import weakref
from collections.abc import Callable, Sequence
from pathlib import Path

from msgspec.structs import replace

from ...agents.acp.requests import RequestPermission
from ...agents.acp.session import AcpSession
from ...agents.opencode.client import OpenCodeClient
from ...agents.opencode.commands import Attachment
from ...agents.opencode.config import (
    McpLocal,
    McpRemote,
    OpenCodeAllow,
    OpenCodeDecision,
    OpenCodeDriver,
    OpenCodeReject,
    OpenCodeSessionConfig,
)
from ...agents.opencode.events import PermissionAsked, QuestionAsked, RunEvent
from ...agents.opencode.history import find_session
from ...agents.opencode.protocol import RunProtocol
from ...agents.opencode.sessions import OpenCodeRunSession, OpenCodeSession
from ...errors import LaunchError, NotSupported, SessionNotFound
from ...permissions.ground import is_free_edit
from ...transports.launch import Exited
from ...transports.tasks import TaskOwner
from ...unified.decisions import Allow, Ask, Deny
from ...unified.events import PermissionRequest
from ...unified.options import McpServer, Options
from ..confinement import confinement_of
from ..policing import is_policed
from .acp_dictionary import OpenCodeAcpDictionary
from .rights import lists_of, offered, rules, stance_of
from .run_dictionary import RunDictionary
from .serve_dictionary import ServeDictionary, answers_in
from .state import state_of
from .trust import PROJECT_PATHS, refuse_plugins, with_trust

CALL_WAIT = 5.0
"""How long a question waits for the input of its call, which it may overtake; on a busy machine by seconds."""

# ------------------------------------------------------------------------------------------------------- configuration


def environment(options: Options) -> dict[str, str] | None:
    """What the agent gets; ``None`` is our own environment as it is."""
    if not options.inherit_env:
        return dict(options.env)
    return {**os.environ, **options.env} if options.env else None


def client_of(options: Options) -> OpenCodeClient:
    return OpenCodeClient(options.cwd, options.executable, environment(options))


def config_of(options: Options, driver: OpenCodeDriver) -> OpenCodeSessionConfig:
    asks, lists = driver is not OpenCodeDriver.RUN, lists_of(options)
    settings: dict[str, object] = {}
    if driver is not OpenCodeDriver.SERVE:
        # Elsewhere a refusal carries no reason, and without this it would end the turn.
        settings["experimental"] = {"continue_loop_on_deny": True}
    if options.system_prompt is not None:
        settings["agent"] = {"build": {"prompt": options.system_prompt}}
    return OpenCodeSessionConfig(
        driver=driver,
        model=options.model,
        variant=options.effort,
        permission=rules(options, asks=asks, policed=is_policed(options)),
        append_system_prompt=options.append_system_prompt,
        output_schema=options.output_schema,
        most_steps=options.max_turns,
        ask_every_command=asks and stance_of(options) in ("ask", "edit"),
        mcp_servers={
            name: _server(server) for name, server in options.mcp_servers.items() if lists.permits_server(name)
        },
        attachments=attachments(options) if driver is OpenCodeDriver.SERVE else (),
        files=tuple(str(path) for path in _images(options)) if driver is OpenCodeDriver.RUN else (),
        settings=settings,
        extra_args=options.extra_args,
        confinement=confinement_of(options, state_of, PROJECT_PATHS),
        fork=options.fork,
        stall_after=options.stall_after,
    )


def _server(server: McpServer) -> McpLocal | McpRemote:
    if server.transport == "stdio":
        return McpLocal((server.command, *server.args), dict(server.env))
    return McpRemote(server.url, dict(server.headers))  # it tries both ways to speak HTTP


def _images(options: Options) -> list[Path]:
    paths = [Path(options.cwd, name).absolute() for name in options.images]
    for path in paths:
        if not (mimetypes.guess_type(path.name)[0] or "").startswith("image/"):
            raise NotSupported(f"{path.name!r} is not an image: pass a file that ends in .png or .jpg")
        if not path.is_file():
            raise LaunchError(f"image {str(path)!r} not found: check images=")
    return paths


def attachments(options: Options) -> tuple[Attachment, ...]:
    return tuple(
        Attachment(path.as_uri(), mimetypes.guess_type(path.name)[0] or "", path.name) for path in _images(options)
    )


# --------------------------------------------------------------------------------------------- opening a session


async def open_serve(prompt: str, options: Options, ask: Ask, dictionary: ServeDictionary) -> OpenCodeSession:
    decisions = CallerDecisions(options, ask, dictionary)
    config = config_of(options, OpenCodeDriver.SERVE)
    config = replace(config, can_use_tool=decisions.decide, answer_question=decisions.answer)
    dictionary.guarded = config.ask_every_command
    session = await _open(prompt, options, config)
    assert isinstance(session, OpenCodeSession)
    granted = rules(options, asks=True, policed=is_policed(options))
    dictionary.tools = offered(session.tools, granted, lists_of(options))
    decisions.attach(session)
    return session


async def open_run(prompt: str, options: Options, ask: Ask, dictionary: RunDictionary) -> OpenCodeRunSession:
    session = await _open(prompt, options, config_of(options, OpenCodeDriver.RUN))
    assert isinstance(session, OpenCodeRunSession)
    return session


async def open_acp(prompt: str, options: Options, ask: Ask, dictionary: OpenCodeAcpDictionary) -> AcpSession:
    decisions = CallerDecisions(options, ask, dictionary)
    config = replace(config_of(options, OpenCodeDriver.ACP), can_use_tool=decisions.decide)
    dictionary.continues_after_refusal = True
    session = await _open(prompt, options, config)
    assert isinstance(session, AcpSession)
    decisions.attach(session)
    return session


async def _open(
    prompt: str, options: Options, config: OpenCodeSessionConfig
) -> OpenCodeSession | OpenCodeRunSession | AcpSession:
    env = environment(options)
    await asyncio.to_thread(refuse_plugins, options, (os.environ if env is None else env).get("HOME"))
    config = with_trust(config, options)
    client = client_of(options)
    if options.resume is None:
        return await client.create_session(prompt, config)
    stored = await asyncio.to_thread(find_session, options.resume, env=env)
    if stored is not None and not await asyncio.to_thread(same_folder, stored.cwd, options.cwd):
        problem = f"session {options.resume!r} belongs to {stored.cwd}, not to {options.cwd}"
        raise SessionNotFound(f"{problem}: open it with cwd={stored.cwd!r}")
    return await client.resume_session(options.resume, prompt, config)


def same_folder(first: str, second: str) -> bool:
    return Path(first).resolve() == Path(second).resolve()


class RecordedRun:
    """A recording of ``opencode run``: where it ends, the process did."""

    def __init__(self) -> None:
        self._protocol = RunProtocol()

    def receive(self, message: bytes) -> list[RunEvent]:
        return self._protocol.receive(message)

    def receive_eof(self) -> list[RunEvent]:
        return [*self._protocol.receive_eof(), Exited(0)]


# ----------------------------------------------------------------------------------------------------------- questions


class CallerDecisions:
    """Answers OpenCode's questions with our caller's decisions."""

    def __init__(self, options: Options, ask: Ask, dictionary: ServeDictionary | OpenCodeAcpDictionary) -> None:
        listed = lists_of(options).limits  # then every question goes through the lists
        self._allows_edits = stance_of(options) == "edit" and not is_policed(options) and not listed
        self._options = options
        self._ask = ask
        self._dictionary = dictionary
        self._allowed: set[str] = set()
        self._new_call = asyncio.Event()
        dictionary.on_call = self._on_call
        self._tasks = TaskOwner()
        # Weak, because the running server holds this object: a session that nobody else holds must end.
        self._session: asyncio.Future[weakref.ref[OpenCodeSession | AcpSession]]
        self._session = asyncio.get_running_loop().create_future()

    def attach(self, session: OpenCodeSession | AcpSession) -> None:
        """The session that a refusal may interrupt."""
        self._session.set_result(weakref.ref(session))

    async def decide(self, question: PermissionAsked | RequestPermission) -> OpenCodeDecision:
        request = await self._request(question)
        # One call may be asked about twice: for leaving the project, and for what it does.
        if request.tool_use_id and request.tool_use_id in self._allowed:
            return OpenCodeAllow()
        decision = Allow() if self._is_free(request) else await self._ask(request)
        match decision:
            case Allow(updated_input=changed) if changed is not None and changed != request.input:
                return OpenCodeReject("OpenCode cannot run a call with changed input, so it was not run at all")
            case Allow():
                self._allowed.add(request.tool_use_id)
                return OpenCodeAllow()  # "always" would allow more than this one
            case Deny(interrupt=True):
                self._interrupt()
                return OpenCodeReject()
            case Deny():
                return OpenCodeReject(decision.message or "The user refused this call.")

    async def answer(self, question: QuestionAsked) -> Sequence[Sequence[str]] | None:
        dictionary = self._dictionary
        assert isinstance(dictionary, ServeDictionary)
        await self._wait_for_call(lambda: dictionary.has_call_of(question))
        match await self._ask(dictionary.request(question)):
            case Allow(updated_input=arguments):
                answers = answers_in(question, arguments)
                explanation = "The user gave no answer: decide yourself."
            case Deny(interrupt=True):
                self._interrupt()
                return None
            case Deny(message=message):
                # Rejecting it would end the turn.
                answers, explanation = None, f"The user does not want to answer. {message}".strip()
        return answers if answers is not None else [[explanation] for _ in question.questions]

    async def _request(self, question: PermissionAsked | RequestPermission) -> PermissionRequest:
        match self._dictionary, question:
            case ServeDictionary() as serve, PermissionAsked():
                await self._wait_for_call(lambda: serve.has_call_of(question))
                return serve.request(question)
            case OpenCodeAcpDictionary() as acp, RequestPermission():
                await self._wait_for_call(lambda: acp.has_call_of(question))
                return acp.request(question)
            case _:
                raise AssertionError("a question of another driver")

    async def _wait_for_call(self, is_known: Callable[[], bool]) -> None:
        """Wait a moment for the call it is about: the question comes first and holds less."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(CALL_WAIT):
                while not is_known():
                    await self._new_call.wait()

    def _on_call(self) -> None:
        self._new_call.set()
        self._new_call = asyncio.Event()

    def _is_free(self, request: PermissionRequest) -> bool:
        """Whether it is an edit inside the working directory that needs no question."""
        return self._allows_edits and is_free_edit(request, self._options)

    def _interrupt(self) -> None:
        if isinstance(self._dictionary, OpenCodeAcpDictionary):
            self._dictionary.interrupt()
        self._tasks.start(self._interrupt_session())

    async def _interrupt_session(self) -> None:
        session = (await self._session)()
        if session is not None:
            await session.interrupt()
