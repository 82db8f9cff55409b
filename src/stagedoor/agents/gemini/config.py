"""How a Gemini session shall run, in the CLI's own words, and the settings file this makes. Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import Any, TypeAlias, cast

import msgspec

from stagedoor.agents.acp.config import AcpProfile, AskPermission
from stagedoor.errors import LocalProtocolError
from stagedoor.transports.launch import Confinement

from .policy import PolicyRule

PROFILE = AcpProfile(
    # "<name>__<name>_<ms>_<n>", or "<name>__<id>" when the model gave its call an id.
    tool_name_in_id=r"(.+?)__(?:\1_\d+_\d+|(?:(?!__).)+)$",
    mode_prefix="[MODE_UPDATE]",
    replays_after_load=10.0,
    missing_files_are_empty=True,
    # "Always" for a whole server, or for good, is more than was asked.
    broad_options=("proceed_always_server", "proceed_always_and_save"),
)
"""How ``gemini --acp`` departs from the protocol."""


class GeminiDriver(StrEnum):
    STREAM_JSON = "stream-json"
    """A process for each turn, which asks nobody: the model cannot use what is not allowed."""
    ACP = "acp"
    """One process for the session, which asks before it acts."""


class ApprovalMode(StrEnum):
    DEFAULT = "default"
    AUTO_EDIT = "auto_edit"
    """Over ACP, edits and ``web_fetch`` then pass by every policy rule, those that deny included."""
    PLAN = "plan"
    YOLO = "yolo"


class StdioMcpServer(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    """An MCP server the CLI starts. As in settings.json, ``$NAME`` in a string stands for an environment variable."""

    command: str
    args: tuple[str, ...] = ()
    env: Mapping[str, str] = {}
    cwd: str | None = None
    timeout: int | None = None
    trust: bool | None = None
    include_tools: tuple[str, ...] | None = None
    exclude_tools: tuple[str, ...] | None = None


class HttpMcpServer(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename={"http_url": "httpUrl"}):
    """An MCP server at a URL (streamable HTTP)."""

    http_url: str
    headers: Mapping[str, str] = {}
    timeout: int | None = None
    trust: bool | None = None


class SseMcpServer(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An MCP server at a URL (server-sent events)."""

    url: str
    headers: Mapping[str, str] = {}
    timeout: int | None = None
    trust: bool | None = None


McpServer: TypeAlias = StdioMcpServer | HttpMcpServer | SseMcpServer


class GeminiSessionConfig(msgspec.Struct, frozen=True, kw_only=True):
    """Every useful flag and setting. What is ``None`` is left to the user's own settings."""

    driver: GeminiDriver | None = None
    """By default ACP when there is a ``can_use_tool``, else stream-json."""
    approval_mode: ApprovalMode = ApprovalMode.DEFAULT
    model: str | None = None
    can_use_tool: AskPermission | None = None
    """Called before a tool is used: ``allow_once``, ``allow_always``, ``reject_once``, or one of the offered options.

    The CLI does not ask about everything: it reads, and runs commands it thinks harmless (``ls``, ``echo``), unasked;
    a rule that asks and has an ``args_pattern`` makes it ask about those too. Even in ``yolo`` it asks before it edits
    a build file (``package.json``, ``Makefile``); a headless run refuses that.
    """
    permission_timeout: float | None = None
    """Seconds after which an unanswered question is denied."""

    policy: tuple[PolicyRule, ...] = ()
    policy_files: tuple[str, ...] = ()
    allowed_tools: tuple[str, ...] = ()
    """Short rules, as in ``run_shell_command(git status)``; they become policy."""
    disallowed_tools: tuple[str, ...] = ()

    sandbox: bool = False
    sandbox_image: str | None = None
    trust_workspace: bool | None = None
    """True: the folder's own settings count, its hooks and MCP servers run. False: nothing of it counts; the CLI runs
    restricted over ACP (no MCP servers and hooks at all), and not at all as stream-json (exit 55)."""
    check_workspace: Callable[[], None] | None = None
    """Called before each start of the CLI; what it raises stops that."""
    add_dirs: tuple[str, ...] = ()

    session_id: str | None = None
    """For a new stream-json session; by default a fresh one."""
    max_session_turns: int | None = None
    max_attempts: int = 3
    """The CLI's own default is 10: minutes of silence when the API is down."""

    mcp_servers: Mapping[str, McpServer] = {}
    allowed_mcp_server_names: tuple[str, ...] = ()
    extensions: tuple[str, ...] | None = None
    """Use only these; ``()`` is none of them."""
    system_prompt: str | None = None
    """Replaces the CLI's own."""

    auth_type: str | None = None
    """``security.auth.selectedType``; by default ``gemini-api-key`` if there is a key and the user chose nothing."""
    usage_statistics: bool | None = None
    settings: Mapping[str, Any] = {}
    """More of settings.json, laid over the user's own for this session only."""
    expand_prompt: bool = False
    """Let the CLI run ``/commands`` and append ``@files`` in prompts, instead of taking them literally."""
    raw_output: bool = False
    debug: bool = False
    stall_after: float | None = None
    """Report ``Stalled`` after so many seconds without output and without processor time."""
    env: Mapping[str, str] = {}
    extra_args: tuple[str, ...] = ()
    confinement: Confinement | None = None
    """Run it in a sandbox of ours."""

    @property
    def chosen_driver(self) -> GeminiDriver:
        return self.driver or (GeminiDriver.ACP if self.can_use_tool else GeminiDriver.STREAM_JSON)


