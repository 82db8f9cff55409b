"""Our options in Qwen Code's words, and the start of a session with them."""

from __future__ import annotations

import asyncio
import json
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

from msgspec.structs import replace

from ...agents.acp import AcpSession
from ...agents.acp import launch as acp_launch
from ...transports.executables import find_executable
from ...transports.launch import SCRATCH, Launch
from ...transports.versions import CheckedVersion, ProvenVersions
from ...unified.decisions import Ask
from ...unified.options import Options
from ..acp.opening import LISTING_SECONDS, config, open_launched
from ..acp.questions import AcpQuestions
from ..acp.retries import watch_retries
from ..confinement import confinement_of, environ_of
from .dictionary import PROFILE, QwenDictionary
from .rights import excluded_tools, lists_of, mode_of, settings_of
from .state import state_of
from .stored import failed_call, records_file
from .trust import (
    FOLDER_TRUST,
    PROJECT_PATHS,
    folder_list,
    git_environment,
    is_restricted,
    unread_instructions,
    withheld_tools,
)

INSTALL = "npm install -g @qwen-code/qwen-code"
VERSIONS = ProvenVersions("qwen", "0.24.4", "0.24.4", INSTALL)
HINTS = ("~/.local/bin", "~/.npm-global/bin", "/usr/local/bin", "/opt/homebrew/bin")
SYSTEM_SETTINGS = "QWEN_CODE_SYSTEM_SETTINGS_PATH"
SYSTEM_DEFAULTS = "QWEN_CODE_SYSTEM_DEFAULTS_PATH"
TRUSTED_FOLDERS = "QWEN_CODE_TRUSTED_FOLDERS_PATH"


def find(executable: str | None, env: Mapping[str, str] | None) -> str:
    return find_executable("qwen", executable=executable, env=env, install=INSTALL, hints=HINTS)


async def check_version(options: Options) -> CheckedVersion:
    env = environ_of(options)
    return await VERSIONS.check(find(options.executable, env), env=env)


def command_of(executable: str, environ: Mapping[str, str]) -> tuple[str, ...]:
    """The program behind its launcher. The launcher starts it twice over and passes no signal on."""
    program = Path(executable).resolve()
    direct = program.with_name("cli.js")
    node = shutil.which("node", path=environ.get("PATH"))
    if program.name == "cli-entry.js" and direct.is_file() and node is not None:
        return node, str(direct)
    return (executable,)


def launch_of(options: Options) -> Launch:
    environ = environ_of(options)
    settings = _merged(_system_settings(environ), settings_of(options))
    env = {"QWEN_CODE_NO_RELAUNCH": "true", SYSTEM_SETTINGS: f"{SCRATCH}/settings.json"}
    env |= {
        SYSTEM_DEFAULTS: environ.get(SYSTEM_DEFAULTS) or str(_system_path(environ).with_name("system-defaults.json"))
    }
    env |= {TRUSTED_FOLDERS: f"{SCRATCH}/folders.json"}
    restricted = is_restricted(options)
    if restricted:
        settings = _merged(settings, FOLDER_TRUST)
    elif not options.trust:
        settings = _merged(settings, unread_instructions())
    if not options.trust:
        env |= git_environment(options)
    argv = [*command_of(find(options.executable, environ), environ), "--acp"]
    argv += ["--approval-mode", mode_of(options)]
    argv += ["--model", options.model] if options.model else []
    if excluded := tuple(dict.fromkeys((*excluded_tools(options), *withheld_tools(options)))):
        argv += ["--exclude-tools", ",".join(excluded)]
    start = acp_launch(
        [*argv, *options.extra_args],
        cwd=str(Path(options.cwd).absolute()),
        env=env,
        confinement=confinement_of(options, state_of, PROJECT_PATHS),
    )
    folders = folder_list(options, trusted=not restricted)
    return replace(start, files={"settings.json": json.dumps(settings).encode(), "folders.json": folders.encode()})


def _system_settings(environ: Mapping[str, str]) -> dict[str, Any]:
    """What the machine's owner has set: ours stand in the same place and must not undo it."""
    try:
        settings: object = json.loads(_system_path(environ).read_text("utf-8"))
    except (OSError, ValueError):
        return {}
    return cast("dict[str, Any]", settings) if isinstance(settings, dict) else {}


def _system_path(environ: Mapping[str, str]) -> Path:
    default = "/Library/Application Support/QwenCode" if sys.platform == "darwin" else "/etc/qwen-code"
    return Path(environ.get(SYSTEM_SETTINGS) or f"{default}/settings.json")


def _merged(theirs: Mapping[str, Any], ours: Mapping[str, Any]) -> dict[str, Any]:
    """Ours over theirs; of lists both, so that what is denied stays denied."""
    merged = dict(theirs)
    for key, value in ours.items():
        before: object = merged.get(key)
        if isinstance(before, dict) and isinstance(value, dict):
            merged[key] = _merged(cast("dict[str, Any]", before), cast("dict[str, Any]", value))
        elif isinstance(before, list) and isinstance(value, list):
            merged[key] = [*cast("list[object]", before), *cast("list[object]", value)]
        else:
            merged[key] = value
    return merged


async def open_session(prompt: str, options: Options, ask: Ask, dictionary: QwenDictionary) -> AcpSession:
    lists = lists_of(options)
    questions = AcpQuestions(options, ask, dictionary, lists)
    start = await asyncio.to_thread(launch_of, options)
    servers = {name: server for name, server in options.mcp_servers.items() if lists.permits_server(name)}
    settings = config(
        replace(options, mcp_servers=servers, model=None), ask, dictionary.protocol, waits=LISTING_SECONDS
    )
    environ, cwd = environ_of(options), start.cwd
    before = await asyncio.to_thread(size_of_records, options.resume, cwd, environ)
    session = await open_launched(start, prompt, options, settings, questions, profile=PROFILE)
    dictionary.protocol.tools = session.tools
    session_id = session.session_id
    watch_retries(session, lambda: records_file(session_id, cwd, environ), failed_call, start=before)
    return session


def size_of_records(session_id: str | None, cwd: str, environ: Mapping[str, str]) -> int:
    file = records_file(session_id, cwd, environ) if session_id else None
    return file.stat().st_size if file is not None else 0
