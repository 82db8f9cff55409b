"""Config → argv, environment and policy of one ``gemini`` process; and what it means when that does not start. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from signal import SIGTERM

from stagedoor.errors import (
    LaunchError,
    LocalProtocolError,
    NotSignedIn,
    NotSupported,
    ProcessExited,
    SessionNotFound,
    StagedoorError,
)
from stagedoor.transports.launch import SCRATCH, EndInput, Exited, Launch, Signal

from .commands import literal
from .config import GeminiDriver, GeminiSessionConfig
from .policy import allow, deny, policy_toml

LONGEST_PROMPT = 8 * 2**20
"""The CLI reads no more than this from its standard input, and cuts the rest off."""

_OURS = re.compile(
    r"-[pior].*|--(prompt|prompt-interactive|output-format|resume|acp|experimental-acp|session-id|session-file|policy"
    r"|list-sessions|delete-session)(=.*)?",
    re.S,
)
_REMOVED = {
    "--auto-edit": "approval_mode=ApprovalMode.AUTO_EDIT",
    "--sandbox-image": "sandbox_image",
    "--non-interactive": "nothing: a session is never interactive here",
}
"""Flags of older descriptions that today's CLI refuses, and what to use."""


def launch(
    config: GeminiSessionConfig,
    *,
    cwd: str,
    executable: str,
    home: str = "",
    user_folder: str = "",
    prompt: str = "",
    resume: str | None = None,
    session_id: str | None = None,
    policies: Mapping[str, bytes] | None = None,
) -> Launch:
    """One process: a turn (``prompt``, perhaps on a session to ``resume``), or a whole session over ACP.

    ``home``: the folder whose ``.gemini`` holds the settings (see ``store``), with links into ``user_folder``, which
    is the user's own; without it the CLI has the user's settings as they are. ``policies``: policy files, checked.
    """
    acp = config.chosen_driver is GeminiDriver.ACP
    check(config, resume=resume)
    files = dict(policies or {}) | _generated_policy(config)
    argv = [executable, "--acp"] if acp else [executable, "--output-format", "stream-json"]
    argv += ["--approval-mode", config.approval_mode.value]
    argv += ["--model", config.model] if config.model else []
    argv += ["--sandbox"] if config.sandbox else []
    argv += ["--debug"] if config.debug else []
    argv += ["--raw-output", "--accept-raw-output-risk"] if config.raw_output else []
    argv += [f"--include-directories={folder}" for folder in config.add_dirs]
    argv += [f"--extensions={name}" for name in ("none",) if config.extensions == ()]
    argv += [f"--extensions={name}" for name in config.extensions or ()]
    argv += [f"--allowed-mcp-server-names={name}" for name in config.allowed_mcp_server_names]
    argv += [f"--policy={SCRATCH}/{name}" for name in sorted(files)]
    if files:
        # --policy takes the place of the user's own rules: name them too. A missing folder does not matter.
        argv.append(f"--policy={f'{home}/.gemini' if home else user_folder}/policies")
    if not acp:
        argv += [f"--resume={resume}"] if resume else []
        argv += [f"--session-id={session_id}"] if session_id and not resume else []
    env = {
        "TERM": "xterm-256color",
        "COLORTERM": "truecolor",
        "NO_COLOR": "1",
        **({"TMPDIR": f"{home}/tmp"} if home else {}),  # failed requests dump the whole conversation there
        **config.env,
        **({"GEMINI_CLI_HOME": home} if home else {}),
        **_trust(config),
        "GEMINI_CLI_NO_RELAUNCH": "true",  # one process instead of a launcher that ignores signals and its child
    }
    if config.sandbox and user_folder:
        env["SANDBOX_MOUNTS"] = f"{user_folder}:{user_folder}:rw"  # where the links lead must be in the container too
    if config.sandbox_image:
        env["GEMINI_SANDBOX_IMAGE"] = config.sandbox_image
    if config.system_prompt is not None:
        files["system.md"] = config.system_prompt.encode()
        env["GEMINI_SYSTEM_MD"] = f"{SCRATCH}/system.md"
    return Launch(
        argv=(*argv, *config.extra_args),
        cwd=cwd,
        env=env,
        stdin="pipe" if acp else stdin(prompt, config),
        # It exits without draining a pipe and loses the end of long answers; a socket keeps them.
        stdout="socketpair",
        files=files,
        folders=(home,) if home else (),
        stop=(EndInput(1.0), Signal(SIGTERM, 1.0)) if acp else (Signal(SIGTERM, 1.0),),
        confinement=config.confinement,
    )


def _trust(config: GeminiSessionConfig) -> dict[str, str]:
    """Not ``--skip-trust``: that is half a trust at first, and a whole one when the settings are read again."""
    if config.trust_workspace is None:
        return {}
    return {"GEMINI_CLI_TRUST_WORKSPACE": "true" if config.trust_workspace else "false"}


