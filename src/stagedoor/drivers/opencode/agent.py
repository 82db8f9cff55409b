"""OpenCode: ``serve`` (a private server that asks), ``run`` (a process a turn, asks nobody), ``acp``."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping

from msgspec.structs import replace

from ...agents.acp.protocol import AcpProtocol
from ...agents.acp.requests import RequestPermission
from ...agents.opencode.client import OpenCodeClient, has_credentials
from ...agents.opencode.events import PermissionAsked, QuestionAsked
from ...agents.opencode.launch import INSTALL
from ...agents.opencode.protocol import ServeProtocol
from ...agents.opencode.server import VERSIONS
from ...transports.versions import CheckedVersion
from ...unified.capabilities import Capabilities
from ...unified.options import Options
from ..acp.recording import AcpRecordingReader, recognize_acp
from ..acp.settings import AcpSettings
from ..agent import Agent, ArgumentRules, Driver, Package, Presence, ScriptedSetup
from ..inspection import SignIn, inspected
from .acp_dictionary import OpenCodeAcpDictionary
from .opening import RecordedRun, client_of, open_acp, open_run, open_serve
from .protected import PROTECTED
from .recording import ServeRecordingReader, recognize_run, recognize_serve
from .rights import check_run
from .run_dictionary import RunDictionary
from .scripted import scripted_settings
from .serve_dictionary import ServeDictionary
from .state import state_of
from .stored import list_stored, read_stored
from .tools import MCP_NAME, OWN_TOOLS, TITLE
from .trust import PROJECT_PATHS

NAME = "opencode"
SIGN_IN = "opencode auth login"
NOTES = {
    "sandbox": "OpenCode has none: readOnly denies every tool that acts, workspaceWrite is confine='workspace'",
    "system_prompt": "takes the place of the agent's prompt; what OpenCode adds about the folder stays",
    "effort": "a variant of the model, by its name",
    "cost": "by the prices OpenCode knows; none for a model without prices",
}
RUN = Capabilities(
    thinking=True,
    plan=True,
    mcp_servers=True,
    permissions="none",
    interrupt=True,
    fork=True,
    max_turns=True,
    max_budget=True,
    images=True,
    system_prompt=True,
    effort=True,
    allowed_tools=True,
    disallowed_tools=True,
    sandbox=("none", "readOnly", "workspaceWrite", "fullAccess"),
    confine=True,
    exit_codes=True,
    diffs=True,
    cost=True,
    notes={
        **NOTES,
        "tool_list": "only over serve",
        "text_deltas": "this mode prints whole messages",
        "allowed_tools": "write_file and edit_file only together; a patch is both",
        "disallowed_tools": "write_file and edit_file only together; a patch is both",
        "permissions": "this mode cannot ask: calls that need approval are refused; use driver='serve'",
        "subagents": "this mode does not print what sub-agents do",
        "structured_output": "only over serve",
        "append_system_prompt": "only over serve; put more into AGENTS.md",
        "images": "with the first prompt of a session",
        "max_turns": "per prompt: the number of model requests",
    },
)
SERVE = replace(
    RUN,
    text_deltas=True,
    subagents=True,
    permissions="all",
    deny_message=True,
    remember_session=True,
    structured_output=True,
    append_system_prompt=True,
    tool_list=True,
    notes={
        **NOTES,
        "tool_list": "without the tools of MCP servers, which OpenCode does not list",
        "permissions": "every call that acts, including those of sub-agents",
        "edit_input": "OpenCode has no way to change a call's input; an edited call is refused",
        "deny_message": "with interrupt the message is not delivered: the turn ends at once",
        "remember_session": "remembered by Stagedoor, for the same tool and target: OpenCode would remember more than "
        "that",
        "images": "with the first prompt of a session",
        "max_turns": "per prompt: the number of model requests, sub-agents' not counted",
    },
)
ACP = replace(
    SERVE,
    subagents=False,
    deny_message=False,
    max_turns=False,
    max_budget=False,
    structured_output=False,
    images=False,
    append_system_prompt=False,
    tool_list=False,
    notes={
        **SERVE.notes,
        "tool_list": "only over serve",
        "subagents": "denied: a sub-agent's question is never forwarded over ACP and would wait for ever",
        "deny_message": "the model is only told that the user rejected the call",
        "max_turns": "its steps are not told over ACP",
        "max_budget": "money is told at the end of a turn only",
        "structured_output": "only over serve",
        "images": "only over serve and run",
        "append_system_prompt": "only over serve; put more into AGENTS.md",
        "effort": "where the model has variants",
        "usage": "tokens are those of the last step of a turn; the cost is the whole turn's",
    },
)


async def inspect(env: Mapping[str, str] | None) -> Presence:
    client = OpenCodeClient(env=env)

    async def sign_in() -> SignIn:
        if await asyncio.to_thread(has_credentials, os.environ if env is None else env):
            return True, "", ""
        return False, "no provider has credentials, and OpenCode would use its own hosted model", SIGN_IN

    return await inspected(AGENT, client.find, client.check_version, sign_in)


async def check_version(options: Options) -> CheckedVersion:
    return await client_of(options).check_version()


def choose(options: Options) -> str:
    """The server, which streams, asks, and starts once for all turns."""
    return "serve"


AGENT = Agent(
    name=NAME,
    title=TITLE,
    install=INSTALL,
    drivers={
        "serve": Driver(
            "serve",
            SERVE,
            ServeDictionary,
            ServeProtocol,
            open_serve,
            (PermissionAsked, QuestionAsked),
            ServeRecordingReader,
            check_version,
            recognize_serve,
        ),
        "run": Driver(
            "run",
            RUN,
            RunDictionary,
            RecordedRun,
            open_run,
            check_version=check_version,
            recognize=recognize_run,
            check=check_run,
        ),
        "acp": Driver(
            "acp",
            ACP,
            OpenCodeAcpDictionary,
            AcpProtocol,
            open_acp,
            (RequestPermission,),
            lambda _: AcpRecordingReader(),
            check_version,
            recognize_acp("opencode"),
            settings=AcpSettings(),
        ),
    },
    choose_driver=choose,
    list_stored=list_stored,
    read_stored=read_stored,
    inspect=inspect,
    tools=OWN_TOOLS,
    mcp_name=MCP_NAME,
    protected=PROTECTED,
    arguments=ArgumentRules(
        reserved={"run": 0, "serve": 0, "acp": 0, "--format": 1}, replaced={"--model": "model", "-m": "model"}
    ),
    state=state_of,
    project_paths=PROJECT_PATHS,
    package=Package("opencode-ai", "1.18.33"),
    versions=VERSIONS,
    scripted=ScriptedSetup("scripted/scripted-model", scripted_settings),
)
