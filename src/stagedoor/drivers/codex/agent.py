"""Codex CLI: ``app-server`` (one process that streams and asks) and ``exec`` (a process per turn that asks nobody)."""

from __future__ import annotations

import asyncio
import os
import weakref
from collections.abc import Iterable, Mapping
from typing import Any, cast, get_args

from msgspec.structs import replace

from ...agents.codex import (
    Accept,
    AcceptForSession,
    Answers,
    AppServerProtocol,
    Cancel,
    CodexClient,
    CodexConfig,
    CodexSession,
    CodexThread,
    Decision,
    Decline,
    ExecProtocol,
    Question,
    list_sessions,
)
from ...agents.codex.locate import INSTALL, codex_home, find_codex, require_sign_in
from ...agents.codex.questions import McpServerElicitationRequest, ToolRequestUserInput
from ...errors import NotSignedIn
from ...unified.capabilities import Capabilities
from ...unified.decisions import Allow, Ask
from ...unified.options import Options
from ..agent import Agent, ArgumentRules, Driver, Package, Presence, ScriptedSetup, StoredSession
from ..inspection import SignIn, inspected
from . import AppServerDictionary, ExecDictionary
from .recording import AppServerRecordingReader
from .rights import allowed_unasked, asks, config_of, environ_of, has_rules, stance_of
from .scripted import scripted_settings
from .stored import read_stored
from .tools import record

NAME = "codex"
NOTES = {
    "cost": "the CLI tells tokens, not money",
    "max_budget": "the CLI tells tokens, not money",
    "max_turns": "the CLI has no such limit; timeout= ends a turn",
    "allowed_tools": "the CLI has no list of tools; a policy or can_use_tool decides call by call",
    "disallowed_tools": "the CLI has no list of tools; a policy or can_use_tool decides call by call",
    "thinking": "when the provider sends summaries: extra_args=('-c', 'model_reasoning_summary=auto') asks for them",
    "dry_run": "a command that the sandbox stops at once may leave no event; only the model hears of it",
    "append_system_prompt": "not when resuming: a thread keeps the instructions it was started with",
    "system_prompt": "not when resuming: a thread keeps the instructions it was started with",
    "autonomous": "without a sandbox unless sandbox= names one; `rm -f` stays refused by the CLI itself",
}
APP_SERVER = Capabilities(
    text_deltas=True,
    thinking=True,
    plan=True,
    subagents=True,
    mcp_servers=True,
    permissions="all",
    remember_session=True,
    interrupt=True,
    steer=True,
    fork=True,
    structured_output=True,
    images=True,
    system_prompt=True,
    append_system_prompt=True,
    sandbox=("none", "readOnly", "workspaceWrite", "fullAccess"),
    exit_codes=True,
    diffs=True,
    notes={
        **NOTES,
        "permissions": "every command, patch and MCP call. An allowed command counts as full access: when the sandbox "
        "stops it, Codex may run it again without one, unasked. What the user's own rules of Codex allow is not asked; "
        "web searches run at the provider and are not asked either",
        "edit_input": "the protocol has no way to change a call's input; an edited call is refused",
        "deny_message": "the model is only told that the user rejected the call",
        "sandbox": "workspaceWrite includes /tmp and $TMPDIR, not .git, and has no network. It holds for what nobody "
        "allowed: an allowed command may leave it (see permissions)",
    },
)
EXEC = replace(
    APP_SERVER,
    text_deltas=False,
    plan=False,
    subagents=False,
    permissions="none",
    remember_session=False,
    steer=False,
    notes={
        **NOTES,
        "permissions": "exec asks nobody: what the tier would ask about is refused; use driver='app-server'",
        "plan": "told, but not which step is in progress",
        "subagents": "what sub-agents do is not told, only that they were started and what they answered",
        "text_deltas": "whole messages only",
        "supervised": "without a shell, because commands cannot be asked about; use driver='app-server'",
        "remember_session": "nothing is asked",
        "sandbox": "workspaceWrite includes /tmp and $TMPDIR, not .git, and has no network",
        "diffs": "taken from the workspace before and after: the CLI names only the files",
    },
)
STOPPED = "Codex cannot run a call with changed input, so it was not run at all"
UNANSWERED = "the question was not answered: put the answers into updated_input"


def client_of(options: Options) -> CodexClient:
    return CodexClient(options.cwd, options.executable, None if options.inherit_env else dict(options.env))


# ------------------------------------------------------------------------------------------------- opening a session


async def open_exec(prompt: str, options: Options, ask: Ask, dictionary: ExecDictionary) -> CodexSession:
    dictionary.prompted = True
    dictionary.resumed = options.resume is not None and not options.fork
    dictionary.wants_structure = options.output_schema is not None
    return await _opened(prompt, options, config_of(options, "exec"))


async def open_app_server(prompt: str, options: Options, ask: Ask, dictionary: AppServerDictionary) -> CodexSession:
    dictionary.prompted = True
    dictionary.wants_structure = options.output_schema is not None
    config = config_of(options, "app-server")
    if not asks(options):
        return await _opened(prompt, options, config)
    asking = _Asking(options, ask, dictionary)
    session = await _opened(prompt, options, replace(config, can_use_tool=asking.decide))
    if isinstance(session, CodexThread):
        asking.thread.set_result(weakref.ref(session))
    return session


