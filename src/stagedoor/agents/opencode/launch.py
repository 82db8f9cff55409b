"""OpenCode's command lines and configuration, from a typed config; and why it did not start. Pure."""

from __future__ import annotations

import re
from typing import Any, cast

import msgspec

from stagedoor.errors import LaunchError, LocalProtocolError, NotSignedIn, NotSupported, SessionNotFound, StagedoorError
from stagedoor.transports.launch import SCRATCH, EndInput, Exited, Launch, Signal

from .commands import ModelName
from .config import OpenCodeDriver, OpenCodeSessionConfig, Permission, check_permission, expand_permission

INSTALL = "npm install -g opencode-ai"
SIGTERM = 15
_SCRATCH_IN_JSON = SCRATCH.replace("\0", "\\u0000")
USERNAME = "opencode"
QUIET_ENV = {
    "OPENCODE_DISABLE_AUTOUPDATE": "1",
    "OPENCODE_DISABLE_SHARE": "1",
    "OPENCODE_SERVER_USERNAME": USERNAME,
}
FAILS_OPEN = ("OPENCODE_PERMISSION",)
"""Bad JSON in it is ignored and everything allowed; good JSON would be laid over our own permissions."""
UNPLUGS = ("OPENCODE_PURE", "OPENCODE_DISABLE_EXTERNAL_PLUGINS")
"""With these no plugin is loaded, not even ours."""


def launch(
    config: OpenCodeSessionConfig,
    *,
    cwd: str,
    executable: str,
    prompt: str = "",
    resume: str | None = None,
    port: int = 0,
    password: str = "",
    inherited: str = "",
) -> Launch:
    """The process of this config's driver.

    ``run`` takes the ``prompt`` (on standard input: words on the command line are rewritten). ``serve`` and ``acp``
    open a port and therefore need a ``password``. ``inherited`` is the caller's own ``OPENCODE_CONFIG_CONTENT``.
    """
    _check(config)
    plan = _plan(config, cwd, executable, prompt, resume, port, password, inherited)
    plan = msgspec.structs.replace(plan, confinement=config.confinement)
    if not config.ask_every_command:
        return plan
    # Before a plugin is loaded, OpenCode waits for an installation from the network that it does not need.
    env = {"npm_config_fetch_retries": "0", **plan.env}
    files = {**plan.files, GUARD_FILE: GUARD_SOURCE}
    return msgspec.structs.replace(plan, env=env, files=files, unset=(*plan.unset, *UNPLUGS))


def _plan(
    config: OpenCodeSessionConfig,
    cwd: str,
    executable: str,
    prompt: str,
    resume: str | None,
    port: int,
    password: str,
    inherited: str,
) -> Launch:
    env = {**QUIET_ENV, "OPENCODE_CONFIG_CONTENT": configuration(config, inherited), **config.env}
    pure = () if config.plugins else ("--pure",)
    match config.driver:
        case OpenCodeDriver.RUN:
            if not prompt.strip():
                raise LocalProtocolError("the prompt is empty: opencode run needs some text")
            return Launch(
                argv=(executable, "run", "--format", "json", *run_options(config, resume), *pure, *config.extra_args),
                cwd=cwd,
                env=env,
                unset=FAILS_OPEN,
                stdin=prompt.encode("utf-8", "replace"),
                stop=(Signal(SIGTERM, 2.0),),
            )
        case OpenCodeDriver.SERVE:
            argv = (executable, "serve", "--hostname", "127.0.0.1", "--port", str(port), *pure, *config.extra_args)
            return _with_password(
                Launch(argv=argv, cwd=cwd, env=env, stdin="null", stop=(Signal(SIGTERM, 2.0),)), password
            )
        case OpenCodeDriver.ACP:
            argv = (executable, "acp", "--hostname", "127.0.0.1", "--port", str(port), *pure, *config.extra_args)
            return _with_password(
                Launch(argv=argv, cwd=cwd, env=env, stop=(EndInput(3.0), Signal(SIGTERM, 2.0))), password
            )


def _with_password(plan: Launch, password: str) -> Launch:
    if not password:
        raise LocalProtocolError("opencode serve and acp open a port: pass a password, so that nobody else can use it")
    env = {**plan.env, "OPENCODE_SERVER_PASSWORD": password}
    return msgspec.structs.replace(plan, env=env, unset=FAILS_OPEN)


