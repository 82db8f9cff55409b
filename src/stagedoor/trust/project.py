"""What of a project an agent would load, and whether it may. It is looked for, never run."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Literal, TypeAlias

import msgspec

from ..unified.events import Notice, ProjectFile
from ..unified.options import Options
from .folders import is_covered, repository_root, trust_subject
from .record import TrustRecord

Reach: TypeAlias = Literal["folder", "repository", "parents", "repository or parents"]
"""Where an agent looks: where it starts; from there up to the repository's root; up to ``/``; or up to the root, and
without a repository up to ``/``."""
MOST_NAMED = 8
LARGEST = 1_000_000


class ProjectPath(msgspec.Struct, frozen=True):
    """A file or folder that an agent takes from a project. A folder counts when there is something in it."""

    path: str
    kind: str
    """What it holds: ``hooks and settings``."""
    reach: Reach = "folder"
    is_text: bool = False
    """It is read to the model and runs nothing: named only where it is not read."""


class ProjectStanding(msgspec.Struct, frozen=True, kw_only=True):
    """Whether a project may take part in a session, what there is of it, and why it may not."""

    trusted: bool
    subject: str = ""
    """The folder that is trusted or not."""
    files: tuple[ProjectFile, ...] = ()
    reason: Literal["", "nobody", "dry-run", "above"] = ""
    """Nobody trusts it; nothing of a project runs in a dry run; something above it is not trusted."""


def standing_of(options: Options, paths: Iterable[ProjectPath], home: str | None) -> ProjectStanding:
    """Decide for one session. What cannot be told counts as not trusted."""
    cwd = Path(options.cwd)
    subject = trust_subject(cwd)
    places = dict(project_places(cwd, paths, home))
    files = tuple(places)
    entries = [] if options.trust is False else [entry.folder for entry in TrustRecord().folders()]
    entries += [str(subject)] if options.trust else []
    if not is_covered(cwd, entries):
        return ProjectStanding(trusted=False, subject=str(subject), files=files, reason="nobody")
    if options.tier == "dry-run":
        return ProjectStanding(trusted=False, subject=str(subject), files=files, reason="dry-run")
    strangers = tuple(file for file, place in places.items() if not file.is_text and not is_covered(place, entries))
    if strangers:
        return ProjectStanding(trusted=False, subject=str(subject), files=strangers, reason="above")
    return ProjectStanding(trusted=True, subject=str(subject), files=tuple(file for file in files if not file.is_text))


def project_places(
    cwd: Path, paths: Iterable[ProjectPath], home: str | None = None
) -> Iterator[tuple[ProjectFile, Path]]:
    """What there is, with the folder it was met in. What lies in the user's home itself is the user's own."""
    start = cwd.resolve()
    own = Path(home).resolve() if home else None
    for path in paths:
        for folder in _folders(start, path.reach):
            if folder != own and _counts(folder / path.path):
                yield ProjectFile(path=str(folder / path.path), kind=path.kind, is_text=path.is_text), folder


def _folders(start: Path, reach: Reach) -> list[Path]:
    upwards = [start, *start.parents]
    root = repository_root(start)
    match reach:
        case "folder":
            return upwards[:1]
        case "parents":
            return upwards
        case "repository":
            return upwards[: upwards.index(root) + 1] if root else upwards[:1]
        case "repository or parents":
            return upwards[: upwards.index(root) + 1] if root else upwards


def _counts(path: Path) -> bool:
    """A link that leads nowhere does not count; what may not be looked into does."""
    try:
        if not path.is_dir():
            return path.exists()
        return any(path.iterdir())
    except OSError:
        return True


def notice_of(standing: ProjectStanding, title: str) -> Notice | None:
    """What a session tells about its project at its start; nothing where there is nothing to tell."""
    if not standing.files:
        return None
    named = _named(standing)
    if standing.trusted:
        message = f"the folder is trusted, so {title} may load from the project: {named}"
        return Notice(
            level="info", code="project_trusted", message=message, trusted=True, project_files=list(standing.files)
        )
    match standing.reason:
        case "dry-run":
            message = f"nothing of a project takes part in a dry run, so this is off: {named}"
        case "above":
            message = (
                f"{standing.subject} is trusted, but what lies above it is not, so nothing of the project takes part: "
                f"{named}; look at it, then remove it or run stagedoor trust on its folder"
            )
        case _:
            message = (
                f"the folder is not trusted, so this is off: {named}; look at it, then run "
                f"stagedoor trust {standing.subject} to let it take part"
            )
    return Notice(
        level="warning", code="project_untrusted", message=message, trusted=False, project_files=list(standing.files)
    )


def _named(standing: ProjectStanding) -> str:
    shown = [described(file, standing.subject) for file in standing.files[:MOST_NAMED]]
    more = len(standing.files) - len(shown)
    return ", ".join(shown) + (f" and {more} more" if more > 0 else "")


def described(file: ProjectFile, subject: str) -> str:
    path = Path(file.path)
    inside = path.relative_to(subject) if path.is_relative_to(subject) else path
    return f"{inside} ({file.kind})"
