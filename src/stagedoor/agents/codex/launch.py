"""From a config to what Codex is started with, and why it did not start. Pure."""

from __future__ import annotations

import json
import signal
from collections.abc import Mapping, Sequence
from typing import Any, cast

import msgspec

from ...errors import (
    AgentRefused,
    LaunchError,
    LocalProtocolError,
    NotSupported,
    SessionNotFound,
    StagedoorError,
)
from ...transports.launch import SCRATCH, EndInput, Exited, Launch, Signal
from .config import ApprovalPolicy, CodexSessionConfig, GranularApproval, SandboxMode, chosen_driver

FEATURES_OFF = ("plugins", "unbounded_connection_retries")
"""The first goes to the network at every start, the second retries a refused connection for ever."""
SCHEMA_FILE, INSTRUCTIONS_FILE = "output-schema.json", "instructions.md"


def launch(
    config: CodexSessionConfig,
    *,
    cwd: str,
    executable: str,
    prompt: str | None = None,
    resume: str | None = None,
    fork: str | None = None,
    images: Sequence[str] = (),
    trust_roots: Sequence[str] = (),
    native: bool = True,
) -> Launch:
    """What to start for one session (app-server) or one turn (exec).

    ``trust_roots`` are the folders whose trust Codex would ask about: the working directory and its repository.
    ``native`` is false when ``executable`` is a launcher with the real program below it.
    """
    check(config)
    if chosen_driver(config) == "app-server":
        return _app_server(config, cwd, executable, native=native)
    if prompt is None or not prompt.strip():
        raise LocalProtocolError("the prompt is empty")
    return Launch(
        argv=(executable, *exec_arguments(config, cwd, resume, fork, images, trust_roots or (cwd,))),
        cwd=cwd,
        env=dict(config.env),
        stdin=prompt.encode("utf-8", "replace"),
        files=_files(config),
        # SIGINT lets exec end its running command; SIGTERM would leave the children of an unsandboxed one behind.
        stop=(Signal(signal.SIGINT, 3.0, group=not native), Signal(signal.SIGTERM, 1.0, group=not native)),
        confinement=config.confinement,
    )


def exec_arguments(
    config: CodexSessionConfig,
    cwd: str,
    resume: str | None,
    fork: str | None,
    images: Sequence[str],
    trust_roots: Sequence[str],
) -> list[str]:
    """Everything after the program's name. The prompt is not among it: ``-`` makes Codex read its standard input."""
    if resume is not None and fork is not None:
        raise LocalProtocolError("resume and fork cannot be used together")
    pictures = [part for path in images for part in ("-i", path)]
    again = (
        ["resume", *pictures, resume] if resume is not None else ["fork", *pictures, fork] if fork is not None else []
    )
    arguments = [
        "exec",
        *(pictures if not again else []),  # greedy in this position: only another flag behind it ends the list
        "--json",
        *(["--skip-git-repo-check"] if not config.require_git_repo else []),
        "-C",
        cwd,
        *_sandbox(config),
        *_overrides(_settings(config, trust_roots)),
    ]
    for flag, value in (("-m", config.model), ("-p", config.profile)):
        arguments += [flag, value] if value is not None else []
    for path in config.add_dirs:
        arguments += ["--add-dir", path]
    arguments += ["--output-schema", f"{SCRATCH}/{SCHEMA_FILE}"] if config.output_schema is not None else []
    for flag, enabled in (
        ("--ephemeral", config.ephemeral),
        ("--worktree", config.worktree),
        ("--ignore-user-config", config.ignore_user_config),
        ("--ignore-rules", config.ignore_rules),
        ("--strict-config", config.strict_config),
    ):
        arguments += [flag] if enabled else []
    return [*arguments, *config.extra_args, *again, "-"]


def _app_server(config: CodexSessionConfig, cwd: str, executable: str, *, native: bool) -> Launch:
    process_wide = {"analytics.enabled": False} | _features(config)
    return Launch(
        argv=(
            executable,
            "app-server",
            *_overrides(process_wide),
            *(["--strict-config"] if config.strict_config else []),
            *config.extra_args,
        ),
        cwd=cwd,
        env=dict(config.env),
        # Never SIGINT: it would leave the running command behind.
        stop=(EndInput(3.0), Signal(signal.SIGTERM, 2.0, group=not native)),
        confinement=config.confinement,
    )


