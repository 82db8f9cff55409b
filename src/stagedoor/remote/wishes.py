"""Options of ``run`` and ``open`` as a server is asked for them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from ..errors import NotSupported
from ..service.views import Wanted
from ..unified.decisions import CanUseTool
from ..unified.options import Options

_OURS = frozenset({"prompt", "agent", "keep_open"})
_HERE = frozenset({"can_use_tool", "resume", "fork"})
ACCEPTED = (frozenset(Wanted.__struct_fields__) - _OURS) | _HERE

_WHY: dict[str, str] = {
    "policy": "the server's own policy decides; name it in the server's configuration",
    "remember_in": "the server keeps what is to be remembered in its own policy file",
    "audit": "the server keeps the record of decisions; GET /api/audit shows it",
    "images": "the server takes no images with a prompt",
    "env": "the server gives each agent its environment; set it in the server's configuration",
    "inherit_env": "the server gives each agent its environment; set it in the server's configuration",
    "stall_after": "the server watches its agents by itself",
    "watch_files": "the server watches its workspaces by itself",
    "extra_args": "the server runs each agent as its configuration says",
    "executable": "the server runs each agent as its configuration says",
    "raw": "the server does not send the agents' own messages",
}


class Wish(msgspec.Struct, frozen=True, kw_only=True):
    """What ``open`` was called with. ``resume`` names a session of the server to go on with."""

    agent: str
    asked: Mapping[str, Any]
    can_use_tool: CanUseTool | None = None
    resume: str | None = None
    fork: bool = False

    def wanted(self, prompt: str, *, keep_open: bool) -> Wanted:
        return Wanted(prompt=prompt, agent=self.agent, keep_open=keep_open, **self.asked)


def wish(agent: str, given: Mapping[str, Any]) -> Wish:
    """Raises ``NotSupported`` for an option that makes sense only where the agent runs, ``TypeError`` for no option."""
    for name in given:
        if name in ACCEPTED:
            continue
        if name in Options.__struct_fields__:
            raise NotSupported(f"{name}= makes no sense with a server: {_WHY[name]}")
        raise TypeError(f"unknown option {name!r}; the options with a server are {', '.join(sorted(ACCEPTED))}")
    if given.get("permission_timeout", 0) is None:
        raise NotSupported("permission_timeout=None makes no sense with a server: leave it out, and the server decides")
    asked = {name: _plain(value) for name, value in given.items() if name not in _HERE}
    resume = given.get("resume")
    if resume is not None and asked:
        names = ", ".join(f"{name}=" for name in asked)
        raise NotSupported(f"a session goes on with the options it began with; leave out {names}")
    if given.get("fork") and resume is None:
        raise NotSupported("fork= needs resume=, the session to branch off from")
    return Wish(
        agent=agent,
        asked=asked,
        can_use_tool=given.get("can_use_tool"),
        resume=resume,
        fork=bool(given.get("fork")),
    )


def _plain(value: Any) -> Any:
    return str(value) if hasattr(value, "__fspath__") else value
