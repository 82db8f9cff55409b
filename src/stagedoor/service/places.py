"""Where a session may run and what may be read: only under the configured roots, symlinks resolved."""

from __future__ import annotations

from pathlib import Path

from stagedoor.errors import BadRequest, NotAllowed
from stagedoor.register import home

from .settings import Settings
from .views import Wanted


def roots(settings: Settings, agent: str = "") -> list[Path]:
    """The folders; with ``agent`` those too that only this one is trusted with."""
    own = settings.agents[agent].trusted_folders if agent in settings.agents else ()
    return [Path(root).expanduser().resolve() for root in (*settings.roots, *own)]


def workspace(wanted: Wanted, settings: Settings, agent: str = "") -> Path:
    """The folder a new session runs in. Raises ``NotAllowed`` outside the roots, ``BadRequest`` when there is none."""
    if wanted.cwd:
        folder = Path(wanted.cwd).expanduser()
        if not folder.is_absolute():
            folder = roots(settings)[0] / folder
    elif wanted.project_id:
        folder = _project(wanted.project_id, settings)
    else:
        folder = roots(settings)[0]
    found = folder.resolve()
    allowed(found, settings, agent)
    if not found.is_dir():
        raise BadRequest(f"{found} is not a folder; make it first, or name another one")
    return found


def allowed(path: Path, settings: Settings, agent: str = "") -> None:
    """Raises ``NotAllowed`` for what is outside the roots, or in Stagedoor's own folder."""
    own = (Path(settings.home) if settings.home else home()).resolve()
    ours = worktrees(own)
    if not any(path.is_relative_to(root) for root in (*roots(settings, agent), ours)):
        raise NotAllowed(f"{path} is outside the folders this server works in; add it to roots in its configuration")
    if path.is_relative_to(own) and not path.is_relative_to(ours):
        raise NotAllowed(f"{path} is in the server's own folder, which holds its token; name another one")


def worktrees(of: Path) -> Path:
    """Where sessions that work in a git worktree of their own have it."""
    return of / "worktrees"


def _project(project_id: str, settings: Settings) -> Path:
    named = settings.projects.get(project_id)
    if named is not None:
        return Path(named).expanduser()
    for root in roots(settings):
        if root.name == project_id:
            return root
        if "/" not in project_id and project_id not in (".", "..") and (root / project_id).is_dir():
            return root / project_id
    known = ", ".join(sorted(settings.projects)) or "none are configured"
    raise BadRequest(f"no project is called {project_id!r} (known: {known}), and no root has a folder of that name")