def stdin(prompt: str, config: GeminiSessionConfig) -> bytes:
    """The prompt for standard input: nothing limits it there, shows it to other users, or takes ``-x`` for a flag."""
    if not prompt.strip():
        raise LocalProtocolError("the prompt is empty: Gemini CLI needs some text")
    content = (prompt if config.expand_prompt else literal(prompt)).encode("utf-8", "replace")
    if len(content) > LONGEST_PROMPT:
        raise LocalProtocolError(
            f"the prompt is too long: {len(content)} bytes, and Gemini CLI reads only {LONGEST_PROMPT}"
        )
    return content


def check(config: GeminiSessionConfig, *, resume: str | None = None) -> None:
    """Refuse what the CLI would refuse, ignore, or do differently."""
    acp = config.chosen_driver is GeminiDriver.ACP
    for argument in config.extra_args:
        if _OURS.fullmatch(argument):
            raise LocalProtocolError(
                f"{argument!r} cannot be an extra argument: Stagedoor sets it, use the field of the config"
            )
        if instead := _REMOVED.get(argument.partition("=")[0]):
            raise LocalProtocolError(f"Gemini CLI has no option {argument}: use {instead}")
    if config.can_use_tool and not acp:
        raise NotSupported("stream-json cannot ask for permission: use driver=GeminiDriver.ACP, or policy rules")
    if config.session_id and (acp or resume):
        raise NotSupported("only a new stream-json session takes a session_id: leave it out")
    if config.sandbox and acp:
        raise NotSupported(
            "Gemini CLI reads its input to the end before it makes its container, so ACP does not work there: "
            "use driver stream-json"
        )
    if config.sandbox_image and not config.sandbox:
        raise LocalProtocolError("sandbox_image does nothing without sandbox=True")
    if config.max_attempts < 1:
        raise LocalProtocolError("max_attempts must be at least 1")
    if any("," in part for part in (*config.add_dirs, *config.allowed_mcp_server_names)):
        raise LocalProtocolError(
            "Gemini CLI splits directories and server names at commas: rename the one that has a comma"
        )


def _generated_policy(config: GeminiSessionConfig) -> dict[str, bytes]:
    rules = (*config.policy, *map(allow, config.allowed_tools), *map(deny, config.disallowed_tools))
    return {"stagedoor.toml": policy_toml(rules)} if rules else {}


# Standard error is mostly chatter; these lines are never the reason of a failure.
_CHATTER = re.compile(
    r"YOLO mode is enabled|Approval mode overridden|Ripgrep is not available|Warning: |\[STARTUP\]|Loaded cached|\s*at "
)


def error_line(stderr: str) -> str:
    """The first line on standard error that is not chatter."""
    lines = (line.strip() for line in stderr.splitlines())
    return next((line for line in lines if line and not _CHATTER.match(line)), "")


def session_not_found(session_id: str) -> SessionNotFound:
    name = f"session {session_id!r}" if session_id else "session"
    return SessionNotFound(
        f"{name} not found: Gemini CLI has no such session for this folder; list_sessions() lists them"
    )


def startup_failure(exited: Exited, *, session_id: str = "") -> StagedoorError:
    """Why a process ended before its first turn."""
    reason = error_line(exited.stderr) or "no error message"
    match exited.code:
        case 41:
            return NotSignedIn(
                "Gemini CLI is not signed in: set GEMINI_API_KEY, or run gemini once and choose how to sign in "
                f"({reason})"
            )
        case 42 if "resuming session" in exited.stderr:
            return session_not_found(session_id)
        case 42:
            return LocalProtocolError(f"Gemini CLI refused the input: {reason}")
        case 1 if "FatalSandboxError: " in exited.stderr:
            why = exited.stderr.partition("FatalSandboxError: ")[2].partition("\n")[0]
            return LaunchError(f"Gemini CLI cannot start its sandbox: fix that, or turn sandbox off ({why})")
        case 44:
            return LaunchError(
                f"Gemini CLI cannot start its sandbox: install docker or podman, or turn sandbox off ({reason})"
            )
        case 52:
            return LaunchError(f"Gemini CLI refused the settings: {reason}")
        case 55:
            return LaunchError("Gemini CLI does not trust this folder: use trust_workspace=True, or trust it in gemini")
        case 1 if "Usage: gemini" in exited.stderr:
            return LocalProtocolError(f"Gemini CLI refused an option: correct it, or update the CLI ({reason})")
        case _:
            return ProcessExited(
                f"Gemini CLI ended before its first turn, with exit code {exited.code}: {reason}",
                code=exited.code,
                stderr=exited.stderr,
            )


def acp_failure(error: StagedoorError) -> StagedoorError:
    """The same for a session over ACP."""
    if isinstance(error, ProcessExited) and error.code is not None:
        return startup_failure(Exited(error.code, error.stderr))
    if isinstance(error, NotSignedIn):
        return NotSignedIn(
            f"Gemini CLI is not signed in: set GEMINI_API_KEY, or run gemini once and choose how to sign in ({error})"
        )
    return error
