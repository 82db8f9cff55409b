"""Qwen Code over ``--acp``."""

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
from .dictionary import QwenDictionary
from .opening import INSTALL, VERSIONS, check_version, find, open_session
from .protected import PROTECTED
from .scripted import scripted_settings
from .sign_in import sign_in
from .state import state_of
from .stored import list_stored, read_stored
from .tools import OWN_TOOLS, TITLE
from .trust import PROJECT_PATHS

CAPABILITIES = replace(
    CAPABILITIES_OF_ACP,
    permissions="all",
    subagents=True,
    fork=False,
    allowed_tools=True,
    disallowed_tools=True,
    tool_list=True,
    dry_run=True,
    supervised=True,
    confine=True,
    exit_codes=True,
    sandbox=("none", "readOnly", "workspaceWrite", "fullAccess"),
    notes={
        "tool_list": "with those that its tool_search finds",
        "permissions": "every call that acts, including commands that the CLI considers harmless",
        "deny_message": "the CLI ends its turn when a call is refused; the model is told that the user cancelled it",
        "edit_input": "the protocol has no way to change a call's input; an edited call is refused",
        "remember_session": "remembered by Stagedoor: the CLI would write it into the project's settings",
        "fork": "the CLI cannot branch a stored session",
        "cost": "the CLI reports tokens, not cost",
        "max_budget": "the CLI reports tokens, not cost",
        "images": "the CLI passes them only to models that it knows to accept images",
        "sandbox": "readOnly is the CLI's plan mode, workspaceWrite is confine='workspace'",
    },
)


async def inspect(env: Mapping[str, str] | None) -> Presence:
    environ = os.environ if env is None else env

    async def version() -> CheckedVersion:
        return await VERSIONS.check(find(None, env), env=env)

    def signed_in() -> SignIn:
        return sign_in(environ)

    return await inspected(AGENT, lambda: find(None, env), version, signed_in)


AGENT = Agent(
    name="qwen",
    title=TITLE,
    install=INSTALL,
    drivers={
        "acp": Driver(
            "acp",
            CAPABILITIES,
            QwenDictionary,
            AcpProtocol,
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
    inspect=inspect,
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