def settings(config: GeminiSessionConfig, user: bytes | None, env: Mapping[str, str]) -> bytes:
    """The settings file of this session: the user's own, under what we must set and what the config says."""
    mine = _parsed(user) if user else {}
    ours: dict[str, Any] = {
        "general": {
            "maxAttempts": config.max_attempts,
            # On: every start deletes sessions it takes for empty, and a resume leaves an empty file under the same id.
            "sessionRetention": {"enabled": False},
        },
        # On: shell output does not reach an ACP client.
        "tools": {"shell": {"enableInteractiveShell": False}},
    }
    chosen = _at(mine, "security", "auth", "selectedType")
    auth = config.auth_type or (None if chosen else _auth_by(env))
    if auth:
        ours["security"] = {"auth": {"selectedType": auth}}
    if config.usage_statistics is not None:
        ours["privacy"] = {"usageStatisticsEnabled": config.usage_statistics}
    if config.max_session_turns is not None:
        ours["model"] = {"maxSessionTurns": config.max_session_turns}
    if config.mcp_servers:
        ours["mcpServers"] = {name: msgspec.to_builtins(server) for name, server in config.mcp_servers.items()}
    return json.dumps(merged(merged(mine, ours), dict(config.settings)), indent=1).encode()


def chosen_auth(user: bytes | None) -> str:
    """How the user chose to sign in; empty when the settings do not say, or cannot be read."""
    try:
        chosen = _at(_parsed(user), "security", "auth", "selectedType") if user else None
    except LocalProtocolError:
        return ""
    return chosen if isinstance(chosen, str) else ""


def merged(under: dict[str, Any], upper: dict[str, Any]) -> dict[str, Any]:
    """``upper`` laid over ``under``, object by object; lists and values are replaced whole."""
    result = dict(under)
    for key, value in upper.items():
        below = result.get(key)
        both = isinstance(value, dict) and isinstance(below, dict)
        result[key] = merged(cast("dict[str, Any]", below), cast("dict[str, Any]", value)) if both else value
    return result


def _auth_by(env: Mapping[str, str]) -> str | None:
    # With a base URL the CLI would guess "gateway" and then refuse it; without a choice ACP refuses to start.
    if env.get("GOOGLE_GENAI_USE_VERTEXAI") == "true":
        return "vertex-ai"
    return "gemini-api-key" if env.get("GEMINI_API_KEY") else None


def _at(value: object, *path: str) -> object:
    for key in path:
        value = cast("dict[str, Any]", value).get(key) if isinstance(value, dict) else None
    return value


_COMMENT = re.compile(r'("(?:\\.|[^"\\])*")|//[^\n]*|/\*.*?\*/', re.S)


def _parsed(content: bytes) -> dict[str, Any]:
    """settings.json may have comments."""
    try:
        value: object = json.loads(_COMMENT.sub(lambda match: match[1] or "", content.decode()))
    except ValueError as error:
        raise LocalProtocolError(f"the user's Gemini settings.json is not valid JSON: correct it ({error})") from None
    if not isinstance(value, dict):
        raise LocalProtocolError("the user's Gemini settings.json is not a JSON object: correct it")
    return cast("dict[str, Any]", value)
