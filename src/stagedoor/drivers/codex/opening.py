"""Opening a Codex session for unified options, and answering its questions with the caller's decisions."""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import Mapping
from typing import Any, cast

from msgspec.structs import replace

from ...agents.codex.app_server import CodexAppServer
from ...agents.codex.client import CodexClient, CodexSession
from ...agents.codex.commands import Accept, Answers, CancelTurn, Decision, Decline
from ...agents.codex.config import CodexSessionConfig
from ...agents.codex.questions import McpServerElicitationRequest, Question, ToolRequestUserInput
from ...agents.codex.sessions import CodexThread
from ...transports.tasks import TaskOwner
from ...unified.decisions import Allow, Ask
from ...unified.options import Options
from ..confinement import environ_of
from .app_server_dictionary import AppServerDictionary
from .exec_dictionary import ExecDictionary
from .rights import allowed_unasked, asks, config_of, gated_servers, has_rules, stance_of
from .tools import record
from .trust import with_trust

NO_CHANGED_INPUT = "not run: Codex cannot run a call with changed input"
UNANSWERED = "the question was not answered: put the answers into updated_input"


def choose_driver(options: Options) -> str:
    """The app-server streams and asks; only ``exec`` can ignore rules that would break a dry run."""
    ignoring = stance_of(options) == "read" and options.can_use_tool is None and has_rules(environ_of(options))
    return "exec" if ignoring else "app-server"


async def open_exec(prompt: str, options: Options, ask: Ask, dictionary: ExecDictionary) -> CodexSession:
    dictionary.prompted = True
    dictionary.resumed = options.resume is not None and not options.fork
    dictionary.wants_structure = options.output_schema is not None
    return await _open(prompt, options, config_of(options, "exec"))


async def open_app_server(prompt: str, options: Options, ask: Ask, dictionary: AppServerDictionary) -> CodexSession:
    dictionary.prompted = True
    dictionary.wants_structure = options.output_schema is not None
    config = config_of(options, "app-server")
    if not asks(options):
        return await _open(prompt, options, config)
    decisions = _CallerDecisions(options, ask, dictionary)
    session = await _open(prompt, options, replace(config, can_use_tool=decisions.decide))
    if isinstance(session, CodexThread):
        decisions.thread.set_result(weakref.ref(session))
    return session


async def models_of(session: CodexSession) -> list[str]:
    """Those that its app-server names. ``exec`` names none: an app-server is started to ask it."""
    if isinstance(session, CodexThread):
        return await _names_of_models(session.server)
    client = CodexClient(session.cwd, session.executable, session.env)
    async with await client.start_server(session.config) as server:
        return await _names_of_models(server)


async def _names_of_models(server: CodexAppServer) -> list[str]:
    return [model.id for model in await server.models() if not model.hidden]


def client_of(options: Options) -> CodexClient:
    return CodexClient(options.cwd, options.executable, None if options.inherit_env else dict(options.env))


async def _open(prompt: str, options: Options, config: CodexSessionConfig) -> CodexSession:
    config = await asyncio.to_thread(with_trust, config, options)
    config = await _behind_gate(config, options)
    client = client_of(options)
    try:
        if options.resume is None:
            return await client.create_session(prompt, config)
        return await client.resume_session(options.resume, prompt, config, fork=options.fork)
    except BaseException:
        if config.beside is not None:
            await config.beside.close()
        raise


async def _behind_gate(config: CodexSessionConfig, options: Options) -> CodexSessionConfig:
    """Its servers over HTTP at addresses of ours, where it may not read their resources."""
    servers = await asyncio.to_thread(gated_servers, options)
    if not servers:
        return config
    from ...mcp.tools_gate import ToolsGate

    gate = await ToolsGate.open(servers, environ_of(options))
    ours = {name: {**config.mcp_servers.get(name, {}), "url": url} for name, url in gate.addresses.items()}
    return replace(config, mcp_servers={**config.mcp_servers, **ours}, beside=gate)


class _CallerDecisions:
    """Answers Codex's questions with our caller's decisions."""

    def __init__(self, options: Options, ask: Ask, dictionary: AppServerDictionary) -> None:
        self._options = options
        self._ask = ask
        self._dictionary = dictionary
        self._interrupts = TaskOwner()
        # Weak, because the running connection holds this: a session that nobody else holds must end.
        self.thread: asyncio.Future[weakref.ref[CodexThread]] = asyncio.get_running_loop().create_future()

    async def decide(self, question: Question) -> Decision:
        request = self._dictionary.request(question)
        if request is None:
            return Decline("the client offers no such tool")
        if allowed_unasked(request, self._options):
            return Accept()
        decision = await self._ask(request)
        if isinstance(decision, Allow):
            answer = native_answer(question, decision)
            if isinstance(answer, Decline):
                self._dictionary.refuse(question, answer.message)
            return answer
        self._dictionary.refuse(question, decision.message or "denied")
        if not decision.interrupt:
            return Decline(decision.message or "denied")
        self._interrupts.start(self._interrupt(), name="stagedoor codex interrupt")
        return CancelTurn()

    async def _interrupt(self) -> None:
        """Whatever the answer ends, the turn must end, with all that still runs."""
        thread = (await self.thread)()
        if thread is not None:
            await thread.interrupt()


def native_answer(question: Question, decision: Allow) -> Decision:
    """An allowed call in Codex's words; ``Decline`` where Codex cannot carry the decision out."""
    updated = decision.updated_input
    match question:
        case ToolRequestUserInput():
            answers = _answers(question, updated or {})
            return Answers(answers) if answers else Decline(UNANSWERED)
        case McpServerElicitationRequest() if not question.is_tool_approval:
            content = (updated or {}).get("content", updated)
            if isinstance(content, dict):
                return Accept(cast("dict[str, Any]", content))
            return Decline(UNANSWERED) if record(question.requested_schema).get("required") else Accept()
        case _ if updated is not None:
            return Decline(NO_CHANGED_INPUT)
        case _:
            return Accept()  # we remember: what Codex remembered it would no longer ask about, nor we record


def _answers(question: ToolRequestUserInput, updated: Mapping[str, Any]) -> dict[str, list[str]]:
    """``{"answers": {question id or its words: a word or a list of words}}``."""
    answers: object = updated.get("answers", updated)
    if not isinstance(answers, dict):
        return {}
    by_name = cast("dict[str, object]", answers)
    by_id: dict[str, list[str]] = {}
    for entry in question.questions:
        answer = by_name.get(entry.id, by_name.get(entry.question))
        if isinstance(answer, str):
            by_id[entry.id] = [answer]
        elif isinstance(answer, list):
            by_id[entry.id] = [str(word) for word in cast("list[object]", answer)]
    return by_id
