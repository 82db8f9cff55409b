"""How much is at stake when a path is read, written or deleted."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from stagedoor.unified.events import Risk

from ..paths import Ground, Place, Spot, locate
from ..shell.words import HOLE

LEVELS: dict[Risk, int] = {"low": 0, "medium": 1, "high": 2}


class Finding(NamedTuple):
    """One thing that was seen, and how bad it is."""

    risk: Risk
    reason: str


def worst(risks: Iterable[Risk]) -> Risk:
    found: Risk = "low"
    for risk in risks:
        found = risk if LEVELS[risk] > LEVELS[found] else found
    return found


_READ: dict[Place, tuple[Risk, str]] = {
    "harmless": ("low", ""),
    "workspace": ("low", ""),
    "temp": ("medium", "outside the workspace"),
    "unknown": ("medium", "a path that is known only at run time"),
    "outside": ("medium", "outside the workspace"),
    "system": ("medium", "a system path"),
    "device": ("high", "a device or socket"),
    "secret": ("high", "where credentials are stored"),
}
_WRITE: dict[Place, tuple[Risk, str]] = {
    "harmless": ("low", ""),
    "workspace": ("medium", "in the workspace"),
    "temp": ("medium", "outside the workspace"),
    "unknown": ("medium", "a path that is known only at run time"),
    "outside": ("high", "outside the workspace"),
    "system": ("high", "a system path"),
    "device": ("high", "a device or socket"),
    "protected": ("high", ""),
    "secret": ("high", "where credentials are stored"),
}


def display_path(path: str) -> str:
    path = path.replace(HOLE, "…") or "''"
    return path if len(path) <= 80 else path[:79] + "…"


def reading(path: str, cwds: Sequence[str | None], ground: Ground) -> list[Finding]:
    spot = locate(path, cwds, ground)
    risk, why = _READ[spot.region if spot.place == "protected" else spot.place]
    return [] if risk == "low" else [Finding(risk, f"reads {display_path(path)}, {why}")]


def writing(path: str, cwds: Sequence[str | None], ground: Ground, *, verb: str = "writes") -> list[Finding]:
    spot = locate(path, cwds, ground)
    risk, why = _WRITE[spot.place]
    if spot.place == "protected":
        return [protected_finding(path, spot, verb)]
    return [] if risk == "low" else [Finding(risk, f"{verb} {display_path(path)}, {why}")]


def protected_finding(path: str, spot: Spot, verb: str = "names") -> Finding:
    return Finding("high", f"{verb} {display_path(path)}: {spot.why}")


def deleting(
    path: str, cwds: Sequence[str | None], ground: Ground, *, recursive: bool, verb: str = "deletes"
) -> list[Finding]:
    spot = locate(path, cwds, ground)
    if spot.place == "harmless":
        return [Finding("medium", f"{verb} {display_path(path)}")]
    if spot.broad and (recursive or "*" in path or "?" in path):
        return [Finding("high", f"{verb} {display_path(path)}, a complete directory tree")]
    if spot.place == "unknown":
        return [Finding("high" if recursive else "medium", f"{verb} a path that is known only at run time")]
    if spot.place == "workspace":
        return [Finding("medium", f"{verb} {display_path(path)} in the workspace")]
    if spot.place == "protected":
        return [protected_finding(path, spot, verb)]
    if spot.place == "temp" and not recursive:
        return [Finding("medium", f"{verb} {display_path(path)}, outside the workspace")]
    return [Finding("high", f"{verb} {display_path(path)}, {_WRITE[spot.place][1]}")]


def changing_tree(path: str, cwds: Sequence[str | None], ground: Ground, *, verb: str) -> list[Finding]:
    """A change to everything under a path."""
    spot: Spot = locate(path, cwds, ground)
    if spot.broad or spot.place == "unknown":
        return [Finding("high", f"{verb} {display_path(path)} and everything under it")]
    return writing(path, cwds, ground, verb=verb)
