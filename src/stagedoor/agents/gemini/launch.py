"""Config → argv, environment, settings and policy of one ``gemini`` process. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from signal import SIGTERM

from stagedoor.errors import LocalProtocolError, NotSupported
from stagedoor.transports.launch import SCRATCH, EndInput, Launch, Signal

from .commands import literal
from .config import Driver, GeminiConfig
from .policy import allow, deny, policy_toml

LONGEST_PROMPT = 8 * 2**20
"""The CLI reads no more than this from its standard input, and cuts the rest off."""

_OURS = re.compile(
    r"-[pior].*|--(prompt|prompt-interactive|output-format|resume|acp|experimental-acp|session-id|session-file|policy"
    r"|list-sessions|delete-session)(=.*)?",
    re.S,
)
_GONE = {
    "--auto-edit": "approval_mode=ApprovalMode.AUTO_EDIT",
    "--sandbox-image": "sandbox_image",
    "--non-interactive": "nothing: it is never interactive here",
}
"""Flags of older descriptions that today's CLI refuses, and what to use."""


def launch(
    config: GeminiConfig,
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

    ``home``: the folder whose ``.gemini`` holds the settings (see ``home.py``), with links into ``user_folder``, which
    is the user's own; without it the CLI has the user's settings as they are. ``policies``: policy files, checked.
    """
    acp = config.chosen_driver is Driver.ACP
    check(config, resume=resume)
    files = dict(policies or {}) | _generated_policy(config)
    argv = [executable, "--acp"] if acp else [executable, "--output-format", "stream-json"]
    argv += ["--approval-mode", config.approval_mode.value]
    argv += ["--skip-trust"] if config.trust_workspace else []
    argv += ["--model", config.model] if config.model else []
    argv += ["--sandbox"] if config.sandbox else []
    argv += ["--debug"] if config.debug else []
    argv += ["--raw-output", "--accept-raw-output-risk"] if config.raw_output else []
    argv += [f"--include-directories={folder}" for folder in config.include_directories]
    argv += [f"--extensions={name}" for name in ("none",) if config.extensions == ()]
    argv += [f"--extensions={name}" for name in config.extensions or ()]
    argv += [f"--allowed-mcp-server-names={name}" for name in config.allowed_mcp_server_names]
    argv += [f"--policy={SCRATCH}/{name}" for name in sorted(files)]
    if files:
        # --policy takes the place of the user's own rules: name them too. A folder that is not there does not matter.
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
    )


def stdin(prompt: str, config: GeminiConfig) -> bytes:
    """The prompt for standard input: nothing limits it there, shows it to other users, or takes ``-x`` for a flag."""
    if not prompt.strip():
        raise LocalProtocolError("the prompt is empty; Gemini CLI wants some text")
    content = (prompt if config.expand_prompt else literal(prompt)).encode("utf-8", "replace")
    if len(content) > LONGEST_PROMPT:
        raise LocalProtocolError(f"the prompt has {len(content)} bytes; Gemini CLI cuts it off after {LONGEST_PROMPT}")
    return content


def check(config: GeminiConfig, *, resume: str | None = None) -> None:
    """Refuse what the CLI would refuse, ignore, or do otherwise than asked."""
    acp = config.chosen_driver is Driver.ACP
    for argument in config.extra_args:
        if _OURS.fullmatch(argument):
            raise LocalProtocolError(
                f"{argument!r} cannot be an extra argument: Stagedoor sets it; use the config's own field"
            )
        if instead := _GONE.get(argument.partition("=")[0]):
            raise LocalProtocolError(f"Gemini CLI has no {argument}; use {instead}")
    if config.can_use_tool and not acp:
        raise NotSupported("stream-json asks nobody for permission; use driver=Driver.ACP, or policy rules")
    if config.session_id and (acp or resume):
        raise NotSupported("only a new stream-json session takes a session_id; leave it out")
    if config.sandbox and acp:
        raise NotSupported(
            "Gemini CLI reads its input to the end before it makes its container, so it cannot speak ACP from there; "
            "use driver stream-json"
        )
    if config.sandbox_image and not config.sandbox:
        raise LocalProtocolError("sandbox_image without sandbox=True would do nothing")
    if config.max_attempts < 1:
        raise LocalProtocolError("max_attempts must be at least 1")
    if any("," in part for part in (*config.include_directories, *config.allowed_mcp_server_names)):
        raise LocalProtocolError(
            "Gemini CLI splits directories and server names at commas; rename the one that has a comma"
        )


def _generated_policy(config: GeminiConfig) -> dict[str, bytes]:
    rules = (*config.policy, *map(allow, config.allowed_tools), *map(deny, config.excluded_tools))
    return {"stagedoor.toml": policy_toml(rules)} if rules else {}
