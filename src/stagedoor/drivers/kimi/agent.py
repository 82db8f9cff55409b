"""Kimi Code over ``kimi acp``."""

from __future__ import annotations

import os
import shutil
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
from .dictionary import KimiDictionary
from .opening import INSTALL, VERSIONS, check, check_version, find, open_session
from .protected import PROTECTED
from .scripted import scripted_settings
from .state import state_of, user_folder
from .stored import list_stored, read_stored
from .tools import OWN_TOOLS, TITLE
from .trust import PROJECT_PATHS

CAPABILITIES = replace(
    CAPABILITIES_OF_ACP,
    permissions="all",
    subagents=False,
    fork=True,
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
        "permissions": "commands, files and tools of servers; what it never asks about (fetching, searching the web, "
        "plans for later) it has only in autonomous sessions. Of a long command of a sub-agent it shows only the "
        "beginning: such a one is refused",
        "subagents": "the CLI does not report what its sub-agents do",
        "deny_message": "the model is only told that the user rejected the call",
        "edit_input": "the protocol has no way to change a call's input; an edited call is refused",
        "remember_session": "remembered by Stagedoor",
        "effort": "where the model can think: on or off",
        "cost": "the CLI reports tokens, not cost",
        "max_budget": "the CLI reports tokens, not cost",
        "confine": "with tier autonomous or dry-run: in the others its files are written through us, outside a sandbox",
        "sandbox": "readOnly is enforced by hooks, workspaceWrite is confine='workspace'",
    },
)


def sign_in(env: Mapping[str, str]) -> SignIn:
    """Whether the CLI has what it needs to reach a model. No model is called."""
    folder = user_folder(env)
    if not shutil.which("rg", path=env.get("PATH")):
        return (
            None,
            "rg (ripgrep) was not found: without it Kimi Code can neither search nor find files",
            "install ripgrep",
        )
    try:
        configured = "default_model" in (folder / "config.toml").read_text("utf-8", "replace")
    except OSError:
        configured = False
    if configured or env.get("KIMI_MODEL_NAME") or env.get("KIMI_API_KEY"):
        return True, "", ""
    return False, "Kimi Code is not signed in", "run kimi login, or set KIMI_MODEL_NAME and KIMI_MODEL_API_KEY"


def recording(dictionary: KimiDictionary) -> AcpRecordingReader:
    return AcpRecordingReader(
        lambda call, message: dictionary.answered(call, allowed=False),
        lambda call: dictionary.answered(call, allowed=True),
    )


async def inspect(env: Mapping[str, str] | None) -> Presence:
    environ = os.environ if env is None else env

    async def version() -> CheckedVersion:
        return await VERSIONS.check(find(None, env), env=env)

    return await inspected(AGENT, lambda: find(None, env), version, lambda: sign_in(environ))


AGENT = Agent(
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
    inspect=inspect,
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