def thread_params(config: CodexSessionConfig, *, cwd: str, trust_roots: Sequence[str] = ()) -> dict[str, Any]:
    """The parameters of ``thread/start``, ``thread/resume`` and ``thread/fork``."""
    check(config)
    settings = _settings(config, trust_roots or (cwd,))
    for process_wide in ("analytics.enabled", *_features(config)):
        settings.pop(process_wide, None)
    if config.add_dirs:
        settings["sandbox_workspace_write.writable_roots"] = list(config.add_dirs)
    params: dict[str, Any] = {"cwd": cwd, "approvalPolicy": approval_policy(config), "config": settings}
    if config.dangerously_bypass_approvals_and_sandbox:
        params["sandbox"] = SandboxMode.DANGER_FULL_ACCESS.value
    elif config.full_auto or config.approve_for_me:
        params["sandbox"] = SandboxMode.WORKSPACE_WRITE.value
    elif config.sandbox_mode is not None:
        params["sandbox"] = config.sandbox_mode.value
    for key, value in (
        ("model", config.model),
        ("modelProvider", config.model_provider),
        ("baseInstructions", config.base_instructions),
        ("developerInstructions", config.developer_instructions),
        ("approvalsReviewer", "auto_review" if config.approve_for_me else None),
        ("ephemeral", True if config.ephemeral else None),
    ):
        if value is not None:
            params[key] = value
    return params


def turn_params(config: CodexSessionConfig, *, model: str) -> dict[str, Any]:
    """The parameters of every ``turn/start``; ``model`` is the one the thread runs on."""
    params: dict[str, Any] = {}
    if config.output_schema is not None:
        params["outputSchema"] = dict(config.output_schema)
    if config.plan_mode:
        settings = {"model": model, "reasoning_effort": config.reasoning_effort, "developer_instructions": None}
        params["collaborationMode"] = {"mode": "plan", "settings": settings}
    return params


def approval_policy(config: CodexSessionConfig) -> str | dict[str, Any]:
    """What the app-server gets. With a callback and no policy it asks about everything."""
    if config.dangerously_bypass_approvals_and_sandbox:
        return "never"
    match config.approval_policy:
        case None if config.full_auto or config.approve_for_me:
            return "on-request" if config.approve_for_me or config.can_use_tool is not None else "never"
        case None:
            return "untrusted" if config.can_use_tool is not None else "never"
        case ApprovalPolicy.ON_FAILURE:
            return ApprovalPolicy.ON_REQUEST.value
        case GranularApproval() as granular:
            return {"granular": msgspec.to_builtins(granular)}
        case policy:
            return policy.value


def check(config: CodexSessionConfig) -> None:
    """Refuse what cannot work, with an error that says what would."""
    if config.dangerously_bypass_approvals_and_sandbox and (
        config.can_use_tool is not None or config.approval_policy not in (None, ApprovalPolicy.NEVER)
    ):
        raise LocalProtocolError(
            "dangerously_bypass_approvals_and_sandbox asks no questions: "
            "remove it, or remove can_use_tool and approval_policy"
        )
    if config.network_access and config.sandbox_mode is not SandboxMode.WORKSPACE_WRITE:
        raise LocalProtocolError("network_access needs sandbox_mode=SandboxMode.WORKSPACE_WRITE")
    for name in config.mcp_servers:
        if not name or not all(letter.isalnum() or letter in "-_" for letter in name):
            raise LocalProtocolError(f"MCP server name {name!r} is not valid: use only letters, digits, - and _")
    if chosen_driver(config) == "exec":
        if config.can_use_tool is not None or config.approval_policy not in (None, ApprovalPolicy.NEVER):
            raise NotSupported("codex exec cannot ask for approval: use driver='app-server'")
        if config.plan_mode:
            raise NotSupported("codex exec has no plan mode: use driver='app-server'")
        return
    for option in ("worktree", "profile", "ignore_user_config", "ignore_rules", "require_git_repo"):
        if getattr(config, option):
            raise NotSupported(f"the Codex app-server has no {option}: use driver='exec'")


def _sandbox(config: CodexSessionConfig) -> list[str]:
    if config.dangerously_bypass_approvals_and_sandbox:
        return ["--dangerously-bypass-approvals-and-sandbox"]
    if config.approve_for_me:
        return ["--approve-for-me"]
    mode = SandboxMode.WORKSPACE_WRITE if config.full_auto else config.sandbox_mode
    return [] if mode is None else ["-s", mode.value]


