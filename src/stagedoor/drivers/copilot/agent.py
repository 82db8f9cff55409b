"""GitHub Copilot CLI over ``--acp``."""

from __future__ import annotations

from msgspec.structs import replace

from ...agents.acp import RequestPermission
from ...agents.acp.protocol import AcpProtocol
from ..acp.opening import KNOWN_PROGRAM
from ..acp.recording import AcpRecordingReader, recognize_acp
from ..acp.settings import AcpSettings
from ..agent import Agent, ArgumentRules, Driver, Package, ScriptedSetup
from ..inspection import inspection
from .dictionary import CopilotDictionary
from .opening import INSTALL, VERSIONS, check, check_version, find, open_session, program_of
from .protected import PROTECTED
from .scripted import scripted_settings
from .sign_in import sign_in
from .state import state_of
from .stored import list_stored, read_stored
from .tools import MCP_NAME, OWN_TOOLS, TITLE
from .trust import PROJECT_PATHS

CAPABILITIES = replace(
    KNOWN_PROGRAM,
    plan=False,
    subagents=True,
    images=True,
    effort=True,
    notes={
        **KNOWN_PROGRAM.notes,
        "permissions": "every call that acts, and files outside the workspace",
        "plan": "the CLI keeps its plan in a database of its own and shows none of it",
        "deny_message": "the CLI ends its turn when a call is refused, and the model is not told why",
        "remember_session": "remembered by Stagedoor, for the same tool and target: the CLI would remember more than "
        "that",
        "fork": "the CLI cannot branch a stored session",
        "sandbox": "readOnly offers the reading tools alone, workspaceWrite is confine='workspace'",
    },
)


AGENT: Agent = Agent(
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
    inspect=inspection(lambda: AGENT, find, sign_in, program_of),
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
