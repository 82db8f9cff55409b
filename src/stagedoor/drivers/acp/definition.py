"""An agent that speaks the Agent Client Protocol, as whoever has its program describes it."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import get_args

import msgspec

from ...errors import BadRequest
from ...unified.options import Tier

NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,39}")
ANY = "acp"
"""What an agent is called that nobody has given a name."""


class AcpAgent(msgspec.Struct, frozen=True, kw_only=True):
    """Any program that speaks the Agent Client Protocol on its standard input and output.

    >>> mine = stagedoor.AcpAgent(command=["my-agent", "--acp"], modes={"supervised": "ask", "autonomous": "auto"})
    >>> async for event in stagedoor.run(mine, "Fix the login bug", cwd="."): ...

    ``modes``: tier → the agent's own mode that keeps it. A tier without one is refused, except ``autonomous``, which
    promises nothing, and ``dry-run`` with ``confine="read-only"``. ``options``: its own settings, by their ids.
    ``env`` is added to its environment. ``name`` is what its events, logs and stored sessions are filed under.
    """

    command: Sequence[str]
    env: Mapping[str, str] = {}
    modes: Mapping[Tier, str] = {}
    options: Mapping[str, str | bool] = {}
    name: str = ANY
    title: str = ""
    install: str = ""
    """The command that installs it, for the message that it is missing."""

    def __post_init__(self) -> None:
        if isinstance(self.command, str) or not self.command or not all(_is_word(word) for word in self.command):
            raise BadRequest(f"command={self.command!r}: give the program and its arguments as a list of texts")
        for tier in self.modes:
            if tier not in get_args(Tier):
                raise BadRequest(f"modes: {tier!r} is not a tier; choose from {', '.join(get_args(Tier))}")
        if not NAME.fullmatch(self.name):
            raise BadRequest(
                f"name={self.name!r}: use small letters, digits, dots, hyphens and underscores, at most 40"
            )


def _is_word(word: object) -> bool:
    return isinstance(word, str) and bool(word) and "\0" not in word
