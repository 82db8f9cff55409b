"""OpenCode's command lines and configuration, from a typed config. Pure."""

from __future__ import annotations

from typing import Any, cast

import msgspec

from stagedoor.errors import LocalProtocolError, NotSupported
from stagedoor.transports.launch import SCRATCH, EndInput, Launch, Signal

from . import guard
from .commands import Model
from .config import Driver, OpenCodeConfig
from .permissions import Permission, check, spelled_out

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
"""With these no plugin is loaded, ours neither."""


def launch(
    config: OpenCodeConfig,
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
    if not config.ask_every_command:
        return plan
    # Before a plugin is loaded, OpenCode waits for an installation from the network that it does not need.
    env = {"npm_config_fetch_retries": "0", **plan.env}
    files = {**plan.files, guard.FILE: guard.SOURCE}
    return msgspec.structs.replace(plan, env=env, files=files, unset=(*plan.unset, *UNPLUGS))


def _plan(
    config: OpenCodeConfig,
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
        case Driver.RUN:
            if not prompt.strip():
                raise LocalProtocolError("opencode run needs a prompt: pass a text that is not empty")
            return Launch(
                argv=(executable, "run", "--format", "json", *run_options(config, resume), *pure, *config.extra_args),
                cwd=cwd,
                env=env,
                unset=FAILS_OPEN,
                stdin=prompt.encode("utf-8", "replace"),
                stop=(Signal(SIGTERM, 2.0),),
            )
        case Driver.SERVE:
            argv = (executable, "serve", "--hostname", "127.0.0.1", "--port", str(port), *pure, *config.extra_args)
            return _guarded(Launch(argv=argv, cwd=cwd, env=env, stdin="null", stop=(Signal(SIGTERM, 2.0),)), password)
        case Driver.ACP:
            argv = (executable, "acp", "--hostname", "127.0.0.1", "--port", str(port), *pure, *config.extra_args)
            return _guarded(Launch(argv=argv, cwd=cwd, env=env, stop=(EndInput(3.0), Signal(SIGTERM, 2.0))), password)


def _guarded(plan: Launch, password: str) -> Launch:
    if not password:
        raise LocalProtocolError("opencode serve and acp open a port: give it a password, it would obey anybody")
    env = {**plan.env, "OPENCODE_SERVER_PASSWORD": password}
    return msgspec.structs.replace(plan, env=env, unset=FAILS_OPEN)


def run_options(config: OpenCodeConfig, resume: str | None) -> tuple[str, ...]:
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


def configuration(config: OpenCodeConfig, inherited: str = "") -> str:
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
    if config.mcp:
        members["mcp"] = {**members.get("mcp", {}), **config.mcp}
    agent: dict[str, Any] = {} if config.steps is None else {"steps": config.steps}
    permission = effective_permission(config, members.get("permission"))
    if permission is not None:
        members["permission"] = permission
        if config.permission is not None:
            # The agent's own permissions come after the general ones, and the user may have configured some.
            agent["permission"] = permission
    if config.ask_every_command:
        members["plugin"] = [*members.get("plugin", ()), guard.URL]
    if agent:
        name = config.agent or "build"
        agents = cast("dict[str, Any]", members.get("agent", {}))
        members["agent"] = {**agents, name: {**agents.get(name, {}), **agent}}
    return msgspec.json.encode(members).decode().replace(_SCRATCH_IN_JSON, SCRATCH)


def effective_permission(config: OpenCodeConfig, configured: Permission | None = None) -> Permission | None:
    """What is to hold: the config's own, else what its settings say; over ACP without sub-agents."""
    permission = config.permission if config.permission is not None else configured
    if config.driver is not Driver.ACP:
        return None if permission is None else spelled_out(permission)
    # A sub-agent's question is never forwarded over ACP: it would wait for ever. The last rule that matches wins.
    rules = {} if permission is None else spelled_out(permission)
    return {**{name: value for name, value in rules.items() if name != "task"}, "task": "deny"}


def _inherited(content: str) -> dict[str, Any]:
    if not content.strip():
        return {}
    try:
        return msgspec.json.decode(content, type=dict[str, Any])
    except msgspec.DecodeError as error:
        raise LocalProtocolError(f"OPENCODE_CONFIG_CONTENT is no JSON object ({error}); correct or unset it") from error


def _check(config: OpenCodeConfig) -> None:
    for name in ("model", "small_model"):
        value = getattr(config, name)
        if value is not None and Model.parse(value) is None:
            raise LocalProtocolError(f"{name} must be written provider/model, not {value!r}")
    for field, drivers in _ONLY.items():
        if config.driver not in drivers and getattr(config, field) != _DEFAULTS[field]:
            able = " or ".join(driver.value for driver in drivers)
            raise NotSupported(f"{field} needs OpenCode's {able} driver, not {config.driver.value}")
    if config.steps is not None and config.steps < 1:
        raise LocalProtocolError("steps must be at least 1")
    if config.most_steps is not None and config.most_steps < 1:
        raise LocalProtocolError("most_steps must be at least 1, or None for no bound")
    if config.most_empty_steps is not None and config.most_empty_steps < 1:
        raise LocalProtocolError("most_empty_steps must be at least 1, or None for no bound")
    if config.permission is not None:
        check(config.permission)
    if config.ask_every_command and (not config.plugins or "--pure" in config.extra_args):
        raise NotSupported("ask_every_command is a plugin: leave plugins on and --pure away")


_ONLY: dict[str, tuple[Driver, ...]] = {
    "auto": (Driver.RUN,),
    "files": (Driver.RUN,),
    "rules": (Driver.SERVE,),
    "system": (Driver.SERVE,),
    "tools": (Driver.SERVE,),
    "output_schema": (Driver.SERVE,),
    "attachments": (Driver.SERVE,),
    "answer_question": (Driver.SERVE,),
    "leave_open": (Driver.SERVE,),
    "can_use_tool": (Driver.SERVE, Driver.ACP),
    "ask_every_command": (Driver.SERVE, Driver.ACP),
    "most_steps": (Driver.RUN, Driver.SERVE),
    "title": (Driver.RUN, Driver.SERVE),
    "variant": (Driver.RUN, Driver.SERVE),
}
_DEFAULTS: dict[str, object] = {field: getattr(OpenCodeConfig(), field) for field in _ONLY}
