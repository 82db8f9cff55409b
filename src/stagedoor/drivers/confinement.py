"""From the options to a confinement: what one session's agent may touch."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path

from ..machine.folders import user_folders
from ..register import home
from ..transports.launch import Confinement
from ..trust.project import ProjectPath
from ..unified.options import Options
from .agent import StateFolders


def environ_of(options: Options) -> dict[str, str]:
    """What the agent's program has for its environment."""
    return {**os.environ, **options.env} if options.inherit_env else dict(options.env)


def is_confined(options: Options, *, own_sandbox: bool = False) -> bool:
    """``own_sandbox``: the agent itself keeps to ``workspaceWrite``; for the others we do."""
    return options.confine != "off" or (options.sandbox == "workspaceWrite" and not own_sandbox)


def confinement_of(
    options: Options,
    state: Callable[[Mapping[str, str]], StateFolders],
    project: tuple[ProjectPath, ...] = (),
    *,
    own_sandbox: bool = False,
) -> Confinement | None:
    """``None``: the options ask for none. ``project``: what the agent takes from a project by itself."""
    if not is_confined(options, own_sandbox=own_sandbox):
        return None
    environ = environ_of(options)
    own = state(environ)
    changes_nothing = options.confine == "read-only" or options.tier == "dry-run" or options.sandbox == "readOnly"
    return Confinement(
        workspace=not changes_nothing,
        writable=(*own.folders, *(_placed(path, environ) for path in options.confine_write)),
        readonly=(*own.settings, *_rules(options), *_project_settings(options, project)),
        hidden=(*_ours(environ), *(_placed(path, environ) for path in options.confine_hide)),
    )


def _rules(options: Options) -> list[str]:
    """Our own rules and the record of what was decided by them, if they lie in the workspace."""
    files = (options.policy, options.remember_in, options.audit)
    return [str(Path(file).absolute()) for file in files if isinstance(file, str | Path)]


def _project_settings(options: Options, project: tuple[ProjectPath, ...]) -> list[str]:
    """What its next run would do by itself; texts that it only reads may be edited."""
    places = [Path(options.cwd) / path.path for path in project if not path.is_text]
    return [str(place) for place in places if place.exists()]


def _ours(environ: Mapping[str, str]) -> list[str]:
    """Token, log and configuration of ours: with the token an agent could open a session that is not confined."""
    found: list[str] = []
    for env in (os.environ, environ):
        found += [str(home(env)), env.get("STAGEDOOR_STATE_HOME", "")]
        found += [str(folder / "stagedoor") for folder in user_folders("config", env)]
    return [place for place in dict.fromkeys(found) if place]


def _placed(path: str, environ: Mapping[str, str]) -> str:
    """``~`` is the agent's home."""
    if path == "~" or path.startswith("~/"):
        return str(environ.get("HOME") or Path.home()) + path[1:]
    return str(Path(path).absolute())
