"""Gemini CLI: ``acp`` (one process that asks), and ``stream-json`` (a process for each turn, which asks nobody)."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from msgspec.structs import replace

from ...agents.acp import RequestPermission
from ...agents.acp.protocol import AcpProtocol
from ...agents.gemini import (
    GeminiClient,
    StreamProtocol,
)
from ...agents.gemini.client import INSTALL, VERSIONS
from ...agents.gemini.config import chosen_auth
from ...agents.gemini.store import user_folder, user_settings
from ...transports.versions import CheckedVersion
from ...unified.capabilities import Capabilities
from ...unified.options import Options
from ..acp.recording import recognize_acp
from ..acp.settings import AcpSettings
from ..agent import Agent, ArgumentRules, Driver, Package, Presence, ScriptedSetup
from ..inspection import SignIn, inspected
from .acp_dictionary import GeminiAcpDictionary
from .opening import client_of, is_contained, open_acp, open_stream
from .protected import PROTECTED
from .recording import StreamRecordingReader, acp_recording, recognize_stream
from .scripted import scripted_settings
from .state import state_of
from .stored import list_stored, read_stored
from .stream_dictionary import StreamDictionary
from .tools import MCP_NAME, OWN_TOOLS, TITLE
from .trust import PROJECT_PATHS

NOTES = {
    "cost": "the CLI reports tokens, not cost", "max_budget": "the CLI reports tokens, not cost",
    "fork": "the CLI cannot branch a stored session", "structured_output": "the CLI has no output schema",
    "append_system_prompt": "the CLI only replaces its prompt; put more into GEMINI.md",
    "subagents": "the CLI does not report what its sub-agents do",
    "sandbox": "readOnly is enforced by policy, workspaceWrite is confine='workspace'; its own containers "
    "(docker, podman) are chosen by name, with stream-json only",
    "images": "only over acp",
}  # fmt: skip
STREAM = Capabilities(
    text_deltas=True,
    plan=True,
    mcp_servers=True,
    permissions="none",
    interrupt=True,
    max_turns=True,
    system_prompt=True,
    allowed_tools=True,
    disallowed_tools=True,
    sandbox=("none", "readOnly", "workspaceWrite", "fullAccess"),
    confine=True,
    exit_codes=True,
    diffs=True,
    notes={
        "tool_list": "the CLI does not tell which tools the model is offered",
        **NOTES,
        "permissions": "a headless run cannot ask: calls that need approval are refused; use driver='acp'",
        "autonomous": "the CLI refuses to edit build files (package.json, Makefile, …) in a headless run; use acp",
        "thinking": "not printed in this mode",
    },
)
ACP = replace(
    STREAM,
    thinking=True,
    permissions="all",
    remember_session=True,
    images=True,
    notes={
        "tool_list": "the CLI does not tell which tools the model is offered",
        **NOTES,
        "permissions": "every call that acts, including commands that the CLI considers harmless; a tool the mode does "
        "not offer is not asked about and not reported, only the model is told",
        "edit_input": "the protocol has no way to change a call's input; an edited call is refused",
        "deny_message": "the model is only told that the user cancelled the call",
        "remember_session": "remembered by Stagedoor, for the same tool and target: the CLI would remember more than "
        "that",
        "max_turns": "the CLI counts the model turns of all prompts of a session together",
    },
)


async def inspect(env: Mapping[str, str] | None) -> Presence:
    client = GeminiClient(env=env)
    environ = os.environ if env is None else env
    return await inspected(AGENT, client.find, client.check_version, lambda: sign_in(environ))


def sign_in(env: Mapping[str, str]) -> SignIn:
    """Whether the CLI has what it needs to sign in, what is wrong, and what to do. No model is called."""
    folder = user_folder(env)
    key = bool(env.get("GEMINI_API_KEY")) or _in_env_file(folder.parent) or _in_env_file(folder)
    chosen = chosen_auth(user_settings(env))
    set_key = "set GEMINI_API_KEY to a key from Google AI Studio"
    match chosen:
        case "gateway":
            problem = "signing in by gateway does not work without a terminal"
            return False, problem, "run gemini and choose another way with /auth"
        case "oauth-personal":
            if (folder / "oauth_creds.json").exists():
                return True, "", ""
            return None, "", ""  # newer versions keep them in the system's keychain
        case "gemini-api-key" | "" if key:
            return True, "", ""
        case "gemini-api-key":
            return None, "", ""  # the keychain again
        case "":
            if env.get("GOOGLE_GENAI_USE_VERTEXAI") == "true" or env.get("GOOGLE_GENAI_USE_GCA") == "true":
                return None, "", ""
            return False, "Gemini CLI is not signed in", f"{set_key}, or run gemini once and choose how to sign in"
        case _:
            return None, "", ""


def _in_env_file(folder: Path) -> bool:
    try:
        return "GEMINI_API_KEY=" in (folder / ".env").read_text("utf-8", "replace")
    except OSError:
        return False


async def check_version(options: Options) -> CheckedVersion:
    return await client_of(options).check_version()


AGENT = Agent(
    name="gemini",
    title=TITLE,
    install=INSTALL,
    drivers={
        "acp": Driver(
            "acp", ACP, GeminiAcpDictionary, AcpProtocol, open_acp, (RequestPermission,), acp_recording, check_version,
            recognize_acp("gemini"), settings=AcpSettings(lambda session: session.acp),
        ),
        "stream-json": Driver(
            "stream-json", STREAM, StreamDictionary, StreamProtocol, open_stream, recording=StreamRecordingReader,
            check_version=check_version, recognize=recognize_stream,
        ),
    },
    # It asks where there is somebody to ask, edits build files, and starts once for all turns.
    # From its own container it can only do stream-json.
    choose_driver=lambda options: "stream-json" if is_contained(options) else "acp",
    list_stored=list_stored,
    read_stored=read_stored,
    inspect=inspect,
    tools=OWN_TOOLS,
    mcp_name=MCP_NAME,
    protected=PROTECTED,
    arguments=ArgumentRules(
        reserved={
            "-p": 1,
            "--prompt": 1,
            "-o": 1,
            "--output-format": 1,
            "--non-interactive": 0,
            "--acp": 0,
            "--experimental-acp": 0,
        },
        replaced={
            "--yolo": "skip_permissions: true",
            "-y": "skip_permissions: true",
            "--allowed-tools": "allowed_tools",
            "--approval-mode": "tier or approval",
            "--sandbox": "sandbox",
            "-s": "sandbox",
            "--model": "model",
            "-m": "model",
        },
    ),
    own_sandboxes={"docker": {"GEMINI_SANDBOX": "docker"}, "podman": {"GEMINI_SANDBOX": "podman"}},
    state=state_of,
    project_paths=PROJECT_PATHS,
    package=Package("@google/gemini-cli", "0.61.0"),
    versions=VERSIONS,
    scripted=ScriptedSetup("gemini-2.5-flash", scripted_settings),
)  # fmt: skip
