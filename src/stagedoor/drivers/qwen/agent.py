"""Qwen Code over ``--acp``."""

from __future__ import annotations

from msgspec.structs import replace

from ...agents.acp import RequestPermission
from ...agents.acp.protocol import AcpProtocol
from ..acp.opening import KNOWN_PROGRAM
from ..acp.recording import AcpRecordingReader, recognize_acp
from ..acp.settings import AcpSettings
from ..agent import Agent, ArgumentRules, Driver, Package, ScriptedSetup
from ..inspection import inspection
from .dictionary import PROFILE, QwenDictionary
from .opening import INSTALL, VERSIONS, check_version, find, open_session
from .protected import PROTECTED
from .scripted import scripted_settings
from .sign_in import sign_in
from .state import state_of
from .stored import list_stored, read_stored
from .tools import OWN_TOOLS, TITLE
from .trust import PROJECT_PATHS

CAPABILITIES = replace(
    KNOWN_PROGRAM,
    subagents=True,
    tool_list=True,
    notes={
        **KNOWN_PROGRAM.notes,
        "tool_list": "with those that its tool_search finds",
        "permissions": "every call that acts, including commands that the CLI considers harmless",
        "deny_message": "the CLI ends its turn when a call is refused; the model is told that the user cancelled it",
        "remember_session": "remembered by Stagedoor: the CLI would write it into the project's settings",
        "fork": "the CLI cannot branch a stored session",
        "images": "the CLI passes them only to models that it knows to accept images",
        "sandbox": "readOnly is the CLI's plan mode, workspaceWrite is confine='workspace'",
    },
)


AGENT: Agent = Agent(
    name="qwen",
    title=TITLE,
    install=INSTALL,
    drivers={
        "acp": Driver(
            "acp",
            CAPABILITIES,
            QwenDictionary,
            lambda: AcpProtocol(profile=PROFILE),
            open_session,
            (RequestPermission,),
            lambda _: AcpRecordingReader(lasting=("proceed_always_project", "proceed_always_user")),
            check_version=check_version,
            recognize=recognize_acp("qwen-code"),
            settings=AcpSettings(),
        )
    },
    choose_driver=lambda options: "acp",
    list_stored=list_stored,
    read_stored=read_stored,
    inspect=inspection(lambda: AGENT, find, sign_in),
    tools=OWN_TOOLS,
    protected=PROTECTED,
    arguments=ArgumentRules(
        reserved={"--acp": 0, "--experimental-acp": 0, "-p": 1, "--prompt": 1, "-o": 1, "--output-format": 1},
        replaced={
            "--yolo": "skip_permissions: true",
            "-y": "skip_permissions: true",
            "--approval-mode": "tier or approval",
            "--exclude-tools": "disallowed_tools",
            "--allowed-tools": "allowed_tools",
            "--core-tools": "allowed_tools",
            "--sandbox": "sandbox",
            "-s": "sandbox",
            "--model": "model",
            "-m": "model",
        },
    ),
    state=state_of,
    project_paths=PROJECT_PATHS,
    package=Package("@qwen-code/qwen-code", "0.24.4"),
    versions=VERSIONS,
    scripted=ScriptedSetup("scripted-model", scripted_settings),
)