def run_options(config: OpenCodeSessionConfig, resume: str | None) -> tuple[str, ...]:
    """The flags of ``opencode run`` that are ours to set."""
    options: list[str] = []
    for flag, value in (
        ("--model", config.model),
        ("--agent", config.agent),
        ("--variant", config.variant),
        ("--title", config.title if resume is None else None),
        ("--session", resume),
    ):
        if value is not None:
            options += [flag, value]
    if resume is not None and config.fork:
        options.append("--fork")
    if config.thinking:
        options.append("--thinking")
    if config.auto:
        options.append("--auto")
    for file in config.files:
        options += ["--file", file]
    return tuple(options)


def configuration(config: OpenCodeSessionConfig, inherited: str = "") -> str:
    """The JSON for ``OPENCODE_CONFIG_CONTENT``, which OpenCode validates: a mistake ends it instead of opening it."""
    members: dict[str, Any] = {**_inherited(inherited), **config.settings}
    members |= {"autoupdate": False, "share": "disabled"}
    if config.model is not None:
        members["model"] = config.model
    if config.small_model is not None:
        members["small_model"] = config.small_model
    if config.enabled_providers is not None:
        members["enabled_providers"] = config.enabled_providers
    if config.instructions:
        members["instructions"] = [*members.get("instructions", ()), *config.instructions]
    if config.mcp_servers:
        members["mcp"] = {**members.get("mcp", {}), **config.mcp_servers}
    agent: dict[str, Any] = {} if config.steps is None else {"steps": config.steps}
    permission = effective_permission(config, members.get("permission"))
    if permission is not None:
        members["permission"] = permission
        if config.permission is not None:
            # The agent's own permissions come after the general ones, and the user may have configured some.
            agent["permission"] = permission
    if config.ask_every_command:
        members["plugin"] = [*members.get("plugin", ()), GUARD_URL]
    if agent:
        name = config.agent or "build"
        agents = cast("dict[str, Any]", members.get("agent", {}))
        members["agent"] = {**agents, name: {**agents.get(name, {}), **agent}}
    return msgspec.json.encode(members).decode().replace(_SCRATCH_IN_JSON, SCRATCH)


def effective_permission(config: OpenCodeSessionConfig, configured: Permission | None = None) -> Permission | None:
    """The config's own permission, else the one in its settings; over ACP without sub-agents."""
    permission = config.permission if config.permission is not None else configured
    if config.driver is not OpenCodeDriver.ACP:
        return None if permission is None else expand_permission(permission)
    # A sub-agent's question is never forwarded over ACP: it would wait for ever. The last rule that matches wins.
    rules = {} if permission is None else expand_permission(permission)
    return {**{name: value for name, value in rules.items() if name != "task"}, "task": "deny"}


def _inherited(content: str) -> dict[str, Any]:
    if not content.strip():
        return {}
    try:
        return msgspec.json.decode(content, type=dict[str, Any])
    except msgspec.DecodeError as error:
        raise LocalProtocolError(
            f"OPENCODE_CONFIG_CONTENT is not a JSON object ({error}): correct or unset it"
        ) from error


def _check(config: OpenCodeSessionConfig) -> None:
    for name in ("model", "small_model"):
        value = getattr(config, name)
        if value is not None and ModelName.parse(value) is None:
            raise LocalProtocolError(f"{name} {value!r} is not of the form provider/model")
    for field, drivers in _ONLY.items():
        if config.driver not in drivers and getattr(config, field) != _DEFAULTS[field]:
            able = " or ".join(driver.value for driver in drivers)
            raise NotSupported(f"{field} is not supported by OpenCode's {config.driver.value} driver: use {able}")
    if config.steps is not None and config.steps < 1:
        raise LocalProtocolError("steps must be at least 1")
    if config.most_steps is not None and config.most_steps < 1:
        raise LocalProtocolError("most_steps must be at least 1, or None for no bound")
    if config.most_empty_steps is not None and config.most_empty_steps < 1:
        raise LocalProtocolError("most_empty_steps must be at least 1, or None for no bound")
    if config.permission is not None:
        check_permission(config.permission)
    if config.ask_every_command and (not config.plugins or "--pure" in config.extra_args):
        raise NotSupported("ask_every_command needs a plugin: keep plugins=True and remove --pure from extra_args")


