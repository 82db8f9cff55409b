"""GitHub Copilot CLI over ``--acp``."""

from __future__ import annotations

import os
from collections.abc import Mapping

from msgspec.structs import replace

from ...agents.acp import RequestPermission
from ...agents.acp.protocol import AcpProtocol
from ...transports.versions import CheckedVersion
from ..acp.opening import CAPABILITIES as CAPABILITIES_OF_ACP
from ..acp.recording import AcpRecordingReader, recognize_acp
from ..acp.settings import AcpSettings
from ..agent import Agent, ArgumentRules, Driver, Package, Presence, ScriptedSetup
from ..inspection import SignIn, inspected
from .dictionary import CopilotDictionary
from .opening import INSTALL, VERSIONS, check, check_version, find, open_session, program_of
from .protected import PROTECTED
from .scripted import scripted_settings
from .state import state_of, user_folder
from .stored import list_stored, read_stored
from .tools import MCP_NAME, OWN_TOOLS, TITLE
from .trust import PROJECT_PATHS

CAPABILITIES = replace(
    CAPABILITIES_OF_ACP,
    plan=False,
    permissions="all",
    subagents=True,
    fork=False,
    images=True,
    allowed_tools=True,
    disallowed_tools=True,
    dry_run=True,
    supervised=True,
    confine=True,
    exit_codes=True,
    effort=True,
    sandbox=("none", "readOnly", "workspaceWrite", "fullAccess"),
    notes={
        "tool_list": "the CLI does not tell which tools the model is offered",
        "permissions": "every call that acts, and files outside the workspace",
        "plan": "the CLI keeps its plan in a database of its own and shows none of it",
        "deny_message": "the CLI ends its turn when a call is refused, and the model is not told why",
        "edit_input": "the protocol has no way to change a call's input; an edited call is refused",
        "remember_session": "remembered by Stagedoor, for the same tool and target: the CLI would remember more than "
        "that",
        "fork": "the CLI cannot branch a stored session",
        "cost": "the CLI reports tokens, not cost",
        "max_budget": "the CLI reports tokens, not cost",
        "sandbox": "readOnly offers the reading tools alone, workspaceWrite is confine='workspace'",
    },
)
TOKENS = ("COPILOT_GITHUB_TOKEN", "GH_TOKEN", "GITHUB_TOKEN", "COPILOT_PROVIDER_BASE_URL")


def sign_in(env: Mapping[str, str]) -> SignIn:
    """Whether the CLI has what it needs to reach a model. No model is called."""
    if any(env.get(name) for name in TOKENS):
        return True, "", ""
    if (user_folder(env) / "config.json").exists():
        return None, "", ""  # it may have signed in: what it needs is in the system's keychain
    fix = "run copilot login, or set COPILOT_GITHUB_TOKEN, or COPILOT_PROVIDER_BASE_URL and COPILOT_MODEL"
    return False, "Copilot CLI is not signed in", fix


async def inspect(env: Mapping[str, str] | None) -> Presence:
    environ = os.environ if env is None else env

    async def version() -> CheckedVersion:
        return await VERSIONS.check(program_of(find(None, env)), env=env)

    return await inspected(AGENT, lambda: find(None, env), version, lambda: sign_in(environ))


AGENT = Agent(
    name="copilot",
    title=TITLE,
    install=INSTALL,
    drivers={
        "acp": Driver(
            "acp",
            CAPABILITIES,
            CopilotDictionary,
            AcpProtocol,
            open_session,
            (RequestPermission,),
            lambda _: AcpRecordingReader(),
            check_version=check_version,
            recognize=recognize_acp("copilot"),
            check=check,
            settings=AcpSettings(lambda session: session.acp),
        )
    },
    choose_driver=lambda options: "acp",
    list_stored=list_stored,
    read_stored=read_stored,
    inspect=inspect,
    tools=OWN_TOOLS,
    mcp_name=MCP_NAME,
    protected=PROTECTED,
    arguments=ArgumentRules(
        reserved={"--acp": 0, "-p": 1, "--prompt": 1, "-i": 1, "--interactive": 1, "--no-ask-user": 0},
        replaced={
            "--yolo": "skip_permissions: true",
            "--allow-all": "skip_permissions: true",
            "--allow-all-tools": "skip_permissions: true",
            "--allow-all-paths": "skip_permissions: true",
            "--allow-tool": "policy",
            "--deny-tool": "policy",
            "--available-tools": "allowed_tools",
            "--excluded-tools": "disallowed_tools",
            "--additional-mcp-config": "mcp_servers",
            "--mode": "tier or approval",
            "--autopilot": "tier or approval",
            "--model": "model",
            "--resume": "resume",
            "-r": "resume",
        },
    ),
    state=state_of,
    project_paths=PROJECT_PATHS,
    package=Package("@github/copilot", "1.0.102"),
    versions=VERSIONS,
    scripted=ScriptedSetup("scripted-model", scripted_settings, shares_cache=True),
)
