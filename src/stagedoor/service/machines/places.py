"""Where a session's files are: in a folder of one machine."""

from __future__ import annotations

import re

from stagedoor.errors import BadRequest

HOST = "host:"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")


def labels_of(needs: tuple[str, ...], place: str, agent: str) -> tuple[str, ...]:
    """All that a machine must have for a session. Raises ``BadRequest`` for a place that is none."""
    if place and not (place.startswith(HOST) and _NAME.fullmatch(place.removeprefix(HOST))):
        raise BadRequest(f"{place!r} is no place; write host:NAME with the name of a machine (stagedoor workers)")
    return tuple(dict.fromkeys((*needs, *([place] if place else []), *([f"agent:{agent}"] if agent else []))))