_ONLY: dict[str, tuple[OpenCodeDriver, ...]] = {
    "auto": (OpenCodeDriver.RUN,),
    "files": (OpenCodeDriver.RUN,),
    "rules": (OpenCodeDriver.SERVE,),
    "append_system_prompt": (OpenCodeDriver.SERVE,),
    "tools": (OpenCodeDriver.SERVE,),
    "output_schema": (OpenCodeDriver.SERVE,),
    "attachments": (OpenCodeDriver.SERVE,),
    "answer_question": (OpenCodeDriver.SERVE,),
    "leave_open": (OpenCodeDriver.SERVE,),
    "can_use_tool": (OpenCodeDriver.SERVE, OpenCodeDriver.ACP),
    "ask_every_command": (OpenCodeDriver.SERVE, OpenCodeDriver.ACP),
    "most_steps": (OpenCodeDriver.RUN, OpenCodeDriver.SERVE),
    "title": (OpenCodeDriver.RUN, OpenCodeDriver.SERVE),
}
_DEFAULTS: dict[str, object] = {field: getattr(OpenCodeSessionConfig(), field) for field in _ONLY}

# --------------------------------------------------------------------------------------------------------------- guard

# OpenCode asks about the commands its parser finds in a script, and does not ask where it finds none: ``> file``,
# ``cd . > file``, ``[[ x ]] > file``. A command that does nothing, put before each script, is always found.
# OpenCode continues when a plugin is switched off or cannot be loaded, so this one leaves a proof beside itself, and
# no prompt is sent without it.

GUARD_FILE = "ask-every-command.js"
GUARD_PROOF = "asks-every-command"
GUARD_MARK = ":\n"
GUARD_URL = f"file://{SCRATCH}/{GUARD_FILE}"
GUARD_SOURCE = b"""import { writeFileSync } from "node:fs"

export default {
  id: "ask-every-command",
  server: async () => ({
    // Called of the plugins that take part, once all are loaded.
    config: async () => writeFileSync(new URL("asks-every-command", import.meta.url), ""),
    "tool.execute.before": async (call, output) => {
      if (call.tool === "bash") output.args.command = ":\\n" + output.args.command
    },
    "tool.execute.after": async (call) => {
      if (call.tool === "bash" && call.args?.command?.startsWith(":\\n")) call.args.command = call.args.command.slice(2)
    },
  }),
}
"""


# ------------------------------------------------------------------------------------------------------------ failures

ANSI = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")


class PortInUse(LaunchError):
    """Somebody else has taken the port between our looking and OpenCode's listening."""


def startup_failure(exited: Exited, session_id: str | None = None) -> StagedoorError:
    """OpenCode ended before its first event."""
    message = complaint(exited.stderr)
    if "port" in message and "in use" in message:
        return PortInUse(f"opencode could not open its port: {message}")
    if "Session not found" in exited.stderr:
        return unknown_session(session_id or "")
    if "Configuration is invalid" in exited.stderr or "not valid JSON" in exited.stderr:
        return refused_configuration(message)
    if "Unknown argument" in exited.stderr or "Unknown option" in exited.stderr:
        return LaunchError(f"OpenCode does not know an option: {message}. Correct extra_args, or update OpenCode")
    return LaunchError(f"opencode ended with code {exited.code} at its start: {message or 'it printed nothing'}")


def refused_configuration(complaint: str) -> LaunchError:
    return LaunchError(f"OpenCode refused its configuration: {complaint}. Correct permission, settings or that file")


def unknown_session(session_id: str) -> SessionNotFound:
    return SessionNotFound(f"session {session_id!r} not found: list_sessions() lists the sessions of a folder")


def no_provider(provider: str | None) -> NotSignedIn:
    if provider is None:
        return NotSignedIn(
            "OpenCode has no provider with credentials and would send everything to its own hosted model: "
            "run `opencode auth login`, or choose a model"
        )
    return NotSignedIn(
        f"OpenCode has no credentials for the provider {provider!r}: run `opencode auth login`, or choose another model"
    )


def complaint(stderr: str) -> str:
    """The lines of standard error that matter, without colours."""
    lines = [ANSI.sub("", line).strip() for line in stderr.splitlines()]
    lines = [line for line in lines if line]
    errors = [line for line in lines if line.lower().startswith("error")]
    return " ".join((errors or lines)[-3:])[:600]
