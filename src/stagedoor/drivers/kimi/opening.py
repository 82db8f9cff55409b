"""Our options in Kimi Code's words, and the start of a session with them."""

from __future__ import annotations

import asyncio
import os
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path

from msgspec.structs import replace

from ...agents.acp import PermissionAnswer, RequestPermission
from ...agents.acp import launch as acp_launch
from ...agents.acp.commands import ClientCapabilities
from ...agents.acp.config import ServedRequest
from ...agents.acp.requests import ReadTextFile
from ...errors import NotSupported
from ...transports.executables import find_executable
from ...transports.launch import EndInput, Launch
from ...transports.versions import CheckedVersion, ProvenVersions
from ...unified.decisions import Ask
from ...unified.options import Options
from ..acp.opening import config, open_launched
from ..acp.questions import AcpQuestions, stance_of
from ..acp.retries import watch_retries
from ..acp.serving import ServedCalls
from ..agent import StateFolders
from ..confinement import confinement_of, environ_of, is_confined
from .dictionary import KimiDictionary
from .home import fill_home
from .records import failed_call, records_file
from .rights import MODES, lists_of, refusals_of
from .session import KimiSession, literal, size_of_records
from .state import state_of, user_folder
from .trust import PROJECT_PATHS

INSTALL = "npm install -g @moonshot-ai/kimi-code"
VERSIONS = ProvenVersions("kimi", "2.1.0", "2.1.0", INSTALL)
HINTS = ("~/.local/bin", "~/.npm-global/bin", "/usr/local/bin", "/opt/homebrew/bin")
MODEL = "KIMI_MODEL_NAME"
PREFIX = "stagedoor-kimi-"


def find(executable: str | None, env: Mapping[str, str] | None) -> str:
    return find_executable("kimi", executable=executable, env=env, install=INSTALL, hints=HINTS)


async def check_version(options: Options) -> CheckedVersion:
    env = environ_of(options)
    return await VERSIONS.check(find(options.executable, env), env=env)


def check(options: Options) -> None:
    if is_confined(options) and stance_of(options) in ("ask", "edit"):
        raise NotSupported(
            "kimi writes the files of a repository unasked unless it writes them through Stagedoor, and that is not "
            "possible from within a sandbox: use tier='autonomous' or tier='dry-run' with confine, or leave confine off"
        )


def launch_of(options: Options, home: Path) -> Launch:
    """``home`` is a new folder, which goes with the program."""
    environ = environ_of(options)
    user = user_folder(environ)
    fill_home(home, user, refusals_of(options))
    start = acp_launch(
        [find(options.executable, environ), "acp", *options.extra_args],
        cwd=str(Path(options.cwd).absolute()),
        env={"KIMI_CODE_HOME": str(home), "KIMI_CODE_NO_AUTO_UPDATE": "1", **_named_model(options, environ)},
        confinement=confinement_of(options, lambda env: _with_home(env, home), PROJECT_PATHS),
    )
    return replace(start, folders=(str(home),), stop=(EndInput(5.0), *start.stop[1:]))


def _named_model(options: Options, environ: Mapping[str, str]) -> dict[str, str]:
    """A model that is described by variables has no name of its own among those to choose from."""
    return {MODEL: options.model} if options.model and environ.get(MODEL) else {}


def _with_home(env: Mapping[str, str], home: Path) -> StateFolders:
    own = state_of(env)
    return replace(own, folders=(*own.folders, str(home)), settings=(*own.settings, f"{home}/config.toml"))


class KimiQuestions:
    """Decides about what the CLI asks, and about the files and commands that it leaves to us. What was asked about by
    the one way is not asked about by the other."""

    def __init__(self, options: Options, ask: Ask, dictionary: KimiDictionary, plain: AcpQuestions) -> None:
        self._options = options
        self._dictionary = dictionary
        self._plain = plain
        self._stance = stance_of(options)
        edits = self._stance == "edit" and not lists_of(options).limits
        self._served = ServedCalls(
            options,
            ask,
            self._call_of,
            edits=edits,
            free=False,
            turn_of=lambda: dictionary.protocol.turns,
            interrupt=plain.interrupt,
        )

    async def decide(self, question: RequestPermission) -> PermissionAnswer:
        await self._plain.announced(question)
        if self._stance != "act" and self._dictionary.hides_command(question):
            self._dictionary.answered(question.tool_call.tool_call_id, allowed=False)
            return "reject_once"  # nobody can decide about the half of a command
        request = self._dictionary.request(question)  # before it is shown: the agent may tell the call anew meanwhile
        answer = await self._plain.decide_about(question, request)
        self._dictionary.answered(question.tool_call.tool_call_id, allowed=answer not in ("reject_once", None))
        if answer == "allow_once":
            self._served.grant(request, question.session_id)
        return answer

    def _place(self, path: str) -> str:
        return os.path.realpath(Path(self._options.cwd, path))

    def _call_of(self, question: ServedRequest) -> str:
        return self._dictionary.call_of(question, self._place)

    async def authorize(self, question: ServedRequest) -> str:
        """Why this must not be done; empty: it may. Files of the workspace are read without a question, unless there
        is a policy: then it decides."""
        free = self._options.policy is None
        if free and isinstance(question, ReadTextFile) and Path(question.path).is_relative_to(self._place(".")):
            return ""
        return await self._served.authorize(question)


async def open_session(prompt: str, options: Options, ask: Ask, dictionary: KimiDictionary) -> KimiSession:
    lists, environ = lists_of(options), environ_of(options)
    plain = AcpQuestions(options, ask, dictionary, lists)
    questions = KimiQuestions(options, ask, dictionary, plain)
    servers = {name: server for name, server in options.mcp_servers.items() if lists.permits_server(name)}
    settings = config(
        replace(options, mcp_servers=servers, model=None if environ.get(MODEL) else options.model),
        ask,
        dictionary.protocol,
        mode=MODES[stance_of(options)],
    )
    serves = stance_of(options) in ("ask", "edit")
    settings = replace(settings, authorize=questions.authorize if serves else None)
    offered = ClientCapabilities(read_files=serves, write_files=serves, terminals=serves)
    home = Path(await asyncio.to_thread(tempfile.mkdtemp, prefix=PREFIX))
    records = await asyncio.to_thread(size_of_records, options.resume, environ)
    try:
        start = await asyncio.to_thread(launch_of, options, home)
        session = await open_launched(
            start, literal(prompt), options, settings, plain, offered=offered, decide=questions.decide
        )
    except BaseException:
        shutil.rmtree(home, ignore_errors=True)
        raise
    session_id = session.session_id
    watch_retries(session, lambda: records_file(session_id, environ), failed_call, start=records)
    return KimiSession(session, environ, records, home)
