"""The environment in which a real CLI talks to nobody but the scripted model, and touches only a separate home."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import msgspec

from stagedoor import catalog

from .clis import cache_beside

KEY = "sk-scripted-000000000000000000000000"
_INHERITED = ("PATH", "LANG", "LC_ALL", "TZ", "SYSTEMROOT")


class Environment(msgspec.Struct, frozen=True):
    """Start the agent with exactly these variables (not on top of your own) and ask for this model."""

    agent: str
    env: dict[str, str]
    home: Path
    model: str


def environment_for(
    agent: str, url: str, home: Path, cwd: Path | None, model: str | None, caller: Mapping[str, str]
) -> Environment:
    """Write the settings of this agent below ``home`` and return its environment."""
    setup = catalog.agent(agent).scripted if agent in catalog.names() else None
    if setup is None:
        raise ValueError(f"no scripted environment for {agent!r}: choose from {', '.join(scripted_agents())}")
    home = home.resolve()
    cache = cache_beside(agent) if setup.shares_cache else None
    home.mkdir(parents=True, exist_ok=True)
    temporary = home / "tmp"
    temporary.mkdir(exist_ok=True)
    chosen = model or setup.model
    settings = setup.settings(url, home, str((cwd or Path.cwd()).resolve()), chosen, KEY)
    for name, text in settings.files.items():
        path = home / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if not (settings.once and path.exists()):
            path.write_text(text)
    inherited = {name: caller[name] for name in _INHERITED if name in caller}
    env = {
        "PATH": "/usr/local/bin:/usr/bin:/bin",
        "LANG": "C.UTF-8",
        **inherited,
        "HOME": str(home),
        "TMPDIR": str(temporary),
        "SHELL": "/bin/bash",
        "TERM": "xterm-256color",
        "COLORTERM": "truecolor",
        "NO_COLOR": "1",
        "DO_NOT_TRACK": "1",
        **{f"XDG_{kind}_HOME": str(home / folder) for kind, folder in _XDG.items()},
        **({"XDG_CACHE_HOME": str(cache)} if cache is not None else {}),
        **settings.env,
    }
    return Environment(agent, env, home, chosen)


_XDG = {"CONFIG": ".config", "DATA": ".local/share", "STATE": ".local/state", "CACHE": ".cache"}


def scripted_agents() -> tuple[str, ...]:
    """The agents whose programs run on a scripted model."""
    return tuple(name for name in catalog.names() if catalog.agent(name).scripted is not None)
