"""Codex CLI: ``app-server`` (one process that streams and asks) and ``exec`` (a process per turn that asks nobody)."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import get_args

from msgspec.structs import replace

from ...agents.codex.client import CodexClient
from ...agents.codex.config import CodexSessionConfig
from ...agents.codex.locate import INSTALL, VERSIONS, codex_home, find_codex, require_sign_in
from ...agents.codex.protocol import AppServerProtocol, ExecProtocol
from ...agents.codex.questions import Question
from ...errors import NotSignedIn
from ...transports.versions import CheckedVersion
from ...unified.capabilities import Capabilities
from ...unified.options import Options
from ..agent import Agent, ArgumentRules, Driver, Package, Presence, ScriptedSetup
from ..inspection import SignIn, inspected
from .app_server_dictionary import AppServerDictionary
from .exec_dictionary import ExecDictionary
from .opening import choose_driver, client_of, models_of, open_app_server, open_exec
from .protected import PROTECTED
from .recording import AppServerRecordingReader, recognize_app_server, recognize_exec
from .rights import check_exec
from .scripted import scripted_settings
from .state import TRANSCRIPT, state_of
from .stored import list_stored, read_stored
from .trust import PROJECT_PATHS
from .withholding import OWN_TOOLS, TITLE

NOTES = {
    "cost": "the CLI reports tokens, not cost", "max_budget": "the CLI reports tokens, not cost",
    "max_turns": "the CLI has no such limit; timeout= ends a turn",
    "web_search": "the CLI never asks about it: off unless tier, mode or policy allow it",
    "mcp_servers": "the CLI never asks about their resources: it sees none unless tier, mode or policy allow them",
    "thinking": "when the provider sends summaries: extra_args=('-c', 'model_reasoning_summary=auto') asks for them",
    "dry_run": "a command that the sandbox stops at once may leave no event; only the model hears of it",
    "append_system_prompt": "not when resuming: a thread keeps the instructions it was started with",
    "system_prompt": "not when resuming: a thread keeps the instructions it was started with",
    "autonomous": "without a sandbox unless sandbox= names one; `rm -f` stays refused by the CLI itself",
}  # fmt: skip
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
    effort=True,
    allowed_tools=True,
    disallowed_tools=True,
    sandbox=("none", "readOnly", "workspaceWrite", "fullAccess"),
    confine=True,
    exit_codes=True,
    diffs=True,
    notes={
        "tool_list": "neither its app-server nor exec tells which tools the model is offered",
        **NOTES,
        "permissions": "every command, patch and MCP call. An allowed command counts as full access: when the sandbox "
        "stops it, Codex may run it again without one, unasked. What the user's own rules of Codex allow is not asked; "
        "web searches run at the provider and cannot be asked about: they are off unless tier, mode or policy allow "
        "them",
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
        "tool_list": "neither its app-server nor exec tells which tools the model is offered",
        **NOTES,
        "permissions": "exec cannot ask: calls that need approval are refused; use driver='app-server'",
        "plan": "reported, without the step that is in progress",
        "allowed_tools": "apply_patch is withheld only together with shell, by the read-only sandbox",
        "disallowed_tools": "apply_patch is withheld only together with shell, by the read-only sandbox",
        "subagents": "only their start and their answer are reported, not what they do",
        "text_deltas": "whole messages only",
        "supervised": "read-only, because this mode cannot ask before an edit or a command; use driver='app-server'",
        "remember_session": "nothing is asked",
        "sandbox": "workspaceWrite includes /tmp and $TMPDIR, not .git, and has no network",
        "diffs": "taken from the workspace before and after: the CLI names only the files",
    },
)


async def inspect(env: Mapping[str, str] | None) -> Presence:
    client = CodexClient(env=env)
    return await inspected(AGENT, lambda: find_codex(None, env)[0], client.check_version, lambda: sign_in(env))


def sign_in(env: Mapping[str, str] | None) -> SignIn:
    """Whether Codex has what it needs to sign in, what is wrong, and what to do. No model is called."""
    environ = os.environ if env is None else env
    try:
        require_sign_in(CodexSessionConfig(), env)
    except NotSignedIn as error:
        return False, str(error), "codex login"
    if environ.get("CODEX_API_KEY") or (codex_home(environ) / "auth.json").exists():
        return True, "", ""
    return None, "", ""  # a provider of the user's own: only a model call can tell


async def check_version(options: Options) -> CheckedVersion:
    return await client_of(options).check_version()


AGENT = Agent(
    name="codex",
    title=TITLE,
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
            check_version,
            recognize_app_server,
            models=models_of,
        ),
        "exec": Driver(
            "exec",
            EXEC,
            ExecDictionary,
            ExecProtocol,
            open_exec,
            check_version=check_version,
            recognize=recognize_exec,
            check=check_exec,
            models=models_of,
        ),
    },
    choose_driver=choose_driver,
    list_stored=list_stored,
    read_stored=read_stored,
    inspect=inspect,
    tools=OWN_TOOLS,
    protected=PROTECTED,
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
    state=state_of,
    transcript=TRANSCRIPT,
    project_paths=PROJECT_PATHS,
    package=Package("@openai/codex", "0.166.0"),
    versions=VERSIONS,
    scripted=ScriptedSetup("gpt-5.5", scripted_settings),
)