async def _opened(prompt: str, options: Options, config: CodexConfig) -> CodexSession:
    client = client_of(options)
    if options.resume is None:
        return await client.create_session(prompt, config)
    return await client.resume_session(options.resume, prompt, config, fork=options.fork)


class _Asking:
    """Answers Codex's questions with our caller's decisions."""

    def __init__(self, options: Options, ask: Ask, dictionary: AppServerDictionary) -> None:
        self._options = options
        self._ask = ask
        self._dictionary = dictionary
        self._interrupting: set[asyncio.Task[None]] = set()
        # Weak, because the running connection holds this: a session nobody else holds is to end.
        self.thread: asyncio.Future[weakref.ref[CodexThread]] = asyncio.get_running_loop().create_future()

    async def decide(self, question: Question) -> Decision:
        request = self._dictionary.request(question)
        if request is None:
            return Decline("the client offers no such tool")
        if allowed_unasked(request, self._options):
            return Accept()
        decision = await self._ask(request)
        if isinstance(decision, Allow):
            answer = _answer(question, decision)
            if not isinstance(answer, Decline):
                return answer
            self._dictionary.refuse(question, answer.message)
            return answer
        self._dictionary.refuse(question, decision.message or "denied")
        if not decision.interrupt:
            return Decline(decision.message or "denied")
        task = asyncio.get_running_loop().create_task(self._interrupt())
        self._interrupting.add(task)
        task.add_done_callback(self._interrupting.discard)
        return Cancel()

    async def _interrupt(self) -> None:
        """Whatever the answer ends, the turn is to end, with all that still runs."""
        thread = (await self.thread)()
        if thread is not None:
            await thread.interrupt()


def _answer(question: Question, decision: Allow) -> Decision:
    given = decision.updated_input
    match question:
        case ToolRequestUserInput():
            answers = _answers(question, given or {})
            return Answers(answers) if answers else Decline(UNANSWERED)
        case McpServerElicitationRequest() if not question.is_tool_approval:
            content = (given or {}).get("content", given)
            if isinstance(content, dict):
                return Accept(cast("dict[str, Any]", content))
            return Decline(UNANSWERED) if record(question.requested_schema).get("required") else Accept()
        case _ if given is not None:
            return Decline(STOPPED)
        case _:
            return Accept() if decision.remember == "once" else AcceptForSession()


def _answers(question: ToolRequestUserInput, given: Mapping[str, Any]) -> dict[str, list[str]]:
    """``{"answers": {question id or its words: a word or a list of words}}``."""
    told: object = given.get("answers", given)
    if not isinstance(told, dict):
        return {}
    by_name = cast("dict[str, object]", told)
    found: dict[str, list[str]] = {}
    for one in question.questions:
        answer = by_name.get(one.id, by_name.get(one.question))
        if isinstance(answer, str):
            found[one.id] = [answer]
        elif isinstance(answer, list):
            found[one.id] = [str(word) for word in cast("list[object]", answer)]
    return found


def choose(options: Options) -> str:
    """The app-server streams and asks; only ``exec`` can be told to ignore rules that would break a dry run."""
    ignoring = stance_of(options) == "read" and options.can_use_tool is None and has_rules(environ_of(options))
    return "exec" if ignoring else "app-server"


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
            branch=one.git_branch or "",
            started_ms=one.started_ms,
            updated_ms=one.updated_ms,
            tokens=None if one.tokens is None else one.tokens.total_tokens,
            path=one.path,
        )
        for one in list_sessions(cwd, env=env).sessions
    ]


async def inspect(env: Mapping[str, str] | None) -> Presence:
    client = CodexClient(env=env)
    return await inspected(AGENT, lambda: find_codex(None, env)[0], client.version, lambda: sign_in(env))


def sign_in(env: Mapping[str, str] | None) -> SignIn:
    """Whether Codex has what it needs to sign in, what is wrong, and what to do. No model is called."""
    environ = os.environ if env is None else env
    try:
        require_sign_in(CodexConfig(), env)
    except NotSignedIn as error:
        return False, str(error), "codex login"
    if environ.get("CODEX_API_KEY") or (codex_home(environ) / "auth.json").exists():
        return True, "", ""
    return None, "", ""  # a provider of the user's own: it will say so itself


AGENT = Agent(
    name=NAME,
    title="Codex CLI",
    install=INSTALL,
    drivers={
        "app-server": Driver(
            "app-server",
            APP_SERVER,
            AppServerDictionary,
            AppServerProtocol,
            open_app_server,
            get_args(Question),
            AppServerRecordingReader,
        ),
        "exec": Driver("exec", EXEC, ExecDictionary, ExecProtocol, open_exec),
    },
    choose_driver=choose,
    list_stored=list_stored,
    read_stored=read_stored,
    inspect=inspect,
    tools=("exec_command", "apply_patch", "view_image", "web_search"),
    arguments=ArgumentRules(
        reserved={"exec": 0, "--json": 0, "app-server": 0, "-": 0, "--skip-git-repo-check": 0},
        replaced={
            "--dangerously-bypass-approvals-and-sandbox": "skip_permissions: true",
            "--yolo": "skip_permissions: true",
            "--full-auto": "approval and sandbox",
            "--sandbox": "sandbox",
            "-s": "sandbox",
            "--model": "model",
            "-m": "model",
        },
    ),
    package=Package("@openai/codex", "0.166.0"),
    scripted=ScriptedSetup("gpt-5.5", scripted_settings),
)
