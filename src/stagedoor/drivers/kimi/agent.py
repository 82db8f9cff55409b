"""Kimi Code over ``kimi acp``."""

from __future__ import annotations

from msgspec.structs import replace

from ...agents.acp import RequestPermission
from ...agents.acp.protocol import AcpProtocol
from ..acp.opening import KNOWN_PROGRAM
from ..acp.recording import AcpRecordingReader, recognize_acp
from ..acp.settings import AcpSettings
from ..agent import Agent, ArgumentRules, Driver, Package, ScriptedSetup
from ..inspection import inspection
from .dictionary import KimiDictionary
from .opening import INSTALL, VERSIONS, check, check_version, find, open_session
from .protected import PROTECTED
from .scripted import scripted_settings
from .sign_in import sign_in
from .state import state_of
from .stored import list_stored, read_stored
from .tools import OWN_TOOLS, TITLE
from .trust import PROJECT_PATHS

CAPABILITIES = replace(
    KNOWN_PROGRAM,
    fork=True,
    images=True,
    effort=True,
    notes={
        **KNOWN_PROGRAM.notes,
        "permissions": "commands, files and tools of servers; what it never asks about (fetching, searching the web, "
        "plans for later) it has only in autonomous sessions. Of a long command of a sub-agent it shows only the "
        "beginning: such a one is refused",
        "subagents": "the CLI does not report what its sub-agents do",
        "deny_message": "the model is only told that the user rejected the call",
        "remember_session": "remembered by Stagedoor",
        "effort": "where the model can think: on or off",
        "confine": "with tier autonomous or dry-run: in the others its files are written through us, outside a sandbox",
        "sandbox": "readOnly is enforced by hooks, workspaceWrite is confine='workspace'",
    },
)


def recording(dictionary: KimiDictionary) -> AcpRecordingReader:
    return AcpRecordingReader(
        lambda call, message: dictionary.answered(call, allowed=False),
        lambda call: dictionary.answered(call, allowed=True),
    )


AGENT: Agent = Agent(
    name="kimi",
    title=TITLE,
    install=INSTALL,
    drivers={
        "acp": Driver(
            "acp",
            CAPABILITIES,
            KimiDictionary,
            AcpProtocol,
            open_session,
            (RequestPermission,),
            recording,
            check_version=check_version,
            recognize=recognize_acp("kimi"),
            check=check,
            settings=AcpSettings(lambda session: session.acp),
        )
    },
    choose_driver=lambda options: "acp",
    list_stored=list_stored,
    read_stored=read_stored,
    inspect=inspection(lambda: AGENT, find, sign_in),
    tools=OWN_TOOLS,
    protected=PROTECTED,
    arguments=ArgumentRules(
        reserved={"acp": 0, "-p": 1, "--prompt": 1, "--output-format": 1},
        replaced={
            "--yolo": "skip_permissions: true",
            "-y": "skip_permissions: true",
            "--auto": "skip_permissions: true",
            "--plan": "tier: dry-run",
            "--model": "model",
            "-m": "model",
            "--session": "resume",
            "-S": "resume",
        },
    ),
    state=state_of,
    project_paths=PROJECT_PATHS,
    package=Package("@moonshot-ai/kimi-code", "2.1.0", node="24.21.0"),
    versions=VERSIONS,
    scripted=ScriptedSetup("scripted-model", scripted_settings),
)