def _features(config: CodexSessionConfig) -> dict[str, Any]:
    enabled = dict.fromkeys((*FEATURES_OFF, *config.disable), False) | dict.fromkeys(config.enable, True)
    return {f"features.{name}": on for name, on in enabled.items()}


def _settings(config: CodexSessionConfig, trust_roots: Sequence[str]) -> dict[str, Any]:
    """Keys of ``config.toml`` for this run; ``exec`` gets them as ``-c``, a thread in its ``config``."""
    in_exec = chosen_driver(config) == "exec"
    settings: dict[str, Any] = {"analytics.enabled": False} | _features(config)
    # A table, because a dotted key cannot hold a path.
    settings["projects"] = {root: {"trust_level": config.project_trust} for root in trust_roots}
    if config.network_access:
        settings["sandbox_workspace_write.network_access"] = True
    if config.plan_tool:
        settings["tools.update_plan.enabled"] = True
    search = {True: "live", False: "disabled"}[config.web_search] if isinstance(config.web_search, bool) else None
    for key, value in (
        ("model_reasoning_effort", config.reasoning_effort),
        ("model_reasoning_summary", config.reasoning_summary),
        ("web_search", search or config.web_search),
        ("model_provider", config.model_provider if in_exec else None),
        ("developer_instructions", config.developer_instructions if in_exec else None),
        ("model_instructions_file", f"{SCRATCH}/{INSTRUCTIONS_FILE}" if in_exec and config.base_instructions else None),
    ):
        if value is not None:
            settings[key] = value
    for name, server in config.mcp_servers.items():
        settings[f"mcp_servers.{name}"] = dict(server)
    return settings | dict(config.config)


def _files(config: CodexSessionConfig) -> dict[str, bytes]:
    files: dict[str, bytes] = {}
    if config.output_schema is not None:
        files[SCHEMA_FILE] = json.dumps(config.output_schema).encode()
    if config.base_instructions:
        files[INSTRUCTIONS_FILE] = config.base_instructions.encode("utf-8", "replace")
    return files


def _overrides(settings: Mapping[str, Any]) -> list[str]:
    return [part for key, value in settings.items() for part in ("-c", f"{key}={toml(value)}")]


def toml(value: Any) -> str:
    """One TOML value on one line."""
    match value:
        case bool():
            return "true" if value else "false"
        case int() | float():
            return repr(value)
        case str():
            # JSON's string is TOML's basic string, but for DEL, which TOML wants escaped. SCRATCH is filled in later.
            text = json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
            return text.replace(json.dumps(SCRATCH)[1:-1], SCRATCH)
        case Mapping():
            table = cast("Mapping[str, Any]", value)
            return "{" + ", ".join(f"{toml(str(key))} = {toml(item)}" for key, item in table.items()) + "}"
        case list() | tuple():
            return "[" + ", ".join(toml(item) for item in cast("list[Any]", value)) + "]"
        case _:
            raise LocalProtocolError(f"Codex's configuration cannot hold {value!r}: use text, numbers, lists or tables")


# ---------------------------------------------------------------------------------------------------- failures to start


def session_not_found(session_id: str) -> SessionNotFound:
    return SessionNotFound(f"session {session_id!r} not found in Codex: list_sessions() shows those of this folder")


def start_error(exited: Exited, session_id: str | None = None) -> StagedoorError:
    """Why Codex exited before it named a thread or answered the handshake."""
    words = error_line(exited.stderr)
    if "no rollout found" in exited.stderr:
        return session_not_found(session_id or "")
    if "active writer" in exited.stderr:
        return AgentRefused(f"session {session_id!r} is in use by another Codex process: end that process first")
    if "Not inside a trusted directory" in exited.stderr:
        return LaunchError("the folder is not a git repository: leave require_git_repo off, or run `git init` there")
    if exited.code == 2:
        return LaunchError(f"unknown option for Codex ({words}): correct extra_args, or update Codex")
    return LaunchError(f"Codex exited with code {exited.code} at start: {words or 'no error message'}")


def error_line(stderr: str) -> str:
    """The line of standard error that matters: the one that begins with error, else the last."""
    lines = [line.strip() for line in stderr.splitlines() if line.strip() and not line.startswith("WARNING: ")]
    errors = [line for line in lines if line.lower().startswith("error")]
    return (errors or lines or [""])[-1]
